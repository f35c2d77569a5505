//! JSON of what is written most often, in fewer instructions.
//!
//! Packing the entries of a turn is the largest part of what a turn costs before its sync. What one step
//! answered is what the next one is called with, so the same value stands there several times: it is
//! written once, and its bytes are copied. Texts are looked at several bytes at a time. What entries
//! seldom consist of, and what becomes too long, is given up: then `serde_json` writes it
//! ([`super::pack`]). Both write the same bytes.

use std::fmt::{self, Display};
use std::ops::Range;

use segue_core::value::SHARED;
use serde::ser::{self, Impossible, Serialize, Serializer};

/// Values whose bytes are remembered, the last ones.
const KNOWN_MAX: usize = 16;

/// Shorter ones are written sooner than found.
const KNOWN_BYTES_MIN: usize = 24;

/// Why nothing was written.
#[derive(Debug)]
pub(super) struct GaveUp;

impl Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is too long, or not of a usual form")
    }
}

impl std::error::Error for GaveUp {}

impl ser::Error for GaveUp {
    fn custom<T: Display>(_: T) -> GaveUp {
        GaveUp
    }
}

type Done = Result<(), GaveUp>;

/// Where shared values stand in a text, by their addresses. All that is written into one text is there
/// until it is complete, so no address is that of two values.
#[derive(Default)]
pub(super) struct Known {
    places: [Place; KNOWN_MAX],
    /// How many there were in all; the oldest ones are gone.
    count: usize,
}

/// Where a value stands, from here to there; at first none does.
#[derive(Clone, Copy, Default)]
struct Place {
    address: usize,
    start: usize,
    end: usize,
}

impl Known {
    fn find(&self, address: usize) -> Option<Range<usize>> {
        let found = self.places.iter().find(|place| place.address == address)?;
        Some(found.start..found.end)
    }

    fn add(&mut self, address: usize, start: usize, end: usize) {
        if end - start >= KNOWN_BYTES_MIN {
            self.places[self.count % KNOWN_MAX] = Place { address, start, end };
            self.count += 1;
        }
    }

    /// Nothing stands behind this place any more.
    fn forget_from(&mut self, end: usize) {
        let is_gone = |place: &&mut Place| place.end > end;
        self.places.iter_mut().filter(is_gone).for_each(|place| *place = Place::default());
    }
}

/// Adds what it is given to a text that stays shorter than `end`. If that cannot be, the text is as it was.
pub(super) fn write(
    what: &impl Serialize,
    text: &mut Vec<u8>,
    end: usize,
    known: &mut Known,
) -> Done {
    let start = text.len();
    let done = what.serialize(&mut Json { text, end, known });
    if done.is_err() {
        text.truncate(start);
        known.forget_from(start);
    }
    done
}

/// See [`write`].
struct Json<'a> {
    text: &'a mut Vec<u8>,
    end: usize,
    known: &'a mut Known,
}

/// Whether one of eight bytes cannot stand between quotes as it is.
fn is_special(eight: [u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let bytes = u64::from_ne_bytes(eight);
    // The highest bit of a byte is set in the difference when the byte is smaller, and in the byte
    // itself when it is no ASCII. Above one that is smaller more may be set, which changes nothing.
    let has_below = |bytes: u64, least: u64| bytes.wrapping_sub(ONES * least) & !bytes & HIGH;
    let has = |byte: u8| has_below(bytes ^ (ONES * u64::from(byte)), 1);
    has_below(bytes, 0x20) | has(b'"') | has(b'\\') != 0
}

/// Whether a text cannot stand between quotes as it is.
fn wants_escapes(text: &[u8]) -> bool {
    let (eights, rest) = text.as_chunks::<8>();
    match text.last_chunk::<8>() {
        // The last ones overlap.
        Some(last) => is_special(*last) || eights.iter().any(|eight| is_special(*eight)),
        None => rest.iter().any(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')),
    }
}

impl Json<'_> {
    #[inline]
    fn has_room(&self, bytes: usize) -> Done {
        if self.text.len() + bytes < self.end { Ok(()) } else { Err(GaveUp) }
    }

    fn put(&mut self, bytes: &[u8]) -> Done {
        self.has_room(bytes.len())?;
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn put_byte(&mut self, byte: u8) -> Done {
        self.has_room(1)?;
        self.text.push(byte);
        Ok(())
    }

    /// A name that this program was written with.
    fn put_name(&mut self, name: &'static str) -> Done {
        let room = name.len() + 3;
        self.has_room(room)?;
        self.text.reserve(room);
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        Ok(())
    }

    fn put_text(&mut self, text: &str) -> Done {
        let room = text.len() + 2;
        self.has_room(room)?;
        if wants_escapes(text.as_bytes()) {
            return self.put_by_serde(text);
        }
        self.text.reserve(room);
        self.text.push(b'"');
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'"');
        Ok(())
    }

    /// Numbers, and what is seldom.
    fn put_by_serde(&mut self, what: impl Serialize) -> Done {
        serde_json::to_writer(&mut *self.text, &what).map_err(|_| GaveUp)?;
        self.has_room(0)
    }

    /// A value that may stand there already.
    fn put_shared<T: ?Sized + Serialize>(&mut self, what: &T) -> Done {
        let address = std::ptr::from_ref(what).addr();
        if let Some(place) = self.known.find(address) {
            self.has_room(place.len())?;
            self.text.extend_from_within(place);
            return Ok(());
        }
        let start = self.text.len();
        what.serialize(&mut *self)?;
        self.known.add(address, start, self.text.len());
        Ok(())
    }
}

/// What stands between brackets, and how those end.
struct Inside<'a, 'b> {
    json: &'a mut Json<'b>,
    is_first: bool,
    end: &'static [u8],
}

impl Inside<'_, '_> {
    fn begin_next(&mut self) -> Done {
        if std::mem::replace(&mut self.is_first, false) { Ok(()) } else { self.json.put_byte(b',') }
    }
}

impl<'a, 'b> Json<'b> {
    fn open(&'a mut self, begin: u8, end: &'static [u8]) -> Result<Inside<'a, 'b>, GaveUp> {
        self.put_byte(begin)?;
        Ok(Inside { json: self, is_first: true, end })
    }

    /// A variant is an object whose one member has its name.
    fn open_variant(&mut self, name: &'static str) -> Done {
        self.put_byte(b'{')?;
        self.put_name(name)
    }
}

impl<'a, 'b> Serializer for &'a mut Json<'b> {
    type Ok = ();
    type Error = GaveUp;
    type SerializeSeq = Inside<'a, 'b>;
    type SerializeTuple = Inside<'a, 'b>;
    type SerializeTupleStruct = Impossible<(), GaveUp>;
    type SerializeTupleVariant = Impossible<(), GaveUp>;
    type SerializeMap = Inside<'a, 'b>;
    type SerializeStruct = Inside<'a, 'b>;
    type SerializeStructVariant = Inside<'a, 'b>;

    fn serialize_bool(self, bool: bool) -> Done {
        self.put(if bool { b"true" } else { b"false" })
    }

    fn serialize_i8(self, int: i8) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_i16(self, int: i16) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_i32(self, int: i32) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_i64(self, int: i64) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_u8(self, int: u8) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_u16(self, int: u16) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_u32(self, int: u32) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_u64(self, int: u64) -> Done {
        self.put_by_serde(int)
    }

    fn serialize_f32(self, _: f32) -> Done {
        Err(GaveUp)
    }

    fn serialize_f64(self, float: f64) -> Done {
        self.put_by_serde(float)
    }

    fn serialize_char(self, _: char) -> Done {
        Err(GaveUp)
    }

    fn serialize_str(self, text: &str) -> Done {
        self.put_text(text)
    }

    fn serialize_bytes(self, _: &[u8]) -> Done {
        Err(GaveUp)
    }

    fn serialize_none(self) -> Done {
        self.put(b"null")
    }

    fn serialize_some<T: ?Sized + Serialize>(self, what: &T) -> Done {
        what.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.put(b"null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Err(GaveUp)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Done {
        self.put_text(name)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, name: &'static str, what: &T) -> Done {
        if name == SHARED { self.put_shared(what) } else { what.serialize(self) }
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        what: &T,
    ) -> Done {
        self.open_variant(name)?;
        what.serialize(&mut *self)?;
        self.put_byte(b'}')
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'a, 'b>, GaveUp> {
        self.open(b'[', b"]")
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'a, 'b>, GaveUp> {
        self.open(b'[', b"]")
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), GaveUp>, GaveUp> {
        Err(GaveUp)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), GaveUp>, GaveUp> {
        Err(GaveUp)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'a, 'b>, GaveUp> {
        self.open(b'{', b"}")
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Inside<'a, 'b>, GaveUp> {
        // Texts that are JSON already come as structures whose names nobody else has.
        if name.starts_with('$') { Err(GaveUp) } else { self.open(b'{', b"}") }
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Inside<'a, 'b>, GaveUp> {
        self.open_variant(name)?;
        self.open(b'{', b"}}")
    }
}

impl ser::SerializeSeq for Inside<'_, '_> {
    type Ok = ();
    type Error = GaveUp;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, item: &T) -> Done {
        self.begin_next()?;
        item.serialize(&mut *self.json)
    }

    fn end(self) -> Done {
        self.json.put(self.end)
    }
}

impl ser::SerializeTuple for Inside<'_, '_> {
    type Ok = ();
    type Error = GaveUp;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, item: &T) -> Done {
        ser::SerializeSeq::serialize_element(self, item)
    }

    fn end(self) -> Done {
        ser::SerializeSeq::end(self)
    }
}

impl ser::SerializeMap for Inside<'_, '_> {
    type Ok = ();
    type Error = GaveUp;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Done {
        self.begin_next()?;
        let before = self.json.text.len();
        key.serialize(&mut *self.json)?;
        // What is not a text becomes one, which is seldom.
        if self.json.text.get(before) == Some(&b'"') { Ok(()) } else { Err(GaveUp) }
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Done {
        self.json.put_byte(b':')?;
        value.serialize(&mut *self.json)
    }

    fn end(self) -> Done {
        self.json.put(self.end)
    }
}

impl ser::SerializeStruct for Inside<'_, '_> {
    type Ok = ();
    type Error = GaveUp;

    fn serialize_field<T: ?Sized + Serialize>(&mut self, name: &'static str, value: &T) -> Done {
        self.begin_next()?;
        self.json.put_name(name)?;
        value.serialize(&mut *self.json)
    }

    fn end(self) -> Done {
        self.json.put(self.end)
    }
}

impl ser::SerializeStructVariant for Inside<'_, '_> {
    type Ok = ();
    type Error = GaveUp;

    fn serialize_field<T: ?Sized + Serialize>(&mut self, name: &'static str, value: &T) -> Done {
        ser::SerializeStruct::serialize_field(self, name, value)
    }

    fn end(self) -> Done {
        ser::SerializeStruct::end(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use segue_core::run::{Entry, Fact, NodeId};
    use segue_core::value::{Number, Value};

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(|int| Value::Number(Number::Int(int))),
            any::<u64>().prop_map(|int| Value::Number(Number::UInt(int))),
            proptest::num::f64::NORMAL.prop_map(|float| Value::Number(Number::Float(float))),
            any::<String>().prop_map(Value::from),
            "[ -~]{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                    Value::object(members.iter().map(|(k, v)| (&**k, v.clone())))
                }),
            ]
        })
    }

    /// Entries with the same values in several places, as steps that hand them on leave them.
    fn entries(values: &[Value]) -> Vec<Entry> {
        let node = NodeId { frame: 3, position: 7 };
        let mut facts = Vec::new();
        for value in values {
            let around = Value::object([("value", value.clone())]);
            facts.push(Fact::Succeeded { node, output: around.clone(), given: None });
            facts.push(Fact::Called { node, candidate: 0, args: around });
        }
        let all = Value::from(values.to_vec());
        facts.push(Fact::Succeeded { node, output: all, given: None });
        facts.push(Fact::CancelAsked { by: "somebody \"else\"".into() });
        facts.push(Fact::ConsentAsked);
        let entry = |(seq, fact)| Entry { seq, at_ms: 1_794_886_502_566 + seq, fact };
        (0..).zip(facts).map(entry).collect()
    }

    /// What is written so, one after the other into one text, each as long as it may be.
    fn written(entries: &[Entry], most: usize) -> Result<String, GaveUp> {
        let (mut text, mut known) = (Vec::new(), Known::default());
        for entry in entries {
            let end = text.len() + most;
            write(entry, &mut text, end, &mut known)?;
        }
        Ok(String::from_utf8(text).unwrap())
    }

    fn by_serde(entries: &[Entry]) -> String {
        entries.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect()
    }

    proptest! {
        /// D5: what is written quickly is what would have been written slowly.
        #[test]
        fn both_write_the_same(values in prop::collection::vec(value(), 0..5)) {
            let entries = entries(&values);
            prop_assert_eq!(written(&entries, usize::MAX / 2).unwrap(), by_serde(&entries));
        }
    }

    /// Each character that means something in JSON, at each place of a text.
    #[test]
    fn what_wants_escapes_gets_them() {
        for length in 0..20 {
            for place in 0..=length {
                for special in (0..0x20).chain([b'"', b'\\', 0x7f, b'/']) {
                    let mut text = "a".repeat(length);
                    text.insert(place, char::from(special));
                    text.push('ü');
                    let entries = entries(&[Value::from(&*text)]);
                    assert_eq!(written(&entries, 10_000).unwrap(), by_serde(&entries), "{text:?}");
                }
            }
        }
    }

    /// A text that is too long is given up as a whole, and nothing that stood in it is remembered.
    #[test]
    fn what_is_too_long_leaves_nothing_behind() {
        let shared = Value::object([("text", Value::from("shared by all that follows"))]);
        let entries = entries(&[shared.clone(), shared]);
        let whole = by_serde(&entries[..1]);
        for most in 0..=whole.len() {
            let (mut text, mut known) = (b"before".to_vec(), Known::default());
            let end = text.len() + most;
            assert!(write(&entries[0], &mut text, end, &mut known).is_err(), "{most}");
            assert_eq!(text, b"before");
            for entry in &entries {
                write(entry, &mut text, usize::MAX, &mut known).unwrap();
            }
            assert_eq!(text, format!("before{}", by_serde(&entries)).into_bytes());
        }
    }

    /// What has another form than entries usually have is given up.
    #[test]
    fn what_is_unusual_is_given_up() {
        let digits = Value::Number(Number::from_literal("18446744073709551616"));
        assert!(written(&entries(&[digits]), 10_000).is_err());
        let numbered = std::collections::BTreeMap::from([(1, true)]);
        let (mut text, mut known) = (Vec::new(), Known::default());
        assert!(write(&numbered, &mut text, 100, &mut known).is_err());
        assert!(write(&'c', &mut text, 100, &mut known).is_err());
    }
}
