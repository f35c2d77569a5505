//! Infers the type of a tree, and reports certain errors.
//!
//! A finding is reported only if no value would be right. Unknown types stay [`Type::Any`].

use std::cell::Cell;
use std::sync::Arc;

use super::ast::{Arg, Arithmetic, Ast, AstKind, Comparison, ExprSpan};
use super::filters::{FILTERS, FUNCTIONS, TESTS, named_arguments};
use super::{ExprRoot, Jq, Template, TemplatePiece};
use crate::diagnostic::{Code, Severity, nearest_name};
use crate::limits::INFERENCE_DEPTH_MAX;
use crate::types::{FieldLookup, Type};
use crate::value::Value;

/// A certain error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The span in the template's text.
    pub at: ExprSpan,
    /// The kind of finding.
    pub code: Code,
    /// Its severity.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The replacement for the span.
    pub replacement: Option<String>,
}

/// Provides the types of names.
pub trait TypeScope {
    /// The type of a name's value.
    fn type_of(&self, root: &ExprRoot) -> Type;

    /// The type of a state name, in a program.
    fn type_in_state(&self, name: &Arc<str>) -> Type;

    /// How deep the inference is now: the type of a name is often that of another expression.
    fn depth(&self) -> &InferenceDepth;
}

/// How deep an inference is, over all expressions that it follows.
#[derive(Debug, Default)]
pub struct InferenceDepth(Cell<usize>);

impl InferenceDepth {
    /// Infers something one level deeper; too deep it is unknown, because the stack is finite.
    fn deeper(&self, infer: impl FnOnce() -> Type) -> Type {
        let depth = self.0.get();
        if depth >= INFERENCE_DEPTH_MAX {
            return Type::Any;
        }
        self.0.set(depth + 1);
        let ty = infer();
        self.0.set(depth);
        ty
    }

    /// Whether nothing is being inferred.
    pub(crate) fn is_outermost(&self) -> bool {
        self.0.get() == 0
    }
}

impl Ast {
    /// Infers the type, and appends certain errors to `findings`.
    pub fn infer(&self, scope: &dyn TypeScope, findings: &mut Vec<Finding>) -> Type {
        Inference { scope, findings, locals: Vec::new(), lenient: 0 }.infer(self)
    }
}

impl Template {
    /// Infers the type. `report` receives the findings of each expression.
    pub fn infer(
        &self,
        scope: &dyn TypeScope,
        report: &mut dyn FnMut(&super::Expr, Vec<Finding>),
    ) -> Type {
        scope.depth().deeper(|| self.infer_parts(scope, report))
    }

    fn infer_parts(
        &self,
        scope: &dyn TypeScope,
        report: &mut dyn FnMut(&super::Expr, Vec<Finding>),
    ) -> Type {
        let mut infer_expr = |expr: &super::Expr| {
            let mut findings = Vec::new();
            let ty = expr.ast.infer(scope, &mut findings);
            report(expr, findings);
            ty
        };
        match self {
            Template::Literal(value) => Type::of_value(value),
            Template::Expr(expr) => infer_expr(expr),
            Template::Text(pieces) => {
                for piece in pieces {
                    if let TemplatePiece::Expr(expr) = piece {
                        infer_expr(expr);
                    }
                }
                Type::String
            }
            Template::Array(items) => {
                // Every item is inferred, also after one of unknown type, so that all findings are
                // reported.
                let items: Vec<Type> = items.iter().map(|item| item.infer(scope, report)).collect();
                Type::array(Type::union(items))
            }
            Template::Object(members) => Type::record(
                members.iter().map(|(key, member)| (key.clone(), member.infer(scope, report))),
            ),
        }
    }
}

struct Inference<'a> {
    scope: &'a dyn TypeScope,
    findings: &'a mut Vec<Finding>,
    locals: Vec<(Arc<str>, Type)>,
    /// Above zero inside `default(…)` and `is defined`, where absence is expected.
    lenient: usize,
}

impl Inference<'_> {
    fn report(&mut self, at: ExprSpan, code: Code, message: impl Into<String>) {
        self.report_with(at, code, message, None, None);
    }

    fn report_with(
        &mut self,
        at: ExprSpan,
        code: Code,
        message: impl Into<String>,
        help: Option<String>,
        replacement: Option<String>,
    ) {
        let message = message.into();
        let severity = Severity::Error;
        self.findings.push(Finding { at, code, severity, message, help, replacement });
    }

    fn infer(&mut self, ast: &Ast) -> Type {
        let scope = self.scope;
        scope.depth().deeper(|| self.infer_kind(ast))
    }

    fn infer_kind(&mut self, ast: &Ast) -> Type {
        match &ast.kind {
            AstKind::Const(value) => Type::of_value(value),
            AstKind::Name { name, root: ExprRoot::Lambda } => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name);
                local.map_or(Type::Any, |(_, ty)| ty.clone())
            }
            AstKind::Name { root, .. } => self.scope.type_of(root),
            AstKind::Field(base, name) => self.field(ast, base, name),
            AstKind::Index(base, index) => self.index(ast, base, index),
            AstKind::Slice(base, _) => self.infer(base),
            AstKind::Not(operand) => {
                self.infer(operand);
                Type::Bool
            }
            AstKind::Negate(operand) => {
                let ty = self.infer(operand);
                self.expect(operand.at, &ty, &Type::Number);
                ty
            }
            AstKind::Logic(_, left, right) => {
                let (left, right) = (self.infer(left), self.infer(right));
                Type::union([left, right])
            }
            AstKind::Arithmetic(op, left, right) => self.arithmetic(ast, *op, left, right),
            AstKind::Compare(first, rest) => self.compare(first, rest),
            AstKind::If { test, then, otherwise } => {
                self.infer(test);
                let then = self.infer(then);
                let otherwise = otherwise.as_ref().map_or(Type::Any, |other| self.infer(other));
                Type::union([then, otherwise])
            }
            AstKind::Filter(name, input, args) => self.filter(ast, name, input, args),
            AstKind::Test(name, input, args) => self.test(ast, name, input, args),
            AstKind::Call(name, args) => self.call(ast, name, args),
            AstKind::List(items) => {
                let items: Vec<Type> = items.iter().map(|item| self.infer(item)).collect();
                Type::array(Type::union(items))
            }
            AstKind::Object(members) => self.object(members),
            AstKind::Lambda(_, body) => {
                let message = "a lambda is only an argument of `filter` and `map`";
                self.report(body.at, Code::Expression, message);
                Type::Any
            }
        }
    }

    fn expect(&mut self, at: ExprSpan, ty: &Type, wanted: &Type) {
        if let Some(reason) = ty.conflict(wanted) {
            self.report(at, Code::TypeMismatch, reason);
        }
    }

    fn field(&mut self, ast: &Ast, base: &Ast, name: &Arc<str>) -> Type {
        if matches!(&base.kind, AstKind::Name { root: ExprRoot::State, .. }) {
            return self.scope.type_in_state(name);
        }
        let base_ty = self.infer(base);
        match base_ty.field(name) {
            FieldLookup::Found { ty, .. } => ty,
            FieldLookup::Unknown => Type::Any,
            FieldLookup::NotAnObject => {
                if self.lenient == 0 {
                    let message = format!("`{}` is {base_ty} and has no `{name}`", base.path());
                    self.report(ast.at, Code::UnknownPath, message);
                }
                Type::Any
            }
            FieldLookup::Undeclared { surely, declared } => {
                let what = format!("`{}`", base.path());
                self.undeclared(ast, &what, Some(base), name, surely, &declared);
                Type::Any
            }
        }
    }

    fn undeclared(
        &mut self,
        ast: &Ast,
        what: &str,
        base: Option<&Ast>,
        name: &str,
        surely: bool,
        declared: &[Arc<str>],
    ) {
        if self.lenient > 0 {
            return;
        }
        let near = nearest_name(name, declared.iter().map(|name| &**name)).map(ToOwned::to_owned);
        let has_not = if surely { "has no" } else { "does not declare" };
        let message = format!("{what} {has_not} `{name}`");
        let names: Vec<String> = declared.iter().map(|name| format!("`{name}`")).collect();
        let help = match &near {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "it has no fields at all".to_owned(),
            None => format!("it has {}", names.join(", ")),
        };
        // JSON Schema allows undeclared members, so an unknown name is only doubtful. A name near
        // to a declared one is a typo.
        let severity = if surely || near.is_some() { Severity::Error } else { Severity::Warning };
        let replacement = base.zip(near).map(|(base, near)| format!("{}.{near}", base.path()));
        self.findings.push(Finding {
            at: ast.at,
            code: Code::UnknownPath,
            severity,
            message,
            help: Some(help),
            replacement,
        });
    }

    fn index(&mut self, ast: &Ast, base: &Ast, index: &Ast) -> Type {
        let base_ty = self.infer(base);
        let index_ty = self.infer(index);
        if let Some(item) = base_ty.item() {
            return item;
        }
        let is_object = base_ty.parts().iter().any(|part| matches!(part, Type::Object(_)));
        if is_object && index_ty.conflict(&Type::String).is_none() {
            return Type::Any;
        }
        if self.lenient == 0 {
            let message = format!("`{}` is {base_ty}, not an array", base.path());
            self.report(ast.at, Code::UnknownPath, message);
        }
        Type::Any
    }

    fn object(&mut self, members: &[(Ast, Ast)]) -> Type {
        let mut known = Vec::new();
        for (key, value) in members {
            let ty = self.infer(value);
            match &key.kind {
                AstKind::Const(Value::String(name)) => known.push((name.clone(), ty)),
                _ => {
                    self.infer(key);
                    return Type::any_object();
                }
            }
        }
        Type::record(known)
    }

    fn arithmetic(&mut self, ast: &Ast, op: Arithmetic, left: &Ast, right: &Ast) -> Type {
        let (a, b) = (self.infer(left), self.infer(right));
        if op == Arithmetic::Concat {
            return Type::String;
        }
        let numeric = |ty: &Type| matches!(ty, Type::Integer | Type::Number);
        match (op, &a, &b) {
            (_, Type::Any | Type::OneOf(_), _) | (_, _, Type::Any | Type::OneOf(_)) => Type::Any,
            (Arithmetic::Divide, a, b) if numeric(a) && numeric(b) => Type::Number,
            (_, Type::Integer, Type::Integer) => Type::Integer,
            (_, a, b) if numeric(a) && numeric(b) => Type::Number,
            (Arithmetic::Add, Type::String, Type::String) => Type::String,
            (Arithmetic::Add, Type::Array(x), Type::Array(y)) => {
                Type::array(Type::union([(***x).clone(), (***y).clone()]))
            }
            (Arithmetic::Multiply, Type::String, Type::Integer)
            | (Arithmetic::Multiply, Type::Integer, Type::String) => Type::String,
            (_, a, b) => {
                let message = format!("{a} and {b} cannot be combined so");
                let help = "`~` puts any two values together as text".to_owned();
                self.report_with(ast.at, Code::TypeMismatch, message, Some(help), None);
                Type::Any
            }
        }
    }

    fn compare(&mut self, first: &Ast, rest: &[(Comparison, Ast)]) -> Type {
        let mut left = self.infer(first);
        for (op, operand) in rest {
            let right = self.infer(operand);
            let ordered = matches!(
                op,
                Comparison::Less
                    | Comparison::LessOrEqual
                    | Comparison::Greater
                    | Comparison::GreaterOrEqual
            );
            if ordered && left.conflict(&right).is_some() {
                let message = format!("{left} and {right} have no order");
                self.report(operand.at, Code::TypeMismatch, message);
            }
            left = right;
        }
        Type::Bool
    }

    fn filter(&mut self, ast: &Ast, name: &str, input: &Ast, args: &[Arg]) -> Type {
        if matches!(name, "default" | "d") {
            return self.default(ast, input, args);
        }
        let input_ty = self.infer(input);
        if !FILTERS.contains(&name) {
            self.unknown(ast, "filter", name, FILTERS);
            return Type::Any;
        }
        if let (
            "filter" | "map",
            [Arg { value: Ast { kind: AstKind::Lambda(param, body), .. }, .. }],
        ) = (name, args)
        {
            self.expect(input.at, &input_ty, &Type::array(Type::Any));
            self.locals.push((param.clone(), input_ty.item().unwrap_or(Type::Any)));
            let body = self.infer(body);
            self.locals.pop();
            return if name == "map" { Type::array(body) } else { input_ty };
        }
        for arg in args {
            self.infer(&arg.value);
        }
        self.named_arguments(name, args);
        self.applied(name, args);
        self.filter_type(name, input, &input_ty, args)
    }

    /// Checks the names of a filter's arguments. `map('join', d=', ')` passes them on.
    fn named_arguments(&mut self, name: &str, args: &[Arg]) {
        let (mut name, mut args) = (name, args);
        while let ("map", Some((_, inner))) = (name, args.first().and_then(text_of)) {
            (name, args) = (inner, &args[1..]);
        }
        if !FILTERS.contains(&name) {
            return;
        }
        let known = named_arguments(name);
        for (word, value) in args.iter().filter_map(|arg| Some((arg.name.as_deref()?, &arg.value)))
        {
            if known.contains(&word) {
                continue;
            }
            let help = match nearest_name(word, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => format!("`{name}` takes no arguments by name"),
                None => format!("`{name}` takes by name: {}", known.join(", ")),
            };
            let message = format!("the filter `{name}` has no argument `{word}`");
            self.report_with(value.at, Code::Expression, message, Some(help), None);
        }
    }

    /// Checks literal arguments of a filter that it applies itself: a jq program, or the name of a
    /// filter or test for each item.
    fn applied(&mut self, name: &str, args: &[Arg]) {
        let (mut name, mut args) = (name, args);
        loop {
            let (what, known, inner) = match name {
                "map" => ("filter", FILTERS, args),
                "select" | "reject" => ("test", TESTS, args),
                "selectattr" | "rejectattr" => ("test", TESTS, args.get(1..).unwrap_or_default()),
                "json_query" => {
                    if let Some((program, text)) = args.first().and_then(text_of)
                        && let Err(error) = Jq::compile(text)
                    {
                        self.report(program.at, Code::Expression, format!("`json_query`: {error}"));
                    }
                    return;
                }
                _ => return,
            };
            let Some((value, word)) = inner.first().and_then(text_of) else { return };
            if !known.contains(&word) {
                self.unknown(value, what, word, known);
            }
            if what == "test" {
                return;
            }
            (name, args) = (word, &inner[1..]);
        }
    }

    fn filter_type(&mut self, name: &str, input: &Ast, ty: &Type, args: &[Arg]) -> Type {
        let item = || ty.item().unwrap_or(Type::Any);
        match name {
            "upper" | "lower" | "title" | "capitalize" | "trim" | "replace" | "tojson"
            | "string" | "indent" | "urlencode" | "pprint" => Type::String,
            "join" => {
                self.expect(input.at, ty, &Type::array(Type::Any));
                Type::String
            }
            "length" | "count" => {
                let sized = [Type::String, Type::array(Type::Any), Type::any_object()];
                self.expect(input.at, ty, &Type::union(sized));
                Type::Integer
            }
            "int" => Type::Integer,
            "float" | "round" => Type::Number,
            "bool" => Type::Bool,
            "split" | "lines" => Type::array(Type::String),
            "first" | "last" | "min" | "max" => item(),
            "list" | "sort" | "unique" => ty.item().map_or(Type::Any, Type::array),
            "select" | "reject" => {
                self.expect(input.at, ty, &Type::array(Type::Any));
                ty.clone()
            }
            "selectattr" | "rejectattr" => {
                self.expect(input.at, ty, &Type::array(Type::Any));
                if let [Arg { value, .. }, more @ ..] = args {
                    self.attribute(input, &item(), value, more.first());
                }
                ty.clone()
            }
            "batch" | "slice" => Type::array(Type::array(item())),
            "map" => match args {
                [Arg { name: Some(word), value }] if &**word == "attribute" => {
                    self.attribute(input, &item(), value, None);
                    match value.text().map(|field| item().field(field)) {
                        Some(FieldLookup::Found { ty, .. }) => Type::array(ty),
                        _ => Type::array(Type::Any),
                    }
                }
                _ => Type::array(Type::Any),
            },
            _ => Type::Any,
        }
    }

    /// Checks an attribute of items that is named by a string. With `is defined`, any name is
    /// valid.
    fn attribute(&mut self, input: &Ast, item: &Type, name: &Ast, test: Option<&Arg>) {
        let word = test.and_then(|test| test.value.text());
        let Some(path) = name.text() else { return };
        if matches!(word, Some("defined" | "undefined")) {
            return;
        }
        let field = path.split('.').next().unwrap_or(path);
        if let FieldLookup::Undeclared { surely, declared } = item.field(field) {
            let what = format!("an item of `{}`", input.path());
            self.undeclared(name, &what, None, field, surely, &declared);
        }
    }

    fn default(&mut self, ast: &Ast, input: &Ast, args: &[Arg]) -> Type {
        self.lenient += 1;
        let input = self.infer(input);
        self.lenient -= 1;
        let Some(fallback) = args.first() else {
            self.report(ast.at, Code::Expression, "`default` needs a value to fall back to");
            return input;
        };
        let fallback = self.infer(&fallback.value);
        Type::union([input, fallback])
    }

    fn test(&mut self, ast: &Ast, name: &str, input: &Ast, args: &[Arg]) -> Type {
        let absence_is_fine = matches!(name, "defined" | "undefined");
        self.lenient += usize::from(absence_is_fine);
        self.infer(input);
        self.lenient -= usize::from(absence_is_fine);
        if !TESTS.contains(&name) {
            self.unknown(ast, "test", name, TESTS);
        }
        for arg in args {
            self.infer(&arg.value);
        }
        Type::Bool
    }

    fn call(&mut self, ast: &Ast, name: &str, args: &[Arg]) -> Type {
        for arg in args {
            self.infer(&arg.value);
        }
        match name {
            "range" => Type::array(Type::Integer),
            "dict" => Type::any_object(),
            _ => {
                self.unknown(ast, "function", name, FUNCTIONS);
                Type::Any
            }
        }
    }

    fn unknown(&mut self, ast: &Ast, what: &str, name: &str, known: &[&str]) {
        let near = nearest_name(name, known.iter().copied());
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the {what}s are {}", known.join(", ")),
        };
        let message = format!("there is no {what} `{name}`");
        self.report_with(ast.at, Code::Expression, message, Some(help), None);
    }
}

/// A string literal argument.
fn text_of(arg: &Arg) -> Option<(&Ast, &str)> {
    let text = arg.value.text().filter(|_| arg.name.is_none())?;
    Some((&arg.value, text))
}
