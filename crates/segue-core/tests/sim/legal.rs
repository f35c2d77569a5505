//! J7: a fact that does not follow from those before it is refused. The table below says which fact
//! may follow in which state of a step; every pair is tried on journals of random runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::run::{Entry, Fact, Failure, NodeId, Run};
use segue_core::value::{Shared, Value};
use segue_core::view::RunStatus;

use crate::author::{self, Taste};
use crate::case;
use crate::dice::Dice;
use crate::story::{Story, play_with_crashes};
use crate::trace::Trace;
use crate::world::World;

/// States of a step that is under way.
const UNDER_WAY: &str = "asking granted calling waking giving_up probing doubtful sleeping \
                         expanding paused open";

/// States of a step with side effects; `+` marks a failure or an end with some.
const UNDOABLE: &str = "done failed+ tolerated+ cancelled+ undoing undo_resting undo_failed";

/// A fact, the states in which it is legal, and the state that follows; `=` is the same.
const TABLE: &[(&str, &str, &str)] = &[
    ("asked", "pending giving_up", "asking"),
    ("granted", "asking", "granted"),
    ("called", "pending granted giving_up waking", "calling"),
    ("woke", "resting", "waking"),
    ("rested", "calling open probing doubtful expanding paused", "resting"),
    ("gave_up", "calling open probing doubtful", "giving_up"),
    ("lost", "calling", "waking"),
    ("followed", "calling undoing", "="),
    ("probed", "calling waking probing", "probing"),
    ("doubted", "calling waking probing doubtful", "doubtful"),
    ("resolved", "probing doubtful", "="),
    ("expanding", "pending waking", "expanding"),
    ("expanded", "expanding", "open"),
    ("paused", "open", "paused"),
    ("opened", "pending open paused waking", "open"),
    ("timed_out", "open", "="),
    ("failure_decided", "open", "="),
    ("slept", "pending", "sleeping"),
    ("looped", "pending waking", "open"),
    ("succeeded", "pending asking calling waking probing doubtful sleeping open", "done"),
    ("reused", "pending", "done"),
    ("pinned", "pending", "done"),
    ("left_out", "pending", "skipped"),
    ("tolerated", "pending UNDER_WAY", "tolerated"),
    ("failed", "pending UNDER_WAY", "failed"),
    ("skipped", "pending", "skipped"),
    ("cancelled", "resting UNDER_WAY", "cancelled"),
    ("undo_called", "UNDOABLE", "undoing"),
    ("undo_failed", "UNDOABLE", "undo_failed"),
    ("undo_rested", "undoing", "undo_resting"),
    ("undone", "undoing", "undone"),
];

/// Every state.
const STATES: &[&str] = &[
    "pending",
    "asking",
    "granted",
    "calling",
    "resting",
    "waking",
    "giving_up",
    "probing",
    "doubtful",
    "sleeping",
    "expanding",
    "paused",
    "open",
    "done",
    "tolerated",
    "tolerated+",
    "failed",
    "failed+",
    "skipped",
    "cancelled",
    "cancelled+",
    "undoing",
    "undo_resting",
    "undone",
    "undo_failed",
];

/// Random runs that are tried, and places in each.
const SEEDS: u64 = 320;
const PLACES: usize = 4;

/// How often the state right after each kind of fact is tried at least, if random runs have it.
const VISITS: usize = 6;

fn is_legal(state: &str, fact: &str) -> bool {
    let (_, from, _) = TABLE.iter().find(|(name, _, _)| *name == fact).unwrap();
    from.split(' ').any(|from| match from {
        "UNDER_WAY" => UNDER_WAY.split_whitespace().any(|one| one == state),
        "UNDOABLE" => UNDOABLE.split_whitespace().any(|one| one == state),
        from => from == state,
    })
}

/// The name of a fact in the table; nothing when it does not move a step.
fn name(fact: &Fact) -> Option<&'static str> {
    Some(match fact {
        Fact::Asked { .. } => "asked",
        Fact::Granted { .. } => "granted",
        Fact::Called { .. } => "called",
        Fact::Woke { .. } => "woke",
        Fact::BackedOff { .. } => "rested",
        Fact::GaveUp { .. } => "gave_up",
        Fact::Lost { .. } => "lost",
        Fact::HandleReceived { .. } => "followed",
        Fact::Probed { .. } => "probed",
        Fact::Doubted { .. } => "doubted",
        Fact::Resolved { .. } => "resolved",
        Fact::Expanding { .. } => "expanding",
        Fact::Expanded { .. } => "expanded",
        Fact::Paused { .. } => "paused",
        Fact::Opened { .. } => "opened",
        Fact::TimedOut { .. } => "timed_out",
        Fact::FailureDecided { .. } => "failure_decided",
        Fact::Slept { .. } => "slept",
        Fact::Looped { .. } => "looped",
        Fact::Succeeded { .. } => "succeeded",
        Fact::Reused { .. } => "reused",
        Fact::Pinned { .. } => "pinned",
        Fact::LeftOut { .. } => "left_out",
        Fact::Tolerated { .. } => "tolerated",
        Fact::Failed { .. } => "failed",
        Fact::Skipped { .. } => "skipped",
        Fact::Cancelled { .. } => "cancelled",
        Fact::RollbackCalled { .. } => "undo_called",
        Fact::RollbackFailed { .. } => "undo_failed",
        Fact::RollbackBackedOff { .. } => "undo_rested",
        Fact::RolledBack { .. } => "undone",
        _ => return None,
    })
}

/// How the steps of a run stand after some entries, by the table alone.
#[derive(Default)]
struct Standing {
    states: BTreeMap<NodeId, String>,
    /// The remaining rollback of each composition, the next step last, and the current one.
    back: Vec<(Vec<NodeId>, Option<NodeId>)>,
}

impl Standing {
    fn after(journal: &[Entry]) -> Standing {
        let mut standing = Standing::default();
        for entry in journal {
            standing.add(&entry.fact);
        }
        standing
    }

    fn add(&mut self, fact: &Fact) {
        if let Fact::RollbackStarted { steps, .. } | Fact::AttemptRollbackStarted { steps, .. } =
            fact
        {
            self.back.push((steps.iter().rev().copied().collect(), None));
        }
        let (Some(node), Some(name)) = (fact.node(), name(fact)) else {
            // A composition that is entered is open, whatever the step did before.
            if let Fact::Entered { node, .. } = fact {
                self.states.insert(*node, "open".to_owned());
            }
            return;
        };
        let (_, _, to) = TABLE.iter().find(|(known, _, _)| *known == name).unwrap();
        let left = match fact {
            Fact::Failed { failure, .. } | Fact::Tolerated { failure, .. } => {
                failure.in_doubt || failure.acted
            }
            Fact::Cancelled { in_doubt, .. } => *in_doubt,
            _ => false,
        };
        if *to != "=" {
            self.states.insert(node, format!("{to}{}", if left { "+" } else { "" }));
        }
        if name.starts_with("undo") {
            let is_over = matches!(name, "undone" | "undo_failed");
            if let Some((left, at)) = self.back_of(node) {
                left.retain(|other| *other != node);
                *at = (!is_over).then_some(node);
            }
        }
    }

    /// The composition that is rolling a step back now, if any.
    fn back_of(&mut self, node: NodeId) -> Option<&mut (Vec<NodeId>, Option<NodeId>)> {
        self.back.iter_mut().find(|(left, at)| left.last() == Some(&node) || *at == Some(node))
    }

    fn state(&self, node: NodeId) -> &str {
        self.states.get(&node).map_or("pending", String::as_str)
    }

    /// Whether a fact may follow.
    fn allows(&mut self, node: NodeId, fact: &str) -> bool {
        is_legal(self.state(node), fact)
            && (!fact.starts_with("undo") || self.back_of(node).is_some())
    }
}

/// One fact of every kind about a step.
fn facts(node: NodeId, story: &Story, trace: &Trace) -> Vec<Fact> {
    let failure = Arc::new(Failure::transient(Code::ToolError, "made up"));
    let args = Value::empty_object();
    let (candidate, until_ms) = (0, 0);
    let by: Arc<str> = "nobody".into();
    let mut facts = vec![
        Fact::Asked { node, candidate, args: args.clone() },
        Fact::Granted { node, by: by.clone() },
        Fact::Called { node, candidate, args: args.clone() },
        Fact::Woke { node },
        Fact::BackedOff { node, failure: failure.clone(), until_ms },
        Fact::GaveUp { node, failure: failure.clone() },
        Fact::Lost { node },
        Fact::HandleReceived { node, handle: Value::from("made up") },
        Fact::Probed { node, failure: failure.clone(), args: args.clone() },
        Fact::Doubted { node, failure: failure.clone() },
        Fact::Resolved { node, done: true, by },
        Fact::Expanding { node, document: args.clone() },
        Fact::Expanded { node, plan: story.plan.clone(), input: args.clone() },
        Fact::Paused { node, until_ms },
        Fact::TimedOut { node, failure: failure.clone() },
        Fact::FailureDecided { node, failure: failure.clone() },
        Fact::Slept { node, until_ms },
        Fact::Looped { node, items: Shared::default() },
        Fact::Succeeded { node, output: Value::Null, given: None },
        Fact::Reused { node, output: Value::Null, given: None },
        Fact::Pinned { node, output: Value::Null, given: None },
        Fact::LeftOut { node },
        Fact::Tolerated { node, failure: failure.clone(), output: Value::Null },
        Fact::Failed { node, failure: failure.clone() },
        Fact::Skipped { node, reason: "made up".into(), by_failure: false },
        Fact::Cancelled { node, in_doubt: false },
        Fact::RollbackCalled { node, args },
        Fact::RollbackFailed { node, failure: failure.clone() },
        Fact::RollbackBackedOff { node, failure, until_ms },
        Fact::RolledBack { node },
    ];
    let body = trace.planned(node).bodies.first().copied();
    facts.extend(body.map(|body| Fact::Opened { node, body, item: None }));
    facts
}

fn is_read(story: &Story, journal: &[Entry]) -> bool {
    Run::replay(story.plan.clone(), Arc::new(Limits::default()), journal).is_ok()
}

/// A journal up to a place, and one entry more.
fn and_then(journal: &[Entry], fact: Fact) -> Vec<Entry> {
    let seq = journal.len() as u64;
    let mut longer = journal.to_vec();
    longer.push(Entry { seq, at_ms: 0, fact });
    longer
}

fn try_at(story: &Story, cut: usize, tried: &mut BTreeSet<(String, &'static str)>) {
    let journal = &story.journal[..cut];
    let trace = Trace::new(&story.plan, journal);
    let mut standing = Standing::after(journal);
    let is_over = journal.iter().any(|entry| matches!(entry.fact, Fact::Finished { .. }));
    for node in trace.nodes() {
        for fact in facts(node, story, &trace) {
            let word = name(&fact).unwrap();
            let expected = !is_over && standing.allows(node, word);
            let accepted = is_read(story, &and_then(journal, fact));
            let state = standing.state(node);
            let run = &story.started.run_id;
            assert_eq!(
                accepted, expected,
                "J7: {run}, entry {cut}: {word} of a step that is {state}"
            );
            if !is_over {
                tried.insert((state.to_owned(), word));
            }
        }
    }
}

/// Entries that no run writes, wherever they stand.
fn try_strange(story: &Story, cut: usize) {
    let journal = &story.journal[..cut];
    let far = NodeId { frame: 9_999, position: 0 };
    let aside = NodeId { frame: 0, position: 9_999 };
    let strange = [
        Fact::Started(Box::new(story.started.clone())),
        Fact::Woke { node: far },
        Fact::Skipped { node: aside, reason: "".into(), by_failure: false },
        Fact::AnsweredLate { node: aside, attempt: 1 },
        Fact::ResumeSent { node: aside },
        Fact::Closed { frame: 9_999, failed: false, is_final: false },
    ];
    for fact in strange {
        let text = format!("{fact:?}");
        assert!(!is_read(story, &and_then(journal, fact)), "J7: entry {cut} may not be {text}");
    }
    if cut > 2 {
        let mut twice = journal.to_vec();
        twice.push(journal[cut - 1].clone());
        assert!(!is_read(story, &twice), "J7: entry {cut} stands there twice");
        let mut gap = journal.to_vec();
        gap.remove(cut / 2);
        assert!(!is_read(story, &gap), "J7: entry {} is missing", cut / 2);
        let mut swapped = journal.to_vec();
        swapped.swap(cut - 1, cut - 2);
        assert!(!is_read(story, &swapped), "J7: entries {} and {cut} are swapped", cut - 1);
    }
    let is_over = journal.iter().any(|entry| matches!(entry.fact, Fact::Finished { .. }));
    let (status, output, failure) = (RunStatus::Success, Value::Null, None);
    let again = Fact::Finished { status, output, failure };
    assert!(!is_over || !is_read(story, &and_then(journal, again)), "J7: it ends twice");
}

#[test]
fn only_what_follows_is_accepted() {
    let mut tried = BTreeSet::new();
    let mut visits = BTreeMap::new();
    for seed in 0..SEEDS {
        let Ok(plan) = case::planned(&author::write(seed, Taste::Wild)) else { continue };
        let mut dice = Dice::for_thing(seed, "places");
        let crashes = BTreeSet::from([dice.small(12)]);
        let story = play_with_crashes(&plan, &World::new(seed), crashes);
        let mut places: BTreeSet<usize> =
            (0..PLACES).map(|_| 1 + dice.small(story.journal.len())).collect();
        // What random places seldom meet: right after a fact that was seldom tried.
        for (index, entry) in story.journal.iter().enumerate() {
            let seen = name(&entry.fact).map(|name| visits.entry(name).or_insert(0));
            if let Some(seen) = seen.filter(|seen| **seen < VISITS) {
                *seen += 1;
                places.insert(index + 1);
            }
        }
        for cut in places {
            try_at(&story, cut, &mut tried);
            try_strange(&story, cut);
        }
    }
    let pairs = STATES
        .iter()
        .flat_map(|state| TABLE.iter().map(move |(fact, _, _)| ((*state).to_owned(), *fact)));
    let missing: Vec<_> = pairs.filter(|pair| !tried.contains(pair)).collect();
    let all = STATES.len() * TABLE.len();
    println!("J7: {} of {all} pairs of a state and a fact are tried", all - missing.len());
    // Only a step with a body can be said to open one.
    let missing: Vec<_> = missing.iter().filter(|(_, fact)| *fact != "opened").collect();
    assert!(missing.is_empty(), "never tried: {missing:?}");
}
