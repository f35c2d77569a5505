//! Answers that change the text: renames, and fixes of findings.

use std::collections::HashMap;

use gen_lsp_types as lsp;
use lsp_server::ErrorCode;
use segue_core::language::TextEdit;

use super::answers::{DocumentView, Refusal, Reply};
use super::convert;
use super::session::LspSession;

pub(super) fn prepare_rename(
    session: &LspSession,
    params: &lsp::PrepareRenameParams,
) -> Reply<Option<lsp::PrepareRenameResult>> {
    let place = &params.text_document_position_params;
    let view = session.view(&place.text_document.uri)?;
    let at = view.document.offset(place.position);
    let span = view.analysed.analyses.iter().find_map(|analysis| analysis.rename_span(at));
    Ok(span.map(|span| {
        let placeholder = view.analysed.source.slice(span).to_owned();
        let range = view.document.range(span);
        lsp::PrepareRenameResult::PrepareRenamePlaceholder(lsp::PrepareRenamePlaceholder {
            range,
            placeholder,
        })
    }))
}

pub(super) fn rename(
    session: &LspSession,
    params: &lsp::RenameParams,
) -> Reply<Option<lsp::WorkspaceEdit>> {
    let place = &params.text_document_position_params;
    let view = session.view(&place.text_document.uri)?;
    let at = view.document.offset(place.position);
    let analyses = &view.analysed.analyses;
    let Some(analysis) = analyses.iter().find(|analysis| analysis.rename_span(at).is_some()) else {
        let message = "only steps, outputs and properties of the input can be renamed".to_owned();
        return Err(Refusal::Failed(ErrorCode::RequestFailed, message));
    };
    match analysis.rename(at, &params.new_name) {
        Ok(edits) => Ok(Some(workspace_edit(session, &view, &edits))),
        Err(error) => {
            let help = error.help.map(|help| format!(": {help}")).unwrap_or_default();
            let message = format!("{}{help}", error.message);
            Err(Refusal::Failed(ErrorCode::RequestFailed, message))
        }
    }
}

pub(super) fn code_actions(
    session: &LspSession,
    params: &lsp::CodeActionParams,
) -> Reply<Option<Vec<lsp::CodeActionResponse>>> {
    let view = session.view(&params.text_document.uri)?;
    let only = params.context.only.as_deref();
    let is_wanted = only.is_none_or(|only| only.contains(&lsp::CodeActionKind::QuickFix));
    if !session.client.has_code_actions || !is_wanted {
        return Ok(Some(Vec::new()));
    }
    let span = view.document.span(params.range);
    let actions = view.all(|analysis| analysis.actions(span)).into_iter().filter_map(|action| {
        // What is not shown needs no fix: a tool of a server that is down, for one.
        let mut found = view.analysed.findings.iter();
        let found = found.find(|it| it.span == action.finding && it.code == action.code)?;
        let finding = convert::finding(view.document, &session.client, found);
        Some(lsp::CodeActionResponse::CodeAction(lsp::CodeAction {
            title: action.title,
            kind: Some(lsp::CodeActionKind::QuickFix),
            diagnostics: Some(vec![finding]),
            is_preferred: Some(action.preferred),
            edit: Some(workspace_edit(session, &view, &action.edits)),
            ..lsp::CodeAction::default()
        }))
    });
    Ok(Some(actions.collect()))
}

/// Edits of one document. With its version, so that a client refuses them for another text.
fn workspace_edit(
    session: &LspSession,
    view: &DocumentView<'_>,
    edits: &[TextEdit],
) -> lsp::WorkspaceEdit {
    let uri = view.document.uri.clone();
    let edits = edits.iter().map(|edit| convert::text_edit(view.document, edit));
    if !session.client.has_versioned_edits {
        let changes = HashMap::from([(uri, edits.collect())]);
        return lsp::WorkspaceEdit { changes: Some(changes), ..lsp::WorkspaceEdit::default() };
    }
    let change = lsp::DocumentChange::TextDocumentEdit(lsp::TextDocumentEdit {
        text_document: lsp::OptionalVersionedTextDocumentIdentifier {
            version: Some(view.document.version),
            text_document_identifier: lsp::TextDocumentIdentifier { uri },
        },
        edits: edits.map(lsp::Edit::TextEdit).collect(),
    });
    lsp::WorkspaceEdit { document_changes: Some(vec![change]), ..lsp::WorkspaceEdit::default() }
}
