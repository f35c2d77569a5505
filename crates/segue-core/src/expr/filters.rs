//! MiniJinja's filters, tests and functions over our values.
//!
//! Values are passed without a copy. Filters that could blow up — `replace`, `join`, `range`, a
//! huge `indent` — are charged before they run. All others are at most linear in their input and
//! charged afterwards. A string is charged by its length wherever a filter or test may read it: as
//! input, as argument, and as an item of a list.
//!
//! [`per_item`] applies filters and tests by name, under the same rules.

mod per_item;
mod sum;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Environment, Value as Jinja};

use super::ast::ExprSpan;
use super::eval::{EvalError, Evaluator, is_true};
use crate::budget::{self, BYTES_PER_OPERATION};
use crate::diagnostic::nearest_name;
use crate::schema::shorten;
use crate::value::{Map, Number, Shared, Value};

/// Arguments, some of them named.
pub(super) type FilterArgs = [(Option<Arc<str>>, Value)];

/// The largest number that a filter takes as a width, a count or the like.
const FILTER_NUMBER_MAX: u32 = 10_000;

/// Bytes that one character may cost when a filter splits a string.
const BYTES_PER_CHAR: usize = 32;

/// The supported filters. Those of MiniJinja's that are missing produce markup.
pub(super) const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "chain",
    "count",
    "d",
    "default",
    "dictsort",
    "filter",
    "first",
    "float",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "json_query",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "urlencode",
    "zip",
];

/// The arguments that a filter takes by name.
pub(super) fn named_arguments(filter: &str) -> &'static [&'static str] {
    match filter {
        "default" | "d" => &["default_value", "boolean"],
        "dictsort" => &["by", "case_sensitive", "reverse"],
        "float" => &["default"],
        "groupby" => &["attribute", "case_sensitive", "default"],
        "indent" => &["blank", "first", "width"],
        "int" => &["base", "default"],
        "join" => &["attribute", "d"],
        "map" => &["attribute", "default"],
        "max" | "min" | "unique" => &["attribute", "case_sensitive"],
        "round" => &["method", "precision"],
        "sort" => &["attribute", "case_sensitive", "reverse"],
        "sum" => &["attribute", "start"],
        "tojson" => &["indent"],
        _ => &[],
    }
}

/// The supported tests.
pub(super) const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// The supported functions.
pub(super) const FUNCTIONS: &[&str] = &["dict", "range"];

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        environment
    })
}

pub(super) fn apply(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    name: &str,
    input: &Value,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    evaluator.spend(at, cost_of_texts(args))?;
    match (name, args) {
        ("replace", [(None, from), (None, to)]) => return replace(evaluator, at, input, from, to),
        ("join", _) => return join(evaluator, at, input, args),
        // The evaluator handles a missing input itself.
        ("default" | "d", _) => return default(at, input, args),
        ("trim", [(None, Value::String(signs))]) if input.as_str().is_some() => {
            return trim(evaluator, at, input, signs);
        }
        ("json_query", [(None, Value::String(program))]) => {
            let jq = evaluator.program(at, program)?;
            return jq.run_within(input, evaluator.limits()).map_err(|error| error.at(at));
        }
        ("length" | "count", []) => return length(evaluator, at, input),
        ("tojson", []) => {
            evaluator.charge(at, input.size())?;
            return Ok(input.to_json().into());
        }
        ("sum", _) => {
            if let Some(start) = sum::sum_start(args) {
                return sum::concat(evaluator, at, input, start, args);
            }
        }
        ("map", _) if argument(args, usize::MAX, "attribute").is_none() => {
            return per_item::map(evaluator, at, input, args);
        }
        ("select" | "reject" | "selectattr" | "rejectattr", _) => {
            return per_item::select(evaluator, at, name, input, args);
        }
        _ => {}
    }
    refuse_unknown(at, "filter", name, FILTERS)?;
    refuse_huge_numbers(at, name, args)?;
    evaluator.charge(at, cost_of_taking_apart(name, input, args))?;
    evaluator.spend(at, cost_of_items(name, input, args))?;
    let mut jinja_args = vec![to_jinja(input, at)?];
    jinja_args.extend(arguments(args, at)?);
    library(at, || {
        let result = environment().empty_state().apply_filter(name, &jinja_args);
        from_jinja(&result.map_err(|error| failure(at, &error))?, evaluator, at, 0)
    })
}

/// Calls MiniJinja within the budget.
fn library<T>(at: ExprSpan, work: impl FnOnce() -> Result<T, EvalError>) -> Result<T, EvalError> {
    budget::catch_unwound(work).unwrap_or_else(|stop| Err(EvalError::stopped(at, &stop)))
}

/// Performs a test; an input of `None` is an item without the requested attribute.
pub(super) fn perform_test(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    name: &str,
    input: Option<&Value>,
    args: &FilterArgs,
) -> Result<bool, EvalError> {
    refuse_unknown(at, "test", name, TESTS)?;
    let size = input.map_or(0, Value::size);
    evaluator.spend(at, 1 + (size / BYTES_PER_OPERATION) as u64 + cost_of_texts(args))?;
    match (name, input) {
        ("defined", input) => return Ok(input.is_some()),
        ("undefined", input) => return Ok(input.is_none()),
        ("divisibleby", _) => refuse_zero(at, args)?,
        // The library has more filters and tests than are supported.
        ("filter", Some(Value::String(name))) => return Ok(FILTERS.contains(&&**name)),
        ("test", Some(Value::String(name))) => return Ok(TESTS.contains(&&**name)),
        _ => {}
    }
    let input = input.map_or(Ok(Jinja::UNDEFINED), |input| to_jinja(input, at))?;
    let mut jinja_args = vec![input];
    jinja_args.extend(arguments(args, at)?);
    library(at, || {
        let verdict = environment().empty_state().perform_test(name, &jinja_args);
        verdict.map_err(|error| failure(at, &error))
    })
}

/// The library would divide by zero.
fn refuse_zero(at: ExprSpan, args: &FilterArgs) -> Result<(), EvalError> {
    let is_zero = |value: &Value| match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        other => other.as_bool() == Some(false),
    };
    if args.iter().any(|(_, value)| is_zero(value)) {
        return Err(Evaluator::error(at, "nothing is divisible by zero"));
    }
    Ok(())
}

pub(super) fn call_function(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    name: &str,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    match name {
        "range" => range(evaluator, at, args),
        "dict" => {
            let members = args
                .iter()
                .filter_map(|(name, value)| name.clone().map(|name| (name, value.clone())));
            Ok(Value::object(members))
        }
        _ => Err(unknown(at, "function", name, FUNCTIONS)),
    }
}

fn refuse_unknown(at: ExprSpan, what: &str, name: &str, known: &[&str]) -> Result<(), EvalError> {
    if known.contains(&name) { Ok(()) } else { Err(unknown(at, what, name, known)) }
}

fn unknown(at: ExprSpan, what: &str, name: &str, known: &[&str]) -> EvalError {
    let hint = nearest_name(name, known.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Evaluator::error(at, format!("there is no {what} `{}`{hint}", shorten(name)))
}

fn failure(at: ExprSpan, error: &minijinja::Error) -> EvalError {
    let message = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    Evaluator::error(at, message)
}

fn refuse_huge_numbers(at: ExprSpan, name: &str, args: &FilterArgs) -> Result<(), EvalError> {
    // A number beyond the range of floats is huge too.
    let huge = |value: &Value| {
        matches!(value, Value::Number(number)
            if number.as_f64().is_none_or(|n| n.abs() > f64::from(FILTER_NUMBER_MAX)))
    };
    let grows = matches!(name, "indent" | "batch" | "slice" | "tojson" | "round" | "pprint");
    if grows && args.iter().any(|(_, value)| huge(value)) {
        let message = format!("`{name}` takes numbers up to {FILTER_NUMBER_MAX}");
        return Err(Evaluator::error(at, message));
    }
    Ok(())
}

/// The most that a filter may cost, beyond its input.
fn cost_of_taking_apart(name: &str, input: &Value, args: &FilterArgs) -> usize {
    let size = input.size();
    let numbers = args.iter().filter_map(|(_, value)| value.as_u64());
    let number = usize::try_from(numbers.max().unwrap_or(0)).unwrap_or(usize::MAX);
    match (name, input) {
        (
            "split" | "lines" | "list" | "sort" | "unique" | "batch" | "slice" | "map" | "min"
            | "max" | "sum",
            Value::String(text),
        ) => text.len().saturating_mul(BYTES_PER_CHAR),
        ("indent", Value::String(text)) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            size.saturating_add(lines.saturating_mul(number))
        }
        // Each value starts a line, indented by its depth.
        ("tojson" | "pprint", _) => {
            let (lines, depth) = (size / std::mem::size_of::<Value>(), input.measure().depth);
            size.saturating_add(lines.saturating_mul(depth).saturating_mul(number.max(4)))
        }
        ("batch" | "slice", _) => {
            size.saturating_add(number.saturating_mul(std::mem::size_of::<Value>()))
        }
        _ => size,
    }
}

/// The cost of reading the string arguments.
fn cost_of_texts(args: &FilterArgs) -> u64 {
    let lengths = args.iter().map(|(_, value)| value.as_str().map_or(0, str::len));
    (lengths.sum::<usize>() / BYTES_PER_OPERATION) as u64
}

/// The cost of a filter that compares items with each other, or searches each.
fn cost_of_items(name: &str, input: &Value, args: &FilterArgs) -> u64 {
    let items = match input {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => return 0,
    } as u64;
    let comparisons = u64::from(items.checked_ilog2().unwrap_or(0));
    let compared = comparisons.saturating_mul((input.size() / BYTES_PER_OPERATION) as u64);
    let keys = |(_, value): &(_, Value)| value.as_str().map_or(0, |it| it.matches(',').count());
    let looked_for = items.saturating_mul(cost_of_texts(args));
    match name {
        "sort" => {
            let keys = args.iter().map(keys).sum::<usize>() as u64;
            looked_for.saturating_add(items.saturating_mul(keys)).saturating_add(compared)
        }
        "dictsort" | "groupby" | "unique" => looked_for.saturating_add(compared),
        "map" | "max" | "min" | "sum" => looked_for,
        _ => 0,
    }
}

/// An argument by position or by name.
fn argument<'a>(args: &'a FilterArgs, place: usize, name: &str) -> Option<&'a Value> {
    let by_place = args.get(place).filter(|(name, _)| name.is_none());
    let by_name = || args.iter().find(|(given, _)| given.as_deref() == Some(name));
    by_place.or_else(by_name).map(|(_, value)| value)
}

/// The value, or the default if the value is falsy.
fn default(at: ExprSpan, input: &Value, args: &FilterArgs) -> Result<Value, EvalError> {
    let also_false = args.get(1).is_some_and(|(_, flag)| is_true(flag));
    match args.first() {
        _ if !also_false || is_true(input) => Ok(input.clone()),
        Some((_, fallback)) => Ok(fallback.clone()),
        None => Err(Evaluator::error(at, "`default` needs a value to fall back to")),
    }
}

/// Trims characters from both ends. The library would search all of them for each character of the
/// text.
fn trim(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    input: &Value,
    signs: &str,
) -> Result<Value, EvalError> {
    let text = input.as_str().unwrap_or_default();
    evaluator.charge(at, text.len().saturating_add(signs.len()))?;
    let signs: BTreeSet<char> = signs.chars().collect();
    Ok(text.trim_matches(|sign| signs.contains(&sign)).into())
}

fn length(evaluator: &mut Evaluator<'_>, at: ExprSpan, input: &Value) -> Result<Value, EvalError> {
    match input {
        Value::String(text) => {
            evaluator.spend(at, (text.len() / BYTES_PER_OPERATION) as u64)?;
            Ok(Value::from(text.chars().count()))
        }
        Value::Array(items) => Ok(Value::from(items.len())),
        Value::Object(members) => Ok(Value::from(members.len())),
        other => Err(Evaluator::error(at, format!("{} has no length", other.kind()))),
    }
}

fn replace(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    input: &Value,
    from: &Value,
    to: &Value,
) -> Result<Value, EvalError> {
    let (Value::String(text), Value::String(from), Value::String(to)) = (input, from, to) else {
        return Err(Evaluator::error(at, "`replace` works on text"));
    };
    evaluator.spend(at, 1 + (text.len() / BYTES_PER_OPERATION) as u64)?;
    let matches = if from.is_empty() { text.len() + 1 } else { text.matches(&**from).count() };
    let size = text.len().saturating_add(matches.saturating_mul(to.len()));
    // Each replacement is an operation: a text full of matches costs more than its bytes.
    evaluator.spend(at, matches as u64)?;
    evaluator.charge(at, size)?;
    Ok(text.replace(&**from, to).into())
}

fn join(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    input: &Value,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    let Value::Array(items) = input else {
        return Err(Evaluator::error(at, format!("`join` needs an array, found {}", input.kind())));
    };
    let separator = match args {
        [] => "",
        [(_, Value::String(separator))] => separator,
        _ => return Err(Evaluator::error(at, "`join` takes one separator, as text")),
    };
    let separators = separator.len().saturating_mul(items.len());
    evaluator.charge(at, input.size().saturating_add(separators))?;
    let parts: Vec<String> = items.iter().map(ToString::to_string).collect();
    Ok(parts.join(separator).into())
}

fn range(
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    args: &FilterArgs,
) -> Result<Value, EvalError> {
    let numbers: Option<Vec<i64>> = args.iter().map(|(_, value)| value.as_i64()).collect();
    let (from, to, step) = match numbers.as_deref() {
        Some([to]) => (0, *to, 1),
        Some([from, to]) => (*from, *to, 1),
        Some([from, to, step]) if *step > 0 => (*from, *to, *step),
        _ => return Err(Evaluator::error(at, "`range` takes one to three whole numbers")),
    };
    let count = to.saturating_sub(from).max(0) / step;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    evaluator.charge(at, count.saturating_mul(std::mem::size_of::<Value>()))?;
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((from..to).step_by(step).map(Value::from).collect::<Vec<_>>().into())
}

fn arguments(args: &FilterArgs, at: ExprSpan) -> Result<Vec<Jinja>, EvalError> {
    let mut positional = Vec::new();
    let mut named = Vec::new();
    for (name, value) in args {
        let value = to_jinja(value, at)?;
        match name {
            Some(name) => named.push((name.to_string(), value)),
            None => positional.push(value),
        }
    }
    if !named.is_empty() {
        positional.push(Kwargs::from_iter(named).into());
    }
    Ok(positional)
}

/// Converts a value for the library; arrays and objects are not copied.
fn to_jinja(value: &Value, at: ExprSpan) -> Result<Jinja, EvalError> {
    Ok(match value {
        Value::Null => Jinja::from(()),
        Value::Bool(bool) => Jinja::from(*bool),
        Value::Number(Number::Int(int)) => Jinja::from(*int),
        Value::Number(Number::UInt(uint)) => Jinja::from(*uint),
        Value::Number(Number::Float(float)) => Jinja::from(*float),
        Value::Number(Number::Written(text)) => match text.parse::<i128>() {
            Ok(int) => Jinja::from(int),
            Err(_) => return Err(Evaluator::error(at, "the number is too large for a filter")),
        },
        Value::String(text) => Jinja::from(text.clone()),
        Value::Array(items) => Jinja::from_object(SharedArray(items.clone())),
        Value::Object(members) => Jinja::from_object(SharedObject(members.clone())),
    })
}

/// Converts an item that the library requests and will read. A lazily read array or object cannot
/// return an error, so the one kind of value that cannot be converted becomes its text.
fn to_jinja_inner(value: &Value) -> Jinja {
    pay_for_look(value.as_str().unwrap_or_default());
    to_jinja(value, ExprSpan::default()).unwrap_or_else(|_| Jinja::from(value.to_json()))
}

fn pay_for_look(text: &str) {
    budget::spend_or_unwind(1 + (text.len() / BYTES_PER_OPERATION) as u64);
}

struct SharedArray(Shared<Vec<Value>>);

impl fmt::Debug for SharedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Object for SharedArray {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        self.0.get(key.as_usize()?).map(to_jinja_inner)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

struct SharedObject(Shared<Map>);

impl fmt::Debug for SharedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Object for SharedObject {
    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        let name = key.as_str()?;
        pay_for_look(name);
        self.0.get(name).map(to_jinja_inner)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let name = |key: &Arc<str>| {
            pay_for_look(key);
            Jinja::from(key.clone())
        };
        self.mapped_enumerator(move |this| Box::new(this.0.keys().map(name)))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Converts a result back, charging new data.
fn from_jinja(
    value: &Jinja,
    evaluator: &mut Evaluator<'_>,
    at: ExprSpan,
    depth: usize,
) -> Result<Value, EvalError> {
    const RESULT_DEPTH_MAX: usize = 64;
    if depth > RESULT_DEPTH_MAX {
        return Err(Evaluator::error(at, "the result nests too deep"));
    }
    if let Some(array) = value.downcast_object_ref::<SharedArray>() {
        return Ok(Value::Array(array.0.clone()));
    }
    if let Some(object) = value.downcast_object_ref::<SharedObject>() {
        return Ok(Value::Object(object.0.clone()));
    }
    evaluator.charge(at, std::mem::size_of::<Value>())?;
    match value.kind() {
        ValueKind::None => Ok(Value::Null),
        ValueKind::Undefined => Err(EvalError::unresolved(at, "the result")),
        ValueKind::Bool => Ok(Value::Bool(value.is_true())),
        ValueKind::Number => number_from_jinja(value, at),
        ValueKind::String => {
            let text = value.to_str().unwrap_or_default();
            evaluator.charge(at, text.len())?;
            Ok(Value::String(text))
        }
        ValueKind::Map => {
            let mut members = Map::new();
            for key in value.try_iter().map_err(|error| failure(at, &error))? {
                let name: Arc<str> = key.to_string().into();
                let member = value.get_item(&key).map_err(|error| failure(at, &error))?;
                evaluator.charge(at, name.len())?;
                members.insert(name, from_jinja(&member, evaluator, at, depth + 1)?);
            }
            Ok(members.into())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter().map_err(|error| failure(at, &error))? {
                items.push(from_jinja(&item, evaluator, at, depth + 1)?);
            }
            Ok(items.into())
        }
        other => Err(Evaluator::error(at, format!("the result is a {other}, which is not data"))),
    }
}

fn number_from_jinja(value: &Jinja, at: ExprSpan) -> Result<Value, EvalError> {
    if value.is_integer() {
        return Ok(Value::Number(Number::from_literal(&value.to_string())));
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_finite() => Ok(Value::Number(Number::Float(float))),
        _ => Err(Evaluator::error(at, "the result is not a finite number")),
    }
}
