//! Requests about a document → the language service → answers.

use std::rc::Rc;

use gen_lsp_types as lsp;
use lsp_server::{ErrorCode, Request};
use segue_core::language::{Analysis, LinkTarget};
use segue_core::source::Span;
use serde::Deserialize as _;
use serde_json::Value;

use super::documents::{AnalysedDocument, EditorDocument};
use super::session::LspSession;
use super::{convert, edits, lenses, uri};

/// A document with what is known about it.
pub(super) struct DocumentView<'a> {
    pub(super) document: &'a EditorDocument,
    pub(super) analysed: Rc<AnalysedDocument>,
}

/// Why a request has no answer.
pub(super) enum Refusal {
    /// The tools of the document's folder are not known yet: ask again later.
    NoToolsYet,
    /// The document is not open, so there is nothing to say.
    NotOpen,
    /// Anything else.
    Failed(ErrorCode, String),
}

/// The answer to a request, or why there is none.
pub(super) type Reply<T> = Result<T, Refusal>;

impl DocumentView<'_> {
    /// The answer of the first composition of the text that has one.
    fn first<T>(&self, ask: impl Fn(&Analysis) -> Option<T>) -> Option<T> {
        self.analysed.analyses.iter().find_map(ask)
    }

    pub(super) fn all<T>(&self, ask: impl Fn(&Analysis) -> Vec<T>) -> Vec<T> {
        self.analysed.analyses.iter().flat_map(ask).collect()
    }
}

impl LspSession {
    /// The answer to a request of a client that is initialized.
    pub(super) fn answer_of(&self, request: &Request) -> Reply<Value> {
        match request.method.as_str() {
            "textDocument/completion" => {
                reply::<lsp::CompletionRequest>(request, |it| self.complete(&it))
            }
            "textDocument/hover" => reply::<lsp::HoverRequest>(request, |it| self.hover(&it)),
            "textDocument/definition" => {
                reply::<lsp::DefinitionRequest>(request, |it| self.definition(&it))
            }
            "textDocument/references" => {
                reply::<lsp::ReferencesRequest>(request, |it| self.references(&it))
            }
            "textDocument/documentSymbol" => {
                reply::<lsp::DocumentSymbolRequest>(request, |it| self.symbols(&it))
            }
            "textDocument/prepareRename" => {
                reply::<lsp::PrepareRenameRequest>(request, |it| edits::prepare_rename(self, &it))
            }
            "textDocument/rename" => {
                reply::<lsp::RenameRequest>(request, |it| edits::rename(self, &it))
            }
            "textDocument/codeAction" => {
                reply::<lsp::CodeActionRequest>(request, |it| edits::code_actions(self, &it))
            }
            "textDocument/codeLens" => {
                reply::<lsp::CodeLensRequest>(request, |it| lenses::code_lenses(self, &it))
            }
            "textDocument/documentLink" => {
                reply::<lsp::DocumentLinkRequest>(request, |it| self.links(&it))
            }
            "textDocument/semanticTokens/full" => {
                reply::<lsp::SemanticTokensRequest>(request, |it| self.tokens(&it))
            }
            "textDocument/diagnostic" => {
                reply::<lsp::DocumentDiagnosticRequest>(request, |it| self.findings(&it))
            }
            method => {
                let message = format!("there is no method `{method}`");
                Err(Refusal::Failed(ErrorCode::MethodNotFound, message))
            }
        }
    }

    fn complete(&self, params: &lsp::CompletionParams) -> Reply<Option<lsp::CompletionResponse>> {
        let place = &params.text_document_position_params;
        let view = self.view(&place.text_document.uri)?;
        let at = view.document.offset(place.position);
        let found = view.all(|analysis| analysis.completions(at));
        let items = found.iter().enumerate().map(|(index, completion)| {
            convert::completion(view.document, &self.client, index, completion)
        });
        Ok(Some(lsp::CompletionResponse::CompletionItemList(items.collect())))
    }

    fn hover(&self, params: &lsp::HoverParams) -> Reply<Option<lsp::Hover>> {
        let place = &params.text_document_position_params;
        let view = self.view(&place.text_document.uri)?;
        let at = view.document.offset(place.position);
        let hover = view.first(|analysis| analysis.hover(at));
        Ok(hover.map(|hover| convert::hover(view.document, &self.client, &hover)))
    }

    /// The declaration of a name, or the file of the composition that is called.
    fn definition(&self, params: &lsp::DefinitionParams) -> Reply<Option<lsp::DefinitionResponse>> {
        let place = &params.text_document_position_params;
        let view = self.view(&place.text_document.uri)?;
        let at = view.document.offset(place.position);
        let here = view.first(|analysis| analysis.definition(at));
        let here = here.map(|span| convert::location(view.document, view.document.range(span)));
        let elsewhere = || {
            let links = view.all(Analysis::links);
            let touches = |span: Span| span.start <= at && at <= span.end;
            links.iter().filter(|link| touches(link.span)).find_map(|link| {
                Some(lsp::Location { uri: target(&link.target)?, range: lsp::Range::default() })
            })
        };
        let location = here.or_else(elsewhere);
        Ok(location.map(|it| lsp::DefinitionResponse::Definition(lsp::Definition::Location(it))))
    }

    fn references(&self, params: &lsp::ReferenceParams) -> Reply<Option<Vec<lsp::Location>>> {
        let place = &params.text_document_position_params;
        let view = self.view(&place.text_document.uri)?;
        let at = view.document.offset(place.position);
        let mut spans = view.first(|analysis| {
            Some(analysis.references(at)).filter(|references| !references.is_empty())
        });
        if !params.context.include_declaration {
            let declaration = view.first(|analysis| analysis.definition(at));
            spans.iter_mut().for_each(|spans| spans.retain(|span| Some(*span) != declaration));
        }
        let spans = spans.into_iter().flatten().map(|span| view.document.range(span));
        Ok(Some(spans.map(|range| convert::location(view.document, range)).collect()))
    }

    fn symbols(
        &self,
        params: &lsp::DocumentSymbolParams,
    ) -> Reply<Option<lsp::DocumentSymbolResponse>> {
        let view = self.view(&params.text_document.uri)?;
        let outline = view.all(Analysis::outline);
        let document = view.document;
        Ok(Some(if self.client.has_nested_symbols {
            let symbols = outline.iter().map(|item| convert::symbol(document, item)).collect();
            lsp::DocumentSymbolResponse::DocumentSymbolList(symbols)
        } else {
            let symbols = convert::flat_symbols(document, &outline, None);
            lsp::DocumentSymbolResponse::SymbolInformationList(symbols)
        }))
    }

    fn links(&self, params: &lsp::DocumentLinkParams) -> Reply<Option<Vec<lsp::DocumentLink>>> {
        let view = self.view(&params.text_document.uri)?;
        let links = view.all(Analysis::links).into_iter().filter_map(|link| {
            let target = target(&link.target)?;
            let range = view.document.range(link.span);
            Some(lsp::DocumentLink { range, target: Some(target), tooltip: None, data: None })
        });
        Ok(Some(links.collect()))
    }

    fn tokens(&self, params: &lsp::SemanticTokensParams) -> Reply<Option<lsp::SemanticTokens>> {
        let view = self.view(&params.text_document.uri)?;
        let mut tokens = view.all(Analysis::tokens);
        tokens.sort_by_key(|token| token.span);
        let data = convert::tokens(view.document, &tokens);
        Ok(Some(lsp::SemanticTokens { result_id: None, data }))
    }

    fn findings(
        &self,
        params: &lsp::DocumentDiagnosticParams,
    ) -> Reply<lsp::DocumentDiagnosticReport> {
        let view = match self.view(&params.text_document.uri) {
            Ok(view) => Some(view),
            // This request has no empty answer but this one.
            Err(Refusal::NotOpen) => None,
            Err(refusal) => return Err(refusal),
        };
        let items = view.iter().flat_map(|DocumentView { document, analysed }| {
            analysed.findings.iter().map(|it| convert::finding(document, &self.client, it))
        });
        let report = lsp::FullDocumentDiagnosticReport { result_id: None, items: items.collect() };
        Ok(lsp::DocumentDiagnosticReport::RelatedFullDocumentDiagnosticReport(
            lsp::RelatedFullDocumentDiagnosticReport {
                related_documents: None,
                full_document_diagnostic_report: report,
            },
        ))
    }
}

/// Reads the parameters of a request, and writes its answer as JSON.
fn reply<R: lsp::Request>(
    request: &Request,
    answer: impl FnOnce(R::Params) -> Reply<R::Result>,
) -> Reply<Value> {
    let params = R::Params::deserialize(&request.params)
        .map_err(|error| Refusal::Failed(ErrorCode::InvalidParams, error.to_string()))?;
    serde_json::to_value(answer(params)?)
        .map_err(|error| Refusal::Failed(ErrorCode::InternalError, error.to_string()))
}

/// The address of a link. The pages about codes are in the program, not at an address.
fn target(target: &LinkTarget) -> Option<lsp::Uri> {
    match target {
        LinkTarget::Composition { source } => {
            let path = std::path::Path::new(&**source);
            path.is_absolute().then(|| uri::of_path(path))
        }
        LinkTarget::Url(url) => Some(lsp::Uri(url.to_string())),
        LinkTarget::ErrorPage { .. } => None,
    }
}
