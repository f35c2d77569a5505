//! Admission of a run: checks its input and the required context.

use super::redact;
use crate::diagnostic::{Code, nearest_name};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::types::{FieldLookup, Type};
use crate::value::Value;
use crate::view::ErrorView;

/// The input with its defaults, or all errors. The hint for passing an input depends on the
/// surface, so there are none here.
pub fn admit(
    plan: &Plan,
    input: Value,
    context: &Value,
    limits: &Limits,
) -> Result<Value, Vec<ErrorView>> {
    let composition = &plan.composition;
    let mut errors = Vec::new();
    for key in &composition.requires_context {
        if context.get(key).is_none_or(Value::is_null) {
            let message = format!("the context must have `{key}`");
            errors.push(ErrorView::check(Code::PolicyViolation, message, None));
        }
    }
    if !matches!(input, Value::Object(_)) {
        let message = format!("the input must be an object, found {}", input.kind());
        errors.push(ErrorView::check(Code::InputSchema, message, None));
        return Err(errors);
    }
    if let (Some(schema), Some(given)) = (&composition.input, input.as_object()) {
        let misspelt = given.keys().filter_map(|name| misspelt_input(schema.ty(), name));
        errors.extend(misspelt.map(|it| ErrorView::check(Code::InputSchema, it, None)));
    }
    let input = match &composition.input {
        Some(schema) => schema.with_defaults(input),
        None => input,
    };
    if let Some(schema) = &composition.input {
        for violation in schema.violations(&input) {
            let message = format!("the input does not fit: {violation}");
            errors.push(ErrorView::check(Code::InputSchema, message, None));
        }
    }
    if let Err(message) = redact::room_for_start(plan, &input, context, limits) {
        errors.push(ErrorView::check(Code::Limit, message, None));
    }
    if errors.is_empty() { Ok(input) } else { Err(errors) }
}

/// Why a name is probably a misspelt input: the type does not declare it, but a similar one. A type that
/// expressly allows other names has no misspelt ones.
pub fn misspelt_input(ty: &Type, name: &str) -> Option<String> {
    let FieldLookup::Undeclared { declared, .. } = ty.field(name) else { return None };
    let near = nearest_name(name, declared.iter().map(|name| &**name))?;
    Some(format!("there is no input `{name}`; did you mean `{near}`?"))
}
