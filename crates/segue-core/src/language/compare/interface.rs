//! Changes of a composition as a tool: its name, what callers must pass, its input and its output.
//!
//! A change breaks callers if one that worked before may fail now: an input that takes less, an output that
//! may be more. Keywords of schemas that only describe make no difference.

use std::collections::BTreeSet;

use super::{DEPTH_MAX, InterfaceChange, Version};
use crate::value::Value;

pub(super) fn interface(before: &Version, after: &Version) -> Vec<InterfaceChange> {
    let mut changes = Changes::default();
    if before.name != after.name {
        let message =
            format!("the composition is called `{}` instead of `{}`", after.name, before.name);
        changes.note(true, message);
    }
    for key in after.context.iter().filter(|key| !before.context.contains(key)) {
        changes.note(true, format!("callers must pass `{key}` in their context"));
    }
    for key in before.context.iter().filter(|key| !after.context.contains(key)) {
        changes.note(false, format!("callers need not pass `{key}` in their context any more"));
    }
    let any = Value::object([("type", Value::from("object"))]);
    let (old, new) = (before.input.as_ref().unwrap_or(&any), after.input.as_ref().unwrap_or(&any));
    changes.object(Side::Input, "", old, new, 0);
    if let (Some(old), Some(new)) = (&before.output, &after.output) {
        changes.value(Side::Output, "", old, new, 0);
    }
    changes.0
}

/// Which side of the tool a schema describes: callers give the input and read the output.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Input,
    Output,
}

impl Side {
    fn name(self, path: &str) -> String {
        let noun = if self == Side::Input { "input" } else { "output" };
        if path.is_empty() { format!("the {noun}") } else { format!("{noun} `{path}`") }
    }
}

#[derive(Default)]
struct Changes(Vec<InterfaceChange>);

impl Changes {
    fn note(&mut self, breaking: bool, message: String) {
        self.0.push(InterfaceChange { breaking, message });
    }

    /// Compares the schemas of one value.
    fn value(&mut self, side: Side, path: &str, old: &Value, new: &Value, depth: usize) {
        if old == new || depth > DEPTH_MAX {
            return;
        }
        let what = side.name(path);
        let (narrower, wider) = (narrows(old, new), narrows(new, old));
        let (was, is) = (types_of(old), types_of(new));
        match (narrower, wider) {
            (true, _) if side == Side::Input => {
                self.note(
                    true,
                    format!("{what} takes {}, and took {}", in_words(&is), in_words(&was)),
                );
            }
            (_, true) if side == Side::Output && !is.is_empty() => {
                self.note(
                    true,
                    format!("{what} may be {}, and was {}", in_words(&is), in_words(&was)),
                );
            }
            (_, true) if side == Side::Output => {
                self.note(false, format!("{what} is no longer known before the run"));
            }
            (true, _) => {
                self.note(
                    false,
                    format!("{what} is {}, and was {}", in_words(&is), in_words(&was)),
                );
            }
            (_, true) => {
                self.note(
                    false,
                    format!("{what} takes {}, and took {}", in_words(&is), in_words(&was)),
                );
            }
            _ => {}
        }
        self.enums(side, &what, old, new);
        self.bounds(side, &what, old, new);
        if old.get("properties").is_some() || new.get("properties").is_some() {
            self.object(side, path, old, new, depth);
        }
        if let (Some(old), Some(new)) = (old.get("items"), new.get("items")) {
            self.value(side, &format!("{path}[]"), old, new, depth + 1);
        }
        if side == Side::Input && old.get("default") != new.get("default") {
            self.note(false, format!("{what} has another default"));
        }
    }

    /// Compares the members of two objects.
    fn object(&mut self, side: Side, path: &str, old: &Value, new: &Value, depth: usize) {
        let none = Value::empty_object();
        let members = |schema: &Value| {
            schema
                .get("properties")
                .unwrap_or(&none)
                .as_object()
                .map(|map| (**map).clone())
                .unwrap_or_default()
        };
        let (before, after) = (members(old), members(new));
        let inner =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, schema) in &before {
            let what = side.name(&inner(name));
            let (was, is) = (is_required(old, name), is_required(new, name));
            let Some(now) = after.get(name) else {
                self.note(true, format!("{what} was removed"));
                continue;
            };
            match side {
                Side::Input if !was && is => self.note(true, format!("{what} is required now")),
                Side::Input if was && !is => {
                    self.note(false, format!("{what} is no longer required"));
                }
                Side::Output if was && !is => self.note(true, format!("{what} may be absent now")),
                Side::Output if !was && is => {
                    self.note(false, format!("{what} is always there now"));
                }
                _ => {}
            }
            self.value(side, &inner(name), schema, now, depth + 1);
        }
        for name in after.keys().filter(|name| !before.contains_key(*name)) {
            let what = side.name(&inner(name));
            let must_be_given = side == Side::Input && is_required(new, name);
            let required = if must_be_given { " and required" } else { "" };
            self.note(must_be_given, format!("{what} is new{required}"));
        }
        let is_closed =
            |schema: &Value| schema.get("additionalProperties") == Some(&Value::Bool(false));
        if side == Side::Input && !is_closed(old) && is_closed(new) {
            self.note(true, format!("{} takes no other members now", side.name(path)));
        }
    }

    fn enums(&mut self, side: Side, what: &str, old: &Value, new: &Value) {
        let choices = |schema: &Value| {
            schema.get("enum").and_then(Value::as_array).map(|all| (**all).clone())
        };
        let (was, is) = (choices(old), choices(new));
        // As JSON in a set: comparing each with each would take the square of their number.
        let texts = |choices: &[Value]| choices.iter().map(Value::to_json).collect::<BTreeSet<_>>();
        let lost = |from: &Option<Vec<Value>>, to: &Option<Vec<Value>>| match (from, to) {
            (Some(from), Some(to)) => !texts(from).is_subset(&texts(to)),
            (None, Some(_)) => true,
            _ => false,
        };
        let (fewer, more) = (lost(&was, &is), lost(&is, &was));
        match side {
            Side::Input if fewer => self.note(true, format!("{what} takes fewer values")),
            Side::Input if more => self.note(false, format!("{what} takes more values")),
            Side::Output if more => self.note(true, format!("{what} may have more values")),
            Side::Output if fewer => self.note(false, format!("{what} has fewer values")),
            _ => {}
        }
    }

    /// Compares the keywords that bound a value.
    fn bounds(&mut self, side: Side, what: &str, old: &Value, new: &Value) {
        const LEAST: &[&str] =
            &["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
        const MOST: &[&str] =
            &["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
        const OTHER: &[&str] = &["pattern", "format", "const", "multipleOf", "uniqueItems"];
        let number = |schema: &Value, word: &str| schema.get(word).and_then(Value::as_f64);
        let is_tighter =
            |from: &Value, to: &Value, word: &str| match (number(from, word), number(to, word)) {
                (None, Some(_)) => true,
                (Some(from), Some(to)) if LEAST.contains(&word) => to > from,
                (Some(from), Some(to)) => to < from,
                _ => false,
            };
        let numeric = || LEAST.iter().chain(MOST);
        let is_new = |from: &Value, to: &Value, word: &str| {
            to.get(word).is_some_and(|bound| from.get(word) != Some(bound))
        };
        let tighter = |from: &Value, to: &Value| {
            numeric().any(|word| is_tighter(from, to, word))
                || OTHER.iter().any(|word| is_new(from, to, word))
        };
        match side {
            Side::Input if tighter(old, new) => {
                self.note(true, format!("{what} is bounded more tightly"));
            }
            Side::Input if tighter(new, old) => {
                self.note(false, format!("{what} is bounded less tightly"));
            }
            Side::Output if tighter(new, old) => {
                self.note(true, format!("{what} is bounded less tightly"));
            }
            _ => {}
        }
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    let names = schema.get("required").and_then(Value::as_array);
    let has_default = schema
        .get("properties")
        .and_then(|properties| properties.get(name)?.get("default"))
        .is_some();
    names.is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)))
        && !has_default
}

/// The types that a schema allows; empty means any.
fn types_of(schema: &Value) -> Vec<String> {
    if let Some(parts) = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)?.as_array()) {
        let parts: Vec<Vec<String>> = parts.iter().map(types_of).collect();
        if parts.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let mut types = parts.concat();
        types.sort();
        types.dedup();
        return types;
    }
    match schema.get("type") {
        Some(Value::Array(types)) => {
            types.iter().filter_map(|t| t.as_str().map(str::to_owned)).collect()
        }
        Some(one) => one.as_str().map(str::to_owned).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Whether a schema allows types that another one does not.
fn narrows(from: &Value, to: &Value) -> bool {
    let (from, to) = (types_of(from), types_of(to));
    let allows = |kind: &String| {
        to.contains(kind) || (kind == "integer" && to.iter().any(|t| t == "number"))
    };
    match (from.is_empty(), to.is_empty()) {
        (_, true) => false,
        (true, false) => true,
        _ => !from.iter().all(allows),
    }
}

fn in_words(types: &[String]) -> String {
    if types.is_empty() { "anything".to_owned() } else { format!("`{}`", types.join("` or `")) }
}
