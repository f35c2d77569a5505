//! Values of fields and parameters: words, tools, steps, literals of a schema, whole expressions.

use std::sync::Arc;

use super::insert::value_text;
use super::{Completion, Request, fits};
use crate::compile::dialect::grammar::{FieldShape, RETRY};
use crate::composition::tool::{COMPOSITION, ToolSpec};
use crate::diagnostic::Code;
use crate::expr::ExprRoot;
use crate::id::{ToolId, is_step_id};
use crate::language::expect::{Expected, FieldPlace};
use crate::language::path::Crumb;
use crate::language::schema_parts::SchemaPart;
use crate::language::scope::members;
use crate::language::{CompletionKind, TextEdit};
use crate::source::Span;
use crate::types::Type;
use crate::value::Value;

/// A value that fits, before it is written.
struct Proposal {
    label: String,
    kind: CompletionKind,
    detail: Option<String>,
    documentation: Option<Arc<str>>,
    value: Value,
}

impl Proposal {
    fn new(kind: CompletionKind, text: &str) -> Proposal {
        let value = Value::from(text);
        Proposal { label: text.to_owned(), kind, detail: None, documentation: None, value }
    }

    fn literal(value: Value) -> Proposal {
        let label = value.as_str().map_or_else(|| value.to_json(), ToOwned::to_owned);
        let kind = CompletionKind::Value;
        Proposal { label, kind, detail: None, documentation: None, value }
    }
}

impl Request<'_, '_> {
    pub(super) fn values(&self) -> Vec<Completion> {
        let mut proposals = match &self.expectation.value {
            Expected::Shape(shape) => self.of_shape(shape),
            Expected::Argument { schema, .. } => self.of_argument(schema.as_ref()),
            Expected::Open => Vec::new(),
        };
        let text = self.analysis.source.text();
        let span = self.scalar.line_span(text, self.at);
        let typed = text.get(span.start as usize..self.at).unwrap_or_default();
        proposals.retain(|proposal| fits(typed, &proposal.label));
        proposals.into_iter().map(|proposal| self.written(proposal, span)).collect()
    }

    fn written(&self, proposal: Proposal, span: Span) -> Completion {
        let notation = self.analysis.source.notation();
        let text = value_text(&proposal.value, self.scalar.quote, notation);
        let Proposal { label, kind, detail, documentation, .. } = proposal;
        let edit = TextEdit::replace(span, format!("{}{text}", self.missing_dash()));
        Completion { label, kind, detail, documentation, edit, required: false }
    }

    /// The dash of an item that stands on a line without one.
    fn missing_dash(&self) -> &'static str {
        let text = self.analysis.source.text();
        let line = text[..self.scalar.start].rfind('\n').map_or(0, |newline| newline + 1);
        let is_item = matches!(self.path.crumbs.last(), Some(Crumb::Item { .. }));
        let is_bare = text[line..self.scalar.start].trim().is_empty();
        if is_item && is_bare && !self.is_flow { "- " } else { "" }
    }

    fn of_shape(&self, shape: &'static FieldShape) -> Vec<Proposal> {
        let field = self.expectation.field.as_ref();
        let name = field.map_or("", |place| place.field.name);
        match shape {
            FieldShape::Words(words) => {
                words.iter().map(|word| Proposal::new(CompletionKind::Value, word)).collect()
            }
            FieldShape::Bool => [true, false].map(|it| Proposal::literal(it.into())).into(),
            FieldShape::Text if matches!(name, "tool" | "allowed_tools") => self.tools(),
            FieldShape::Text if name == "servers" => self.servers(),
            FieldShape::Text if name == "next" => self.targets(),
            FieldShape::Text if is_retry_code(field) => {
                let code = |code: &Code| Proposal {
                    documentation: Some(code.summary().into()),
                    ..Proposal::new(CompletionKind::Value, code.as_str())
                };
                Code::ALL.iter().map(code).collect()
            }
            FieldShape::Id if name == "depends_on" => self.siblings(),
            FieldShape::Template => self.expressions(&Type::Any),
            FieldShape::Schema if self.is_schema_type() => {
                let words = ["string", "integer", "number", "boolean", "array", "object", "null"];
                words.map(|word| Proposal::new(CompletionKind::Value, word)).into()
            }
            FieldShape::Either(shapes) => {
                shapes.iter().flat_map(|shape| self.of_shape(shape)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_schema_type(&self) -> bool {
        matches!(self.path.crumbs.last(), Some(Crumb::Member { member, .. }) if &*member.key == "type")
    }

    fn of_argument(&self, schema: Option<&SchemaPart>) -> Vec<Proposal> {
        let Some(schema) = schema else { return self.expressions(&Type::Any) };
        let ty = schema.ty();
        let literals = schema.values().into_iter().map(|value| Proposal {
            detail: Some(ty.to_string()),
            documentation: schema.description(),
            ..Proposal::literal(value)
        });
        literals.chain(self.expressions(&ty)).collect()
    }

    fn tools(&self) -> Vec<Proposal> {
        let catalog = &self.analysis.catalog;
        let is_allowed = |tool: &&Arc<ToolSpec>| match catalog.toolset() {
            Some(toolset) => toolset.access_error(&tool.id).is_none(),
            None => true,
        };
        let of_tool = |tool: &Arc<ToolSpec>| Proposal {
            detail: Some(tool.input.ty().to_string()),
            documentation: Some(tool.description.clone()),
            ..Proposal::new(kind_of(&tool.id), tool.id.as_str())
        };
        catalog.tools().filter(is_allowed).map(of_tool).collect()
    }

    fn servers(&self) -> Vec<Proposal> {
        let mut names: Vec<&str> =
            self.analysis.catalog.tools().map(|tool| tool.id.namespace()).collect();
        names.dedup();
        names.into_iter().map(|name| Proposal::new(CompletionKind::Value, name)).collect()
    }

    fn siblings(&self) -> Vec<Proposal> {
        let Some(scope) = self.scope() else { return Vec::new() };
        let of_step = |step: &crate::composition::Step| Proposal {
            detail: Some(step.kind.keyword().to_owned()),
            ..Proposal::new(CompletionKind::Step, &step.id)
        };
        scope.siblings().into_iter().map(of_step).collect()
    }

    fn targets(&self) -> Vec<Proposal> {
        let end = Proposal {
            documentation: Some("Ends the program.".into()),
            ..Proposal::new(CompletionKind::Value, "end")
        };
        self.siblings().into_iter().chain([end]).collect()
    }

    /// Names that may stand here as a whole expression, by their types.
    fn expressions(&self, wanted: &Type) -> Vec<Proposal> {
        let Some(scope) = self.scope() else { return Vec::new() };
        let mut found = Vec::new();
        for known in scope.names() {
            let ty = scope.type_of_name(&known.root);
            let path = match &known.root {
                ExprRoot::InputField(name) if !scope.is_program() => format!("input.{name}"),
                _ => known.name.to_string(),
            };
            // `input` as a whole has a type, but rarely is the value that an author means.
            let is_whole =
                matches!(known.root, ExprRoot::Input | ExprRoot::Context | ExprRoot::Run);
            if is_whole {
                continue;
            }
            let fits = |ty: &Type| ty.conflict(wanted).is_none();
            let paths = if fits(&ty) {
                vec![(path, ty)]
            } else {
                let inner =
                    members(&ty).into_iter().filter(|(name, ty)| fits(ty) && is_step_id(name));
                inner.map(|(name, ty)| (format!("{path}.{name}"), ty)).collect()
            };
            for (path, ty) in paths {
                let text = format!("{{{{ {path} }}}}");
                found.push(Proposal {
                    detail: Some(ty.to_string()),
                    documentation: known.about.clone(),
                    ..Proposal::new(CompletionKind::Expression, &text)
                });
            }
        }
        found
    }
}

fn kind_of(tool: &ToolId) -> CompletionKind {
    if tool.namespace() == COMPOSITION { CompletionKind::Composition } else { CompletionKind::Tool }
}

fn is_retry_code(field: Option<&FieldPlace>) -> bool {
    field.is_some_and(|place| {
        std::ptr::eq(place.record, &raw const RETRY) && place.field.name == "on"
    })
}
