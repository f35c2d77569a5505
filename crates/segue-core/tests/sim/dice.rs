//! Deterministic randomness: a number in, a number out.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Dice for this seed and this name: throws for one thing do not depend on throws for another.
    pub(crate) fn for_thing(seed: u64, name: &str) -> Dice {
        let mut hasher = Fnv(0xCBF2_9CE4_8422_2325 ^ mixed(seed));
        name.hash(&mut hasher);
        Dice(hasher.finish())
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    pub(crate) fn small(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.small(from.len())]
    }
}

/// What something looks like, as a number: cheaper to compare than its text.
pub(crate) fn digest(thing: &dyn fmt::Debug) -> u64 {
    let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
    let _ = write!(hasher, "{thing:?}");
    hasher.finish()
}

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// FNV-1a; the standard library's hasher may change between versions.
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        mixed(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}
