//! Runs of a part: they call exactly what their steps need, whatever fails and whenever the engine
//! stops. What a part consists of is worked out here from the composition alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_core::composition::{Flow, StepKind, WaitFor};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{Fact, NodeId, PartTarget, Purpose, Run, StepSelection};
use segue_core::value::Value;
use segue_core::view::{RunStatus, StepOrigin};

use crate::author::{self, Taste};
use crate::dice::Dice;
use crate::story::{Story, play, play_part};
use crate::trace::Trace;
use crate::world::World;
use crate::{case, for_seeds, number};

/// A part of a composition, and what has to come of it.
struct Part {
    target: usize,
    is_only: bool,
    pinned: Vec<(Arc<str>, Value)>,
    /// The positions of the steps that it performs.
    performed: BTreeSet<usize>,
}

/// The value of each of the composition's own steps that succeeded.
fn outputs(story: &Story) -> BTreeMap<usize, Value> {
    let mut outputs = BTreeMap::new();
    for entry in &story.journal {
        if let Fact::Succeeded { node: NodeId { frame: 0, position }, output, .. } = &entry.fact {
            outputs.insert(*position as usize, output.clone());
        }
    }
    outputs
}

impl Part {
    fn choose(plan: &Plan, whole: &Story, dice: &mut Dice) -> Part {
        let steps: Vec<_> = plan.steps_of(0).map(|planned| &planned.step).collect();
        let target = usize::try_from(dice.below(steps.len() as u64)).unwrap();
        let outputs = outputs(whole);
        let mut pins = BTreeSet::new();
        for (at, step) in steps.iter().enumerate().filter(|(at, _)| *at != target) {
            let may_be_pinned =
                outputs.contains_key(&at) && !matches!(step.kind, StepKind::Approve { .. });
            if may_be_pinned && dice.one_in(3) {
                pins.insert(at);
            }
        }
        let is_only = dice.one_in(3);
        let mut performed = BTreeSet::from([target]);
        let mut work = if is_only { Vec::new() } else { vec![target] };
        while let Some(at) = work.pop() {
            for need in &steps[at].needs {
                if !pins.contains(&need.position) && performed.insert(need.position) {
                    work.push(need.position);
                }
            }
        }
        let pinned = pins.iter().map(|at| (steps[*at].id.clone(), outputs[at].clone())).collect();
        Part { target, is_only, pinned, performed }
    }

    fn select(&self, plan: &Arc<Plan>, whole: &Story) -> Option<StepSelection> {
        let limits = Arc::new(Limits::default());
        let earlier = Run::replay(plan.clone(), limits.clone(), &whole.journal).unwrap();
        let step = &*plan.own_step(u32::try_from(self.target).unwrap()).step.id;
        let target = if self.is_only {
            PartTarget::Only { step, earlier: &earlier }
        } else {
            PartTarget::Until(step)
        };
        StepSelection::new(plan, target, &self.pinned, &limits).ok()
    }
}

/// Where the step stands, among the composition's own, that a step is or is inside of.
fn own_position(trace: &Trace, node: NodeId) -> usize {
    let mut at = node;
    while let Some(parent) = trace.frame(at.frame).parent {
        at = parent;
    }
    at.position as usize
}

/// The calls of steps for their own work: key and attempt.
fn work(story: &Story, performed: &BTreeSet<usize>) -> BTreeSet<(Arc<str>, u32)> {
    let trace = Trace::new(&story.plan, &story.journal);
    let calls = story.calls().map(|(_, call)| call);
    let calls = calls.filter(|call| call.purpose == Purpose::Work);
    let calls = calls.filter(|call| performed.contains(&own_position(&trace, call.id.node)));
    calls.map(|call| (call.key.clone(), call.attempt)).collect()
}

/// Whether the calls of a run depend on which branch is the first.
fn has_race(plan: &Plan) -> bool {
    plan.steps.iter().any(|planned| {
        let kind = &planned.step.kind;
        matches!(kind, StepKind::Parallel { wait_for, .. } if *wait_for != WaitFor::All)
            || planned.nested.values().any(|nested| has_race(nested))
    })
}

/// Every call, of whatever purpose, belongs to a step that the run performs; the view says of every
/// other step why it has none.
fn check_calls(seed: u64, part: &Part, story: &Story) {
    let trace = Trace::new(&story.plan, &story.journal);
    for (_, call) in story.calls() {
        // The trace has no parents for compositions that roll a step back.
        let own = own_position(&trace, call.id.node);
        if trace.frame(call.id.node.frame).parent.is_some() || call.id.node.frame == 0 {
            assert!(part.performed.contains(&own), "seed {seed}: {call:?}\n{}", story.text());
        }
    }
    for entry in &story.journal {
        if let Fact::RollbackCalled { node, .. } | Fact::RollbackEntered { node, .. } = &entry.fact
            && node.frame == 0
        {
            let position = node.position as usize;
            assert!(part.performed.contains(&position), "seed {seed}: {}", story.text());
        }
    }
    let own = story.view.steps.iter().filter(|step| !step.id.contains('/'));
    for (at, step) in own.enumerate() {
        let performs = part.performed.contains(&at);
        assert_eq!(step.origin.is_none(), performs, "seed {seed}: {step:?}");
        if step.origin == Some(StepOrigin::LeftOut) {
            assert_eq!((step.attempts, &step.output), (0, &Value::Null), "seed {seed}");
        }
    }
    assert!(story.view.part.is_some(), "seed {seed}: a part does not say that it is one");
}

/// The wild worlds and, in them, crashes: no call for a step that the part does not perform.
#[test]
fn a_part_calls_no_more_than_it_needs_in_every_world() {
    let (played, pinned, rolled_back) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    for_seeds_that_hold(number("SEGUE_SIM_PARTS", 1_200), |seed| {
        let Ok(plan) = case::planned(&author::write(seed, Taste::Wild)) else { return };
        if plan.bodies[0].flow == Flow::Program {
            return;
        }
        let world = World::new(seed);
        let whole = play(&plan, &world);
        let mut dice = Dice::for_thing(seed, "part");
        let part = Part::choose(&plan, &whole, &mut dice);
        let Some(selection) = part.select(&plan, &whole) else { return };
        let mut crashes = BTreeSet::new();
        if dice.one_in(2) {
            crashes.extend((0..3).map(|_| usize::try_from(dice.below(12)).unwrap()));
        }
        let story = play_part(&plan, &world, selection, crashes);
        // A given value that the step's own conditions refuse fails the step.
        let refused = |entry: &segue_core::run::Entry| {
            matches!(&entry.fact, Fact::Failed { failure, .. } | Fact::Tolerated { failure, .. }
                if failure.message.starts_with("the given output"))
        };
        if story.journal.iter().any(refused) {
            return;
        }
        check_calls(seed, &part, &story);
        let back = |entry: &segue_core::run::Entry| matches!(entry.fact, Fact::RolledBack { .. });
        played.fetch_add(1, Ordering::Relaxed);
        pinned.fetch_add(u64::from(!part.pinned.is_empty()), Ordering::Relaxed);
        rolled_back.fetch_add(u64::from(story.journal.iter().any(back)), Ordering::Relaxed);
    });
    let counts = [played, pinned, rolled_back].map(AtomicU64::into_inner);
    println!("{counts:?}: parts, with pinned steps, rolled back");
    assert!(counts[0] >= 300 && counts[1] >= 60 && counts[2] >= 20, "{counts:?}");
}

/// In worlds where everything succeeds: exactly the calls that the whole run makes for these steps.
#[test]
fn a_part_makes_the_calls_of_its_steps() {
    let (played, called) = (AtomicU64::new(0), AtomicU64::new(0));
    for_seeds_that_hold(number("SEGUE_SIM_PARTS", 1_200), |seed| {
        let Ok(plan) = case::planned(&author::write(seed, Taste::Sound)) else { return };
        let world = World::mild(seed, 0);
        let whole = play(&plan, &world);
        let is_fixed = plan.bodies[0].flow == Flow::Graph && !has_race(&plan);
        if !is_fixed || whole.view.status != RunStatus::Success {
            return;
        }
        let part = Part::choose(&plan, &whole, &mut Dice::for_thing(seed, "part"));
        let Some(selection) = part.select(&plan, &whole) else { return };
        let story = play_part(&plan, &world, selection, BTreeSet::new());
        assert_eq!(story.view.status, RunStatus::Success, "seed {seed}: {}", story.text());
        check_calls(seed, &part, &story);
        let (own, all) = (work(&story, &part.performed), work(&whole, &part.performed));
        assert_eq!(own, all, "seed {seed}: {}", story.text());
        played.fetch_add(1, Ordering::Relaxed);
        called.fetch_add(own.len() as u64, Ordering::Relaxed);
    });
    let (played, called) = (played.into_inner(), called.into_inner());
    println!("{played} parts made {called} calls");
    assert!(played >= 300 && called >= 600, "{played} parts, {called} calls");
}

/// Does something for seeds, and fails with the first one that does not hold.
fn for_seeds_that_hold(seeds: u64, work: impl Fn(u64) + Sync) {
    let broken = std::sync::Mutex::new(None);
    for_seeds(0..seeds, |seed| {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(seed)));
        if let Err(panic) = held {
            let text = panic.downcast_ref::<String>().cloned();
            broken.lock().unwrap().get_or_insert(text.unwrap_or_else(|| format!("seed {seed}")));
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}
