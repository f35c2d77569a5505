//! The session with a client: its state, and what each message means to it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use gen_lsp_types as lsp;
use gen_lsp_types::Notification as _;
use gen_lsp_types::Request as _;
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::answers::{DocumentView, Refusal};
use super::client::{Client, roots};
use super::documents::{DocumentKind, EditorDocument};
use super::transport::Outbox;
use super::workspaces::Workspaces;
use super::{Input, SessionEnd, convert, parent, uri};
use crate::app::AppOptions;

/// Files whose changes matter: compositions, tests and configurations.
const WATCHED_FILES: &str = "**/*.{yaml,yml,json}";

/// The most requests that wait for the tools of a folder.
const DEFERRED_MAX: usize = 256;

/// How far a session has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before `initialize`.
    New,
    Running,
    /// After `shutdown`.
    ShutDown,
}

/// An open document, and the folder whose tools it uses.
struct OpenDocument {
    document: EditorDocument,
    folder: PathBuf,
    /// The version and the snapshot whose findings were published.
    published: Option<(i32, u64)>,
}

/// The session with a client.
pub(super) struct LspSession {
    phase: Phase,
    pub(super) client: Client,
    outbox: Outbox,
    inputs: Sender<Input>,
    workspaces: Workspaces,
    documents: BTreeMap<String, OpenDocument>,
    /// Requests that came before the tools of their folder were known.
    deferred: Vec<Request>,
    /// The id of the next request to the client.
    next_id: i32,
}

impl LspSession {
    pub(super) fn new(options: AppOptions, outbox: Outbox, inputs: Sender<Input>) -> LspSession {
        LspSession {
            phase: Phase::New,
            client: Client::of(&lsp::InitializeParams::default()),
            outbox,
            inputs: inputs.clone(),
            workspaces: Workspaces::new(options, inputs),
            documents: BTreeMap::new(),
            deferred: Vec::new(),
            next_id: 0,
        }
    }

    /// Ends what runs in the background.
    pub(super) fn leave(self) {
        self.workspaces.leave();
    }

    /// Adds an input behind those that wait. A cancelled request is answered and forgotten.
    pub(super) fn queue(&mut self, queue: &mut VecDeque<Input>, input: Input) {
        let cancelled = match &input {
            Input::Message(Message::Notification(it)) if it.method == "$/cancelRequest" => it
                .params
                .get("id")
                .and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok()),
            _ => None,
        };
        let Some(id) = cancelled else { return queue.push_back(input) };
        let is_it = |request: &Request| request.id == id;
        let waiting = queue
            .iter()
            .position(|it| matches!(it, Input::Message(Message::Request(it)) if is_it(it)));
        let deferred = self.deferred.iter().position(is_it);
        match (waiting, deferred) {
            (Some(at), _) => drop(queue.remove(at)),
            (None, Some(at)) => drop(self.deferred.remove(at)),
            // It is answered already.
            (None, None) => return,
        }
        let code = ErrorCode::RequestCanceled as i32;
        self.respond(Response::new_err(id, code, "cancelled by the client".to_owned()));
    }

    /// Handles one input. Returns how the session ends, if it ends.
    pub(super) fn handle(&mut self, input: Input) -> Option<SessionEnd> {
        match input {
            Input::Message(Message::Request(request)) => self.request(request),
            Input::Message(Message::Notification(it)) if it.method == "exit" => {
                return Some(self.end());
            }
            Input::Message(Message::Notification(it)) => self.notification(it),
            // Nothing that is asked of the client needs its answer.
            Input::Message(Message::Response(_)) => {}
            Input::Malformed(malformed) => self.outbox.refuse(&malformed),
            Input::Tools(tools) => {
                if let Some(note) = self.workspaces.update(tools) {
                    self.show(lsp::MessageType::Warning, &note);
                }
                self.tools_changed();
            }
            Input::Closed | Input::ParentGone => return Some(self.end()),
        }
        None
    }

    fn end(&self) -> SessionEnd {
        if self.phase == Phase::ShutDown { SessionEnd::Orderly } else { SessionEnd::Abrupt }
    }

    fn request(&mut self, request: Request) {
        let refused = match (self.phase, request.method.as_str()) {
            (Phase::New, "initialize") => return self.initialize(request),
            (Phase::New, _) => (ErrorCode::ServerNotInitialized, "`initialize` comes first"),
            (Phase::Running, "initialize") => {
                (ErrorCode::InvalidRequest, "the session is initialized already")
            }
            (Phase::Running, "shutdown") => {
                self.phase = Phase::ShutDown;
                return self.respond(Response::new_ok(request.id, Value::Null));
            }
            (Phase::Running, _) => return self.answer(request),
            (Phase::ShutDown, _) => (ErrorCode::InvalidRequest, "the session is shut down"),
        };
        self.respond(Response::new_err(request.id, refused.0 as i32, refused.1.to_owned()));
    }

    fn initialize(&mut self, request: Request) {
        let params = match lsp::InitializeParams::deserialize(&request.params) {
            Ok(params) => params,
            Err(error) => {
                let code = ErrorCode::InvalidParams as i32;
                return self.respond(Response::new_err(request.id, code, error.to_string()));
            }
        };
        self.client = Client::of(&params);
        if let Some(process) = params.process_id {
            parent::watch(process, self.inputs.clone());
        }
        let result = lsp::InitializeResult {
            capabilities: self.client.offered(),
            server_info: Some(lsp::ServerInfo {
                name: "segue".to_owned(),
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            }),
        };
        self.respond(Response::new_ok(request.id, result));
        self.phase = Phase::Running;
        roots(&params).into_iter().for_each(|root| self.workspaces.add_root(root));
    }

    /// Answers a request, or keeps it until the tools of its document's folder are known.
    fn answer(&mut self, request: Request) {
        let outcome = self.answer_of(&request);
        let result = match outcome {
            Ok(result) => Ok(result),
            Err(Refusal::NoToolsYet) if self.deferred.len() < DEFERRED_MAX => {
                return self.deferred.push(request);
            }
            Err(Refusal::NoToolsYet) => Err((
                ErrorCode::RequestFailed,
                "the tools of the folder are not known yet".to_owned(),
            )),
            Err(Refusal::NotOpen) => Ok(Value::Null),
            Err(Refusal::Failed(code, message)) => Err((code, message)),
        };
        let id = request.id;
        self.respond(match result {
            Ok(result) => Response::new_ok(id, result),
            Err((code, message)) => Response::new_err(id, code as i32, message),
        });
    }

    pub(super) fn view(&self, uri: &lsp::Uri) -> Result<DocumentView<'_>, Refusal> {
        let open = self.documents.get(&uri.0).ok_or(Refusal::NotOpen)?;
        let (snapshot, tools) = self.workspaces.tools(&open.folder).ok_or(Refusal::NoToolsYet)?;
        let analysed = open.document.analysed(snapshot, tools);
        Ok(DocumentView { document: &open.document, analysed })
    }

    fn notification(&mut self, notification: Notification) {
        if self.phase != Phase::Running {
            return;
        }
        let Notification { method, params } = notification;
        let outcome = match method.as_str() {
            "initialized" => {
                self.watch_files();
                Ok(())
            }
            "textDocument/didOpen" => parse(params).map(|it| self.opened(it)),
            "textDocument/didChange" => parse(params).map(|it| self.changed(it)),
            "textDocument/didClose" => parse(params).map(|it| self.closed(&it)),
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => {
                self.files_changed();
                Ok(())
            }
            "workspace/didChangeWorkspaceFolders" => {
                parse(params).map(|it| self.folders_changed(it))
            }
            // Others are not for this server.
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            tracing::warn!("`{method}` is ignored: {error}");
        }
    }

    fn opened(&mut self, params: lsp::DidOpenTextDocumentParams) {
        let key = params.text_document.uri.0.clone();
        let document = EditorDocument::open(params.text_document, self.client.encoding);
        let folder = self.workspaces.folder_of(document.path.as_deref());
        self.documents.insert(key, OpenDocument { document, folder, published: None });
    }

    fn changed(&mut self, params: lsp::DidChangeTextDocumentParams) {
        let lsp::DidChangeTextDocumentParams { text_document, content_changes } = params;
        let uri = &text_document.text_document_identifier.uri.0;
        if let Some(open) = self.documents.get_mut(uri) {
            open.document.change(text_document.version, content_changes, self.client.encoding);
        }
    }

    fn closed(&mut self, params: &lsp::DidCloseTextDocumentParams) {
        let uri = &params.text_document.uri;
        if self.documents.remove(&uri.0).is_some() && !self.client.pulls_findings {
            self.publish(uri.clone(), None, Vec::new());
        }
    }

    /// Files have changed on disk: perhaps a configuration is new or gone.
    fn files_changed(&mut self) {
        let mut has_forgotten = false;
        for open in self.documents.values_mut() {
            if open.document.forget_tests() {
                (open.published, has_forgotten) = (None, true);
            }
            let folder = self.workspaces.folder_of(open.document.path.as_deref());
            if folder != open.folder {
                (open.folder, open.published) = (folder, None);
            }
        }
        self.workspaces.wake();
        if has_forgotten && self.client.pulls_findings {
            self.ask(lsp::DiagnosticRefreshRequest::METHOD.to_string(), &Value::Null);
        }
    }

    fn folders_changed(&mut self, params: lsp::DidChangeWorkspaceFoldersParams) {
        let lsp::WorkspaceFoldersChangeEvent { added, removed } = params.event;
        for folder in removed.iter().filter_map(|folder| uri::path(&folder.uri)) {
            self.workspaces.remove_root(&folder);
        }
        for folder in added.iter().filter_map(|folder| uri::path(&folder.uri)) {
            self.workspaces.add_root(folder);
        }
        self.files_changed();
    }

    /// There are new tools: waiting requests are answered, and what was shown is shown again.
    fn tools_changed(&mut self) {
        for request in std::mem::take(&mut self.deferred) {
            self.answer(request);
        }
        let refreshes = [
            (self.client.pulls_findings, lsp::DiagnosticRefreshRequest::METHOD.to_string()),
            (
                self.client.refreshes_lenses && !self.client.commands.is_empty(),
                lsp::CodeLensRefreshRequest::METHOD.to_string(),
            ),
            (self.client.refreshes_tokens, lsp::SemanticTokensRefreshRequest::METHOD.to_string()),
        ];
        for (is_wanted, method) in refreshes {
            if is_wanted {
                self.ask(method, &Value::Null);
            }
        }
    }

    /// Publishes the findings about texts that have changed, or whose tools have.
    pub(super) fn publish_changed(&mut self) {
        if self.client.pulls_findings {
            return;
        }
        let mut findings = Vec::new();
        for (key, open) in &mut self.documents {
            let Some((snapshot, tools)) = self.workspaces.tools(&open.folder) else { continue };
            let now = (open.document.version, snapshot);
            if open.published == Some(now) {
                continue;
            }
            let analysed = open.document.analysed(snapshot, tools);
            // About other files it says nothing, not even that there is nothing to say.
            if analysed.kind != DocumentKind::Other || open.published.is_some() {
                findings.push((key.clone(), analysed));
            }
            open.published = Some(now);
        }
        for (key, analysed) in findings {
            let Some(OpenDocument { document, .. }) = self.documents.get(&key) else { continue };
            let found = analysed.findings.iter();
            let found = found.map(|it| convert::finding(document, &self.client, it)).collect();
            self.publish(document.uri.clone(), Some(document.version), found);
        }
    }

    fn publish(&self, uri: lsp::Uri, version: Option<i32>, diagnostics: Vec<lsp::Diagnostic>) {
        let params = lsp::PublishDiagnosticsParams { uri, version, diagnostics };
        self.notify(lsp::PublishDiagnosticsNotification::METHOD.to_string(), params);
    }

    fn show(&self, kind: lsp::MessageType, message: &str) {
        let params = lsp::ShowMessageParams { kind, message: format!("Segue: {message}") };
        self.notify(lsp::ShowMessageNotification::METHOD.to_string(), params);
    }

    fn watch_files(&mut self) {
        if self.client.watches_files {
            let watchers = json!([{ "globPattern": WATCHED_FILES }]);
            let registration = json!({
                "id": "segue-files",
                "method": "workspace/didChangeWatchedFiles",
                "registerOptions": { "watchers": watchers },
            });
            let method = lsp::RegistrationRequest::METHOD.to_string();
            self.ask(method, &json!({ "registrations": [registration] }));
        }
    }

    fn notify(&self, method: String, params: impl serde::Serialize) {
        self.outbox.send(&Notification::new(method, params).into());
    }

    fn ask(&mut self, method: String, params: &Value) {
        let id = RequestId::from(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.outbox.send(&Request::new(id, method, params).into());
    }

    fn respond(&self, response: Response) {
        self.outbox.send(&response.into());
    }
}

fn parse<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(params)
}
