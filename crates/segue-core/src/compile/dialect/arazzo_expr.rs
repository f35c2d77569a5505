//! Arazzo's runtime expressions and simple conditions → expressions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::go_template::{field, step};

/// The expression of each output, by step and name.
pub(super) type Outputs = BTreeMap<(Arc<str>, Arc<str>), Arc<str>>;

/// Outputs may refer to outputs of other steps; a longer path than this is a cycle.
const DEPTH_MAX: usize = 16;

/// A text that is one runtime expression, or that holds some in `{…}`.
pub(super) fn template(written: &str, outputs: &Outputs) -> Result<String, String> {
    if written.starts_with('$') {
        return Ok(format!("{{{{ {} }}}}", expression(written, outputs, None)?));
    }
    let mut out = String::new();
    let mut rest = written;
    while let Some(open) = rest.find("{$") {
        let close = rest[open..].find('}').ok_or("`{$` without `}`")? + open;
        out.push_str(&rest[..open]);
        let inside = expression(&rest[open + 1..close], outputs, None)?;
        let _ = write!(out, "{{{{ {inside} }}}}");
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// A runtime expression. `body` is the translation of `$response.body`, where it is allowed.
pub(super) fn expression(
    written: &str,
    outputs: &Outputs,
    body: Option<&str>,
) -> Result<String, String> {
    at_depth(written, outputs, body, 0)
}

fn at_depth(
    written: &str,
    outputs: &Outputs,
    body: Option<&str>,
    depth: usize,
) -> Result<String, String> {
    if depth > DEPTH_MAX {
        return Err(format!("`{written}` refers to itself"));
    }
    let (path, pointer) = written.split_once('#').unwrap_or((written, ""));
    let from_pointer = pointer.split('/').skip(1).map(|part| {
        let part = part.replace("~1", "/").replace("~0", "~");
        match part.parse::<usize>() {
            Ok(index) => format!("[{index}]"),
            Err(_) => field(&part),
        }
    });
    let from_pointer: String = from_pointer.collect();
    let parts = split(path);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let fields = |parts: &[&str]| parts.iter().map(|part| part_of(part)).collect::<String>();
    let base = match parts.as_slice() {
        ["$inputs", rest @ ..] => format!("input{}", fields(rest)),
        ["$steps", id, "outputs", name, rest @ ..] => {
            let key = (Arc::from(*id), Arc::from(*name));
            let made_of = outputs.get(&key).ok_or(format!("step `{id}` has no output `{name}`"))?;
            let own = format!("{}.output", step(id));
            let value = at_depth(made_of, outputs, Some(&own), depth + 1)?;
            format!("{value}{}", fields(rest))
        }
        ["$response", "body", rest @ ..] | ["$outputs", rest @ ..] => {
            let body = body.ok_or(format!("`{written}` outside a step"))?;
            format!("{body}{}", fields(rest))
        }
        // The value of the calling step is the result of the other workflow.
        [name] if body.is_some() && name.starts_with("$workflow_") => {
            format!("{}.{}", body.unwrap_or_default(), &name[1..])
        }
        _ => return Err(format!("`{written}`")),
    };
    Ok(format!("{base}{from_pointer}"))
}

/// The segments of a path; an index is a segment of its own.
fn split(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for part in path.split('.') {
        let mut rest = part;
        if let Some(open) = rest.find('[') {
            parts.push(rest[..open].to_owned());
            rest = &rest[open..];
            while let Some(close) = rest.find(']') {
                parts.push(rest[..=close].to_owned());
                rest = &rest[close + 1..];
            }
        } else {
            parts.push(rest.to_owned());
        }
    }
    parts
}

fn part_of(part: &str) -> String {
    if part.starts_with('[') { part.to_owned() } else { field(part) }
}

/// Translates a simple condition over a call's response. `None` when every successful response
/// meets it.
pub(super) fn condition(written: &str, outputs: &Outputs) -> Result<Option<String>, String> {
    let tokens = tokens(written)?;
    if let [left, operator, status] = tokens.as_slice()
        && left == "$statusCode"
    {
        let is_met = match (operator.as_str(), status.parse::<u16>()) {
            ("==", Ok(status)) => (200..300).contains(&status),
            ("<", Ok(status)) => status >= 300,
            ("<=", Ok(status)) => status >= 299,
            (">=", Ok(status)) => status <= 200,
            _ => false,
        };
        return if is_met {
            Ok(None)
        } else {
            Err(format!("`{written}`: the status is not available"))
        };
    }
    let mut out = Vec::with_capacity(tokens.len());
    for token in &tokens {
        out.push(match token.as_str() {
            "&&" => "and".to_owned(),
            "||" => "or".to_owned(),
            "!" => "not".to_owned(),
            "null" => "none".to_owned(),
            "(" | ")" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "true" | "false" => token.clone(),
            word if word.starts_with('$') => expression(word, outputs, Some("output"))?,
            word if word.starts_with('\'') || word.parse::<f64>().is_ok() => word.to_owned(),
            word => return Err(format!("`{word}`")),
        });
    }
    Ok(Some(out.join(" ")))
}

fn tokens(written: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut chars = written.chars().peekable();
    while let Some(c) = chars.peek().copied() {
        match c {
            c if c.is_whitespace() => drop(chars.next()),
            '(' | ')' => tokens.extend(chars.next().map(String::from)),
            '\'' => {
                let mut text = String::from(c);
                chars.next();
                loop {
                    let next = chars.next().ok_or("a text without an end")?;
                    text.push(next);
                    if next == '\'' {
                        break;
                    }
                }
                tokens.push(text);
            }
            '=' | '!' | '<' | '>' | '&' | '|' => {
                let mut operator = String::from(c);
                chars.next();
                let doubled = |next: &char| match c {
                    '&' | '|' => *next == c,
                    _ => *next == '=',
                };
                operator.extend(chars.next_if(doubled));
                tokens.push(operator);
            }
            _ => {
                let mut word = String::new();
                let is_part = |c: &char| !c.is_whitespace() && !"()=!<>&|'".contains(*c);
                while let Some(c) = chars.next_if(is_part) {
                    word.push(c);
                }
                tokens.push(word);
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_expressions_become_paths() {
        let mut outputs = Outputs::new();
        outputs.insert(("find-one".into(), "id".into()), "$response.body#/0/id".into());
        outputs.insert(("login".into(), "token".into()), "$response.body.token".into());
        outputs.insert(("round".into(), "a".into()), "$steps.round.outputs.a".into());
        let said = |text: &str| template(text, &outputs);
        for (written, expected) in [
            ("plain", "plain"),
            ("$inputs.name", "{{ input.name }}"),
            ("$steps.find-one.outputs.id", "{{ steps['find-one'].output[0].id }}"),
            ("Bearer {$steps.login.outputs.token}", "Bearer {{ steps.login.output.token }}"),
            ("$inputs.items[0].id", "{{ input.items[0].id }}"),
        ] {
            assert_eq!(said(written).as_deref(), Ok(expected), "{written}");
        }
        for wrong in ["$url", "$steps.a.outputs.b", "$response.header.x", "$steps.round.outputs.a"]
        {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn simple_conditions_become_conditions() {
        let outputs = Outputs::new();
        let said = |text: &str| condition(text, &outputs);
        assert_eq!(said("$statusCode == 200"), Ok(None));
        assert!(said("$statusCode == 404").is_err());
        let both = said("$response.body.ok == true && ($response.body.n >= 3)");
        assert_eq!(both, Ok(Some("output.ok == true and ( output.n >= 3 )".to_owned())));
        assert_eq!(said("!$inputs.off"), Ok(Some("not input.off".to_owned())));
        let text = said("$response.body.status == 'on sale'");
        assert_eq!(text, Ok(Some("output.status == 'on sale'".to_owned())));
        assert!(said("$response.body ~ 'x'").is_err());
    }
}
