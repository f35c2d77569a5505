//! What a run says against what the ledger says.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::Mark;
use crate::support::Json;

/// A run that is over, and what the harness knows of it.
pub(super) struct Over<'a> {
    pub(super) view: &'a Json,
    /// Steps without a rollback.
    pub(super) without_undo: &'a BTreeSet<String>,
    /// When Segue was dead, if it was killed. Only a call that it had made before may be in doubt: every
    /// tool here answers within its time. Not by the ledger: a tool may write its first line after the
    /// death of Segue.
    pub(super) dead_at: Option<&'a str>,
}

/// What happened to one piece of work.
#[derive(Debug, Default)]
struct Work<'a> {
    status: Option<&'a str>,
    step: &'a str,
    /// When its step called it first.
    called_at: Option<&'a str>,
    begun: Option<usize>,
    effects: Vec<usize>,
    undos: Vec<usize>,
}

impl Work<'_> {
    /// Whether its answer may be lost: it was called before Segue was killed, and begun or about to.
    fn was_cut(&self, over: &Over) -> bool {
        let is_before = |dead_at| self.called_at.is_none_or(|called_at| called_at <= dead_at);
        over.dead_at.is_some_and(|dead_at| self.begun.is_none() || is_before(dead_at))
    }

    fn stands(&self) -> bool {
        self.effects.last() > self.undos.last()
    }
}

/// Everything in which the run's word and the ledger differ.
pub(super) fn differences(over: &Over, marks: &[Mark]) -> Vec<String> {
    let run = over.view["run_id"].as_str().unwrap();
    let works = works(over.view, run, marks);
    let mut found = Vec::new();
    for (name, work) in &works {
        found.extend(difference(over, name, work).map(|what| format!("{name}: {what}: {work:?}")));
        if over.view["status"] == "rolled_back" && work.stands() {
            found.push(format!("{name}: the run is `rolled_back` and the effect stands: {work:?}"));
        }
    }
    found
}

/// Each piece of work of a run, by its name.
fn works<'a>(view: &'a Json, run: &str, marks: &'a [Mark]) -> BTreeMap<&'a str, Work<'a>> {
    let mut works: BTreeMap<&str, Work> = BTreeMap::new();
    for step in view["steps"].as_array().unwrap() {
        let Some(name) = step["input"]["name"].as_str() else { continue };
        let work = works.entry(name).or_default();
        work.status = step["status"].as_str();
        work.step = step["id"].as_str().unwrap();
        work.called_at = step["started_at"].as_str();
    }
    for (at, mark) in marks.iter().enumerate().filter(|(_, mark)| mark.name.starts_with(run)) {
        let work = works.entry(&mark.name).or_default();
        match &*mark.what {
            "START" => work.begun = work.begun.or(Some(at)),
            "EFFECT" => work.effects.push(at),
            "UNDO" => work.undos.push(at),
            _ => {}
        }
    }
    works
}

/// In what a step's word and the ledger differ.
fn difference(over: &Over, name: &str, work: &Work) -> Option<&'static str> {
    if work.effects.len() > 1 {
        return Some("done twice");
    }
    if work.undos.first().is_some_and(|undo| work.effects.iter().any(|effect| effect > undo)) {
        return Some("undone before it landed");
    }
    let is_done = !work.effects.is_empty();
    let is_undone = !work.undos.is_empty();
    match work.status {
        None => work.begun.map(|_| "done for no step"),
        Some("success") if !is_done => Some("`success` without an effect"),
        Some("success") if is_undone => Some("`success` and undone"),
        Some("failed") if work.stands() => Some("`failed` and the effect stands"),
        Some("cancelled" | "skipped" | "pending") if work.begun.is_some() => {
            Some("said not to have happened, and it was begun")
        }
        Some("rolled_back") if !is_undone => Some("`rolled_back` without an undo"),
        Some("rolled_back") if work.stands() => Some("`rolled_back` and the effect stands"),
        Some("rolled_back") if !is_done && !work.was_cut(over) => Some("undone without an effect"),
        Some("in_doubt") if !work.was_cut(over) => Some("in doubt, although its answer came"),
        Some("rollback_failed") if !is_excused(over, name, work) => {
            Some("not undone, although it could have been")
        }
        Some("rollback_failed") if !is_named(over.view, work.step) => Some("not undone, not named"),
        Some("running") => Some("under way in a run that is over"),
        _ => None,
    }
}

/// Whether a step may stay: it has no rollback, or its answer never came.
fn is_excused(over: &Over, name: &str, work: &Work) -> bool {
    let step = name.split_once(':').map_or(name, |(_, rest)| rest);
    let step = step.split('.').next().unwrap_or(step);
    work.was_cut(over) || over.without_undo.contains(step)
}

/// Whether the errors name a step that a person has to roll back.
fn is_named(view: &Json, step: &str) -> bool {
    let errors = view["errors"].as_array().unwrap();
    errors.iter().any(|error| error["step"] == step && error["phase"] == "rollback")
}
