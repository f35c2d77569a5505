//! The intermediate representation: a composition, independent of its dialect.
//!
//! A [`Composition`] from [`crate::compile::compile`] has resolved names, parsed expressions,
//! existing tools and reachable steps. Nothing in here depends on a dialect or a notation; spans
//! serve messages only.

mod code_tool;
mod dialect;
pub mod tool;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::composition::tool::ToolSpec;
use crate::duration::Millis;
use crate::expr::{Expr, StepIndex, Template};
use crate::id::ToolId;
use crate::schema::Schema;
use crate::source::{Source, Span};
use crate::value::Value;

pub use dialect::Dialect;

/// What the run does when a step fails for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Stop at once.
    #[default]
    FailFast,
    /// Continue with steps that do not depend on the failed one.
    PartialSuccess,
    /// Stop, then roll back.
    Rollback,
    /// Retry, then stop.
    Retry,
}

impl Strategy {
    /// The names of the strategies, in the order of the language.
    pub const WORDS: &'static [&'static str] =
        &["fail_fast", "partial_success", "rollback", "retry"];

    /// The strategy of this name.
    pub fn parse(word: &str) -> Option<Strategy> {
        match word {
            "fail_fast" => Some(Strategy::FailFast),
            "partial_success" => Some(Strategy::PartialSuccess),
            "rollback" => Some(Strategy::Rollback),
            "retry" => Some(Strategy::Retry),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::FailFast => "fail_fast",
            Strategy::PartialSuccess => "partial_success",
            Strategy::Rollback => "rollback",
            Strategy::Retry => "retry",
        }
    }
}

/// What happens to a reference without a value in a tool's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unresolved {
    /// The step fails.
    #[default]
    Fail,
    /// It stays in the arguments as written, and the run reports it.
    Keep,
}

/// Limits that an author or a host sets for a composition. `check` enforces them, and the run does
/// so again for compositions that it expands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompositionGuards {
    /// Steps, bodies included; `None` means the general limit.
    pub max_steps: Option<u32>,
    /// The only tools that its steps may call, by id or by name; `None` means all, empty means
    /// none.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    /// Calls that one run may make, attempts included; `None` means the general limit.
    pub max_tool_calls: Option<u32>,
}

impl CompositionGuards {
    /// Whether a tool may be called.
    pub fn allows(&self, tool: &ToolId) -> bool {
        self.allowed_tools.as_ref().is_none_or(|allowed| {
            allowed.iter().any(|known| **known == *tool.as_str() || **known == *tool.name())
        })
    }
}

/// Delays between attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the first retry.
    pub initial_ms: Millis,
    /// The factor between two delays.
    pub factor: f64,
    /// Never longer than this.
    pub max_ms: Millis,
    /// Whether the delay is drawn from zero up to that length.
    pub jitter: bool,
}

impl Backoff {
    /// Waits that double from the first one up to the longest, without jitter.
    pub const fn doubling(initial_ms: Millis, max_ms: Millis) -> Backoff {
        Backoff { initial_ms, factor: 2.0, max_ms, jitter: false }
    }

    /// How long the wait before retry `nth` is, before jitter shortens it; 1 is the first retry.
    pub fn wait_ms(&self, nth: u32) -> Millis {
        let exponent = i32::try_from(nth.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.initial_ms as f64 * self.factor.powi(exponent);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let capped = grown.min(self.max_ms as f64) as Millis;
        capped
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { initial_ms: 100, factor: 2.0, max_ms: 5_000, jitter: true }
    }
}

/// Error handling of a whole composition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorHandling {
    /// The strategy when a step fails for good.
    pub strategy: Strategy,
    /// Whether completed steps are rolled back when the run fails.
    pub rollback_on_failure: bool,
    /// Retries of a step that sets none itself.
    pub max_retries: Option<u32>,
    /// Delays between attempts of a step that sets none itself.
    pub backoff: Backoff,
}

/// A composition.
#[derive(Clone, Debug)]
pub struct Composition {
    /// `[a-z0-9][a-z0-9_-]*`
    pub name: Arc<str>,
    /// For people and models.
    pub description: Arc<str>,
    /// Semantic version, as written.
    pub version: Option<Arc<str>>,
    /// The dialect of its document.
    pub dialect: Dialect,
    /// The id of its template, for usage statistics. It does not affect the run.
    pub template: Option<Arc<str>>,
    /// JSON Schema of the input; absent means anything.
    pub input: Option<Arc<Schema>>,
    /// Keys that the caller's context must have.
    pub requires_context: Vec<Arc<str>>,
    /// Capabilities that an MCP client must declare.
    pub requires_capabilities: Vec<Arc<str>>,
    /// One confirmation for the whole run.
    pub atomic: bool,
    /// Patterns of files that a run may overwrite without asking, if its author has that right.
    pub overwrites: Vec<Arc<str>>,
    /// For the whole run.
    pub timeout_ms: Option<Millis>,
    /// Steps at once.
    pub max_concurrency: u32,
    /// Limits on its steps and calls.
    pub guards: CompositionGuards,
    /// What happens to references without a value.
    pub unresolved: Unresolved,
    /// The steps.
    pub body: Body,
    /// The result; absent means every output key with its value.
    pub output: Option<Template>,
    /// Error handling.
    pub error_handling: ErrorHandling,
    /// Author, tags and other members, as written.
    pub metadata: Value,
    /// The text that it was compiled from, so that a stored run can be compiled again.
    pub source: Source,
}

/// How the steps of a body follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Each step starts as soon as its needs are done.
    #[default]
    Graph,
    /// Steps run one at a time, in order, and may jump.
    Program,
}

/// A list of steps.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// In the order of the text. Shared, so that a plan can hold them without a copy.
    pub steps: Vec<Arc<Step>>,
    /// How they follow each other.
    pub flow: Flow,
}

impl Body {
    /// Calls `visit` for every step, bodies included, in the order of the text.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Step)) {
        for step in &self.steps {
            visit(step);
            for body in step.kind.bodies() {
                body.walk(visit);
            }
        }
    }
}

impl Body {
    /// Calls `visit` for every call that any step may make, in the order of the text.
    pub fn walk_calls<'a>(&'a self, visit: &mut dyn FnMut(&'a ToolCall)) {
        self.walk(&mut |step| step.calls().into_iter().for_each(&mut *visit));
    }

    /// The same, with mutable calls.
    pub fn walk_calls_mut(&mut self, visit: &mut dyn FnMut(&mut ToolCall)) {
        for step in &mut self.steps {
            let step = Arc::make_mut(step);
            if let StepKind::Tool(call) = &mut step.kind {
                visit(call);
            }
            step.fallback.iter_mut().for_each(&mut *visit);
            if let StepRollback::Call(call) = &mut step.rollback {
                visit(call);
            }
            if let Some(probe) = &mut step.probe {
                visit(&mut probe.call);
            }
            for inner in step.kind.bodies_mut() {
                inner.walk_calls_mut(visit);
            }
        }
    }
}

/// Where a program continues after one of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transitions {
    /// After success.
    pub success: Target,
    /// The next step in the text that is not skipped in sequence; it also follows a skipped step.
    pub in_sequence: Target,
    /// After a tolerated failure; `None` when a failure ends the program.
    pub failure: Option<Target>,
}

impl Body {
    /// For each step of a program, whether sequential flow passes it over because only failures
    /// lead to it. The first step is the start of the program, so it is never passed over.
    pub fn failure_only_steps(&self) -> Vec<bool> {
        let mut by_failure = vec![false; self.steps.len()];
        let mut by_success = vec![false; self.steps.len()];
        for step in &self.steps {
            for (next, found) in
                [(&step.on_failure.next, &mut by_failure), (&step.on_success.next, &mut by_success)]
            {
                if let Some(Next { target: Target::Step(at), .. }) = next {
                    found[*at as usize] = true;
                }
            }
        }
        let is_passed_over = |(position, step): (usize, &Arc<Step>)| {
            position > 0 && by_failure[position] && !by_success[position] && !step.falls_through
        };
        self.steps.iter().enumerate().map(is_passed_over).collect()
    }

    /// Where a program continues after each of its steps.
    pub fn transitions(&self) -> Vec<Transitions> {
        let passed_over = self.failure_only_steps();
        let mut in_sequence = Target::End;
        let mut ways: Vec<Transitions> = Vec::with_capacity(self.steps.len());
        for (position, step) in self.steps.iter().enumerate().rev() {
            let said = |next: &Option<Next>| next.as_ref().map_or(in_sequence, |next| next.target);
            let goes_on = step.on_failure.action == FailureAction::Continue;
            ways.push(Transitions {
                success: said(&step.on_success.next),
                in_sequence,
                failure: goes_on.then(|| said(&step.on_failure.next)),
            });
            if !passed_over[position] {
                let position = u32::try_from(position).expect("far fewer than 2^32 steps");
                in_sequence = Target::Step(position);
            }
        }
        ways.reverse();
        ways
    }
}

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
