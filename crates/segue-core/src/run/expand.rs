//! A composition that a run has made → its plan.

use std::sync::Arc;

use super::Failure;
use crate::catalog::Catalog;
use crate::diagnostic::{Code, Severity};
use crate::limits::Limits;
use crate::plan::{Plan, plan_text};
use crate::source::Source;
use crate::value::Value;

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
