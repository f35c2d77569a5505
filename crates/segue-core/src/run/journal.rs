//! The journal of a run: its entries in order. Replaying a journal applies its entries again.
//!
//! An entry is stored as JSON, and a fact as an object with one member, its name in snake case.
//! Stored entries stay readable forever: a new fact is a new variant, a new field has
//! `#[serde(default)]`, and stored names never change. Any other change raises [`JOURNAL_FORMAT`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::trace::TraceContext;
use crate::access::Caller;
use crate::composition::Strategy;
use crate::diagnostic::Code;
use crate::duration::Millis;
use crate::plan::{BodyIndex, Plan};
use crate::value::{Map, Shared, Value, from_value};
use crate::view::{PerformedPart, RunStatus};

/// The version of the journal format.
pub const JOURNAL_FORMAT: u32 = 1;

/// A step of a run: a position in one frame, the activation of a body. Stored as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct NodeId {
    /// The frame.
    pub frame: u32,
    /// The position in the body.
    pub position: u32,
}

impl From<(u32, u32)> for NodeId {
    fn from((frame, position): (u32, u32)) -> NodeId {
        NodeId { frame, position }
    }
}

impl From<NodeId> for (u32, u32) {
    fn from(node: NodeId) -> (u32, u32) {
        (node.frame, node.position)
    }
}

/// One entry of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from zero.
    pub seq: u64,
    /// Milliseconds since 1970, from the event.
    pub at_ms: u64,
    /// What happened.
    pub fact: Fact,
}

/// The parameters of a run. Ids are generated outside: the core draws no randomness.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// `req_…`
    pub request_id: Arc<str>,
    /// `plan_…`
    pub plan_id: Arc<str>,
    /// UUIDv4.
    pub chain_id: Arc<str>,
    /// The input, with defaults.
    pub input: Value,
    /// The caller's context.
    pub context: Value,
    /// Options that the caller sets.
    pub options: Options,
    /// The hash of the plan that the run is bound to.
    pub plan_hash: Option<Arc<str>>,
    /// The version of the engine that wrote the journal.
    pub engine: Arc<str>,
    /// The caller, if the run was started through a surface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// The trace of the run, so that a worker that resumes it continues the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The part of the composition that the run performs, unless it performs all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PerformedPart>,
}

/// Options that a caller may set for a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// For the whole run.
    pub timeout_ms: Option<Millis>,
    /// Steps at once.
    pub max_concurrency: Option<u32>,
    /// Overrides the composition's strategy.
    pub strategy: Option<Strategy>,
    /// Approves everything that would ask.
    pub approved: bool,
    /// Approves the calls that the plan declares: the answer to the consent question of an atomic
    /// composition. Undeclared calls are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub consented: bool,
    /// The composition belongs to the operator, so its `overwrites` apply.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vouched: bool,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub code: Code,
    /// The message.
    pub message: Arc<str>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Arc<str>>,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Whether the outcome of the tool's call is unknown.
    pub in_doubt: bool,
    /// Whether the tool did its work although the step failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acted: bool,
    /// The delay that the tool's source requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<Millis>,
}

impl Entry {
    /// Reads an entry from its stored form. Its values are shared with `written`.
    pub fn from_value(written: &Value) -> Result<Entry, String> {
        from_value(written).map_err(|error| error.to_string())
    }
}

impl Failure {
    /// A failure that a retry does not help.
    pub fn permanent(code: Code, message: impl Into<Arc<str>>) -> Failure {
        Failure {
            code,
            message: message.into(),
            hint: None,
            retryable: false,
            in_doubt: false,
            acted: false,
            retry_after_ms: None,
        }
    }

    /// Whether it may have side effects that must be rolled back.
    pub fn may_have_acted(&self) -> bool {
        self.in_doubt || self.acted
    }

    /// Whether `continue` does not cover it: a denial, or a call in doubt.
    pub fn is_final(&self) -> bool {
        self.code == Code::Denied || self.in_doubt
    }

    /// A failure that a retry may help.
    pub fn transient(code: Code, message: impl Into<Arc<str>>) -> Failure {
        Failure { retryable: true, ..Failure::permanent(code, message) }
    }
}

/// The item of one iteration of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopItem {
    /// The item.
    pub value: Value,
    /// Counts from zero.
    pub index: usize,
    /// The number of items.
    pub length: usize,
}

/// A fact: something that happened in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The run started.
    Started(Box<Started>),
    /// A step opened one of its bodies.
    Opened {
        /// The step.
        node: NodeId,
        /// The body.
        body: BodyIndex,
        /// The item, in a loop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<LoopItem>,
    },
    /// A step entered the composition that it calls.
    Entered {
        /// The step.
        node: NodeId,
        /// 0 for the tool itself, n for the n-th fallback.
        candidate: u16,
        /// The composition's input.
        input: Value,
    },
    /// A loop has its items.
    Looped {
        /// The step.
        node: NodeId,
        /// The items.
        items: Shared<Vec<Value>>,
    },
    /// The whole run waits for consent.
    ConsentAsked,
    /// A person gave consent to the whole run.
    Consented {
        /// The person.
        by: Arc<str>,
    },
    /// A call waits for confirmation.
    Asked {
        /// The step.
        node: NodeId,
        /// 0 for the tool itself, n for the n-th fallback.
        candidate: u16,
        /// Its arguments.
        args: Value,
    },
    /// A person confirmed it.
    Granted {
        /// The step.
        node: NodeId,
        /// The person.
        by: Arc<str>,
    },
    /// A person refused. The following facts record the consequence.
    Refused {
        /// The step; `None` if the question was for the whole run.
        node: Option<NodeId>,
        /// The person.
        by: Arc<str>,
    },
    /// A cancellation was requested.
    CancelAsked {
        /// The requester.
        by: Arc<str>,
    },
    /// A call was recorded. It is sent only after this entry is durable.
    Called {
        /// The step.
        node: NodeId,
        /// 0 for the tool itself, n for the n-th fallback.
        candidate: u16,
        /// Its arguments.
        args: Value,
    },
    /// The tool's source returned a handle of a running call, by which the call can be found again.
    #[serde(rename = "followed")]
    HandleReceived {
        /// The step.
        node: NodeId,
        /// The handle.
        handle: Value,
    },
    /// The engine stopped during such a call, and asks the source for it by its handle.
    #[serde(rename = "sought")]
    ResumeSent {
        /// The step.
        node: NodeId,
    },
    /// An `expand` step has its compiled plan.
    Expanded {
        /// The step.
        node: NodeId,
        /// The plan that runs in its place; stored as its bundle.
        #[serde(with = "bundled")]
        plan: Arc<Plan>,
        /// The composition's input.
        input: Value,
    },
    /// An `expand` step requested the compilation of its composition.
    Expanding {
        /// The step.
        node: NodeId,
        /// The composition, as an earlier step made it.
        document: Value,
    },
    /// A program continues with this step.
    Visited {
        /// The frame.
        frame: u32,
        /// The step's position in the body.
        position: u32,
    },
    /// The outcome of a call is unknown, and the step's probe is called.
    Probed {
        /// The step.
        node: NodeId,
        /// The reason.
        failure: Arc<Failure>,
        /// The arguments of the probe.
        args: Value,
    },
    /// The outcome of a call is unknown, and a person is asked.
    Doubted {
        /// The step.
        node: NodeId,
        /// The reason.
        failure: Arc<Failure>,
    },
    /// A probe or a person resolved the outcome of a call.
    Resolved {
        /// The step.
        node: NodeId,
        /// Whether the call did its work.
        done: bool,
        /// The probe or the person.
        by: Arc<str>,
    },
    /// The engine stopped during a call that may be repeated.
    Lost {
        /// The step.
        node: NodeId,
    },
    /// An attempt failed and will be repeated after a delay.
    #[serde(rename = "rested")]
    BackedOff {
        /// The step.
        node: NodeId,
        /// The failure.
        failure: Arc<Failure>,
        /// Start of the next attempt.
        until_ms: u64,
    },
    /// The delay of a step is over.
    Woke {
        /// The step.
        node: NodeId,
    },
    /// Every attempt of a tool failed; a fallback follows.
    GaveUp {
        /// The step.
        node: NodeId,
        /// The last failure.
        failure: Arc<Failure>,
    },
    /// A `repeat` waits between two rounds.
    Paused {
        /// The step.
        node: NodeId,
        /// End of the delay.
        until_ms: u64,
    },
    /// A `wait` step started.
    Slept {
        /// The step.
        node: NodeId,
        /// End of the wait.
        until_ms: u64,
    },
    /// A step succeeded.
    Succeeded {
        /// The step.
        node: NodeId,
        /// Its value.
        output: Value,
        /// Names that it set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Shared<Map>>,
    },
    /// A step reuses its value of an earlier run; nothing was called.
    Reused {
        /// The step.
        node: NodeId,
        /// Its value.
        output: Value,
        /// Names that it set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Shared<Map>>,
    },
    /// The value of a step was given; nothing was called.
    Pinned {
        /// The step.
        node: NodeId,
        /// Its value.
        output: Value,
        /// Names that it set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Shared<Map>>,
    },
    /// A step is not part of this run.
    LeftOut {
        /// The step.
        node: NodeId,
    },
    /// A step failed, and `continue` covers the failure.
    Tolerated {
        /// The step.
        node: NodeId,
        /// The failure.
        failure: Arc<Failure>,
        /// The default value.
        output: Value,
    },
    /// A step failed for good.
    Failed {
        /// The step.
        node: NodeId,
        /// The failure.
        failure: Arc<Failure>,
    },
    /// A step will not run.
    Skipped {
        /// The step.
        node: NodeId,
        /// The reason.
        reason: Arc<str>,
        /// Whether a failure is the reason: then steps that depend on this one are skipped too.
        by_failure: bool,
    },
    /// A step was stopped.
    Cancelled {
        /// The step.
        node: NodeId,
        /// Whether its tool may have done its work nevertheless.
        in_doubt: bool,
    },
    /// The bodies of a step timed out, and are stopped.
    TimedOut {
        /// The step.
        node: NodeId,
        /// The failure that it ends with.
        failure: Arc<Failure>,
    },
    /// The failure of a step is decided before its bodies are over.
    FailureDecided {
        /// The step.
        node: NodeId,
        /// The failure that it ends with.
        failure: Arc<Failure>,
    },
    /// Nothing new starts in this frame.
    Stopped {
        /// The frame.
        frame: u32,
        /// The reason.
        failure: Arc<Failure>,
    },
    /// Every step of a frame is settled.
    Closed {
        /// The frame.
        frame: u32,
        /// Whether one of its steps failed.
        failed: bool,
        /// Whether that is a failure that `continue` does not cover.
        is_final: bool,
    },
    /// A rollback was requested.
    RollbackAsked {
        /// The requester.
        by: Arc<str>,
    },
    /// A rollback started, because of this failure.
    RollbackStarted {
        /// The frame of the composition that is rolled back.
        frame: u32,
        /// The cause.
        failure: Arc<Failure>,
        /// The steps to roll back, in this order.
        steps: Vec<NodeId>,
    },
    /// An attempt of a step with bodies failed, and is rolled back before the next one.
    AttemptRollbackStarted {
        /// The step.
        node: NodeId,
        /// The failure of the attempt.
        failure: Arc<Failure>,
        /// The steps to roll back, in this order.
        steps: Vec<NodeId>,
    },
    /// The call that rolls a step back was recorded.
    #[serde(rename = "undo_called")]
    RollbackCalled {
        /// The step.
        node: NodeId,
        /// Its arguments.
        args: Value,
    },
    /// A composition that rolls a step back was entered.
    #[serde(rename = "undo_entered")]
    RollbackEntered {
        /// The step.
        node: NodeId,
        /// The composition's input.
        input: Value,
    },
    /// A rollback attempt failed and will be repeated after a delay.
    #[serde(rename = "undo_rested")]
    RollbackBackedOff {
        /// The step.
        node: NodeId,
        /// The failure.
        failure: Arc<Failure>,
        /// Start of the next attempt.
        until_ms: u64,
    },
    /// A step was rolled back.
    #[serde(rename = "undone")]
    RolledBack {
        /// The step.
        node: NodeId,
    },
    /// A step was not rolled back.
    #[serde(rename = "undo_failed")]
    RollbackFailed {
        /// The step.
        node: NodeId,
        /// The reason.
        failure: Arc<Failure>,
    },
    /// References in a step's arguments have no value, and stay as written.
    #[serde(rename = "kept")]
    ReferencesKept {
        /// The step.
        node: NodeId,
        /// The references, braces included.
        references: Vec<Arc<str>>,
    },
    /// An answer came too late; it changes nothing.
    #[serde(rename = "late")]
    AnsweredLate {
        /// The step.
        node: NodeId,
        /// The attempt that it answers.
        attempt: u32,
    },
    /// The run is over.
    Finished {
        /// Its status.
        status: RunStatus,
        /// Its result.
        output: Value,
        /// The failure of the run as a whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Arc<Failure>>,
    },
}

impl Fact {
    /// Whether it settles something. A run that only repeats calls, asks for them by handle or asks
    /// questions makes no progress.
    pub fn is_progress(&self) -> bool {
        match self {
            Fact::Consented { .. }
            | Fact::Granted { .. }
            | Fact::Refused { .. }
            | Fact::CancelAsked { .. }
            | Fact::Expanded { .. }
            | Fact::Resolved { .. }
            | Fact::BackedOff { .. }
            | Fact::GaveUp { .. }
            | Fact::Succeeded { .. }
            | Fact::Reused { .. }
            | Fact::Pinned { .. }
            | Fact::LeftOut { .. }
            | Fact::Tolerated { .. }
            | Fact::Failed { .. }
            | Fact::Skipped { .. }
            | Fact::Cancelled { .. }
            | Fact::TimedOut { .. }
            | Fact::FailureDecided { .. }
            | Fact::AttemptRollbackStarted { .. }
            | Fact::Stopped { .. }
            | Fact::Closed { .. }
            | Fact::RollbackAsked { .. }
            | Fact::RollbackStarted { .. }
            | Fact::RollbackBackedOff { .. }
            | Fact::RolledBack { .. }
            | Fact::RollbackFailed { .. }
            | Fact::Finished { .. } => true,
            Fact::Started(_)
            | Fact::Opened { .. }
            | Fact::Entered { .. }
            | Fact::Looped { .. }
            | Fact::ConsentAsked
            | Fact::Asked { .. }
            | Fact::Called { .. }
            | Fact::HandleReceived { .. }
            | Fact::ResumeSent { .. }
            | Fact::Expanding { .. }
            | Fact::Visited { .. }
            | Fact::Probed { .. }
            | Fact::Doubted { .. }
            | Fact::Lost { .. }
            | Fact::Woke { .. }
            | Fact::Paused { .. }
            | Fact::Slept { .. }
            | Fact::RollbackCalled { .. }
            | Fact::RollbackEntered { .. }
            | Fact::ReferencesKept { .. }
            | Fact::AnsweredLate { .. } => false,
        }
    }

    /// The step that it is about, if any.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Fact::Opened { node, .. }
            | Fact::Entered { node, .. }
            | Fact::Expanding { node, .. }
            | Fact::Expanded { node, .. }
            | Fact::Looped { node, .. }
            | Fact::Asked { node, .. }
            | Fact::Granted { node, .. }
            | Fact::Called { node, .. }
            | Fact::HandleReceived { node, .. }
            | Fact::ResumeSent { node }
            | Fact::Probed { node, .. }
            | Fact::Doubted { node, .. }
            | Fact::Resolved { node, .. }
            | Fact::Lost { node }
            | Fact::BackedOff { node, .. }
            | Fact::Woke { node }
            | Fact::GaveUp { node, .. }
            | Fact::Paused { node, .. }
            | Fact::Slept { node, .. }
            | Fact::Succeeded { node, .. }
            | Fact::Reused { node, .. }
            | Fact::Pinned { node, .. }
            | Fact::LeftOut { node }
            | Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Skipped { node, .. }
            | Fact::Cancelled { node, .. }
            | Fact::TimedOut { node, .. }
            | Fact::FailureDecided { node, .. }
            | Fact::AttemptRollbackStarted { node, .. }
            | Fact::RollbackCalled { node, .. }
            | Fact::RollbackEntered { node, .. }
            | Fact::RollbackBackedOff { node, .. }
            | Fact::RolledBack { node }
            | Fact::RollbackFailed { node, .. }
            | Fact::ReferencesKept { node, .. }
            | Fact::AnsweredLate { node, .. } => Some(*node),
            Fact::Refused { node, .. } => *node,
            Fact::Started(_)
            | Fact::ConsentAsked
            | Fact::Consented { .. }
            | Fact::CancelAsked { .. }
            | Fact::Visited { .. }
            | Fact::Stopped { .. }
            | Fact::Closed { .. }
            | Fact::RollbackAsked { .. }
            | Fact::RollbackStarted { .. }
            | Fact::Finished { .. } => None,
        }
    }

    /// The frame that it is about, if any.
    pub fn frame(&self) -> Option<u32> {
        match self {
            Fact::Visited { frame, .. }
            | Fact::Stopped { frame, .. }
            | Fact::Closed { frame, .. }
            | Fact::RollbackStarted { frame, .. } => Some(*frame),
            other => other.node().map(|node| node.frame),
        }
    }
}

/// Stores a plan inside an entry as the bundle that it is compiled from.
mod bundled {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::limits::Limits;
    use crate::plan::Plan;
    use crate::plan::bundle::unbundle;

    pub(super) fn serialize<S: Serializer>(plan: &Arc<Plan>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&plan.bundle())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Plan>, D::Error> {
        let text = Arc::<str>::deserialize(from)?;
        unbundle(&text, &Limits::default()).map_err(serde::de::Error::custom)
    }
}
