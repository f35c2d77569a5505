//! A position → proposals: fields, tools, parameters, values, steps, names in expressions.
//!
//! A letter is inserted at the position and the text is read by the tolerant reader, so that there
//! is a value or a key at the position even where nothing stands yet. Names and types come from the
//! composition of the analysis, which is compiled already.

mod expression;
mod insert;
mod keys;
mod values;

use super::expect::{self, Expectation, Expected};
use super::lexer;
use super::path::{Crumb, Path, path_to};
use super::scope::NameScope;
use super::{Analysis, Completion};
use crate::compile::dialect::grammar::FieldShape;
use crate::composition::Dialect;
use crate::document::{Node, ReadLimits, tolerant};
use crate::source::{Notation, Span};
use insert::ScalarPlace;

pub(super) use expression::Cursor;
pub(super) use keys::shape_name;

/// The letter that is inserted at the position.
const MARK: &str = "x";

/// One request, and what its position means.
struct Request<'a, 't> {
    analysis: &'a Analysis,
    /// The position, in the original text.
    at: usize,
    path: &'t Path<'t>,
    expectation: &'t Expectation,
    dialect: Dialect,
    /// The scalar or key at the position, in the original text.
    scalar: ScalarPlace,
    /// Whether brackets enclose the position.
    is_flow: bool,
}

/// The proposals at an offset on a character boundary.
pub(super) fn complete(analysis: &Analysis, at: usize) -> Vec<Completion> {
    let text = analysis.source.text();
    let marked = [&text[..at], MARK, &text[at..]].concat();
    let source = analysis.source.with_text(marked);
    let limits = ReadLimits::for_documents(&analysis.limits);
    let tree = tolerant::read(&source, limits);
    let dialect = match &analysis.document {
        Some(document) => expect::dialect_of(document),
        None => expect::dialect_of(&tree.root),
    };
    if !matches!(dialect, Dialect::Composition | Dialect::Chain) {
        return Vec::new();
    }
    let offset = u32::try_from(at).unwrap_or(u32::MAX);
    let Some(path) = path_to(&tree.root, offset) else { return Vec::new() };
    let expectation = expect::follow(&tree.root, &path.crumbs, dialect, &analysis.catalog);
    let span = scalar_span(&path);
    let request = Request {
        analysis,
        at,
        scalar: ScalarPlace::at(text, span, at),
        is_flow: is_flow(source.text(), &path) || source.notation() == Notation::Json,
        path: &path,
        expectation: &expectation,
        dialect,
    };
    request.complete()
}

/// The key or the value at the end of a way.
fn scalar_span(path: &Path<'_>) -> Span {
    match path.crumbs.last() {
        Some(Crumb::Member { member, .. }) if path.is_key => member.key_span,
        _ => path.node.span,
    }
}

/// Whether a collection around the position has brackets.
fn is_flow(text: &str, path: &Path<'_>) -> bool {
    let collection = |crumb: &Crumb<'_>| match crumb {
        Crumb::Member { object, .. } => object.span.start,
        Crumb::Item { list, .. } => list.span.start,
    };
    path.crumbs.iter().any(|crumb| {
        let start = collection(crumb) as usize;
        text.get(start..).is_some_and(|rest| rest.starts_with(['{', '[']))
    })
}

impl Request<'_, '_> {
    fn complete(&self) -> Vec<Completion> {
        if self.path.is_key {
            return self.keys(&self.expectation.around, self.object());
        }
        if let Some((start, end)) = self.expression() {
            return self
                .scope()
                .map_or_else(Vec::new, |scope| expression::complete(self, scope, start, end));
        }
        let mut found = self.values();
        // A value that is an object begins with a key.
        if self.scalar.quote.is_none() {
            found.extend(self.keys(&self.expectation.value, None));
        }
        found
    }

    /// The object that the key at the position belongs to.
    fn object(&self) -> Option<&Node> {
        match self.path.crumbs.last() {
            Some(Crumb::Member { object, .. }) => Some(object),
            _ => None,
        }
    }

    /// The expression around the position, as offsets in the text.
    fn expression(&self) -> Option<(usize, usize)> {
        let text = self.analysis.source.text();
        let ScalarPlace { start, end, .. } = self.scalar;
        let raw = text.get(start..end)?;
        let inside = self.at.checked_sub(start)?;
        let braces = lexer::expressions(raw);
        if let Some((from, to)) = braces.iter().find(|(from, to)| (*from..=*to).contains(&inside)) {
            return Some((start + from, start + to));
        }
        let is_condition = matches!(self.expectation.value, Expected::Shape(FieldShape::Condition));
        (is_condition && braces.is_empty()).then_some((start, end))
    }

    /// The names at the position; `None` if the text has no steps that can be read.
    fn scope(&self) -> Option<NameScope<'_>> {
        let composition = self.analysis.composition.as_deref()?;
        let observations = &self.analysis.observations;
        Some(NameScope::at(composition, &self.path.crumbs, observations, &self.analysis.limits))
    }
}

/// Whether a name fits what is typed: its letters occur in it, in this order.
fn fits(typed: &str, name: &str) -> bool {
    let mut letters = name.chars().flat_map(char::to_lowercase);
    typed.chars().flat_map(char::to_lowercase).all(|letter| letters.any(|it| it == letter))
}
