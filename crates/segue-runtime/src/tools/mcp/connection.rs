//! A connection to a server: its handshake and its tools, through the library.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as BlockingMutex;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, RequestMetaObject,
    SubscriptionFilter, TASKS_EXTENSION_ID,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RequestContext, RoleClient,
    RunningService,
};
use rmcp::transport::Transport;
use segue_core::limits::Limits;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::calls::exact_numbers::mark_numbers;
use super::calls::pending::{ElicitationForm, PendingRequest, RpcAnswer};
use super::calls::router::MessageRouter;
use super::calls::{CallClient, CallTransport, RequestError, Timeouts};
use super::definition::Listing;
use super::error_text::{
    is_lost, is_unauthorized, reason, start_failure, with_final_output, with_output,
};
use super::pages::Pages;
use super::process_output::ProcessOutput;
use super::server_record::ProtocolEra;
use super::stdio::StdioTransport;
use super::{ServerConfig, ServerTransport, http, login};
use crate::tools::redact::Secrets;

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

/// A connected server.
pub(super) struct Connection {
    /// What sends calls and other requests.
    pub(super) calls: CallClient,
    service: Mutex<Option<RunningService<RoleClient, Client>>>,
    pub(super) era: ProtocolEra,
    listing: BlockingMutex<Arc<Listing>>,
    /// Redacted from every definition.
    secrets: Secrets,
    /// Held while the tools are listed again.
    listing_again: Mutex<()>,
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
            calls: CallClient::new(peer, router, traces, way),
            service: Mutex::new(Some(service)),
            era: if legacy { ProtocolEra::Legacy } else { ProtocolEra::Modern },
            listing: BlockingMutex::default(),
            secrets,
            listing_again: Mutex::default(),
        };
        match connection.list(server, limits).await {
            Ok(listing) => connection.set_listing(listing),
            Err(why) => {
                let CallClient { router, output, .. } = &connection.calls;
                let why = with_final_output(&why, output, router).await;
                connection.close().await;
                return Err(why.into());
            }
        }
        connection.subscribe();
        Ok(connection)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Whether the server announced a change of its tools that was not handled yet.
    pub(super) fn has_changed(&self) -> bool {
        self.calls.router.has_changed()
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
        if !self.calls.router.has_changed() && self.listing_again.try_lock().is_ok() {
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
        if !self.calls.router.take_changed() {
            return Ok((self.listing(), false));
        }
        match self.list(server, limits).await {
            Ok(listing) => self.set_listing(listing),
            Err(why) => {
                self.calls.router.mark_changed();
                return Err(why);
            }
        }
        Ok((self.listing(), true))
    }

    /// The last question that was declined, since the last call of this function.
    pub(super) fn take_declined(&self) -> Option<String> {
        self.calls.router.take_declined()
    }

    /// Whether the server accepts calls as tasks, in the legacy era, where the caller decides.
    pub(super) fn takes_tasks(&self) -> bool {
        self.calls.router.takes_tasks()
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
            let sent = self.calls.request(request, &slot, RequestMetaObject::new(), patience).await;
            match (sent, slot.answer()) {
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
        let capable = self.calls.peer.peer_info().is_some_and(|info| {
            info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true))
        });
        if self.era == ProtocolEra::Legacy || !capable {
            return;
        }
        let (peer, router) = (self.calls.peer.clone(), self.calls.router.clone());
        // Over pipes the router has read the notification before the library did.
        let bypasses_router = matches!(self.calls.transport, CallTransport::Http(_));
        tokio::spawn(async move {
            let mut filter = SubscriptionFilter::default();
            filter.tools_list_changed = Some(true);
            if let Ok(mut changes) = peer.listen(filter).await {
                while let Ok(Some(_)) = changes.next().await {
                    if bypasses_router {
                        router.mark_changed();
                    }
                }
            }
        });
    }

    /// Ends the connection, and the process behind it.
    pub(super) async fn close(&self) {
        self.calls.settle_cancellations().await;
        if let Some(service) = self.service.lock().await.take() {
            let _ = service.cancel().await;
        }
        self.calls.router.end();
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
