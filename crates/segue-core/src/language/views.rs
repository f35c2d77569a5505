//! The answers of the language service, as plain data.

use std::sync::Arc;

use super::TextEdit;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{Source, Span};
use crate::value::Value;

/// One proposal at a position.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The name that is shown.
    pub label: String,
    /// Its kind.
    pub kind: CompletionKind,
    /// Its type, in one line.
    pub detail: Option<String>,
    /// Its description.
    pub documentation: Option<Arc<str>>,
    /// The change that accepts it; its span contains or touches the position.
    pub edit: TextEdit,
    /// Whether it must be given and is not there yet.
    pub required: bool,
}

/// The kind of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A field of the language.
    Field,
    /// A field that says what a step does.
    StepKind,
    /// A tool.
    Tool,
    /// A composition, called as a tool.
    Composition,
    /// A parameter of a tool.
    Parameter,
    /// A word or another literal value.
    Value,
    /// The id of a step.
    Step,
    /// A name in an expression.
    Name,
    /// A member of a value in an expression.
    Member,
    /// A whole expression, with its braces.
    Expression,
    /// A filter.
    Filter,
    /// A test, after `is`.
    Test,
    /// A function.
    Function,
    /// A word of the expression language.
    Keyword,
}

/// What is known about a part of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Hover {
    /// The part.
    pub span: Span,
    /// The type of its value, in one line.
    pub ty: Option<String>,
    /// Description, last value, times and the like, as Markdown.
    pub contents: String,
    /// A JSON Schema of its value.
    pub schema: Option<Value>,
}

/// A part of a composition, with its own parts.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineItem {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: OutlineKind,
    /// More about it in one line: the tool of a step, the type of an input.
    pub detail: Option<String>,
    /// The whole part.
    pub span: Span,
    /// Its name in the text.
    pub name_span: Span,
    /// Its parts.
    pub children: Vec<OutlineItem>,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineKind {
    /// The input, or one of its properties.
    Input,
    /// A step.
    Step,
    /// A body of a step: a branch, a case, the steps of a loop.
    Body,
    /// The output.
    Output,
}

/// A change that fixes a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeAction {
    /// What it does.
    pub title: String,
    /// The code of the finding.
    pub code: Code,
    /// The span of the finding.
    pub finding: Span,
    /// Whether it is the obvious fix.
    pub preferred: bool,
    /// The change.
    pub edits: Vec<TextEdit>,
}

impl CodeAction {
    /// The replacement that a finding suggests.
    pub(super) fn of(finding: &Diagnostic, source: &Source) -> Option<CodeAction> {
        let fix = finding.fix.as_ref()?;
        let old = source.text().get(fix.span.range())?;
        // Where an expression could not be located exactly, a fix has the span of the whole string.
        if finding.code != Code::Parse && (old.contains("{{") || old.starts_with(['"', '\''])) {
            return None;
        }
        let new = &fix.replacement;
        let title = match (old.is_empty(), new.is_empty()) {
            (true, _) => format!("insert `{new}`"),
            (false, true) => format!("remove `{old}`"),
            (false, false) => format!("change `{old}` to `{new}`"),
        };
        let edits = vec![TextEdit::replace(fix.span, new.clone())];
        Some(CodeAction {
            title,
            code: finding.code,
            finding: finding.span,
            preferred: true,
            edits,
        })
    }
}

/// A part of the text that leads somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLink {
    /// The part.
    pub span: Span,
    /// Where it leads.
    pub target: LinkTarget,
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// The text of a composition that is called, by the name of its source, usually a path.
    Composition {
        /// The name of its source.
        source: Arc<str>,
    },
    /// The page that explains a code.
    ErrorPage {
        /// The code.
        code: Code,
    },
    /// An address on the web.
    Url(Arc<str>),
}

/// A token inside an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemanticToken {
    /// Its span; tokens are sorted and do not overlap.
    pub span: Span,
    /// Its kind.
    pub kind: TokenKind,
}

/// The kind of a token inside an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// `{{` and `}}`.
    Brace,
    /// The first name of a path.
    Name,
    /// A member of a value.
    Member,
    /// A filter.
    Filter,
    /// A test, after `is`.
    Test,
    /// A function.
    Function,
    /// A word of the language, such as `if` and `and`.
    Keyword,
    /// A text.
    Text,
    /// A number.
    Number,
    /// An operator.
    Operator,
}
