//! A server at a URL: streamable HTTP, in both eras.
//!
//! The library manages sessions and protocol headers. Exchanges whose answers are needed raw go
//! through here: bodies are read with a limit, and a request that was not sent is distinguished
//! from one whose answer was lost. Calls are posted directly, bypassing the library, with the
//! headers of its last request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use segue_core::composition::Backoff;
use sse_stream::{Sse, SseStream};
use tokio::sync::{Semaphore, mpsc};

use super::PROBE_MAX;
use super::body_limit::{EventLimit, TOO_LARGE, read_limited};
use super::first_post::FirstPost as Plain;
use super::request_line::encode;
use super::router::{
    MessageRouter, PendingRequest, RpcAnswer, is_placeholder, not_known, placeholder,
};
use crate::tools::http::connect::{trusting, trusting_nobody};

/// How many requests to one server may be in flight.
const REQUESTS_MAX: usize = 64;

const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How long to wait for the end of a stream after its answer.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// The first and the longest pause before a stream is resumed.
const RESUME_PAUSES: Backoff = Backoff::doubling(1_000, 30_000);

/// How many messages from the server may wait during direct calls.
const INBOX_MAX: usize = 64;

/// The address of a server.
// No `Debug`: headers hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpHttpConfig {
    /// The URL.
    pub url: String,
    /// Headers of every request, already expanded.
    pub headers: BTreeMap<String, String>,
}

impl McpHttpConfig {
    /// Whether the configuration holds credentials.
    pub(super) fn has_credentials(&self) -> bool {
        self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

/// The transport to a server; the error says why its configuration is wrong.
pub(super) async fn transport(
    config: &McpHttpConfig,
    login: Option<Arc<AuthorizationManager>>,
    router: Arc<MessageRouter>,
    bytes_max: usize,
) -> Result<(HttpTransport, HttpPoster), String> {
    let https = config.url.starts_with("https://");
    let tls = if https {
        // The first use reads files for some milliseconds.
        let loading = tokio::task::spawn_blocking(|| trusting().clone()).await;
        loading.map_err(|error| error.to_string())?
    } else {
        trusting_nobody().clone()
    };
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_MAX)
        .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())?;
    let mut headers = HashMap::new();
    for (name, value) in &config.headers {
        let wrong = || format!("the header `{name}` cannot be sent");
        let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.as_str()).map_err(|_| wrong())?, value);
    }
    let mut settings = StreamableHttpClientTransportConfig::with_uri(config.url.as_str())
        .max_concurrent_requests(REQUESTS_MAX)
        .custom_headers(headers);
    settings.max_sse_event_size = bytes_max;
    let (library, inbox) = mpsc::channel(INBOX_MAX);
    let (address, turns) = (Arc::default(), Arc::new(Semaphore::new(REQUESTS_MAX)));
    let post = HttpPoster { client, login, router, bytes_max, address, turns, library };
    let inner = StreamableHttpClientTransport::with_client(post.clone(), settings);
    Ok((HttpTransport { inner, inbox }, post))
}

/// The library's transport, with the messages that the server sends during direct calls.
pub(super) struct HttpTransport {
    inner: StreamableHttpClientTransport<HttpPoster>,
    inbox: mpsc::Receiver<ServerJsonRpcMessage>,
}

impl Transport<RoleClient> for HttpTransport {
    type Error = <StreamableHttpClientTransport<HttpPoster> as Transport<RoleClient>>::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        tokio::select! {
            message = self.inner.receive() => message,
            Some(message) = self.inbox.recv() => Some(message),
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// The target and the headers of the library's last request.
struct Address {
    url: Url,
    session: Option<Arc<str>>,
    headers: HeaderMap,
    /// Whether headers name the method and the tool, too.
    names_tool: bool,
}

impl Address {
    fn new(
        uri: &str,
        session: Option<Arc<str>>,
        headers: &HashMap<HeaderName, HeaderValue>,
    ) -> Option<Address> {
        let url = Url::parse(uri).ok()?;
        // Without headers that belong to one request.
        let is_general = |name: &HeaderName| {
            let name = name.as_str();
            name != METHOD && name != NAME && !name.starts_with(PARAMETER)
        };
        let general = headers.iter().filter(|(name, _)| is_general(name));
        let general = general.map(|(name, value)| (name.clone(), value.clone()));
        // Compared as text: a lookup by `&str` would need an equal hash.
        let names_tool = headers.keys().any(|name| name == METHOD);
        Some(Address { url, session, headers: general.collect(), names_tool })
    }
}

/// Headers that name the method, the tool and its parameters.
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const PARAMETER: &str = "mcp-param-";

/// Whether a tool name needs no encoding in a header.
fn is_plain(tool: &str) -> bool {
    tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte))
}

/// The client that the library sends through.
#[derive(Clone)]
pub(super) struct HttpPoster {
    client: Client,
    /// Provides tokens, if the user has logged in.
    login: Option<Arc<AuthorizationManager>>,
    router: Arc<MessageRouter>,
    bytes_max: usize,
    address: Arc<Mutex<Option<Arc<Address>>>>,
    /// Limits direct calls.
    turns: Arc<Semaphore>,
    /// Passes messages that are no answer to the library.
    library: mpsc::Sender<ServerJsonRpcMessage>,
}

pub(super) type PostResult =
    Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl HttpPoster {
    /// The token for a request.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        match &self.login {
            None => Ok(None),
            Some(login) => login.get_access_token().await.map(Some),
        }
    }

    fn address(&self) -> Option<Arc<Address>> {
        self.address.lock().clone()
    }

    fn set_address(&self, address: Option<Address>) {
        *self.address.lock() = address.map(Arc::new);
    }

    /// Posts a call directly and waits for its answer. False when the server has not received it,
    /// because the session has expired or only the library can build the request.
    pub(super) async fn call(
        &self,
        tool: &str,
        id: i64,
        body: String,
        slot: &Arc<PendingRequest>,
    ) -> bool {
        let Some(address) = self.address().filter(|_| is_plain(tool)) else { return false };
        let exchange = Exchange { post: self, id: RequestId::Number(id), slot: slot.clone() };
        let token = match self.token().await {
            Ok(token) => token,
            Err(error) => {
                exchange.settle(RpcAnswer::Lost(error.to_string()));
                return true;
            }
        };
        let mut request = self.client.post(address.url.clone()).headers(address.headers.clone());
        if address.names_tool {
            request = request.header(METHOD, "tools/call").header(NAME, tool);
        }
        // The semaphore is never closed.
        let turn = self.turns.acquire().await;
        let sent = exchange.send(request, body, address.session.as_deref(), token).await;
        drop(turn);
        match sent {
            Sent::Answered(response) if is_stream(&response) => {
                exchange.follow(response, &address).await;
                true
            }
            Sent::Answered(response) => {
                exchange.take(response).await;
                true
            }
            Sent::Settled => true,
            Sent::Expired => false,
        }
    }
}

impl StreamableHttpClient for HttpPoster {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        let slot = self.router.outgoing(&message);
        let auth_header = self.token().await;
        if let (Some(slot), ClientJsonRpcMessage::Request(request)) = (slot, &message) {
            self.set_address(Address::new(&uri, session_id.clone(), &custom_headers));
            let exchange = Exchange { post: self, id: request.id.clone(), slot };
            return match auth_header {
                Ok(token) => exchange.run(&uri, &message, session_id, token, custom_headers).await,
                Err(error) => {
                    exchange.settle(RpcAnswer::Lost(error.to_string()));
                    Ok(exchange.stand_in())
                }
            };
        }
        let auth_header = auth_header?;
        let posting = Plain {
            client: &self.client,
            router: &self.router,
            uri: &uri,
            session: session_id.as_deref(),
            token: auth_header.as_deref(),
            headers: &custom_headers,
            bytes_max: self.bytes_max,
        };
        if let Some(posted) = posting.post(&message).await {
            return posted;
        }
        let probe = match &message {
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::DiscoverRequest(_)) =>
            {
                Some(request.id.clone())
            }
            _ => None,
        };
        let posting = self.client.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            self.bytes_max,
        );
        let Some(id) = probe else { return posting.await };
        match tokio::time::timeout(PROBE_MAX, posting).await {
            Ok(Ok(StreamableHttpPostResponse::Json(message, _))) if is_placeholder(&message) => {
                Ok(StreamableHttpPostResponse::Json(not_known(id), None))
            }
            Ok(posted) => posted,
            Err(_) => {
                let error = ErrorData::invalid_request("server/discover was not answered", None);
                let message = ServerJsonRpcMessage::error(error, Some(id));
                Ok(StreamableHttpPostResponse::Json(message, None))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<reqwest::Error>> {
        let auth_header = self.token().await?;
        self.client.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, StreamableHttpError<reqwest::Error>> {
        let auth_header = self.token().await?;
        let events = self
            .client
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                self.bytes_max,
            )
            .await?;
        let router = self.router.clone();
        let sorted = events.flat_map(move |event| {
            futures_util::stream::iter(match event {
                Ok(event) => sort(&router, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        Ok(sorted.boxed())
    }
}

/// Routes an event, and returns what goes on to the library.
fn sort(router: &MessageRouter, mut event: Sse) -> Vec<Sse> {
    let Some(data) = event.data.take_if(|data| !data.trim().is_empty()) else {
        return vec![event];
    };
    let messages = router.incoming(data.as_bytes()).unwrap_or_default();
    let texts = messages.iter().filter_map(|message| serde_json::to_string(message).ok());
    texts.map(|text| Sse { data: Some(text), ..event.clone() }).collect()
}

/// One request whose answer is needed raw.
struct Exchange<'a> {
    post: &'a HttpPoster,
    id: RequestId,
    slot: Arc<PendingRequest>,
}

/// The result of sending a request.
enum Sent {
    Answered(Response),
    /// There will be no answer; the slot holds the reason.
    Settled,
    /// The session has expired. The server has not received the request.
    Expired,
}

impl Exchange<'_> {
    async fn run(
        self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        let body = encode(message, Some(&self.slot))?;
        let mut request = self.post.client.post(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        match self.send(request, body, session_id.as_deref(), token).await {
            Sent::Answered(response) => Ok(self.read(response, matches_list(message)).await),
            Sent::Settled => Ok(self.stand_in()),
            // The library starts a new session and sends again.
            Sent::Expired => Err(StreamableHttpError::SessionExpired),
        }
    }

    async fn send(
        &self,
        request: RequestBuilder,
        body: String,
        session_id: Option<&str>,
        token: Option<String>,
    ) -> Sent {
        let mut request = request
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(session_id) = session_id {
            request = request.header("mcp-session-id", session_id);
        }
        self.slot.mark_sent();
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                if error.is_connect() || error.is_builder() {
                    self.slot.mark_unsent();
                }
                self.settle(RpcAnswer::Lost(reason(&error)));
                return Sent::Settled;
            }
        };
        if response.status() == StatusCode::NOT_FOUND && session_id.is_some() {
            self.slot.mark_unsent();
            return Sent::Expired;
        }
        Sent::Answered(response)
    }

    /// Ends the exchange with an answer of our own.
    fn settle(&self, answer: RpcAnswer) {
        self.slot.set_answer(answer);
        self.post.router.remove(&self.id);
    }

    fn stand_in(&self) -> StreamableHttpPostResponse {
        StreamableHttpPostResponse::Json(placeholder(self.id.clone()), None)
    }

    async fn read(self, response: Response, typed: bool) -> StreamableHttpPostResponse {
        if is_stream(&response) {
            return StreamableHttpPostResponse::Sse(self.events(response, typed), None);
        }
        // The library reads lists itself, for arguments that are copied into headers.
        let body = self.take(response).await.filter(|_| typed);
        let list = body.and_then(|body| serde_json::from_slice(&body).ok());
        list.map_or_else(|| self.stand_in(), |list| StreamableHttpPostResponse::Json(list, None))
    }

    /// Takes an answer that is no stream. Returns its text, if it is the answer.
    async fn take(&self, response: Response) -> Option<Vec<u8>> {
        let status = response.status();
        let is_json = has_kind(&response, b"application/json");
        let body = match read_limited(response, self.post.bytes_max).await {
            Ok(Some(body)) => body,
            Ok(None) => {
                self.settle(RpcAnswer::TooLarge);
                return None;
            }
            Err(error) => {
                self.settle(RpcAnswer::Lost(reason(&error)));
                return None;
            }
        };
        if is_json {
            // If it is not the answer, it is of no use to the pending request.
            let _ = self.post.router.incoming(&body);
            if self.slot.answer().is_some() {
                return Some(body);
            }
        }
        let said = String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned();
        self.settle(match status {
            status if status.is_client_error() => RpcAnswer::Error {
                code: i64::from(status.as_u16()),
                message: format!("the server answers {status}: {said}"),
            },
            status if status.is_success() => {
                RpcAnswer::Malformed(format!("it is not a message: `{said}`"))
            }
            status => RpcAnswer::Lost(format!("the server answers {status}: {said}")),
        });
        None
    }

    /// Reads events until one of them is the answer. A stream that ends before is resumed, if the
    /// server said how; the caller's timeout limits that.
    async fn follow(&self, response: Response, address: &Address) {
        let router = &self.post.router;
        let mut events = self.raw_events(response).boxed();
        let (mut last, mut pauses, mut resumes) = (None, RESUME_PAUSES, 0);
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    last = event.id.or(last);
                    if let Some(asked) = event.retry {
                        let max = RESUME_PAUSES.max_ms.max(asked);
                        (pauses, resumes) = (Backoff::doubling(asked, max), 0);
                    }
                    let data = event.data.unwrap_or_default();
                    if data.trim().is_empty() {
                        continue;
                    }
                    for message in router.incoming(data.as_bytes()).unwrap_or_default() {
                        // If the library is gone, the message has no receiver.
                        let _ = self.post.library.send(message).await;
                    }
                    if self.slot.answer().is_some() {
                        return drain(events);
                    }
                }
                Some(Err(error)) if error.to_string().contains(TOO_LARGE) => {
                    return self.settle(RpcAnswer::TooLarge);
                }
                ended => {
                    let why = match ended {
                        Some(Err(error)) => error.to_string(),
                        _ => "the answer ended early".to_owned(),
                    };
                    let Some(last) = &last else { return self.settle(RpcAnswer::Lost(why)) };
                    resumes += 1;
                    tokio::time::sleep(Duration::from_millis(pauses.wait_ms(resumes))).await;
                    match self.resumed(last, address).await {
                        Ok(resumed) => events = resumed,
                        // The server is unreachable just now.
                        Err(StreamableHttpError::Client(_)) => {}
                        Err(_) => return self.settle(RpcAnswer::Lost(why)),
                    }
                }
            }
        }
    }

    async fn resumed(
        &self,
        last: &str,
        address: &Address,
    ) -> Result<Events, StreamableHttpError<reqwest::Error>> {
        let headers = address.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let (client, token) = (&self.post.client, self.post.token().await?);
        client
            .get_stream_with_max_sse_event_size(
                address.url.as_str().into(),
                address.session.clone(),
                Some(last.to_owned()),
                token,
                headers.collect(),
                self.post.bytes_max,
            )
            .await
    }

    fn raw_events(
        &self,
        response: Response,
    ) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
        let bounded = EventLimit::new(self.post.bytes_max);
        let bytes = response.bytes_stream().scan(bounded, |bounded, chunk| {
            let chunk = match chunk {
                Ok(chunk) if bounded.admits(&chunk) => Some(Ok(chunk)),
                Ok(_) => Some(Err(std::io::Error::other(TOO_LARGE))),
                Err(error) => Some(Err(std::io::Error::other(error.to_string()))),
            };
            std::future::ready(chunk)
        });
        SseStream::from_bytes_stream(bytes.boxed())
    }

    /// The events of an answer. When they end without it and cannot be resumed, the answer is lost.
    fn events(self, response: Response, typed: bool) -> Events {
        let events = self.raw_events(response).boxed();
        let (router, slot, id) = (self.post.router.clone(), self.slot, self.id);
        let state = (events, router, slot, id, false, false);
        let sorted = futures_util::stream::unfold(state, move |state| async move {
            let (mut events, router, slot, id, mut resumable, over) = state;
            if over {
                return None;
            }
            let (sorted, over) = match events.next().await {
                Some(Ok(event)) => {
                    resumable |= event.id.is_some();
                    let before = slot.answer().is_some();
                    // The library reads lists itself, for arguments that are copied into headers.
                    let list = (typed && !before).then(|| event.clone());
                    let sorted = sort(&router, event);
                    let list = list.filter(|_| slot.answer().is_some());
                    (list.map_or(sorted, |list| vec![list]), false)
                }
                ended => {
                    let why = match ended {
                        Some(Err(error)) => error.to_string(),
                        _ => "the answer ended early".to_owned(),
                    };
                    let lost = slot.answer().is_none() && (!resumable || why.contains(TOO_LARGE));
                    if !lost {
                        return None;
                    }
                    router.remove(&id);
                    slot.set_answer(if why.contains(TOO_LARGE) {
                        RpcAnswer::TooLarge
                    } else {
                        RpcAnswer::Lost(why)
                    });
                    let text = serde_json::to_string(&placeholder(id.clone())).unwrap_or_default();
                    (vec![Sse { data: Some(text), ..Sse::default() }], true)
                }
            };
            let sorted: Vec<Result<Sse, SseError>> = sorted.into_iter().map(Ok).collect();
            let next = (events, router, slot, id, resumable, over);
            Some((futures_util::stream::iter(sorted), next))
        });
        sorted.flatten().boxed()
    }
}

fn has_kind(response: &Response, kind: &[u8]) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|said| said.as_bytes().starts_with(kind))
}

/// Whether an answer comes as events.
fn is_stream(response: &Response) -> bool {
    response.status().is_success() && has_kind(response, b"text/event-stream")
}

/// Reads the rest after an answer, so that the connection can be reused.
fn drain(mut events: Events) {
    if let Some(None) = events.next().now_or_never() {
        return;
    }
    tokio::spawn(tokio::time::timeout(DRAIN_MAX, async move {
        while let Some(Ok(_)) = events.next().await {}
    }));
}

/// Whether a request asks for the list of tools.
fn matches_list(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::ListToolsRequest(_)))
}

/// An error with its causes, without the URL: it may hold secrets.
fn reason(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}
