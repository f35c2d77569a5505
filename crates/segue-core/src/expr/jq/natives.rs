//! Functions of jq that the library has for its own values only, and those that we do otherwise: regular
//! expressions of bounded cost, `fromjson` of bounded depth, `join` in one pass.

use std::cell::RefCell;
use std::rc::Rc;

use jaq_core::native::{Filter, bome, unary, v};
use jaq_core::{DataT, RunPtr, ValR, ValT};
use jaq_json::{Num, Val};
use jaq_std::ValT as _;

use super::counted::{JqValueError, MeteredValue, order, same};
use crate::budget::{self, BYTES_PER_OPERATION, charge_or_unwind, spend_or_unwind};
use crate::document::read_json_value;
use crate::limits::Limits;
use crate::pattern::{Flags, Pattern, PatternError};

/// Names that these take from the library.
pub(super) const NAMES: &[&str] = &["matches", "split_matches", "split_"];

pub(super) fn all<D: for<'a> DataT<V<'a> = MeteredValue>>() -> Vec<Filter<RunPtr<D>>> {
    vec![
        ("fromjson", v(0), |cv| bome(from_json(&cv.1))),
        ("tojson", v(0), |cv| bome(Ok(to_json(&cv.1)))),
        ("length", v(0), |cv| bome(length(&cv.1))),
        ("join", v(1), |cv| unary(cv, |list, separator| join(&list, &separator))),
        ("contains", v(1), |cv| {
            unary(cv, |one, other| Ok(contains(one.val(), other.val()).into()))
        }),
        ("has", v(1), |cv| unary(cv, |value, key| has(&value, &key))),
        ("indices", v(1), |cv| unary(cv, |value, wanted| indices(&value, &wanted))),
        ("bsearch", v(1), |cv| unary(cv, |list, wanted| bsearch(&list, &wanted))),
        ("matches", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(search(&cv.1, &pattern, &flags, SearchOutput { between: false, matches: true }))
        }),
        ("split_matches", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(search(&cv.1, &pattern, &flags, SearchOutput { between: true, matches: true }))
        }),
        ("split_", v(2), |mut cv| {
            let (flags, pattern) = (cv.0.pop_var(), cv.0.pop_var());
            bome(search(&cv.1, &pattern, &flags, SearchOutput { between: true, matches: false }))
        }),
    ]
}

fn text_of(value: &MeteredValue) -> Result<std::borrow::Cow<'_, str>, JqValueError> {
    let bytes = value.as_bytes().ok_or_else(|| JqValueError::typ(value.clone(), "string"))?;
    Ok(String::from_utf8_lossy(bytes))
}

fn from_json(value: &MeteredValue) -> ValR<MeteredValue> {
    let text = text_of(value)?;
    charge_or_unwind(text.len().saturating_mul(2));
    let wrong = |message: &dyn std::fmt::Display| {
        JqValueError::str(format_args!("cannot parse {value} as JSON: {message}"))
    };
    // Our own reader has limits; text that it accepts is safe for the library's reader.
    let read = read_json_value(&text, &Limits::default());
    let read = read.map_err(|finding| wrong(&finding.message))?;
    let val = jaq_json::read::parse_single(read.to_json().as_bytes());
    val.map(MeteredValue::new).map_err(|error| wrong(&error))
}

fn to_json(value: &MeteredValue) -> MeteredValue {
    MeteredValue::from(value.to_string())
}

fn length(value: &MeteredValue) -> ValR<MeteredValue> {
    let length = match value.val() {
        Val::Null => 0,
        Val::Num(_) => {
            let is_negative = *value < MeteredValue::from(0isize);
            return if is_negative { -value.clone() } else { Ok(value.clone()) };
        }
        Val::TStr(_) => text_of(value)?.chars().count(),
        Val::BStr(bytes) => bytes.len(),
        Val::Arr(items) => items.len(),
        Val::Obj(members) => members.len(),
        Val::Bool(_) => return Err(JqValueError::str(format_args!("{value} has no length"))),
    };
    Ok(length.into())
}

/// Strings are joined as they are, everything else as JSON.
fn join(list: &MeteredValue, separator: &MeteredValue) -> ValR<MeteredValue> {
    let separator = match separator.val() {
        Val::Null => "".into(),
        _ => text_of(separator)?,
    };
    let mut text = String::new();
    for (index, item) in list.clone().values().enumerate() {
        let item = item?;
        charge_or_unwind(separator.len());
        if index > 0 {
            text.push_str(&separator);
        }
        match item.val() {
            Val::TStr(_) | Val::BStr(_) => {
                let item = text_of(&item)?;
                charge_or_unwind(item.len());
                text.push_str(&item);
            }
            _ => text.push_str(&item.to_string()),
        }
    }
    Ok(MeteredValue::from(text))
}

fn contains(one: &Val, other: &Val) -> bool {
    spend_or_unwind(1);
    match (one, other) {
        (Val::BStr(one), Val::BStr(other)) | (Val::TStr(one), Val::TStr(other)) => {
            spend_or_unwind(((one.len() + other.len()) / BYTES_PER_OPERATION) as u64);
            String::from_utf8_lossy(one).contains(&*String::from_utf8_lossy(other))
        }
        (Val::Arr(one), Val::Arr(other)) => {
            other.iter().all(|other| one.iter().any(|one| contains(one, other)))
        }
        (Val::Obj(one), Val::Obj(other)) => {
            other.iter().all(|(key, other)| one.get(key).is_some_and(|one| contains(one, other)))
        }
        (one, other) => same(one, other),
    }
}

fn has(value: &MeteredValue, key: &MeteredValue) -> ValR<MeteredValue> {
    match (value.val(), key.val()) {
        (Val::Null, _) => Ok(false.into()),
        (Val::Obj(members), Val::TStr(_) | Val::BStr(_)) => {
            Ok(members.contains_key(key.val()).into())
        }
        (Val::Arr(items), Val::Num(Num::Int(at))) => {
            Ok(usize::try_from(*at).is_ok_and(|at| at < items.len()).into())
        }
        _ => Err(JqValueError::index(value.clone(), key.clone())),
    }
}

/// The positions of a part in a string or a list, overlaps included.
pub(super) fn indices(value: &MeteredValue, wanted: &MeteredValue) -> ValR<MeteredValue> {
    let found: Vec<usize> = match (value.val(), wanted.val()) {
        (Val::TStr(_), Val::TStr(_)) => {
            let (text, part) = (text_of(value)?, text_of(wanted)?);
            let mut chars = CharOffsets { text: &text, byte: 0, count: 0 };
            places(text.as_bytes(), part.as_bytes()).into_iter().map(|at| chars.at(at)).collect()
        }
        (Val::Arr(items), Val::Arr(part)) if !part.is_empty() => {
            let windows = items.windows(part.len()).enumerate();
            let fits = |window: &[Val]| window.iter().zip(part.iter()).all(|(a, b)| same(a, b));
            windows.filter(|(_, window)| fits(window)).map(|(index, _)| index).collect()
        }
        (Val::Arr(_), Val::Arr(_)) => Vec::new(),
        (Val::Arr(items), wanted) => {
            let places = items.iter().enumerate().filter(|(_, item)| same(item, wanted));
            places.map(|(index, _)| index).collect()
        }
        _ => return Err(JqValueError::index(value.clone(), wanted.clone())),
    };
    Ok(found.into_iter().map(MeteredValue::from).collect())
}

/// The positions of a part in a string, overlaps included, in linear time: nothing is compared
/// twice (Knuth, Morris, Pratt).
fn places(text: &[u8], part: &[u8]) -> Vec<usize> {
    if part.is_empty() || part.len() > text.len() {
        return Vec::new();
    }
    // The failure function: how much of the part still matches when its next byte does not.
    charge_or_unwind(part.len().saturating_mul(std::mem::size_of::<usize>()));
    spend_or_unwind((text.len() / BYTES_PER_OPERATION) as u64);
    let mut fallback = vec![0; part.len()];
    let advance = |mut fits: usize, byte: u8, fallback: &[usize]| {
        while fits > 0 && (fits == part.len() || part[fits] != byte) {
            fits = fallback[fits - 1];
        }
        fits + usize::from(part[fits] == byte)
    };
    let mut fits = 0;
    for at in 1..part.len() {
        fits = advance(fits, part[at], &fallback);
        fallback[at] = fits;
    }
    fits = 0;
    let mut found = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        fits = advance(fits, *byte, &fallback);
        if fits == part.len() {
            spend_or_unwind(1);
            found.push(at + 1 - fits);
        }
    }
    found
}

fn bsearch(list: &MeteredValue, wanted: &MeteredValue) -> ValR<MeteredValue> {
    let Val::Arr(items) = list.val() else { return Err(JqValueError::typ(list.clone(), "array")) };
    let place = |at: usize| isize::try_from(at).unwrap_or(isize::MAX);
    let found = items.binary_search_by(|item| order(item, wanted.val()));
    Ok(found.map_or_else(|at| -1 - place(at), place).into())
}

/// The result of a search: the texts between matches, the matches, or both in turn.
#[derive(Clone, Copy)]
struct SearchOutput {
    between: bool,
    matches: bool,
}

fn search(
    value: &MeteredValue,
    pattern: &MeteredValue,
    flags: &MeteredValue,
    want: SearchOutput,
) -> ValR<MeteredValue> {
    let (text, flags) = (text_of(value)?, text_of(flags)?);
    let wrong = |message: String| JqValueError::str(message);
    let (mut how, mut global, mut skip_empty) = (Flags::default(), false, false);
    for flag in flags.chars() {
        match flag {
            'g' => global = true,
            'n' => skip_empty = true,
            'i' => how.any_case = true,
            'm' => how.lines = true,
            's' => how.dot_takes_lines = true,
            'p' => (how.lines, how.dot_takes_lines) = (true, true),
            'l' => how.lazy = true,
            'x' => how.spaced = true,
            other => return Err(wrong(format!("invalid regex flag: {other}"))),
        }
    }
    let pattern = compiled(&text_of(pattern)?, how).map_err(|error| wrong(error.message))?;
    pattern.charge(text.len());
    let (mut found, mut last) = (Vec::new(), 0);
    let mut chars = CharOffsets { text: &text, byte: 0, count: 0 };
    let mut all = pattern.matches_within(&text);
    while let Some(captures) = all.try_next().unwrap_or_else(|stop| budget::unwind(stop)) {
        let Some(whole) = captures.get(0) else { continue };
        if skip_empty && whole.is_empty() {
            continue;
        }
        if want.between {
            found.push(MeteredValue::from(text[last..whole.start()].to_owned()));
            last = whole.end();
        }
        if want.matches {
            let before = chars.at(whole.start());
            found.push(groups(&pattern, &captures, &text, whole.start(), before)?);
        }
        if !global {
            break;
        }
    }
    if want.between {
        found.push(MeteredValue::from(text[last..].to_owned()));
    }
    Ok(found.into_iter().collect())
}

/// Operations for parsing a pattern, also one that is too large.
const READING: u64 = 1_000;

/// A compiled pattern, charged unless it is the last one used: most programs use one for all items.
fn compiled(text: &str, flags: Flags) -> Result<Rc<Pattern>, PatternError> {
    thread_local! {
        static LAST: RefCell<Option<(String, Flags, Rc<Pattern>)>> = const { RefCell::new(None) };
    }
    let known = LAST.with_borrow(|last| match last {
        Some((known, how, pattern)) if known == text && *how == flags => Some(pattern.clone()),
        _ => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    // Charged first, because a rejected pattern has been parsed too.
    spend_or_unwind(READING + text.len() as u64);
    let pattern = Rc::new(Pattern::with_flags(text, flags)?);
    spend_or_unwind(pattern.compilation());
    LAST.set(Some((text.to_owned(), flags, pattern.clone())));
    Ok(pattern)
}

/// Converts increasing byte offsets to character offsets.
struct CharOffsets<'a> {
    text: &'a str,
    byte: usize,
    count: usize,
}

impl CharOffsets<'_> {
    fn at(&mut self, byte: usize) -> usize {
        self.count += self.text[self.byte..byte].chars().count();
        self.byte = byte;
        self.count
    }
}

/// A match with the groups that took part in it.
fn groups(
    pattern: &Pattern,
    captures: &regex::Captures<'_>,
    text: &str,
    start: usize,
    before: usize,
) -> ValR<MeteredValue> {
    let groups = captures.iter().zip(pattern.regex().capture_names());
    let groups = groups.filter_map(|(group, name)| Some((group?, name)));
    let groups = groups.map(|(group, name)| {
        spend_or_unwind(1 + (group.len() / BYTES_PER_OPERATION) as u64);
        let offset = before + text[start..group.start()].chars().count();
        let field = |name: &str, value: MeteredValue| (MeteredValue::from(name.to_owned()), value);
        let fields = [
            field("offset", offset.into()),
            field("length", group.as_str().chars().count().into()),
            field("string", group.as_str().to_owned().into()),
        ];
        let name = name.map(|name| field("name", name.to_owned().into()));
        MeteredValue::from_map(fields.into_iter().chain(name))
    });
    groups.collect()
}
