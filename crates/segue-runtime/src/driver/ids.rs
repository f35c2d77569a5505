//! The clock, random bits and ids: the core has none of these.

use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A source of random bits: a keyed hash of a counter. The operating system gives the key, so an
/// observer of some bits cannot compute the others, and drawing bits needs no system call.
#[derive(Default)]
pub struct IdSource {
    key: RandomState,
    drawn: AtomicU64,
    /// The last ordered id's time and counter.
    stamp: AtomicU64,
}

impl IdSource {
    /// The next bits.
    pub fn random_u64(&self) -> u64 {
        self.key.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A UUIDv7. Later ones are greater, also within a millisecond: the time and a counter of twelve
    /// bits are one number that only grows (RFC 9562, 6.2).
    pub fn ordered_id(&self) -> Arc<str> {
        let now = now_ms() << 12;
        let next = |last: u64| now.max(last + 1);
        let last = self.stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(next(l)));
        let stamp = next(last.unwrap_or_else(|last| last));
        let (time, count) = (u128::from(stamp >> 12), u128::from(stamp & 0xfff));
        let bits = (time << 80) | (count << 64) | u128::from(self.random_u64());
        let builder = uuid::Builder::from_u128(bits).with_version(uuid::Version::SortRand);
        text(builder.with_variant(uuid::Variant::RFC4122).as_uuid())
    }

    /// A UUIDv4.
    pub fn random_id(&self) -> Arc<str> {
        let (high, low) = (self.random_u64(), self.random_u64());
        let bits = (u128::from(high) << 64) | u128::from(low);
        text(uuid::Builder::from_random_bytes(bits.to_be_bytes()).as_uuid())
    }

    /// `prefix_` + seconds since 1970 + `_` + nine of `[a-z0-9]`.
    pub fn stamped_id(&self, prefix: &str) -> Arc<str> {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut id = String::with_capacity(prefix.len() + "_1700000000_abcdefghi".len());
        let _ = write!(id, "{prefix}_{:010}_", now_ms() / 1000);
        let mut bits = self.random_u64();
        for _ in 0..9 {
            id.push(char::from(LETTERS[usize::try_from(bits % 36).unwrap_or(0)]));
            bits /= 36;
        }
        id.into()
    }
}

fn text(id: &Uuid) -> Arc<str> {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    Arc::from(&*id.hyphenated().encode_lower(&mut text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids differ, within an engine and between two; their bits are spread evenly.
    #[test]
    fn draws_differ_and_are_spread() {
        let engines = [IdSource::default(), IdSource::default()];
        let drawn: std::collections::BTreeSet<Arc<str>> =
            (0..1000).flat_map(|_| engines.iter().map(IdSource::random_id)).collect();
        assert_eq!(drawn.len(), 2000);
        assert!(drawn.iter().all(|id| Uuid::try_parse(id).unwrap().get_version_num() == 4));
        let ones: u32 = (0..1000).map(|_| engines[0].random_u64().count_ones()).sum();
        assert!((31_000..33_000).contains(&ones), "{ones} of 64,000 bits are set");
    }

    /// Run ids sort by when they were made.
    #[test]
    fn ordered_ids_are_ordered_and_say_when() {
        let ids = IdSource::default();
        let before = now_ms();
        let drawn: Vec<Arc<str>> = (0..1_000).map(|_| ids.ordered_id()).collect();
        assert!(drawn.is_sorted_by(|a, b| a < b));
        let ids: Vec<Uuid> = drawn.iter().map(|id| Uuid::try_parse(id).unwrap()).collect();
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        let (seconds, nanos) = ids[0].get_timestamp().unwrap().to_unix();
        let made = seconds * 1000 + u64::from(nanos) / 1_000_000;
        assert!((before..=now_ms()).contains(&made));
    }

    /// S4-03
    #[test]
    fn stamped_ids_have_their_shape_and_differ() {
        let ids = IdSource::default();
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| ids.stamped_id("req")).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            let parts: Vec<&str> = id.split('_').collect();
            assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("req", 10, 9));
        }
    }
}
