//! Two versions of a composition: which steps changed, and whether callers notice.
//!
//! Steps are compared as values, so comments, order of fields and notation make no difference. A step that
//! has another id and is the same otherwise was renamed.
//!
//! Not here: differences of runs ([`crate::view`]).

mod interface;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::compile::{self, contained};
use crate::composition::{Body, Composition};
use crate::document::Node;
use crate::limits::Limits;
use crate::source::Source;
use crate::value::{Map, Value};

/// How deep differences and schemas are followed.
const DEPTH_MAX: usize = 16;

/// The difference of two versions of a composition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct VersionComparison {
    /// Steps that are not the same, in the order of the new text; removed ones last.
    pub steps: Vec<StepVersionChange>,
    /// Changes of the composition as a tool.
    pub interface: Vec<InterfaceChange>,
}

/// What happened to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepDifference {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Fields of it have other values.
    Changed,
    /// It stands in another list of steps, or at another place of its list.
    Moved,
    /// It has another id.
    Renamed,
}

/// One difference of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepVersionChange {
    /// Its id in the new text, or in the old one if it was removed.
    pub step: Arc<str>,
    /// What happened to it.
    pub change: StepDifference,
    /// JSON Pointers of the fields that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Its id in the old text, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<Arc<str>>,
}

/// A change that callers of the composition may notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InterfaceChange {
    /// Whether a caller that worked before may fail now.
    pub breaking: bool,
    /// The change, for people.
    pub message: String,
}

/// Compares two versions of a composition. A version that cannot be read has no steps.
pub fn compare(
    before: &Source,
    after: &Source,
    catalog: &Catalog,
    limits: &Limits,
) -> VersionComparison {
    let before = Version::read(before, catalog, limits);
    let after = Version::read(after, catalog, limits);
    VersionComparison {
        steps: steps(&before.steps, &after.steps),
        interface: interface::interface(&before, &after),
    }
}

/// One version, as far as it could be read.
#[derive(Default)]
struct Version {
    name: Arc<str>,
    steps: Vec<StepContent>,
    input: Option<Value>,
    output: Option<Value>,
    context: Vec<Arc<str>>,
}

struct StepContent {
    id: Arc<str>,
    /// The list that contains it: the ids of the steps around it, and the number of the body.
    list: String,
    /// Its fields, without its id and the steps inside it.
    fields: StepFields,
}

/// The fields of a step. Comparing each step with each would take the square of their number.
struct StepFields(Value);

impl PartialEq for StepFields {
    fn eq(&self, other: &StepFields) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Version {
    fn read(source: &Source, catalog: &Catalog, limits: &Limits) -> Version {
        let read = || {
            let examined = compile::examine_text(source, catalog, limits);
            let is_sound = examined.is_sound();
            let tree = examined.lowered.or(examined.document)?;
            let composition = examined.composition?;
            let mut steps = Vec::new();
            content(&composition.body, "", &tree, &mut steps);
            Some(Version {
                name: composition.name.clone(),
                steps,
                input: composition.input.as_ref().map(|schema| schema.json().clone()),
                // Without errors the types are certain; guesses would look like changes.
                output: is_sound.then(|| compile::output_type(&composition).to_schema()),
                context: context(&composition),
            })
        };
        contained(read).ok().flatten().unwrap_or_default()
    }
}

fn context(composition: &Composition) -> Vec<Arc<str>> {
    composition.requires_context.clone()
}

fn content(body: &Body, list: &str, tree: &Node, into: &mut Vec<StepContent>) {
    for step in &body.steps {
        let fields = tree.find(step.span).map(Node::to_value).unwrap_or_default();
        into.push(StepContent {
            id: step.id.clone(),
            list: list.to_owned(),
            fields: StepFields(without_steps(&fields, true)),
        });
        for (number, inner) in step.kind.bodies().into_iter().enumerate() {
            content(inner, &format!("{list}{}/{number}/", step.id), tree, into);
        }
    }
}

/// A step without its id and without the steps inside it, which are compared on their own.
fn without_steps(value: &Value, is_step: bool) -> Value {
    let Some(members) = value.as_object() else { return value.clone() };
    let mut kept = Map::new();
    for (key, value) in members.iter() {
        match (&**key, value) {
            ("id", _) if is_step => {}
            ("steps" | "otherwise", Value::Array(_)) => {}
            ("parallel", Value::Array(_)) if is_step => {}
            ("loop" | "repeat", _) if is_step => {
                kept.insert(key.clone(), without_steps(value, false));
            }
            ("choose", Value::Array(cases)) if is_step => {
                let cases = cases.iter().map(|case| without_steps(case, false));
                kept.insert(key.clone(), cases.collect::<Vec<_>>().into());
            }
            _ => {
                kept.insert(key.clone(), value.clone());
            }
        }
    }
    kept.into()
}

fn steps(before: &[StepContent], after: &[StepContent]) -> Vec<StepVersionChange> {
    let old: BTreeMap<&str, &StepContent> = before.iter().map(|step| (&*step.id, step)).collect();
    let new: BTreeMap<&str, &StepContent> = after.iter().map(|step| (&*step.id, step)).collect();
    let renamed = renamed(before, after, &old, &new);
    let moved = moved(before, after, &renamed);
    let mut found = Vec::new();
    let mut note = |step: &Arc<str>, change, fields, was| {
        found.push(StepVersionChange { step: step.clone(), change, fields, was });
    };
    for step in after {
        let was = renamed.get(&step.id);
        let Some(known) = old.get(was.map_or(&*step.id, |was| &**was)) else {
            note(&step.id, StepDifference::Added, Vec::new(), None);
            continue;
        };
        if let Some(was) = was {
            note(&step.id, StepDifference::Renamed, Vec::new(), Some(was.clone()));
        }
        if moved.contains(&step.id) {
            note(&step.id, StepDifference::Moved, Vec::new(), None);
        }
        if known.fields != step.fields {
            let mut fields = Vec::new();
            differences(&known.fields.0, &step.fields.0, "", &mut fields);
            note(&step.id, StepDifference::Changed, fields, None);
        }
    }
    let was: BTreeSet<&Arc<str>> = renamed.values().collect();
    let is_gone = |step: &&StepContent| !new.contains_key(&*step.id) && !was.contains(&step.id);
    for step in before.iter().filter(is_gone) {
        note(&step.id, StepDifference::Removed, Vec::new(), None);
    }
    found
}

/// New id → old id of steps that are the same apart from it. If several are, their order decides.
fn renamed(
    before: &[StepContent],
    after: &[StepContent],
    old: &BTreeMap<&str, &StepContent>,
    new: &BTreeMap<&str, &StepContent>,
) -> BTreeMap<Arc<str>, Arc<str>> {
    // By their content as JSON: comparing each with each would take the square of their number.
    let mut gone: BTreeMap<String, VecDeque<&StepContent>> = BTreeMap::new();
    for step in before.iter().filter(|step| !new.contains_key(&*step.id)) {
        gone.entry(step.fields.0.to_json()).or_default().push_back(step);
    }
    let mut renamed = BTreeMap::new();
    for step in after.iter().filter(|step| !old.contains_key(&*step.id)) {
        let has_content = step.fields.0.as_object().is_some_and(|fields| !fields.is_empty());
        let same = || gone.get_mut(&step.fields.0.to_json())?.pop_front();
        if let Some(known) = has_content.then(same).flatten() {
            renamed.insert(step.id.clone(), known.id.clone());
        }
    }
    renamed
}

/// Steps in another list, and those of the same list that are out of the order that most keep.
fn moved(
    before: &[StepContent],
    after: &[StepContent],
    renamed: &BTreeMap<Arc<str>, Arc<str>>,
) -> BTreeSet<Arc<str>> {
    // Lists are named by ids: those of renamed steps are the old ones.
    let old_list = |list: &str| -> String {
        let part = |part: &str| renamed.get(part).map_or(part.to_owned(), ToString::to_string);
        list.split('/').map(part).collect::<Vec<_>>().join("/")
    };
    let places: BTreeMap<&Arc<str>, usize> =
        before.iter().enumerate().rev().map(|(at, step)| (&step.id, at)).collect();
    let mut lists: BTreeMap<String, Vec<(usize, Arc<str>)>> = BTreeMap::new();
    let mut moved = BTreeSet::new();
    for step in after {
        let was = renamed.get(&step.id).unwrap_or(&step.id);
        let Some(&at) = places.get(was) else { continue };
        let list = old_list(&step.list);
        if before[at].list == list {
            lists.entry(list).or_default().push((at, step.id.clone()));
        } else {
            moved.insert(step.id.clone());
        }
    }
    for list in lists.values() {
        let kept = longest_rising(&list.iter().map(|(at, _)| *at).collect::<Vec<_>>());
        let kept: BTreeSet<usize> = kept.into_iter().collect();
        let out = list.iter().enumerate().filter(|(number, _)| !kept.contains(number));
        moved.extend(out.map(|(_, (_, id))| id.clone()));
    }
    moved
}

/// The positions of a longest rising part of a list.
fn longest_rising(values: &[usize]) -> Vec<usize> {
    // `tails[n]` ends the rising part of length n + 1 with the smallest last value.
    let mut tails: Vec<usize> = Vec::new();
    let mut previous = vec![None; values.len()];
    for (at, value) in values.iter().enumerate() {
        let length = tails.partition_point(|tail| values[*tail] < *value);
        previous[at] = length.checked_sub(1).map(|shorter| tails[shorter]);
        if length == tails.len() {
            tails.push(at);
        } else {
            tails[length] = at;
        }
    }
    let mut found = Vec::new();
    let mut at = tails.last().copied();
    while let Some(here) = at {
        found.push(here);
        at = previous[here];
    }
    found.reverse();
    found
}

/// Pointers of the members that differ; of lists only the whole.
fn differences(before: &Value, after: &Value, at: &str, found: &mut Vec<String>) {
    if before == after {
        return;
    }
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        found.push(at.to_owned());
        return;
    };
    if at.matches('/').count() >= DEPTH_MAX {
        found.push(at.to_owned());
        return;
    }
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let pointer = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => differences(old, new, &pointer, found),
            _ => found.push(pointer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fmt::Write as _;

    use super::*;

    thread_local! {
        /// How often the fields of two steps were compared.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// The differences of two texts, a line each.
    fn compared(before: &str, after: &str) -> String {
        let source = |text: &str| Source::new("x.yaml", text);
        let found =
            compare(&source(before), &source(after), &Catalog::default(), &Limits::default());
        let mut lines = String::new();
        for step in found.steps {
            let fields = [vec![String::new()], step.fields].concat().join(" ");
            let was = step.was.map(|was| format!(" was {was}")).unwrap_or_default();
            let _ = writeln!(lines, "{:?} {}{was}{}", step.change, step.step, fields);
        }
        for change in found.interface {
            let word = if change.breaking { "breaks" } else { "keeps" };
            let _ = writeln!(lines, "{word}: {}", change.message);
        }
        lines
    }

    const BEFORE: &str = "
name: c
input:
  type: object
  required: [a, b]
  properties:
    a: { type: string }
    b: { type: number, minimum: 0 }
    c: { type: string, enum: [x, y] }
    d: {}
steps:
  - id: one
    wait: 1s
  - id: two
    set: { v: '{{ input.a }}', w: 2 }
  - id: three
    loop: { over: '{{ [1] }}', steps: [ { id: inner, wait: 2s } ] }
  - id: four
    wait: 4s
output: { v: '{{ v }}', n: 1 }
";

    #[test]
    fn the_same_text_has_no_differences() {
        let other =
            format!("# other comments\n{}", BEFORE.replace("{ type: string }", "{type: 'string'}"));
        assert_eq!(compared(BEFORE, &other), "");
    }

    #[test]
    fn steps_are_added_removed_changed_moved_and_renamed() {
        let after = BEFORE
            .replace("  - id: one\n    wait: 1s\n", "")
            .replace("w: 2 }", "w: 3, x: 1 }")
            .replace("{ id: inner, wait: 2s }", "{ id: core, wait: 2s }, { id: fresh, wait: 9s }")
            .replace("steps:\n  - id: two", "steps:\n  - id: four\n    wait: 4s\n  - id: two")
            .replace("  - id: four\n    wait: 4s\noutput", "output");
        insta::assert_snapshot!(compared(BEFORE, &after), @r"
        Moved four
        Changed two /set/w /set/x
        Renamed core was inner
        Added fresh
        Removed one
        ");
    }

    #[test]
    fn changes_of_the_interface_say_whether_they_break_callers() {
        let after = BEFORE
            .replace("name: c", "name: renamed")
            .replace("required: [a, b]", "required: [b, d, e]")
            .replace("minimum: 0", "minimum: 1")
            .replace("enum: [x, y]", "enum: [x, y, z]")
            .replace(
                "    d: {}",
                "    d: { type: integer }\n    e: { type: string }\n    f: { type: string }",
            )
            .replace("n: 1 }", "m: 1 }");
        insta::assert_snapshot!(compared(BEFORE, &after), @r"
        breaks: the composition is called `renamed` instead of `c`
        keeps: input `a` is no longer required
        breaks: input `b` is bounded more tightly
        keeps: input `c` takes more values
        breaks: input `d` is required now
        breaks: input `d` takes `integer`, and took anything
        breaks: input `e` is new and required
        keeps: input `f` is new
        breaks: output `n` was removed
        keeps: output `m` is new
        ");
        insta::assert_snapshot!(compared(&after, BEFORE), @r"
        breaks: the composition is called `c` instead of `renamed`
        breaks: input `a` is required now
        keeps: input `b` is bounded less tightly
        breaks: input `c` takes fewer values
        keeps: input `d` is no longer required
        keeps: input `d` takes anything, and took `integer`
        breaks: input `e` was removed
        breaks: input `f` was removed
        breaks: output `m` was removed
        keeps: output `n` is new
        ");
    }

    /// Steps that are all renamed, moved or changed: each is compared with few others.
    #[test]
    fn the_work_grows_with_the_number_of_steps_and_not_with_its_square() {
        const STEPS: usize = 500;
        let text = |prefix: &str, wait: usize| {
            let step = |n: usize| format!("  - {{ id: {prefix}{n}, wait: {}s }}\n", n % 7 + wait);
            ["name: many\nsteps:\n".to_owned()].into_iter().chain((0..STEPS).map(step)).collect()
        };
        let (before, renamed, changed): (String, String, String) =
            (text("a", 1), text("b", 1), text("a", 9));
        for (after, change) in [(&renamed, "Renamed"), (&changed, "Changed")] {
            COMPARED.set(0);
            assert_eq!(compared(&before, after).matches(change).count(), STEPS);
            assert!(COMPARED.get() <= 2 * STEPS, "{}", COMPARED.get());
        }
    }

    #[test]
    fn a_text_that_cannot_be_read_has_no_steps() {
        assert!(compared(BEFORE, "name: [\n").contains("Removed one"));
    }
}
