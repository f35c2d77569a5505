//! Dry runs with real reads: the run calls tools that only read, and samples replace the rest.
//!
//! [`dry_run_composition`] rewrites a composition so that it neither waits nor rolls back. The
//! driver answers calls that may write with samples of their output schema
//! ([`crate::schema::Schema::sample`]). [`dry_run_view`] turns the view of that run into the view
//! of a dry run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::composition::tool::{Impact, ToolSpec};
use crate::composition::{Body, Composition, Step, StepKind, Strategy};
use crate::expr::Template;
use crate::id::without_iterations;
use crate::limits::Limits;
use crate::plan::{Plan, PlanStep};
use crate::source::Span;
use crate::value::Value;
use crate::view::{EffectView, RunStatus, RunView, StepStatus, StepView};

/// Whether a dry run really calls a tool: it only reads, and needs no confirmation.
pub fn calls_really(tool: &ToolSpec) -> bool {
    tool.annotations.impact() == Impact::Reads && !tool.may_ask_person()
}

/// The composition for a dry run: waits end at once, a `repeat` has one round, conditions on
/// sampled values are dropped, and a failure rolls nothing back.
pub fn dry_run_composition(composition: &Composition) -> Composition {
    DryRunRewriter { limits: Limits::default(), known: BTreeMap::new() }.composition(composition)
}

struct DryRunRewriter {
    limits: Limits,
    /// Rewritten inner compositions by the address of the original, so that each is rewritten once.
    known: BTreeMap<usize, Arc<ToolSpec>>,
}

impl DryRunRewriter {
    fn composition(&mut self, composition: &Composition) -> Composition {
        let mut rewritten = composition.clone();
        rewritten.error_handling.rollback_on_failure = false;
        if rewritten.error_handling.strategy == Strategy::Rollback {
            rewritten.error_handling.strategy = Strategy::FailFast;
        }
        self.body(&mut rewritten.body);
        rewritten
    }

    fn body(&mut self, body: &mut Body) {
        for step in &mut body.steps {
            self.step(Arc::make_mut(step));
        }
    }

    fn step(&mut self, step: &mut Step) {
        match &mut step.kind {
            StepKind::Tool(call) => {
                let is_called = call.tool.as_ref().is_some_and(|tool| calls_really(tool));
                for call in std::iter::once(call).chain(&mut step.fallback) {
                    call.tool = call.tool.take().map(|tool| self.tool(tool));
                }
                if !is_called {
                    (step.success_when, step.fail_when) = (None, None);
                }
            }
            StepKind::Wait { duration } => *duration = Template::Literal(Value::from(0)),
            StepKind::Repeat(repeat) => {
                let always =
                    Template::parse_condition(&"true".into(), Span::default(), &self.limits);
                repeat.until = always.expect("`true` is a condition");
            }
            _ => {}
        }
        for body in step.kind.bodies_mut() {
            self.body(body);
        }
    }

    /// An inner composition is rewritten too.
    fn tool(&mut self, tool: Arc<ToolSpec>) -> Arc<ToolSpec> {
        let Some(inner) = &tool.composition else { return tool };
        let address = Arc::as_ptr(inner) as usize;
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let inner = self.composition(inner);
        let rewritten =
            Arc::new(ToolSpec { composition: Some(Arc::new(inner)), ..(*tool).clone() });
        self.known.insert(address, rewritten.clone());
        rewritten
    }
}

/// The view of a dry run, from the view of its run and the original plan.
pub fn dry_run_view(mut view: RunView, plan: &Plan) -> RunView {
    let mut effects = BTreeMap::new();
    collect(plan, 0, "", &mut effects);
    for step in &mut view.steps {
        let Some((plan, planned)) = effects.get(&without_iterations(&step.id)) else { continue };
        let (is_call, is_real) = (step.tool.is_some(), is_real(planned));
        let effect = EffectView::of(plan, planned, Some(&step.input));
        step.would = Some(EffectView { called: is_real && step.attempts > 0, ..effect });
        if is_call && !is_real && step.status == StepStatus::Success {
            // The call was not made; later steps got a sample of its value.
            step.status = StepStatus::Pending;
            step.attempts = 0;
        }
    }
    if view.status != RunStatus::Cancelled {
        view.status = RunStatus::DryRun;
        view.success = view.errors.is_empty();
    }
    let called = |step: &&StepView| step.would.as_ref().is_some_and(|would| would.called);
    view.steps_executed = view.steps.iter().filter(called).count();
    let worked = |step: &&StepView| called(step) && step.status == StepStatus::Success;
    view.steps_succeeded = view.steps.iter().filter(worked).count();
    view.plan_hash = Some(plan.hash().clone());
    // Samples are no result.
    view.dialect_result = None;
    view
}

/// Every step and its plan, by its path without iterations.
fn collect<'a>(
    plan: &'a Plan,
    body: u32,
    outer: &str,
    into: &mut BTreeMap<String, (&'a Plan, &'a PlanStep)>,
) {
    for planned in plan.steps_of(body) {
        let path = format!("{outer}{}", planned.step.id);
        let inside = format!("{path}/");
        into.insert(path, (plan, planned));
        planned.bodies.iter().for_each(|body| collect(plan, *body, &inside, into));
        planned.nested.values().for_each(|nested| collect(nested, 0, &inside, into));
    }
}

fn is_real(planned: &PlanStep) -> bool {
    let StepKind::Tool(call) = &planned.step.kind else { return false };
    call.tool.as_ref().is_some_and(|tool| calls_really(tool))
}
