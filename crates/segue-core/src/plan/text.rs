//! Text → [`Plan`].

use std::sync::Arc;

use super::{Plan, plan};
use crate::catalog::Catalog;
use crate::compile::{self, Compiled};
use crate::diagnostic::{Code, Diagnostic};
use crate::limits::Limits;
use crate::source::{Source, Span};

/// Compiles and plans a text; without a plan, the findings give the reasons.
pub fn plan_text(
    source: &Source,
    catalog: &Catalog,
    limits: &Limits,
) -> (Option<Arc<Plan>>, Vec<Diagnostic>) {
    let Compiled { composition, mut diagnostics } = compile::compile(source, catalog, limits);
    let Some(composition) = composition else { return (None, diagnostics) };
    match plan(&composition, limits) {
        Ok(plan) => (Some(Arc::new(plan)), diagnostics),
        Err(error) => {
            let finding = Diagnostic::error(Code::Limit, error.to_string(), Span::default());
            diagnostics.push(finding);
            (None, diagnostics)
        }
    }
}
