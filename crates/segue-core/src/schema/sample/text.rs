//! Texts that match a format, a pattern or a length.

use crate::value::{Map, Value};

/// The text without any constraint.
const PLAIN: &str = "stand-in";

/// The longest generated text.
const CHARS_MAX: usize = 10_000;

/// An example of each format.
const FORMATS: &[(&str, &str)] = &[
    ("date", "2000-01-01"),
    ("date-time", "2000-01-01T00:00:00Z"),
    ("duration", "PT1S"),
    ("email", "stand-in@example.com"),
    ("hostname", "example.com"),
    ("idn-email", "stand-in@example.com"),
    ("idn-hostname", "example.com"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("iri", "https://example.com/"),
    ("iri-reference", "/stand-in"),
    ("json-pointer", "/stand-in"),
    ("regex", "stand-in"),
    ("relative-json-pointer", "0"),
    ("time", "00:00:00Z"),
    ("uri", "https://example.com/"),
    ("uri-reference", "/stand-in"),
    ("uri-template", "/stand-in"),
    ("uuid", "00000000-0000-4000-8000-000000000000"),
];

pub(super) fn candidates(words: &Map) -> Vec<String> {
    let word = |name: &str| words.get(name).and_then(Value::as_str);
    let count = |name: &str| words.get(name).and_then(Value::as_u64);
    let least = count("minLength").map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let most = count("maxLength").map_or(CHARS_MAX, |n| usize::try_from(n).unwrap_or(CHARS_MAX));
    let mut proposed = Vec::new();
    if let Some(format) = word("format") {
        let known = FORMATS.iter().filter(|(name, _)| *name == format);
        proposed.extend(known.map(|(_, example)| (*example).to_owned()));
    }
    if let Some(pattern) = word("pattern") {
        // With the fewest repetitions first, then more, until it is long enough.
        for times in [0, 1, 2, 4, 8, 16, 32, 64, least.min(CHARS_MAX)] {
            proposed.extend(matching(pattern, times));
        }
    }
    let plain: String = PLAIN.chars().cycle().take(PLAIN.len().max(least).min(CHARS_MAX)).collect();
    proposed.push(plain.chars().take(most).collect());
    proposed.push(plain.chars().take(least).collect());
    proposed.retain(|text| (least..=most).contains(&text.chars().count()));
    proposed.dedup();
    proposed
}

/// A text that a simple pattern matches; unbounded repetitions repeat `times` times. `None` for
/// other patterns.
fn matching(pattern: &str, times: usize) -> Option<String> {
    let mut reader = PatternSampler { rest: pattern, times, depth: 0 };
    let text = reader.choice()?;
    (reader.rest.is_empty() && text.chars().count() <= CHARS_MAX).then_some(text)
}

/// Maximum nesting of groups.
const DEPTH_MAX: usize = 32;

struct PatternSampler<'a> {
    rest: &'a str,
    times: usize,
    depth: usize,
}

impl PatternSampler<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, expected: &str) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// `a|b`: takes the first; the others are only parsed.
    fn choice(&mut self) -> Option<String> {
        let first = self.sequence()?;
        while self.take("|") {
            self.sequence()?;
        }
        Some(first)
    }

    fn sequence(&mut self) -> Option<String> {
        let mut text = String::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            if self.take("^") || self.take("$") {
                continue;
            }
            let atom = self.atom()?;
            let times = self.repeats()?;
            if atom.len().checked_mul(times)? + text.len() > CHARS_MAX {
                return None;
            }
            text.push_str(&atom.repeat(times));
        }
        Some(text)
    }

    fn atom(&mut self) -> Option<String> {
        match self.next()? {
            '(' => {
                // Lookaround and flags are not simple.
                if !self.take("?:") && self.rest.starts_with('?') {
                    return None;
                }
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return None;
                }
                let inside = self.choice()?;
                self.depth -= 1;
                self.take(")").then_some(inside)
            }
            '[' => self.class().map(String::from),
            '\\' => self.escape().map(String::from),
            '.' => Some("a".to_owned()),
            '*' | '+' | '?' | '{' => None,
            plain => Some(plain.to_string()),
        }
    }

    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            'd' => '0',
            'w' => 'a',
            's' => ' ',
            'D' | 'S' => 'a',
            'W' => '-',
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            letter if letter.is_ascii_alphanumeric() => return None,
            plain => plain,
        })
    }

    /// One character of a class: its first, or for `[^…]` one outside of it.
    fn class(&mut self) -> Option<char> {
        let negated = self.take("^");
        let mut ranges: Vec<(char, char)> = Vec::new();
        loop {
            let first = match self.next()? {
                ']' if !ranges.is_empty() => break,
                '\\' => {
                    let named = self.rest.starts_with(['d', 'w', 's', 'D', 'W', 'S']);
                    if named && negated {
                        return None;
                    }
                    self.escape()?
                }
                '[' => return None,
                plain => plain,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            if !is_range {
                ranges.push((first, first));
                continue;
            }
            self.next();
            let last = match self.next()? {
                '\\' => self.escape()?,
                plain => plain,
            };
            ranges.push((first, last));
        }
        if !negated {
            return ranges.first().map(|(first, _)| *first);
        }
        let is_free = |c: &char| !ranges.iter().any(|(first, last)| (*first..=*last).contains(c));
        ('a'..='z').chain('0'..='9').chain(['-', ' ', 'Ω']).find(is_free)
    }

    /// How often the preceding atom occurs.
    fn repeats(&mut self) -> Option<usize> {
        let (least, most) = match self.rest.chars().next() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let (inside, after) = self.rest[1..].split_once('}')?;
                let (least, most) = match inside.split_once(',') {
                    None => (inside.parse().ok()?, Some(inside.parse().ok()?)),
                    Some((least, "")) => (least.parse().ok()?, None),
                    Some((least, most)) => (least.parse().ok()?, Some(most.parse().ok()?)),
                };
                self.rest = after;
                self.take("?");
                return Some(self.times.clamp(least, most.unwrap_or(usize::MAX).max(least)));
            }
            _ => return Some(1),
        };
        self.next();
        self.take("?");
        Some(self.times.clamp(least, most.unwrap_or(usize::MAX)))
    }
}
