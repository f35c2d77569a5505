//! The reference model: computes the outcome of a composition from its text and the world's
//! answers, by plain recursion over bodies and steps.
//!
//! It shares only the composition and the expression evaluator with the machine. The journal tells
//! it *when* things happened, since chance decides that; it computes *what* must have happened: the
//! outcome and value of every step, every call with its arguments, all rollbacks in order, and the
//! status of the run.

mod back;
mod kinds;
mod scope;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::composition::{FailureAction, Step, StepKind, Strategy, WaitFor};
use segue_core::diagnostic::Code;
use segue_core::expr::{EvalError, Expr, Template};
use segue_core::limits::Limits;
use segue_core::run::{Answer, CallId, Fact, Failure, NodeId, TimerId};
use segue_core::value::{Map, Value};
use segue_core::view::RunStatus;

use crate::story::{Story, Word};
use crate::trace::{Trace, settles};
use scope::Sight;

/// How a step must have ended on the way forward.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Done(Value),
    Tolerated(Value, Failure),
    Failed(Failure),
    Skipped { by_failure: bool },
    Cancelled { in_doubt: bool },
}

/// The outcome of a step's rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    RolledBack,
    Left,
}

/// The outcome of a step.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) given: Map,
    /// The arguments of its last call.
    pub(crate) args: Value,
    /// Attempts, those of fallbacks included.
    pub(crate) attempts: u32,
    /// The tool that was tried last: 0, or the n-th fallback.
    pub(crate) candidate: u16,
    pub(crate) was_in_doubt: bool,
    /// Whether an attempt did its work although it failed.
    pub(crate) has_acted: bool,
    /// How many of the attempts were runs of a composition.
    pub(crate) entered: usize,
}

impl Ended {
    fn may_have_acted(&self) -> bool {
        self.was_in_doubt || self.has_acted
    }

    fn remember(&mut self, failure: &Failure) {
        self.was_in_doubt |= failure.in_doubt;
        self.has_acted |= failure.acted;
    }
}

/// A call that must have been made.
#[derive(Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// What must have happened.
pub(crate) struct Verdict {
    pub(crate) status: RunStatus,
    pub(crate) output: Value,
    pub(crate) ends: BTreeMap<NodeId, Ended>,
    pub(crate) calls: Vec<Made>,
    /// The rollbacks in order, with their outcomes, for each composition that rolls back.
    pub(crate) back: Vec<(u32, Vec<(NodeId, Back)>)>,
    /// Steps that stay because an irreversible one depends on them.
    pub(crate) kept: BTreeSet<NodeId>,
    /// Events that the model cannot explain.
    pub(crate) wrong: Vec<String>,
}

/// An activation of a composition: its input and its strategy.
struct Activation {
    input: Value,
    strategy: Strategy,
}

pub(crate) struct Model<'a> {
    story: &'a Story,
    trace: &'a Trace,
    limits: Limits,
    activations: BTreeMap<usize, Activation>,
    ends: BTreeMap<NodeId, Ended>,
    /// The attempt of each step with bodies that is being worked out, or was last.
    attempts: BTreeMap<NodeId, usize>,
    answers: BTreeMap<CallId, (usize, &'a Answer)>,
    /// Calls that were made on the way forward.
    forward: BTreeSet<CallId>,
    /// Questions to probes.
    probes: BTreeSet<CallId>,
    /// Progress of the current step: the place of its last turn in the journal.
    now: u64,
    calls: Vec<Made>,
    back: Vec<(u32, Vec<(NodeId, Back)>)>,
    kept: BTreeSet<NodeId>,
    wrong: Vec<String>,
}

/// Works out what must have happened in a story.
pub(crate) fn interpret(story: &Story, trace: &Trace) -> Verdict {
    let mut answers = BTreeMap::new();
    for (at, turn) in story.turns.iter().enumerate() {
        if let Word::Answered(call, answer) = &turn.word {
            answers.entry(*call).or_insert((at, answer));
        }
    }
    let (mut forward, mut probes) = (BTreeSet::new(), BTreeSet::new());
    for (_, call) in story.calls() {
        match call.key.rsplit('/').next() {
            Some("undo") => {}
            Some("probe") => drop(probes.insert(call.id)),
            _ => drop(forward.insert(call.id)),
        }
    }
    let mut model = Model {
        story,
        trace,
        limits: Limits::default(),
        activations: BTreeMap::new(),
        ends: BTreeMap::new(),
        attempts: BTreeMap::new(),
        answers,
        forward,
        probes,
        now: 0,
        back: Vec::new(),
        kept: BTreeSet::new(),
        calls: Vec::new(),
        wrong: Vec::new(),
    };
    let options = &story.started.options;
    let strategy = options.strategy.unwrap_or(story.plan.composition.error_handling.strategy);
    let input = story.started.input.clone();
    model.activations.insert(0, Activation { input, strategy });
    model.frame(0);
    model.ending()
}

impl Model<'_> {
    /// Records an event that the model cannot explain.
    fn puzzled(&mut self, node: NodeId, what: &str) {
        self.wrong.push(format!("{}: {what}", self.trace.path(node)));
    }

    /// Works out every step of a frame, each after those that it needs.
    fn frame(&mut self, frame: u32) {
        let body = self.trace.frame(frame).body as usize;
        let plan = self.trace.frame(frame).plan.clone();
        let mut open: Vec<usize> = (0..plan.bodies[body].steps.len()).collect();
        while !open.is_empty() {
            let before = open.len();
            open.retain(|position| {
                let node = NodeId { frame, position: u32::try_from(*position).unwrap() };
                let needs = &self.trace.step(node).needs;
                let is_next =
                    needs.iter().all(|need| self.ends.contains_key(&sibling(node, need.position)));
                if is_next {
                    let ended = self.step(node);
                    self.ends.insert(node, ended);
                }
                !is_next
            });
            assert!(open.len() < before, "the steps of a body wait for each other");
        }
        self.check_stop(frame);
    }

    fn strategy(&self, frame: u32) -> Strategy {
        self.activations[&self.trace.frame(frame).activation].strategy
    }

    /// A failed step stops its body, unless the strategy continues.
    fn stops(&self, node: NodeId, failure: &Failure) -> bool {
        let action = self.trace.step(node).on_failure.action;
        self.strategy(node.frame) != Strategy::PartialSuccess
            || action == FailureAction::Stop
            || failure.code == Code::Denied
    }

    /// `fail_fast` and the like: a failure for good stops the body at once.
    fn check_stop(&mut self, frame: u32) {
        for node in self.nodes_of(frame) {
            let End::Failed(failure) = &self.ends[&node].end else { continue };
            let settled = self.settled_seq(node).unwrap_or(u64::MAX);
            let stopped = self.trace.frame(frame).stopped;
            if self.stops(node, failure) && stopped.is_none_or(|stopped| stopped > settled + 1) {
                self.puzzled(node, "failed for good, and its body went on");
            }
        }
    }

    fn nodes_of(&self, frame: u32) -> Vec<NodeId> {
        let open = self.trace.frame(frame);
        let steps = u32::try_from(open.plan.bodies[open.body as usize].steps.len()).unwrap();
        (0..steps).map(|position| NodeId { frame, position }).collect()
    }

    /// The bodies of a step: of the attempt at hand, if it is not a call.
    fn children(&self, node: NodeId) -> &[u32] {
        match self.attempts.get(&node) {
            Some(attempt) => self.trace.attempt(node, *attempt),
            None => self.trace.children(node),
        }
    }

    /// Where the journal settles a step.
    fn settled_seq(&self, node: NodeId) -> Option<u64> {
        let journal = &self.story.journal;
        let facts = self.trace.facts(node).iter();
        facts.map(|at| &journal[*at]).find(|entry| settles(&entry.fact)).map(|entry| entry.seq)
    }

    /// Where a step first occurs in the journal.
    fn began(&self, node: NodeId) -> Option<u64> {
        let facts = self.trace.facts(node).iter();
        facts
            .map(|at| &self.story.journal[*at])
            .find(|entry| !matches!(entry.fact, Fact::Skipped { .. }))
            .map(|entry| entry.seq)
    }

    /// The first entry that a turn could have written.
    fn turn_seq(&self, turn: usize) -> u64 {
        self.story.turns[turn].entries.start as u64
    }

    fn stopped_before_turn(&self, frame: u32, turn: usize) -> bool {
        self.trace.stopped_before(frame, self.turn_seq(turn))
    }

    /// The first turn from an entry on that was told something.
    fn told_after(&self, seq: u64, told: impl Fn(&Word) -> bool) -> Option<usize> {
        let first = self.story.turn_of(seq) + 1;
        (first..self.story.turns.len()).find(|turn| {
            let turn = &self.story.turns[*turn];
            told(&turn.word) && !turn.after_the_end
        })
    }

    /// The first turn after the one at hand that was told something.
    fn told_from(&self, seq: u64, told: impl Fn(&Word) -> bool) -> Option<usize> {
        let first = self.story.turns.partition_point(|turn| turn.entries.start as u64 <= seq);
        let turns = &self.story.turns;
        (first..turns.len()).find(|at| told(&turns[*at].word) && !turns[*at].after_the_end)
    }

    /// When the time of an attempt at a step was over.
    fn time_up(&self, node: NodeId, attempt: u32) -> Option<usize> {
        let timer = TimerId::Attempt(CallId { node, attempt });
        let turns = &self.story.turns;
        turns.iter().position(|turn| matches!(turn.word, Word::Fired(at) if at == timer))
    }

    fn step(&mut self, node: NodeId) -> Ended {
        let mut ended = Ended {
            end: End::Skipped { by_failure: true },
            given: Map::new(),
            args: Value::Null,
            attempts: 0,
            candidate: 0,
            was_in_doubt: false,
            has_acted: false,
            entered: 0,
        };
        if let Some(by_failure) = self.skipped_by_need(node) {
            ended.end = End::Skipped { by_failure };
            return ended;
        }
        let decided = self.began(node).or_else(|| self.settled_seq(node));
        let Some(decided) = decided else {
            self.puzzled(node, "neither began nor was skipped");
            return ended;
        };
        if self.began(node).is_none() && self.trace.stopped_before(node.frame, decided) {
            return ended;
        }
        let step = self.trace.step(node).clone();
        let runs = match &step.when {
            None => Ok(true),
            Some(when) => self.truth(when, &Sight::new(self, node.frame)),
        };
        ended.end = match runs {
            Err(failure) => self.failed(node, &ended, failure),
            Ok(false) => End::Skipped { by_failure: false },
            Ok(true) => match &step.kind {
                StepKind::Tool(_) => self.tool(node, &step, &mut ended),
                _ => self.with_retries(node, &step, &mut ended),
            },
        };
        ended
    }

    /// A need that failed, or that was skipped though its value is read.
    fn skipped_by_need(&self, node: NodeId) -> Option<bool> {
        self.trace.step(node).needs.iter().find_map(|need| {
            match self.ends[&sibling(node, need.position)].end {
                End::Failed(_) | End::Cancelled { .. } => Some(true),
                End::Skipped { by_failure } if by_failure || need.reads_value => Some(by_failure),
                _ => None,
            }
        })
    }

    fn truth(&self, expr: &Expr, sight: &Sight<'_, '_>) -> Result<bool, Failure> {
        match expr.eval(sight, &self.limits).map_err(expression)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(Failure::permanent(Code::Expression, "neither true nor false")),
        }
    }

    fn eval(&self, node: NodeId, template: &Template) -> Result<Value, Failure> {
        template.eval(&Sight::new(self, node.frame), &self.limits).map_err(expression)
    }

    /// A failed step: its author may provide a default. `continue` covers neither a denial nor a
    /// doubt.
    fn failed(&self, node: NodeId, ended: &Ended, mut failure: Failure) -> End {
        let step = self.trace.step(node);
        failure.in_doubt |= ended.was_in_doubt;
        failure.acted |= ended.has_acted;
        let is_final = failure.in_doubt || failure.code == Code::Denied;
        if step.on_failure.action != FailureAction::Continue || is_final {
            return End::Failed(failure);
        }
        let Some(default) = &step.on_failure.default else {
            return End::Tolerated(Value::Null, failure);
        };
        let error = error_value(&failure);
        let mut sight = Sight::new(self, node.frame);
        (sight.error, sight.args) = (Some(&error), Some(&ended.args));
        match default.eval(&sight, &self.limits) {
            Ok(value) => End::Tolerated(value, failure),
            Err(second) => End::Failed(expression(second)),
        }
    }

    /// A step that has a value, and the names that it gives.
    fn succeeded(&self, node: NodeId, ended: &mut Ended, value: Value) -> End {
        match self.names(node, ended, &value) {
            Ok(given) => {
                ended.given.extend(given);
                End::Done(value)
            }
            Err(failure) => self.failed(node, ended, failure),
        }
    }

    /// `map_outputs`, then `transform`.
    fn names(&self, node: NodeId, ended: &Ended, value: &Value) -> Result<Map, Failure> {
        let step: &Arc<Step> = self.trace.step(node);
        let mut given = Map::new();
        for (field, name) in &step.on_success.map_outputs {
            let at = |from: &Value| {
                field.split('.').try_fold(from.clone(), |at, part| at.get(part).cloned())
            };
            let found = match value {
                whole if &**field == "." => Some(whole.clone()),
                Value::Object(_) => at(value).or_else(|| at(value.get("data")?)),
                whole if &**field == "value" => Some(whole.clone()),
                _ => None,
            };
            given.extend(found.map(|found| (name.clone(), found)));
        }
        for (name, template) in &step.on_success.transform {
            let mut sight = Sight::new(self, node.frame);
            (sight.output, sight.args) = (Some(value), Some(&ended.args));
            sight.given = Some(&given);
            let made = template.eval(&sight, &self.limits).map_err(expression)?;
            given.insert(name.clone(), made);
        }
        Ok(given)
    }

    /// What a body comes to: its last step's value, unless it was stopped or a step failed.
    fn outcome(&self, frame: u32) -> Result<Value, Failure> {
        if self.trace.frame(frame).stopped.is_some() {
            return Err(self.stop_failure(frame));
        }
        let nodes = self.nodes_of(frame);
        for node in &nodes {
            if let End::Failed(failure) = &self.ends[node].end {
                return Err(failure.clone());
            }
        }
        let last = nodes.last().and_then(|node| self.ends[node].end.value());
        Ok(last.cloned().unwrap_or_default())
    }

    /// Why a frame was stopped.
    fn stop_failure(&self, frame: u32) -> Failure {
        let stopped = self.trace.frame(frame).stopped.unwrap_or(u64::MAX);
        let own = self.nodes_of(frame).into_iter().find_map(|node| match &self.ends[&node].end {
            End::Failed(failure) if self.settled_seq(node) == Some(stopped.wrapping_sub(1)) => {
                self.stops(node, failure).then(|| failure.clone())
            }
            _ => None,
        });
        if let Some(own) = own {
            return own;
        }
        let turn = self.story.turn_of(stopped);
        let Some(parent) = self.trace.frame(frame).parent else {
            return match self.story.turns[turn].word {
                Word::Fired(TimerId::Run) => Failure::permanent(Code::Timeout, "the run"),
                Word::Decided(NodeId::RUN, false, ..) => {
                    Failure::permanent(Code::Denied, "the run")
                }
                Word::ResumedToEnd if self.was_overdue(turn) => {
                    Failure::permanent(Code::Timeout, "the run")
                }
                _ => Failure::permanent(Code::Cancelled, "the run"),
            };
        };
        if matches!(self.story.turns[turn].word, Word::Fired(TimerId::Attempt(call)) if call.node == parent)
        {
            return Failure::transient(Code::Timeout, "the step");
        }
        // In a loop, the item that failed stops the others.
        if matches!(self.trace.step(parent).kind, StepKind::Loop(_)) {
            let before =
                |at: Option<u64>| at.is_some_and(|a| a < stopped && self.story.turn_of(a) == turn);
            let failed = self.trace.children(parent).iter().find_map(|other| {
                let it = self.trace.frame(*other);
                let known = *other != frame && (before(it.stopped) || before(it.closed));
                if known { self.outcome(*other).err() } else { None }
            });
            if let Some(failed) = failed
                && !self.trace.stopped_before(parent.frame, stopped)
            {
                return failed;
            }
        }
        Failure::permanent(Code::Cancelled, "from outside")
    }

    /// Whether the run's own time was over, by the clock on the wall.
    fn was_overdue(&self, turn: usize) -> bool {
        let timeout = self.story.plan.composition.timeout_ms;
        let (began, now) = (self.story.turns[0].wall, self.story.turns[turn].wall);
        timeout.is_some_and(|timeout| began.min(now) + timeout <= now)
    }

    /// Whether a failed or aborted call below may have done its work, as known at an entry.
    fn has_doubt(&self, frame: u32, before: u64) -> bool {
        self.nodes_of(frame).into_iter().any(|node| {
            let known = self.settled_seq(node).is_some_and(|seq| seq < before);
            // A rolled back step, or one whose rollback failed, is no longer in question.
            let handled = self.back.iter().any(|(_, steps)| steps.iter().any(|(n, _)| *n == node));
            let own =
                known && !handled && self.ends.get(&node).is_some_and(|ended| ended.end.in_doubt());
            own || self.trace.children(node).iter().any(|inner| self.has_doubt(*inner, before))
        })
    }

    /// Whether a failure was tolerated below; what lost a race does not count, and of several
    /// attempts at a composition the last one counts.
    fn has_tolerated(&self, frame: u32) -> bool {
        self.nodes_of(frame).into_iter().any(|node| {
            let ended = &self.ends[&node].end;
            let children = self.children(node);
            let below = |inner: &&u32| self.has_tolerated(**inner);
            let inside = match (&self.trace.step(node).kind, ended) {
                (
                    StepKind::Parallel { branches, wait_for: WaitFor::Any | WaitFor::FirstSuccess },
                    End::Done(value),
                ) => {
                    let mut pairs = branches.iter().zip(children);
                    let won = |id: &str| value.get("winner").and_then(Value::as_str) == Some(id);
                    pairs.any(|(branch, inner)| won(&branch.id) && self.has_tolerated(*inner))
                }
                (StepKind::Loop(_), End::Done(_)) => {
                    children.iter().any(|item| self.outcome(*item).is_err() || below(&item))
                }
                (StepKind::Tool(_), End::Done(_)) => {
                    let ended = &self.ends[&node];
                    let by_composition =
                        self.trace.planned(node).nested.contains_key(&ended.candidate);
                    by_composition && children.last().is_some_and(|inner| below(&inner))
                }
                _ => children.iter().any(|inner| below(&inner)),
            };
            inside || matches!(ended, End::Tolerated(..))
        })
    }
}

impl End {
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            End::Done(value) | End::Tolerated(value, _) => Some(value),
            _ => None,
        }
    }

    /// Whether it has, or may have, side effects.
    pub(crate) fn left_a_trace(&self) -> bool {
        match self {
            End::Done(_) => true,
            End::Failed(failure) | End::Tolerated(_, failure) => failure.in_doubt || failure.acted,
            End::Cancelled { in_doubt } => *in_doubt,
            End::Skipped { .. } => false,
        }
    }

    pub(crate) fn in_doubt(&self) -> bool {
        match self {
            End::Failed(failure) | End::Tolerated(_, failure) => failure.in_doubt,
            End::Cancelled { in_doubt } => *in_doubt,
            End::Done(_) | End::Skipped { .. } => false,
        }
    }
}

fn sibling(node: NodeId, position: usize) -> NodeId {
    NodeId { frame: node.frame, position: u32::try_from(position).unwrap() }
}

fn expression(error: EvalError) -> Failure {
    Failure::permanent(error.code, error.message)
}

fn error_value(failure: &Failure) -> Value {
    Value::object([
        ("code", Value::from(failure.code.as_str())),
        ("message", Value::String(failure.message.clone())),
    ])
}
