//! One POST to a server, whose answer is read raw.
//!
//! Bodies are read with a limit, and a request that was not sent is distinguished from one whose
//! answer was lost. Calls are posted directly, bypassing the library, with the headers of its last
//! request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode, Url};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient as _, StreamableHttpError, StreamableHttpPostResponse,
};
use segue_core::composition::Backoff;
use sse_stream::Sse;
use tokio::sync::{Semaphore, mpsc};

use super::body_limit::{TOO_LARGE, limited_events, read_limited};
use super::pending::{PendingRequest, RpcAnswer};
use super::request_line::encode;
use super::router::{MessageRouter, placeholder};

/// The header that names a session.
pub(crate) const SESSION: &str = "mcp-session-id";

/// How many requests to one server may be in flight.
pub(crate) const REQUESTS_MAX: usize = 64;

/// How long to wait for the end of a stream after its answer.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// The first and the longest pause before a stream is resumed.
const RESUME_PAUSES: Backoff = Backoff::doubling(1_000, 30_000);

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
pub(crate) struct HttpPoster {
    pub(crate) client: Client,
    /// Provides tokens, if the user has logged in.
    login: Option<Arc<AuthorizationManager>>,
    pub(crate) router: Arc<MessageRouter>,
    pub(crate) bytes_max: usize,
    address: Arc<Mutex<Option<Arc<Address>>>>,
    /// Limits direct calls.
    turns: Arc<Semaphore>,
    /// Passes messages that are no answer to the library.
    library: mpsc::Sender<ServerJsonRpcMessage>,
}

pub(crate) type PostResult =
    Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;
pub(crate) type Events = BoxStream<'static, Result<Sse, SseError>>;

impl HttpPoster {
    pub(crate) fn new(
        client: Client,
        login: Option<Arc<AuthorizationManager>>,
        router: Arc<MessageRouter>,
        bytes_max: usize,
        library: mpsc::Sender<ServerJsonRpcMessage>,
    ) -> HttpPoster {
        let (address, turns) = (Arc::default(), Arc::new(Semaphore::new(REQUESTS_MAX)));
        HttpPoster { client, login, router, bytes_max, address, turns, library }
    }

    /// The token for a request.
    pub(crate) async fn token(&self) -> Result<Option<String>, AuthError> {
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
    pub(crate) async fn call(
        &self,
        tool: &str,
        id: i64,
        body: String,
        slot: &Arc<PendingRequest>,
    ) -> bool {
        let Some(address) = self.address().filter(|_| is_plain(tool)) else { return false };
        let exchange = self.exchange(RequestId::Number(id), slot.clone());
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

    /// An exchange for a request that waits.
    pub(crate) fn exchange(&self, id: RequestId, slot: Arc<PendingRequest>) -> Exchange<'_> {
        Exchange { post: self, id, slot }
    }
}

/// Routes an event, and returns what goes on to the library.
pub(crate) fn route_event(router: &MessageRouter, mut event: Sse) -> Vec<Sse> {
    let Some(data) = event.data.take_if(|data| !data.trim().is_empty()) else {
        return vec![event];
    };
    let messages = router.incoming(data.as_bytes()).unwrap_or_default();
    let texts = messages.iter().filter_map(|message| serde_json::to_string(message).ok());
    texts.map(|text| Sse { data: Some(text), ..event.clone() }).collect()
}

/// One request whose answer is needed raw.
pub(crate) struct Exchange<'a> {
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
    /// Posts a request of the library, and keeps its answer for the caller that waits for it.
    pub(crate) async fn run(
        self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        self.post.set_address(Address::new(uri, session_id.clone(), &headers));
        let token = match self.post.token().await {
            Ok(token) => token,
            Err(error) => {
                self.settle(RpcAnswer::Lost(error.to_string()));
                return Ok(self.stand_in());
            }
        };
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
        let request = message_post(request, body, session_id, token.as_deref());
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
        let mut events = limited_events(response, self.post.bytes_max).boxed();
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
                ended => {
                    let answer = missing_answer(ended);
                    let (RpcAnswer::Lost(_), Some(last)) = (&answer, &last) else {
                        return self.settle(answer);
                    };
                    resumes += 1;
                    tokio::time::sleep(Duration::from_millis(pauses.wait_ms(resumes))).await;
                    match self.resumed(last, address).await {
                        Ok(resumed) => events = resumed,
                        // The server is unreachable just now.
                        Err(StreamableHttpError::Client(_)) => {}
                        Err(_) => return self.settle(answer),
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

    /// The events of an answer. When they end without it and cannot be resumed, the answer is lost.
    fn events(self, response: Response, typed: bool) -> Events {
        let events = limited_events(response, self.post.bytes_max).boxed();
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
                    let sorted = route_event(&router, event);
                    let list = list.filter(|_| slot.answer().is_some());
                    (list.map_or(sorted, |list| vec![list]), false)
                }
                ended => {
                    let answer = missing_answer(ended);
                    let may_come = resumable && matches!(answer, RpcAnswer::Lost(_));
                    if slot.answer().is_some() || may_come {
                        return None;
                    }
                    router.remove(&id);
                    slot.set_answer(answer);
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

/// What a stream that ended without an answer means.
fn missing_answer(ended: Option<Result<Sse, SseError>>) -> RpcAnswer {
    match ended {
        Some(Err(error)) if error.to_string().contains(TOO_LARGE) => RpcAnswer::TooLarge,
        Some(Err(error)) => RpcAnswer::Lost(error.to_string()),
        _ => RpcAnswer::Lost("the answer ended early".to_owned()),
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

/// A POST of a message, with the headers that every one has.
pub(crate) fn message_post(
    request: RequestBuilder,
    body: impl Into<Body>,
    session: Option<&str>,
    token: Option<&str>,
) -> RequestBuilder {
    let mut request = request
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(session) = session {
        request = request.header(SESSION, session);
    }
    request
}
