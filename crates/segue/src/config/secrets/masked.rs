//! A value of a configuration, as written → the same value without secrets, for display.

use std::ops::Range;
use std::sync::Arc;

use segue_core::value::Value;

use super::arguments::{self, text_secrets};
use super::is_secret_name;
use super::parts::is_plain;

/// The text that replaces a secret.
pub(super) const MASK: &str = "***";

/// Maps whose values are all hidden, whatever their names.
const GIVEN: &[&str] = &["env", "headers"];

/// The value of `name` without secrets. Variables are shown, because they are only names.
pub(crate) fn mask_value(name: &str, value: &Value) -> Value {
    if is_secret_place(name) {
        return all_masked(name, value);
    }
    match value {
        Value::String(text) => Value::from(without(text, text_secrets(name, text))),
        Value::Array(items) => list("", items),
        Value::Object(members) => {
            let program = members.get("command").and_then(Value::as_str).unwrap_or("");
            let member = |(name, it): (&Arc<str>, &Value)| match it {
                Value::Array(items) if &**name == "args" => (name.clone(), list(program, items)),
                it => (name.clone(), mask_value(name, it)),
            };
            Value::object(members.iter().map(member).collect::<Vec<_>>())
        }
        other => other.clone(),
    }
}

/// Whether every value of this name is or may be a secret.
pub(crate) fn is_secret_place(name: &str) -> bool {
    GIVEN.contains(&name) || is_secret_name(name)
}

/// A list as a command line; without a program, its first item is the program.
fn list(program: &str, items: &[Value]) -> Value {
    let words: Vec<&str> = items.iter().map(|item| item.as_str().unwrap_or("")).collect();
    let secrets = arguments::argument_secrets(program, &words);
    let items = items.iter().zip(secrets).map(|(item, secrets)| match item {
        Value::String(text) => Value::from(without(text, secrets.ranges)),
        item if secrets.is_all => all_masked("", item),
        item => mask_value("", item),
    });
    items.collect::<Vec<_>>().into()
}

/// A value with every text hidden. The names of members are shown.
fn all_masked(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(mask_text(text)),
        Value::Number(number) if !is_plain(name, &number.to_string()) => Value::from(MASK),
        Value::Array(items) => {
            items.iter().map(|it| all_masked(name, it)).collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, it)| (name.clone(), all_masked(name, it)));
            Value::object(members.collect::<Vec<_>>())
        }
        other => other.clone(),
    }
}

/// A text with these ranges replaced.
fn without(text: &str, mut secrets: Vec<Range<usize>>) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    secrets.retain(|range| !range.is_empty());
    secrets.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    for range in secrets.into_iter().filter(|range| range.end > 0) {
        let start = range.start.max(at);
        if start < range.end {
            shown.push_str(&text[at..start]);
            shown.push_str(&mask_text(&text[start..range.end]));
            at = range.end;
        }
    }
    shown + &text[at..]
}

/// A text with everything hidden but its variables.
pub(super) fn mask_text(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, after)) = after.split_once('}') else { break };
        let name = inside.split(":-").next().unwrap_or("");
        let default = if inside.contains(":-") { ":-***" } else { "" };
        shown.push_str(if before.is_empty() { "" } else { MASK });
        shown.extend(["${", name, default, "}"]);
        rest = after;
    }
    shown + if rest.is_empty() { "" } else { MASK }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_shown_and_secrets_are_not() {
        let written = serde_json::json!({
            "env": { "MODE": "quiet", "T": "Bearer ${TOKEN}", "D": "${X:-fallback}" },
            "args": ["--token", "abc", "-v", "--key=abc", "plain", "https://u:abc@h.example/?api_key=abc"],
            "api_key": "abc", "url": "https://h.example/mcp",
        });
        let shown = mask_value("s", &Value::from(written)).to_json();
        for secret in ["quiet", "abc", "fallback", "Bearer"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for plain in
            ["${TOKEN}", "${X:-***}", "--token", "\"-v\"", "plain", "https://h.example/mcp"]
        {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
    }
}
