//! Compositions that a run makes (`expand`): which tools they may call.

use std::sync::Arc;

use segue_core::access::{Caller, INLINE};
use segue_core::catalog::Catalog;
use segue_core::plan::Plan;
use segue_core::run::{self, Failure};
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;

use super::Engine;

impl Engine {
    /// Compiles and plans a composition that a step made, with the tools that the run's caller may
    /// compose.
    pub(super) fn expand(
        &self,
        document: &Value,
        caller: Option<&Caller>,
    ) -> Result<Arc<Plan>, Failure> {
        let inner = &self.inner;
        let toolset = match caller.and_then(|caller| caller.expands_within.as_deref()) {
            None => return self.made(document, &inner.catalog),
            Some(INLINE) => inner.inline.clone(),
            Some(_) => ToolsetBuilder::served(),
        };
        let mut catalog = inner.catalog.clone();
        catalog.restrict(self.build_toolset(toolset));
        self.made(document, &catalog)
    }

    fn made(&self, document: &Value, catalog: &Catalog) -> Result<Arc<Plan>, Failure> {
        self.bounded(|| run::plan_composition(document, catalog, &self.inner.limits))
    }
}
