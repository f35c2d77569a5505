//! Removes secrets from texts, in every encoding in which they may appear.
//!
//! A secret may appear verbatim, percent-encoded in a URL, escaped in JSON inside a text, as base64
//! in a header, or as hexadecimal digits. Escapes can be mixed and nested, so a text is decoded
//! layer by layer and each layer is searched; matches are removed from the original text.

mod index;

use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use index::SecretIndex;

/// Shorter secrets are not searched as base64 and hexadecimal digits: such short sequences occur
/// everywhere.
const ENCODED_BYTES_MIN: usize = 8;

/// Minimum length of the decoded form of a secret that itself looks escaped.
const UNESCAPED_BYTES_MIN: usize = 4;

/// Longer secrets are whole documents, which do not appear in headers.
const ENCODED_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of nested escapes that are decoded.
const LAYERS_MAX: usize = 4;

/// Finds secrets in texts.
#[derive(Clone, Default)]
pub struct SecretFinder {
    /// Each at most half as large as the one before it, so that adding secrets one by one rebuilds
    /// large indexes rarely.
    groups: Vec<SecretGroup>,
}

/// Secrets that share an index.
#[derive(Clone)]
struct SecretGroup {
    secrets: Vec<Arc<str>>,
    index: SecretIndex,
}

/// Does not print secrets.
impl fmt::Debug for SecretFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.groups.iter().map(|group| group.secrets.len()).sum();
        write!(f, "Finder({count})")
    }
}

impl SecretFinder {
    /// Finds these secrets, in every encoding.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> SecretFinder {
        let mut finder = SecretFinder::default();
        finder.add_all(secrets.into_iter().map(Arc::from).collect());
        finder
    }

    /// Adds secrets.
    pub(crate) fn add_all(&mut self, mut secrets: Vec<Arc<str>>) {
        secrets.retain(|secret| !secret.is_empty());
        if secrets.is_empty() {
            return;
        }
        while let Some(last) = self.groups.pop_if(|last| last.secrets.len() < 2 * secrets.len()) {
            secrets.extend(last.secrets);
        }
        let mut needles: Vec<Vec<u8>> = secrets.iter().flat_map(|it| needles_of(it)).collect();
        needles.sort_unstable();
        needles.dedup();
        self.groups.push(SecretGroup { index: SecretIndex::new(&needles), secrets });
    }

    /// Whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a text contains a secret.
    pub fn is_found_in(&self, text: &str) -> bool {
        !self.places(text).is_empty()
    }

    /// The text with secrets replaced; `None` if it contains none.
    pub fn replace(&self, text: &str, instead: &str) -> Option<String> {
        let places = self.places(text);
        let (mut clean, mut at) = (String::new(), 0);
        for place in &places {
            clean.push_str(&text[at..place.start]);
            clean.push_str(instead);
            at = place.end;
        }
        (!places.is_empty()).then(|| clean + &text[at..])
    }

    /// The ranges of secrets in a text, ordered and disjoint.
    fn places(&self, text: &str) -> Vec<Range<usize>> {
        if self.groups.is_empty() || text.is_empty() {
            return Vec::new();
        }
        let find = |bytes: &[u8]| -> Vec<Range<usize>> {
            self.groups.iter().flat_map(|group| group.index.find(bytes)).collect()
        };
        let mut found = find(text.as_bytes());
        let mut layer = DecodedText::first(text);
        for _ in 0..LAYERS_MAX {
            let Some(next) = layer.and_then(|layer| layer.unescaped()) else { break };
            let places = find(&next.bytes).into_iter();
            found.extend(places.map(|place| next.starts[place.start]..next.starts[place.end]));
            layer = Some(next);
        }
        merged(found)
    }
}

/// All encodings of a secret to search for.
fn needles_of(secret: &str) -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> = forms_of(secret).into_iter().map(Into::into).collect();
    // Escapes inside a secret are decoded together with those around it.
    let mut layer = DecodedText::first(secret);
    for _ in 0..LAYERS_MAX {
        let Some(next) = layer.and_then(|layer| layer.unescaped()) else { break };
        forms.extend((next.bytes.len() >= UNESCAPED_BYTES_MIN).then(|| next.bytes.clone()));
        layer = Some(next);
    }
    forms.retain(|form| !form.is_empty());
    forms
}

/// Sorts ranges, and merges touching ones.
fn merged(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_unstable_by_key(|place| (place.start, place.end));
    let mut apart: Vec<Range<usize>> = Vec::new();
    for place in found {
        match apart.last_mut() {
            Some(last) if place.start < last.end => last.end = last.end.max(place.end),
            _ => apart.push(place),
        }
    }
    apart
}

/// A text with some escapes decoded, and the offset of each byte in the original.
struct DecodedText {
    bytes: Vec<u8>,
    /// One more than there are bytes: the last one is the end.
    starts: Vec<usize>,
}

impl DecodedText {
    /// The text itself; `None` if it has no escapes.
    fn first(text: &str) -> Option<DecodedText> {
        memchr::memchr2(b'%', b'\\', text.as_bytes())?;
        Some(DecodedText { bytes: text.as_bytes().to_vec(), starts: (0..=text.len()).collect() })
    }

    /// The text with one layer of escapes decoded; `None` if there is none.
    fn unescaped(&self) -> Option<DecodedText> {
        memchr::memchr2(b'%', b'\\', &self.bytes)?;
        let (mut bytes, mut starts) = (Vec::with_capacity(self.bytes.len()), Vec::new());
        let (mut at, mut has_escapes) = (0, false);
        while at < self.bytes.len() {
            let escape = match self.bytes[at] {
                b'%' => percent(&self.bytes[at..]),
                b'\\' => backslash(&self.bytes[at..]),
                _ => None,
            };
            let (meant, length) = match escape {
                Some((meant, length)) => (meant, length),
                None => (Escaped::Byte(self.bytes[at]), 1),
            };
            has_escapes |= length > 1;
            let before = bytes.len();
            match meant {
                Escaped::Byte(byte) => bytes.push(byte),
                Escaped::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            starts.extend(std::iter::repeat_n(self.starts[at], bytes.len() - before));
            at += length;
        }
        starts.push(self.starts[self.bytes.len()]);
        has_escapes.then_some(DecodedText { bytes, starts })
    }
}

/// The value of an escape.
enum Escaped {
    Byte(u8),
    Char(char),
}

/// `%2F`
fn percent(bytes: &[u8]) -> Option<(Escaped, usize)> {
    let byte = u8::try_from(digits(bytes.get(1..3)?)?).ok()?;
    Some((Escaped::Byte(byte), 3))
}

/// `\/`, `\n`, `\x2f`, `\u002f`, `\u{2f}`, `\ud83d\ude00`
fn backslash(bytes: &[u8]) -> Option<(Escaped, usize)> {
    let byte = |byte| Some((Escaped::Byte(byte), 2));
    match bytes.get(1)? {
        own @ (b'"' | b'\\' | b'/' | b'\'') => byte(*own),
        b'n' => byte(b'\n'),
        b't' => byte(b'\t'),
        b'r' => byte(b'\r'),
        b'b' => byte(8),
        b'f' => byte(12),
        b'x' => Some((Escaped::Char(char::from_u32(digits(bytes.get(2..4)?)?)?), 4)),
        b'u' if bytes.get(2) == Some(&b'{') => {
            let end = bytes.iter().take(12).position(|byte| *byte == b'}')?;
            Some((Escaped::Char(char::from_u32(digits(&bytes[3..end])?)?), end + 1))
        }
        b'u' => {
            let high = digits(bytes.get(2..6)?)?;
            if let Some(c) = char::from_u32(high) {
                return Some((Escaped::Char(c), 6));
            }
            let low = bytes.get(6..8).filter(|it| *it == b"\\u").and(bytes.get(8..12))?;
            let pair = [u16::try_from(high).ok()?, u16::try_from(digits(low)?).ok()?];
            let c = char::decode_utf16(pair).next()?.ok()?;
            Some((Escaped::Char(c), 12))
        }
        _ => None,
    }
}

/// Hexadecimal digits as a number.
fn digits(bytes: &[u8]) -> Option<u32> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_number)?;
    u32::from_str_radix(text, 16).ok()
}

/// A secret verbatim, and in encodings that are no escapes.
fn forms_of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    if secret.contains(' ') {
        // As in web forms.
        forms.push(secret.replace(' ', "+"));
    }
    if secret.len() < ENCODED_BYTES_MIN || secret.len() > ENCODED_BYTES_MAX {
        return forms;
    }
    let mut hex = String::with_capacity(secret.len() * 2);
    for byte in secret.bytes() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    forms.extend([hex.to_uppercase(), hex]);
    forms.extend([STANDARD.encode(secret), URL_SAFE_NO_PAD.encode(secret)]);
    for before in 0..3 {
        forms.push(inside_base64(&STANDARD, secret, before));
        forms.push(inside_base64(&URL_SAFE_NO_PAD, secret, before));
    }
    forms
}

/// The base64 characters that depend only on the secret, after so many other bytes, as in
/// `user:TOKEN`.
fn inside_base64(engine: &impl base64::Engine, secret: &str, before: usize) -> String {
    let bytes = [&[0; 2][..before], secret.as_bytes()].concat();
    let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    engine.encode(&bytes)[first..last].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An encoding of a text.
    #[derive(Clone, Copy, Debug)]
    enum Code {
        Plain,
        Json,
        JsonAscii,
        Percent { upper: bool, all: bool },
        UnicodeEscapes,
        Hex { upper: bool },
        Base64 { url: bool },
    }

    fn codes() -> impl Strategy<Value = Code> {
        prop_oneof![
            Just(Code::Plain),
            Just(Code::Json),
            Just(Code::JsonAscii),
            (any::<bool>(), any::<bool>()).prop_map(|(upper, all)| Code::Percent { upper, all }),
            Just(Code::UnicodeEscapes),
            any::<bool>().prop_map(|upper| Code::Hex { upper }),
            any::<bool>().prop_map(|url| Code::Base64 { url }),
        ]
    }

    impl Code {
        fn write(self, text: &str) -> String {
            let escaped = |c: char| {
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units).iter();
                units.map(|unit| format!("\\u{unit:04X}")).collect::<Vec<_>>().concat()
            };
            let json = |text: &str| {
                let json = serde_json::to_string(text).unwrap();
                json[1..json.len() - 1].to_owned()
            };
            match self {
                Code::Plain => text.to_owned(),
                Code::Json => json(text),
                Code::JsonAscii => json(text)
                    .chars()
                    .map(|c| if c.is_ascii() { c.to_string() } else { escaped(c) })
                    .collect(),
                Code::UnicodeEscapes => text.chars().map(escaped).collect(),
                Code::Percent { upper, all } => text
                    .bytes()
                    .map(|byte| match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~'
                            if !all =>
                        {
                            char::from(byte).to_string()
                        }
                        _ if upper => format!("%{byte:02X}"),
                        _ => format!("%{byte:02x}"),
                    })
                    .collect(),
                Code::Hex { upper: true } => Code::Hex { upper: false }.write(text).to_uppercase(),
                Code::Hex { upper: false } => {
                    text.bytes().map(|b| format!("{b:02x}")).collect::<Vec<_>>().concat()
                }
                Code::Base64 { url: true } => URL_SAFE_NO_PAD.encode(text),
                Code::Base64 { url: false } => STANDARD.encode(text),
            }
        }

        /// Whether a part of its output reveals a part of the text.
        fn is_escape(self) -> bool {
            !matches!(self, Code::Hex { .. } | Code::Base64 { .. })
        }
    }

    proptest! {
        /// D5: no encoding of a secret, and no encoding of that, leaves a trace of it.
        #[test]
        fn no_form_of_a_secret_is_left(
            secret in "[a-zA-Z0-9/+=\"\\\\%&é😀 _-]{8,40}",
            first in codes(),
            second in codes().prop_filter("an escape", |code| code.is_escape()),
            around in ("[ :]{0,3}", "[ :]{0,3}"),
        ) {
            let written = second.write(&first.write(&secret));
            let text = format!("{}{written}{}", around.0, around.1);
            let clean = SecretFinder::new([&*secret]).replace(&text, "•");
            prop_assert!(clean.is_some(), "{first:?} {second:?}: {text}");
            let clean = clean.unwrap();
            prop_assert!(!clean.contains(&written), "{first:?} {second:?}: {clean}");
            // Of an escape at most the padding of base64 may remain.
            let left = clean.len() - '•'.len_utf8() - around.0.len() - around.1.len();
            prop_assert!(left <= 8, "{first:?} {second:?}: {clean}");
        }

        /// Texts without a secret stay as they are, and nothing panics.
        #[test]
        fn other_texts_stay(text in "\\PC{0,60}", noise in "[%\\\\ux{}0-9a-f]{0,30}") {
            let finder = SecretFinder::new(["never-in-there-1"]);
            prop_assert_eq!(finder.replace(&format!("{text}{noise}"), "•"), None);
        }
    }

    /// Also with other data around it, as in basic authentication.
    #[test]
    fn base64_of_more_than_a_secret_does_not_get_through() {
        let finder = SecretFinder::new(["s3cr3t/token?1"]);
        for around in ["", "u", "us", "use"] {
            let text = format!("{around}:s3cr3t/token?1{around}");
            for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                let clean = finder.replace(&encoded, "").unwrap();
                assert!(clean.len() <= (2 * around.len() + 4) * 2, "{encoded}: {clean}");
            }
        }
    }
}
