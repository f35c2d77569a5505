//! Random edits.

use std::sync::Arc;

use segue_core::language::edit::{Container, Edit, Place, Reference};
use segue_core::value::Value;

use crate::model::{Way, at, is_program, steps};
use crate::random::Random;

/// Texts that YAML reads as something else if they are written carelessly.
const TEXTS: &[&str] = &[
    "plain",
    "two words",
    "- dash",
    "a: b",
    "# hash",
    "x # y",
    "{{ input.x }}",
    "12",
    "1.50",
    "0x1f",
    "true",
    "null",
    "~",
    "",
    " pad ",
    "it's",
    "say \"hi\"",
    "tab\there",
    "line\nbreak",
    "one\ntwo\n",
    "\n lead",
    "trail\n\n",
    "ünï 🦀",
    "*alias",
    "&anchor",
    "!tag",
    "%dir",
    "@at",
    "`tick`",
    "[a]",
    "{a: b}",
    "a,b",
    "key:",
    ":colon",
    "?",
    "?q",
    "|",
    ">",
    "no",
    "2024-01-01",
    "\u{2028}sep",
    "back\\slash",
    "\r\n",
    "---",
    "--- x",
    "...",
    "=",
    "<<",
    "\u{feff}bom",
    "{{ '{{' }}",
    "a\u{85}b",
];

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::from(i64::try_from(random.below(1_000)).unwrap() - 500),
        1 => Value::Bool(random.one_in(2)),
        2 if random.one_in(3) => Value::Null,
        5 | 6 => {
            let members = (0..random.below(4)).map(|_| {
                let key = if random.one_in(3) {
                    *random.of(TEXTS)
                } else {
                    *random.of(&["a", "bee", "c3"])
                };
                (key.to_owned(), value(random, depth - 1))
            });
            let members: Vec<_> = members.collect();
            Value::object(members)
        }
        7 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect::<Vec<_>>().into(),
        _ => Value::from(*random.of(TEXTS)),
    }
}

fn place(value: &Value, random: &mut Random) -> Place {
    let all = steps(value);
    let (id, way) = random.of(&all).clone();
    match random.below(5) {
        0 => Place::Before { step: id },
        1 | 2 => Place::After { step: id },
        number => {
            let step = at(value, &way).unwrap();
            let has_list = ["loop", "repeat", "parallel", "choose"]
                .iter()
                .any(|kind| step.get(kind).is_some());
            let step = has_list.then_some(id);
            if number == 3 {
                Place::FirstIn { step, body: None }
            } else {
                Place::LastIn { step, body: None }
            }
        }
    }
}

fn parameters(value: &Value) -> &'static str {
    if is_program(value) { "inputs" } else { "parameters" }
}

/// A random edit of a composition; `None` if it has no step with an id.
pub(crate) fn random_edit(before: &Value, random: &mut Random) -> Option<Edit> {
    let all = steps(before);
    if all.is_empty() {
        return None;
    }
    let (step, way) = random.of(&all).clone();
    let (other, _) = random.of(&all).clone();
    let parameters = parameters(before);
    Some(match random.below(15) {
        0 | 1 => {
            let given = Value::object([("x", value(random, 2)), ("y z", value(random, 1))]);
            let step = Value::object([
                ("id", Value::from("brand_new")),
                ("tool", Value::from("docs:read")),
                (parameters, given),
            ]);
            Edit::AddStep { step, place: place(before, random) }
        }
        2 => Edit::RemoveStep { step },
        3 => Edit::RenameStep { step, to: (*random.of(&["renamed", "re-named"])).into() },
        4 | 5 => Edit::MoveStep { step, place: place(before, random) },
        6 => Edit::DuplicateStep { step, id: None },
        7 | 8 => set_field(before, (step, &way), random)?,
        9 => clear_field(before, (step, &way), random)?,
        10 if random.one_in(2) => Edit::Connect { from: other, to: step, reference: None },
        10 => {
            let field = format!("/{parameters}/linked").into();
            let path = (*random.of(&["", "items[0].title", "output.a"])).into();
            Edit::Connect { from: other, to: step, reference: Some(Reference { path, field }) }
        }
        11 => Edit::Disconnect { from: other, to: step },
        12 => {
            let alone = random.one_in(2) || step == other;
            let steps = if alone { vec![step] } else { vec![step, other] };
            Edit::Wrap { steps, id: "around".into(), container: container(random) }
        }
        13 => Edit::Extract { steps: vec![step], name: "extracted".into(), id: None },
        _ => Edit::ChangeKind { step, to: kind(parameters, random) },
    })
}

fn set_field(before: &Value, (step, way): (Arc<str>, &Way), random: &mut Random) -> Option<Edit> {
    let parameters = parameters(before);
    let known = keys(at(before, way)?.get(parameters));
    let key = match random.below(3) {
        0 if !known.is_empty() => random.of(&known).clone(),
        1 => Arc::from("fresh"),
        _ => Arc::from("other one"),
    };
    if key.contains(['/', '~']) || at(before, way)?.get("tool").is_none() {
        let field = "/description".into();
        return Some(Edit::SetField { step: None, field, value: value(random, 0) });
    }
    let field = format!("/{parameters}/{key}").into();
    Some(Edit::SetField { step: Some(step), field, value: value(random, 2) })
}

fn clear_field(before: &Value, (step, way): (Arc<str>, &Way), random: &mut Random) -> Option<Edit> {
    let fields = keys(at(before, way));
    let fields: Vec<Arc<str>> = fields.into_iter().filter(|key| &**key != "id").collect();
    let key = random.of(&fields).clone();
    let inner = keys(at(before, way)?.get(&key));
    let field = match inner.first() {
        Some(_) if random.one_in(2) => format!("/{key}/{}", random.of(&inner)),
        _ => format!("/{key}"),
    };
    let is_pointer = field.matches('/').count() <= 2 && !field.contains('~');
    is_pointer.then(|| Edit::ClearField { step: Some(step), field: field.into() })
}

fn keys(value: Option<&Value>) -> Vec<Arc<str>> {
    let members = value.and_then(Value::as_object);
    members.map(|members| members.keys().cloned().collect()).unwrap_or_default()
}

fn container(random: &mut Random) -> Container {
    let condition = Value::from("input.ready == true");
    match random.below(4) {
        0 => Container::Loop {
            over: Value::from("{{ input.items }}"),
            item: random.one_in(2).then(|| "thing".into()),
            max_concurrency: None,
        },
        1 => Container::Parallel { wait_for: None },
        2 => Container::Choose { when: condition },
        _ => Container::Repeat { until: condition, max_iterations: 3, delay: None },
    }
}

/// The fields of a step of another kind.
fn kind(parameters: &'static str, random: &mut Random) -> Value {
    match random.below(4) {
        0 => Value::object([("wait", Value::from("5s"))]),
        1 => Value::object([("set", Value::object([("fresh_name", value(random, 1))]))]),
        2 => {
            let rounds = Value::from(2_u64);
            let fields =
                Value::object([("until", Value::from("true")), ("max_iterations", rounds)]);
            Value::object([("repeat", fields)])
        }
        _ => Value::object([("tool", Value::from("docs:read")), (parameters, value(random, 1))]),
    }
}
