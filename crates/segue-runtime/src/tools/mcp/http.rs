//! A server at an address: streamable HTTP, in both eras.
//!
//! Requests, sessions, streams and headers are the library's. Only the exchanges whose answers are
//! taken raw go through here: their bodies are read with a bound, and what kept a request from
//! leaving is told apart from what kept its answer from coming.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthError, AuthorizationManager};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::PROBE_MAX;
use super::desk::{Answer, Desk, Slot, not_known, says_nothing, stand_in};
use super::line::encode;
use crate::tools::http::connect::{trusting, trusting_nobody};

/// Requests of one server that may be under way at once.
const REQUESTS_MAX: usize = 64;

const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Where a server is.
// No `Debug`: headers hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// The address.
    pub url: String,
    /// What is sent with every request, already expanded.
    pub headers: BTreeMap<String, String>,
}

impl HttpConfig {
    /// Whether its configuration says who we are.
    pub(super) fn has_credentials(&self) -> bool {
        self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

/// The transport to a server; the error says what is wrong with its configuration.
pub(super) async fn transport(
    config: &HttpConfig,
    login: Option<Arc<AuthorizationManager>>,
    desk: Arc<Desk>,
    bytes_max: usize,
) -> Result<StreamableHttpClientTransport<Post>, String> {
    let https = config.url.starts_with("https://");
    let tls = if https {
        // The first time takes milliseconds of reading files.
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
    let post = Post { client, login, desk, bytes_max };
    Ok(StreamableHttpClientTransport::with_client(post, settings))
}

/// The client that the library sends through.
#[derive(Clone)]
pub(super) struct Post {
    client: Client,
    /// What gives tokens, where somebody has logged in.
    login: Option<Arc<AuthorizationManager>>,
    desk: Arc<Desk>,
    bytes_max: usize,
}

type Posted = Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl Post {
    /// The token that a request brings along.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        match &self.login {
            None => Ok(None),
            Some(login) => login.get_access_token().await.map(Some),
        }
    }
}

impl StreamableHttpClient for Post {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Posted {
        let slot = self.desk.outgoing(&message);
        let auth_header = self.token().await;
        if let (Some(slot), ClientJsonRpcMessage::Request(request)) = (slot, &message) {
            let exchange = Exchange { post: self, id: request.id.clone(), slot };
            return match auth_header {
                Ok(token) => exchange.run(&uri, &message, session_id, token, custom_headers).await,
                Err(error) => Ok(exchange.settled(Answer::Lost(error.to_string()))),
            };
        }
        let auth_header = auth_header?;
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
            Ok(Ok(StreamableHttpPostResponse::Json(message, _))) if says_nothing(&message) => {
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
        let desk = self.desk.clone();
        let sorted = events.flat_map(move |event| {
            futures_util::stream::iter(match event {
                Ok(event) => sort(&desk, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        Ok(sorted.boxed())
    }
}

/// An event → what of it goes on to the library.
fn sort(desk: &Desk, event: Sse) -> Vec<Sse> {
    let Some(data) = &event.data else { return vec![event] };
    if data.trim().is_empty() {
        return vec![event];
    }
    let messages = desk.incoming(data.as_bytes()).unwrap_or_default();
    let texts = messages.iter().filter_map(|message| serde_json::to_string(message).ok());
    texts.map(|text| Sse { data: Some(text), ..event.clone() }).collect()
}

/// One request whose answer is taken raw.
struct Exchange<'a> {
    post: &'a Post,
    id: RequestId,
    slot: Arc<Slot>,
}

impl Exchange<'_> {
    async fn run(
        self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Posted {
        let body = encode(message, Some(&self.slot))?;
        let mut request = self
            .post
            .client
            .post(uri)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let has_session = session_id.is_some();
        if let Some(session_id) = session_id {
            request = request.header("mcp-session-id", &*session_id);
        }
        self.slot.mark_sent();
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                if error.is_connect() || error.is_builder() {
                    self.slot.mark_unsent();
                }
                return Ok(self.settled(Answer::Lost(reason(&error))));
            }
        };
        if response.status() == StatusCode::NOT_FOUND && has_session {
            // The library begins a new session and sends again: nobody has heard this one.
            self.slot.mark_unsent();
            return Err(StreamableHttpError::SessionExpired);
        }
        self.read(response, matches_list(message)).await
    }

    /// Ends the exchange with an answer of our own.
    fn settled(&self, answer: Answer) -> StreamableHttpPostResponse {
        self.slot.settle(answer);
        self.post.desk.forget(&self.id);
        StreamableHttpPostResponse::Json(stand_in(self.id.clone()), None)
    }

    async fn read(self, response: Response, typed: bool) -> Posted {
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
        let kind = kind.unwrap_or_default();
        if kind.starts_with(b"text/event-stream") && status.is_success() {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, typed), None));
        }
        let body = match body(response, self.post.bytes_max).await {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(self.settled(Answer::TooLarge)),
            Err(error) => return Ok(self.settled(Answer::Lost(reason(&error)))),
        };
        if kind.starts_with(b"application/json") {
            // Unless it is the answer, what comes is of no use to a request that waits for one.
            let _ = self.post.desk.incoming(&body);
            if self.slot.answer().is_some() {
                // The library looks into lists itself, for headers that arguments go into.
                let list = typed.then(|| serde_json::from_slice(&body).ok()).flatten();
                let message = list.unwrap_or_else(|| stand_in(self.id.clone()));
                return Ok(StreamableHttpPostResponse::Json(message, None));
            }
        }
        let said = String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned();
        Ok(self.settled(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Answer::Error {
                code: i64::from(status.as_u16()),
                message: format!("the server answers {status}: {said}"),
            },
            status if status.is_client_error() => Answer::Error {
                code: i64::from(status.as_u16()),
                message: format!("the server answers {status}: {said}"),
            },
            status if status.is_success() => {
                Answer::Malformed(format!("it is no message: `{said}`"))
            }
            status => Answer::Lost(format!("the server answers {status}: {said}")),
        }))
    }

    /// The events of an answer. When they end without it and cannot be taken up again, it is lost.
    fn events(self, response: Response, typed: bool) -> Events {
        let (desk, slot, id) = (self.post.desk.clone(), self.slot, self.id);
        let bounded = Bounded::new(self.post.bytes_max);
        let bytes = response.bytes_stream().scan(bounded, |bounded, chunk| {
            let chunk = match chunk {
                Ok(chunk) if bounded.admits(&chunk) => Some(Ok(chunk)),
                Ok(_) => Some(Err(std::io::Error::other(TOO_LARGE))),
                Err(error) => Some(Err(std::io::Error::other(error.to_string()))),
            };
            std::future::ready(chunk)
        });
        let events = SseStream::from_bytes_stream(bytes.boxed());
        let state = (events, desk, slot, id, false, false);
        let sorted = futures_util::stream::unfold(state, move |state| async move {
            let (mut events, desk, slot, id, mut resumable, over) = state;
            if over {
                return None;
            }
            let (sorted, over) = match events.next().await {
                Some(Ok(event)) => {
                    resumable |= event.id.is_some();
                    let before = slot.answer().is_some();
                    let sorted = sort(&desk, event.clone());
                    // The library looks into lists itself, for headers that arguments go into.
                    let is_list = typed && !before && slot.answer().is_some();
                    (if is_list { vec![event] } else { sorted }, false)
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
                    desk.forget(&id);
                    slot.settle(if why.contains(TOO_LARGE) {
                        Answer::TooLarge
                    } else {
                        Answer::Lost(why)
                    });
                    let text = serde_json::to_string(&stand_in(id.clone())).unwrap_or_default();
                    (vec![Sse { data: Some(text), ..Sse::default() }], true)
                }
            };
            let sorted: Vec<Result<Sse, SseError>> = sorted.into_iter().map(Ok).collect();
            let next = (events, desk, slot, id, resumable, over);
            Some((futures_util::stream::iter(sorted), next))
        });
        sorted.flatten().boxed()
    }
}

const TOO_LARGE: &str = "the event is too large";

/// Whether a request asks for the list of tools.
fn matches_list(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::ListToolsRequest(_)))
}

/// A body, unless it is larger than the bound.
async fn body(mut response: Response, bytes_max: usize) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Counts the bytes of the present event.
struct Bounded {
    bytes_max: usize,
    bytes: usize,
    line_is_empty: bool,
}

impl Bounded {
    fn new(bytes_max: usize) -> Bounded {
        Bounded { bytes_max, bytes: 0, line_is_empty: true }
    }

    fn admits(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            self.bytes += 1;
            match byte {
                b'\n' if self.line_is_empty => self.bytes = 0,
                b'\n' => self.line_is_empty = true,
                b'\r' => {}
                _ => self.line_is_empty = false,
            }
            if self.bytes > self.bytes_max {
                return false;
            }
        }
        true
    }
}

/// An error with what caused it, without the address: it may hold secrets.
fn reason(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn only_one_event_counts() {
        let mut bounded = Bounded::new(12);
        assert!(bounded.admits(b"data: aa\n\ndata: bb\r\n\r\n"));
        assert!(bounded.admits(b"data: cc"));
        assert!(!bounded.admits(b"dddddddd"));
    }
}
