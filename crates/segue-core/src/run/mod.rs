//! A run: one execution of a plan, as a machine that performs no I/O.
//!
//! The driver tells the run what happened; the run answers with what to write down and what to do.
//! What is written is durable before anything is done, so nothing is ever done that the journal has
//! not announced. State changes in one function, `State::apply`, which sees journal entries and
//! nothing else: recovery is [`Run::replay`], not a second code path.
//!
//! Not here: clocks and waiting (the driver's), expressions ([`crate::expr`]), storage.

mod admit;
mod advance;
mod attempt;
mod attempts;
mod consent;
mod container;
mod expand;
mod finish;
mod frame;
mod in_doubt;
mod journal;
mod node;
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
mod state;
mod stopping;
mod trace;
mod view;

use std::borrow::Cow;
use std::sync::Arc;

pub use admit::admit;
pub use expand::plan_composition;
pub use journal::{Entry, Fact, Failure, JOURNAL_FORMAT, LoopItem, NodeId, Options, Started};
pub use preview::dry_run;
pub use redact::REDACTED;
pub use rerun::ReusedStep;
pub(crate) use retry::delay_ms;
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

/// Names one attempt of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The step.
    pub node: NodeId,
    /// Counts from one.
    pub attempt: u32,
}

/// Names something that a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerId {
    /// The end of the time that the whole run has.
    Run,
    /// The end of a step's rest or wait.
    Step(NodeId),
    /// The end of a rest between two attempts to take a step back.
    Rollback(NodeId),
    /// The end of the time that one attempt of a step has, where no call says so by itself; and of
    /// the time that a call is awaited after its run stopped.
    Attempt(CallId),
}

/// What happened. Time and chance come in here: the core has neither.
#[derive(Debug)]
pub struct Event {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Random bits, for jitter.
    pub entropy: u64,
    /// What it was.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug)]
pub enum EventKind {
    /// The run begins.
    Start(Box<Started>),
    /// The run begins with values of an earlier one.
    Rerun {
        /// What it is started with.
        started: Box<Started>,
        /// What it takes over.
        reused: Vec<ReusedStep>,
    },
    /// A call was answered.
    Answered {
        /// Which call.
        call: CallId,
        /// How.
        answer: Answer,
    },
    /// Whoever was called works on it under a name of its own, by which it can be found again.
    HandleReceived {
        /// Which call.
        call: CallId,
        /// What it takes to find it, as whoever was called wants to hear it.
        handle: Value,
    },
    /// Somebody answered a question.
    Decided {
        /// Which one; an answer to an earlier question of the step says nothing about a later one.
        question: QuestionId,
        /// Yes or no. Of a call in doubt: whether it did its work.
        granted: bool,
        /// Who.
        by: Arc<str>,
        /// What comes with it: the data of an approval, or what a call in doubt returned.
        data: Value,
    },
    /// A composition that was made at run time is compiled and planned, or cannot be.
    Expanded {
        /// The step that asked.
        node: NodeId,
        /// The plan, or why there is none.
        outcome: Result<Arc<Plan>, Failure>,
    },
    /// A person wants what was done to be taken back.
    RollBack {
        /// Who.
        by: Arc<str>,
    },
    /// The run was read from its journal, and nothing of it is under way.
    Resumed,
    /// The same, and the run is to end: that counts before anything of the way forward is worked out.
    ResumedToEnd {
        /// Who wants it.
        by: Arc<str>,
        /// Whether what was done is to be taken back, too.
        roll_back: bool,
    },
    /// The run was paused, or an evaluation that took too long was stopped: it goes on.
    Proceed,
    /// A time has come.
    TimerFired(TimerId),
    /// Somebody wants the run to end.
    Cancel {
        /// Who.
        by: Arc<str>,
    },
}

/// How a call was answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With a value.
    Value(Value),
    /// With a failure.
    Failure(Failure),
    /// Not within its time.
    TimedOut,
    /// It was ended before it answered.
    Aborted,
    /// It was ended before it was sent, so it has surely done nothing.
    Unsent,
}

/// What to do. Each is done only after the turn's record is durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Call a tool.
    Call(Call),
    /// Ask a call that is under way to start nothing more, and go on listening: it may write, and
    /// what it answers counts. One that has not been sent is not sent.
    Settle(CallId),
    /// End a call that is under way; its answer is awaited nevertheless.
    Abort(CallId),
    /// Ask a person.
    Ask(Question),
    /// Compile and plan a composition that was made at run time.
    Expand {
        /// The step that asks.
        node: NodeId,
        /// The composition, as it was made.
        document: Value,
    },
    /// Say when a time has come.
    SetTimer {
        /// What to say.
        timer: TimerId,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
}

/// A call to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name.
    pub id: CallId,
    /// The tool.
    pub tool: ToolId,
    /// Its arguments.
    pub args: Value,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// The same for every attempt of the same work, never for any other.
    pub key: Arc<str>,
    /// The step, with the bodies and iterations around it.
    pub step: Arc<str>,
    /// Counts from one.
    pub attempt: u32,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether calls that the tool's own code makes are allowed with it.
    pub covers_parts: bool,
    /// What it may overwrite.
    pub overwrites: Overwrites,
    /// What finds the call, when it was made before and its answer is still wanted: nothing is sent
    /// again.
    pub resume_handle: Option<Value>,
}

/// What a call may overwrite. Whether a call asks is decided before it waits for its turn: what appears
/// meanwhile must not be overwritten by a call that nobody was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Overwrites {
    /// Everything: a person said yes to the call, or nobody has to.
    #[default]
    Everything,
    /// What these patterns cover, and nothing else: nobody was asked.
    Only(Vec<Arc<str>>),
}

impl Overwrites {
    /// Everything if the call is allowed, nothing if nobody was asked about it.
    pub fn if_allowed(is_allowed: bool) -> Overwrites {
        if is_allowed { Overwrites::Everything } else { Overwrites::Only(Vec::new()) }
    }
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The step's own work.
    Work,
    /// Taking the step back.
    Rollback,
    /// Finding out whether a call in doubt did its work.
    Probe,
}

/// Names a question to a person.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct QuestionId {
    /// The step that asks.
    pub node: NodeId,
    /// The number of the entry with which it asked.
    pub seq: u64,
}

impl QuestionId {
    /// A question that a call asks by itself: no entry of the journal asks it, and none answers it.
    pub fn of_call(node: NodeId) -> QuestionId {
        QuestionId { node, seq: u64::MAX }
    }

    /// Whether the journal has an entry with the question, and gets one with its answer.
    pub fn is_in_journal(self) -> bool {
        self.seq != u64::MAX
    }
}

/// A question to a person.
#[derive(Clone, Debug)]
pub struct Question {
    /// Its name.
    pub id: QuestionId,
    /// The step, with the bodies and iterations around it.
    pub step: Arc<str>,
    /// What is asked.
    pub kind: QuestionKind,
}

/// A call that would take a step back, once there may be nobody to ask about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RollbackCall {
    /// The tool.
    pub tool: ToolId,
    /// What it would be called with, as it is written.
    pub args: Value,
    /// What that does to the world.
    pub effect: Impact,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum QuestionKind {
    /// Whether an atomic composition may run: one yes for all that it calls.
    Run {
        /// Its name.
        composition: Arc<str>,
        /// What it would run with.
        input: Value,
        /// What it may call.
        calls: Vec<DeclaredCall>,
    },
    /// Whether a tool may be called.
    Call {
        /// The tool.
        tool: ToolId,
        /// What it would be called with.
        args: Value,
        /// What that does to the world.
        effect: Impact,
        /// Whether that can be taken back.
        can_roll_back: bool,
        /// What it may call in turn: its own code, or the steps of an atomic composition.
        parts: Vec<DeclaredCall>,
        /// What would take it back, where that is asked for too.
        rollback: Option<RollbackCall>,
    },
    /// What an `approve` step wants to know.
    Approval {
        /// Its words.
        message: Arc<str>,
        /// What data belongs to a yes.
        schema: Option<Arc<Schema>>,
    },
    /// Whether a call that was never answered did its work.
    Doubt {
        /// The tool.
        tool: ToolId,
        /// What it was called with.
        args: Value,
        /// Why nobody knows.
        message: Arc<str>,
    },
}

/// A journal that no run can have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq} of the journal does not follow from those before it")]
pub struct ReplayError {
    /// The first entry that does not fit.
    pub seq: u64,
}

/// One answer of the machine.
#[derive(Debug, Default)]
pub struct Turn {
    /// To be written down first.
    pub record: Vec<Entry>,
    /// To be done then.
    pub perform: Vec<Effect>,
}

impl Run {
    /// A run that has not begun.
    pub fn new(plan: Arc<Plan>, limits: Arc<Limits>) -> Run {
        Run { state: RunState::new(plan), limits, interrupt: Interrupt::default() }
    }

    /// The run that wrote this journal. A journal that no run can have written is refused.
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

    /// Hides texts that nobody may see, though no composition says so of them: of this run they are not
    /// written down either.
    pub fn redact_texts(&mut self, texts: impl IntoIterator<Item = String>) {
        self.state.add_secret_texts(texts.into_iter().collect());
    }

    /// Takes in what happened, and says what to write down and what to do.
    pub fn handle(&mut self, event: Event) -> Turn {
        let mut turn = Turn::default();
        self.handle_into(event, &mut turn);
        turn
    }

    /// The same in a turn with what happened before it: everything is written before anything of it
    /// is done.
    pub fn handle_into(&mut self, event: Event, turn: &mut Turn) {
        let mut builder = advance::TurnBuilder {
            state: &mut self.state,
            limits: &self.limits,
            at_ms: event.at_ms,
            entropy: event.entropy,
            ends_on_resume: false,
            turn: std::mem::take(turn),
        };
        // A rollback cannot be cancelled: only its budgets end what it evaluates.
        let is_rolling_back = builder.state.is_rolling_back();
        let interrupt = if is_rolling_back { Interrupt::default() } else { self.interrupt.clone() };
        budget::interruptible(&interrupt, || builder.handle(event.kind));
        *turn = builder.turn;
    }

    /// The flag that stops this run's evaluations from another thread.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// How the run stands.
    pub fn status(&self) -> RunStatus {
        if self.is_waiting() { RunStatus::Waiting } else { self.state.status }
    }

    /// Whether nothing happens until a person answers.
    pub fn is_waiting(&self) -> bool {
        self.state.is_waiting()
    }

    /// The request that it belongs to; empty before it begins.
    pub fn request_id(&self) -> &str {
        self.state.started.as_ref().map_or("", |started| &started.request_id)
    }

    /// Its own id; empty before it begins.
    pub fn run_id(&self) -> &str {
        self.state.started.as_ref().map_or("", |started| &started.run_id)
    }

    /// Who began it, where somebody came in to do so.
    pub fn caller(&self) -> Option<&Caller> {
        self.state.started.as_ref()?.caller.as_ref()
    }

    /// The trace that it is told of in, if it is.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.state.started.as_ref()?.trace.as_ref()
    }

    /// When it began, in milliseconds since 1970.
    pub fn started_ms(&self) -> u64 {
        self.state.started_ms
    }

    /// The name of its composition.
    pub fn name(&self) -> &Arc<str> {
        &self.state.plan.composition.name
    }

    /// What the run was given: its input, and what its caller brought.
    pub fn input_and_context(&self) -> (&Value, &Value) {
        const NOTHING: &Value = &Value::Null;
        let started = self.state.started.as_ref();
        started.map_or((NOTHING, NOTHING), |started| (&started.input, &started.context))
    }

    /// The questions that stand.
    pub fn questions(&self) -> Vec<Question> {
        view::questions(&self.state).collect()
    }

    /// How many entries it has recorded.
    pub fn entry_count(&self) -> u64 {
        self.state.seq
    }

    /// Whether it may have values that are not written down.
    pub fn has_sensitive(&self) -> bool {
        self.state.has_sensitive
    }

    /// Whether a question still stands.
    pub fn has_open_question(&self, question: QuestionId) -> bool {
        let stands = match question.node {
            NodeId::RUN => self.state.consent_question(),
            node => view::question(&self.state, node),
        };
        stands.is_some_and(|stands| stands.id == question)
    }

    /// Entries of this run as they may be written down: without what is sensitive.
    pub fn redacted<'a>(&self, entries: &'a [Entry]) -> Cow<'a, [Entry]> {
        self.state.redacted(entries)
    }

    /// A value without the texts that must not be written down.
    pub fn redact_value(&self, value: &Value) -> Value {
        self.state.redact_value(value)
    }

    /// Who decided what in the journal of this run, and what it was.
    pub fn decisions(&self, journal: &[Entry]) -> Vec<DecisionView> {
        view::decisions(&self.state, journal)
    }

    /// Every attempt that the journal of this run tells of.
    pub fn attempts(&self, journal: &[Entry]) -> Vec<AttemptView> {
        attempts::attempts(&self.state, |node, candidate| self.tool_name(node, candidate), journal)
    }

    /// How a fact leaves its step, if it settles one. Every text and event takes it from here: a call
    /// that may have done its work is in doubt, and never cancelled.
    pub fn settled_status(&self, fact: &Fact) -> Option<StepStatus> {
        self.state.settled_status(fact)
    }

    /// The keys of the calls that were announced and are not answered.
    pub fn open_call_keys(&self) -> Vec<Arc<str>> {
        self.state.open_call_keys()
    }

    /// Whether nothing more happens.
    pub fn is_finished(&self) -> bool {
        !matches!(self.state.status, RunStatus::Pending | RunStatus::Running)
    }

    /// The run as every surface shows it.
    pub fn view(&self) -> RunView {
        view::run_view(&self.state)
    }

    /// The tool that a step calls, or the word for what it does. Candidate 0 is the tool itself,
    /// n the n-th fallback.
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

    /// What a step's tool is called with as it is written, before names have values.
    pub fn args_template(&self, node: NodeId, candidate: u16) -> Value {
        let step = self.state.step(node);
        match &step.kind {
            StepKind::Tool(_) => {
                advance::candidate_call(step, candidate).parameters.template.to_value()
            }
            _ => Value::Null,
        }
    }

    /// The step whose body this one is in.
    pub fn parent_step(&self, node: NodeId) -> Option<NodeId> {
        self.state.frame(node.frame).parent
    }

    /// The step's id with the bodies and iterations around it.
    pub fn path(&self, node: NodeId) -> Arc<str> {
        self.state.path(node)
    }
}
