//! A connection to a server: its protocol era, its tools, one call.

use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as BlockingMutex;
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ErrorData, FormElicitationCapability, Implementation, InputResponses, ListToolsRequest,
    PaginatedRequestParams, ProtocolVersion, Request, RequestId, RequestMetaObject,
    SubscriptionFilter, TASKS_EXTENSION_ID,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions,
    RequestContext, RequestHandle, RoleClient, RunningService,
};
use rmcp::transport::Transport;
use segue_core::limits::Limits;
use segue_core::value::Value;
use tokio::sync::{Mutex, RwLock};
use tokio::time::Instant;

use super::definition::Listing;
use super::error_text::{
    failure, is_lost, is_unauthorized, reason, start_failure, with_final_output, with_output,
};
use super::exact_numbers::mark_numbers;
use super::http::HttpPoster;
use super::pages::Pages;
use super::request_line::{self, KEY, TRACEPARENT};
use super::router::{ElicitationForm, MessageRouter, PendingRequest, RpcAnswer};
use super::server_record::ProtocolEra;
use super::stdio::{Input, ProcessOutput, StdioTransport};
use super::{ServerConfig, ServerTransport, http, login};
use crate::tools::CallChannel;
use crate::tools::redact::Secrets;

/// How long a caller that stopped waiting tries to send its cancellation.
pub(super) const CANCEL_MAX: Duration = Duration::from_millis(200);

/// How long the library may take to release a lost server.
const CLOSE_MAX: Duration = Duration::from_secs(4);

/// Segue as a client of a server.
struct Client {
    server: Arc<str>,
    router: Arc<MessageRouter>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        // No sampling and no roots. Servers may ask people to fill in forms, and calls may be
        // tasks.
        let us = Implementation::new("segue", env!("CARGO_PKG_VERSION"));
        let mut offered = ClientCapabilities::default();
        let forms = FormElicitationCapability::new().with_schema_validation(true);
        offered.elicitation = Some(ElicitationCapability::new().with_form(forms));
        let tasks = (TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new());
        offered.extensions = Some([tasks].into_iter().collect());
        // The version requested by `initialize`, which only the legacy era has.
        ClientConfig::new(offered, us).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let declined = ElicitResult::new(ElicitationAction::Decline);
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request
        else {
            return Ok(declined);
        };
        let schema = serde_json::to_value(requested_schema).unwrap_or_default().into();
        let Some(call) = self.router.asking_call() else { return Ok(declined) };
        let Some(data) = call.ask_person(&self.server, &ElicitationForm { message, schema }).await
        else {
            return Ok(declined);
        };
        self.router.take_declined();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(mark_numbers(&data)))
    }
}

/// How calls reach a server, bypassing the library.
enum CallTransport {
    /// Written to its stdin.
    Pipes(Input),
    /// Posted over HTTP.
    Http(HttpPoster),
}

/// A connected server.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Client>>>,
    router: Arc<MessageRouter>,
    traces: Arc<ProcessOutput>,
    pub(super) era: ProtocolEra,
    /// How calls reach the server.
    transport: CallTransport,
    listing: BlockingMutex<Arc<Listing>>,
    /// Redacted from every definition.
    secrets: Secrets,
    /// Held while the tools are listed again.
    listing_again: Mutex<()>,
    /// Read-locked while a cancellation is sent: the connection is not closed before.
    cancelling: Arc<RwLock<()>>,
}

/// Why a connection failed.
pub(super) struct ConnectError {
    /// The reason, for people.
    pub(super) why: String,
    /// The server turned out to be of the modern era, and slow.
    pub(super) is_modern: bool,
    /// The program exited at the question for its era, before `initialize`.
    pub(super) is_startled: bool,
}

impl From<String> for ConnectError {
    fn from(why: String) -> ConnectError {
        ConnectError { why, is_modern: false, is_startled: false }
    }
}

/// Why a request has no answer.
pub(super) enum RequestError {
    /// It was not sent.
    Unsent(String),
    /// It was sent, and its outcome is unknown.
    NoAnswer(String),
    /// It timed out, and the server was told to cancel it.
    TimedOut(Duration),
}

/// The timeouts of a request.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// Without progress.
    pub(super) idle: Duration,
    /// In total.
    pub(super) total: Duration,
}

/// The parameters of one call.
pub(super) struct CallParams<'a> {
    pub(super) tool: &'a str,
    pub(super) args: Value,
    /// Whether some arguments are also sent as headers, over HTTP.
    pub(super) has_headers: bool,
    pub(super) key: &'a str,
    pub(super) traceparent: Option<&'a str>,
    pub(super) asker: Option<CallChannel>,
    /// A person's answers to the server's earlier questions, and the state that it wants back.
    pub(super) answers: Option<(InputResponses, Option<String>)>,
    /// The lifetime in milliseconds of the task that the call should become, if any.
    pub(super) task_ms: Option<u64>,
}

impl Connection {
    /// Connects and lists the tools, until a deadline. The error is a message for people.
    pub(super) async fn open(
        server: &ServerConfig,
        known: Option<ProtocolEra>,
        tokens: Option<&Path>,
        secrets: Secrets,
        limits: &Limits,
        until: Instant,
    ) -> Result<Connection, ConnectError> {
        let (router, traces) =
            (Arc::new(MessageRouter::default()), Arc::new(ProcessOutput::default()));
        let ends = (router.clone(), traces.clone());
        let opened = Box::pin(Connection::opened(server, known, tokens, secrets, limits, ends));
        tokio::time::timeout_at(until, opened).await.unwrap_or_else(|_| {
            let why = format!("it was not ready within {} ms", limits.mcp_start_ms);
            Err(with_output(&why, &traces, &router).into())
        })
    }

    async fn opened(
        server: &ServerConfig,
        known: Option<ProtocolEra>,
        tokens: Option<&Path>,
        secrets: Secrets,
        limits: &Limits,
        (router, traces): (Arc<MessageRouter>, Arc<ProcessOutput>),
    ) -> Result<Connection, ConnectError> {
        let bytes_max = limits.mcp_message_bytes_max;
        let us = Client { server: server.name.clone(), router: router.clone() };
        let (opened, way) = match &server.reach {
            ServerTransport::Stdio(config) => {
                let (router, traces) = (router.clone(), traces.clone());
                let pipes =
                    StdioTransport::start(config, router, traces, bytes_max, known.is_none())
                        .map_err(|error| start_failure(config, &error))?;
                let way = CallTransport::Pipes(pipes.input());
                (serve(us, pipes, known).await, way)
            }
            ServerTransport::Local(local) => {
                let (router, traces) = (router.clone(), traces.clone());
                let pipes = StdioTransport::open(local, router, traces, bytes_max, known.is_none());
                let way = CallTransport::Pipes(pipes.input());
                (serve(us, pipes, known).await, way)
            }
            ServerTransport::Http(config) => {
                let login = match tokens.filter(|_| !config.has_credentials()) {
                    None => None,
                    Some(file) => login::saved_login(file, &config.url).await?,
                };
                let (transport, post) =
                    http::transport(config, login, router.clone(), bytes_max).await?;
                (serve(us, transport, known).await, CallTransport::Http(post))
            }
        };
        let service = match opened {
            Ok(service) => service,
            Err(error) => {
                let why = with_final_output(
                    &format!("no handshake: {}", reason(&error)),
                    &traces,
                    &router,
                )
                .await;
                let why = if is_lost(&error) && traces.end().is_some() {
                    // The error of the pipe says less than the end of the process.
                    with_output("no handshake: it ended", &traces, &router)
                } else {
                    why
                };
                let why = if is_unauthorized(&error) {
                    format!("{why}; `segue login {}` logs in, if it has OAuth", server.name)
                } else {
                    why
                };
                let is_startled = matches!(server.reach, ServerTransport::Stdio(_))
                    && !router.is_initialized()
                    && matches!(
                        error,
                        ClientInitializeError::ConnectionClosed(_)
                            | ClientInitializeError::TransportError { .. }
                    );
                return Err(ConnectError { why, is_modern: router.is_late_modern(), is_startled });
            }
        };
        let peer = service.peer().clone();
        // Independent of the version in the answer: some servers only repeat the requested one.
        let legacy = router.is_initialized();
        let connection = Connection {
            peer,
            service: Mutex::new(Some(service)),
            router,
            traces,
            era: if legacy { ProtocolEra::Legacy } else { ProtocolEra::Modern },
            transport: way,
            listing: BlockingMutex::default(),
            secrets,
            listing_again: Mutex::default(),
            cancelling: Arc::default(),
        };
        match connection.list(server, limits).await {
            Ok(listing) => connection.set_listing(listing),
            Err(why) => {
                let why = with_final_output(&why, &connection.traces, &connection.router).await;
                connection.close().await;
                return Err(why.into());
            }
        }
        connection.subscribe();
        Ok(connection)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed() || self.router.is_over()
    }

    /// Whether the server announced a change of its tools that was not handled yet.
    pub(super) fn has_changed(&self) -> bool {
        self.router.has_changed()
    }

    /// The tools as they were last listed.
    pub(super) fn listing(&self) -> Arc<Listing> {
        self.listing.lock().clone()
    }

    fn set_listing(&self, listing: Listing) {
        *self.listing.lock() = Arc::new(listing);
    }

    /// The tools, listed again if the server announced a change. The flag says whether they were.
    pub(super) async fn fresh_listing(
        &self,
        server: &ServerConfig,
        limits: &Limits,
    ) -> Result<(Arc<Listing>, bool), String> {
        if !self.router.has_changed() && self.listing_again.try_lock().is_ok() {
            return Ok((self.listing(), false));
        }
        // Boxed because it is large and rare: every call carries the future.
        Box::pin(self.listed_again(server, limits)).await
    }

    async fn listed_again(
        &self,
        server: &ServerConfig,
        limits: &Limits,
    ) -> Result<(Arc<Listing>, bool), String> {
        let _turn = self.listing_again.lock().await;
        if !self.router.take_changed() {
            return Ok((self.listing(), false));
        }
        match self.list(server, limits).await {
            Ok(listing) => self.set_listing(listing),
            Err(why) => {
                self.router.mark_changed();
                return Err(why);
            }
        }
        Ok((self.listing(), true))
    }

    /// The last question that was declined, since the last call of this function.
    pub(super) fn take_declined(&self) -> Option<String> {
        self.router.take_declined()
    }

    /// Calls a tool once.
    pub(super) async fn call(
        &self,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Arc<PendingRequest>, RequestError> {
        let past = match &self.transport {
            CallTransport::Http(_) if calling.has_headers => None,
            way => self.call_direct(way, calling, patience).await?,
        };
        match past {
            Some(slot) => Ok(slot),
            None => Box::pin(self.call_with_library(calling, patience)).await,
        }
    }

    /// Calls a tool, bypassing the library. `None` when that is impossible and the server has not
    /// received it.
    async fn call_direct(
        &self,
        way: &CallTransport,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Option<Arc<PendingRequest>>, RequestError> {
        let slot = PendingRequest::own(calling.asker.clone());
        let Some(id) = self.router.register(&slot) else {
            let why =
                Box::pin(with_final_output("the connection was lost", &self.traces, &self.router))
                    .await;
            return Err(RequestError::Unsent(why));
        };
        let text = request_line::call(id, calling, self.router.client_meta());
        let asked = self.cancel_guard(RequestId::Number(id), &slot);
        let mut is_heard = true;
        match way {
            CallTransport::Pipes(input) => {
                let answered = pin!(async {
                    let written = input.write(text, Some(&slot)).await;
                    written.map_err(|error| error.to_string())?;
                    self.router.settled(&slot).await
                });
                self.wait(asked, answered, patience).await?;
            }
            CallTransport::Http(post) => {
                let mut answered = Box::pin(async {
                    tokio::select! {
                        biased;
                        heard = post.call(calling.tool, id, text, &slot) => is_heard = heard,
                        // The answer may come in another stream.
                        settled = self.router.settled(&slot) => settled?,
                    }
                    Ok(())
                });
                let waited = self.wait(asked, answered.as_mut(), patience).await;
                drop(answered);
                if is_heard {
                    waited?;
                } else {
                    self.router.remove(&RequestId::Number(id));
                }
            }
        }
        Ok(is_heard.then_some(slot))
    }

    /// Calls a tool through the library, which copies some arguments into headers.
    async fn call_with_library(
        &self,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Arc<PendingRequest>, RequestError> {
        let mut params = CallToolRequestParams::new(calling.tool.to_owned());
        if let serde_json::Value::Object(map) = serde_json::Value::from(&calling.args) {
            params = params.with_arguments(map);
        }
        if let Some((responses, state)) = calling.answers.clone() {
            params.input_responses = Some(responses);
            params.request_state = state;
        }
        let slot =
            PendingRequest::of_task(calling.args.clone(), calling.asker.clone(), calling.task_ms);
        let mut request = Request::new(params);
        request.extensions.insert(slot.clone());
        let mut meta = RequestMetaObject::new();
        meta.insert(KEY.to_owned(), calling.key.into());
        if let Some(traceparent) = calling.traceparent {
            meta.insert(TRACEPARENT.to_owned(), traceparent.into());
        }
        let request = ClientRequest::CallToolRequest(request);
        self.request(request, &slot, meta, patience).await?;
        Ok(slot)
    }

    /// Whether the server accepts calls as tasks, in the legacy era, where the caller decides.
    pub(super) fn takes_tasks(&self) -> bool {
        self.router.takes_tasks()
    }

    /// Tells the server to cancel a task.
    pub(super) async fn cancel_task(&self, cancellation: ClientRequest) {
        if let Ok(handle) =
            self.peer.send_request_with_option(cancellation, PeerRequestOptions::no_options()).await
        {
            let _ = handle.rx.await;
        }
    }

    /// The same for a caller that cannot await; the connection is not closed before.
    pub(super) fn cancel_task_later(
        self: &Arc<Connection>,
        runtime: &tokio::runtime::Handle,
        cancellation: ClientRequest,
    ) {
        let turn = self.cancelling.clone().try_read_owned();
        let connection = self.clone();
        runtime.spawn(async move {
            let _turn = turn;
            let cancelling = connection.cancel_task(cancellation);
            let _ = tokio::time::timeout(CANCEL_MAX, cancelling).await;
        });
    }

    /// Sends a request and waits for its answer, which the slot then holds.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        slot: &Arc<PendingRequest>,
        meta: RequestMetaObject,
        patience: Timeouts,
    ) -> Result<(), RequestError> {
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = self.peer.send_request_with_option(request, options).await;
        let RequestHandle { id, rx, .. } =
            handle.map_err(|error| RequestError::Unsent(failure(&error)))?;
        let answered = pin!(async {
            match rx.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(failure(&error)),
                Err(_) => Err("the connection was lost".to_owned()),
            }
        });
        self.wait(self.cancel_guard(id, slot), answered, patience).await
    }

    /// Waits until the library has released a lost server: only then is its exit status known.
    async fn close_lost(&self) {
        let until = Instant::now() + CLOSE_MAX;
        while self.router.is_over() && !self.peer.is_transport_closed() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The error with the end of the server's output.
    async fn with_process_output(&self, why: &str) -> String {
        self.close_lost().await;
        with_final_output(why, &self.traces, &self.router).await
    }

    fn cancel_guard(&self, id: RequestId, slot: &Arc<PendingRequest>) -> CancelGuard {
        let (peer, router) = (self.peer.clone(), self.router.clone());
        let cancelling = self.cancelling.clone();
        CancelGuard { id: Some(id), slot: slot.clone(), peer, router, cancelling }
    }

    /// Waits until a request is answered; its slot holds the answer.
    async fn wait(
        &self,
        mut asked: CancelGuard,
        mut answered: Pin<&mut impl Future<Output = Result<(), String>>>,
        patience: Timeouts,
    ) -> Result<(), RequestError> {
        let slot = asked.slot.clone();
        let begun = Instant::now();
        let (until, mut idle) = (begun + patience.total, begun + patience.idle);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut answered => break outcome,
                () = slot.progressed() => {
                    idle = Instant::now() + patience.idle;
                    slot.send_progress();
                }
                () = tokio::time::sleep_until(idle.min(until)) => {
                    if slot.is_asking() && Instant::now() < until {
                        idle = Instant::now() + patience.idle;
                        continue;
                    }
                    Box::pin(asked.cancel()).await;
                    let time = if until <= idle { patience.total } else { patience.idle };
                    return Err(if slot.was_sent() {
                        RequestError::TimedOut(time)
                    } else {
                        RequestError::Unsent(format!("it could not be sent within {} ms", time.as_millis()))
                    });
                }
            }
        };
        asked.id = None;
        match (slot.answer(), outcome) {
            (Some(RpcAnswer::Lost(why)), _) if slot.was_sent() => {
                Err(RequestError::NoAnswer(why.clone()))
            }
            (Some(RpcAnswer::Lost(why)), _) => Err(RequestError::Unsent(why.clone())),
            (Some(_), _) => Ok(()),
            (None, Ok(())) => Err(RequestError::NoAnswer("there is no answer".to_owned())),
            (None, Err(why)) => {
                let why = Box::pin(self.with_process_output(&why)).await;
                Err(if slot.was_sent() {
                    RequestError::NoAnswer(why)
                } else {
                    RequestError::Unsent(why)
                })
            }
        }
    }

    /// Lists every tool, page by page.
    async fn list(&self, server: &ServerConfig, limits: &Limits) -> Result<Listing, String> {
        let mut pages = Pages::default();
        let patience = {
            let time = Duration::from_millis(limits.mcp_start_ms);
            Timeouts { idle: time, total: time }
        };
        let mut cursor: Option<String> = None;
        loop {
            let slot = PendingRequest::new(None, None);
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let mut request = ListToolsRequest::with_param(params);
            request.extensions.insert(slot.clone());
            let request = ClientRequest::ListToolsRequest(request);
            let asked = self.request(request, &slot, RequestMetaObject::new(), patience).await;
            match (asked, slot.answer()) {
                (Ok(()), Some(RpcAnswer::Result(raw))) => {
                    cursor = pages.add(raw, limits)?;
                    if cursor.is_none() {
                        break;
                    }
                }
                // A server without tools need not implement the method.
                (Ok(()), Some(RpcAnswer::Error { code: -32601, .. })) => break,
                (Ok(()), Some(RpcAnswer::Error { message, .. })) => {
                    return Err(format!("it does not list its tools: {message}"));
                }
                (Ok(()), Some(RpcAnswer::TooLarge)) => {
                    let bytes_max = limits.mcp_message_bytes_max;
                    return Err(format!(
                        "its list of tools is over the limit of {bytes_max} bytes"
                    ));
                }
                (Ok(()), Some(RpcAnswer::Malformed(why))) => {
                    return Err(format!("its list of tools cannot be read: {why}"));
                }
                (Ok(()), Some(RpcAnswer::Lost(_)) | None) => {
                    return Err("it does not list its tools".to_owned());
                }
                (Err(RequestError::TimedOut(time)), _) => {
                    let time = time.as_millis();
                    return Err(format!("it did not list its tools within {time} ms"));
                }
                (Err(RequestError::Unsent(why) | RequestError::NoAnswer(why)), _) => {
                    return Err(format!("it does not list its tools: {why}"));
                }
            }
        }
        // Redacted first: what is shown, pinned and recorded of a tool must be the same.
        let tools = self.secrets.redact_all(pages.tools);
        let mut listing = Listing::read(&server.name, &server.identity, tools);
        listing.notes.append(&mut pages.notes);
        Ok(listing)
    }

    /// Servers of the modern era announce changes of their tools only to subscribers.
    fn subscribe(&self) {
        let capable = self.peer.peer_info().is_some_and(|info| {
            info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true))
        });
        if self.era == ProtocolEra::Legacy || !capable {
            return;
        }
        let peer = self.peer.clone();
        tokio::spawn(async move {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            // The router handles the notifications; this only keeps the stream open.
            if let Ok(mut changes) = peer.listen(filter).await {
                while let Ok(Some(_)) = changes.next().await {}
            }
        });
    }

    /// Ends the connection, and the process behind it.
    pub(super) async fn close(&self) {
        let _ = tokio::time::timeout(CANCEL_MAX, self.cancelling.write()).await;
        if let Some(service) = self.service.lock().await.take() {
            let _ = service.cancel().await;
        }
        self.router.end();
    }
}

/// The handshake.
async fn serve<T>(
    us: Client,
    transport: T,
    known: Option<ProtocolEra>,
) -> Result<RunningService<RoleClient, Client>, ClientInitializeError>
where
    T: Transport<RoleClient> + 'static,
{
    let lifecycle = match known {
        // Known from an earlier connection.
        Some(ProtocolEra::Legacy) => ClientLifecycleMode::Initialize,
        Some(ProtocolEra::Modern) => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        None => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
    };
    us.serve_with_lifecycle(transport, lifecycle).await
}

/// A pending request. Dropping it tells the server to cancel it.
struct CancelGuard {
    /// `None` once the answer is no longer awaited.
    id: Option<RequestId>,
    slot: Arc<PendingRequest>,
    peer: Peer<RoleClient>,
    router: Arc<MessageRouter>,
    cancelling: Arc<RwLock<()>>,
}

impl CancelGuard {
    async fn cancel(&mut self) {
        if let Some(cancelling) = self.cancellation("the caller stopped waiting") {
            let _ = tokio::time::timeout(CANCEL_MAX, cancelling).await;
        }
    }

    /// The cancellation, if the server may have received the request.
    fn cancellation(&mut self, why: &str) -> Option<impl Future<Output = ()> + Send + 'static> {
        let id = self.id.take()?;
        if self.slot.is_own() {
            self.router.remove(&id);
            if !self.slot.was_sent() {
                return None;
            }
        }
        let peer = self.peer.clone();
        let params = CancelledNotificationParam::new(Some(id), Some(why.to_owned()));
        Some(async move {
            let _ = peer.notify_cancelled(params).await;
        })
    }
}

impl Drop for CancelGuard {
    // In `Drop`, because a call ends when its future is dropped.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Some(cancelling) = self.cancellation("the caller is gone") else { return };
        let turn = self.cancelling.clone().try_read_owned();
        runtime.spawn(async move {
            let _turn = turn;
            cancelling.await;
        });
    }
}
