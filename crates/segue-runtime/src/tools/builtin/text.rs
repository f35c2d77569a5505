//! `text_*`: small, pure functions on text; every result is limited while it grows.
//!
//! Patterns run on the linear `regex` engine, and the work to find all matches is limited, so no
//! text can make one stall.

use std::sync::Arc;

use regex::Captures;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::pattern::{Pattern, PatternError};
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinSpec, Pure, PureFn, over_limit};
use crate::tools::{Tool, ToolError};

/// How many parts or matches one result holds.
const ITEMS_MAX: usize = 100_000;

const TOOLS: &[(BuiltinSpec, PureFn)] = &[
    (
        BuiltinSpec::reads(
            "text_split",
            "Splits a text at a separator (line breaks by default)",
            r#"{"type":"object","required":["text"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},
                "separator":{"type":"string","minLength":1,"default":"\n"}}}"#,
            r#"{"type":"object","required":["parts"],"additionalProperties":false,"properties":{
                "parts":{"type":"array","items":{"type":"string"}}}}"#,
        ),
        split,
    ),
    (
        BuiltinSpec::reads(
            "text_join",
            "Joins parts into one text; parts that are not text are written as JSON",
            r#"{"type":"object","required":["parts"],"additionalProperties":false,"properties":{
                "parts":{"type":"array"},
                "separator":{"type":"string","default":"\n"}}}"#,
            r#"{"type":"object","required":["text"],"additionalProperties":false,"properties":{
                "text":{"type":"string"}}}"#,
        ),
        join,
    ),
    (
        BuiltinSpec::reads(
            "text_replace",
            "Replaces every occurrence of a text or of a regular expression (then `$1` is a group)",
            r#"{"type":"object","required":["text","find","replace"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},
                "find":{"type":"string","minLength":1},
                "replace":{"type":"string"},
                "regex":{"type":"boolean","default":false}}}"#,
            r#"{"type":"object","required":["text","replacements"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},"replacements":{"type":"integer","minimum":0}}}"#,
        ),
        replace,
    ),
    (
        BuiltinSpec::reads(
            "text_extract",
            "Finds every match of a regular expression, with its groups",
            r#"{"type":"object","required":["text","pattern"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},
                "pattern":{"type":"string","minLength":1}}}"#,
            r#"{"type":"object","required":["matches"],"additionalProperties":false,"properties":{
                "matches":{"type":"array","items":{"type":"object","required":["text","groups"],
                    "additionalProperties":false,"properties":{
                        "text":{"type":"string"},
                        "groups":{"type":"array","items":{"type":["string","null"]}},
                        "named":{"type":"object","additionalProperties":{"type":["string","null"]}}}}}}}"#,
        ),
        extract,
    ),
    (
        BuiltinSpec::reads(
            "text_truncate",
            "Cuts a text to a number of characters, the ellipsis included",
            r#"{"type":"object","required":["text","max_chars"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},
                "max_chars":{"type":"integer","minimum":0},
                "ellipsis":{"type":"string","default":"…"}}}"#,
            r#"{"type":"object","required":["text","truncated"],"additionalProperties":false,"properties":{
                "text":{"type":"string"},"truncated":{"type":"boolean"}}}"#,
        ),
        truncate,
    ),
    (
        BuiltinSpec::reads(
            "text_stats",
            "Counts the characters, words and lines of a text",
            r#"{"type":"object","required":["text"],"additionalProperties":false,"properties":{
                "text":{"type":"string"}}}"#,
            r#"{"type":"object","required":["chars","words","lines"],"additionalProperties":false,"properties":{
                "chars":{"type":"integer"},"words":{"type":"integer"},"lines":{"type":"integer"}}}"#,
        ),
        stats,
    ),
];

pub(super) fn tools(limits: &Arc<Limits>) -> Vec<Tool> {
    let pure = |run| Arc::new(Pure { limits: limits.clone(), run, slow: false });
    TOOLS.iter().map(|(declared, run)| declared.tool(pure(*run))).collect()
}

fn split(args: &Value, _limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let (text, separator) = (args.text("text")?, args.text_or("separator", "\n")?);
    if separator.is_empty() {
        return Err(ToolError::refused(Code::InputSchema, "`separator` is empty"));
    }
    let parts: Vec<Value> = text.split(separator).take(ITEMS_MAX + 1).map(Value::from).collect();
    if parts.len() > ITEMS_MAX {
        return Err(over_limit("the number of parts", ITEMS_MAX, "parts"));
    }
    Ok(Value::object([("parts", Value::from(parts))]))
}

fn join(args: &Value, limits: &Limits) -> Result<Value, ToolError> {
    use std::fmt::Write as _;
    let args = ToolArgs(args);
    let separator = args.text_or("separator", "\n")?;
    let mut out = Bounded::new(limits);
    let parts = args.value("parts").and_then(Value::as_array);
    for (index, part) in parts.iter().flat_map(|parts| parts.iter()).enumerate() {
        if index > 0 {
            out.push(separator)?;
        }
        let left = out.left();
        if part.size() > left.saturating_add(size_of::<Value>()) {
            return Err(out.full());
        }
        let _ = write!(out.text, "{part}");
    }
    Ok(Value::object([("text", out.finish()?)]))
}

fn replace(args: &Value, limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let (text, find, replace) = (args.text("text")?, args.text("find")?, args.text("replace")?);
    let (text, replacements) = if args.flag_or("regex", false)? {
        replace_pattern(text, &pattern(find, text)?, replace, limits)?
    } else {
        replace_text(text, find, replace, limits)?
    };
    Ok(Value::object([("text", text), ("replacements", Value::from(replacements))]))
}

fn replace_text(
    text: &str,
    find: &str,
    replace: &str,
    limits: &Limits,
) -> Result<(Value, usize), ToolError> {
    let mut out = Bounded::new(limits);
    let (mut end, mut replacements) = (0, 0);
    // An empty text occurs between all characters; replacing there is never intended.
    for (start, found) in text.match_indices(find).filter(|(_, found)| !found.is_empty()) {
        out.push(&text[end..start])?;
        out.push(replace)?;
        end = start + found.len();
        replacements += 1;
    }
    out.push(&text[end..])?;
    Ok((out.finish()?, replacements))
}

fn replace_pattern(
    text: &str,
    pattern: &Pattern,
    replace: &str,
    limits: &Limits,
) -> Result<(Value, usize), ToolError> {
    let mut out = Bounded::new(limits);
    let (mut end, mut replacements) = (0, 0);
    for captures in pattern.matches(text) {
        let captures = captures.map_err(unusable)?;
        let Some(found) = captures.get(0) else { continue };
        out.push(&text[end..found.start()])?;
        if expanded_len_max(&captures, replace) > out.left() {
            return Err(out.full());
        }
        captures.expand(replace, &mut out.text);
        end = found.end();
        replacements += 1;
    }
    out.push(&text[end..])?;
    Ok((out.finish()?, replacements))
}

/// The longest possible expansion: each `$` may stand for the whole match.
fn expanded_len_max(captures: &Captures<'_>, replace: &str) -> usize {
    let longest = captures.get(0).map_or(0, |found| found.len());
    replace.len().saturating_add(replace.matches('$').count().saturating_mul(longest))
}

fn extract(args: &Value, limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let text = args.text("text")?;
    let pattern = pattern(args.text("pattern")?, text)?;
    let mut matches = Vec::new();
    let mut bytes = 0_usize;
    for captures in pattern.matches(text) {
        let captures = captures.map_err(unusable)?;
        bytes = bytes.saturating_add(captures.iter().flatten().map(|group| group.len()).sum());
        if bytes > limits.value_bytes_max {
            return Err(over_limit("the size of the matches", limits.value_bytes_max, "bytes"));
        }
        if matches.len() == ITEMS_MAX {
            return Err(over_limit("the number of matches", ITEMS_MAX, "matches"));
        }
        matches.push(found(&pattern, &captures));
    }
    Ok(Value::object([("matches", Value::from(matches))]))
}

fn found(pattern: &Pattern, captures: &Captures<'_>) -> Value {
    let text = |group: Option<regex::Match<'_>>| group.map_or(Value::Null, |g| g.as_str().into());
    let groups: Vec<Value> = captures.iter().skip(1).map(text).collect();
    let named: Vec<(&str, Value)> = pattern
        .regex()
        .capture_names()
        .flatten()
        .map(|name| (name, text(captures.name(name))))
        .collect();
    let mut members = vec![("text", text(captures.get(0))), ("groups", Value::from(groups))];
    if !named.is_empty() {
        members.push(("named", Value::object(named)));
    }
    Value::object(members)
}

fn truncate(args: &Value, _limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let text = args.text("text")?;
    let max = args.count_or("max_chars", usize::MAX)?;
    if text.char_indices().nth(max).is_none() {
        return Ok(truncated(Value::String(text.clone()), false));
    }
    // An ellipsis that does not fit is left out, not cut.
    let ellipsis = args.text_or("ellipsis", "…")?;
    let width = ellipsis.chars().count();
    let (kept, ellipsis) = if width <= max { (max - width, ellipsis) } else { (max, "") };
    let end = text.char_indices().nth(kept).map_or(text.len(), |(end, _)| end);
    Ok(truncated(Value::from(format!("{}{ellipsis}", &text[..end])), true))
}

fn truncated(text: Value, truncated: bool) -> Value {
    Value::object([("text", text), ("truncated", Value::Bool(truncated))])
}

fn stats(args: &Value, _limits: &Limits) -> Result<Value, ToolError> {
    let text = ToolArgs(args).text("text")?;
    Ok(Value::object([
        ("chars", Value::from(text.chars().count())),
        ("words", Value::from(text.split_whitespace().count())),
        ("lines", Value::from(text.lines().count())),
    ]))
}

/// A pattern that is affordable for this text.
fn pattern(pattern: &str, text: &str) -> Result<Pattern, ToolError> {
    let pattern = Pattern::new(pattern).map_err(unusable)?;
    if !pattern.is_affordable(text.len()) {
        let message = "the regular expression is too large for a text of this size";
        return Err(ToolError::refused(Code::Limit, message));
    }
    Ok(pattern)
}

fn unusable(error: PatternError) -> ToolError {
    let code = if error.is_limit { Code::Limit } else { Code::InputSchema };
    ToolError::refused(code, error.message)
}

/// A text that is limited to the size of a value.
struct Bounded {
    text: String,
    bytes_max: usize,
}

impl Bounded {
    fn new(limits: &Limits) -> Bounded {
        Bounded { text: String::new(), bytes_max: limits.value_bytes_max }
    }

    fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.text.len())
    }

    fn push(&mut self, part: &str) -> Result<(), ToolError> {
        if part.len() > self.left() {
            return Err(self.full());
        }
        self.text.push_str(part);
        Ok(())
    }

    fn full(&self) -> ToolError {
        over_limit("the size of the result", self.bytes_max, "bytes")
    }

    fn finish(self) -> Result<Value, ToolError> {
        if self.text.len() > self.bytes_max { Err(self.full()) } else { Ok(self.text.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(outcome: Result<Value, ToolError>) -> Option<Code> {
        match outcome {
            Ok(_) => None,
            Err(ToolError::Refused { code, .. }) => Some(code),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// A pattern that scans all the rest before each match is refused; 100,000 ordinary matches are
    /// found.
    #[test]
    fn all_matches_take_a_bounded_time() {
        let limits = Limits::default();
        let both = |pattern: &str, text: &str| {
            let text = ("text", Value::from(text));
            let find = [text.clone(), ("find", pattern.into()), ("replace", "-".into())];
            let replaced = find.into_iter().chain([("regex", true.into())]);
            let replaced = replace(&Value::object(replaced), &limits);
            let extracted = extract(&Value::object([text, ("pattern", pattern.into())]), &limits);
            [code(replaced), code(extracted)]
        };
        // Positions that never match count, too.
        let dear = "x{300}|.*[^A-Z]|[A-Z]";
        assert_eq!(both(dear, &"A".repeat(100_000)), [Some(Code::Limit); 2]);
        assert_eq!(both(r"\b\w", &"wörter ab ".repeat(50_000)), [None; 2]);
        assert_eq!(both("(", "text"), [Some(Code::InputSchema); 2]);
    }
}
