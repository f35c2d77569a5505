//! Entries ⇄ bytes. Large values are stored once, apart, under their hash.
//!
//! The entries of a turn are a JSON array. While serde writes it, the splitter takes every value out that
//! grows too large, and leaves `null` in its place; such a part may itself have parts. So a value that
//! passes through ten steps is stored once, also when steps put it into objects of their own.
//!
//! Packed bytes are the JSON, and before it, when parts were taken out, a line with the offset and
//! the hash of each: `@<offset>:<hash>,…`. No JSON begins with `@`. No value can look like a part,
//! because the offset tells a part, and not the value there.
//!
//! In the file, packed bytes that are not short are compressed ([`compressed`]): the result of a step is
//! the argument of later ones, so a journal repeats most values.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use segue_core::document::{Node, NodeKind, read_trusted_json};
use segue_core::value::Value;
use serde::Serialize;
use serde_json::ser::Formatter;
use sha2::{Digest as _, Sha256};

/// SHA-256.
pub(super) type Hash = [u8; 32];

/// Each part adds about so much to the line before the JSON.
const PART_BYTES: usize = 80;

/// Room for the entries of a usual turn. glibc's allocator handles larger blocks more slowly.
const TURN_BYTES: usize = 960;

/// Larger packed bytes count as large.
const LARGE_BYTES: usize = 16 * 1024;

/// Fewer bytes are as quickly written as compressed.
const COMPRESSED_BYTES_MIN: usize = 1_024;

/// The first of compressed bytes; the length of the packed bytes and a block of LZ4 follow. Packed bytes
/// never begin with it.
const COMPRESSED: u8 = b'~';

/// A byte of an LZ4 block expands to this many at most.
const GROWTH_MAX: usize = 255;

/// Packed bytes and the parts that were taken out of them, at any depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) parts: BTreeMap<Hash, Vec<u8>>,
}

impl Packed {
    /// Whether it holds large values.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > LARGE_BYTES || !self.parts.is_empty()
    }
}

pub(super) fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Packed bytes as the file holds them.
pub(super) fn compressed(packed: &[u8]) -> Cow<'_, [u8]> {
    let Ok(length) = u32::try_from(packed.len()) else { return packed.into() };
    if packed.len() < COMPRESSED_BYTES_MIN {
        return packed.into();
    }
    let mut bytes = vec![0; 5 + get_maximum_output_size(packed.len())];
    bytes[0] = COMPRESSED;
    bytes[1..5].copy_from_slice(&length.to_le_bytes());
    match compress_into(packed, &mut bytes[5..]) {
        Ok(size) if 5 + size < packed.len() => {
            bytes.truncate(5 + size);
            bytes.into()
        }
        _ => packed.into(),
    }
}

/// Packed bytes from those in the file.
fn expanded(stored: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let Some((&COMPRESSED, rest)) = stored.split_first() else { return Ok(stored.into()) };
    let wrong = || "it cannot be expanded".to_owned();
    let (length, block) = rest.split_first_chunk().ok_or_else(wrong)?;
    let length = u32::from_le_bytes(*length) as usize;
    // A damaged length must not allocate gigabytes.
    if length > block.len().saturating_mul(GROWTH_MAX) {
        return Err(wrong());
    }
    let mut packed = vec![0; length];
    match decompress_into(block, &mut packed) {
        Ok(size) if size == length => Ok(packed.into()),
        _ => Err(wrong()),
    }
}

/// Packs entries; values of `part_bytes_min` bytes or more become parts. Most entries are smaller as a
/// whole, and are just written.
pub(super) fn pack(what: &[impl Serialize], part_bytes_min: usize) -> Packed {
    let mut text = Vec::with_capacity(TURN_BYTES);
    text.push(b'[');
    let mut written = RefCell::new(Written { text, ..Written::default() });
    for (index, one) in what.iter().enumerate() {
        let text = &mut written.get_mut().text;
        if index > 0 {
            text.push(b',');
        }
        let start = text.len();
        let end = start + part_bytes_min;
        if serde_json::to_writer(Bounded { text, end }, one).is_err() {
            text.truncate(start);
            pack_large(one, &written, part_bytes_min);
        }
    }
    let Written { mut text, places, parts } = written.into_inner();
    text.push(b']');
    let bytes = if places.is_empty() { text } else { with_places(&places, &text) };
    Packed { bytes, parts }
}

/// A text that does not become longer than this.
struct Bounded<'a> {
    text: &'a mut Vec<u8>,
    end: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.text.len() + bytes.len() > self.end {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pack_large(what: &impl Serialize, written: &RefCell<Written>, part_bytes_min: usize) {
    let splitter = Splitter { written, part_bytes_min, open: Vec::new(), in_key: false };
    let mut serializer = serde_json::Serializer::with_formatter(Writer(written), splitter);
    what.serialize(&mut serializer).expect("entries have a form in JSON");
}

/// The text and its parts so far.
#[derive(Default)]
struct Written {
    text: Vec<u8>,
    /// The offset of each part.
    places: Vec<(usize, Hash)>,
    parts: BTreeMap<Hash, Vec<u8>>,
}

/// Serde's view of the text, which the splitter shortens.
struct Writer<'a>(&'a RefCell<Written>);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().text.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Splitter<'a> {
    written: &'a RefCell<Written>,
    part_bytes_min: usize,
    /// Where each open value began, and how many places there were then.
    open: Vec<(usize, usize)>,
    /// A key is never a part.
    in_key: bool,
}

impl Splitter<'_> {
    fn open(&mut self) {
        let written = self.written.borrow();
        self.open.push((written.text.len(), written.places.len()));
    }

    /// Makes the value that just ended a part, if it is large.
    fn close(&mut self) {
        let Some((start, places)) = self.open.pop() else { return };
        let mut written = self.written.borrow_mut();
        let size = written.text.len() - start + (written.places.len() - places) * PART_BYTES;
        // A whole entry is never a part: no two are equal.
        if size < self.part_bytes_min || self.in_key || self.open.is_empty() {
            return;
        }
        let inner: Vec<(usize, Hash)> =
            written.places.drain(places..).map(|(place, hash)| (place - start, hash)).collect();
        let part = with_places(&inner, &written.text[start..]);
        let name = hash(&part);
        written.text.truncate(start);
        written.text.extend_from_slice(b"null");
        written.places.push((start, name));
        written.parts.insert(name, part);
    }
}

impl Formatter for Splitter<'_> {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"]")?;
        self.close();
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"}")?;
        self.close();
        Ok(())
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.in_key = true;
        if first { Ok(()) } else { writer.write_all(b",") }
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn begin_string<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open();
        writer.write_all(b"\"")
    }

    fn end_string<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\"")?;
        self.close();
        Ok(())
    }
}

fn with_places(places: &[(usize, Hash)], text: &[u8]) -> Vec<u8> {
    if places.is_empty() {
        return text.to_vec();
    }
    let mut line = String::with_capacity(places.len() * PART_BYTES + 2);
    for (index, (place, hash)) in places.iter().enumerate() {
        let _ = write!(line, "{}{place}:", if index == 0 { '@' } else { ',' });
        hash.iter().for_each(|byte| {
            let _ = write!(line, "{byte:02x}");
        });
    }
    line.push('\n');
    let mut bytes = line.into_bytes();
    bytes.extend_from_slice(text);
    bytes
}

/// Packed bytes → value. Finds each part once, and shares it.
pub(super) struct Unpacker<F> {
    /// The packed bytes of a part, by its hash.
    pub(super) find: F,
    pub(super) known: BTreeMap<Hash, Value>,
}

impl<F: FnMut(&Hash) -> Result<Vec<u8>, String>> Unpacker<F> {
    pub(super) fn new(find: F) -> Unpacker<F> {
        Unpacker { find, known: BTreeMap::new() }
    }

    /// The value of these bytes from the file.
    pub(super) fn unpack(&mut self, stored: &[u8]) -> Result<Value, String> {
        let packed = expanded(stored)?;
        let text = std::str::from_utf8(&packed).map_err(|error| error.to_string())?;
        let (places, text) = places(text)?;
        let root = read_trusted_json(text).map_err(|finding| finding.message)?;
        if places.is_empty() {
            return Ok(root.to_value());
        }
        let mut parts = BTreeMap::new();
        for (place, hash) in places {
            parts.insert(place, self.part(&hash)?);
        }
        Ok(fill(&root, &parts))
    }

    fn part(&mut self, name: &Hash) -> Result<Value, String> {
        if let Some(value) = self.known.get(name) {
            return Ok(value.clone());
        }
        let bytes = (self.find)(name)?;
        if hash(&bytes) != *name {
            return Err("a large value is damaged".to_owned());
        }
        let value = self.unpack(&bytes)?;
        self.known.insert(*name, value.clone());
        Ok(value)
    }
}

/// The offset and the hash of each part.
type Places = Vec<(u32, Hash)>;

/// The line before the JSON, and the JSON.
fn places(packed: &str) -> Result<(Places, &str), String> {
    let Some(packed) = packed.strip_prefix('@') else { return Ok((Places::new(), packed)) };
    let wrong = || "the places of large values cannot be read".to_owned();
    let (line, text) = packed.split_once('\n').ok_or_else(wrong)?;
    let places = line.split(',').map(|part| {
        let (place, hex) = part.split_once(':')?;
        Some((place.parse().ok()?, from_hex(hex)?))
    });
    Ok((places.collect::<Option<_>>().ok_or_else(wrong)?, text))
}

fn from_hex(hex: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if hex.len() != 2 * hash.len() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// The value with its parts in their places.
fn fill(node: &Node, parts: &BTreeMap<u32, Value>) -> Value {
    if let Some(part) = parts.get(&node.span.start) {
        return part.clone();
    }
    match &node.kind {
        NodeKind::Array(items) => {
            items.iter().map(|item| fill(item, parts)).collect::<Vec<_>>().into()
        }
        NodeKind::Object(members) => {
            Value::object(members.iter().map(|m| (m.key.clone(), fill(&m.value, parts))))
        }
        _ => node.to_value(),
    }
}

#[cfg(test)]
mod tests {
    use segue_core::value::Number;

    use super::*;

    fn round(value: &Value, part_bytes_min: usize) -> Packed {
        let packed = pack(std::slice::from_ref(value), part_bytes_min);
        let find = |hash: &Hash| packed.parts.get(hash).cloned().ok_or_else(|| "gone".to_owned());
        let again = Unpacker::new(find).unpack(&packed.bytes).unwrap();
        assert_eq!(again.to_json(), Value::from(vec![value.clone()]).to_json());
        packed
    }

    fn sample() -> Value {
        let long = Value::from("ü\"\n".repeat(20));
        let number = Value::Number(Number::from_literal("18446744073709551616"));
        let nulls = Value::from(vec![Value::Null, long.clone(), Value::Null]);
        Value::object([
            ("a", long.clone()),
            ("b", nulls),
            (&*"k".repeat(90), Value::object([("inner", long), ("n", number)])),
            ("null", Value::Null),
        ])
    }

    #[test]
    fn a_value_reads_back_whatever_is_taken_out() {
        for part_bytes_min in [1, 2, 5, 60, 100, 200, 1_000_000] {
            round(&sample(), part_bytes_min);
        }
        assert!(round(&sample(), 1_000_000).parts.is_empty());
        assert_eq!(round(&sample(), 60).parts.len(), 3, "the text once, and two that hold it");
    }

    /// W6: a large value is stored once, whatever steps wrap around it.
    #[test]
    fn a_large_value_is_one_part_wherever_it_stands() {
        let large = Value::from((0..10_000).map(Value::from).collect::<Vec<Value>>());
        let alone = round(&Value::from(vec![large.clone()]), 16_384);
        let wrapped = Value::object([("x", Value::object([("deep", large)])), ("y", Value::Null)]);
        let wrapped = round(&wrapped, 16_384);
        assert_eq!(alone.parts, wrapped.parts);
        assert!(wrapped.bytes.len() < 200);
    }

    /// Repeated values take little room, and read back.
    #[test]
    fn long_bytes_are_compressed() {
        let value = Value::from(vec![sample(); 20]);
        let packed = round(&value, 1_000_000).bytes;
        let stored = compressed(&packed);
        assert!(stored.len() * 5 < packed.len(), "{} of {}", stored.len(), packed.len());
        assert_eq!(*expanded(&stored).unwrap(), *packed);
        let find = |_: &Hash| Err("there are none".to_owned());
        assert!(Unpacker::new(find).unpack(&stored).is_ok());
        let short = &packed[..COMPRESSED_BYTES_MIN - 1];
        assert_eq!(*compressed(short), *short);
        let random: Vec<u8> = (0..64u8).flat_map(|one| hash(&[one])).collect();
        assert_eq!(*compressed(&random), *random, "what does not become shorter stays");
    }

    /// R1: damaged bytes are refused without a panic.
    #[test]
    fn damaged_bytes_are_not_expanded() {
        let packed = round(&Value::from(vec![sample(); 20]), 1_000_000).bytes;
        let stored = compressed(&packed).into_owned();
        for cut in 0..stored.len() {
            let found = expanded(&stored[..cut]).map(Cow::into_owned);
            assert!(cut == 0 || found.is_err(), "cut at {cut}");
        }
        let all = u32::try_from(packed.len()).unwrap();
        for length in [0, all - 1, all + 1, u32::MAX] {
            let mut wrong = stored.clone();
            wrong[1..5].copy_from_slice(&length.to_le_bytes());
            assert!(expanded(&wrong).is_err(), "{length}");
        }
        for bit in 0..stored.len() * 8 {
            let mut wrong = stored.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            drop(expanded(&wrong));
        }
    }

    #[test]
    fn a_part_that_changed_is_refused() {
        let packed = pack(&[sample()], 60);
        let flipped = |hash: &Hash| {
            let mut bytes = packed.parts[hash].clone();
            bytes[3] ^= 1;
            Ok(bytes)
        };
        assert!(Unpacker::new(flipped).unpack(&packed.bytes).is_err());
    }
}
