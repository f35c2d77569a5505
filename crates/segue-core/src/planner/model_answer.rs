//! Parses a model's answer into a plan document, or reports its errors.
//!
//! The answer must be JSON in the requested form. An accepted answer is not a plan yet: the
//! compiler checks it like every other text.

use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::read_json_value;
use crate::limits::Limits;
use crate::source::Span;
use crate::value::Value;

/// The members of an answer.
const ANSWER: &[&str] = &["reasoning", "tools", "executionOrder", "max_concurrency"];

/// The members of one call.
const CALL: &[&str] = &["id", "name", "parameters", "dependsOn", "when"];

/// A model's answer in the form of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProposedPlan {
    /// The reasons for these tools.
    pub(super) reasoning: Arc<str>,
    /// The calls, as written.
    pub(super) tools: Value,
    /// Their order.
    pub(super) order: Value,
    /// How many calls may run together, if more than one.
    pub(super) max_concurrency: Option<u64>,
}

impl ProposedPlan {
    /// Whether the model says that the tools cannot do it.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.as_array().is_some_and(|tools| tools.is_empty())
    }
}

/// Parses an answer; the findings give the errors.
pub(super) fn read(text: &str, limits: &Limits) -> Result<ProposedPlan, Vec<Diagnostic>> {
    let json = unfenced(unthought(text))?;
    let value = read_json_value(json, limits).map_err(|finding| {
        let message = format!("the answer is not JSON: {}", finding.message);
        vec![wrong(message).help("answer with one JSON object and nothing else")]
    })?;
    let mut findings = Vec::new();
    members(&value, ANSWER, "the answer", &mut findings);
    let list = |name: &str, findings: &mut Vec<Diagnostic>| match value.get(name) {
        Some(list @ Value::Array(_)) => list.clone(),
        Some(other) => {
            findings.push(wrong(format!("`{name}` must be a list, found {}", other.kind())));
            Value::Null
        }
        None => {
            findings.push(wrong(format!("the answer has no `{name}`")));
            Value::Null
        }
    };
    let (tools, order) = (list("tools", &mut findings), list("executionOrder", &mut findings));
    for call in tools.as_array().into_iter().flat_map(|calls| calls.iter()) {
        members(call, CALL, "a call in `tools`", &mut findings);
    }
    let reasoning = match value.get("reasoning") {
        None | Some(Value::Null) => Arc::from(""),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            findings.push(wrong(format!("`reasoning` must be text, found {}", other.kind())));
            Arc::from("")
        }
    };
    let max_concurrency = match value.get("max_concurrency") {
        None | Some(Value::Null) => None,
        Some(number) => number.as_u64().filter(|number| *number > 0).or_else(|| {
            findings.push(wrong(format!("`max_concurrency` must be a count, found {number}")));
            None
        }),
    };
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(ProposedPlan { reasoning, tools, order, max_concurrency })
}

/// The text after a leading block of thoughts.
fn unthought(text: &str) -> &str {
    let thought = text.trim_start().strip_prefix("<think>");
    thought.and_then(|rest| rest.split_once("</think>")).map_or(text, |(_, said)| said)
}

/// The text inside a code fence, if there is one; models often put JSON into one.
fn unfenced(text: &str) -> Result<&str, Vec<Diagnostic>> {
    const FENCE: &str = "```";
    let mut parts = text.split(FENCE);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(whole), None, ..) => Ok(whole.trim()),
        (_, Some(inside), Some(_), None) => {
            // The name of a language follows the opening fence.
            let (first, rest) = inside.split_once('\n').unwrap_or(("", inside));
            let is_word = first.trim().chars().all(char::is_alphanumeric);
            Ok(if is_word { rest.trim() } else { inside.trim() })
        }
        (_, _, None, _) => Err(vec![wrong("the answer's code fence is not closed")]),
        _ => Err(vec![wrong("the answer has several code fences; send one JSON document")]),
    }
}

/// Checks that a value is an object with these members only.
fn members(value: &Value, known: &[&str], what: &str, findings: &mut Vec<Diagnostic>) {
    let Some(found) = value.as_object() else {
        findings.push(wrong(format!("{what} must be an object, found {}", value.kind())));
        return;
    };
    for name in found.keys().filter(|name| !known.contains(&&***name)) {
        let finding = wrong(format!("{what} has no member `{name}`"));
        let help = match nearest_name(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its members are `{}`", known.join("`, `")),
        };
        findings.push(finding.help(help));
    }
}

fn wrong(message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Code::Llm, message, Span::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"{"reasoning": "x", "tools": [{"name": "echo", "parameters": {}, "dependsOn": null}], "executionOrder": ["echo"]}"#;

    fn problems(text: &str) -> String {
        let found = read(text, &Limits::default()).unwrap_err();
        found.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    }

    /// S4-13: JSON, bare or in one code fence, with any text around the fence.
    #[test]
    fn json_is_read_with_and_without_a_fence() {
        let bare = read(PLAN, &Limits::default()).unwrap();
        assert_eq!(&*bare.reasoning, "x");
        for text in [
            format!("  \n{PLAN}\n"),
            format!("```json\n{PLAN}\n```"),
            format!("```\n{PLAN}```"),
            format!("```{PLAN}```"),
            format!("Here is the plan:\n```json\n{PLAN}\n```\nAnything else?"),
            format!("<think>\nIs it {{}}, or ```{{}}```?\n</think>\n\n{PLAN}"),
            format!("\n<think></think>```json\n{PLAN}\n```"),
        ] {
            assert_eq!(read(&text, &Limits::default()).as_ref(), Ok(&bare), "{text}");
        }
    }

    /// S4-14
    #[test]
    fn anything_else_is_a_finding() {
        for (text, says) in [
            ("I cannot do that.", "not JSON"),
            ("", "not JSON"),
            (&PLAN[..40], "not JSON"),
            (&format!("Sure! {PLAN}"), "not JSON"),
            (&format!("<think> {PLAN}"), "not JSON"),
            (&format!("{PLAN}{PLAN}"), "not JSON"),
            (&format!("```json\n{PLAN}"), "not closed"),
            (&format!("```\n{PLAN}\n```\n```\n{PLAN}\n```"), "several"),
            ("[]", "must be an object, found"),
            ("null", "must be an object"),
            (r#"{"tools": [], "tools": [], "executionOrder": []}"#, "not JSON"),
            ("{}", "the answer has no `tools`; the answer has no `executionOrder`"),
            (r#"{"tools": {}, "executionOrder": null}"#, "`tools` must be a list, found"),
            (r#"{"tools": ["echo"], "executionOrder": []}"#, "a call in `tools` must be an object"),
            (
                r#"{"tools": [{"name": "a", "retry_count": 9}], "executionOrder": [], "note": 1}"#,
                "no member `note`; a call in `tools` has no member `retry_count`",
            ),
            (r#"{"tools": [], "executionOrder": [], "reasoning": 1}"#, "`reasoning` must be text"),
        ] {
            let found = problems(text);
            assert!(found.contains(says), "{text}: {found}");
        }
    }
}
