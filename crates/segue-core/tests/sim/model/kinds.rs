//! What the steps that call no tool must come to.

use std::sync::Arc;

use segue_core::composition::{
    ItemFailure, LoopStep, OnApprovalTimeout, RepeatStep, Step, StepKind, WaitFor,
};
use segue_core::diagnostic::Code;
use segue_core::run::{Fact, Failure, NodeId, TimerId};
use segue_core::value::{Map, Value};

use super::scope::Sight;
use super::{Activation, End, Ended, Model, expression};
use crate::story::Word;

impl Model<'_> {
    pub(super) fn other(&mut self, node: NodeId, step: &Arc<Step>, ended: &mut Ended) -> End {
        let outcome = match &step.kind {
            StepKind::Set(names) => self.set(node, names, ended),
            StepKind::Wait { duration } => match self.eval(node, duration) {
                Err(failure) => Err(failure),
                Ok(_) => return self.waits(node, ended),
            },
            StepKind::Approve { message, on_timeout, .. } => match self.eval(node, message) {
                Err(failure) => Err(failure),
                Ok(message) => {
                    ended.args = message;
                    return self.approval(node, *on_timeout, ended);
                }
            },
            StepKind::Choose { cases, otherwise } => {
                match self.chosen(node, cases.iter().map(|case| &case.when)) {
                    Err(failure) => Err(failure),
                    Ok(None) if otherwise.is_none() => Ok(Value::Null),
                    Ok(_) => {
                        return self.body(node, ended, |model, frames| model.outcome(frames[0]));
                    }
                }
            }
            StepKind::Parallel { branches, wait_for } => {
                let names: Vec<Arc<str>> = branches.iter().map(|b| b.id.clone()).collect();
                return self.parallel(node, &names, *wait_for, ended);
            }
            StepKind::Loop(each) => match self.items(node, each) {
                Err(failure) => Err(failure),
                Ok(items) if items.is_empty() => Ok(Value::from(Vec::new())),
                Ok(items) => return self.each(node, each, &items, ended),
            },
            StepKind::Repeat(repeat) => return self.repeat(node, repeat, ended),
            StepKind::Expand(template) => match self.eval(node, template) {
                Err(failure) => Err(failure),
                Ok(document) => {
                    ended.args = document;
                    return self.expand(node, ended);
                }
            },
            StepKind::Tool(_) => unreachable!("a call is worked out as such"),
        };
        self.comes_to(node, ended, outcome)
    }

    /// A step that calls nothing itself, with its retries.
    pub(super) fn with_retries(
        &mut self,
        node: NodeId,
        step: &Arc<Step>,
        ended: &mut Ended,
    ) -> End {
        for number in 0.. {
            self.attempts.insert(node, number);
            if number > 0 {
                ended.attempts = u32::try_from(number).unwrap() + 1;
                if !self.attempt_happened(node) {
                    return End::Cancelled { in_doubt: false };
                }
            }
            let end = self.other(node, step, ended);
            let (End::Failed(failure) | End::Tolerated(_, failure)) = &end else { return end };
            let failure = failure.clone();
            let decided = self.decided_at(node);
            let is_last = number >= step.retry.max.unwrap_or(0) as usize;
            // The last attempt fails at once, whatever still ends inside it.
            let known = decided.or_else(|| self.settled_seq(node).filter(|_| is_last));
            if !self.may_begin_anew(node, step, &failure, known.unwrap_or(u64::MAX)) {
                return end;
            }
            if is_last {
                // Without a retry, or after a step inside said so, the failure stays as it is.
                if number == 0 || failure.code == Code::RetriesExhausted {
                    return end;
                }
                let code = Code::RetriesExhausted;
                return self.failed(node, ended, Failure { code, retryable: false, ..failure });
            }
            if decided.is_some() {
                let over = self.attempt_over(node);
                if self.trace.stopped_before(node.frame, over) {
                    return End::Cancelled { in_doubt: false };
                }
                if !self.may_begin_anew(node, step, &failure, u64::MAX) {
                    return end;
                }
            }
            let (is_clean, over) = self.roll_back_attempt(node);
            if over.is_some_and(|over| self.trace.stopped_before(node.frame, over + 1)) {
                return End::Cancelled { in_doubt: false };
            }
            if !is_clean {
                return end;
            }
            if self.trace.retries(node).len() <= number {
                self.puzzled(node, "was not tried again");
                return end;
            }
        }
        unreachable!("attempts are bounded")
    }

    /// A step with bodies begins anew after failures that a retry may help, if no call inside is
    /// in doubt.
    fn may_begin_anew(&self, node: NodeId, step: &Step, failure: &Failure, at: u64) -> bool {
        let has_bodies = !step.kind.bodies().is_empty() || matches!(step.kind, StepKind::Expand(_));
        let may_help = failure.retryable || failure.code == Code::RetriesExhausted;
        let wanted = step.retry.on.is_empty() || step.retry.on.contains(&failure.code);
        let in_doubt =
            failure.in_doubt || self.children(node).iter().any(|frame| self.has_doubt(*frame, at));
        has_bodies && may_help && wanted && !in_doubt
    }

    /// Where the failure of the attempt at hand was decided before its bodies were over.
    fn decided_at(&self, node: NodeId) -> Option<u64> {
        let number = self.attempts.get(&node).copied().unwrap_or(0);
        let from = number.checked_sub(1).map_or(0, |before| self.trace.retries(node)[before].1);
        let to = self.trace.retries(node).get(number).map_or(u64::MAX, |(_, seq)| *seq);
        let facts = self.trace.facts(node).iter().map(|at| &self.story.journal[*at]);
        let mut decided = facts.filter(|entry| matches!(entry.fact, Fact::FailureDecided { .. }));
        decided.find(|entry| (from..to).contains(&entry.seq)).map(|entry| entry.seq)
    }

    /// Where the last body inside the attempt at hand was over.
    fn attempt_over(&self, node: NodeId) -> u64 {
        let roots = self.children(node);
        let frames = (0..self.trace.frames.len()).map(|frame| u32::try_from(frame).unwrap());
        let inside = frames.filter(|f| roots.iter().any(|root| self.trace.is_inside(*f, *root)));
        inside.map(|frame| self.trace.frame(frame).closed.unwrap_or(u64::MAX)).max().unwrap_or(0)
    }

    /// The number of an attempt in its timers.
    fn attempt_number(&self, node: NodeId) -> u32 {
        match self.attempts.get(&node) {
            None | Some(0) => 0,
            Some(number) => u32::try_from(*number).unwrap() + 1,
        }
    }

    /// Where the attempt at hand began.
    fn attempt_began(&self, node: NodeId) -> Option<u64> {
        let number = self.attempts.get(&node).copied().unwrap_or(0);
        let Some(before) = number.checked_sub(1) else { return self.began(node) };
        let after = self.trace.retries(node)[before].1;
        let facts = self.trace.facts(node).iter().map(|at| &self.story.journal[*at]);
        facts
            .filter(|entry| entry.seq > after && !matches!(entry.fact, Fact::Woke { .. }))
            .map(|entry| entry.seq)
            .next()
    }

    /// Whether a retry began before everything around it stopped.
    fn attempt_happened(&self, node: NodeId) -> bool {
        self.attempt_began(node).is_some_and(|began| !self.trace.stopped_before(node.frame, began))
    }

    /// A step whose bodies are over, or that has none.
    fn comes_to(&self, node: NodeId, ended: &mut Ended, outcome: Result<Value, Failure>) -> End {
        match outcome {
            Ok(value) => self.succeeded(node, ended, value),
            Err(failure) => self.failed(node, ended, failure),
        }
    }

    fn set(
        &self,
        node: NodeId,
        names: &[(Arc<str>, segue_core::expr::Template)],
        ended: &mut Ended,
    ) -> Result<Value, Failure> {
        let mut values = Map::new();
        for (name, template) in names {
            values.insert(name.clone(), self.eval(node, template)?);
        }
        ended.given.clone_from(&values);
        Ok(values.into())
    }

    /// The first condition that holds.
    fn chosen<'e>(
        &self,
        node: NodeId,
        conditions: impl Iterator<Item = &'e segue_core::expr::Expr>,
    ) -> Result<Option<usize>, Failure> {
        for (at, condition) in conditions.enumerate() {
            if self.truth(condition, &Sight::new(self, node.frame))? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn waits(&self, node: NodeId, ended: &mut Ended) -> End {
        let began = self.began(node).unwrap_or(0);
        let woken = self.told_after(
            began,
            |word| matches!(word, Word::Fired(TimerId::Step(at)) if *at == node),
        );
        let late = self.time_up(node, self.attempt_number(node));
        let first = woken.into_iter().chain(late).min();
        match first {
            Some(turn) if !self.stopped_before_turn(node.frame, turn) => {
                if Some(turn) == woken {
                    return self.succeeded(node, ended, Value::Null);
                }
                self.failed(node, ended, Failure::transient(Code::Timeout, "the wait"))
            }
            _ => End::Cancelled { in_doubt: false },
        }
    }

    fn approval(&self, node: NodeId, silence: OnApprovalTimeout, ended: &mut Ended) -> End {
        let began = self.began(node).unwrap_or(0);
        let StepKind::Approve { schema, .. } = &self.trace.step(node).kind else { unreachable!() };
        let wants = schema.as_ref().is_some_and(|form| !form.violations(&Value::Null).is_empty());
        if self.story.started.options.approved && !wants {
            let turn = self.story.turn_of(began);
            return self.approved(node, ended, true, turn, "approval in advance", &Value::Null);
        }
        let decided =
            self.told_after(began, |word| matches!(word, Word::Decided(at, ..) if *at == node));
        let late = self.time_up(node, self.attempt_number(node));
        let Some(turn) = decided.into_iter().chain(late).min() else {
            return End::Cancelled { in_doubt: false };
        };
        if self.stopped_before_turn(node.frame, turn) {
            return End::Cancelled { in_doubt: false };
        }
        match &self.story.turns[turn].word {
            Word::Decided(_, granted, data, _) => {
                self.approved(node, ended, *granted, turn, "somebody", data)
            }
            _ => {
                let granted = silence == OnApprovalTimeout::Approve;
                self.approved(node, ended, granted, turn, "timeout", &Value::Null)
            }
        }
    }

    fn approved(
        &self,
        node: NodeId,
        ended: &mut Ended,
        granted: bool,
        turn: usize,
        by: &str,
        data: &Value,
    ) -> End {
        if !granted {
            return self.failed(node, ended, Failure::permanent(Code::Denied, "not approved"));
        }
        if let StepKind::Approve { schema: Some(schema), .. } = &self.trace.step(node).kind
            && !data.is_null()
            && !schema.violations(data).is_empty()
        {
            return self.failed(node, ended, Failure::permanent(Code::InputSchema, "the data"));
        }
        let at = segue_core::view::rfc3339(self.story.turns[turn].wall);
        let value = Value::object([
            ("approved", Value::Bool(true)),
            ("by", Value::from(by)),
            ("at", Value::from(at)),
            ("data", data.clone()),
        ]);
        self.succeeded(node, ended, value)
    }

    /// A composition that was made at run time runs in the place of its step.
    fn expand(&mut self, node: NodeId, ended: &mut Ended) -> End {
        let depth = self.trace.roots(node.frame).len();
        if depth > self.limits.nesting_depth_max {
            return self.failed(node, ended, Failure::permanent(Code::Recursion, "too deep"));
        }
        let began = self.attempt_began(node).unwrap_or(0);
        let checked =
            self.told_after(began, |word| matches!(word, Word::Expanded(at, _) if *at == node));
        let late = self.time_up(node, self.attempt_number(node));
        let Some(turn) = checked else { return End::Cancelled { in_doubt: false } };
        if self.stopped_before_turn(node.frame, turn) {
            return End::Cancelled { in_doubt: false };
        }
        if late.is_some_and(|late| late < turn) {
            self.puzzled(node, "its time was over before it was checked");
        }
        let Word::Expanded(_, outcome) = &self.story.turns[turn].word else {
            return End::Cancelled { in_doubt: false };
        };
        let plan = match outcome {
            Ok(plan) => plan.clone(),
            Err(failure) => return self.failed(node, ended, failure.clone()),
        };
        let around = self.trace.frame(node.frame).activation;
        let input = self.activations[&around].input.clone();
        if let Some(frame) = self.children(node).first() {
            let strategy = plan.composition.error_handling.strategy;
            let activation = self.trace.frame(*frame).activation;
            self.activations.insert(activation, Activation { input, strategy });
        }
        self.body(node, ended, |model, frames| {
            model.outcome(frames[0])?;
            model.result(frames[0], true)
        })
    }

    /// Where the last of a step's bodies was over.
    fn all_closed(&mut self, node: NodeId) -> u64 {
        let closed = self.children(node).iter().map(|frame| self.trace.frame(*frame).closed);
        match closed.max().flatten() {
            Some(closed) => closed,
            None => {
                self.puzzled(node, "has no body that is over");
                u64::MAX
            }
        }
    }

    /// Whether the step's own time was over before its bodies were: then that is how it ends.
    fn was_too_slow(&self, node: NodeId, closed: u64) -> bool {
        let turn = self.time_up(node, self.attempt_number(node));
        turn.is_some_and(|turn| {
            self.turn_seq(turn) <= closed && !self.stopped_before_turn(node.frame, turn)
        })
    }

    /// A step that is over when all its bodies are.
    fn body(
        &mut self,
        node: NodeId,
        ended: &mut Ended,
        value: impl Fn(&Self, &[u32]) -> Result<Value, Failure>,
    ) -> End {
        let frames = self.children(node).to_vec();
        if frames.is_empty() {
            self.puzzled(node, "opened no body");
            return End::Cancelled { in_doubt: false };
        }
        for frame in &frames {
            self.frame(*frame);
            if matches!(self.trace.step(node).kind, StepKind::Expand(_)) {
                self.rolls_back(*frame);
            }
        }
        let closed = self.all_closed(node);
        if self.trace.stopped_before(node.frame, closed) {
            return End::Cancelled { in_doubt: false };
        }
        if self.was_too_slow(node, closed) {
            return self.failed(node, ended, Failure::transient(Code::Timeout, "the bodies"));
        }
        let outcome = value(self, &frames);
        self.comes_to(node, ended, outcome)
    }

    fn parallel(
        &mut self,
        node: NodeId,
        names: &[Arc<str>],
        wait_for: WaitFor,
        ended: &mut Ended,
    ) -> End {
        if self.children(node).len() != names.len() {
            self.puzzled(node, "did not open every branch");
        }
        if wait_for == WaitFor::All {
            return self.body(node, ended, |model, frames| {
                let mut values = Map::new();
                for (frame, name) in frames.iter().zip(names) {
                    values.insert(name.clone(), model.outcome(*frame)?);
                }
                Ok(values.into())
            });
        }
        let frames = self.children(node).to_vec();
        for frame in &frames {
            self.frame(*frame);
        }
        let mut order: Vec<(u64, usize)> = Vec::new();
        for (at, frame) in frames.iter().enumerate() {
            match self.trace.frame(*frame).closed {
                Some(closed) => order.push((closed, at)),
                None => self.puzzled(node, "a branch was never over"),
            }
        }
        order.sort_unstable();
        let slow = order.last().is_some_and(|last| self.was_too_slow(node, last.0));
        let turn = self
            .time_up(node, self.attempt_number(node))
            .filter(|_| slow)
            .map_or(u64::MAX, |turn| self.turn_seq(turn));
        // The time counts only when it was over before a branch decided.
        let deciding = order.iter().find(|(closed, at)| {
            *closed < turn && (wait_for == WaitFor::Any || self.won(frames[*at]))
        });
        let (closed, winner) = match (deciding, order.last()) {
            (Some((closed, at)), _) => (*closed, Some(*at)),
            (None, Some((closed, _))) => (*closed, None),
            (None, None) => return End::Cancelled { in_doubt: false },
        };
        if self.trace.stopped_before(node.frame, closed) {
            return End::Cancelled { in_doubt: false };
        }
        let outcome = match winner {
            None if slow => Err(Failure::transient(Code::Timeout, "the branches")),
            None => {
                let in_doubt = frames.iter().any(|frame| self.has_doubt(*frame, closed));
                let failed = |frame: &u32| self.outcome(*frame).is_err_and(|f| f.retryable);
                Err(Failure {
                    in_doubt,
                    retryable: frames.iter().any(failed),
                    ..Failure::permanent(Code::ToolError, "no branch succeeded")
                })
            }
            Some(at) => self.outcome(frames[at]).map(|value| {
                Value::object([("winner", Value::String(names[at].clone())), ("value", value)])
            }),
        };
        self.comes_to(node, ended, outcome)
    }

    /// Whether a branch succeeded; one whose steps were all skipped has done nothing.
    fn won(&self, frame: u32) -> bool {
        let did = self.nodes_of(frame).iter().any(|node| self.ends[node].end.value().is_some());
        did && self.outcome(frame).is_ok()
    }

    fn items(&self, node: NodeId, each: &LoopStep) -> Result<Vec<Value>, Failure> {
        match self.eval(node, &each.over)? {
            Value::Array(items) => {
                let max =
                    each.max_iterations.map_or(self.limits.loop_items_max, |max| max as usize);
                if items.len() > max {
                    return Err(Failure::permanent(Code::LoopLimit, "too many items"));
                }
                Ok((*items).clone())
            }
            _ => Err(Failure::permanent(Code::TypeMismatch, "not an array")),
        }
    }

    fn each(&mut self, node: NodeId, each: &LoopStep, items: &[Value], ended: &mut Ended) -> End {
        let frames = self.children(node).to_vec();
        for (at, frame) in frames.iter().enumerate() {
            let item = self.trace.frame(*frame).item.clone();
            if item.is_none_or(|item| Some(&item.value) != items.get(at) || item.index != at) {
                self.puzzled(node, "a round has another item than its turn");
            }
        }
        let whole = frames.len() == items.len();
        let end = self.body(node, ended, |model, frames| {
            let values: Result<Vec<Value>, Failure> =
                frames.iter().map(|frame| model.item_value(*frame, each)).collect();
            values.map(Value::from)
        });
        if !whole && matches!(end, End::Done(_)) {
            self.puzzled(node, "is over before its last item");
        }
        end
    }

    fn item_value(&self, frame: u32, each: &LoopStep) -> Result<Value, Failure> {
        match self.outcome(frame) {
            Err(failure) => {
                let is_final = failure.in_doubt || failure.code == Code::Denied;
                let goes_on = each.on_item_failure == ItemFailure::Continue && !is_final;
                if goes_on { Ok(Value::Null) } else { Err(failure) }
            }
            Ok(value) => match &each.output {
                None => Ok(value),
                Some(output) => {
                    output.eval(&Sight::new(self, frame), &self.limits).map_err(expression)
                }
            },
        }
    }

    fn repeat(&mut self, node: NodeId, repeat: &RepeatStep, ended: &mut Ended) -> End {
        let frames = self.children(node).to_vec();
        for (round, frame) in frames.iter().enumerate() {
            self.frame(*frame);
            let Some(closed) = self.trace.frame(*frame).closed else {
                self.puzzled(node, "a round was never over");
                return End::Cancelled { in_doubt: false };
            };
            if self.trace.stopped_before(node.frame, closed) {
                return End::Cancelled { in_doubt: false };
            }
            if self.was_too_slow(node, closed) {
                return self.failed(node, ended, Failure::transient(Code::Timeout, "the rounds"));
            }
            let value = match self.outcome(*frame) {
                Ok(value) => value,
                Err(failure) => return self.failed(node, ended, failure),
            };
            match self.truth(&repeat.until, &Sight::new(self, *frame)) {
                Err(failure) => return self.failed(node, ended, failure),
                Ok(true) => {
                    if round + 1 < frames.len() {
                        self.puzzled(node, "goes on though its condition holds");
                    }
                    return self.succeeded(node, ended, value);
                }
                Ok(false) if round + 1 >= repeat.max_iterations as usize => {
                    return self.failed(node, ended, Failure::permanent(Code::LoopLimit, "rounds"));
                }
                Ok(false) => {}
            }
        }
        // Rested after its last round: its time was over, or everything around ended.
        let slow = self
            .time_up(node, self.attempt_number(node))
            .filter(|turn| !self.stopped_before_turn(node.frame, *turn));
        if slow.is_some() {
            return self.failed(node, ended, Failure::transient(Code::Timeout, "the rounds"));
        }
        if self.trace.frame(node.frame).stopped.is_none() {
            self.puzzled(node, "stopped repeating without a reason");
        }
        End::Cancelled { in_doubt: false }
    }

    /// The result of a composition: its `output`, else every output key with its value. When not
    /// everything worked, what cannot be worked out is left away.
    pub(super) fn result(&self, frame: u32, complete: bool) -> Result<Value, Failure> {
        let composition = self.trace.frame(frame).plan.composition.clone();
        let Some(output) = &composition.output else {
            let keyed = self.nodes_of(frame).into_iter().filter_map(|node| {
                let step = self.trace.step(node);
                let key = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
                Some((key.clone(), self.ends[&node].end.value()?.clone()))
            });
            return Ok(keyed.collect::<Map>().into());
        };
        let sight = Sight::new(self, frame);
        match output.eval(&sight, &self.limits) {
            Ok(value) => Ok(value),
            Err(error) if complete => Err(expression(error)),
            Err(_) => {
                let segue_core::expr::Template::Object(members) = output else {
                    return Ok(Value::Null);
                };
                let known = members.iter().filter_map(|(name, member)| {
                    Some((name.clone(), member.eval(&sight, &self.limits).ok()?))
                });
                Ok(known.collect::<Map>().into())
            }
        }
    }
}
