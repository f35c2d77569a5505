//! Applies a named filter or test to each item: `map('upper')`, `select('in', names)`.
//!
//! MiniJinja would look the name up among all its filters and apply it without a charge. Here each
//! item is handled like a direct application.

use std::borrow::Cow;

use super::{BYTES_PER_CHAR, FILTERS, FilterArgs, TESTS, apply, perform_test, refuse_unknown};
use crate::budget::BYTES_PER_OPERATION;
use crate::expr::ast::ExprSpan;
use crate::expr::eval::{EvalError, Evaluator, is_true};
use crate::value::Value;

/// `map('upper')`, with further arguments for the filter.
pub(super) fn map(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    input: &Value,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    let [(None, Value::String(filter)), args @ ..] = args else {
        return Err(Evaluator::error(at, "`map` takes the name of a filter, or `attribute`"));
    };
    refuse_unknown(at, "filter", filter, FILTERS)?;
    let mapped: Result<Vec<Value>, EvalError> = items(evaluator, at, input)?
        .iter()
        .map(|item| evaluator.nested(at, |it| apply(it, at, filter, item, args)))
        .collect();
    mapped.map(Value::from)
}

/// `select('odd')`, `rejectattr('name', 'in', names)` and similar. Without a test, truthy items
/// pass.
pub(super) fn select(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    name: &str,
    input: &Value,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    let (path, args) = match (name, args) {
        ("select" | "reject", args) => (None, args),
        (_, [(None, path @ (Value::String(_) | Value::Number(_))), args @ ..]) => {
            (Some(path.to_string()), args)
        }
        _ => {
            let message = format!("`{name}` takes the name of an attribute, and that of a test");
            return Err(Evaluator::error(at, message));
        }
    };
    let (test, args) = match args {
        [] | [(None, Value::Null), ..] => (None, args),
        [(None, Value::String(test)), args @ ..] => (Some(test), args),
        _ => return Err(Evaluator::error(at, format!("`{name}` takes the name of a test"))),
    };
    test.map_or(Ok(()), |test| refuse_unknown(at, "test", test, TESTS))?;
    let wanted = name.starts_with("select");
    let mut chosen = Vec::new();
    for item in items(evaluator, at, input)?.iter() {
        let tested = match &path {
            Some(path) => at_path(evaluator, at, item, path)?,
            None => Some(item.clone()),
        };
        let passes = match test {
            Some(test) => perform_test(evaluator, at, test, tested.as_ref(), args)?,
            None => tested.as_ref().is_some_and(is_true),
        };
        if passes == wanted {
            chosen.push(item.clone());
        }
    }
    Ok(chosen.into())
}

/// The items to iterate: of a list, the keys of an object, the characters of a string.
pub(super) fn items<'a>(
    evaluator: &Evaluator<'_>,
    at: ExprSpan,
    input: &'a Value,
) -> Result<Cow<'a, [Value]>, EvalError> {
    let each = std::mem::size_of::<Value>();
    match input {
        Value::Array(items) => {
            evaluator.charge(at, items.len().saturating_mul(each))?;
            Ok(Cow::Borrowed(items))
        }
        Value::Object(members) => {
            evaluator.charge(at, members.len().saturating_mul(each))?;
            Ok(members.keys().cloned().map(Value::String).collect())
        }
        Value::String(text) => {
            evaluator.charge(at, text.len().saturating_mul(BYTES_PER_CHAR))?;
            Ok(text.chars().map(|sign| Value::from(sign.to_string())).collect())
        }
        other => {
            let message = format!("expected an array to go through, found {}", other.kind());
            Err(Evaluator::error(at, message))
        }
    }
}

/// The value at a path such as `a.b.0`; `None` if its last segment is missing. A missing earlier
/// segment is an error.
pub(super) fn at_path(
    evaluator: &Evaluator<'_>,
    at: ExprSpan,
    item: &Value,
    path: &str,
) -> Result<Option<Value>, EvalError> {
    evaluator.spend(at, 1 + (path.len() / BYTES_PER_OPERATION) as u64)?;
    let mut found = Some(item);
    for part in path.split('.') {
        evaluator.spend(at, 1)?;
        let Some(base) = found else { return Err(EvalError::unresolved(at, path)) };
        found = match base {
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            other => other.get(part),
        };
    }
    Ok(found.cloned())
}
