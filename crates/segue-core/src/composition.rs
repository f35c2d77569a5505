//! The one intermediate representation: what a composition means, whatever dialect it came in.
//!
//! Holding a [`Composition`] that came out of [`crate::compile::compile`] proves that its names
//! resolve, its expressions parse, its tools exist and its steps are reachable. Nothing in here
//! knows a dialect or a notation; spans are kept for messages alone.

mod dialect;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::compile::source::{Source, Span};
use crate::expr::{Expr, StepIndex, Template};
use crate::id::ToolId;
use crate::schema::Schema;
use crate::tool::ToolSpec;
use crate::value::Value;

pub use dialect::Dialect;

/// A length of time in milliseconds.
pub type Millis = u64;

/// What is done when a step fails for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Stop at once.
    #[default]
    FailFast,
    /// Go on with what does not depend on it.
    PartialSuccess,
    /// Stop, then undo.
    Rollback,
    /// Retry, then stop.
    Retry,
}

impl Strategy {
    /// The words of the language, in its order.
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

/// What becomes of a reference in a tool's arguments that has no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unresolved {
    /// The step fails.
    #[default]
    Fail,
    /// It stays in the arguments as it was written, and the run says so.
    Keep,
}

/// Bounds that an author or a host sets to a composition. They are looked at when it is checked, and
/// again where a run makes more of it than was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompositionGuards {
    /// Steps, bodies included; absent means the limit of all compositions.
    pub max_steps: Option<u32>,
    /// The only tools that its steps may call, by id or by name; absent means all, empty means none.
    pub allowed_tools: Option<Vec<Arc<str>>>,
    /// Calls that a run of it may make, attempts included; absent means the limit of all runs.
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

/// How long to wait between attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the first retry.
    pub initial_ms: Millis,
    /// How much longer each time.
    pub factor: f64,
    /// Never longer than this.
    pub max_ms: Millis,
    /// Whether the wait is drawn from zero up to that length.
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

/// What the whole composition does about failures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorHandling {
    /// When a step fails for good.
    pub strategy: Strategy,
    /// Whether completed steps are undone when the run fails.
    pub rollback_on_failure: bool,
    /// Retries of a step that has no number of its own.
    pub max_retries: Option<u32>,
    /// Waits between attempts, where a step has none of its own.
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
    /// Where it came from.
    pub dialect: Dialect,
    /// The id of the template around it, under which its runs are counted. It changes no meaning.
    pub template: Option<Arc<str>>,
    /// JSON Schema of the input; absent means anything.
    pub input: Option<Arc<Schema>>,
    /// Keys that the caller's context must carry.
    pub requires_context: Vec<Arc<str>>,
    /// One confirmation for the whole run.
    pub atomic: bool,
    /// Patterns of files that a run may overwrite without asking, where its author may say so.
    pub overwrites: Vec<Arc<str>>,
    /// For the whole run.
    pub timeout_ms: Option<Millis>,
    /// Steps at once.
    pub max_concurrency: u32,
    /// What it may be made of and may do.
    pub guards: CompositionGuards,
    /// What becomes of references without a value.
    pub unresolved: Unresolved,
    /// The steps.
    pub body: Body,
    /// The result; absent means every output key with its value.
    pub output: Option<Template>,
    /// What to do about failures.
    pub error_handling: ErrorHandling,
    /// Author, tags and whatever else was written.
    pub metadata: Value,
    /// The text that it was compiled from, so that a run can be compiled again as it was.
    pub source: Source,
}

/// How the steps of a body follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Each as soon as what it needs is there.
    #[default]
    Graph,
    /// One cursor that may jump.
    Program,
}

/// Steps that belong together.
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

    /// The same, to change the calls.
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

/// Where a program may go on after one of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transitions {
    /// After success.
    pub success: Target,
    /// Without a word of where: also what follows a step that is skipped.
    pub in_sequence: Target,
    /// After a failure that is tolerated; absent when a failure ends the program.
    pub failure: Option<Target>,
}

impl Body {
    /// For each step of a program, whether it is passed over in sequence: it is there for failures
    /// that lead to it, and for nothing else. The first step is where the program begins, so it is
    /// never passed over.
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

    /// Where a program goes on after each of its steps.
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
    /// Its position in the text, bodies included; what references and plans call it.
    pub index: StepIndex,
    /// Unique in the composition.
    pub id: Arc<str>,
    /// Where the id stands, or the step when it has none.
    pub id_span: Span,
    /// The whole step.
    pub span: Span,
    /// What it does.
    pub kind: StepKind,
    /// Steps that the author says must come first.
    pub depends_on: Vec<(Arc<str>, Span)>,
    /// Everything that must come first: by data, by word, by order. Positions in its own body.
    pub needs: Vec<Need>,
    /// Whether to run it at all.
    pub when: Option<Expr>,
    /// Under which name its value is known, and where that was said.
    pub output_key: Option<(Arc<str>, Span)>,
    /// For one attempt.
    pub timeout_ms: Option<Millis>,
    /// How often it is tried again.
    pub retry: Retry,
    /// Whether what came back is a success.
    pub success_when: Option<Expr>,
    /// Whether what came back is a failure.
    pub fail_when: Option<Expr>,
    /// Tools to try when all attempts failed.
    pub fallback: Vec<ToolCall>,
    /// What to do with a value.
    pub on_success: OnSuccess,
    /// What to do with a failure.
    pub on_failure: OnFailure,
    /// How it is taken back.
    pub rollback: StepRollback,
    /// The author's word that calling it twice is harmless, or not.
    pub idempotent: Option<bool>,
    /// What really takes it back: the author's word, else the tool's; known after checking.
    pub resolved_rollback: ResolvedRollback,
    /// The same for each fallback.
    pub fallback_rollbacks: Vec<ResolvedRollback>,
    /// How to find out whether an unanswered call did its work.
    pub probe: Option<Probe>,
    /// JSON Pointers to what must never be written down.
    pub sensitive: Vec<Arc<str>>,
    /// Whether a program enters it in passing although only failures lead to it.
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
        // The undo of the author's own words is the rollback above; a declared one was checked by
        // whoever declared it.
        tool.into_iter().chain(&self.fallback).chain(rollback).chain(probe).collect()
    }
}

/// Something that must finish before a step starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Position in the same body.
    pub position: usize,
    /// Whether the step reads its value without a `default(…)`: then a skipped need skips it too.
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
        /// When it is over.
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
        /// When none holds.
        otherwise: Option<Body>,
    },
    /// Names for later steps.
    Set(Vec<(Arc<str>, Template)>),
    /// Asks a person.
    Approve {
        /// What is asked.
        message: Template,
        /// JSON Schema of the answer's data.
        schema: Option<Arc<Schema>>,
        /// How long the question stands.
        timeout_ms: Option<Millis>,
        /// What silence means.
        on_timeout: OnApprovalTimeout,
    },
    /// Waits.
    Wait {
        /// How long: milliseconds or text such as `30s`, known when it runs.
        duration: Template,
    },
    /// Runs a composition that an earlier step made.
    Expand(Template),
}

impl StepKind {
    /// The word that the language has for it.
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

    /// The bodies inside, in the order of the text.
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

    /// The bodies inside, to change them.
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
    /// Where the name stands.
    pub name_span: Span,
    /// The tool that is meant; known after checking.
    pub tool: Option<Arc<ToolSpec>>,
    /// Its arguments.
    pub parameters: Params,
}

/// Arguments, with the places of their names.
#[derive(Clone, Debug)]
pub struct Params {
    /// An object, or one expression that gives an object.
    pub template: Template,
    /// The whole of it; the tool's name when there is none.
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
    /// The first that settles.
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
    /// What is done with each.
    pub body: Body,
    /// Each item's value; absent means the last step's.
    pub output: Option<Template>,
    /// Items at once.
    pub max_concurrency: u32,
    /// Items at all.
    pub max_iterations: Option<u32>,
    /// Whether one failed item fails the loop.
    pub on_item_failure: ItemFailure,
}

/// What a failed item means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemFailure {
    /// The loop fails.
    #[default]
    Stop,
    /// The item is null and listed among the errors.
    Continue,
}

/// `repeat`
#[derive(Clone, Debug)]
pub struct RepeatStep {
    /// What is done each round.
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
    /// What is done then.
    pub body: Body,
}

/// What silence means to a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnApprovalTimeout {
    /// No.
    #[default]
    Deny,
    /// Yes.
    Approve,
}

/// How often a step is tried again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// Times; absent means the composition's number.
    pub max: Option<u32>,
    /// Waits; absent means the composition's.
    pub backoff: Option<Backoff>,
    /// Only after these failures; empty means all that may be retried.
    pub on: Vec<crate::diagnostic::Code>,
}

/// What to do with a value.
#[derive(Clone, Debug, Default)]
pub struct OnSuccess {
    /// Field of the value → name in the state.
    pub map_outputs: Vec<(Arc<str>, Arc<str>)>,
    /// Name in the state → template.
    pub transform: Vec<(Arc<str>, Template)>,
    /// Where a program goes on.
    pub next: Option<Next>,
}

/// Where a program goes on after a step, in place of the step that follows in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// As written: a step's id or name, a tool, or `end`.
    pub name: Arc<str>,
    /// Where that stands.
    pub span: Span,
    /// What is meant.
    pub target: Target,
}

/// What a `next` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The end of the body.
    #[default]
    End,
    /// A position in the same body.
    Step(u32),
}

/// What to do with a failure.
#[derive(Clone, Debug, Default)]
pub struct OnFailure {
    /// Go on, with this value in place of the missing one.
    pub action: FailureAction,
    /// The value that stands in.
    pub default: Option<Template>,
    /// Where a program goes on.
    pub next: Option<Next>,
}

/// What a failure of a step means to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureAction {
    /// What the composition's strategy says.
    #[default]
    Strategy,
    /// Stop, whatever the strategy.
    Stop,
    /// Go on as if it had succeeded with `default`.
    Continue,
}

/// How a step is taken back, as its author says.
#[derive(Clone, Debug, Default)]
pub enum StepRollback {
    /// By what the tool declares.
    #[default]
    Declared,
    /// It leaves no trace.
    NotNeeded,
    /// By this call; its templates see `output`, `args` and `input`.
    Call(ToolCall),
    /// Not at all, and why.
    Impossible {
        /// Why not.
        reason: Arc<str>,
    },
}

/// What takes a finished step back.
///
/// Not an `Option`: "nothing to take back", "nobody knows how" and "cannot be taken back" are
/// different promises.
#[derive(Clone, Debug, Default)]
pub enum ResolvedRollback {
    /// Nobody said how.
    #[default]
    Unknown,
    /// The step leaves no trace outside the run, such as a search.
    NotNeeded,
    /// This call takes it back.
    Call(ToolCall),
    /// It cannot be taken back, and why.
    Impossible {
        /// Why not.
        reason: Arc<str>,
    },
}

/// How to find out whether an unanswered call did its work.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The question.
    pub call: ToolCall,
    /// The answer that means "done".
    pub done_when: Expr,
    /// What the call would have returned, out of the answer; the answer itself when absent.
    pub output: Option<Template>,
}
