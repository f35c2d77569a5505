//! Converts a document of any dialect into the native dialect.
//!
//! The converter writes the tree that the document lowers to, so the result compiles to the same
//! plan. It needs no tools, because only the notation changes.

use std::sync::Arc;

use super::dialect::{self, ReadDocument};
use super::{check, contained, resolve};
use crate::composition::{Composition, Dialect};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::write;
use crate::limits::Limits;
use crate::source::{Notation, Source, Span};
use crate::value::Value;

/// The result of a conversion.
#[derive(Debug)]
pub struct ConvertedText {
    /// The document in the native dialect and in its own notation, if the conversion succeeded.
    pub text: Option<Arc<str>>,
    /// Findings about the document.
    pub diagnostics: Vec<Diagnostic>,
}

/// Converts a document to a native composition. YAML keeps its comments.
pub fn convert(source: &Source, limits: &Limits) -> ConvertedText {
    contained(|| convert_text(source, limits))
        .unwrap_or_else(|fault| ConvertedText { text: None, diagnostics: vec![fault] })
}

fn convert_text(source: &Source, limits: &Limits) -> ConvertedText {
    let selected = match dialect::select(source, limits) {
        Ok(selected) => selected,
        Err(diagnostics) => return ConvertedText { text: None, diagnostics },
    };
    let ReadDocument { composition, findings: mut diagnostics, lowered } =
        dialect::read(source, &selected, limits);
    let root = &selected.root;
    let is_wrong = diagnostics.iter().any(|finding| finding.severity == Severity::Error);
    let Some(composition) = composition.filter(|_| !is_wrong) else {
        return ConvertedText { text: None, diagnostics };
    };
    let document = dialect::unwrap_template(root);
    if composition.dialect == Dialect::Composition && std::ptr::eq(document, root) {
        return ConvertedText { text: Some(source.text().into()), diagnostics };
    }
    diagnostics.extend(unclear_names(&composition));
    let tree = match composition.dialect {
        Dialect::Composition => document.clone(),
        Dialect::Chain => dialect::lower_chain(document, &composition),
        _ => lowered.unwrap_or_else(|| document.clone()),
    };
    let text: Arc<str> = match source.notation() {
        Notation::Json => pretty(&tree.to_value()).into(),
        Notation::Yaml => write::yaml(&tree, document, source, &selected.comments).into(),
    };
    if let Some(reason) = what_changes(source, &text, limits) {
        let message =
            format!("`{}` cannot be written as a composition: {reason}", composition.name);
        diagnostics.push(Diagnostic::error(Code::Conversion, message, Span::default()));
        return ConvertedText { text: None, diagnostics };
    }
    ConvertedText { text: Some(text), diagnostics }
}

/// Names that ToolHive may read as a server and its tool. A composition needs `servers` for that.
fn unclear_names(composition: &Composition) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if composition.dialect != Dialect::ToolHive || !composition.servers.is_empty() {
        return findings;
    }
    composition.body.walk_calls(&mut |call| {
        if call.name.contains('_') && !call.name.contains(':') {
            let name = &call.name;
            let message = format!(
                "`{name}` may mean a server and its tool, which a composition separates with `:`"
            );
            let help = "if it does, write `server:tool`, or name the server in `servers`";
            let finding = Diagnostic::warning(Code::Conversion, message, call.name_span);
            findings.push(finding.help(help));
        }
    });
    findings
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Why the converted text would not compile to the same composition.
fn what_changes(source: &Source, text: &str, limits: &Limits) -> Option<String> {
    let before = errors_of(source, limits);
    let after = errors_of(&Source::new(source.name().to_owned(), text), limits);
    after.into_iter().find(|error| !before.contains(error))
}

/// Errors in the names and the order of a document, independent of its tools.
fn errors_of(source: &Source, limits: &Limits) -> Vec<String> {
    let messages = |findings: Vec<Diagnostic>| -> Vec<String> {
        let errors = findings.into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| finding.message).collect()
    };
    let selected = match dialect::select(source, limits) {
        Ok(selected) => selected,
        Err(findings) => return messages(findings),
    };
    let ReadDocument { composition, mut findings, .. } = dialect::read(source, &selected, limits);
    if let Some(mut composition) = composition {
        findings.extend(resolve::resolve(&mut composition, source));
        findings.extend(check::check_circles(&composition));
    }
    messages(findings)
}
