//! Time and chance, which the core has not.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A source of random bits, seeded by the process.
pub struct Chance(AtomicU64);

impl Default for Chance {
    fn default() -> Chance {
        Chance(AtomicU64::new(RandomState::new().hash_one(now_ms())))
    }
}

impl Chance {
    /// The next bits (SplitMix64).
    pub fn draw(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bits = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// `prefix_` + seconds since 1970 + `_` + nine of `[a-z0-9]`.
    pub fn stamped_id(&self, prefix: &str) -> Arc<str> {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut bits = self.draw();
        let tail: String = (0..9)
            .map(|_| {
                let letter = LETTERS[usize::try_from(bits % 36).unwrap_or(0)];
                bits /= 36;
                char::from(letter)
            })
            .collect();
        format!("{prefix}_{:010}_{tail}", now_ms() / 1000).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S4-03
    #[test]
    fn stamped_ids_have_their_shape_and_differ() {
        let chance = Chance::default();
        let ids: std::collections::BTreeSet<_> =
            (0..1000).map(|_| chance.stamped_id("req")).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let parts: Vec<&str> = id.split('_').collect();
            assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("req", 10, 9));
        }
    }
}
