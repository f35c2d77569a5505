//! A run: one execution of a plan, as a state machine without I/O.
//!
//! The driver sends events; the run answers with entries to store and effects to perform. Entries
//! are durable before an effect starts, so every effect has been announced in the journal. State
//! changes only in `RunState::apply`, which sees only journal entries: recovery is [`Run::replay`],
//! not a second code path.
//!
//! Not here: clocks and waiting (the driver), expressions ([`crate::expr`]), storage.

mod admit;
mod advance;
mod attempt;
mod attempts;
mod body_retry;
mod consent;
mod container;
mod expand;
mod finish;
mod frame;
mod in_doubt;
mod inspect;
mod journal;
mod left_to_others;
mod node;
mod part;
mod path;
mod preview;
mod program;
mod recover;
mod redact;
mod rerun;
mod resume;
mod retry;
mod rollback;
mod schedule;
mod scope;
mod search;
mod state;
mod stopping;
mod trace;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

pub use admit::{admit, misspelt_input};
pub use expand::plan_composition;
pub use inspect::{RollbackEventView, StepInspection, StepRollbackView, StepSourceView};
pub use journal::{Entry, Fact, Failure, JOURNAL_FORMAT, LoopItem, NodeId, Options, Started};
pub use part::{PartTarget, PinnedStep, StepSelection};
pub use preview::dry_run;
pub use redact::REDACTED;
pub use rerun::ReusedStep;
pub(crate) use retry::delay_ms;
pub use search::SearchText;
pub use trace::{SpanId, SpanSubject, TraceContext};

use crate::access::Caller;
use crate::budget;
use crate::budget::interrupt::Interrupt;
use crate::composition::tool::{Impact, ToolSpec};
use crate::composition::{ResolvedRollback, StepKind};
use crate::id::ToolId;
use crate::limits::Limits;
use crate::plan::{DeclaredCall, Plan};
use crate::schema::Schema;
use crate::value::Value;
use crate::view::{AttemptView, DecisionView, RunStatus, RunView, StepStatus};
use state::RunState;

/// One execution of a plan.
pub struct Run {
    state: RunState,
    limits: Arc<Limits>,
    interrupt: Interrupt,
}

/// Identifies one attempt of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The step.
    pub node: NodeId,
    /// Counts from one.
    pub attempt: u32,
}

/// Identifies a timer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerId {
    /// The deadline of the run.
    Run,
    /// The end of a step's delay or wait.
    Step(NodeId),
    /// The end of a delay between two rollback attempts.
    Rollback(NodeId),
    /// The deadline of an attempt that is not a plain call, and of the wait for a call after its
    /// run stopped.
    Attempt(CallId),
}

/// An event. It carries the time and random bits, since the core has neither.
#[derive(Debug)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Random bits, for jitter.
    pub entropy: u64,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Debug)]
pub enum EventKind {
    /// The run begins.
    Start(Box<Started>),
    /// The run begins, and does not perform every step of its composition.
    StartPart {
        /// Its parameters.
        started: Box<Started>,
        /// The steps that it performs, and the values of others.
        selection: StepSelection,
    },
    /// A call was answered.
    Answered {
        /// The call.
        call: CallId,
        /// The answer.
        answer: Answer,
    },
    /// The tool's source returned a handle of a running call, by which the call can be found again.
    HandleReceived {
        /// The call.
        call: CallId,
        /// The handle, in the source's own format.
        handle: Value,
    },
    /// A person answered a question.
    Decided {
        /// The question; an answer to an earlier question of the step does not answer a later one.
        question: QuestionId,
        /// Yes or no. For a call in doubt: whether it did its work.
        granted: bool,
        /// The person.
        by: Arc<str>,
        /// Data of the answer: of an approval, or the output of a call in doubt.
        data: Value,
    },
    /// The composition of an `expand` step was compiled and planned, or could not be.
    Expanded {
        /// The step that asked.
        node: NodeId,
        /// The plan, or why there is none.
        outcome: Result<Arc<Plan>, Failure>,
    },
    /// A rollback was requested.
    RollBack {
        /// The requester.
        by: Arc<str>,
    },
    /// The run was loaded from its journal; none of its calls is under way.
    Resumed,
    /// The same, and the run is to end, before any forward step is evaluated.
    ResumedToEnd {
        /// The requester.
        by: Arc<str>,
        /// Whether to roll back too.
        roll_back: bool,
    },
    /// Continue after a pause, or after an evaluation that took too long was stopped.
    Proceed,
    /// A timer fired.
    TimerFired(TimerId),
    /// A cancellation was requested.
    Cancel {
        /// The requester.
        by: Arc<str>,
    },
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With a value.
    Value(Value),
    /// With a failure.
    Failure(Failure),
    /// The call timed out.
    TimedOut,
    /// The call was aborted before it answered.
    Aborted,
    /// The call was aborted before it was sent, so it certainly did nothing.
    Unsent,
}

/// An effect. The driver performs it only after the turn's record is durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Call a tool.
    Call(Call),
    /// Ask a running call to start nothing more, and keep waiting for its answer: it may write, and
    /// its answer counts. A call that was not sent yet is not sent.
    Settle(CallId),
    /// Abort a running call; its answer is still expected.
    Abort(CallId),
    /// Ask a person.
    Ask(Question),
    /// Compile and plan the composition of an `expand` step.
    Expand {
        /// The step that asks.
        node: NodeId,
        /// The composition, as an earlier step made it.
        document: Value,
    },
    /// Set a timer.
    SetTimer {
        /// The timer.
        timer: TimerId,
        /// The time, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// A call to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// The tool.
    pub tool: ToolId,
    /// Its arguments.
    pub args: Value,
    /// Its timeout.
    pub timeout_ms: Option<u64>,
    /// The idempotency key: the same for every attempt of the same work, unique otherwise.
    pub key: Arc<str>,
    /// The path of the step, with enclosing bodies and iterations.
    pub step: Arc<str>,
    /// Counts from one.
    pub attempt: u32,
    /// Its purpose.
    pub purpose: Purpose,
    /// Whether the confirmation of this call covers the parts of a code tool.
    pub covers_parts: bool,
    /// The files that it may overwrite.
    pub overwrites: Overwrites,
    /// The handle of an earlier call whose answer is still expected: the driver resumes that call
    /// and sends nothing new.
    pub resume_handle: Option<Value>,
}

/// The files that a call may overwrite. Confirmation is decided before the call waits in a queue; a
/// call without confirmation must not overwrite a file that appears meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overwrites {
    /// All files: a person confirmed the call, or it needs no confirmation.
    #[default]
    Everything,
    /// Only files that match these patterns: the call was not confirmed.
    Only(Vec<Arc<str>>),
}

impl Overwrites {
    /// All files if the call is allowed, none if it was not confirmed.
    pub fn if_allowed(is_allowed: bool) -> Overwrites {
        if is_allowed { Overwrites::Everything } else { Overwrites::Only(Vec::new()) }
    }
}

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The step's own work.
    Work,
    /// The rollback of the step.
    Rollback,
    /// To resolve the outcome of a call in doubt.
    Probe,
}

/// Identifies a question to a person.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct QuestionId {
    /// The step that asks.
    pub node: NodeId,
    /// The number of the entry that asked.
    pub seq: u64,
}

impl QuestionId {
    /// A question that a tool asks during its call: the journal records neither the question nor
    /// the answer.
    pub fn of_call(node: NodeId) -> QuestionId {
        QuestionId { node, seq: u64::MAX }
    }

    /// Whether the journal records the question and its answer.
    pub fn is_in_journal(self) -> bool {
        self.seq != u64::MAX
    }
}

/// A question to a person.
#[derive(Clone, Debug)]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// The path of the step, with enclosing bodies and iterations.
    pub step: Arc<str>,
    /// The question.
    pub kind: QuestionKind,
}

/// The rollback call of a step, which is confirmed in advance because no person may be there later.
#[derive(Clone, Debug, PartialEq)]
pub struct RollbackCall {
    /// The tool.
    pub tool: ToolId,
    /// Its arguments, as written.
    pub args: Value,
    /// Its effect.
    pub effect: Impact,
}

/// The kinds of questions.
#[derive(Clone, Debug)]
pub enum QuestionKind {
    /// Whether an atomic composition may run: one answer for all its calls.
    Run {
        /// Its name.
        composition: Arc<str>,
        /// Its input.
        input: Value,
        /// The tools that it may call.
        calls: Vec<DeclaredCall>,
    },
    /// Whether a tool may be called.
    Call {
        /// The tool.
        tool: ToolId,
        /// Its arguments.
        args: Value,
        /// Its effect.
        effect: Impact,
        /// Whether it can be rolled back.
        can_roll_back: bool,
        /// Tools that it may call in turn: the parts of a code tool, or the steps of an atomic
        /// composition.
        parts: Vec<DeclaredCall>,
        /// Its rollback call, if that needs confirmation too.
        rollback: Option<RollbackCall>,
    },
    /// The question of an `approve` step.
    Approval {
        /// Its text.
        message: Arc<str>,
        /// The schema of the answer's data.
        schema: Option<Arc<Schema>>,
    },
    /// Whether an unanswered call did its work.
    Doubt {
        /// The tool.
        tool: ToolId,
        /// Its arguments.
        args: Value,
        /// Why the outcome is unknown.
        message: Arc<str>,
    },
}

/// The error of a journal that no run can have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq} of the journal does not follow from those before it")]
pub struct ReplayError {
    /// The first invalid entry.
    pub seq: u64,
}

/// The answer of the run to one event.
#[derive(Debug, Default)]
pub struct Turn {
    /// Entries to store first.
    pub record: Vec<Entry>,
    /// Effects to perform then.
    pub perform: Vec<Effect>,
}

impl Run {
    /// A run that has not started.
    pub fn new(plan: Arc<Plan>, limits: Arc<Limits>) -> Run {
        Run { state: RunState::new(plan), limits, interrupt: Interrupt::default() }
    }

    /// Replays a journal. A journal that no run can have written is rejected.
    pub fn replay(
        plan: Arc<Plan>,
        limits: Arc<Limits>,
        journal: &[Entry],
    ) -> Result<Run, ReplayError> {
        let mut run = Run::new(plan, limits);
        for entry in journal {
            run.state.apply(entry).map_err(|_| ReplayError { seq: entry.seq })?;
        }
        Ok(run)
    }

    /// Redacts texts that no composition marks as sensitive: entries and views of this run do not
    /// contain them.
    pub fn redact_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.state.add_secret_texts(texts.into_iter().collect());
    }

    /// Handles an event: returns the entries to store and the effects to perform.
    pub fn handle(&mut self, event: Event) -> Turn {
        let mut turn = Turn::default();
        self.handle_into(event, &mut turn);
        turn
    }

    /// The same, added to a turn with earlier events: all entries are stored before any effect is
    /// performed.
    pub fn handle_into(&mut self, event: Event, turn: &mut Turn) {
        let mut builder = advance::TurnBuilder {
            state: &mut self.state,
            limits: &self.limits,
            at_ms: event.at_ms,
            entropy: event.entropy,
            ends_on_resume: false,
            turn: std::mem::take(turn),
        };
        // A rollback cannot be cancelled: only budgets end its evaluations.
        let is_rolling_back = builder.state.is_rolling_back();
        let interrupt = if is_rolling_back { Interrupt::default() } else { self.interrupt.clone() };
        budget::interruptible(&interrupt, || builder.handle(event.kind));
        *turn = builder.turn;
    }

    /// The flag that stops this run's evaluations from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// The status of the run.
    pub fn status(&self) -> RunStatus {
        if self.is_waiting() { RunStatus::Waiting } else { self.state.status }
    }

    /// Whether the run waits for a person.
    pub fn is_waiting(&self) -> bool {
        self.state.is_waiting()
    }

    /// The id of its request; empty before it starts.
    pub fn request_id(&self) -> &str {
        self.state.started.as_ref().map_or("", |started| &started.request_id)
    }

    /// Its own id; empty before it starts.
    pub fn run_id(&self) -> &str {
        self.state.started.as_ref().map_or("", |started| &started.run_id)
    }

    /// The caller, if the run was started through a surface.
    pub fn caller(&self) -> Option<&Caller> {
        self.state.started.as_ref()?.caller.as_ref()
    }

    /// Its trace, if it has one.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.state.started.as_ref()?.trace.as_ref()
    }

    /// Its start, in milliseconds since 1970.
    pub fn started_ms(&self) -> u64 {
        self.state.started_ms
    }

    /// The name of its composition.
    pub fn name(&self) -> &Arc<str> {
        &self.state.plan.composition.name
    }

    /// The input and the caller's context.
    pub fn input_and_context(&self) -> (&Value, &Value) {
        const NOTHING: &Value = &Value::Null;
        let started = self.state.started.as_ref();
        started.map_or((NOTHING, NOTHING), |started| (&started.input, &started.context))
    }

    /// The open questions.
    pub fn questions(&self) -> Vec<Question> {
        view::questions(&self.state).collect()
    }

    /// The number of its entries.
    pub fn entry_count(&self) -> u64 {
        self.state.seq
    }

    /// Whether it may have values that are not stored.
    pub fn has_sensitive(&self) -> bool {
        self.state.has_sensitive
    }

    /// Whether a question is still open.
    pub fn has_open_question(&self, question: QuestionId) -> bool {
        let stands = match question.node {
            NodeId::RUN => self.state.consent_question(),
            node => view::question(&self.state, node),
        };
        stands.is_some_and(|stands| stands.id == question)
    }

    /// Entries of this run in the form for storage, with sensitive values redacted.
    pub fn redacted<'a>(&self, entries: &'a [Entry]) -> Cow<'a, [Entry]> {
        self.state.redacted(entries)
    }

    /// A value with sensitive texts redacted.
    pub fn redact_value(&self, value: &Value) -> Value {
        self.state.redact_value(value)
    }

    /// The decisions in the journal of this run.
    pub fn decisions(&self, journal: &[Entry]) -> Vec<DecisionView> {
        view::decisions(&self.state, journal)
    }

    /// All attempts in the journal of this run.
    pub fn attempts(&self, journal: &[Entry]) -> Vec<AttemptView> {
        attempts::attempts(&self.state, |node, candidate| self.tool_name(node, candidate), journal)
    }

    /// The status of a step after a fact that settles it. All texts and events use it: a call that
    /// may have done its work is in doubt, never cancelled.
    pub fn settled_status(&self, fact: &Fact) -> Option<StepStatus> {
        self.state.settled_status(fact)
    }

    /// The keys of recorded calls without an answer.
    pub fn open_call_keys(&self) -> Vec<Arc<str>> {
        self.state.open_call_keys()
    }

    /// Whether the run is finished.
    pub fn is_finished(&self) -> bool {
        !matches!(self.state.status, RunStatus::Pending | RunStatus::Running)
    }

    /// The view that every surface publishes.
    pub fn view(&self) -> RunView {
        view::run_view(&self.state)
    }

    /// The tool that a step calls, or its keyword. Candidate 0 is the tool itself, n the n-th
    /// fallback.
    pub fn tool_name(&self, node: NodeId, candidate: u16) -> String {
        let step = self.state.step(node);
        match &step.kind {
            StepKind::Tool(_) => {
                let call = advance::candidate_call(step, candidate);
                call.tool.as_ref().map_or_else(|| call.name.to_string(), |tool| tool.id.to_string())
            }
            other => other.keyword().to_owned(),
        }
    }

    /// The tool that is called for a step, if one is.
    pub fn tool_for(
        &self,
        node: NodeId,
        candidate: u16,
        purpose: Purpose,
    ) -> Option<&Arc<ToolSpec>> {
        let step = self.state.step(node);
        let call = match purpose {
            Purpose::Work if !matches!(step.kind, StepKind::Tool(_)) => return None,
            Purpose::Work => advance::candidate_call(step, candidate),
            Purpose::Probe => &step.probe.as_ref()?.call,
            Purpose::Rollback => match self.state.resolved_rollback(node) {
                ResolvedRollback::Call(call) => call,
                _ => return None,
            },
        };
        call.tool.as_ref()
    }

    /// The arguments of a step's tool as written, before evaluation.
    pub fn args_template(&self, node: NodeId, candidate: u16) -> Value {
        let step = self.state.step(node);
        match &step.kind {
            StepKind::Tool(_) => {
                advance::candidate_call(step, candidate).parameters.template.to_value()
            }
            _ => Value::Null,
        }
    }

    /// The step whose body contains this one.
    pub fn parent_step(&self, node: NodeId) -> Option<NodeId> {
        self.state.frame(node.frame).parent
    }

    /// The step's path, with enclosing bodies and iterations.
    pub fn path(&self, node: NodeId) -> Arc<str> {
        self.state.path(node)
    }
}
