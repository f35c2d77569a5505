//! What must never be written down, by the author's word: `sensitive` points at it in what a step is
//! given and in what it returns.
//!
//! The run itself needs the values, so they are in its state while it is under way. They are left out
//! of every entry that is written and of every view, wherever else they have got to meanwhile. A run
//! that is read from its journal does not have them any more, and says so where one is needed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::journal::{Entry, Fact, Failure, NodeId};
use super::state::State;
use crate::diagnostic::Code;
use crate::value::{Map, Value};
use crate::view::RunView;

/// What stands in the place of such a value.
pub(super) const SENSITIVE: &str = "«sensitive»";

/// The same in a recorded run, which is told again with it: no run is told that it was forgotten.
pub const REDACTED: &str = "redacted";

/// What to do about a value that was not kept.
pub(super) const FORGOTTEN_HINT: &str = "run it again from the step that gives the value";

/// Shorter texts stand everywhere; they are left out where they are pointed at, and only there.
const TEXT_BYTES_MIN: usize = 4;

/// Texts that must not be written down.
#[derive(Debug, Default)]
pub(super) struct Sensitive {
    texts: BTreeSet<Arc<str>>,
}

impl Sensitive {
    /// Remembers what is pointed at.
    pub(super) fn learn(&mut self, pointers: &[Arc<str>], value: &Value) {
        for pointer in pointers {
            if let Some(found) = at(value, pointer) {
                self.learn_all(found);
            }
        }
    }

    fn learn_all(&mut self, value: &Value) {
        match value {
            Value::String(text) if text.len() >= TEXT_BYTES_MIN && &**text != SENSITIVE => {
                self.texts.insert(text.clone());
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_all(item)),
            Value::Object(members) => members.values().for_each(|member| self.learn_all(member)),
            _ => {}
        }
    }

    /// A text without what must not be written down; nothing when there is nothing of it.
    fn text(&self, text: &str) -> Option<String> {
        let found = self.texts.iter().filter(|secret| text.contains(&***secret));
        let mut clean: Option<String> = None;
        for secret in found {
            clean = Some(clean.as_deref().unwrap_or(text).replace(&**secret, SENSITIVE));
        }
        clean
    }

    /// The same for every text of a value.
    pub(super) fn value(&self, value: &Value) -> Value {
        if self.texts.is_empty() {
            return value.clone();
        }
        value.map_texts(&|text| self.text(text)).unwrap_or_else(|| value.clone())
    }

    fn map(&self, map: &Map) -> Map {
        map.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
    }
}

impl State {
    /// A value without the texts that must not be written down, to tell the run again with.
    pub(super) fn discreet(&self, value: &Value) -> Value {
        let clean = self.sensitive.value(value);
        let mark = |text: &str| text.contains(SENSITIVE).then(|| text.replace(SENSITIVE, REDACTED));
        clean.map_texts(&mark).unwrap_or(clean)
    }

    /// What may be written of a value that a step was given or returned.
    pub(super) fn written(&self, node: NodeId, value: &Value) -> Value {
        let mut clean = value.clone();
        for pointer in &self.step(node).sensitive {
            blot(&mut clean, pointer);
        }
        self.sensitive.value(&clean)
    }

    /// A view without what must not be written down. What the author chose as the output stays.
    pub(super) fn redact_view(&self, view: &mut RunView) {
        if !self.has_sensitive {
            return;
        }
        let mut results = (*view.results).clone();
        for node in self.nodes_of(0) {
            let (step, record) = (self.step(node), self.record(node));
            let key = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            if let (Some(shown), Some(output)) = (results.get_mut(key), record.node.output()) {
                *shown = self.written(node, output);
            }
        }
        view.results = Arc::new(self.sensitive.map(&results));
        view.state = self.sensitive.map(&view.state);
        if self.plan_of(0).composition.output.is_none() {
            view.output = Value::Object(view.results.clone());
        }
        for error in &mut view.errors {
            if let Some(message) = self.sensitive.text(&error.message) {
                error.message = message;
            }
        }
    }

    /// The entries as they may be written.
    pub(super) fn redacted<'a>(&self, entries: &'a [Entry]) -> Cow<'a, [Entry]> {
        if !self.has_sensitive {
            return Cow::Borrowed(entries);
        }
        let clean = |entry: &Entry| {
            let fact = self.redacted_fact(&entry.fact);
            Entry { seq: entry.seq, at_ms: entry.at_ms, fact }
        };
        Cow::Owned(entries.iter().map(clean).collect())
    }

    fn redacted_fact(&self, fact: &Fact) -> Fact {
        let failure = |failure: &Arc<Failure>| match self.sensitive.text(&failure.message) {
            None => failure.clone(),
            Some(message) => Arc::new(Failure { message: message.into(), ..(**failure).clone() }),
        };
        let mut fact = fact.clone();
        let node = fact.node();
        let own = |value: &mut Value| {
            if let Some(node) = node {
                *value = self.written(node, value);
            }
        };
        match &mut fact {
            Fact::Called { args, .. }
            | Fact::Asked { args, .. }
            | Fact::UndoCalled { args, .. }
            | Fact::Entered { input: args, .. }
            | Fact::UndoEntered { input: args, .. }
            | Fact::Expanding { document: args, .. } => own(args),
            Fact::Followed { handle, .. } => *handle = self.sensitive.value(handle),
            Fact::Probed { args, failure: why, .. } => {
                own(args);
                *why = failure(why);
            }
            Fact::Succeeded { output, given, .. } | Fact::Reused { output, given, .. } => {
                own(output);
                *given = given.as_ref().map(|given| Arc::new(self.sensitive.map(given)));
            }
            Fact::Tolerated { output, failure: why, .. } => {
                own(output);
                *why = failure(why);
            }
            Fact::Looped { items, .. } => {
                *items = Arc::new(items.iter().map(|item| self.sensitive.value(item)).collect());
            }
            Fact::Opened { item: Some(item), .. } => item.value = self.sensitive.value(&item.value),
            Fact::Rested { failure: why, .. }
            | Fact::GaveUp { failure: why, .. }
            | Fact::Doubted { failure: why, .. }
            | Fact::Failed { failure: why, .. }
            | Fact::TimedOut { failure: why, .. }
            | Fact::Stopped { failure: why, .. }
            | Fact::RollbackStarted { failure: why, .. }
            | Fact::UndoRested { failure: why, .. }
            | Fact::UndoFailed { failure: why, .. } => *why = failure(why),
            Fact::Finished { output, failure: why, .. } => {
                *output = self.sensitive.value(output);
                *why = why.as_ref().map(failure);
            }
            _ => {}
        }
        fact
    }

    /// Whether a part of a value was not kept.
    pub(super) fn is_forgotten(&self, value: &Value) -> bool {
        self.has_sensitive && is_marked(value)
    }

    /// Why a value cannot be used: a part of it was not kept.
    pub(super) fn forgotten(&self, value: &Value) -> Option<Failure> {
        self.is_forgotten(value).then(|| {
            let message = "a sensitive value is needed that was not kept when the run stopped";
            let mut failure = Failure::lasting(Code::PolicyViolation, message);
            failure.hint = Some(FORGOTTEN_HINT.into());
            failure
        })
    }
}

/// Whether the mark stands anywhere in a value.
fn is_marked(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(SENSITIVE),
        Value::Array(items) => items.iter().any(is_marked),
        Value::Object(members) => {
            members.iter().any(|(name, member)| name.contains(SENSITIVE) || is_marked(member))
        }
        _ => false,
    }
}

/// What a JSON Pointer points at.
fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    parts(pointer).try_fold(value, |at, part| match at {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(&part),
    })
}

/// Puts the mark where a pointer points at.
fn blot(value: &mut Value, pointer: &str) {
    let Some(target) = parts(pointer).try_fold(value, |at, part| match at {
        Value::Array(items) => Arc::make_mut(items).get_mut(part.parse::<usize>().ok()?),
        Value::Object(members) => Arc::make_mut(members).get_mut(&*part),
        _ => None,
    }) else {
        return;
    };
    *target = Value::from(SENSITIVE);
}

fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}
