//! HTTP messages that the protocol library would not read or write exactly.
//!
//! The library ignores what an `initialize` result says about tasks of the legacy era. A response
//! may hold numbers that it would round, so they leave it with a mark.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::StreamExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rmcp::transport::streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse};

use super::calls::body_limit::{limited_events, read_limited};
use super::calls::exact_numbers::unmark_numbers;
use super::calls::http::{PostResult, SESSION, message_post};
use super::calls::router::MessageRouter;

/// A message to post, and its transport.
pub(super) struct FirstPost<'a> {
    pub(super) client: &'a Client,
    pub(super) router: &'a Arc<MessageRouter>,
    pub(super) uri: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) token: Option<&'a str>,
    pub(super) headers: &'a HashMap<HeaderName, HeaderValue>,
    pub(super) bytes_max: usize,
}

impl FirstPost<'_> {
    /// Posts a message if this module handles it; `None` leaves it to the library.
    pub(super) async fn post(self, message: &ClientJsonRpcMessage) -> Option<PostResult> {
        match message {
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_)) =>
            {
                let sent = self.send(serde_json::to_vec(message).ok()?).await.ok()?;
                // After a refusal the library asks again: it knows what the refusal means.
                if sent.status().is_success() { self.greeted(sent).await } else { None }
            }
            ClientJsonRpcMessage::Response(_) => {
                let written = serde_json::to_vec(message).ok()?;
                let exact = unmark_numbers(written.clone());
                if exact == written {
                    return None;
                }
                Some(match self.send(exact).await {
                    Err(error) => Err(StreamableHttpError::Client(error)),
                    Ok(sent) if sent.status().is_success() => {
                        Ok(StreamableHttpPostResponse::Accepted)
                    }
                    Ok(sent) => {
                        let why = format!("the server answers {}", sent.status());
                        Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(why)))
                    }
                })
            }
            _ => None,
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<Response, reqwest::Error> {
        let mut request = self.client.post(self.uri);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        message_post(request, body, self.session, self.token).send().await
    }

    /// Reads the answer to `initialize`, and passes it to the library unchanged.
    async fn greeted(self, response: Response) -> Option<PostResult> {
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let session = response.headers().get(SESSION).and_then(text);
        let kind = response.headers().get(CONTENT_TYPE).and_then(text).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            let router = self.router.clone();
            let events = limited_events(response, self.bytes_max).inspect(move |event| {
                let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
                router.note_initialize(data.unwrap_or_default().as_bytes());
            });
            return Some(Ok(StreamableHttpPostResponse::Sse(events.boxed(), session)));
        }
        let body = read_limited(response, self.bytes_max).await.ok().flatten()?;
        self.router.note_initialize(&body);
        let message = serde_json::from_slice(&body).ok()?;
        Some(Ok(StreamableHttpPostResponse::Json(message, session)))
    }
}
