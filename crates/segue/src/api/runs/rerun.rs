//! Running a run again, from its start or from one of its steps.

use std::sync::Arc;

use segue_core::access::{Principal, Right};
use segue_core::plan::Plan;
use segue_core::run::{ReusedStep, StepSelection};
use segue_core::value::{Map, Value};
use segue_core::view::RunView;
use segue_runtime::engine::LoadedRun;

use super::RunService;
use super::start::{CallOptions, Execution, run_execution, run_options};
use crate::api::documents::ResolvedDocument;
use crate::api::error::{Error, require_for};
use crate::api::requests::{RerunRun, fingerprint};

/// What a rerun takes over from the earlier run.
pub struct Rerun {
    /// The input: the earlier one, with what the caller gives now.
    pub input: Value,
    /// The context, likewise.
    pub context: Value,
    /// The steps that it performs, and the values of others.
    pub selection: StepSelection,
}

impl Rerun {
    /// Takes over what a run of `plan` needs of an earlier one. With `from` it takes over the values of
    /// the steps that do not depend on that step.
    pub fn prepare(
        earlier: &LoadedRun,
        plan: &Plan,
        from: Option<&str>,
        (input, context): (&Value, &Value),
    ) -> Result<Rerun, RerunError> {
        let (name, earlier_name) = (&plan.composition.name, earlier.run.name());
        if name != earlier_name {
            let message = format!("the earlier run is a run of `{earlier_name}`, not of `{name}`");
            return Err(RerunError::Impossible(message));
        }
        let selection = match from {
            Some(from) => {
                let reused = reusable(earlier, plan, from).map_err(RerunError::Impossible)?;
                StepSelection::reusing(plan, reused)
            }
            None => StepSelection::default(),
        };
        let (earlier_input, earlier_context) = earlier.run.input_and_context();
        let rerun = Rerun {
            input: merged(earlier_input, input),
            context: merged(earlier_context, context),
            selection,
        };
        for (given, part) in [(&rerun.input, "input"), (&rerun.context, "context")] {
            if let Some(name) = earlier.run.redacted_member(given) {
                return Err(RerunError::NotStored { part, name });
            }
        }
        Ok(rerun.with_approvals_of(earlier, plan))
    }

    /// Keeps the approvals of the earlier run only if this one has the same data.
    #[must_use]
    pub fn with_approvals_of(mut self, earlier: &LoadedRun, plan: &Plan) -> Rerun {
        if (&self.input, &self.context) != earlier.run.input_and_context() {
            self.selection.ask_anew(plan);
        }
        self
    }
}

/// Why a run cannot run again so.
pub enum RerunError {
    /// It cannot; the text says why.
    Impossible(String),
    /// A member is sensitive and was not stored: the caller has to give it again.
    NotStored {
        /// `input` or `context`.
        part: &'static str,
        /// The member.
        name: Arc<str>,
    },
}

impl From<RerunError> for Error {
    fn from(error: RerunError) -> Error {
        match error {
            RerunError::Impossible(message) => Error::invalid(message),
            RerunError::NotStored { part, name } => Error::invalid(format!(
                "`{name}` is sensitive and was not stored: give it again in `{part}`"
            )),
        }
    }
}

fn reusable(earlier: &LoadedRun, plan: &Plan, from: &str) -> Result<Vec<ReusedStep>, String> {
    let outer = from.split(['/', '[']).next().unwrap_or(from);
    if outer != from && plan.steps_of(0).any(|step| *step.step.id == *outer) {
        return Err(format!(
            "a run cannot start at `{from}`, which is inside `{outer}`: start at `{outer}`, which runs \
             all of it again"
        ));
    }
    earlier.run.reusable_steps(plan, from)
}

/// The members of both, those of `given` first of all.
fn merged(earlier: &Value, given: &Value) -> Value {
    match (earlier, given) {
        (Value::Object(earlier), Value::Object(given)) => {
            let mut all: Map = (**earlier).clone();
            all.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
            all.into()
        }
        (_, Value::Null) => earlier.clone(),
        (_, given) => given.clone(),
    }
}

/// Runs a run of the caller again, and waits for it. Its text is compiled with the tools that the
/// caller may use now.
pub async fn rerun(
    service: &Arc<RunService>,
    who: &Principal,
    run_id: &str,
    request: &RerunRun,
    call: CallOptions<'_>,
) -> Result<RunView, Error> {
    let earlier = service.read_run(who, run_id).await?;
    let composition = &earlier.loaded.plan.composition;
    let served = service.catalog(who).tools.of_composition(&composition.name).cloned();
    let same = served.filter(|tool| tool.plan.hash() == earlier.loaded.plan.hash());
    let dry_run = request.options.as_ref().is_some_and(|options| options.dry_run);
    let document = match same {
        Some(tool) => ResolvedDocument::Served(tool.plan.clone()),
        None => ResolvedDocument::Inline(composition.source.clone()),
    };
    if matches!(document, ResolvedDocument::Inline(_)) && !dry_run {
        let action = "run a composition again that is no longer served, or has changed";
        require_for(who, Right::Compose, action, "what is served needs `run`")?;
    }
    let who = document.runs_as(who);
    let plan = document.plan(service, &who)?;
    let given = |members: Option<&Map>| members.cloned().unwrap_or_default().into();
    let (input, context): (Value, Value) =
        (given(request.input.as_ref()), given(request.context.as_ref()));
    let from = request.from.as_deref();
    let Rerun { input, context, mut selection } =
        Rerun::prepare(&earlier.loaded, &plan, from, (&input, &context))?;
    if !who.may(Right::Compose) {
        // Nor may it repeat what a person approved once.
        selection.ask_anew(&plan);
    }
    if selection.part.is_some() && !dry_run {
        let action = "take over an output that was given to an earlier run";
        require_for(&who, Right::Compose, action, "a run from the beginning needs `run`")?;
    }
    let options = run_options(service, &who, request.options.as_ref())?;
    let keyed = Value::object([
        ("rerun", Value::String(earlier.loaded.row.run_id.clone())),
        ("described", fingerprint(request)),
    ]);
    let execution = Execution { plan, selection, input, context, options, dry_run, who };
    run_execution(service, execution, &keyed, call).await
}
