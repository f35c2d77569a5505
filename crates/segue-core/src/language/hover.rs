//! A position → what is known about the word there: meaning, type, description, last value, times.

use std::fmt::Write as _;
use std::sync::Arc;

use super::complete::{Cursor, shape_name};
use super::expect::{self, Expected};
use super::lexer;
use super::path::{Crumb, Path, path_to};
use super::scope::NameScope;
use super::symbols::Symbol;
use super::{Analysis, Hover};
use crate::compile::dialect::grammar::FieldShape;
use crate::compile::{Typing, unquoted};
use crate::composition::tool::{ObservedStats, ToolSpec};
use crate::composition::{Composition, Dialect, Step};
use crate::expr::words::{FILTERS, FUNCTIONS, TESTS, Word};
use crate::expr::{ExprRoot, StepIndex};
use crate::schema::Schema;
use crate::source::Span;
use crate::types::Type;
use crate::value::Value;
use crate::view::cut::CutBudget;
use crate::view::explain::effect_label;

/// How much of a last value is shown.
const VALUE_BYTES_MAX: usize = 2_000;

pub(super) fn hover(analysis: &Analysis, at: u32) -> Option<Hover> {
    let hover = Hovering { analysis, composition: analysis.composition.as_deref() };
    let root = analysis.document.as_ref();
    let path = root.and_then(|root| path_to(root, at));
    let dialect = root.map_or(Dialect::Composition, expect::dialect_of);
    if let Some(path) = &path
        && matches!(dialect, Dialect::Composition | Dialect::Chain)
        && let Some(found) = hover.expression(path, at)
    {
        return Some(found);
    }
    let symbol = || hover.symbol(at);
    let field = || hover.field(path.as_ref()?, dialect);
    symbol().or_else(|| hover.parameter(at)).or_else(field)
}

struct Hovering<'a> {
    analysis: &'a Analysis,
    composition: Option<&'a Composition>,
}

impl<'a> Hovering<'a> {
    fn scope(&self, path: &Path<'_>) -> Option<NameScope<'a>> {
        let limits = &self.analysis.limits;
        Some(NameScope::at(self.composition?, &path.crumbs, &self.analysis.observations, limits))
    }

    /// A word inside an expression.
    fn expression(&self, path: &Path<'_>, at: u32) -> Option<Hover> {
        let source = &self.analysis.source;
        let raw = source.slice(path.node.span);
        let start = path.node.span.start as usize;
        let inside = (at as usize).checked_sub(start).filter(|_| !path.is_key)?;
        let braces = lexer::expressions(raw);
        let holds = |(from, to): &&(usize, usize)| (*from..=*to).contains(&inside);
        let is_condition = || {
            let root = self.analysis.document.as_ref()?;
            let dialect = expect::dialect_of(root);
            let catalog = &self.analysis.catalog;
            let expected = expect::follow(root, &path.crumbs, dialect, catalog).value;
            matches!(expected, Expected::Shape(FieldShape::Condition)).then_some(())
        };
        let (from, to) = match braces.iter().find(holds) {
            Some((from, to)) => (start + from, start + to),
            None if braces.is_empty() => {
                is_condition()?;
                let inner = unquoted(source, path.node.span).range();
                (inner.start, inner.end)
            }
            None => return None,
        };
        let text = source.text().get(from..to)?;
        let offset = (at as usize).checked_sub(from)?;
        if text.len() > self.analysis.limits.expression_bytes_max {
            return None;
        }
        let cursor = Cursor::at(text, offset, from, None);
        let word = cursor.word()?;
        let span = Span::new(from + word.0, from + word.1);
        let name = &text[word.0..word.1];
        let known = |words: &[Word]| {
            words.iter().find(|word| word.name == name).map(|word| Hover {
                span,
                ty: None,
                contents: format!("`{}`\n\n{}", word.form, word.about),
                schema: None,
            })
        };
        match cursor.word_before() {
            Some("|") => return known(FILTERS),
            Some("is") => return known(TESTS),
            _ if text[word.1..].trim_start().starts_with('(') => return known(FUNCTIONS),
            _ => {}
        }
        let mut scope = self.scope(path)?;
        cursor.bind_lambdas(&mut scope);
        let whole = cursor.path_to_word();
        let ty = scope.type_of_text(whole);
        let is_known = ty != Type::Any || scope.names().iter().any(|it| *it.name == *name);
        let about = scope.names().into_iter().find(|it| *it.name == *whole);
        if !is_known && self.value(&scope, whole).is_none() {
            return None;
        }
        let mut contents = format!("`{whole}`");
        if let Some(about) = about.as_ref().and_then(|known| known.about.as_deref()) {
            let _ = write!(contents, "\n\n{about}");
        }
        if let Some(ExprRoot::Step(index)) = about.map(|known| known.root) {
            self.step(index, &mut contents);
        } else if let Some(value) = self.value(&scope, whole) {
            last_value(&value, &mut contents);
        }
        Some(typed(span, &ty, contents))
    }

    /// The last observed value of a path that begins with a step.
    fn value(&self, scope: &NameScope<'_>, path: &str) -> Option<Value> {
        let path = path.strip_prefix("steps.").map_or(path, |rest| rest);
        let normal = path.replace(['[', ']'], ".");
        let mut parts = normal.split('.').map(|part| part.trim_matches(['"', '\'', ' ']));
        let name = parts.next()?;
        let is_named = |step: &&&Step| {
            *step.id == *name || step.output_key.as_ref().is_some_and(|(key, _)| **key == *name)
        };
        let steps = scope.steps();
        let step = steps.iter().find(is_named)?;
        let value = self.analysis.observations.steps.get(&step.id)?;
        let mut parts = parts.filter(|part| !part.is_empty()).peekable();
        parts.next_if(|part| *part == "output" && value.get("output").is_none());
        let found = parts.try_fold(value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            other => other.get(part),
        });
        found.cloned()
    }

    /// A name outside of expressions, or in an expression of another dialect.
    fn symbol(&self, at: u32) -> Option<Hover> {
        let occurrence = self.analysis.occurrence(at)?;
        let span = occurrence.span;
        let composition = self.composition?;
        match &occurrence.symbol {
            Symbol::Tool(id) => {
                let tool = self.analysis.catalog.get(id)?;
                Some(self.tool(tool, span))
            }
            Symbol::Step(index) | Symbol::OutputKey(index) => {
                let mut contents = format!("`{}`", self.analysis.source.slice(span));
                self.step(*index, &mut contents);
                let ty = Typing::from_observed(composition).value(*index);
                Some(typed(span, &ty, contents))
            }
            Symbol::Input(name) => {
                let schema = composition.input.as_ref()?.json().get("properties")?.get(name)?;
                let mut contents = format!("`input.{name}`");
                add_description(schema, &mut contents);
                Some(typed(span, Schema::new(schema.clone()).ty(), contents))
            }
            Symbol::Given(_) | Symbol::Item(_) => {
                let text = self.analysis.source.slice(span);
                let path = path_to(self.analysis.document.as_ref()?, at)?;
                let scope = self.scope(&path)?;
                let ty = scope.type_of_text(text);
                Some(typed(span, &ty, format!("`{text}`")))
            }
        }
    }

    fn step(&self, index: StepIndex, contents: &mut String) {
        let Some(composition) = self.composition else { return };
        let mut found = None;
        composition.body.walk(&mut |step| {
            if step.index == index {
                found = Some(step);
            }
        });
        let Some(step) = found else { return };
        let tool = step.calls().first().and_then(|call| call.tool.clone());
        let does = tool.as_ref().map_or(step.kind.keyword(), |tool| tool.id.as_str());
        let _ = write!(contents, "\n\nstep `{}`: `{does}`", step.id);
        if let Some(tool) = &tool {
            self.times(tool, contents);
        }
        if let Some(value) = self.analysis.observations.steps.get(&step.id) {
            last_value(value, contents);
        }
    }

    fn tool(&self, tool: &Arc<ToolSpec>, span: Span) -> Hover {
        let effect = effect_label(tool.annotations.impact());
        let mut contents = format!("`{}` ({effect})\n\n{}", tool.id, tool.description);
        let members = super::schema_parts::SchemaPart::whole(tool.input.json()).members();
        for (name, member) in members {
            let required = if member.is_required { ", required" } else { "" };
            let _ = write!(contents, "\n- `{name}` ({}{required})", member.schema.ty());
            if let Some(about) = member.schema.description() {
                let _ = write!(contents, ": {about}");
            }
        }
        self.times(tool, &mut contents);
        let schema = Some(tool.input.json().clone());
        let ty = tool.output.as_ref().map(|output| output.ty().to_string());
        Hover { span, ty, contents, schema }
    }

    fn times(&self, tool: &ToolSpec, contents: &mut String) {
        let seen = self.analysis.observations.tools.get(&tool.id).or(tool.observed.as_ref());
        let Some(ObservedStats { calls, failures, p50_ms, p95_ms, .. }) = seen else { return };
        let _ = write!(
            contents,
            "\n\n{calls} calls, {failures} failed, half of them within {p50_ms} ms, 95 % within {p95_ms} ms"
        );
    }

    /// An argument of a call, in any dialect.
    fn parameter(&self, at: u32) -> Option<Hover> {
        let tree = self.analysis.native_tree()?;
        let mut found = None;
        self.composition?.body.walk_calls(&mut |call| {
            let span = call.parameters.span;
            let is_given = span != call.name_span && span.start <= at && at <= span.end;
            if let Some(tool) = call.tool.as_ref().filter(|_| is_given && found.is_none()) {
                found = tree.find(span).map(|node| (node, tool));
            }
        });
        let (node, tool) = found?;
        let path = path_to(node, at)?;
        let mut schema = Some(super::schema_parts::SchemaPart::whole(tool.input.json()));
        let mut place = None;
        for crumb in &path.crumbs {
            schema = schema.and_then(|schema| match crumb {
                Crumb::Member { member, .. } => {
                    place = Some(member.key_span);
                    schema.member(&member.key)
                }
                Crumb::Item { .. } => schema.items(),
            });
        }
        let (schema, place) = (schema?, place?);
        let span =
            unquoted(&self.analysis.source, if path.is_key { place } else { path.node.span });
        let mut contents = format!(
            "`{}` of `{}`",
            self.analysis.source.slice(unquoted(&self.analysis.source, place)),
            tool.id
        );
        if let Some(about) = schema.description() {
            let _ = write!(contents, "\n\n{about}");
        }
        let ty = Some(schema.ty().to_string());
        Some(Hover { span, ty, contents, schema: Some(schema.json().clone()) })
    }

    /// A field of the language, at its key or at its plain value.
    fn field(&self, path: &Path<'_>, dialect: Dialect) -> Option<Hover> {
        let root = self.analysis.document.as_ref()?;
        let place = expect::follow(root, &path.crumbs, dialect, &self.analysis.catalog).field?;
        let Some(Crumb::Member { member, .. }) = path.crumbs.last() else { return None };
        if *member.key != *place.field.name {
            return None;
        }
        let span = if path.is_key { member.key_span } else { path.node.span };
        let span = unquoted(&self.analysis.source, span);
        let contents = format!("`{}`\n\n{}", place.field.name, place.field.doc);
        let ty = Some(shape_name(&place.field.shape));
        Some(Hover { span, ty, contents, schema: None })
    }
}

fn typed(span: Span, ty: &Type, contents: String) -> Hover {
    let schema = (*ty != Type::Any).then(|| ty.to_schema());
    Hover { span, ty: Some(ty.to_string()), contents, schema }
}

fn add_description(schema: &Value, contents: &mut String) {
    if let Some(about) = schema.get("description").and_then(Value::as_str) {
        let _ = write!(contents, "\n\n{about}");
    }
}

fn last_value(value: &Value, contents: &mut String) {
    let shown = CutBudget::new(VALUE_BYTES_MAX).cut(value).to_json();
    let _ = write!(contents, "\n\nlast value:\n\n```json\n{shown}\n```");
}
