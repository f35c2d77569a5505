//! Text → [`Plan`].

use std::sync::Arc;

use super::{Plan, plan};
use crate::compile::source::{Source, Span};
use crate::compile::{self, Compiled};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::limits::Limits;
use crate::run::Failure;
use crate::tool::Catalog;
use crate::value::Value;

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

/// Compiles and plans a composition that a run made, or returns why that fails.
pub fn plan_composition(
    document: &Value,
    catalog: &Catalog,
    limits: &Limits,
) -> Result<Arc<Plan>, Failure> {
    let text = match document {
        Value::String(text) => text.clone(),
        other => other.to_string().into(),
    };
    let (plan, diagnostics) = plan_text(&Source::new("expand", text), catalog, limits);
    plan.ok_or_else(|| {
        let found = diagnostics.iter().filter(|finding| finding.severity == Severity::Error);
        let code = found.clone().next().map_or(Code::Parse, |finding| finding.code);
        let help = found.clone().find_map(|finding| finding.help.as_deref());
        let messages: Vec<&str> = found.map(|finding| finding.message.as_str()).collect();
        let message = format!("the composition does not compile: {}", messages.join("; "));
        Failure { hint: help.map(Into::into), ..Failure::permanent(code, message) }
    })
}
