//! Compares Segue's journals with the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::run::{Entry, Fact, NodeId};
use segue_core::value::Value;

use super::{anonymous, log};
use crate::support::{Json, World};

/// Sorts of tools that may do their work only once, whatever happens.
const ONCE: &[&str] = &["once", "flaky", "bad", "undo-once"];

/// One line of the log: `START`, `END` or `FAIL`, the key of the call, the tool and the work's name.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    what: String,
    key: String,
    sort: String,
    name: String,
}

/// What the tools did, in order.
#[derive(Debug)]
pub(crate) struct Marks(Vec<Mark>);

impl Marks {
    pub(crate) fn read(world: &World) -> Marks {
        let text = log(&world.folder());
        // The last line of a process that was killed while it wrote may be cut.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mark = |line: &str| {
            let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            let [what, key, sort, name] = words.try_into().unwrap_or_else(|w| panic!("{w:?}"));
            Mark { what, key, sort, name }
        };
        Marks(whole.lines().map(mark).collect())
    }

    /// The later lines.
    pub(crate) fn since(mut self, before: &Marks) -> Marks {
        assert_eq!(self.0[..before.0.len()], before.0);
        Marks(self.0.split_off(before.0.len()))
    }

    pub(crate) fn count(&self, what: &str, name: &str) -> usize {
        self.0.iter().filter(|mark| mark.what == what && mark.name == name).count()
    }

    /// Every call belongs to a known run.
    pub(crate) fn belong_to(&self, runs: &BTreeSet<Arc<str>>) {
        let known = |mark: &&Mark| runs.iter().any(|run| mark.key.starts_with(&**run));
        let lost: Vec<&Mark> = self.0.iter().filter(|mark| !known(mark)).collect();
        assert!(lost.is_empty(), "lost: work of a run that is not there: {lost:?}");
    }
}

fn name_of(args: &Value) -> Option<String> {
    Some(args.get("name")?.as_str()?.to_owned())
}

/// The same name stands for every round of a poll; all others are of one piece of work.
fn is_one_work(name: &str) -> bool {
    !name.ends_with(":poll")
}

/// The names of work that a journal records as done, rollbacks included.
fn completed(journal: &[Entry]) -> BTreeSet<String> {
    let (mut doing, mut undoing) = (BTreeMap::new(), BTreeMap::new());
    let mut completed = BTreeSet::new();
    for entry in journal {
        match &entry.fact {
            Fact::Called { node, args, .. } => {
                doing.insert(*node, name_of(args));
            }
            Fact::RollbackCalled { node, args } => {
                undoing.insert(*node, name_of(args));
            }
            Fact::Succeeded { node, .. } => completed.extend(doing.get(node).cloned().flatten()),
            Fact::RolledBack { node } => completed.extend(undoing.get(node).cloned().flatten()),
            _ => {}
        }
    }
    completed.retain(|name| is_one_work(name));
    completed
}

/// What was durable at some time, and must stay as it was.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    pub(crate) runs: BTreeSet<Arc<str>>,
    /// Work that was completed, and how often it had been begun by then.
    begun: BTreeMap<String, usize>,
    /// How long each journal was.
    lengths: BTreeMap<Arc<str>, usize>,
}

impl Promise {
    /// J1, E1, S7: what is in the journal stays there, and what is completed is not called again.
    pub(crate) fn hold(&mut self, journal: &[Entry], marks: &Marks) {
        let Some(Entry { fact: Fact::Started(started), .. }) = journal.first() else {
            panic!("lost: a run without a beginning");
        };
        let length = self.lengths.insert(started.run_id.clone(), journal.len()).unwrap_or(0);
        assert!(journal.len() >= length, "lost: entries of {}", started.run_id);
        for name in completed(journal) {
            let begun = marks.count("START", &name);
            let before = *self.begun.entry(name.clone()).or_insert(begun);
            assert_eq!(begun, before, "repeated: {name} was complete, and was called again");
            assert!(marks.count("END", &name) > 0, "lost: {name} was never done");
        }
    }
}

/// How many doubts a probe was asked about.
pub(crate) fn probes(journal: &[Entry]) -> u64 {
    journal.iter().filter(|entry| matches!(entry.fact, Fact::Probed { .. })).count() as u64
}

/// Compares a finished run with the work done for it.
pub(crate) fn run(journal: &[Entry], marks: &Marks, view: &Json) {
    let ends = journal.iter().filter(|entry| matches!(entry.fact, Fact::Finished { .. })).count();
    assert_eq!(ends, 1, "J6: {view:#}");
    let mut called: BTreeMap<String, usize> = BTreeMap::new();
    let mut refuted: BTreeMap<String, usize> = BTreeMap::new();
    let mut names: BTreeMap<NodeId, String> = BTreeMap::new();
    for entry in journal {
        match &entry.fact {
            Fact::Called { node, args, .. } | Fact::RollbackCalled { node, args } => {
                let name = name_of(args).expect("every tool here is given a name");
                *called.entry(name.clone()).or_default() += 1;
                names.insert(*node, name);
            }
            Fact::Probed { args, .. } => {
                *called.entry(format!("?{}", name_of(args).unwrap())).or_default() += 1;
            }
            Fact::Resolved { node, done: false, .. } => {
                *refuted.entry(names[node].clone()).or_default() += 1;
            }
            _ => {}
        }
    }
    let mut keys: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let run_id = view["run_id"].as_str().unwrap();
    for mark in marks.0.iter().filter(|mark| mark.key.starts_with(run_id)) {
        let name = &*mark.name;
        if is_one_work(name) {
            let key = *keys.entry((&mark.sort, name)).or_insert(&mark.key);
            assert_eq!(key, mark.key, "E7: one work, two keys");
        }
        let begun = marks.count("START", name);
        let announced = called.get(name).copied().unwrap_or(0);
        assert!(begun <= announced, "E2: {name} was begun {begun} times, announced {announced}");
        if ONCE.contains(&&*mark.sort) {
            let of_sort = |what: &str| {
                let same = |m: &&Mark| m.what == what && m.name == name && m.sort == mark.sort;
                marks.0.iter().filter(same).count()
            };
            let allowed = 1 + of_sort("FAIL") + refuted.get(name).copied().unwrap_or(0);
            assert!(of_sort("START") <= allowed, "repeated: {name} in {view:#}");
            assert!(of_sort("END") <= 1, "repeated: {name} was done twice in {view:#}");
        }
    }
}

/// A run that is over ended as it should, with the result that it should have.
pub(crate) fn result(journal: &[Entry], view: &Json, whole: &Json, expected: &[&str]) {
    let status = view["status"].as_str().unwrap();
    if status == "success" {
        assert_eq!(anonymous(view), *whole);
    }
    // A person answered that a call failed; without a fallback the run failed, too.
    let said = |entry: &Entry| matches!(entry.fact, Fact::Resolved { done: false, .. });
    let excused = journal.iter().any(said) && matches!(status, "failed" | "rolled_back");
    assert!(expected.contains(&status) || excused, "{view:#}");
}
