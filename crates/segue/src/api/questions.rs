//! The questions of a run, as forms for a person, and the decisions that answers mean.

use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::plan::{DeclaredCall, Plan};
use segue_core::run::{Question, QuestionKind, RollbackCall, Run};
use segue_core::schema::Schema;
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_core::view::WaitView;
use segue_runtime::confirm::Decision;

use crate::api::catalog::effect;
use crate::print::escape_control;

/// How much of the arguments is shown to a person.
const ARGUMENTS_CHARS_MAX: usize = 4_000;

/// A form: a text, and the data of a yes.
#[derive(Clone, Debug)]
pub struct QuestionForm {
    /// The question.
    pub message: String,
    /// JSON Schema of the data of a yes: an object of simple values.
    pub schema: Value,
}

impl QuestionForm {
    /// The same form, asked again because an answer did not fit.
    #[must_use]
    pub fn again(self, error: Option<&String>) -> QuestionForm {
        let Some(error) = error else { return self };
        QuestionForm { message: format!("{}\n{}", escape_control(error), self.message), ..self }
    }
}

/// How a person replied to a form.
#[derive(Clone, Debug, PartialEq)]
pub enum FormReply {
    /// Filled it in.
    Accepted(Value),
    /// Said no.
    Declined,
    /// Closed it.
    Dismissed,
}

/// The one question of an atomic composition, before anything is called.
pub fn consent(composition: &str, input: &Value, calls: &[DeclaredCall]) -> QuestionForm {
    let message = format!(
        "`{composition}` wants to run, all of it at once, with\n{}\n{}May it?",
        shown(input),
        list_calls(calls)
    );
    QuestionForm { message, schema: yes_or_no() }
}

/// The tools that may be called, with their effects; then those of a rollback.
pub fn list_calls(calls: &[DeclaredCall]) -> String {
    let mut text = String::new();
    let (undos, forward): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.is_rollback);
    for (title, calls) in [("It may call", forward), ("To roll that back, it may call", undos)] {
        if !calls.is_empty() {
            let _ = writeln!(text, "{title}:");
        }
        for call in calls {
            let lasting = if call.can_roll_back { "" } else { ", cannot be rolled back" };
            let _ = writeln!(text, "- {}: {}{lasting}", call.tool, effect(call.effect));
            for arguments in &call.arguments {
                let _ = writeln!(text, "  with {}", on_one_line(arguments));
            }
        }
    }
    text
}

/// The call of a rollback that is allowed together with a call.
pub fn rollback_text(rollback: Option<&RollbackCall>) -> String {
    let Some(RollbackCall { tool, args, .. }) = rollback else { return String::new() };
    format!("If a later step fails, `{tool}` rolls it back with\n{}\n", indented(args))
}

/// Arguments below the line that introduces them.
pub fn indented(arguments: &Value) -> String {
    shown(arguments).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The effect of a call that is allowed, as a line; empty where there is none.
pub fn stakes(effect: Impact, can_be_undone: bool) -> &'static str {
    match (effect, can_be_undone) {
        (Impact::None | Impact::Reads, _) => "",
        (Impact::Writes, true) => "It changes something, which can be rolled back.\n",
        (Impact::Writes, false) => "It changes something, and that cannot be rolled back.\n",
        (Impact::Destroys | Impact::Unknown, true) => {
            "It may destroy something, which can be rolled back.\n"
        }
        (Impact::Destroys | Impact::Unknown, false) => {
            "It may destroy something, and that cannot be rolled back.\n"
        }
    }
}

/// The question of a run that waits, with everything that a yes to it covers.
pub fn waiting_text(wait: &WaitView) -> String {
    // The text of a run and of a call is ours; that of an approval is its composition's.
    let mut text = match wait.kind {
        "approval" => quoted(&wait.message),
        _ => escape_control(&wait.message).into_owned(),
    };
    if let (true, Some(input)) = (wait.kind == "run", Some(&wait.args).filter(|it| !it.is_null())) {
        let _ = write!(text, "\nit runs with {}", shown(input));
    }
    for covered in &wait.covers {
        let what = if covered.is_rollback { "to roll that back: " } else { "" };
        let lasting = if covered.can_roll_back { "" } else { ", cannot be rolled back" };
        let _ = write!(text, "\n- {what}{}: {}{lasting}", covered.tool, effect(covered.effect));
        if let Some(arguments) = &covered.arguments {
            let _ = write!(text, ", with {}", on_one_line(arguments));
        }
    }
    text
}

/// The form of a question of a run.
pub fn form(composition: &str, question: &Question) -> QuestionForm {
    let step = &question.step;
    match &question.kind {
        QuestionKind::Run { composition, input, calls } => consent(composition, input, calls),
        QuestionKind::Call { tool, args, effect, can_roll_back, parts, rollback } => QuestionForm {
            message: format!(
                "`{composition}`, step `{step}`, wants to call `{tool}` with\n{}\n{}{}{}May it?",
                indented(args),
                stakes(*effect, *can_roll_back),
                list_calls(parts),
                rollback_text(rollback.as_ref())
            ),
            schema: yes_or_no(),
        },
        QuestionKind::Approval { message, schema } => {
            let fits = schema.as_ref().filter(|schema| is_simple(schema));
            let mut message = format!("`{composition}`, step `{step}`, asks: {}", quoted(message));
            let schema = match (fits, schema) {
                (Some(schema), _) => schema.json().clone(),
                (None, None) => yes_or_no(),
                (None, Some(schema)) => {
                    let _ = write!(message, "\n`data` is JSON that fits {}", schema.json());
                    one_field("data", &[])
                }
            };
            QuestionForm { message, schema }
        }
        QuestionKind::Doubt { tool, args, message } => QuestionForm {
            message: format!(
                "`{composition}`, step `{step}`: it is unknown whether `{tool}` did its work ({}). \
                 It was called with\n{}\nLook, and say whether it did.",
                quoted(message),
                shown(args)
            ),
            schema: one_field("outcome", &["done", "failed"]),
        },
    }
}

/// Why it is not clear which question an answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmbiguousQuestion {
    /// Several steps ask: these.
    Several(Vec<Arc<str>>),
    /// No question of that kind is open, or not of this step.
    None,
}

/// Finds the open question of a run that an answer is for: that of a call in doubt, or any other.
pub fn find_question(
    run: &Run,
    step: Option<&str>,
    is_doubt: bool,
) -> Result<Question, AmbiguousQuestion> {
    let fits = |question: &Question| {
        matches!(question.kind, QuestionKind::Doubt { .. }) == is_doubt
            && step.is_none_or(|step| &*question.step == step)
    };
    let mut questions: Vec<Question> = run.questions().into_iter().filter(fits).collect();
    match questions.len() {
        0 => Err(AmbiguousQuestion::None),
        1 => Ok(questions.remove(0)),
        _ => Err(AmbiguousQuestion::Several(questions.into_iter().map(|q| q.step).collect())),
    }
}

/// Why the data of a yes does not fit: an approval has a form, and a tool an output schema.
pub fn data_error(question: &Question, data: &Value, plan: &Plan) -> Option<String> {
    match &question.kind {
        QuestionKind::Run { .. } | QuestionKind::Call { .. } | QuestionKind::Approval { .. } => {
            form_error(question, data)
        }
        QuestionKind::Doubt { .. } if data.is_null() => None,
        QuestionKind::Doubt { tool, .. } => {
            let schema = plan.tools.get(tool)?.output.as_ref()?;
            let violation = schema.violations(data).into_iter().next()?;
            Some(format!("`{tool}` cannot have returned that: {violation}"))
        }
    }
}

/// Why the data of an approval does not fit its form.
pub fn form_error(question: &Question, data: &Value) -> Option<String> {
    let QuestionKind::Approval { schema, .. } = &question.kind else { return None };
    let violation = schema.as_ref()?.violations(data).into_iter().next()?;
    Some(format!("the answer does not fit: {violation}"))
}

/// The decision that a reply means; nothing leaves the question open.
pub fn decision(question: &Question, reply: FormReply, by: &Arc<str>) -> Option<Decision> {
    let decide = |granted, data| Some(Decision { granted, by: by.clone(), data });
    match (&question.kind, reply) {
        (QuestionKind::Doubt { .. }, FormReply::Accepted(data)) => {
            match data.get("outcome").and_then(Value::as_str) {
                Some("done") => decide(true, Value::Null),
                Some("failed") => decide(false, Value::Null),
                _ => None,
            }
        }
        (QuestionKind::Doubt { .. }, _) => None,
        (QuestionKind::Run { .. } | QuestionKind::Call { .. }, FormReply::Accepted(_)) => {
            decide(true, Value::Null)
        }
        (QuestionKind::Approval { schema, .. }, FormReply::Accepted(data)) => {
            let as_text = schema.as_ref().is_some_and(|schema| !is_simple(schema));
            let data = if as_text { parsed(data.get("data")) } else { data };
            let is_nothing = schema.is_none() && data.as_object().is_some_and(|d| d.is_empty());
            decide(true, if is_nothing { Value::Null } else { data })
        }
        (_, FormReply::Declined | FormReply::Dismissed) => decide(false, Value::Null),
    }
}

fn parsed(data: Option<&Value>) -> Value {
    let text = data.and_then(Value::as_str).unwrap_or("null");
    segue_core::document::read_json_value(text, &segue_core::limits::Limits::default())
        .unwrap_or_else(|_| Value::from(text))
}

/// A value as a person sees it before a yes: every member of an object is there, long texts and lists are
/// shortened until it fits.
pub(crate) fn shown(value: &Value) -> String {
    fitting(value, |value| serde_json::to_string_pretty(value).unwrap_or_default())
}

fn on_one_line(value: &Value) -> String {
    fitting(value, Value::to_string)
}

fn fitting(value: &Value, write: impl Fn(&Value) -> String) -> String {
    let whole = write(value);
    let fits = |text: &String| text.chars().count() <= ARGUMENTS_CHARS_MAX;
    if fits(&whole) {
        return escape_control(&whole).into_owned();
    }
    let shorter =
        SHORTER.iter().map(|(chars, items)| write(&shortened(value, *chars, *items, true)));
    let text = shorter.clone().find(fits).or_else(|| shorter.last()).unwrap_or_default();
    let cut: String = text.chars().take(ARGUMENTS_CHARS_MAX).collect();
    format!("{}\n… (shortened, {} bytes in all)", escape_control(&cut), whole.len())
}

/// How many characters of a text and items of a list are left, in one attempt after the other.
const SHORTER: [(usize, usize); 4] = [(1_000, 50), (200, 20), (50, 5), (20, 2)];

fn shortened(value: &Value, chars_max: usize, items_max: usize, is_top: bool) -> Value {
    let inside = |value: &Value| shortened(value, chars_max, items_max, false);
    match value {
        Value::String(text) if text.chars().nth(chars_max).is_some() => {
            let cut: String = text.chars().take(chars_max).collect();
            Value::from(format!("{cut}… ({} characters)", text.chars().count()))
        }
        Value::Array(items) => {
            let mut some: Vec<Value> = items.iter().take(items_max).map(inside).collect();
            if items.len() > items_max {
                some.push(Value::from(format!("… ({} items)", items.len())));
            }
            Value::from(some)
        }
        Value::Object(members) => {
            let members_max = if is_top { usize::MAX } else { items_max };
            let some = members.iter().take(members_max);
            let short = |name: &str| name.chars().take(chars_max).collect::<String>();
            let mut some: Vec<(String, Value)> =
                some.map(|(name, member)| (short(name), inside(member))).collect();
            if members.len() > members_max {
                some.push(("…".to_owned(), Value::from(format!("{} members", members.len()))));
            }
            Value::object(some.iter().map(|(name, member)| (name.as_str(), member.clone())))
        }
        other => other.clone(),
    }
}

/// A text of several lines that is not ours, marked so that none of its lines looks like ours.
pub(crate) fn quoted(text: &str) -> String {
    let text = escape_control(text);
    if !text.contains('\n') {
        return text.into_owned();
    }
    format!("\n> {}", text.replace('\n', "\n> "))
}

/// The schema without data: accepting is the yes.
fn yes_or_no() -> Value {
    Value::object([("type", Value::from("object")), ("properties", Value::empty_object())])
}

fn one_field(name: &str, words: &[&str]) -> Value {
    let mut field = vec![("type", Value::from("string"))];
    if !words.is_empty() {
        field.push(("enum", words.iter().map(|w| Value::from(*w)).collect::<Vec<_>>().into()));
    }
    Value::object([
        ("type", Value::from("object")),
        ("properties", Value::object([(name, Value::object(field))])),
        ("required", Value::from(vec![Value::from(name)])),
    ])
}

/// Whether hosts can show a schema as a form: an object of simple values.
fn is_simple(schema: &Schema) -> bool {
    let json = schema.json();
    let Some(properties) = json.get("properties").and_then(Value::as_object) else { return false };
    let simple = |field: &Value| match field.get("type").and_then(Value::as_str) {
        Some("string" | "number" | "integer" | "boolean") => true,
        // A selection from a list.
        Some("array") => field
            .get("items")
            .is_some_and(|items| items.get("enum").is_some() || items.get("anyOf").is_some()),
        _ => false,
    };
    json.get("type").and_then(Value::as_str) == Some("object") && properties.values().all(simple)
}

#[cfg(test)]
mod tests {
    use segue_core::value::Value;

    use super::{ARGUMENTS_CHARS_MAX, quoted, shown};

    /// A person sees every argument, however long the one before it is.
    #[test]
    fn long_arguments_hide_no_other() {
        let long = Value::from("x".repeat(4 * ARGUMENTS_CHARS_MAX));
        let many = Value::from(vec![long.clone(); 500]);
        let members = (0..1_000).map(|n| (format!("a long name of a member {n}"), long.clone()));
        let members: Vec<(String, Value)> = members.collect();
        let deep = Value::object(members.iter().map(|(name, it)| (name.as_str(), it.clone())));
        for first in [long, many, deep] {
            let args = Value::object([("content", first), ("path", Value::from("notes/old.txt"))]);
            let text = shown(&args);
            assert!(text.contains("notes/old.txt") && text.contains("shortened"), "{text}");
            assert!(text.chars().count() < ARGUMENTS_CHARS_MAX + 100, "{}", text.len());
        }
        let short = Value::object([("path", Value::from("a"))]);
        assert_eq!(shown(&short), "{\n  \"path\": \"a\"\n}");
    }

    /// A text cannot forge a question below the one that is asked.
    #[test]
    fn lines_of_others_do_not_look_like_ours() {
        let forged = quoted("keep?\n[y/N] n\nstep `b` asks: really keep");
        let lines: Vec<&str> = forged.lines().skip(1).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.starts_with("> ")), "{forged}");
        assert_eq!(quoted("keep?"), "keep?");
    }
}
