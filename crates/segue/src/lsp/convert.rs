//! Answers of the language service → types of the protocol.

use gen_lsp_types as lsp;
use gen_lsp_types::{
    CompletionItemKind, DiagnosticSeverity, DiagnosticTag, MarkupKind, SymbolKind,
};
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::language::{
    Completion, CompletionKind, Hover, OutlineItem, OutlineKind, SemanticToken, TokenKind,
};

use super::client::Client;
use super::documents::EditorDocument;

/// The types of semantic tokens, by their index.
pub(super) const TOKEN_TYPES: &[&str] =
    &["operator", "variable", "property", "function", "keyword", "string", "number"];

pub(super) fn finding(
    document: &EditorDocument,
    client: &Client,
    finding: &Diagnostic,
) -> lsp::Diagnostic {
    let help = finding.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    let related = finding.related.iter().map(|(span, label)| lsp::DiagnosticRelatedInformation {
        location: location(document, document.range(*span)),
        message: label.clone(),
    });
    let is_unneeded = matches!(finding.code, Code::Unused | Code::UnreachableStep);
    lsp::Diagnostic {
        range: document.range(finding.span),
        severity: Some(match finding.severity {
            Severity::Error => DiagnosticSeverity::Error,
            Severity::Warning => DiagnosticSeverity::Warning,
            Severity::Hint => DiagnosticSeverity::Information,
        }),
        code: Some(lsp::Code::String(finding.code.to_string())),
        source: Some("segue".to_owned()),
        message: lsp::Message::String(format!("{}{help}", finding.message)),
        tags: is_unneeded.then(|| vec![DiagnosticTag::Unnecessary]),
        related_information: (client.has_related && !finding.related.is_empty())
            .then(|| related.collect()),
        ..lsp::Diagnostic::default()
    }
}

pub(super) fn location(document: &EditorDocument, range: lsp::Range) -> lsp::Location {
    lsp::Location { uri: document.uri.clone(), range }
}

pub(super) fn text_edit(
    document: &EditorDocument,
    edit: &segue_core::language::TextEdit,
) -> lsp::TextEdit {
    lsp::TextEdit { range: document.range(edit.span), new_text: edit.text.clone() }
}

/// A text that is Markdown, for a client that may not show it as such.
fn markup(is_markdown: bool, value: String) -> lsp::MarkupContent {
    let kind = if is_markdown { MarkupKind::Markdown } else { MarkupKind::PlainText };
    lsp::MarkupContent { kind, value }
}

/// A proposal. Editors sort by text, so the order is part of it.
pub(super) fn completion(
    document: &EditorDocument,
    client: &Client,
    index: usize,
    completion: &Completion,
) -> lsp::CompletionItem {
    let kind = match completion.kind {
        CompletionKind::Field | CompletionKind::Parameter => CompletionItemKind::Property,
        CompletionKind::StepKind | CompletionKind::Keyword => CompletionItemKind::Keyword,
        CompletionKind::Tool | CompletionKind::Filter => CompletionItemKind::Function,
        CompletionKind::Test | CompletionKind::Function => CompletionItemKind::Function,
        CompletionKind::Composition => CompletionItemKind::Module,
        CompletionKind::Value => CompletionItemKind::Value,
        CompletionKind::Step => CompletionItemKind::Reference,
        CompletionKind::Name => CompletionItemKind::Variable,
        CompletionKind::Member => CompletionItemKind::Field,
        CompletionKind::Expression => CompletionItemKind::Snippet,
    };
    let documentation = completion.documentation.as_ref().map(|text| {
        lsp::Documentation::MarkupContent(markup(client.has_markdown_completion, text.to_string()))
    });
    let group = if completion.required { 'a' } else { 'b' };
    lsp::CompletionItem {
        label: completion.label.clone(),
        kind: Some(kind),
        detail: completion.detail.clone(),
        documentation,
        sort_text: Some(format!("{group}{index:05}")),
        filter_text: Some(completion.edit.text.clone()),
        text_edit: Some(lsp::CompletionItemTextEdit::TextEdit(text_edit(
            document,
            &completion.edit,
        ))),
        ..lsp::CompletionItem::default()
    }
}

pub(super) fn hover(document: &EditorDocument, client: &Client, hover: &Hover) -> lsp::Hover {
    let ty = hover.ty.as_ref().map(|ty| format!("`{ty}`"));
    let parts = ty.into_iter().chain((!hover.contents.is_empty()).then(|| hover.contents.clone()));
    let text = parts.collect::<Vec<_>>().join("\n\n");
    lsp::Hover {
        contents: lsp::Contents::MarkupContent(markup(client.has_markdown_hover, text)),
        range: Some(document.range(hover.span)),
    }
}

fn symbol_kind(kind: OutlineKind) -> SymbolKind {
    match kind {
        OutlineKind::Input => SymbolKind::Variable,
        OutlineKind::Step => SymbolKind::Function,
        OutlineKind::Body => SymbolKind::Namespace,
        OutlineKind::Output => SymbolKind::Property,
    }
}

#[expect(deprecated, reason = "the field exists, and is not set")]
pub(super) fn symbol(document: &EditorDocument, item: &OutlineItem) -> lsp::DocumentSymbol {
    let children: Vec<_> = item.children.iter().map(|child| symbol(document, child)).collect();
    let (range, mut selection_range) = (document.range(item.span), document.range(item.name_span));
    // Clients refuse a name outside of the whole part.
    if selection_range.start < range.start || range.end < selection_range.end {
        selection_range = lsp::Range { start: range.start, end: range.start };
    }
    lsp::DocumentSymbol {
        // Clients refuse an empty name.
        name: if item.name.trim().is_empty() { "-".to_owned() } else { item.name.clone() },
        detail: item.detail.clone(),
        kind: symbol_kind(item.kind),
        tags: None,
        deprecated: None,
        range,
        selection_range,
        children: (!children.is_empty()).then_some(children),
    }
}

/// The same as a list, for clients without nested symbols.
#[expect(deprecated, reason = "the field exists, and is not set")]
pub(super) fn flat_symbols(
    document: &EditorDocument,
    items: &[OutlineItem],
    container: Option<&str>,
) -> Vec<lsp::SymbolInformation> {
    let symbols = items.iter().flat_map(|item| {
        let own = lsp::SymbolInformation {
            deprecated: None,
            location: location(document, document.range(item.span)),
            base_symbol_information: lsp::BaseSymbolInformation {
                name: item.name.clone(),
                kind: symbol_kind(item.kind),
                tags: None,
                container_name: container.map(str::to_owned),
            },
        };
        let inner = flat_symbols(document, &item.children, Some(&item.name));
        std::iter::once(own).chain(inner)
    });
    symbols.collect()
}

/// Tokens, each relative to the one before it. A token ends with its line.
pub(super) fn tokens(
    document: &EditorDocument,
    tokens: &[SemanticToken],
) -> Vec<lsp::SemanticToken> {
    let (mut line, mut start) = (0, 0);
    let mut encoded = Vec::new();
    for token in tokens {
        for part in document.per_line(token.span) {
            let range = document.range(part);
            let delta_line = range.start.line - line;
            let before = if delta_line == 0 { start } else { 0 };
            encoded.push(lsp::SemanticToken {
                delta_line,
                delta_start: range.start.character - before,
                length: range.end.character - range.start.character,
                token_type: token_type(token.kind),
                token_modifiers_bitset: 0,
            });
            (line, start) = (range.start.line, range.start.character);
        }
    }
    encoded
}

/// The index of a kind in [`TOKEN_TYPES`].
fn token_type(kind: TokenKind) -> u32 {
    match kind {
        TokenKind::Brace | TokenKind::Operator => 0,
        TokenKind::Name => 1,
        TokenKind::Member => 2,
        TokenKind::Filter | TokenKind::Test | TokenKind::Function => 3,
        TokenKind::Keyword => 4,
        TokenKind::Text => 5,
        TokenKind::Number => 6,
    }
}
