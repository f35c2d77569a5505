//! Keys of objects: fields by the tables of the grammar, parameters by the tool's schema.

use std::sync::Arc;

use super::insert::text_scalar;
use super::{Completion, Request, fits};
use crate::compile::dialect::grammar::{
    FieldShape, ON_FAILURE, ON_SUCCESS, RecordGrammar, STEP, STEP_KINDS,
};
use crate::document::Node;
use crate::language::expect::{Expected, record_of};
use crate::language::path::Crumb;
use crate::language::{CompletionKind, TextEdit};
use crate::source::{Notation, Span};
use crate::types::Type;

/// What follows a key.
#[derive(Clone, Copy)]
enum ValueForm {
    Scalar,
    List,
    Object,
}

struct Key {
    name: Arc<str>,
    kind: CompletionKind,
    detail: String,
    documentation: Option<Arc<str>>,
    is_required: bool,
    form: ValueForm,
}

impl Request<'_, '_> {
    /// The keys of an object that should be so, without those that it has.
    pub(super) fn keys(&self, expected: &Expected, object: Option<&Node>) -> Vec<Completion> {
        let keys = match expected {
            Expected::Shape(FieldShape::Schema) => schema_keywords(),
            Expected::Shape(shape) => match record_of(shape) {
                Some(record) => self.fields(record, object),
                None => Vec::new(),
            },
            Expected::Argument { schema: Some(schema), .. } => {
                let members = schema.members().into_iter();
                members.map(|(name, member)| parameter(name, &member)).collect()
            }
            Expected::Argument { schema: None, .. } | Expected::Open => Vec::new(),
        };
        let text = self.analysis.source.text();
        let span = self.scalar.line_span(text, self.at);
        let typed = text.get(span.start as usize..self.at).unwrap_or_default();
        let is_there = |name: &str| {
            let has = |node: &Node| {
                node.members()
                    .iter()
                    .any(|member| *member.key == *name && !self.is_mark(member.key_span))
            };
            object.is_some_and(has)
        };
        let keys = keys.into_iter().filter(|key| fits(typed, &key.name) && !is_there(&key.name));
        keys.filter_map(|key| self.key(key, span)).collect()
    }

    /// Whether a key is the one at the position.
    fn is_mark(&self, span: Span) -> bool {
        span.range().start <= self.at && self.at < span.range().end
    }

    fn key(&self, key: Key, span: Span) -> Option<Completion> {
        let text = self.analysis.source.text();
        let notation = self.analysis.source.notation();
        let name = text_scalar(&key.name, self.scalar.quote, notation);
        let quote = self.scalar.quote;
        let is_closed = quote.is_some_and(|quote| {
            text.get(self.scalar.end..).is_some_and(|rest| rest.starts_with(quote))
        });
        let close = self.scalar.end + usize::from(is_closed);
        let after = text.get(close..).unwrap_or_default().trim_start_matches([' ', '\t']);
        let mut span = span;
        let mut follows = String::new();
        if let Some(quote) = quote {
            follows.push(quote);
            span.end += u32::from(is_closed && span.range().end == self.scalar.end);
        }
        if !after.starts_with(':') {
            follows.push_str(&self.after_key(key.form, after));
        }
        let before = self.before_key()?;
        let edit = TextEdit::replace(span, format!("{before}{name}{follows}"));
        Some(Completion {
            label: key.name.to_string(),
            kind: key.kind,
            detail: Some(key.detail),
            documentation: key.documentation,
            edit,
            required: key.is_required,
        })
    }

    /// What comes before a key where an object only begins. JSON needs a bracket first.
    fn before_key(&self) -> Option<String> {
        if self.path.is_key {
            return Some(String::new());
        }
        if self.is_flow {
            return None;
        }
        let text = self.analysis.source.text();
        let line = text[..self.scalar.start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &text[line..self.scalar.start];
        match self.path.crumbs.last() {
            // An item without its dash.
            Some(Crumb::Item { .. }) if before.trim().is_empty() => Some("- ".to_owned()),
            // On the line of its own key, an object cannot begin.
            Some(Crumb::Member { member, .. }) if !before.trim().is_empty() => {
                let start = member.key_span.start as usize;
                let column = start - text[..start].rfind('\n').map_or(0, |newline| newline + 1);
                Some(format!("\n{}", " ".repeat(column + 2)))
            }
            _ => Some(String::new()),
        }
    }

    /// The colon, and what begins the value.
    fn after_key(&self, form: ValueForm, after: &str) -> String {
        let is_line_end = after.is_empty() || after.starts_with(['\n', '\r']);
        if self.is_flow || !is_line_end || self.analysis.source.notation() == Notation::Json {
            return ": ".to_owned();
        }
        let indent = " ".repeat(self.key_column() + 2);
        match form {
            ValueForm::Scalar => ": ".to_owned(),
            ValueForm::List => format!(":\n{indent}- "),
            ValueForm::Object => format!(":\n{indent}"),
        }
    }

    /// The column of a key that is inserted at the position.
    fn key_column(&self) -> usize {
        let text = self.analysis.source.text();
        let line = text[..self.scalar.start].rfind('\n').map_or(0, |newline| newline + 1);
        let own = self.scalar.start - line;
        match self.before_key() {
            Some(before) if before.starts_with('\n') => before.len() - 1,
            Some(before) => own + before.len(),
            None => own,
        }
    }

    fn fields(&self, record: &'static RecordGrammar, object: Option<&Node>) -> Vec<Key> {
        let is_step = std::ptr::eq(record, &raw const STEP);
        let kind = object.and_then(|node| {
            STEP_KINDS.iter().find(|kind| {
                node.members().iter().any(|it| *it.key == ***kind && !self.is_mark(it.key_span))
            })
        });
        let is_branch = matches!(
            self.path.crumbs.iter().rev().nth(usize::from(self.path.is_key) + 1 ),
            Some(Crumb::Member { member, .. }) if &*member.key == "parallel"
        );
        let fields = record.fields_in(self.dialect).filter(|field| {
            let is_program = self.is_program();
            match field.name {
                "next" if is_jump(record) => is_program,
                _ if !is_step => true,
                "steps" => is_branch && kind.is_none(),
                "depends_on" => !is_program,
                "fallthrough" => is_program,
                name if STEP_KINDS.contains(&name) => kind.is_none(),
                "wait_for" => kind.is_none_or(|kind| *kind == "parallel"),
                "parameters" | "inputs" | "fallback" | "probe" | "idempotent" | "rollback"
                | "success_when" | "fail_when" => kind.is_none_or(|kind| *kind == "tool"),
                _ => true,
            }
        });
        let key = |field: &crate::compile::dialect::grammar::FieldGrammar| Key {
            name: field.name.into(),
            kind: if is_step && STEP_KINDS.contains(&field.name) {
                CompletionKind::StepKind
            } else {
                CompletionKind::Field
            },
            detail: shape_name(&field.shape),
            documentation: Some(field.doc.into()),
            is_required: record.required.contains(&field.name) || (is_step && field.name == "id"),
            form: form_of(&field.shape),
        };
        fields.map(key).collect()
    }

    fn is_program(&self) -> bool {
        use crate::composition::{Dialect, Flow};
        let flow = self.analysis.composition.as_ref().map(|it| it.body.flow);
        self.dialect == Dialect::Chain || flow == Some(Flow::Program)
    }
}

fn is_jump(record: &'static RecordGrammar) -> bool {
    std::ptr::eq(record, &raw const ON_SUCCESS) || std::ptr::eq(record, &raw const ON_FAILURE)
}

fn parameter(name: Arc<str>, member: &crate::language::schema_parts::SchemaMember) -> Key {
    let ty = member.schema.ty();
    let is_every = |wanted: fn(&Type) -> bool| ty.parts().iter().all(wanted);
    Key {
        name,
        kind: CompletionKind::Parameter,
        detail: ty.to_string(),
        documentation: member.schema.description(),
        is_required: member.is_required,
        form: if is_every(|part| matches!(part, Type::Array(_))) {
            ValueForm::List
        } else if is_every(|part| matches!(part, Type::Object(_))) {
            ValueForm::Object
        } else {
            ValueForm::Scalar
        },
    }
}

fn form_of(shape: &FieldShape) -> ValueForm {
    match shape {
        FieldShape::List(_) => ValueForm::List,
        FieldShape::Of(_)
        | FieldShape::Templates
        | FieldShape::Object
        | FieldShape::Names
        | FieldShape::Schema
        | FieldShape::Each(_) => ValueForm::Object,
        FieldShape::Either(shapes) => match shapes.first() {
            Some(FieldShape::Templates) => ValueForm::Object,
            _ => ValueForm::Scalar,
        },
        _ => ValueForm::Scalar,
    }
}

/// The shape of a field in a few words.
pub(in crate::language) fn shape_name(shape: &FieldShape) -> String {
    match shape {
        FieldShape::Text | FieldShape::Name | FieldShape::Version => "text".to_owned(),
        FieldShape::Id => "name".to_owned(),
        FieldShape::Bool => "boolean".to_owned(),
        FieldShape::Null => "null".to_owned(),
        FieldShape::Count | FieldShape::Bound | FieldShape::Millis => "whole number".to_owned(),
        FieldShape::Number => "number".to_owned(),
        FieldShape::Duration => "duration".to_owned(),
        FieldShape::Condition => "condition".to_owned(),
        FieldShape::Template => "value".to_owned(),
        FieldShape::Object | FieldShape::Templates | FieldShape::Names | FieldShape::Each(_) => {
            "object".to_owned()
        }
        FieldShape::Schema => "JSON Schema".to_owned(),
        FieldShape::Words(words) => words.join(" | "),
        FieldShape::Of(record) => record.name.to_owned(),
        FieldShape::List(inner) => format!("list of {}", shape_name(inner)),
        FieldShape::Either(shapes) => {
            shapes.iter().map(shape_name).collect::<Vec<_>>().join(" or ")
        }
    }
}

/// Keywords of JSON Schema that inputs use.
fn schema_keywords() -> Vec<Key> {
    let keyword = |(name, detail, about, form): &(&str, &str, &str, ValueForm)| Key {
        name: (*name).into(),
        kind: CompletionKind::Field,
        detail: (*detail).to_owned(),
        documentation: Some((*about).into()),
        is_required: false,
        form: *form,
    };
    [
        ("type", "word", "The kind of value.", ValueForm::Scalar),
        ("description", "text", "What it is for.", ValueForm::Scalar),
        ("properties", "object", "The members of an object.", ValueForm::Object),
        ("required", "list", "Members that must be given.", ValueForm::List),
        ("items", "JSON Schema", "The items of a list.", ValueForm::Object),
        ("enum", "list", "The only values.", ValueForm::List),
        ("const", "value", "The only value.", ValueForm::Scalar),
        ("default", "value", "The value when none is given.", ValueForm::Scalar),
        ("format", "word", "The form of a text.", ValueForm::Scalar),
        ("pattern", "text", "A regular expression that a text matches.", ValueForm::Scalar),
        ("minimum", "number", "The least number.", ValueForm::Scalar),
        ("maximum", "number", "The greatest number.", ValueForm::Scalar),
        ("minLength", "whole number", "Characters at least.", ValueForm::Scalar),
        ("maxLength", "whole number", "Characters at most.", ValueForm::Scalar),
        ("minItems", "whole number", "Items at least.", ValueForm::Scalar),
        ("maxItems", "whole number", "Items at most.", ValueForm::Scalar),
        (
            "additionalProperties",
            "boolean or JSON Schema",
            "Members that are not declared.",
            ValueForm::Scalar,
        ),
        ("anyOf", "list", "Schemas of which one fits.", ValueForm::List),
        ("writeOnly", "boolean", "Whether the value is secret.", ValueForm::Scalar),
    ]
    .iter()
    .map(keyword)
    .collect()
}
