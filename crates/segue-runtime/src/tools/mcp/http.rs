//! A server at a URL: streamable HTTP, in both eras, through the library.
//!
//! The library manages sessions and protocol headers. It sends through [`HttpPoster`], which keeps
//! the answers that Segue waits for; calls bypass the library there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt as _;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::auth::AuthorizationManager;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use tokio::sync::mpsc;

use super::PROBE_MAX;
use super::calls::http::{Events, HttpPoster, PostResult, REQUESTS_MAX, route_event};
use super::calls::router::{MessageRouter, is_placeholder, not_known};
use super::first_post::FirstPost;
use crate::tools::http::connect::{trusting, trusting_nobody};

const CONNECT_MAX: Duration = Duration::from_secs(10);

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
    let post = HttpPoster::new(client, login, router, bytes_max, library);
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
        if let (Some(slot), ClientJsonRpcMessage::Request(request)) = (slot, &message) {
            let exchange = self.exchange(request.id.clone(), slot);
            return exchange.run(&uri, &message, session_id, custom_headers).await;
        }
        let auth_header = self.token().await?;
        let posting = FirstPost {
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
                Ok(event) => route_event(&router, event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        });
        Ok(sorted.boxed())
    }
}
