//! Evaluates a tree, charging each operation to a budget before performing it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{Arg, Arithmetic, Ast, AstKind, Comparison, ExprSpan, Logic};
use super::jq::Jq;
use super::{ExprRoot, Scope, filters};
use crate::budget::{self, BYTES_PER_OPERATION, BudgetExceeded};
use crate::diagnostic::Code;
use crate::limits::Limits;
use crate::value::{Map, Number, Value};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// `unresolved-reference`, `expression`, `limit`, `policy-violation` for a redacted value, or
    /// `internal` for a bug of ours.
    pub code: Code,
    /// The span in the template's text.
    pub at: ExprSpan,
    /// The message.
    pub message: String,
}

impl EvalError {
    fn new(at: ExprSpan, message: impl Into<String>) -> EvalError {
        EvalError { code: Code::Expression, at, message: message.into() }
    }

    pub(super) fn unresolved(at: ExprSpan, path: &str) -> EvalError {
        let message = format!("`{path}` has no value");
        EvalError { code: Code::UnresolvedReference, at, message }
    }

    /// The error of a path without a value. For state names it has the text that chains define.
    fn absent(ast: &Ast) -> EvalError {
        match &ast.kind {
            AstKind::Field(base, name)
                if matches!(base.kind, AstKind::Name { root: ExprRoot::State, .. }) =>
            {
                let message = format!("Variable not found in chain state: {name}");
                EvalError { code: Code::UnresolvedReference, at: ast.at, message }
            }
            _ => EvalError::unresolved(ast.at, &ast.path()),
        }
    }

    /// The error of a path to a redacted value.
    fn not_kept(ast: &Ast) -> EvalError {
        let message = format!(
            "`{}` has a sensitive value that was not stored when the run stopped",
            ast.path()
        );
        EvalError { code: Code::PolicyViolation, at: ast.at, message }
    }

    /// The error of an evaluation that the budget ended.
    pub(super) fn stopped(at: ExprSpan, stop: &BudgetExceeded) -> EvalError {
        let code =
            if matches!(stop, BudgetExceeded::Fault(_)) { Code::Internal } else { Code::Limit };
        EvalError { code, at, message: stop.to_string() }
    }
}

type Result<T, E = EvalError> = std::result::Result<T, E>;

pub(super) fn eval(ast: &Ast, scope: &dyn Scope, limits: &Limits) -> Result<Value> {
    // Most expressions are plain paths, which need neither budget nor evaluator.
    if let Some(found) = eval_whole_path(ast, scope) {
        return found;
    }
    Evaluator { scope, limits, locals: Vec::new(), names: 0, program: None }.eval(ast)
}

/// Rejects a value that exceeds the size limits.
pub(super) fn check_size(value: Value, at: ExprSpan, limits: &Limits) -> Result<Value> {
    let measure = value.measure();
    let stop = if measure.bytes > limits.value_bytes_max {
        BudgetExceeded::Bytes(limits.value_bytes_max)
    } else if measure.depth > limits.value_depth_max {
        BudgetExceeded::Depth(limits.value_depth_max)
    } else {
        return Ok(value);
    };
    Err(EvalError::stopped(at, &stop))
}

/// The value of a plain path, if it can be used; `None` if the tree is something else. Redacted
/// values beside the path's end do not matter.
fn eval_whole_path(ast: &Ast, scope: &dyn Scope) -> Option<Result<Value>> {
    let found = eval_path(ast, scope)?;
    Some(found.and_then(|value| {
        if scope.is_kept(&value) { Ok(value.into_owned()) } else { Err(EvalError::not_kept(ast)) }
    }))
}

/// The value of a plain path, borrowed; `None` if the tree is something else.
fn eval_path<'a>(ast: &Ast, scope: &'a dyn Scope) -> Option<Result<Cow<'a, Value>>> {
    let absent = || EvalError::absent(ast);
    let step = |base: Result<Cow<'a, Value>>, get: &dyn Fn(&Value) -> Option<&Value>| {
        base.and_then(|base| match base {
            Cow::Borrowed(base) => get(base).map(Cow::Borrowed).ok_or_else(absent),
            Cow::Owned(base) => get(&base).cloned().map(Cow::Owned).ok_or_else(absent),
        })
    };
    match &ast.kind {
        AstKind::Name { root: ExprRoot::Lambda, .. } => None,
        AstKind::Name { root, .. } => Some(scope.lookup(root).ok_or_else(absent)),
        AstKind::Field(base, name) => {
            eval_path(base, scope).map(|base| step(base, &|value| value.get(name)))
        }
        AstKind::Index(base, index) => match &index.kind {
            AstKind::Const(Value::Number(Number::Int(index))) => {
                eval_path(base, scope).map(|base| step(base, &|value| item(value, *index)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// An item by position; negative positions count from the end. Objects may have numbers as keys.
fn item(value: &Value, index: i64) -> Option<&Value> {
    match value {
        Value::Array(items) => items.get(position(index, items.len())?),
        Value::Object(members) => members.get(index.to_string().as_str()),
        _ => None,
    }
}

fn position(index: i64, len: usize) -> Option<usize> {
    let from_start = if index < 0 { index.checked_add(i64::try_from(len).ok()?)? } else { index };
    usize::try_from(from_start).ok()
}

/// One evaluation. The thread's budget counts its cost.
pub(super) struct Evaluator<'a> {
    scope: &'a dyn Scope,
    limits: &'a Limits,
    /// Parameters of enclosing lambdas, innermost last.
    locals: Vec<(Arc<str>, Value)>,
    /// Number of enclosing filters that apply another one by name.
    names: usize,
    /// The last jq program: most loops run the same one for each item.
    program: Option<(Arc<str>, Rc<Jq>)>,
}

/// Maximum nesting of filters that apply another one by name. Each uses stack.
const NAMES_MAX: usize = 32;

/// Operations for compiling a jq program of any length: its library is compiled too.
const COMPILATION: u64 = 5_000;

#[expect(clippy::unused_self, reason = "the thread holds the budget of the evaluation")]
impl Evaluator<'_> {
    /// Charges `bytes` of new data.
    pub(super) fn charge(&self, at: ExprSpan, bytes: usize) -> Result<()> {
        budget::charge(bytes).map_err(|stop| EvalError::stopped(at, &stop))
    }

    /// Charges `work` operations.
    pub(super) fn spend(&self, at: ExprSpan, work: u64) -> Result<()> {
        budget::spend(work).map_err(|stop| EvalError::stopped(at, &stop))
    }
}

impl Evaluator<'_> {
    /// Applies a filter that another one was given by name.
    pub(super) fn nested<T>(
        &mut self,
        at: ExprSpan,
        apply: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.spend(at, 1)?;
        if self.names == NAMES_MAX {
            return Err(EvalError::stopped(at, &BudgetExceeded::Depth(NAMES_MAX)));
        }
        self.names += 1;
        let applied = apply(self);
        self.names -= 1;
        applied
    }

    /// A jq program whose text is known only now.
    pub(super) fn program(&mut self, at: ExprSpan, text: &Arc<str>) -> Result<Rc<Jq>> {
        if let Some((known, program)) = &self.program
            && known == text
        {
            return Ok(program.clone());
        }
        self.spend(at, COMPILATION)?;
        let program = Rc::new(Jq::compile(text).map_err(|error| error.at(at))?);
        self.program = Some((text.clone(), program.clone()));
        Ok(program)
    }

    fn eval(&mut self, ast: &Ast) -> Result<Value> {
        self.spend(ast.at, 1)?;
        if let Some(found) = eval_whole_path(ast, self.scope) {
            if self.scope.looks_through() {
                let size = found.as_ref().map_or(0, Value::size);
                self.spend(ast.at, (size / BYTES_PER_OPERATION) as u64)?;
            }
            return found;
        }
        let value = self.compute(ast)?;
        check_size(value, ast.at, self.limits)
    }

    fn compute(&mut self, ast: &Ast) -> Result<Value> {
        match &ast.kind {
            AstKind::Const(value) => Ok(value.clone()),
            AstKind::Name { name, .. } => self.local(ast, name),
            AstKind::Field(base, name) => {
                let base = self.eval(base)?;
                base.get(name).cloned().ok_or_else(|| EvalError::absent(ast))
            }
            AstKind::Index(base, index) => self.index(ast, base, index),
            AstKind::Slice(base, bounds) => self.slice(ast, base, bounds),
            AstKind::Not(operand) => Ok(Value::Bool(!is_true(&self.eval(operand)?))),
            AstKind::Negate(operand) => negate(&self.eval(operand)?, ast.at),
            AstKind::Logic(logic, left, right) => {
                let left = self.eval(left)?;
                match (logic, is_true(&left)) {
                    (Logic::And, true) | (Logic::Or, false) => self.eval(right),
                    _ => Ok(left),
                }
            }
            AstKind::Arithmetic(op, left, right) => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                self.arithmetic(*op, &left, &right, ast.at)
            }
            AstKind::Compare(first, rest) => self.compare(first, rest),
            AstKind::If { test, then, otherwise } => {
                match (is_true(&self.eval(test)?), otherwise) {
                    (true, _) => self.eval(then),
                    (false, Some(otherwise)) => self.eval(otherwise),
                    (false, None) => Err(EvalError::unresolved(ast.at, "else")),
                }
            }
            AstKind::Filter(name, input, args) => self.filter(ast, name, input, args),
            AstKind::Test(name, input, args) => self.test(ast, name, input, args),
            AstKind::Call(name, args) => {
                let args = self.args(args)?;
                filters::call_function(self, ast.at, name, &args)
            }
            AstKind::List(items) => {
                self.charge(ast.at, items.len() * std::mem::size_of::<Value>())?;
                let items: Result<Vec<Value>> = items.iter().map(|item| self.eval(item)).collect();
                items.map(Value::from)
            }
            AstKind::Object(members) => self.object(members),
            AstKind::Lambda(..) => {
                Err(EvalError::new(ast.at, "a lambda is only an argument of `filter` and `map`"))
            }
        }
    }

    /// The value of a lambda parameter; every other name is a path.
    fn local(&self, ast: &Ast, name: &Arc<str>) -> Result<Value> {
        let local = self.locals.iter().rev().find(|(local, _)| local == name);
        let value = local.map(|(_, value)| value.clone());
        value.ok_or_else(|| EvalError::unresolved(ast.at, name))
    }

    fn index(&mut self, ast: &Ast, base: &Ast, index: &Ast) -> Result<Value> {
        let base = self.eval(base)?;
        let index = self.eval(index)?;
        let found = match &index {
            Value::Number(number) => number.as_i64().and_then(|index| item(&base, index)),
            Value::String(name) => base.get(name),
            _ => None,
        };
        found.cloned().ok_or_else(|| EvalError::unresolved(ast.at, &ast.path()))
    }

    fn slice(&mut self, ast: &Ast, base: &Ast, bounds: &[Option<Box<Ast>>; 3]) -> Result<Value> {
        let base = self.eval(base)?;
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            if let Some(bound) = bound {
                let value = self.eval(bound)?;
                let whole = value.as_i64();
                *number = Some(whole.ok_or_else(|| {
                    EvalError::new(bound.at, "the bounds of a slice are integers")
                })?);
            }
        }
        self.charge(ast.at, base.size())?;
        match &base {
            Value::Array(items) => Ok(slice_indices(items.len(), numbers, ast.at)?
                .map(|index| items[index].clone())
                .collect::<Vec<_>>()
                .into()),
            Value::String(text) => {
                let chars: Vec<char> = text.chars().collect();
                let indices = slice_indices(chars.len(), numbers, ast.at)?;
                Ok(indices.map(|index| chars[index]).collect::<String>().into())
            }
            other => Err(EvalError::new(ast.at, format!("{} cannot be sliced", other.kind()))),
        }
    }

    fn object(&mut self, members: &[(Ast, Ast)]) -> Result<Value> {
        let mut map = Map::with_capacity(members.len());
        for (key, value) in members {
            let name = self.eval(key)?;
            let Value::String(name) = name else {
                return Err(EvalError::new(key.at, "names of members are text"));
            };
            self.charge(key.at, name.len() + std::mem::size_of::<Value>())?;
            map.insert(name, self.eval(value)?);
        }
        Ok(map.into())
    }

    fn compare(&mut self, first: &Ast, rest: &[(Comparison, Ast)]) -> Result<Value> {
        let mut left = self.eval(first)?;
        for (op, operand) in rest {
            let right = self.eval(operand)?;
            let size = left.size().saturating_add(right.size());
            self.spend(operand.at, (size / BYTES_PER_OPERATION) as u64)?;
            if !compare(*op, &left, &right, operand.at)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn arithmetic(
        &mut self,
        op: Arithmetic,
        left: &Value,
        right: &Value,
        at: ExprSpan,
    ) -> Result<Value> {
        match (op, left, right) {
            (Arithmetic::Concat, _, _) => {
                self.charge(at, left.size().saturating_add(right.size()))?;
                Ok(format!("{left}{right}").into())
            }
            (Arithmetic::Add, Value::String(a), Value::String(b)) => {
                self.charge(at, a.len() + b.len())?;
                Ok(format!("{a}{b}").into())
            }
            (Arithmetic::Add, Value::Array(a), Value::Array(b)) => {
                self.charge(at, (a.len() + b.len()) * std::mem::size_of::<Value>())?;
                Ok(a.iter().chain(b.iter()).cloned().collect::<Vec<_>>().into())
            }
            (Arithmetic::Multiply, Value::String(text), Value::Number(times))
            | (Arithmetic::Multiply, Value::Number(times), Value::String(text)) => {
                let times = repetitions(times, at)?;
                self.charge(at, text.len().saturating_mul(times))?;
                Ok(text.repeat(times).into())
            }
            (op, Value::Number(a), Value::Number(b)) => numeric(op, a, b, at).map(Value::Number),
            (_, a, b) => {
                let message = format!("{} and {} cannot be combined so", a.kind(), b.kind());
                Err(EvalError::new(at, message))
            }
        }
    }

    fn filter(&mut self, ast: &Ast, name: &str, input: &Ast, args: &[Arg]) -> Result<Value> {
        if matches!(name, "default" | "d") {
            return self.default(ast, input, args);
        }
        if let (
            "filter" | "map",
            [Arg { name: None, value: Ast { kind: AstKind::Lambda(param, body), .. } }],
        ) = (name, args)
        {
            return self.each(ast, name == "filter", input, param, body);
        }
        let input = self.eval(input)?;
        let args = self.args(args)?;
        filters::apply(self, ast.at, name, &input, &args)
    }

    /// `default(value)` also covers a missing part of a path; if the second argument is true, it
    /// covers every falsy value.
    fn default(&mut self, ast: &Ast, input: &Ast, args: &[Arg]) -> Result<Value> {
        let also_false = match args.get(1) {
            Some(flag) => is_true(&self.eval(&flag.value)?),
            None => false,
        };
        match self.eval(input) {
            Ok(value) if !also_false || is_true(&value) => Ok(value),
            Ok(_) => self.default_value(ast, args),
            Err(error) if error.code == Code::UnresolvedReference => self.default_value(ast, args),
            Err(error) => Err(error),
        }
    }

    fn default_value(&mut self, ast: &Ast, args: &[Arg]) -> Result<Value> {
        match args.first() {
            Some(arg) => self.eval(&arg.value),
            None => Err(EvalError::new(ast.at, "`default` needs a value to fall back to")),
        }
    }

    /// `filter(lambda x: …)` and `map(lambda x: …)`.
    fn each(
        &mut self,
        ast: &Ast,
        keep: bool,
        input: &Ast,
        param: &Arc<str>,
        body: &Ast,
    ) -> Result<Value> {
        let input = self.eval(input)?;
        let Value::Array(items) = &input else {
            let message = format!("expected an array to go through, found {}", input.kind());
            return Err(EvalError::new(ast.at, message));
        };
        self.charge(ast.at, items.len() * std::mem::size_of::<Value>())?;
        let mut out = Vec::new();
        for item in items.iter() {
            self.locals.push((param.clone(), item.clone()));
            let value = self.eval(body);
            self.locals.pop();
            match (keep, value?) {
                (true, verdict) if is_true(&verdict) => out.push(item.clone()),
                (true, _) => {}
                (false, value) => out.push(value),
            }
        }
        Ok(out.into())
    }

    fn test(&mut self, ast: &Ast, name: &str, input: &Ast, args: &[Arg]) -> Result<Value> {
        let input = match self.eval(input) {
            Err(error) if error.code == Code::UnresolvedReference => None,
            other => Some(other?),
        };
        match (name, input) {
            ("defined", input) => Ok(Value::Bool(input.is_some())),
            ("undefined", input) => Ok(Value::Bool(input.is_none())),
            (name, Some(input)) => {
                let args = self.args(args)?;
                filters::perform_test(self, ast.at, name, Some(&input), &args).map(Value::Bool)
            }
            (_, None) => Err(EvalError::unresolved(ast.at, &ast.path())),
        }
    }

    fn args(&mut self, args: &[Arg]) -> Result<Vec<(Option<Arc<str>>, Value)>> {
        args.iter().map(|arg| Ok((arg.name.clone(), self.eval(&arg.value)?))).collect()
    }

    pub(super) fn limits(&self) -> &Limits {
        self.limits
    }

    pub(super) fn error(at: ExprSpan, message: impl Into<String>) -> EvalError {
        EvalError::new(at, message)
    }
}

/// `false`, `null`, zero and empty values are falsy.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(bool) => *bool,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn compare(op: Comparison, left: &Value, right: &Value, at: ExprSpan) -> Result<bool> {
    Ok(match op {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::In => contains(right, left, at)?,
        Comparison::NotIn => !contains(right, left, at)?,
        Comparison::Less => order(left, right, at)?.is_lt(),
        Comparison::LessOrEqual => order(left, right, at)?.is_le(),
        Comparison::Greater => order(left, right, at)?.is_gt(),
        Comparison::GreaterOrEqual => order(left, right, at)?.is_ge(),
    })
}

fn order(left: &Value, right: &Value, at: ExprSpan) -> Result<Ordering> {
    let ordering = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.partial_cmp(b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    ordering.ok_or_else(|| {
        let message = format!("{} and {} have no order", left.kind(), right.kind());
        EvalError::new(at, message)
    })
}

fn contains(container: &Value, wanted: &Value, at: ExprSpan) -> Result<bool> {
    match (container, wanted) {
        (Value::Array(items), wanted) => Ok(items.contains(wanted)),
        (Value::Object(members), Value::String(name)) => Ok(members.contains_key(name)),
        (Value::String(text), Value::String(part)) => Ok(text.contains(&**part)),
        (container, wanted) => {
            let message = format!("{} cannot be in {}", wanted.kind(), container.kind());
            Err(EvalError::new(at, message))
        }
    }
}

fn repetitions(times: &Number, at: ExprSpan) -> Result<usize> {
    let times = times.as_u64().and_then(|times| usize::try_from(times).ok());
    times.ok_or_else(|| EvalError::new(at, "text can be repeated a whole number of times only"))
}

fn negate(value: &Value, at: ExprSpan) -> Result<Value> {
    match value {
        Value::Number(number) => {
            numeric(Arithmetic::Subtract, &Number::Int(0), number, at).map(Value::Number)
        }
        other => Err(EvalError::new(at, format!("{} has no negative", other.kind()))),
    }
}

/// Integers stay integers, exactly; a float on either side makes a float.
fn numeric(op: Arithmetic, a: &Number, b: &Number, at: ExprSpan) -> Result<Number> {
    if let (Some(a), Some(b)) = (as_i128(a), as_i128(b))
        && op != Arithmetic::Divide
    {
        return integer(op, a, b, at);
    }
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else {
        return Err(EvalError::new(at, "the number is too large to calculate with"));
    };
    let result = match op {
        Arithmetic::Add | Arithmetic::Concat => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
        Arithmetic::FloorDivide => a.div_euclid(b),
        Arithmetic::Remainder => a.rem_euclid(b),
        Arithmetic::Power => a.powf(b),
    };
    if result.is_finite() {
        Ok(Number::Float(result))
    } else {
        Err(EvalError::new(at, "the result is not a finite number"))
    }
}

fn as_i128(number: &Number) -> Option<i128> {
    match number {
        Number::Int(int) => Some(i128::from(*int)),
        Number::UInt(uint) => Some(i128::from(*uint)),
        Number::Float(_) => None,
        Number::Written(text) => text.parse().ok(),
    }
}

fn integer(op: Arithmetic, a: i128, b: i128, at: ExprSpan) -> Result<Number> {
    let result = match op {
        Arithmetic::Add | Arithmetic::Concat => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::FloorDivide | Arithmetic::Divide => a.checked_div_euclid(b),
        Arithmetic::Remainder => a.checked_rem_euclid(b),
        Arithmetic::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    let too_large = || EvalError::new(at, "the result is too large, or divided by zero");
    Ok(Number::from_literal(&result.ok_or_else(too_large)?.to_string()))
}

/// The positions that `[start:stop:step]` names, in order.
fn slice_indices(
    len: usize,
    [start, stop, step]: [Option<i64>; 3],
    at: ExprSpan,
) -> Result<Box<dyn Iterator<Item = usize>>> {
    let step = step.unwrap_or(1);
    let clamp = |bound: i64| -> usize {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let from_start = if bound < 0 { bound.saturating_add(len) } else { bound };
        usize::try_from(from_start.clamp(0, len)).unwrap_or(0)
    };
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX).max(1);
    match step.cmp(&0) {
        Ordering::Equal => Err(EvalError::new(at, "the step of a slice cannot be zero")),
        Ordering::Greater => {
            let (from, to) = (start.map_or(0, clamp), stop.map_or(len, clamp));
            Ok(Box::new((from..to.max(from)).step_by(stride)))
        }
        Ordering::Less => {
            let from = start.map_or(len, |start| (clamp(start) + 1).min(len));
            let to = stop.map_or(0, |stop| clamp(stop) + 1);
            Ok(Box::new((to.min(from)..from).rev().step_by(stride)))
        }
    }
}
