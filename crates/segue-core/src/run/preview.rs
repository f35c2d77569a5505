//! A dry run without calls: what a run would do.

use std::borrow::Cow;
use std::sync::Arc;

use crate::composition::{Step, StepKind};
use crate::expr::{ExprRoot, Scope, Template};
use crate::limits::Limits;
use crate::plan::{BodyIndex, Plan};
use crate::value::Value;
use crate::view::{EffectView, RunStatus, RunView, StepStatus, StepView};

use super::journal::Started;
use super::redact::redact_preview;

/// Evaluates everything that is known before a run: each step's arguments as far as the input
/// determines them. Parts that depend on an earlier step stay as written.
pub fn dry_run(plan: &Plan, started: &Started, limits: &Limits) -> RunView {
    let scope = PreviewScope { input: &started.input, context: &started.context };
    let mut view = RunView {
        run_id: started.run_id.clone(),
        request_id: started.request_id.clone(),
        plan_id: started.plan_id.clone(),
        chain_id: started.chain_id.clone(),
        name: plan.composition.name.clone(),
        dialect: plan.composition.dialect,
        status: RunStatus::DryRun,
        success: true,
        plan_hash: Some(plan.hash().clone()),
        ..RunView::default()
    };
    add_body(plan, 0, "", &scope, limits, &mut view);
    redact_preview(plan, started, &mut view);
    view
}

fn add_body(
    plan: &Plan,
    body: BodyIndex,
    prefix: &str,
    scope: &PreviewScope<'_>,
    limits: &Limits,
    view: &mut RunView,
) {
    for planned in plan.steps_of(body) {
        let id: Arc<str> = format!("{prefix}{}", planned.step.id).into();
        let mut step = step_view(&planned.step, id.clone(), scope, limits);
        step.would = Some(EffectView::of(plan, planned, Some(&step.input)));
        view.steps.push(step);
        for inner in &planned.bodies {
            add_body(plan, *inner, &format!("{id}/"), scope, limits, view);
        }
    }
}

fn step_view(step: &Step, id: Arc<str>, scope: &PreviewScope<'_>, limits: &Limits) -> StepView {
    let when = step.when.as_ref().map(|when| when.eval(scope, limits));
    let skipped = matches!(when, Some(Ok(Value::Bool(false))));
    let (tool, input) = match &step.kind {
        StepKind::Tool(call) => (
            call.tool.as_ref().map(|tool| Arc::from(tool.id.as_str())),
            resolve(&call.parameters.template, scope, limits),
        ),
        _ => (None, Value::Null),
    };
    StepView {
        id,
        kind: step.kind.keyword(),
        tool,
        status: if skipped { StepStatus::Skipped } else { StepStatus::Pending },
        input,
        reason: skipped.then(|| "its `when` is false".to_owned()),
        ..StepView::default()
    }
}

/// The value of each part that is known; other parts as written.
fn resolve(template: &Template, scope: &PreviewScope<'_>, limits: &Limits) -> Value {
    if let Ok(value) = template.eval(scope, limits) {
        return value;
    }
    match template {
        Template::Array(items) => {
            items.iter().map(|item| resolve(item, scope, limits)).collect::<Vec<_>>().into()
        }
        Template::Object(members) => {
            Value::object(members.iter().map(|(k, v)| (k.clone(), resolve(v, scope, limits))))
        }
        other => other.to_value(),
    }
}

/// The names that are known before a run starts.
struct PreviewScope<'a> {
    input: &'a Value,
    context: &'a Value,
}

impl Scope for PreviewScope<'_> {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        match root {
            ExprRoot::Input => Some(Cow::Borrowed(self.input)),
            ExprRoot::InputField(name) => self.input.get(name).map(Cow::Borrowed),
            ExprRoot::Context => Some(Cow::Borrowed(self.context)),
            _ => None,
        }
    }
}
