//! What became true of a run, in order. A journal is replayed by applying its entries again.
//!
//! Written down, an entry is JSON, and a fact is an object with one member: its name in snake case.
//! What was written once is read for ever: a new fact is a new variant, a new field has
//! `#[serde(default)]`, and nothing is renamed. What cannot be done so raises [`JOURNAL_FORMAT`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::trace::TraceContext;
use crate::access::Caller;
use crate::composition::Strategy;
use crate::diagnostic::Code;
use crate::duration::Millis;
use crate::plan::{BodyIndex, Plan};
use crate::value::{Map, Shared, Value, from_value};
use crate::view::RunStatus;

/// The number of the form in which entries are written down.
pub const JOURNAL_FORMAT: u32 = 1;

/// A step of a run: a position in one activation of a body. Written as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct NodeId {
    /// The activation of the body.
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

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from zero.
    pub seq: u64,
    /// Milliseconds since 1970, as the event said.
    pub at_ms: u64,
    /// What became true.
    pub fact: Fact,
}

/// What a run is started with. Ids are made outside: the core draws nothing.
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
    /// The input, defaults filled in.
    pub input: Value,
    /// What the caller brought.
    pub context: Value,
    /// What the caller asked for beyond the composition.
    pub options: Options,
    /// The hash of the plan that the run is bound to.
    pub plan_hash: Option<Arc<str>>,
    /// The version of this engine, so that a journal says who wrote it.
    pub engine: Arc<str>,
    /// Who began it, where somebody came in to do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// The trace that the run is told of in, so that whoever goes on with it stays in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// What a caller may ask for beyond the composition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// For the whole run.
    pub timeout_ms: Option<Millis>,
    /// Steps at once.
    pub max_concurrency: Option<u32>,
    /// In place of the composition's own.
    pub strategy: Option<Strategy>,
    /// Consent to everything that would ask.
    pub approved: bool,
    /// Consent to the calls that the plan declares: the answer to the one question of an atomic
    /// composition. What is not declared is refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub consented: bool,
    /// The composition is the operator's: what it says of files that it may overwrite counts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vouched: bool,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub code: Code,
    /// What went wrong.
    pub message: Arc<str>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Arc<str>>,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Whether nobody knows if the tool did its work.
    pub in_doubt: bool,
    /// Whether the tool surely did its work, although the step failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acted: bool,
    /// How long the tool's source asked to be left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<Millis>,
}

impl Entry {
    /// The entry that was written down so. Its values are shared with `written`.
    pub fn from_value(written: &Value) -> Result<Entry, String> {
        from_value(written).map_err(|error| error.to_string())
    }
}

impl Failure {
    /// A failure that no retry mends.
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

    /// Whether it may have left something behind that is to be taken back.
    pub fn may_have_acted(&self) -> bool {
        self.in_doubt || self.acted
    }

    /// Whether nobody may continue over it: a denial, or a call in doubt.
    pub fn is_final(&self) -> bool {
        self.code == Code::Denied || self.in_doubt
    }

    /// A failure that may pass.
    pub fn transient(code: Code, message: impl Into<Arc<str>>) -> Failure {
        Failure { retryable: true, ..Failure::permanent(code, message) }
    }
}

/// The item of one round of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopItem {
    /// The item.
    pub value: Value,
    /// Counts from zero.
    pub index: usize,
    /// How many there are.
    pub length: usize,
}

/// What became true.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The run began.
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
    /// The whole run waits for a yes.
    ConsentAsked,
    /// Somebody has allowed the whole run.
    Consented {
        /// Who.
        by: Arc<str>,
    },
    /// A call waits for a yes.
    Asked {
        /// The step.
        node: NodeId,
        /// 0 for the tool itself, n for the n-th fallback.
        candidate: u16,
        /// What it would be called with.
        args: Value,
    },
    /// Somebody said yes.
    Granted {
        /// The step.
        node: NodeId,
        /// Who.
        by: Arc<str>,
    },
    /// Somebody said no. What follows from it is said by what comes after this.
    Refused {
        /// The step; none when the whole run was asked for.
        node: Option<NodeId>,
        /// Who.
        by: Arc<str>,
    },
    /// Somebody wants the run to end.
    CancelAsked {
        /// Who.
        by: Arc<str>,
    },
    /// A call was announced. It leaves only after this is durable.
    Called {
        /// The step.
        node: NodeId,
        /// 0 for the tool itself, n for the n-th fallback.
        candidate: u16,
        /// What it is called with.
        args: Value,
    },
    /// Whoever was called works on it under a name of its own, by which it can be found again.
    #[serde(rename = "followed")]
    HandleReceived {
        /// The step.
        node: NodeId,
        /// What it takes to find it.
        handle: Value,
    },
    /// The engine stopped while such a call was under way; it is looked for.
    #[serde(rename = "sought")]
    ResumeSent {
        /// The step.
        node: NodeId,
    },
    /// A step that makes its own composition has it, checked.
    Expanded {
        /// The step.
        node: NodeId,
        /// What is run in its place; written as its bundle.
        #[serde(with = "bundled")]
        plan: Arc<Plan>,
        /// The composition's input.
        input: Value,
    },
    /// A step wants the composition that it was given to be checked.
    Expanding {
        /// The step.
        node: NodeId,
        /// The composition, as it was made.
        document: Value,
    },
    /// A program goes on with this step.
    Visited {
        /// The activation.
        frame: u32,
        /// The step's position in the body.
        position: u32,
    },
    /// Nobody knows whether a call did its work, and the step's probe is asked.
    Probed {
        /// The step.
        node: NodeId,
        /// Why nobody knows.
        failure: Arc<Failure>,
        /// What the probe is called with.
        args: Value,
    },
    /// Nobody knows whether a call did its work: a person is asked.
    Doubted {
        /// The step.
        node: NodeId,
        /// Why nobody knows.
        failure: Arc<Failure>,
    },
    /// Somebody found out whether a call did its work.
    Resolved {
        /// The step.
        node: NodeId,
        /// Whether it did.
        done: bool,
        /// Who found out.
        by: Arc<str>,
    },
    /// The engine stopped while a call was under way that may be made again.
    Lost {
        /// The step.
        node: NodeId,
    },
    /// An attempt failed and will be repeated.
    #[serde(rename = "rested")]
    BackedOff {
        /// The step.
        node: NodeId,
        /// Why it failed.
        failure: Arc<Failure>,
        /// When the next one begins.
        until_ms: u64,
    },
    /// A step has rested and waits for its turn.
    Woke {
        /// The step.
        node: NodeId,
    },
    /// Every attempt of a tool failed; a fallback follows.
    GaveUp {
        /// The step.
        node: NodeId,
        /// Why the last one failed.
        failure: Arc<Failure>,
    },
    /// A `repeat` rests between two rounds.
    Paused {
        /// The step.
        node: NodeId,
        /// Until when.
        until_ms: u64,
    },
    /// A step waits until a time.
    Slept {
        /// The step.
        node: NodeId,
        /// Until when.
        until_ms: u64,
    },
    /// A step has its value.
    Succeeded {
        /// The step.
        node: NodeId,
        /// Its value.
        output: Value,
        /// Names that it gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Shared<Map>>,
    },
    /// A step has the value that it had in an earlier run; nothing was done for it.
    Reused {
        /// The step.
        node: NodeId,
        /// Its value.
        output: Value,
        /// Names that it gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Shared<Map>>,
    },
    /// A step failed, and its author had a value ready for that.
    Tolerated {
        /// The step.
        node: NodeId,
        /// How it failed.
        failure: Arc<Failure>,
        /// The value that stands in.
        output: Value,
    },
    /// A step failed for good.
    Failed {
        /// The step.
        node: NodeId,
        /// How.
        failure: Arc<Failure>,
    },
    /// A step will not run.
    Skipped {
        /// The step.
        node: NodeId,
        /// Why.
        reason: Arc<str>,
        /// Whether a failure is the reason: then what waits for this step is skipped too.
        by_failure: bool,
    },
    /// A step was stopped.
    Cancelled {
        /// The step.
        node: NodeId,
        /// Whether its tool may have done its work nevertheless.
        in_doubt: bool,
    },
    /// The bodies of a step took longer than they may, and are ended.
    TimedOut {
        /// The step.
        node: NodeId,
        /// The failure that it ends with.
        failure: Arc<Failure>,
    },
    /// Nothing new starts in this activation of a body.
    Stopped {
        /// The activation.
        frame: u32,
        /// Why.
        failure: Arc<Failure>,
    },
    /// Every step of an activation is settled.
    Closed {
        /// The activation.
        frame: u32,
        /// Whether one of its steps failed.
        failed: bool,
        /// Whether that is a failure which nobody may continue over.
        is_final: bool,
    },
    /// A person wants what was done to be taken back.
    RollbackAsked {
        /// Who.
        by: Arc<str>,
    },
    /// What was done is taken back, because of this failure.
    RollbackStarted {
        /// The activation of the composition that is taken back.
        frame: u32,
        /// The first cause.
        failure: Arc<Failure>,
        /// What is to be taken back, in this order.
        steps: Vec<NodeId>,
    },
    /// The call that takes a step back was announced.
    #[serde(rename = "undo_called")]
    RollbackCalled {
        /// The step.
        node: NodeId,
        /// What it is called with.
        args: Value,
    },
    /// A step is taken back by a composition, which was entered.
    #[serde(rename = "undo_entered")]
    RollbackEntered {
        /// The step.
        node: NodeId,
        /// The composition's input.
        input: Value,
    },
    /// An attempt to take a step back failed and will be repeated.
    #[serde(rename = "undo_rested")]
    RollbackBackedOff {
        /// The step.
        node: NodeId,
        /// Why it failed.
        failure: Arc<Failure>,
        /// When the next one begins.
        until_ms: u64,
    },
    /// A step was taken back.
    #[serde(rename = "undone")]
    RolledBack {
        /// The step.
        node: NodeId,
    },
    /// A step was not taken back.
    #[serde(rename = "undo_failed")]
    RollbackFailed {
        /// The step.
        node: NodeId,
        /// Why not.
        failure: Arc<Failure>,
    },
    /// References in a step's arguments have no value, and stay as they were written.
    #[serde(rename = "kept")]
    ReferencesKept {
        /// The step.
        node: NodeId,
        /// The references, braces included.
        references: Vec<Arc<str>>,
    },
    /// An answer came after nobody waited for it any more; it changes nothing.
    #[serde(rename = "late")]
    AnsweredLate {
        /// The step.
        node: NodeId,
        /// The attempt that it answers.
        attempt: u32,
    },
    /// The run is over.
    Finished {
        /// How.
        status: RunStatus,
        /// Its result.
        output: Value,
        /// What went wrong with the run as a whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Arc<Failure>>,
    },
}

impl Fact {
    /// Whether it settles something: a run that only begins calls again, looks for them or asks about
    /// them is where it was.
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
            | Fact::Tolerated { .. }
            | Fact::Failed { .. }
            | Fact::Skipped { .. }
            | Fact::Cancelled { .. }
            | Fact::TimedOut { .. }
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

    /// The step that it is about.
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
            | Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Skipped { node, .. }
            | Fact::Cancelled { node, .. }
            | Fact::TimedOut { node, .. }
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

    /// The activation that it is about, when it is about one.
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

/// A plan inside an entry is written as the bundle that it is compiled from again.
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
