//! A part of a configuration, as it was written → the same to be shown, without secrets.

use segue_core::value::Value;

use super::is_secret_name;
use super::parts::parts;

/// What stands in the place of a secret.
const MASK: &str = "***";

/// Maps whose values are nobody's business, whatever their names are.
const GIVEN: &[&str] = &["env", "headers"];

/// A value without secrets; `name` is what it is the value of. Variables are shown: they are names.
pub(crate) fn masked(name: &str, value: &Value) -> Value {
    if GIVEN.contains(&name) || is_secret_name(name) {
        return all_masked(value);
    }
    match value {
        Value::String(text) => Value::from(without(name, text)),
        Value::Array(items) => {
            let flag = |at: usize| {
                let before = at.checked_sub(1).and_then(|before| items[before].as_str());
                let flag =
                    before.filter(|it| !it.contains('=')).and_then(|it| it.strip_prefix('-'));
                flag.unwrap_or("").trim_start_matches('-')
            };
            let items = items.iter().enumerate().map(|(at, item)| masked(flag(at), item));
            items.collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, it)| (name.clone(), masked(name, it)));
            Value::object(members.collect::<Vec<_>>())
        }
        other => other.clone(),
    }
}

/// A value of which every text may be a secret. The names of members are shown.
fn all_masked(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(veiled(text)),
        Value::Array(items) => items.iter().map(all_masked).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, it)| (name.clone(), all_masked(it)));
            Value::object(members.collect::<Vec<_>>())
        }
        other => other.clone(),
    }
}

/// A text without those of its parts that are secrets.
fn without(name: &str, text: &str) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    let mut found = parts(name, text);
    found.sort_by_key(|part| part.range.start);
    for part in found.into_iter().filter(|part| part.range.end > part.range.start) {
        if part.range.start >= at {
            shown.push_str(&text[at..part.range.start]);
            shown.push_str(&veiled(&text[part.range.clone()]));
            at = part.range.end;
        }
    }
    shown + &text[at..]
}

/// Only the variables of a text.
fn veiled(text: &str) -> String {
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
        let shown = masked("s", &Value::from(written)).to_json();
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
