//! The expected outcome of a step that calls a tool: attempts, then fallbacks, then `on_failure`.

use std::sync::Arc;

use segue_core::composition::{
    Probe, Step, StepKind, StepRollback, Strategy, ToolCall, Unresolved,
};
use segue_core::diagnostic::Code;
use segue_core::run::{Answer, CallId, Fact, Failure, NodeId};
use segue_core::tool::{ConfirmPolicy, DeclaredRollback, Impact, ToolSpec};
use segue_core::value::Value;

use super::scope::Sight;
use super::{Activation, End, Ended, Made, Model, error_value, expression};
use crate::story::Word;

/// Maximum calls of a probe.
const PROBES: u32 = 5;

/// The result of a probe.
enum Probed {
    Done(Value),
    NotDone,
    Unknown,
    Cancelled,
}

/// The outcome of one attempt.
enum Tried {
    Value(Value),
    /// It did its work, and its output is unknown.
    Done,
    Failure(Failure),
    /// Its outcome is unknown, and no one is asked any more.
    Unknown(Failure),
    /// It was aborted, or never made because everything around it ended.
    Cancelled {
        in_doubt: bool,
    },
}

/// What follows a failed attempt.
enum Then {
    Again(Failure),
    Doubt(Failure),
    Fallback(Failure),
    Fails(Failure),
}

impl<'a> Model<'a> {
    pub(super) fn tool(&mut self, node: NodeId, step: &Arc<Step>, ended: &mut Ended) -> End {
        let mut error: Option<Failure> = None;
        for candidate in 0.. {
            // A fallback waits for its turn, and everything may end before it comes.
            if candidate > 0 && self.ended_before(node, candidate) {
                return End::Cancelled { in_doubt: ended.may_have_acted() };
            }
            let call = candidate_call(step, candidate);
            let tool = call.tool.clone().unwrap();
            let args = match self.arguments(node, call, error.as_ref()) {
                Ok(args) => args,
                Err(failure) => return self.failed(node, ended, failure),
            };
            if (asks(&tool) || self.rollback_asks(node, step, &tool)) && !self.is_allowed() {
                ended.args = args.clone();
                match self.confirmed(node, candidate) {
                    Some(true) => {}
                    Some(false) => {
                        let denied = Failure::permanent(Code::Denied, "not confirmed");
                        return self.failed(node, ended, denied);
                    }
                    None => return End::Cancelled { in_doubt: ended.may_have_acted() },
                }
            }
            match self.candidate(node, step, candidate, args, ended) {
                Ok(end) => return end,
                Err(failure) => error = Some(failure),
            }
        }
        unreachable!("the last candidate has no fallback")
    }

    /// Consent covers an atomic run as a whole, or nothing of it started: A1 checks that.
    fn is_allowed(&self) -> bool {
        self.story.started.options.approved || self.story.plan.composition.atomic
    }

    /// Whether a call also needs confirmation for its rollback: the author, and not the tool,
    /// declares a destructive one.
    fn rollback_asks(&self, node: NodeId, step: &Step, tool: &ToolSpec) -> bool {
        let StepRollback::Call(rollback) = &step.rollback else { return false };
        let by = rollback.tool.as_ref().unwrap();
        let declared = match &tool.rollback {
            DeclaredRollback::Call { tool, parameters } => {
                **tool == *by.id.as_str() && rollback.parameters.template.to_value() == *parameters
            }
            _ => false,
        };
        let reads = tool.annotations.impact() == Impact::Reads;
        asks(by) && !declared && !reads && self.may_go_back(node.frame)
    }

    fn may_go_back(&self, frame: u32) -> bool {
        let at = self.trace.frame(frame);
        at.plan.composition.error_handling.rollback_on_failure
            || self.strategy(frame) == Strategy::Rollback
            || at.parent.is_some_and(|around| self.may_go_back(around.frame))
    }

    /// Whether a step was cancelled before a fallback of it began.
    fn ended_before(&self, node: NodeId, next: u16) -> bool {
        let facts = self.trace.facts(node).iter().map(|at| &self.story.journal[*at].fact);
        let began = facts.clone().any(|fact| {
            matches!(fact, Fact::Asked { candidate, .. } | Fact::Called { candidate, .. }
                | Fact::Entered { candidate, .. } if *candidate == next)
        });
        let settled = self.settled_seq(node).unwrap_or(u64::MAX);
        !began && self.trace.stopped_before(node.frame, settled)
    }

    fn arguments(
        &self,
        node: NodeId,
        call: &ToolCall,
        error: Option<&Failure>,
    ) -> Result<Value, Failure> {
        let error = error.map(error_value);
        let mut sight = Sight::new(self, node.frame);
        sight.error = error.as_ref();
        let template = &call.parameters.template;
        let args = match self.trace.frame(node.frame).plan.composition.unresolved {
            Unresolved::Fail => template.eval(&sight, &self.limits),
            Unresolved::Keep => {
                template.eval_keeping_unresolved(&sight, &self.limits, &mut Vec::new())
            }
        };
        let args = args.map_err(expression)?;
        let fits = call.tool.as_ref().unwrap().input.violations(&args).is_empty();
        if fits { Ok(args) } else { Err(Failure::permanent(Code::InputSchema, "arguments")) }
    }

    /// A person's answer for a candidate; `None` if everything ended before.
    fn confirmed(&mut self, node: NodeId, candidate: u16) -> Option<bool> {
        let journal = &self.story.journal;
        let mut facts = self.trace.facts(node).iter().map(|at| &journal[*at]);
        let asked = facts.find(
            |entry| matches!(&entry.fact, Fact::Asked { candidate: c, .. } if *c == candidate),
        );
        let Some(asked) = asked.map(|entry| entry.seq) else {
            self.puzzled(node, "did not ask first");
            return None;
        };
        let turn =
            self.told_after(asked, |word| matches!(word, Word::Decided(at, ..) if *at == node))?;
        if self.stopped_before_turn(node.frame, turn) {
            return None;
        }
        let Word::Decided(_, granted, _, _) = self.story.turns[turn].word else { return None };
        Some(granted)
    }

    /// All attempts of one tool: how the step ended, or the failure that a fallback follows.
    fn candidate(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        candidate: u16,
        args: Value,
        ended: &mut Ended,
    ) -> Result<End, Failure> {
        ended.args = args.clone();
        for tries in 1.. {
            let mut tried = self.attempt(node, step, candidate, &args, ended);
            loop {
                let mut failure = match tried {
                    Tried::Value(value) => return Ok(self.succeeded(node, ended, value)),
                    Tried::Cancelled { in_doubt } => return Ok(End::Cancelled { in_doubt }),
                    Tried::Done => return Ok(End::Done(Value::Null)),
                    Tried::Unknown(failure) => return Ok(self.failed(node, ended, failure)),
                    Tried::Failure(failure) => failure,
                };
                let tool = candidate_call(step, candidate).tool.clone().unwrap();
                if failure.in_doubt && tool.annotations.impact() == Impact::Reads {
                    (failure.in_doubt, failure.code) = (false, certain(failure.code));
                }
                let stopped = self.stopped_at(node.frame);
                match self.after_failure(node, step, candidate, tries, failure, ended, stopped) {
                    Then::Again(failure) => {
                        ended.remember(&failure);
                        break;
                    }
                    Then::Fallback(failure) => {
                        ended.remember(&failure);
                        return Err(failure);
                    }
                    Then::Doubt(failure) => {
                        tried = self.cleared_up(node, step, candidate, failure, ended);
                    }
                    Then::Fails(failure) => return Ok(self.failed(node, ended, failure)),
                }
            }
        }
        unreachable!("retries are bounded")
    }

    /// One attempt. A call that was lost with its engine is made again where that is harmless; that
    /// is the same attempt.
    fn attempt(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        candidate: u16,
        args: &Value,
        ended: &mut Ended,
    ) -> Tried {
        let tool = candidate_call(step, candidate).tool.clone().unwrap();
        if tool.composition.is_some() {
            return self.entered(node, step, candidate, &tool, args, ended);
        }
        let reads = tool.annotations.impact() == Impact::Reads;
        let mut lost = false;
        loop {
            let call = CallId { node, attempt: ended.attempts + 1 };
            if !self.forward.contains(&call) {
                if self.trace.frame(node.frame).stopped.is_none() {
                    self.puzzled(node, "was not called again, though nothing stopped it");
                }
                let in_doubt = ended.may_have_acted() || (lost && !reads);
                return Tried::Cancelled { in_doubt };
            }
            ended.attempts += 1;
            ended.candidate = candidate;
            let tool_id = tool.id.to_string();
            self.calls.push(Made { call, tool: tool_id, args: args.clone() });
            let Some((turn, answer)) = self.answer(call) else {
                self.puzzled(node, "a call was never answered");
                return Tried::Cancelled { in_doubt: true };
            };
            self.now = self.place_of(turn);
            let Some(answer) = answer else {
                let stopped = self.stopped_at(node.frame);
                if stopped && reads {
                    return Tried::Cancelled { in_doubt: ended.may_have_acted() };
                }
                // Nothing is called again in a body that has stopped.
                if repeatable(step, &tool) && !stopped {
                    lost = true;
                    continue;
                }
                let failure = Failure::transient(Code::InDoubt, "the engine stopped");
                return self.cleared_up(
                    node,
                    step,
                    candidate,
                    Failure { in_doubt: true, ..failure },
                    ended,
                );
            };
            ended.was_in_doubt |= lost && !reads;
            return match answer {
                Answer::Value(value) => self.judged(node, step, &tool, value.clone(), ended),
                Answer::Failure(failure) => Tried::Failure(failure.clone()),
                Answer::TimedOut => {
                    let failure = Failure::transient(Code::Timeout, "no answer");
                    Tried::Failure(Failure { in_doubt: !reads, ..failure })
                }
                // It may write, and did not answer in time.
                Answer::Aborted if !reads => {
                    let failure = Failure::transient(Code::InDoubt, "no answer");
                    Tried::Failure(Failure { in_doubt: true, ..failure })
                }
                Answer::Aborted | Answer::Unsent => {
                    Tried::Cancelled { in_doubt: ended.may_have_acted() }
                }
            };
        }
    }

    /// How a call was answered and in which turn; without an answer when its engine stopped.
    pub(super) fn answer(&self, call: CallId) -> Option<(usize, Option<&'a Answer>)> {
        let (made, call) = self.story.calls().filter(|(_, made)| made.id == call).last()?;
        if let Some((turn, answer)) = self.answers.get(&call.id) {
            // A call that could not be resumed was lost.
            let is_lost = call.resume_handle.is_some() && is_unfound(answer);
            return Some((*turn, Some(*answer).filter(|_| !is_lost)));
        }
        let turns = &self.story.turns;
        let lost = (made + 1..turns.len()).find(|at| turns[*at].word.resumes());
        lost.map(|turn| (turn, None))
    }

    fn stopped_at(&self, frame: u32) -> bool {
        self.trace.stopped_before(frame, self.now)
    }

    /// Where a turn stands in the journal. One that takes a run up to end it stops it first.
    fn place_of(&self, turn: usize) -> u64 {
        let told = &self.story.turns[turn];
        match told.word {
            Word::ResumedToEnd => told.entries.end.saturating_sub(1) as u64,
            _ => self.turn_seq(turn),
        }
    }

    /// Whether the current turn resumes the run to end it: no probe is called then.
    fn is_taken_up(&self) -> bool {
        let turn = self.story.turn_of(self.now);
        self.story.turns.get(turn).is_some_and(|told| matches!(told.word, Word::ResumedToEnd))
    }

    /// Whether a person is asked about a doubt: always in forward execution; after a stop only
    /// before a rollback, and never in a branch that lost a race.
    fn asks_a_person(&self, node: NodeId) -> bool {
        if !self.stopped_at(node.frame) {
            return true;
        }
        let is_cancelled = self.story.journal.iter().any(|entry| {
            matches!(&entry.fact, Fact::Stopped { frame, failure }
                if *frame == node.frame && failure.code == Code::Cancelled)
        });
        let lost_a_race = is_cancelled && !self.stopped_at(0);
        self.may_go_back(node.frame) && !lost_a_race
    }

    /// Whether a value is a success: by the tool's schema, then by the author's conditions.
    fn judged(
        &self,
        node: NodeId,
        step: &Arc<Step>,
        tool: &ToolSpec,
        value: Value,
        ended: &Ended,
    ) -> Tried {
        let acted = tool.annotations.impact() != Impact::Reads;
        if tool.output.as_ref().is_some_and(|schema| !schema.violations(&value).is_empty()) {
            let failure = Failure::permanent(Code::OutputSchema, "the answer");
            return Tried::Failure(Failure { acted, ..failure });
        }
        let mut sight = Sight::new(self, node.frame);
        (sight.output, sight.args) = (Some(&value), Some(&ended.args));
        let conditions = [(&step.fail_when, true), (&step.success_when, false)];
        for (condition, failing) in conditions {
            let Some(condition) = condition else { continue };
            match self.truth(condition, &sight) {
                Err(failure) => return Tried::Failure(Failure { acted, ..failure }),
                Ok(truth) if truth == failing => {
                    return Tried::Failure(Failure::transient(Code::ToolError, "by the author"));
                }
                Ok(_) => {}
            }
        }
        match self.names(node, ended, &value) {
            Ok(_) => Tried::Value(value),
            Err(failure) => Tried::Failure(Failure { acted, ..failure }),
        }
    }

    /// Retry, resolve the doubt, fall back, or fail.
    fn after_failure(
        &self,
        node: NodeId,
        step: &Arc<Step>,
        candidate: u16,
        tries: u32,
        mut failure: Failure,
        ended: &Ended,
        stopped: bool,
    ) -> Then {
        let handling = &self.trace.frame(node.frame).plan.composition.error_handling;
        let by_strategy = if self.strategy(node.frame) == Strategy::Retry { 3 } else { 0 };
        let budget = step.retry.max.or(handling.max_retries).unwrap_or(by_strategy);
        let tool = candidate_call(step, candidate).tool.as_ref().unwrap();
        let wanted = step.retry.on.is_empty() || step.retry.on.contains(&failure.code);
        // A composition whose call says how often it is tried is tried whatever failed inside.
        let begins_anew = tool.composition.is_some() && step.retry.max.is_some();
        let may_help = failure.retryable || begins_anew && failure.code == Code::RetriesExhausted;
        let mendable = may_help && wanted && (!failure.in_doubt || repeatable(step, tool));
        if mendable && tries <= budget && !stopped {
            return Then::Again(failure);
        }
        if mendable && budget > 0 && tries > budget {
            failure = Failure { code: Code::RetriesExhausted, retryable: false, ..failure };
        }
        let in_doubt = failure.in_doubt || ended.was_in_doubt;
        if in_doubt && tool.composition.is_none() {
            return Then::Doubt(Failure { in_doubt: true, ..failure });
        }
        let has_fallback = usize::from(candidate) < step.fallback.len();
        // Work that is done is not done a second time by a fallback.
        let acted = failure.acted || ended.has_acted;
        let is_open = in_doubt || acted && tool.composition.is_none();
        if has_fallback && !is_open && failure.code != Code::Denied && !stopped {
            return Then::Fallback(failure);
        }
        Then::Fails(failure)
    }

    /// The outcome of a call is unknown: the probe is called, then a person is asked.
    fn cleared_up(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        candidate: u16,
        doubt: Failure,
        ended: &mut Ended,
    ) -> Tried {
        let cancelled = Tried::Cancelled { in_doubt: true };
        let did_not = |ended: &mut Ended| {
            ended.was_in_doubt = false;
            // Work that was certainly not done counts as not reached.
            let code = certain(doubt.code);
            Tried::Failure(Failure { in_doubt: false, code, ..doubt.clone() })
        };
        if let (Some(probe), 0, false) = (&step.probe, candidate, self.is_taken_up()) {
            match self.probed(node, step, probe, &doubt, ended) {
                Probed::Done(value) => return Tried::Value(value),
                Probed::NotDone => return did_not(ended),
                Probed::Cancelled => return cancelled,
                Probed::Unknown => {}
            }
        }
        if !self.asks_a_person(node) {
            return Tried::Unknown(doubt.clone());
        }
        let tool = candidate_call(step, candidate).tool.clone().unwrap();
        loop {
            let decided = |word: &Word| matches!(word, Word::Decided(at, ..) if *at == node);
            let Some(turn) = self.told_from(self.now, decided) else { return cancelled };
            // Everything around has stopped, and no one asked.
            let settled = self.settled_seq(node).unwrap_or(u64::MAX);
            if settled < self.turn_seq(turn) {
                if !self.trace.stopped_before(node.frame, settled) {
                    self.puzzled(node, "was given up in a body that goes on");
                }
                return cancelled;
            }
            self.now = self.turn_seq(turn);
            let Word::Decided(_, done, data, _) = &self.story.turns[turn].word else {
                return cancelled;
            };
            if !*done {
                return did_not(ended);
            }
            if data.is_null() {
                return Tried::Done;
            }
            if let Tried::Value(value) = self.judged(node, step, &tool, data.clone(), ended) {
                return Tried::Value(value);
            }
        }
    }

    /// The result of a probe.
    fn probed(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        probe: &Probe,
        doubt: &Failure,
        ended: &mut Ended,
    ) -> Probed {
        let error = error_value(doubt);
        let mut sight = Sight::new(self, node.frame);
        (sight.args, sight.error) = (Some(&ended.args), Some(&error));
        let args = probe.call.parameters.template.eval(&sight, &self.limits);
        let tool = probe.call.tool.clone().unwrap();
        let Some(args) = args.ok().filter(|args| tool.input.violations(args).is_empty()) else {
            return Probed::Unknown;
        };
        if asks(&tool) && !self.is_allowed() {
            return Probed::Unknown;
        }
        let mut asked = 0;
        loop {
            let call = CallId { node, attempt: ended.attempts + 1 };
            if !self.probes.contains(&call) {
                if self.trace.frame(node.frame).stopped.is_none() {
                    self.puzzled(node, "was not probed, though nothing stopped it");
                }
                return Probed::Cancelled;
            }
            ended.attempts += 1;
            asked += 1;
            let made = Made { call, tool: tool.id.to_string(), args: args.clone() };
            self.calls.push(made);
            let Some((turn, answer)) = self.answer(call) else {
                self.puzzled(node, "a probe was never answered");
                return Probed::Cancelled;
            };
            self.now = self.place_of(turn);
            let retryable = match answer.cloned() {
                None if self.is_taken_up() => return Probed::Unknown,
                // Its engine stopped: the probe is called again.
                None => continue,
                Some(Answer::Aborted | Answer::Unsent) => return Probed::Unknown,
                Some(Answer::TimedOut) => true,
                Some(Answer::Failure(failure)) => failure.retryable,
                Some(Answer::Value(value)) => {
                    let mut sight = Sight::new(self, node.frame);
                    (sight.output, sight.args) = (Some(&value), Some(&ended.args));
                    match self.truth(&probe.done_when, &sight) {
                        Ok(false) => return Probed::NotDone,
                        Ok(true) => {
                            let own = candidate_call(step, 0).tool.clone().unwrap();
                            let found = match &probe.output {
                                None => Ok(value.clone()),
                                Some(output) => output.eval(&sight, &self.limits),
                            };
                            let Ok(found) = found else { return Probed::Unknown };
                            return match self.judged(node, step, &own, found, ended) {
                                Tried::Value(value) => Probed::Done(value),
                                _ => Probed::Unknown,
                            };
                        }
                        Err(_) => false,
                    }
                }
            };
            if !retryable || asked >= PROBES || self.stopped_at(node.frame) {
                return Probed::Unknown;
            }
        }
    }

    /// A composition that is called: an attempt is a run of it in place.
    fn entered(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        candidate: u16,
        tool: &Arc<ToolSpec>,
        args: &Value,
        ended: &mut Ended,
    ) -> Tried {
        let journal = &self.story.journal;
        let entries = self.trace.facts(node).iter().filter_map(|at| match &journal[*at].fact {
            Fact::Entered { candidate, input, .. } => Some((*candidate, input)),
            _ => None,
        });
        let before = ended.entered;
        let entered = entries.collect::<Vec<_>>().get(before).copied();
        let frame = self.trace.children(node).get(before).copied();
        let (Some((as_candidate, input)), Some(frame)) = (entered, frame) else {
            if self.trace.frame(node.frame).stopped.is_none() {
                self.puzzled(node, "was not entered again, though nothing stopped it");
            }
            return Tried::Cancelled { in_doubt: ended.may_have_acted() };
        };
        if as_candidate != candidate {
            self.puzzled(node, "entered another composition");
        }
        ended.attempts += 1;
        ended.entered += 1;
        ended.candidate = candidate;
        let composition = tool.composition.clone().unwrap();
        let filled = with_defaults(&composition, args);
        if filled != *input {
            self.puzzled(node, "entered with another input");
        }
        ended.args = filled.clone();
        let strategy = composition.error_handling.strategy;
        let activation = self.trace.frame(frame).activation;
        self.activations.insert(activation, Activation { input: filled, strategy });
        self.frame(frame);
        self.rolls_back(frame);
        let Some(closed) = self.trace.frame(frame).closed else {
            self.puzzled(node, "a composition was never over");
            return Tried::Cancelled { in_doubt: false };
        };
        self.now = closed;
        if self.trace.stopped_before(node.frame, closed) {
            return Tried::Cancelled { in_doubt: false };
        }
        let value = self.outcome(frame).and_then(|_| self.result(frame, true));
        match value {
            Ok(value) => self.judged(node, step, tool, value, ended),
            Err(mut failure) => {
                failure.in_doubt |= self.has_doubt(frame, closed);
                Tried::Failure(failure)
            }
        }
    }
}

/// Whether a call needs confirmation: it destroys data, or its effect is unknown. A composition
/// asks for each of its calls.
fn asks(tool: &ToolSpec) -> bool {
    let unknown_or_worse = matches!(tool.annotations.impact(), Impact::Destroys | Impact::Unknown);
    tool.composition.is_none() && (unknown_or_worse || tool.confirm == ConfirmPolicy::Always)
}

/// The code of a failure that is not in doubt.
fn certain(code: Code) -> Code {
    if code == Code::InDoubt { Code::Unreachable } else { code }
}

/// Whether a call may be repeated: by the step's `idempotent`, else by the tool's.
fn repeatable(step: &Step, tool: &ToolSpec) -> bool {
    let known = tool.annotations;
    let declared = known.read_only == Some(true) || known.idempotent == Some(true);
    step.idempotent.unwrap_or(declared)
}

/// Whether an answer means that a call could not be resumed.
fn is_unfound(answer: &Answer) -> bool {
    match answer {
        Answer::Failure(failure) => failure.in_doubt || failure.code == Code::Unreachable,
        Answer::Unsent => true,
        Answer::Value(_) | Answer::TimedOut | Answer::Aborted => false,
    }
}

pub(super) fn candidate_call(step: &Step, candidate: u16) -> &ToolCall {
    match (&step.kind, candidate) {
        (StepKind::Tool(call), 0) => call,
        (_, fallback) => &step.fallback[usize::from(fallback) - 1],
    }
}

fn with_defaults(composition: &segue_core::composition::Composition, args: &Value) -> Value {
    let schema = composition.input.as_ref().map(|schema| schema.json().clone());
    let properties = schema.as_ref().and_then(|schema| schema.get("properties"));
    let (Some(Value::Object(properties)), Value::Object(given)) = (properties, args) else {
        return args.clone();
    };
    let mut filled = (**given).clone();
    for (name, schema) in properties.iter() {
        if let (false, Some(default)) = (filled.contains_key(name), schema.get("default")) {
            filled.insert(name.clone(), default.clone());
        }
    }
    filled.into()
}
