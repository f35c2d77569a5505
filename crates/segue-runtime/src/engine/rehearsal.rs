//! Rehearsals: a run that calls only tools that read, and leaves no trace in the store.

use std::sync::Arc;

use segue_core::composition::Strategy;
use segue_core::dry_run;
use segue_core::plan::{self, Plan};
use segue_core::value::Value;
use segue_core::view::RunView;

use super::{Engine, EngineError, RunRequest};
use crate::dry_run_tools;
use crate::store::MemoryStore;
use crate::tools::Tool;

impl Engine {
    /// Runs a plan without changing anything: tools that read are called, samples stand in for
    /// tools that write, and nothing waits, rolls back or is stored.
    pub async fn run_rehearsal(&self, mut request: RunRequest<'_>) -> Result<RunView, EngineError> {
        let rehearsed = self.rehearsal_plan(&request.plan);
        let plan = std::mem::replace(&mut request.plan, rehearsed);
        request.options.approved = false;
        request.confirmer = &dry_run_tools::ApproveAll;
        if request.options.strategy == Some(Strategy::Rollback) {
            request.options.strategy = Some(Strategy::FailFast);
        }
        let catalog = &self.inner.catalog;
        let registry = self.inner.registry.clone().map(|tool| {
            // The effect of a code tool follows from its calls, which only the catalog knows.
            let spec = catalog.get(&tool.spec.id).unwrap_or(&tool.spec).clone();
            dry_run_tools::wrap(Tool { spec, ..tool })
        });
        let caller = request.caller.clone();
        let expand = |document: &Value| {
            self.expand(document, caller.as_ref()).map(|plan| self.rehearsal_plan(&plan))
        };
        let store = MemoryStore::default();
        let view = self.run_with(request, &registry, &store, &expand, None).await?;
        Ok(dry_run::dry_run_view(view, &plan))
    }

    fn rehearsal_plan(&self, plan: &Plan) -> Arc<Plan> {
        let composition = Arc::new(dry_run::dry_run_composition(&plan.composition));
        let plan = plan::plan(&composition, &self.inner.limits);
        Arc::new(plan.expect("a dry run nests no deeper than the plan it is made from"))
    }
}
