//! `sum` of lists and of strings. The library would copy the accumulated value for each item.

use super::{FilterArgs, argument, per_item};
use crate::expr::ast::ExprSpan;
use crate::expr::eval::{EvalError, Evaluator};
use crate::value::Value;

/// The list or string that `sum` starts with.
pub(super) fn sum_start(args: &FilterArgs) -> Option<&Value> {
    let start = argument(args, 1, "start")?;
    matches!(start, Value::Array(_) | Value::String(_)).then_some(start)
}

/// `sum` of lists or strings, in one pass.
pub(super) fn concat(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    input: &Value,
    start: &Value,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    let path = argument(args, 0, "attribute").and_then(Value::as_str);
    let (mut list, mut text) = (Vec::new(), String::new());
    let mut add = |evaluator: &Evaluator<'_>, part: &Value| match (start, part) {
        (Value::Array(_), Value::Array(items)) => {
            evaluator.charge(at, items.len().saturating_mul(std::mem::size_of::<Value>()))?;
            list.extend(items.iter().cloned());
            Ok(())
        }
        (Value::String(_), Value::String(part)) => {
            evaluator.charge(at, part.len())?;
            text.push_str(part);
            Ok(())
        }
        (start, part) => {
            let message = format!("`sum` cannot add {} to {}", part.kind(), start.kind());
            Err(Evaluator::error(at, message))
        }
    };
    add(evaluator, start)?;
    for item in per_item::items(evaluator, at, input)?.iter() {
        let part = match path {
            Some(path) => per_item::at_path(evaluator, at, item, path)?,
            None => Some(item.clone()),
        };
        part.map_or(Ok(()), |part| add(evaluator, &part))?;
    }
    Ok(if matches!(start, Value::Array(_)) { list.into() } else { text.into() })
}
