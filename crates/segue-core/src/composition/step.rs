//! Steps: their kinds, calls, bodies, retries and rollback.

use std::sync::Arc;

use serde::Serialize;

use super::{Backoff, Body};
use crate::composition::tool::ToolSpec;
use crate::duration::Millis;
use crate::expr::{Expr, StepIndex, Template};
use crate::schema::Schema;
use crate::source::Span;

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its position in the text, bodies included; references and plans use it.
    pub index: StepIndex,
    /// Unique in the composition.
    pub id: Arc<str>,
    /// The span of the id, or of the step when it has none.
    pub id_span: Span,
    /// The whole step.
    pub span: Span,
    /// What it does.
    pub kind: StepKind,
    /// Explicit `depends_on` entries.
    pub depends_on: Vec<(Arc<str>, Span)>,
    /// All steps that must finish first: by reference, by `depends_on` or by order. Positions in
    /// its own body.
    pub needs: Vec<Need>,
    /// Whether to run it at all.
    pub when: Option<Expr>,
    /// The name of its value, with its span.
    pub output_key: Option<(Arc<str>, Span)>,
    /// For one attempt.
    pub timeout_ms: Option<Millis>,
    /// How often it is tried again.
    pub retry: Retry,
    /// Whether an answer counts as success.
    pub success_when: Option<Expr>,
    /// Whether an answer counts as failure.
    pub fail_when: Option<Expr>,
    /// Tools to try when all attempts failed.
    pub fallback: Vec<ToolCall>,
    /// What happens after success.
    pub on_success: OnSuccess,
    /// What happens after failure.
    pub on_failure: OnFailure,
    /// The rollback as written.
    pub rollback: StepRollback,
    /// Whether the author says that calling it twice is harmless.
    pub idempotent: Option<bool>,
    /// The effective rollback: the author's, else the tool's; set by `check`.
    pub resolved_rollback: ResolvedRollback,
    /// The same for each fallback.
    pub fallback_rollbacks: Vec<ResolvedRollback>,
    /// How to find out whether an unanswered call did its work.
    pub probe: Option<Probe>,
    /// JSON Pointers to values that must never be stored.
    pub sensitive: Vec<Arc<str>>,
    /// Whether a program enters it in sequence although only failures jump to it.
    pub falls_through: bool,
}

impl Step {
    /// Every call that the step itself may make: its tool, its fallbacks, its rollback, its probe.
    pub fn calls(&self) -> Vec<&ToolCall> {
        let tool = match &self.kind {
            StepKind::Tool(call) => Some(call),
            _ => None,
        };
        let rollback = match &self.rollback {
            StepRollback::Call(call) => Some(call),
            _ => None,
        };
        let probe = self.probe.as_ref().map(|probe| &probe.call);
        // The author's rollback call is included. A rollback that a tool declares was checked with
        // that tool.
        tool.into_iter().chain(&self.fallback).chain(rollback).chain(probe).collect()
    }
}

/// A step that must finish before another starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Position in the same body.
    pub position: usize,
    /// Whether the step reads its value without a `default(…)`: then a skipped need skips the step
    /// too.
    pub reads_value: bool,
    /// Whether the step refers to it. Otherwise only `depends_on` names it.
    pub is_reference: bool,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum StepKind {
    /// Calls a tool.
    Tool(ToolCall),
    /// Runs branches together.
    Parallel {
        /// The branches.
        branches: Vec<Branch>,
        /// Which branches must finish.
        wait_for: WaitFor,
    },
    /// Runs a body once per item.
    Loop(Box<LoopStep>),
    /// Runs a body until a condition holds.
    Repeat(Box<RepeatStep>),
    /// Runs the first body whose condition holds.
    Choose {
        /// In order.
        cases: Vec<Case>,
        /// The `otherwise` body, if no condition holds.
        otherwise: Option<Body>,
    },
    /// Names for later steps.
    Set(Vec<(Arc<str>, Template)>),
    /// Asks a person.
    Approve {
        /// The question.
        message: Template,
        /// JSON Schema of the answer's data.
        schema: Option<Arc<Schema>>,
        /// How long to wait for an answer.
        timeout_ms: Option<Millis>,
        /// The answer when the time is over.
        on_timeout: OnApprovalTimeout,
    },
    /// Waits.
    Wait {
        /// The duration: milliseconds or text such as `30s`, evaluated at run time.
        duration: Template,
    },
    /// Runs a composition that an earlier step made.
    Expand(Template),
}

impl StepKind {
    /// Its keyword in the language.
    pub fn keyword(&self) -> &'static str {
        match self {
            StepKind::Tool(_) => "tool",
            StepKind::Parallel { .. } => "parallel",
            StepKind::Loop(_) => "loop",
            StepKind::Repeat(_) => "repeat",
            StepKind::Choose { .. } => "choose",
            StepKind::Set(_) => "set",
            StepKind::Approve { .. } => "approve",
            StepKind::Wait { .. } => "wait",
            StepKind::Expand(_) => "expand",
        }
    }

    /// The nested bodies, in the order of the text.
    pub fn bodies(&self) -> Vec<&Body> {
        match self {
            StepKind::Parallel { branches, .. } => branches.iter().map(|b| &b.body).collect(),
            StepKind::Loop(each) => vec![&each.body],
            StepKind::Repeat(repeat) => vec![&repeat.body],
            StepKind::Choose { cases, otherwise } => {
                cases.iter().map(|case| &case.body).chain(otherwise).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The nested bodies, mutable.
    pub fn bodies_mut(&mut self) -> Vec<&mut Body> {
        match self {
            StepKind::Parallel { branches, .. } => {
                branches.iter_mut().map(|b| &mut b.body).collect()
            }
            StepKind::Loop(each) => vec![&mut each.body],
            StepKind::Repeat(repeat) => vec![&mut repeat.body],
            StepKind::Choose { cases, otherwise } => {
                cases.iter_mut().map(|case| &mut case.body).chain(otherwise).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// As written.
    pub name: Arc<str>,
    /// The span of the name.
    pub name_span: Span,
    /// The resolved tool; set by `check`.
    pub tool: Option<Arc<ToolSpec>>,
    /// Its arguments.
    pub parameters: Params,
}

/// Arguments with their span.
#[derive(Clone, Debug)]
pub struct Params {
    /// An object, or one expression that gives an object.
    pub template: Template,
    /// The span of the arguments, or of the tool's name when there are none.
    pub span: Span,
}

/// A branch of `parallel`.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The branch's name in the result.
    pub id: Arc<str>,
    /// Its steps. A branch that is a step is a body of one.
    pub body: Body,
}

/// When `parallel` is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// All branches.
    #[default]
    All,
    /// The first that finishes.
    Any,
    /// The first that succeeds.
    FirstSuccess,
}

/// `loop`
#[derive(Clone, Debug)]
pub struct LoopStep {
    /// The array.
    pub over: Template,
    /// The item's name inside.
    pub item: Arc<str>,
    /// The steps for each item.
    pub body: Body,
    /// Each item's value; absent means the last step's.
    pub output: Option<Template>,
    /// Items at once.
    pub max_concurrency: u32,
    /// The maximum number of items.
    pub max_iterations: Option<u32>,
    /// Whether one failed item fails the loop.
    pub on_item_failure: ItemFailure,
}

/// What happens when an item fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemFailure {
    /// The loop fails.
    #[default]
    Stop,
    /// The item is null, and its failure is listed among the errors.
    Continue,
}

/// `repeat`
#[derive(Clone, Debug)]
pub struct RepeatStep {
    /// The steps of each round.
    pub body: Body,
    /// When to stop.
    pub until: Expr,
    /// Rounds at most.
    pub max_iterations: u32,
    /// Between rounds.
    pub delay_ms: Millis,
}

/// A case of `choose`.
#[derive(Clone, Debug)]
pub struct Case {
    /// The condition.
    pub when: Expr,
    /// The steps of the case.
    pub body: Body,
}

/// The answer to a question that times out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnApprovalTimeout {
    /// No.
    #[default]
    Deny,
    /// Yes.
    Approve,
}

/// Retries of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// Their number; `None` means the composition's.
    pub max: Option<u32>,
    /// Delays; `None` means the composition's.
    pub backoff: Option<Backoff>,
    /// Only after these codes; empty means after all retryable failures.
    pub on: Vec<crate::diagnostic::Code>,
}

/// What happens after success.
#[derive(Clone, Debug, Default)]
pub struct OnSuccess {
    /// Field of the value → name in the state.
    pub map_outputs: Vec<(Arc<str>, Arc<str>)>,
    /// Name in the state → template.
    pub transform: Vec<(Arc<str>, Template)>,
    /// Where a program continues.
    pub next: Option<Next>,
}

/// Where a program continues after a step, instead of the next step in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// As written: a step's id or name, a tool, or `end`.
    pub name: Arc<str>,
    /// The span of the name.
    pub span: Span,
    /// The resolved target.
    pub target: Target,
}

/// The target of a `next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The end of the body.
    #[default]
    End,
    /// A position in the same body.
    Step(u32),
}

/// What happens after failure.
#[derive(Clone, Debug, Default)]
pub struct OnFailure {
    /// The effect on the run.
    pub action: FailureAction,
    /// The value of the failed step.
    pub default: Option<Template>,
    /// Where a program continues.
    pub next: Option<Next>,
}

/// The effect of a failed step on the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureAction {
    /// The composition's strategy decides.
    #[default]
    Strategy,
    /// Stop, whatever the strategy.
    Stop,
    /// Continue as if it had succeeded with `default`.
    Continue,
}

/// The rollback of a step, as its author wrote it.
#[derive(Clone, Debug, Default)]
pub enum StepRollback {
    /// The rollback that the tool declares.
    #[default]
    Declared,
    /// The step has no side effects.
    NotNeeded,
    /// This call; its templates see `output`, `args` and `input`.
    Call(ToolCall),
    /// Impossible, with a reason.
    Impossible {
        /// The reason.
        reason: Arc<str>,
    },
}

/// The effective rollback of a finished step.
///
/// Not an `Option`: "not needed", "unknown" and "impossible" are different promises.
#[derive(Clone, Debug, Default)]
pub enum ResolvedRollback {
    /// Neither the author nor the tool declares a rollback.
    #[default]
    Unknown,
    /// The step has no side effects, such as a search.
    NotNeeded,
    /// This call rolls it back.
    Call(ToolCall),
    /// It cannot be rolled back.
    Impossible {
        /// The reason.
        reason: Arc<str>,
    },
}

/// How to find out whether an unanswered call did its work.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The call that asks.
    pub call: ToolCall,
    /// The condition on the answer that means "done".
    pub done_when: Expr,
    /// The value of the original call, computed from the answer; `None` means the answer itself.
    pub output: Option<Template>,
}
