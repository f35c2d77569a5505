//! The syntax tree of an expression, independent of the parser.

use std::sync::Arc;

use super::ExprRoot;
use crate::value::Value;

/// A range of bytes in the template's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExprSpan {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A node with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Ast {
    /// Its span in the template's text.
    pub at: ExprSpan,
    /// Its kind.
    pub kind: AstKind,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum AstKind {
    /// A literal.
    Const(Value),
    /// The first name of a path.
    Name {
        /// As written.
        name: Arc<str>,
        /// Its meaning; [`ExprRoot::Unresolved`] until names are resolved.
        root: ExprRoot,
    },
    /// `base.name`
    Field(Box<Ast>, Arc<str>),
    /// `base[index]`
    Index(Box<Ast>, Box<Ast>),
    /// `base[start:stop:step]`
    Slice(Box<Ast>, [Option<Box<Ast>>; 3]),
    /// `not x`
    Not(Box<Ast>),
    /// `-x`
    Negate(Box<Ast>),
    /// `a and b`, `a or b`
    Logic(Logic, Box<Ast>, Box<Ast>),
    /// `a + b` and the like
    Arithmetic(Arithmetic, Box<Ast>, Box<Ast>),
    /// `a < b`, also chained: `a < b < c`
    Compare(Box<Ast>, Vec<(Comparison, Ast)>),
    /// `a if condition else b`
    If {
        /// The condition.
        test: Box<Ast>,
        /// When it holds.
        then: Box<Ast>,
        /// When it does not; `None` means undefined.
        otherwise: Option<Box<Ast>>,
    },
    /// `x | name(args)`
    Filter(Arc<str>, Box<Ast>, Vec<Arg>),
    /// `x is name(args)`
    Test(Arc<str>, Box<Ast>, Vec<Arg>),
    /// `name(args)`
    Call(Arc<str>, Vec<Arg>),
    /// `[a, b]`
    List(Vec<Ast>),
    /// `{a: b}`
    Object(Vec<(Ast, Ast)>),
    /// `lambda x: body`, only as the argument of `filter` and `map`
    Lambda(Arc<str>, Box<Ast>),
}

/// An argument of a filter, test or function.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// Its name, if passed by name.
    pub name: Option<Arc<str>>,
    /// Its value.
    pub value: Ast,
}

/// `and`, `or`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    /// The first value that is false, else the last.
    And,
    /// The first value that is true, else the last.
    Or,
}

/// Operators that compute a new value from two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    /// `~`: concatenates both sides as text.
    Concat,
}

/// Operators that compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

impl Ast {
    /// Calls `visit` for this node and all its descendants, outermost first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Ast)) {
        visit(self);
        self.children(&mut |child| child.walk(visit));
    }

    /// Calls `visit` for each direct child.
    pub fn children<'a>(&'a self, visit: &mut dyn FnMut(&'a Ast)) {
        match &self.kind {
            AstKind::Const(_) | AstKind::Name { .. } => {}
            AstKind::Field(base, _)
            | AstKind::Not(base)
            | AstKind::Negate(base)
            | AstKind::Lambda(_, base) => {
                visit(base);
            }
            AstKind::Index(a, b) | AstKind::Logic(_, a, b) | AstKind::Arithmetic(_, a, b) => {
                visit(a);
                visit(b);
            }
            AstKind::Slice(base, bounds) => {
                visit(base);
                bounds.iter().flatten().for_each(|bound| visit(bound));
            }
            AstKind::Compare(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, operand)| visit(operand));
            }
            AstKind::If { test, then, otherwise } => {
                visit(test);
                visit(then);
                otherwise.iter().for_each(|otherwise| visit(otherwise));
            }
            AstKind::Filter(_, base, args) | AstKind::Test(_, base, args) => {
                visit(base);
                args.iter().for_each(|arg| visit(&arg.value));
            }
            AstKind::Call(_, args) => args.iter().for_each(|arg| visit(&arg.value)),
            AstKind::List(items) => items.iter().for_each(visit),
            AstKind::Object(members) => members.iter().for_each(|(key, value)| {
                visit(key);
                visit(value);
            }),
        }
    }

    /// Calls `visit` for each direct child, mutable.
    pub fn children_mut(&mut self, visit: &mut dyn FnMut(&mut Ast)) {
        match &mut self.kind {
            AstKind::Const(_) | AstKind::Name { .. } => {}
            AstKind::Field(base, _)
            | AstKind::Not(base)
            | AstKind::Negate(base)
            | AstKind::Lambda(_, base) => {
                visit(base);
            }
            AstKind::Index(a, b) | AstKind::Logic(_, a, b) | AstKind::Arithmetic(_, a, b) => {
                visit(a);
                visit(b);
            }
            AstKind::Slice(base, bounds) => {
                visit(base);
                bounds.iter_mut().flatten().for_each(|bound| visit(bound));
            }
            AstKind::Compare(first, rest) => {
                visit(first);
                rest.iter_mut().for_each(|(_, operand)| visit(operand));
            }
            AstKind::If { test, then, otherwise } => {
                visit(test);
                visit(then);
                otherwise.iter_mut().for_each(|otherwise| visit(otherwise));
            }
            AstKind::Filter(_, base, args) | AstKind::Test(_, base, args) => {
                visit(base);
                args.iter_mut().for_each(|arg| visit(&mut arg.value));
            }
            AstKind::Call(_, args) => args.iter_mut().for_each(|arg| visit(&mut arg.value)),
            AstKind::List(items) => items.iter_mut().for_each(visit),
            AstKind::Object(members) => members.iter_mut().for_each(|(key, value)| {
                visit(key);
                visit(value);
            }),
        }
    }

    /// The text, if this is a string literal.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            AstKind::Const(value) => value.as_str(),
            _ => None,
        }
    }

    /// Whether this is only a path: `search.items[0]`.
    pub fn is_path(&self) -> bool {
        match &self.kind {
            AstKind::Name { .. } => true,
            AstKind::Field(base, _) => base.is_path(),
            AstKind::Index(base, index) => {
                base.is_path() && matches!(index.kind, AstKind::Const(_))
            }
            _ => false,
        }
    }

    /// The path as written, for messages: `search.items[0]`.
    pub fn path(&self) -> String {
        match &self.kind {
            AstKind::Name { name, .. } => name.to_string(),
            AstKind::Field(base, name) => format!("{}.{name}", base.path()),
            AstKind::Index(base, index) => match &index.kind {
                AstKind::Const(value) => format!("{}[{}]", base.path(), value.to_json()),
                _ => format!("{}[…]", base.path()),
            },
            _ => "…".to_owned(),
        }
    }
}
