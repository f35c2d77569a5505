//! The expression language: MiniJinja's grammar, filters and tests over shared JSON values.
//!
//! `text → Template → Value`. The parser is MiniJinja's; the tree and the evaluation are ours. So
//! every node keeps its span for messages, types are inferred before anything runs, values are
//! shared instead of converted, and each operation is charged to a budget before it is performed. A
//! value inserted into a text is data: nothing is parsed at run time.
//!
//! Not here: the meaning of names, which `compile::resolve` writes into [`ExprRoot`].

pub mod ast;
mod eval;
mod filters;
mod infer;
mod jq;
mod parse;
pub(crate) mod words;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use ast::{Ast, AstKind, ExprSpan};
pub use eval::EvalError;
pub use infer::{Finding, InferenceDepth, TypeScope};

pub use jq::{Jq, JqError};
pub use parse::ParseError;

use crate::budget;
use crate::diagnostic::Code;
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::value::{Map, Value};

/// The position of a step in its composition, counted in the order of the text, bodies included.
pub type StepIndex = u32;

/// The meaning of a path's first name.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprRoot {
    /// Not resolved yet, or unknown; evaluation never sees it in a checked composition.
    Unresolved,
    /// A parameter of an enclosing lambda.
    Lambda,
    /// `input`
    Input,
    /// A property of the input schema, written without `input.`.
    InputField(Arc<str>),
    /// `context`
    Context,
    /// `run`: id, name and start of this run.
    Run,
    /// `state`, in a program, where names change over time.
    State,
    /// The value of a step.
    Step(StepIndex),
    /// `steps.ID.status`
    StepStatus(StepIndex),
    /// `steps.ID.error`
    StepError(StepIndex),
    /// A name that a step defines with `set`, `map_outputs` or `transform`.
    Given(StepIndex, Arc<str>),
    /// The item of the loop at this step.
    Item(StepIndex),
    /// `loop`: index and other properties of the loop at this step.
    Loop(StepIndex),
    /// `output`: the value of the current call.
    Output,
    /// `args`: the arguments of the current call.
    Args,
    /// `error`: the failure of the current call.
    Error,
}

/// Provides the values of names.
pub trait Scope {
    /// The value of a name, or `None` if it has none (yet).
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>>;

    /// Whether a value is complete, with no part redacted. Incomplete values cannot be used.
    fn is_kept(&self, _value: &Value) -> bool {
        true
    }

    /// Whether `is_kept` scans the whole value.
    fn looks_through(&self) -> bool {
        false
    }
}

/// One expression, without its `{{ … }}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The whole string that contains it.
    text: Arc<str>,
    /// The span of that string in the source.
    site: Span,
    ast: Ast,
}

/// A value with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub enum Template {
    /// No placeholders.
    Literal(Value),
    /// Exactly one `{{ … }}`: keeps the type of its value.
    Expr(Expr),
    /// Text around one or more `{{ … }}`.
    Text(Vec<TemplatePiece>),
    /// An array with placeholders.
    Array(Vec<Template>),
    /// An object with placeholders.
    Object(Vec<(Arc<str>, Template)>),
}

/// A part of a text with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplatePiece {
    /// Literal text.
    Text(Arc<str>),
    /// A placeholder.
    Expr(Expr),
}

impl Expr {
    /// The tree.
    pub fn ast(&self) -> &Ast {
        &self.ast
    }

    /// The tree, mutable, to resolve its names.
    pub fn ast_mut(&mut self) -> &mut Ast {
        &mut self.ast
    }

    /// The text of the expression.
    pub fn text(&self) -> &str {
        self.slice(self.ast.at)
    }

    fn slice(&self, at: ExprSpan) -> &str {
        self.text.get(at.start as usize..at.end as usize).unwrap_or("")
    }

    /// The expression as written, braces included.
    pub fn source_text(&self) -> &str {
        let ExprSpan { start, end } = self.ast.at;
        let before = self.text.get(..start as usize).and_then(|head| head.rfind("{{"));
        let after = self.text.get(end as usize..).and_then(|tail| tail.find("}}"));
        match (before, after) {
            (Some(open), Some(close)) => {
                self.text.get(open..end as usize + close + 2).unwrap_or(&self.text)
            }
            _ => &self.text,
        }
    }

    /// The whole string that contains the expression; the spans of its tree refer to it.
    pub(crate) fn whole_text(&self) -> &Arc<str> {
        &self.text
    }

    /// The span of that string in the source.
    pub(crate) fn site(&self) -> Span {
        self.site
    }

    /// The location of the expression.
    pub fn location(&self) -> ExprLocation {
        ExprLocation { text: self.text.clone(), site: self.site }
    }

    /// The value of the expression.
    pub fn eval(&self, scope: &dyn Scope, limits: &Limits) -> Result<Value, EvalError> {
        budgeted(limits, || eval::eval(&self.ast, scope, limits))
    }
}

/// Runs one evaluation, of an expression or of a whole template, with its budget.
fn budgeted<T>(
    limits: &Limits,
    work: impl FnOnce() -> Result<T, EvalError>,
) -> Result<T, EvalError> {
    budget::check_interrupt().map_err(|stop| EvalError::stopped(ExprSpan::default(), &stop))?;
    budget::metered(limits.expression_fuel_max, limits.expression_output_bytes_max, work)
}

/// The string that contains an expression, and its span.
#[derive(Clone, Debug, PartialEq)]
pub struct ExprLocation {
    text: Arc<str>,
    site: Span,
}

impl ExprLocation {
    /// The span in the source of a part of the string.
    ///
    /// Exact if the source contains the string verbatim. If escapes or folded lines intervene, the
    /// part is searched for; if that fails too, the span is that of the whole string.
    pub fn locate(&self, source: &Source, at: ExprSpan) -> Span {
        locate(source, self.site, &self.text, at)
    }
}

pub(crate) fn locate(source: &Source, site: Span, text: &str, at: ExprSpan) -> Span {
    let raw = source.slice(site);
    let start = site.start as usize;
    if let Some(offset) = raw.find(text) {
        return Span::new(start + offset + at.start as usize, start + offset + at.end as usize);
    }
    let part = text.get(at.start as usize..at.end as usize).unwrap_or("");
    // The part may occur several times in the string: count the occurrences before it.
    let before = text.get(..at.start as usize).map_or(0, |head| head.matches(part).count());
    match raw.match_indices(part).nth(before) {
        Some((offset, _)) if !part.is_empty() => {
            Span::new(start + offset, start + offset + part.len())
        }
        _ => site,
    }
}

impl Template {
    /// Parses a string that may contain `{{ … }}`.
    pub fn parse(text: &Arc<str>, site: Span, limits: &Limits) -> Result<Template, ParseError> {
        parse::template(text, site, limits)
    }

    /// Parses a string as one expression, with or without braces: `when: x > 1` equals `when: "{{ x
    /// > 1 }}"`.
    pub fn parse_condition(
        text: &Arc<str>,
        site: Span,
        limits: &Limits,
    ) -> Result<Expr, ParseError> {
        parse::condition(text, site, limits)
    }

    /// Parses a value whose strings may contain expressions over these names only, as in
    /// configuration. The error is a message.
    pub fn over(
        value: &Value,
        known: &[(&str, ExprRoot)],
        limits: &Limits,
    ) -> Result<Template, String> {
        let mut template = template_of(value, limits).map_err(|error| error.message)?;
        let mut outcome = Ok(());
        template.exprs_mut(&mut |expr| {
            if outcome.is_ok() {
                outcome = resolve_from(&mut expr.ast, known, &mut Vec::new());
            }
        });
        outcome.map(|()| template)
    }

    /// Parses a value whose strings may contain expressions; their names have no meaning yet. The error is a
    /// message.
    pub(crate) fn of_value(value: &Value, limits: &Limits) -> Result<Template, String> {
        template_of(value, limits).map_err(|error| error.message)
    }

    /// The value, with every placeholder evaluated.
    pub fn eval(&self, scope: &dyn Scope, limits: &Limits) -> Result<Value, EvalError> {
        budgeted(limits, || self.fill(limits, &mut |expr| eval::eval(&expr.ast, scope, limits)))
    }

    /// The same, but references without a value stay as written; `kept` receives them.
    pub fn eval_keeping_unresolved(
        &self,
        scope: &dyn Scope,
        limits: &Limits,
        kept: &mut Vec<Arc<str>>,
    ) -> Result<Value, EvalError> {
        let mut hole = |expr: &Expr| match eval::eval(&expr.ast, scope, limits) {
            Err(error) if error.code == Code::UnresolvedReference => {
                kept.push(expr.source_text().into());
                Ok(Value::from(expr.source_text()))
            }
            other => other,
        };
        budgeted(limits, || self.fill(limits, &mut hole))
    }

    /// The value for a preview: a path that has a value is replaced by it, every other placeholder
    /// stays as written. Costs little, because it evaluates no filters, operators or functions.
    pub fn eval_known_paths(&self, scope: &dyn Scope, limits: &Limits) -> Value {
        let mut hole = |expr: &Expr| {
            let known = expr.ast.is_path().then(|| eval::eval(&expr.ast, scope, limits).ok());
            Ok(known.flatten().unwrap_or_else(|| Value::from(expr.source_text())))
        };
        budgeted(limits, || self.fill(limits, &mut hole)).unwrap_or_else(|_| self.to_value())
    }

    fn fill(
        &self,
        limits: &Limits,
        hole: &mut dyn FnMut(&Expr) -> Result<Value, EvalError>,
    ) -> Result<Value, EvalError> {
        match self {
            Template::Literal(value) => Ok(value.clone()),
            Template::Expr(expr) => hole(expr),
            Template::Text(pieces) => fill_text(pieces, hole),
            Template::Array(items) => {
                let items: Result<Vec<Value>, EvalError> =
                    items.iter().map(|item| item.fill(limits, hole)).collect();
                eval::check_size(items?.into(), ExprSpan::default(), limits)
            }
            Template::Object(members) => {
                let mut map = Map::with_capacity(members.len());
                for (key, member) in members {
                    map.insert(key.clone(), member.fill(limits, hole)?);
                }
                eval::check_size(map.into(), ExprSpan::default(), limits)
            }
        }
    }

    /// Visits every expression, in the order of the text.
    pub fn exprs<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match self {
            Template::Literal(_) => {}
            Template::Expr(expr) => visit(expr),
            Template::Text(pieces) => {
                for piece in pieces {
                    if let TemplatePiece::Expr(expr) = piece {
                        visit(expr);
                    }
                }
            }
            Template::Array(items) => items.iter().for_each(|item| item.exprs(visit)),
            Template::Object(members) => members.iter().for_each(|(_, member)| member.exprs(visit)),
        }
    }

    /// Visits every expression, mutable, to resolve its names.
    pub fn exprs_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match self {
            Template::Literal(_) => {}
            Template::Expr(expr) => visit(expr),
            Template::Text(pieces) => {
                for piece in pieces {
                    if let TemplatePiece::Expr(expr) = piece {
                        visit(expr);
                    }
                }
            }
            Template::Array(items) => items.iter_mut().for_each(|item| item.exprs_mut(visit)),
            Template::Object(members) => {
                members.iter_mut().for_each(|(_, member)| member.exprs_mut(visit));
            }
        }
    }

    /// The template as written, for plans and hashes.
    pub fn to_value(&self) -> Value {
        match self {
            Template::Literal(value) => value.clone(),
            Template::Expr(expr) => Value::from(format!("{{{{ {} }}}}", expr.text().trim())),
            Template::Text(pieces) => Value::from(
                pieces
                    .iter()
                    .map(|piece| match piece {
                        TemplatePiece::Text(text) => text.to_string(),
                        TemplatePiece::Expr(expr) => format!("{{{{ {} }}}}", expr.text().trim()),
                    })
                    .collect::<String>(),
            ),
            Template::Array(items) => {
                items.iter().map(Template::to_value).collect::<Vec<_>>().into()
            }
            Template::Object(members) => {
                Value::object(members.iter().map(|(k, v)| (k.clone(), v.to_value())))
            }
        }
    }
}

fn fill_text(
    pieces: &[TemplatePiece],
    hole: &mut dyn FnMut(&Expr) -> Result<Value, EvalError>,
) -> Result<Value, EvalError> {
    use fmt::Write as _;
    let mut text = String::new();
    for piece in pieces {
        match piece {
            TemplatePiece::Text(part) => text.push_str(part),
            TemplatePiece::Expr(expr) => {
                let value = hole(expr)?;
                budget::charge(value.size())
                    .map_err(|stop| EvalError::stopped(expr.ast.at, &stop))?;
                let _ = write!(text, "{value}");
            }
        }
    }
    Ok(text.into())
}

/// A template over one value named `args`, for the operator's configuration: the arguments of a
/// command, the URL of an HTTP operation.
#[derive(Clone, Debug)]
pub struct ArgsTemplate(Template);

impl ArgsTemplate {
    /// Parses a value whose strings may contain `{{ args.… }}`; the error is a message.
    pub fn parse(value: &Value, limits: &Limits) -> Result<ArgsTemplate, String> {
        Template::over(value, &[("args", ExprRoot::Args)], limits).map(ArgsTemplate)
    }

    /// The value for these arguments.
    pub fn eval(&self, args: &Value, limits: &Limits) -> Result<Value, EvalError> {
        self.0.eval(&ArgsScope(args), limits)
    }
}

struct ArgsScope<'a>(&'a Value);

impl Scope for ArgsScope<'_> {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        matches!(root, ExprRoot::Args).then_some(Cow::Borrowed(self.0))
    }
}

/// Parses every string inside a value as a template.
fn template_of(value: &Value, limits: &Limits) -> Result<Template, ParseError> {
    Ok(match value {
        Value::String(text) => Template::parse(text, Span::default(), limits)?,
        Value::Array(items) => {
            let items: Result<_, _> = items.iter().map(|item| template_of(item, limits)).collect();
            Template::Array(items?)
        }
        Value::Object(members) => {
            let members: Result<_, ParseError> = members
                .iter()
                .map(|(key, member)| Ok((key.clone(), template_of(member, limits)?)))
                .collect();
            Template::Object(members?)
        }
        literal => Template::Literal(literal.clone()),
    })
}

/// Resolves every name from a fixed list; the first unknown name is an error.
fn resolve_from(
    ast: &mut Ast,
    known: &[(&str, ExprRoot)],
    params: &mut Vec<Arc<str>>,
) -> Result<(), String> {
    if let AstKind::Name { name, root } = &mut ast.kind {
        *root = if params.contains(name) {
            ExprRoot::Lambda
        } else {
            let found = known.iter().find(|(known, _)| *known == &**name);
            found.map(|(_, root)| root.clone()).ok_or_else(|| {
                let names: Vec<String> =
                    known.iter().map(|(name, _)| format!("`{name}`")).collect();
                format!("`{name}` is not available here, only {}", names.join(", "))
            })?
        };
    }
    let depth = params.len();
    if let AstKind::Lambda(param, _) = &ast.kind {
        params.push(param.clone());
    }
    let mut outcome = Ok(());
    ast.children_mut(&mut |child| {
        if outcome.is_ok() {
            outcome = resolve_from(child, known, params);
        }
    });
    params.truncate(depth);
    outcome
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
