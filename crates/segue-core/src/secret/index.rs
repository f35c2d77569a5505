//! Searches for many needles at once, at a cost that does not depend on their number or overlap.
//!
//! The index holds prefixes of each needle at the lengths of a binary search: of a needle of 13
//! bytes those of 8, 12 and 13. At each offset of a text, one lookup per bit of the longest length
//! finds the longest needle that begins there. An automaton (Aho-Corasick) needs one step instead,
//! but memory for each byte of each encoding of each secret, and lists of needles inside others; a
//! run's input could make both too large.
//!
//! Prefixes are identified by their length and a hash of 61 bits. Two that share both would be
//! confused.

use std::collections::BTreeMap;
use std::ops::Range;

/// Hashes are polynomials modulo this prime.
const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0b5a_3c7d_91e2_46f3;

/// Bytes of a text hashed at a time, if no needle is longer.
const CHUNK_BYTES: usize = 64 * 1024;

/// Not computed yet.
const UNKNOWN: u32 = u32::MAX;

/// An index of needles.
#[derive(Clone)]
pub(super) struct SecretIndex {
    /// By length and hash: the longest needle that the prefix starts with.
    prefixes: BTreeMap<(u32, u64), u32>,
    /// Powers of the base by 1, 2, 4, … up to the longest needle.
    powers: Vec<u64>,
    starts: FirstBytes,
    longest: usize,
}

impl SecretIndex {
    pub(super) fn new(needles: &[Vec<u8>]) -> SecretIndex {
        let lengths = || needles.iter().map(Vec::len);
        let longest = lengths().max().unwrap_or(0);
        let bits = (usize::BITS - longest.leading_zeros()) as usize;
        let powers = std::iter::successors(Some(BASE), |power| Some(times(*power, *power)));
        let powers = powers.take(bits).collect();
        let starts = FirstBytes::new(needles, lengths().min().unwrap_or(0));
        let mut index = SecretIndex { prefixes: BTreeMap::new(), powers, starts, longest };
        for needle in needles {
            let hashes = Hashes::new(needle);
            for length in index.halves(needle.len()) {
                let prefix = index.prefixes.entry(hashes.prefix(length));
                let known = prefix.or_insert(UNKNOWN);
                if length == needle.len() {
                    *known = as_u32(length);
                }
            }
        }
        for needle in needles {
            let hashes = Hashes::new(needle);
            for length in index.halves(needle.len()) {
                index.settle(&hashes, length);
            }
        }
        index
    }

    /// The lengths of a binary search for a length: its bits, one after the other.
    fn halves(&self, length: usize) -> Vec<usize> {
        let bits = (0..self.powers.len()).rev().filter(|bit| length & (1 << bit) != 0);
        bits.scan(0, |sum, bit| {
            *sum |= 1 << bit;
            Some(*sum)
        })
        .collect()
    }

    /// Computes the longest needle that an indexed prefix starts with.
    fn settle(&mut self, hashes: &Hashes, length: usize) -> u32 {
        let key = hashes.prefix(length);
        match self.prefixes.get(&key) {
            Some(&UNKNOWN) => {}
            Some(known) => return *known,
            None => return 0,
        }
        let (mut at, mut found) = (0, 0);
        for bit in (0..self.powers.len()).rev() {
            let longer = at | 1 << bit;
            if longer < length && self.prefixes.contains_key(&hashes.prefix(longer)) {
                found = found.max(self.settle(hashes, longer));
                at = longer;
            }
        }
        self.prefixes.insert(key, found);
        found
    }

    /// The ranges of needles in a text, in order; overlapping ones merged.
    pub(super) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let step = CHUNK_BYTES.max(self.longest);
        for from in (0..text.len()).step_by(step) {
            let chunk = &text[from..text.len().min(from + step + self.longest)];
            let mut hashes = None;
            for at in 0..chunk.len().min(step) {
                if !self.starts.may_start(&chunk[at..]) {
                    continue;
                }
                let hashes = hashes.get_or_insert_with(|| Hashes::new(chunk));
                let length = self.longest_at(hashes, at, chunk.len() - at);
                let place = from + at..from + at + length;
                match found.last_mut() {
                    _ if length == 0 => {}
                    Some(last) if place.start < last.end => last.end = last.end.max(place.end),
                    _ => found.push(place),
                }
            }
        }
        found
    }

    /// The length of the longest needle at an offset, with so many bytes left.
    fn longest_at(&self, hashes: &Hashes, at: usize, room: usize) -> usize {
        let (mut length, mut power, mut found) = (0, 1, 0);
        for (bit, step) in self.powers.iter().enumerate().rev() {
            let longer = length | 1 << bit;
            if longer > room {
                continue;
            }
            let power_of_longer = times(power, *step);
            let key = (as_u32(longer), hashes.window(at, longer, power_of_longer));
            if let Some(known) = self.prefixes.get(&key) {
                found = found.max(*known);
                (length, power) = (longer, power_of_longer);
            }
        }
        found as usize
    }
}

/// The first bytes of all needles: most offsets of most texts need no lookup.
#[derive(Clone)]
struct FirstBytes {
    /// How many bytes it compares.
    width: usize,
    bits: Vec<u64>,
}

impl FirstBytes {
    fn new(needles: &[Vec<u8>], shortest: usize) -> FirstBytes {
        let words = (needles.len() / 4).next_power_of_two();
        let mut starts = FirstBytes { width: shortest.min(8), bits: vec![0; words] };
        for needle in needles {
            if let Some((word, bit)) = starts.place(needle) {
                starts.bits[word] |= bit;
            }
        }
        starts
    }

    fn may_start(&self, text: &[u8]) -> bool {
        self.place(text).is_some_and(|(word, bit)| self.bits[word] & bit != 0)
    }

    fn place(&self, text: &[u8]) -> Option<(usize, u64)> {
        let start = text.get(..self.width)?;
        let sum = start.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
        let mixed = usize::try_from(sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).ok()?;
        Some(((mixed >> 6) & (self.bits.len() - 1), 1 << (mixed & 63)))
    }
}

/// The hashes of all prefixes of a text.
struct Hashes(Vec<u64>);

impl Hashes {
    fn new(text: &[u8]) -> Hashes {
        let next = |hash: &mut u64, byte: &u8| {
            *hash = reduced(times(*hash, BASE) + u64::from(*byte) + 1);
            Some(*hash)
        };
        Hashes(std::iter::once(0).chain(text.iter().scan(0, next)).collect())
    }

    /// The key of the first bytes.
    fn prefix(&self, length: usize) -> (u32, u64) {
        (as_u32(length), self.0[length])
    }

    /// The hash of some bytes from an offset, with the power of the base for their number.
    fn window(&self, at: usize, length: usize, power: u64) -> u64 {
        reduced(self.0[at + length] + PRIME - times(self.0[at], power))
    }
}

fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // Both parts have less than 62 bits.
    let part = |part: u128| u64::try_from(part).unwrap_or(0);
    reduced(part(product & u128::from(PRIME)) + part(product >> 61))
}

fn reduced(sum: u64) -> u64 {
    if sum >= PRIME { sum - PRIME } else { sum }
}

/// Needles come from values, which are far smaller.
fn as_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(UNKNOWN - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by comparing each needle at each offset.
    fn slowly(needles: &[Vec<u8>], text: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for at in 0..text.len() {
            let here = needles.iter().filter(|needle| text[at..].starts_with(needle));
            let Some(length) = here.map(Vec::len).max() else { continue };
            match found.last_mut() {
                Some(last) if at < last.end => last.end = last.end.max(at + length),
                _ => found.push(at..at + length),
            }
        }
        found
    }

    proptest! {
        #[test]
        fn every_needle_is_found_wherever_it_stands(
            needles in proptest::collection::vec("[ab]{1,20}|[abc]{1,4}|a{1,40}", 1..12),
            text in "[abc]{0,40}[ab]{0,60}a{0,60}",
        ) {
            let needles: Vec<Vec<u8>> = needles.into_iter().map(Into::into).collect();
            let found = SecretIndex::new(&needles).find(text.as_bytes());
            prop_assert_eq!(found, slowly(&needles, text.as_bytes()));
        }
    }

    /// Also across the chunks of a text.
    #[test]
    fn a_long_text_is_searched_as_a_whole() {
        let needles = [b"needle".to_vec(), vec![b'x'; CHUNK_BYTES + 10], b"xy".to_vec()];
        let index = SecretIndex::new(&needles);
        for before in (CHUNK_BYTES - 8..CHUNK_BYTES + 2).chain([0, 3 * CHUNK_BYTES]) {
            let mut text = vec![b'-'; before];
            text.extend_from_slice(b"needle");
            assert_eq!(index.find(&text), std::slice::from_ref(&(before..before + 6)));
            text.extend(vec![b'x'; CHUNK_BYTES + 20]);
            text.push(b'y');
            assert_eq!(index.find(&text), [before..before + 6, before + 6..text.len()]);
        }
    }
}
