//! A served composition as a tool: name, schemas, hints, and a description that lists its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::plan::{DeclaredCall, Plan};
use segue_core::tool::{Annotations, Impact, ToolSpec, hex_digest};
use segue_core::value::{Map, Value};
use segue_runtime::engine::Engine;

use crate::print::escape_control;

/// The longest name that every host takes.
const NAME_CHARS_MAX: usize = 40;

/// The longest description; hosts cut longer ones, some of them silently.
const DESCRIPTION_CHARS_MAX: usize = 1_500;

/// How many tools a description names.
const TOOLS_NAMED_MAX: usize = 12;

/// A served composition, as a tool.
#[derive(Clone, Debug)]
pub struct ServedTool {
    /// `[a-z][a-z0-9_]{0,39}`
    pub name: String,
    /// The composition's own name.
    pub composition: Arc<str>,
    /// Its title for people: the author's, else the composition's name.
    pub title: Arc<str>,
    /// What it does, calls and leaves behind.
    pub description: String,
    /// JSON Schema of its arguments; an object.
    pub input: Value,
    /// JSON Schema of its result; an object.
    pub output: Value,
    /// Whether the result is an object with the value as `result`, because the value need not be one.
    pub is_wrapped: bool,
    /// Its effects.
    pub annotations: Annotations,
    /// Its plan.
    pub plan: Arc<Plan>,
}

/// The served tools, by name.
#[derive(Clone, Debug, Default)]
pub struct ServedTools {
    tools: BTreeMap<String, Arc<ServedTool>>,
}

impl ServedTools {
    /// The compositions of an engine. No tool takes a name of `taken`.
    pub fn of(engine: &Engine, taken: &BTreeSet<&str>) -> ServedTools {
        let compositions: Vec<&Arc<ToolSpec>> =
            engine.catalog().tools().filter(|tool| tool.composition.is_some()).collect();
        let own: Vec<&str> = compositions.iter().map(|tool| tool.id.name()).collect();
        let names = names(&own, taken);
        let tools = compositions.into_iter().zip(names).filter_map(|(tool, name)| {
            let plan = engine.plan_named(tool.id.name())?;
            Some((name.clone(), Arc::new(ServedTool::new(name, tool, plan))))
        });
        ServedTools { tools: tools.collect() }
    }

    /// Every tool, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServedTool>> {
        self.tools.values()
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<ServedTool>> {
        self.tools.get(name)
    }

    /// The tool of a composition.
    pub fn of_composition(&self, composition: &str) -> Option<&Arc<ServedTool>> {
        self.iter().find(|tool| &*tool.composition == composition)
    }

    /// A hash of everything that a client sees of them.
    pub fn fingerprint(&self) -> String {
        let current_view = self.iter().map(|tool| {
            let ServedTool { name, title, description, input, output, annotations, .. } = &**tool;
            format!("{name}\n{title}\n{description}\n{input}\n{output}\n{annotations:?}\n")
        });
        hex_digest(current_view.collect::<String>().as_bytes())
    }
}

impl ServedTool {
    fn new(name: String, tool: &ToolSpec, plan: Arc<Plan>) -> ServedTool {
        let own = tool.output.as_ref().map_or_else(Value::empty_object, |s| s.json().clone());
        let is_wrapped = own.get("type").and_then(Value::as_str) != Some("object");
        ServedTool {
            name,
            composition: tool.id.name().into(),
            title: title(tool),
            description: description(&tool.description, &plan),
            input: object_schema(tool.input.json()),
            output: with_reference(if is_wrapped { wrapped(own) } else { own }),
            is_wrapped,
            annotations: tool.annotations,
            plan,
        }
    }
}

fn title(tool: &ToolSpec) -> Arc<str> {
    let metadata = tool.composition.as_ref().map(|composition| &composition.metadata);
    let hints = metadata.and_then(|metadata| metadata.get("annotations"));
    let own = hints.and_then(|hints| hints.get("title")).and_then(Value::as_str);
    own.map_or_else(|| tool.id.name().into(), |own| escape_control(own).into())
}

/// The names of tools, in the order of the compositions: letters, digits and `_`, short and unique. A
/// name depends on another composition only if both would have the same.
fn names(compositions: &[&str], taken: &BTreeSet<&str>) -> Vec<String> {
    let plain: Vec<String> = compositions.iter().map(|name| plain_name(name)).collect();
    let is_clear = |at: usize| {
        let name = &plain[at];
        let is_same = |other: &usize| plain[*other] == *name;
        let alone = (0..plain.len()).filter(is_same).count() == 1 || compositions[at] == name;
        alone && name.len() <= NAME_CHARS_MAX && !taken.contains(name.as_str())
    };
    let shortened = |at: usize| {
        let hash = &hex_digest(compositions[at].as_bytes())[..6];
        let room = NAME_CHARS_MAX - hash.len() - 1;
        format!("{}_{hash}", plain[at].chars().take(room).collect::<String>())
    };
    (0..plain.len())
        .map(|at| if is_clear(at) { plain[at].clone() } else { shortened(at) })
        .collect()
}

/// The name of the tool of a composition, unless another one would have the same.
pub(super) fn plain_name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_lowercase()) { name } else { format!("c_{name}") }
}

/// A schema whose root has the type `object`: some hosts refuse all tools because of one whose schema
/// has not. Every input is an object.
fn object_schema(schema: &Value) -> Value {
    let mut members = match schema {
        Value::Object(members) => (**members).clone(),
        _ => Map::new(),
    };
    members.shift_remove("type");
    members.shift_insert(0, "type".into(), Value::from("object"));
    members.into()
}

fn wrapped(own: Value) -> Value {
    Value::object([
        ("type", Value::from("object")),
        ("properties", Value::object([("result", own)])),
        ("required", Value::from(vec![Value::from("result")])),
    ])
}

/// The schema of a result: the composition's own, or a reference to the run when it takes too long or is
/// too large.
fn with_reference(own: Value) -> Value {
    let Some(members) = own.as_object() else { return own };
    let reference = crate::api::result::reference_schema();
    let fields = reference.get("properties").and_then(Value::as_object).expect("it has fields");
    let properties = members.get("properties").and_then(Value::as_object);
    let clashes = properties.is_some_and(|own| own.keys().any(|name| fields.contains_key(name)));
    let mut all = Map::new();
    all.insert("type".into(), Value::from("object"));
    if clashes {
        all.insert("anyOf".into(), Value::from(vec![own, reference]));
        return all.into();
    }
    all.extend(
        members
            .iter()
            .filter(|(name, _)| !matches!(&***name, "type" | "required" | "additionalProperties"))
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    if let Some(required) = members.get("required").filter(|r| r.at(0).is_some()) {
        let complete = Value::object([("required", required.clone())]);
        all.insert("anyOf".into(), Value::from(vec![complete, reference]));
    }
    all.into()
}

fn description(own: &str, plan: &Plan) -> String {
    let declared = plan.declared_calls();
    let mut parts: Vec<String> = Vec::new();
    let own = escape_control(own.trim()).into_owned();
    if !own.is_empty() {
        parts.push(own);
    }
    parts.push(calls(&declared, plan.has_expand_step()));
    if plan.needs_run_consent() {
        parts.push("Asks a person once before it begins.".to_owned());
    } else if declared.iter().any(|call| call.asks) {
        let policy = declared.iter().filter(|call| call.asks).map(|call| call.tool.to_string());
        parts.push(format!("Asks a person before: {}.", some_of(policy.collect())));
    }
    if plan.has_approve_step() {
        parts.push("Asks a person on its way.".to_owned());
    }
    parts.push(rollback(&declared, plan));
    let text = parts.join("\n");
    if text.chars().count() <= DESCRIPTION_CHARS_MAX {
        return text;
    }
    // The effects are listed in any case; the author's description is cut.
    let rest = parts[1..].join("\n");
    let room = DESCRIPTION_CHARS_MAX.saturating_sub(rest.chars().count() + 2);
    format!("{}…\n{rest}", parts[0].chars().take(room).collect::<String>())
}

fn calls(declared: &[DeclaredCall], expands: bool) -> String {
    let named = |takes_back: bool| {
        let calls = declared.iter().filter(move |call| call.is_rollback == takes_back);
        calls.map(|call| format!("{} ({})", call.tool, effect(call.effect))).collect::<Vec<_>>()
    };
    let (mut forward, undos) = (named(false), named(true));
    if expands {
        forward.push("what a composition made at run time calls".to_owned());
    }
    let calls = if forward.is_empty() { "no tool".to_owned() } else { some_of(forward) };
    if undos.is_empty() {
        format!("Calls {calls}.")
    } else {
        format!("Calls {calls}. To roll that back: {}.", some_of(undos))
    }
}

fn some_of(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(TOOLS_NAMED_MAX);
    names.truncate(TOOLS_NAMED_MAX);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// The effect of a call, in a few words.
pub(super) fn effect(effect: Impact) -> &'static str {
    match effect {
        Impact::None => "does nothing",
        Impact::Reads => "reads",
        Impact::Writes => "writes",
        Impact::Destroys => "may destroy",
        Impact::Unknown => "effect unknown, may destroy",
    }
}

fn rollback(declared: &[DeclaredCall], plan: &Plan) -> String {
    if plan.impact() <= Impact::Reads {
        return "Changes nothing.".to_owned();
    }
    let lasting: Vec<String> =
        declared.iter().filter(|call| !call.can_roll_back).map(|c| c.tool.to_string()).collect();
    match (plan.rolls_back_on_failure(), lasting.is_empty() && !plan.has_expand_step()) {
        (true, true) => "When a step fails, everything done before is rolled back.".to_owned(),
        (true, false) if lasting.is_empty() => {
            "When a step fails, what can be rolled back is.".to_owned()
        }
        (true, false) => format!(
            "When a step fails, what can be rolled back is; these cannot: {}.",
            some_of(lasting)
        ),
        (false, true) => {
            "A failure leaves what was done before; it can be rolled back by hand.".to_owned()
        }
        (false, false) => {
            "A failure leaves what was done before; it cannot all be rolled back.".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_short_and_each_once() {
        let taken = BTreeSet::from(["run_get"]);
        let long = "a".repeat(60);
        let given = names(&["a-b", "a_b", "9lives", "run-get", "Über", &long], &taken);
        assert_eq!(given[1], "a_b", "the one that is called so keeps its name");
        assert!(given[0].starts_with("a_b_") && given[0] != given[1]);
        assert_eq!(given[2], "c_9lives");
        assert!(given[3].starts_with("run_get_"));
        let fits = |name: &String| {
            name.len() <= NAME_CHARS_MAX
                && name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        assert!(given.iter().all(fits), "{given:?}");
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }

    #[test]
    fn an_answer_may_be_a_reference_whatever_its_own_shape() {
        let own = |text: &str| {
            segue_core::document::read_json_value(text, &segue_core::limits::Limits::default())
                .unwrap()
        };
        let reference = own(r#"{"run_id":"r","status":"running","message":"m"}"#);
        for schema in [
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#,
            r#"{"type":"object","properties":{"status":{"type":"integer"}},"required":["status"]}"#,
            r#"{"type":"object"}"#,
        ] {
            let schema = segue_core::schema::Schema::new(with_reference(own(schema)));
            assert!(schema.check().is_ok());
            assert!(schema.violations(&reference).is_empty(), "{}", schema.json());
        }
        let strict = with_reference(own(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#,
        ));
        let strict = segue_core::schema::Schema::new(strict);
        assert!(strict.violations(&own(r#"{"n":1}"#)).is_empty());
        assert!(!strict.violations(&own(r#"{"n":"x"}"#)).is_empty());
        assert!(!strict.violations(&own(r#"{"m":1}"#)).is_empty());
    }
}
