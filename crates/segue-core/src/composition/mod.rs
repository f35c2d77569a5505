//! The intermediate representation: a composition, independent of its dialect.
//!
//! A [`Composition`] from [`crate::compile::compile`] has resolved names, parsed expressions,
//! existing tools and reachable steps. Nothing in here depends on a dialect or a notation; spans
//! serve messages only.

mod code_tool;
mod dialect;
mod step;
pub mod tool;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Millis;
use crate::expr::Template;
use crate::id::ToolId;
use crate::schema::Schema;
use crate::source::Source;
use crate::value::Value;

pub use dialect::Dialect;
pub use step::{
    Branch, Case, FailureAction, ItemFailure, LoopStep, Need, Next, OnApprovalTimeout, OnFailure,
    OnSuccess, Params, Probe, RepeatStep, ResolvedRollback, Retry, Step, StepKind, StepRollback,
    Target, ToolCall, WaitFor,
};

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
    /// Servers whose tools short names mean, where tools of other servers have the same.
    pub servers: Vec<Arc<str>>,
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
