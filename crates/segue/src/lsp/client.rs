//! What the client can do, from its `initialize` request, and what this server offers it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gen_lsp_types::{
    ChangeNotifications, ClientCapabilities, CodeActionKind, CodeActionOptions, CodeActionProvider,
    CodeLensOptions, CompletionOptions, DefinitionProvider, DiagnosticOptions, DiagnosticProvider,
    DocumentLinkOptions, DocumentSymbolProvider, Full, HoverProvider, InitializeParams, MarkupKind,
    ReferencesProvider, RenameOptions, RenameProvider, RootPath, Save, SemanticTokensLegend,
    SemanticTokensOptions, SemanticTokensProvider, ServerCapabilities, TextDocumentSync,
    TextDocumentSyncKind, TextDocumentSyncOptions, WorkspaceFolders,
    WorkspaceFoldersServerCapabilities, WorkspaceOptions,
};

use super::convert::TOKEN_TYPES;
use super::positions::Encoding;
use super::uri;

/// Characters that begin something that can be completed.
const TRIGGERS: &[&str] = &[".", ":", " ", "{", "|", "[", "\"", "'", "/"];

/// What matters of a client.
pub(super) struct Client {
    pub(super) encoding: Encoding,
    /// It asks for findings, so they are not published.
    pub(super) pulls_findings: bool,
    pub(super) refreshes_lenses: bool,
    pub(super) refreshes_tokens: bool,
    /// It can be asked to watch files.
    pub(super) watches_files: bool,
    pub(super) has_versioned_edits: bool,
    pub(super) has_related: bool,
    pub(super) has_nested_symbols: bool,
    pub(super) has_code_actions: bool,
    pub(super) has_markdown_hover: bool,
    pub(super) has_markdown_completion: bool,
    /// The commands of code lenses that its extension runs.
    pub(super) commands: BTreeSet<String>,
}

impl Client {
    pub(super) fn of(params: &InitializeParams) -> Client {
        let ClientCapabilities { workspace, text_document, general, .. } = &params.capabilities;
        let (workspace, text) =
            (workspace.clone().unwrap_or_default(), text_document.clone().unwrap_or_default());
        let encodings = general.as_ref().and_then(|general| general.position_encodings.as_deref());
        let refreshes_findings =
            workspace.diagnostics.and_then(|it| it.refresh_support).unwrap_or_default();
        let is_markdown = |formats: Option<Vec<MarkupKind>>| {
            formats.is_some_and(|formats| formats.contains(&MarkupKind::Markdown))
        };
        let completion = text.completion.and_then(|it| it.completion_item);
        let symbols = text.document_symbol;
        Client {
            encoding: Encoding::agreed(encodings),
            // Without a refresh, findings would stay as they were before the tools were known.
            pulls_findings: text.diagnostic.is_some() && refreshes_findings,
            refreshes_lenses: workspace
                .code_lens
                .and_then(|it| it.refresh_support)
                .unwrap_or_default(),
            refreshes_tokens: workspace
                .semantic_tokens
                .and_then(|it| it.refresh_support)
                .unwrap_or_default(),
            watches_files: workspace
                .did_change_watched_files
                .and_then(|it| it.dynamic_registration)
                .unwrap_or_default(),
            has_versioned_edits: workspace
                .workspace_edit
                .and_then(|it| it.document_changes)
                .unwrap_or_default(),
            has_related: text
                .publish_diagnostics
                .and_then(|it| it.diagnostics_capabilities.related_information)
                .unwrap_or_default(),
            has_nested_symbols: symbols
                .and_then(|it| it.hierarchical_document_symbol_support)
                .unwrap_or_default(),
            has_code_actions: text
                .code_action
                .is_some_and(|it| it.code_action_literal_support.is_some()),
            has_markdown_hover: is_markdown(text.hover.and_then(|it| it.content_format)),
            has_markdown_completion: is_markdown(completion.and_then(|it| it.documentation_format)),
            commands: commands(params),
        }
    }

    /// What this server offers the client.
    pub(super) fn offered(&self) -> ServerCapabilities {
        ServerCapabilities {
            position_encoding: Some(self.encoding.kind()),
            text_document_sync: Some(TextDocumentSync::Options(TextDocumentSyncOptions {
                open_close: Some(true),
                change: Some(TextDocumentSyncKind::Incremental),
                save: Some(Save::Bool(true)),
                ..TextDocumentSyncOptions::default()
            })),
            completion_provider: Some(CompletionOptions {
                trigger_characters: Some(TRIGGERS.iter().map(|it| (*it).to_owned()).collect()),
                ..CompletionOptions::default()
            }),
            hover_provider: Some(HoverProvider::Bool(true)),
            definition_provider: Some(DefinitionProvider::Bool(true)),
            references_provider: Some(ReferencesProvider::Bool(true)),
            document_symbol_provider: Some(DocumentSymbolProvider::Bool(true)),
            code_action_provider: Some(CodeActionProvider::CodeActionOptions(CodeActionOptions {
                code_action_kinds: Some(vec![CodeActionKind::QuickFix]),
                ..CodeActionOptions::default()
            })),
            code_lens_provider: (!self.commands.is_empty()).then(CodeLensOptions::default),
            document_link_provider: Some(DocumentLinkOptions::default()),
            rename_provider: Some(RenameProvider::RenameOptions(RenameOptions {
                prepare_provider: Some(true),
                ..RenameOptions::default()
            })),
            semantic_tokens_provider: Some(SemanticTokensProvider::SemanticTokensOptions(
                SemanticTokensOptions {
                    legend: SemanticTokensLegend {
                        token_types: TOKEN_TYPES.iter().map(|it| (*it).to_owned()).collect(),
                        token_modifiers: Vec::new(),
                    },
                    full: Some(Full::Bool(true)),
                    ..SemanticTokensOptions::default()
                },
            )),
            diagnostic_provider: self.pulls_findings.then(|| {
                DiagnosticProvider::DiagnosticOptions(DiagnosticOptions {
                    identifier: Some("segue".to_owned()),
                    ..DiagnosticOptions::default()
                })
            }),
            workspace: Some(WorkspaceOptions {
                workspace_folders: Some(WorkspaceFoldersServerCapabilities {
                    supported: Some(true),
                    change_notifications: Some(ChangeNotifications::Bool(true)),
                }),
                ..WorkspaceOptions::default()
            }),
            ..ServerCapabilities::default()
        }
    }
}

/// The commands that the extension names in `initializationOptions.commands`. Other clients would show code
/// lenses that do nothing.
fn commands(params: &InitializeParams) -> BTreeSet<String> {
    let options = params.initialization_options.as_ref();
    let names = options.and_then(|options| options.get("commands")?.as_array());
    let names = names.into_iter().flatten().filter_map(|name| name.as_str());
    names.map(str::to_owned).collect()
}

/// The folders that the client opened.
#[expect(deprecated, reason = "older clients have only these")]
pub(super) fn roots(params: &InitializeParams) -> Vec<PathBuf> {
    let folders = &params.workspace_folders_initialize_params.workspace_folders;
    if let Some(WorkspaceFolders::WorkspaceFolderList(folders)) = folders {
        return folders.iter().filter_map(|folder| uri::path(&folder.uri)).collect();
    }
    let root = params.root_uri.as_ref().and_then(uri::path);
    let older = || match &params.root_path {
        Some(RootPath::String(path)) => Some(PathBuf::from(path)),
        _ => None,
    };
    root.or_else(older).into_iter().collect()
}
