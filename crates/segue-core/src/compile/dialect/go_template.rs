//! Go templates → expressions: paths, comparisons, the logical functions, and `if`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::sync::Arc;

use crate::document::{Node, NodeKind};
use crate::value::Value;

/// The steps and parameters that templates of a composite tool can refer to.
pub(super) struct KnownSteps<'n> {
    steps: BTreeMap<Arc<str>, &'n Node>,
    /// The schemas of parameters that need not be given and have no default; `None` in the first
    /// edition, in which such a parameter and the text of a tool were not translated.
    optional: Option<BTreeMap<Arc<str>, &'n Node>>,
}

impl<'n> KnownSteps<'n> {
    pub(super) fn of(steps: &'n [Node]) -> KnownSteps<'n> {
        let named = |step: &'n Node| Some((step.get("id")?.as_str()?.clone(), step));
        KnownSteps { steps: steps.iter().filter_map(named).collect(), optional: None }
    }

    /// Adds the parameters: a JSON Schema, or an object of parameters.
    pub(super) fn with_parameters(mut self, parameters: Option<&'n Node>) -> KnownSteps<'n> {
        let listed = parameters.map_or(&[][..], Node::members);
        let schema = parameters.and_then(|node| node.get("properties"));
        let required =
            parameters.and_then(|node| node.get("required")).map_or(&[][..], Node::items);
        let is_required = |name: &Arc<str>, schema: &Node| {
            required.iter().any(|item| item.as_str() == Some(name))
                || schema.get("required").is_some_and(|it| it.kind == NodeKind::Bool(true))
        };
        let all = schema.map_or(listed, Node::members).iter();
        let absent = all.filter(|found| {
            found.value.get("default").is_none() && !is_required(&found.key, &found.value)
        });
        self.optional = Some(absent.map(|found| (found.key.clone(), &found.value)).collect());
        self
    }

    /// A value for an absent parameter: an empty text, or none.
    fn absent_parameter(&self, name: &str) -> Option<&'static str> {
        let schema = self.optional.as_ref()?.get(name)?;
        let word = schema.get("type").and_then(Node::as_str);
        Some(if word.is_some_and(|word| &**word == "string") { "''" } else { "none" })
    }

    fn asks(&self, id: &str) -> bool {
        let word = self.steps.get(id).and_then(|step| step.get("type")).and_then(Node::as_str);
        word.is_some_and(|word| &**word == "elicitation")
    }

    /// The default for a field of a step that was skipped.
    fn default_of(&self, id: &str, field: &str) -> Option<Value> {
        let step = self.steps.get(id).filter(|step| step.get("condition").is_some())?;
        Some(step.get("defaultResults")?.get(field)?.to_value())
    }
}

/// The path of a step, quoted if its id is not an identifier.
pub(super) fn step(id: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if id.chars().all(is_name) { format!("steps.{id}") } else { format!("steps['{id}']") }
}

/// Translates a text with Go templates. `default` replaces a missing value.
pub(super) fn translate(
    written: &str,
    known: &KnownSteps<'_>,
    default: Option<&Value>,
) -> Result<String, String> {
    let mut pieces = Vec::new();
    let mut rest = written;
    while let Some(open) = rest.find("{{") {
        if open > 0 {
            pieces.push(GoTemplatePiece::Text(&rest[..open]));
        }
        let close = rest[open..].find("}}").ok_or("`{{` without `}}`")? + open;
        pieces.push(GoTemplatePiece::Action(rest[open + 2..close].trim_matches('-').trim()));
        rest = &rest[close + 2..];
    }
    if !rest.is_empty() {
        pieces.push(GoTemplatePiece::Text(rest));
    }
    let default = default.map(|value| format!(" | default({})", value.to_json()));
    let mut pieces = pieces.into_iter().peekable();
    let mut out = String::new();
    while let Some(piece) = pieces.next() {
        match piece {
            GoTemplatePiece::Text(text) => out.push_str(text),
            GoTemplatePiece::Action(action) if action.starts_with("/*") => {}
            GoTemplatePiece::Action(action) => {
                let expression = match action.strip_prefix("if ") {
                    Some(condition) => conditional(condition, &mut pieces, known)?,
                    None => parse(action, known)?,
                };
                let default = default.as_deref().unwrap_or("");
                let _ = write!(out, "{{{{ {expression}{default} }}}}");
            }
        }
    }
    Ok(out)
}

enum GoTemplatePiece<'t> {
    Text(&'t str),
    Action(&'t str),
}

/// `{{if c}}a{{else}}b{{end}}`
fn conditional<'t>(
    condition: &str,
    pieces: &mut Peekable<impl Iterator<Item = GoTemplatePiece<'t>>>,
    known: &KnownSteps<'_>,
) -> Result<String, String> {
    let test = parse(condition, known)?;
    let mut branches = [Vec::new(), Vec::new()];
    let mut at = 0;
    loop {
        match pieces.next().ok_or("`if` without `end`")? {
            GoTemplatePiece::Action("end") => break,
            GoTemplatePiece::Action("else") if at == 0 => at = 1,
            GoTemplatePiece::Action(action) if action.starts_with("else if ") && at == 0 => {
                branches[1].push(conditional(&action["else if ".len()..], pieces, known)?);
                break;
            }
            GoTemplatePiece::Action(action) => branches[at].push(parse(action, known)?),
            GoTemplatePiece::Text(text) => branches[at].push(Value::from(text).to_json()),
        }
    }
    let [then, otherwise] = branches.map(|parts| match parts.as_slice() {
        [] => "''".to_owned(),
        parts => parts.join(" ~ "),
    });
    Ok(format!("({then} if {test} else {otherwise})"))
}

fn parse(action: &str, known: &KnownSteps<'_>) -> Result<String, String> {
    let tokens = tokens(action)?;
    let mut tokens = tokens.iter().map(String::as_str).peekable();
    let expression = call(&mut tokens, known)?;
    match tokens.next() {
        None => Ok(expression),
        Some(rest) => Err(format!("`{rest}` in `{action}`")),
    }
}

/// Words, quoted texts and brackets.
fn tokens(action: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut chars = action.chars().peekable();
    while let Some(c) = chars.peek().copied() {
        match c {
            c if c.is_whitespace() => drop(chars.next()),
            '(' | ')' | '|' => tokens.extend(chars.next().map(String::from)),
            '"' | '`' => {
                let mut text = String::new();
                chars.next();
                loop {
                    match chars.next().ok_or("a text without an end")? {
                        end if end == c => break,
                        '\\' if c == '"' => text.extend(chars.next()),
                        other => text.push(other),
                    }
                }
                tokens.push(Value::from(text).to_json());
            }
            _ => {
                let mut word = String::new();
                while let Some(c) =
                    chars.next_if(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '|' | '"'))
                {
                    word.push(c);
                }
                tokens.push(word);
            }
        }
    }
    Ok(tokens)
}

/// A function with its operands, or one operand.
fn call<'t, I: Iterator<Item = &'t str>>(
    tokens: &mut Peekable<I>,
    known: &KnownSteps<'_>,
) -> Result<String, String> {
    let Some(name) = tokens.next() else { return Err("nothing between the braces".to_owned()) };
    let comparison = match name {
        "eq" => Some("=="),
        "ne" => Some("!="),
        "lt" => Some("<"),
        "le" => Some("<="),
        "gt" => Some(">"),
        "ge" => Some(">="),
        _ => None,
    };
    if let Some(operator) = comparison {
        let operands = operands(tokens, known)?;
        let [left, right] = operands.as_slice() else {
            return Err(format!("`{name}` needs two operands"));
        };
        return Ok(format!("({left} {operator} {})", status_word(left, right)));
    }
    match name {
        "and" | "or" => Ok(format!("({})", operands(tokens, known)?.join(&format!(" {name} ")))),
        "not" => Ok(format!("(not {})", operand(tokens, known)?)),
        "len" => Ok(format!("({} | length)", operand(tokens, known)?)),
        "json" | "toJson" | "quote" => Ok(format!("({} | tojson)", operand(tokens, known)?)),
        // Values are not serialized here, so there is no text to parse.
        "fromJson" => operand(tokens, known),
        "index" => {
            let operands = operands(tokens, known)?;
            let (base, keys) = operands.split_first().ok_or("`index` needs operands")?;
            let keys: Vec<String> = keys.iter().map(|key| format!("[{key}]")).collect();
            Ok(format!("{base}{}", keys.concat()))
        }
        name => single(name, tokens, known),
    }
}

fn operands<'t, I: Iterator<Item = &'t str>>(
    tokens: &mut Peekable<I>,
    known: &KnownSteps<'_>,
) -> Result<Vec<String>, String> {
    let mut operands = Vec::new();
    while tokens.peek().is_some_and(|token| *token != ")") {
        operands.push(operand(tokens, known)?);
    }
    Ok(operands)
}

fn operand<'t, I: Iterator<Item = &'t str>>(
    tokens: &mut Peekable<I>,
    known: &KnownSteps<'_>,
) -> Result<String, String> {
    let token = tokens.next().ok_or("an operand is missing")?;
    single(token, tokens, known)
}

fn single<'t, I: Iterator<Item = &'t str>>(
    token: &str,
    tokens: &mut Peekable<I>,
    known: &KnownSteps<'_>,
) -> Result<String, String> {
    if token == "(" {
        let inside = call(tokens, known)?;
        return match tokens.next() {
            Some(")") => Ok(inside),
            _ => Err("`(` without `)`".to_owned()),
        };
    }
    let is_literal =
        token.starts_with('"') || matches!(token, "true" | "false") || token.parse::<f64>().is_ok();
    if is_literal {
        return Ok(token.to_owned());
    }
    if token == "nil" {
        return Ok("none".to_owned());
    }
    match token.strip_prefix('.') {
        Some(path) => reference(path, known),
        None => Err(format!("`{token}`")),
    }
}

/// A path from the root of a template.
fn reference(path: &str, known: &KnownSteps<'_>) -> Result<String, String> {
    let parts: Vec<&str> = path.split('.').collect();
    let fields = |parts: &[&str]| parts.iter().map(|part| field(part)).collect::<String>();
    match parts.as_slice() {
        ["params", name] if let Some(default) = known.absent_parameter(name) => {
            Ok(format!("(input{} | default({default}))", field(name)))
        }
        ["params", rest @ ..] => Ok(format!("input{}", fields(rest))),
        ["timestamp"] => Ok("run.started_at".to_owned()),
        ["steps", id, "status"] => Ok(format!("{}.status", step(id))),
        ["steps", id, "error", ..] => Ok(format!("{}.error.message", step(id))),
        ["steps", id, "output" | "content", rest @ ..] => {
            let data = if known.asks(id) { ".data" } else { "" };
            let mut value = format!("{}.output{data}{}", step(id), fields(rest));
            // ToolHive calls a tool's text `text`; here a text is the whole output.
            if known.optional.is_some() && *rest == ["text"] && data.is_empty() {
                let output = format!("{}.output", step(id));
                value = format!("({value} if {output} is mapping else {output})");
            }
            let default = rest.first().and_then(|name| known.default_of(id, name));
            Ok(match default {
                Some(default) => format!("({value} | default({}))", default.to_json()),
                None => value,
            })
        }
        _ => Err(format!("`.{path}`")),
    }
}

/// A field access, quoted if the name is not an identifier.
pub(super) fn field(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(is_name) {
        format!(".{name}")
    } else {
        format!("[{}]", Value::from(name).to_json())
    }
}

/// ToolHive says `completed` for our `success`.
fn status_word<'w>(left: &str, right: &'w str) -> &'w str {
    match right {
        "\"completed\"" if left.ends_with(".status") => "\"success\"",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Span;

    #[test]
    fn templates_become_expressions() {
        let none = Node { span: Span::default(), kind: NodeKind::Null };
        let known = KnownSteps::of(none.items());
        let said = |text: &str| translate(text, &known, None);
        for (written, expected) in [
            ("plain", "plain"),
            ("{{.params.name}}", "{{ input.name }}"),
            ("a {{ .params.x }} b", "a {{ input.x }} b"),
            ("{{.steps.a.output.b.c}}", "{{ steps.a.output.b.c }}"),
            ("{{.steps.fetch-it.output}}", "{{ steps['fetch-it'].output }}"),
            ("{{eq .steps.a.status \"completed\"}}", "{{ (steps.a.status == \"success\") }}"),
            (
                "{{and (gt .params.n 3) (not .params.off)}}",
                "{{ ((input.n > 3) and (not input.off)) }}",
            ),
            ("{{if .params.p}}yes{{else}}no{{end}}", "{{ (\"yes\" if input.p else \"no\") }}"),
            ("{{index .steps.a.output.items 0}}", "{{ steps.a.output.items[0] }}"),
        ] {
            assert_eq!(said(written).as_deref(), Ok(expected), "{written}");
        }
        for wrong in
            ["{{range .x}}", "{{.other.x}}", "{{ printf \"%d\" 1 }}", "{{.params.x", "{{eq 1}}"]
        {
            assert!(said(wrong).is_err(), "{wrong}");
        }
    }
}
