//! One HTTP exchange: a request → an answer, or a failure that says what to do next.
//!
//! The client follows redirects itself, so that each target is checked like any other address. It
//! keeps no connections: the peer may close a kept one while a request is sent, and then it is
//! unknown whether the call arrived. TLS sessions are resumed, which saves most of the cost.
//!
//! Not here: connections ([`super::connect`]), where requests come from ([`super`], the built-in
//! HTTP tools).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, utf8_percent_encode};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use segue_core::diagnostic::Code;
use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::Value;

use super::UNRESERVED;
use super::address::AddressPolicy;
use super::connect::{Connector, ForbiddenAddress, forbidden};
use crate::tools::{ToolError, ToolRequest};

/// Bytes that are encoded in the key of a call, because a header cannot carry them.
const KEY: &AsciiSet = &UNRESERVED.remove(b'/').remove(b':').remove(b'#').remove(b'@');

/// How many redirects are followed.
const REDIRECTS_MAX: usize = 5;

/// The connect timeout ends this much earlier than the whole call, so that the error names the
/// connection.
const TIMEOUT_SLACK: Duration = Duration::from_millis(50);

/// How much of a failed response's body is read, and for how long.
const EXCERPT_BYTES_MAX: usize = 2 * 1024;
const EXCERPT_WAIT: Duration = Duration::from_secs(2);

/// The timeout of a call whose configuration gives none.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

/// Sends requests to addresses that a policy permits.
pub(crate) struct HttpClient {
    connector: Connector,
    limits: Arc<Limits>,
}

/// A request to send.
#[derive(Clone)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Arc<str>>,
    pub(crate) timeout: Duration,
}

/// A response with a status from 200 to 299.
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// JSON when the content type says so, else text; `null` when the body is empty.
    pub(crate) body: Value,
}

impl HttpRequest {
    /// A request as the caller gives it, with checked headers, and with an idempotency key if it
    /// may change something.
    pub(crate) fn new(
        call: &ToolRequest,
        method: &str,
        url: Url,
        headers: &BTreeMap<String, String>,
        body: Option<&Value>,
    ) -> Result<HttpRequest, ToolError> {
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .ok()
            // `CONNECT` makes tunnels and `TRACE` shows what proxies added: neither is a call.
            .filter(|method| *method != Method::CONNECT && *method != Method::TRACE)
            .ok_or_else(|| wrong(format!("`{method}` is not a supported HTTP method")))?;
        let mut headers = header_map(headers)?;
        if !method.is_safe() {
            let key = HeaderValue::from_str(&utf8_percent_encode(&call.key, KEY).to_string());
            if let Ok(key) = key {
                headers.entry("idempotency-key").or_insert(key);
            }
        }
        if let Some(Ok(traceparent)) = call.traceparent.as_deref().map(HeaderValue::from_str) {
            headers.entry("traceparent").or_insert(traceparent);
        }
        let body = body.map(|body| match body {
            Value::String(text) => (text.clone(), "text/plain; charset=utf-8"),
            json => (json.to_json().into(), "application/json"),
        });
        if let Some((_, kind)) = &body {
            headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        let body = body.map(|(text, _)| text);
        Ok(HttpRequest { method, url, headers, body, timeout: TIMEOUT_DEFAULT })
    }

    /// A `POST` that changes nothing.
    pub(crate) fn post(
        url: Url,
        headers: &BTreeMap<String, String>,
        body: &Value,
        timeout: Duration,
    ) -> Result<HttpRequest, ToolError> {
        let mut headers = header_map(headers)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Some(body.to_json().into());
        Ok(HttpRequest { method: Method::POST, url, headers, body, timeout })
    }

    /// Method and origin for messages, without parts that may be secret: user info, path and query.
    fn peer(&self) -> String {
        let host = self.url.host_str().unwrap_or("");
        match self.url.port() {
            Some(port) => format!("{} {}://{host}:{port}", self.method, self.url.scheme()),
            None => format!("{} {}://{host}", self.method, self.url.scheme()),
        }
    }

    /// The failure of a request that was sent and not answered. A request that changes nothing is
    /// never in doubt: it can be retried.
    fn unanswered(&self, code: Code, what: &str) -> ToolError {
        let message = format!("{}: {what}", self.peer());
        if self.method.is_safe() {
            return ToolError::Refused { code, message, retryable: true };
        }
        ToolError::NoAnswer { message }
    }

    /// The request that a redirect leads to.
    fn redirected(mut self, status: StatusCode, location: &str) -> Result<HttpRequest, ToolError> {
        let refuse = |what: &str| Err(wrong(format!("{}: {what}", self.peer())));
        let Ok(mut target) = self.url.join(location) else {
            return refuse("redirects to an invalid address");
        };
        target.set_fragment(None);
        if self.url.scheme() == "https" && target.scheme() != "https" {
            return refuse("redirects from https to an unencrypted address");
        }
        let becomes_get = status == StatusCode::SEE_OTHER
            || (matches!(status.as_u16(), 301 | 302) && self.method == Method::POST);
        if becomes_get && self.method != Method::HEAD {
            self.method = Method::GET;
            self.body = None;
            for name in [header::CONTENT_TYPE, HeaderName::from_static("idempotency-key")] {
                self.headers.remove(name);
            }
        }
        if target.origin() != self.url.origin() {
            // Any header may be a credential; another host gets only those that describe the body
            // and the wanted answer.
            let harmless = [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE];
            self.headers = harmless
                .into_iter()
                .filter_map(|name| Some((name.clone(), self.headers.get(&name)?.clone())))
                .collect();
        }
        self.url = target;
        Ok(self)
    }
}

impl HttpClient {
    pub(crate) fn new(policy: AddressPolicy, limits: Arc<Limits>) -> HttpClient {
        HttpClient { connector: Connector::new(policy), limits }
    }

    /// Sends a request and reads its response; a status other than 2xx is an error.
    pub(crate) async fn send(&self, request: HttpRequest) -> Result<HttpAnswer, ToolError> {
        let late = format!("no answer within {} ms", request.timeout.as_millis());
        let late = request.unanswered(Code::Timeout, &late);
        let time = request.timeout.saturating_add(TIMEOUT_SLACK);
        tokio::time::timeout(time, self.follow(request)).await.unwrap_or(Err(late))
    }

    async fn follow(&self, mut request: HttpRequest) -> Result<HttpAnswer, ToolError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.exchange(&request).await?;
            let status = response.status();
            if status.is_success() {
                return self.answer(&request, response).await;
            }
            let location = response.headers().get(header::LOCATION).map(HeaderValue::to_str);
            match location {
                Some(Ok(location)) if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) => {
                    request = request.redirected(status, location)?;
                }
                _ => return Err(self.failure(&request, response).await),
            }
        }
        Err(wrong(format!("{}: redirects more than {REDIRECTS_MAX} times", request.peer())))
    }

    /// Sends one request, without following a redirect.
    async fn exchange(&self, request: &HttpRequest) -> Result<Response, ToolError> {
        let port = self.connector.check(&request.url)?;
        let client = self.connector.client(&request.url, port, request.timeout).await?;
        let mut outgoing = reqwest::Request::new(request.method.clone(), request.url.clone());
        *outgoing.headers_mut() = request.headers.clone();
        // Compression is not requested, so that a small response cannot expand without limit.
        let identity = HeaderValue::from_static("identity");
        outgoing.headers_mut().insert(header::ACCEPT_ENCODING, identity);
        if let Some(body) = &request.body {
            *outgoing.body_mut() = Some(reqwest::Body::from(body.as_bytes().to_vec()));
        }
        client.execute(outgoing).await.map_err(|error| undelivered(request, &error))
    }

    async fn answer(
        &self,
        request: &HttpRequest,
        response: Response,
    ) -> Result<HttpAnswer, ToolError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = self.body(request, response).await?;
        let body = self.value(&headers, bytes).map_err(|(code, why)| {
            ToolError::refused(code, format!("{}: {why}", request.peer()))
        })?;
        Ok(HttpAnswer { status, headers, body })
    }

    /// The whole body, counted while it arrives.
    async fn body(
        &self,
        request: &HttpRequest,
        mut response: Response,
    ) -> Result<Vec<u8>, ToolError> {
        let bytes_max = self.limits.value_bytes_max;
        let too_large = || {
            let message = format!("{}: the answer is over {bytes_max} bytes", request.peer());
            ToolError::refused(Code::Limit, message)
        };
        if response.content_length().is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > bytes_max => return Err(too_large()),
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => return Ok(bytes),
                Err(_) => {
                    let what = "the connection was lost in the middle of the answer";
                    return Err(request.unanswered(Code::Unreachable, what));
                }
            }
        }
    }

    fn value(&self, headers: &HeaderMap, bytes: Vec<u8>) -> Result<Value, (Code, String)> {
        let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
        if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
            let why = "the answer is compressed, although the request did not accept compression";
            return Err((Code::ToolError, why.to_owned()));
        }
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("").to_ascii_lowercase();
        let text = decode(&kind, bytes)
            .ok_or_else(|| (Code::ToolError, "the answer is not text".to_owned()))?;
        if !is_json(&kind) {
            return Ok(Value::from(text));
        }
        read_json_value(&text, &self.limits).map_err(|finding| {
            let code = if finding.code == Code::Limit { Code::Limit } else { Code::ToolError };
            (code, format!("the answer claims to be JSON and is not: {}", finding.message))
        })
    }

    /// The failure for a status.
    async fn failure(&self, request: &HttpRequest, response: Response) -> ToolError {
        let status = response.status();
        let retry_after = retry_after(response.headers(), &self.limits);
        let excerpt = tokio::time::timeout(EXCERPT_WAIT, excerpt(response)).await;
        let message = match excerpt.unwrap_or_default().as_str() {
            "" => format!("{}: {status}", request.peer()),
            text => format!("{}: {status}: {text}", request.peer()),
        };
        match status.as_u16() {
            // Both say that the request was not processed, and when to retry.
            429 | 503 if retry_after.is_some() => ToolError::Unreachable { message, retry_after },
            // A gateway without an answer does not know whether the server behind it did the work.
            502 | 504 if !request.method.is_safe() => ToolError::NoAnswer { message },
            408 | 425 | 429 | 500.. => ToolError::failed(message),
            _ => ToolError::refused(Code::ToolError, message),
        }
    }
}

/// The failure of a request without a response.
fn undelivered(request: &HttpRequest, error: &reqwest::Error) -> ToolError {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let forbidden_by = causes.clone().find_map(|cause| cause.downcast_ref::<ForbiddenAddress>());
    if let Some(why) = forbidden_by {
        return forbidden(why);
    }
    let cause = causes.last().map_or_else(|| "no connection".to_owned(), ToString::to_string);
    if error.is_connect() {
        let message = format!("{}: cannot be reached: {cause}", request.peer());
        return ToolError::Unreachable { message, retry_after: None };
    }
    if error.is_builder() {
        return wrong(format!("{}: cannot be sent: {cause}", request.peer()));
    }
    request.unanswered(Code::Unreachable, &format!("the connection was lost: {cause}"))
}

/// The start of a failed response's body, for the message.
async fn excerpt(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= EXCERPT_BYTES_MAX {
            bytes.truncate(EXCERPT_BYTES_MAX);
            break;
        }
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Only seconds: a date would compare the clocks of two machines.
fn retry_after(headers: &HeaderMap, limits: &Limits) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_millis(seconds.saturating_mul(1000).min(limits.retry_after_ms_max)))
}

fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or("").trim();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// Decodes UTF-8, or the single-byte encoding that old pages declare.
fn decode(kind: &str, bytes: Vec<u8>) -> Option<String> {
    let latin = ["iso-8859-1", "latin1", "us-ascii", "windows-1252"];
    String::from_utf8(bytes)
        .map_err(std::string::FromUtf8Error::into_bytes)
        .or_else(|bytes| {
            let declared = kind.split_once("charset=").map(|(_, name)| name.trim_matches('"'));
            match declared {
                Some(name) if latin.iter().any(|latin| name.starts_with(latin)) => {
                    Ok(bytes.into_iter().map(char::from).collect())
                }
                _ => Err(()),
            }
        })
        .ok()
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap, ToolError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| wrong(format!("`{name}` is not a header name")))?;
        if FRAMING.contains(&parsed) {
            return Err(wrong(format!("the header `{name}` cannot be set by a call")));
        }
        // The value may be a secret, so it is not quoted.
        let value = HeaderValue::from_str(value)
            .map_err(|_| wrong(format!("the value of header `{name}` has forbidden characters")))?;
        map.append(parsed, value);
    }
    Ok(map)
}

/// Headers that decide where a request goes and where it ends.
const FRAMING: [HeaderName; 6] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
];

fn wrong(message: String) -> ToolError {
    ToolError::refused(Code::ToolError, message)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::net::TcpListener;

    use super::super::connect::DnsLookupFuture;
    use super::*;

    fn request(url: &str) -> HttpRequest {
        HttpRequest {
            method: Method::GET,
            url: Url::parse(url).unwrap(),
            headers: HeaderMap::new(),
            body: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// A resolver that gives another answer each time.
    fn rebinding(_name: String) -> DnsLookupFuture {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let answers = [
            vec![IpAddr::from([127, 0, 0, 1])],
            vec![IpAddr::from([127, 0, 0, 2])],
            vec![IpAddr::from([169, 254, 169, 254]), IpAddr::from([127, 0, 0, 1])],
            vec![],
        ];
        let asked = ASKED.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(answers[asked % answers.len()].clone()) })
    }

    /// Hostile input 22: the client connects to the address that was checked. It resolves a name
    /// once, and tries only the permitted addresses.
    #[tokio::test]
    async fn a_name_that_changes_its_mind_opens_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Accepts and hangs up: only the connection counts.
        let accepting = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let policy = AddressPolicy::new([format!("127.0.0.1:{port}").as_str()]).unwrap();
        let limits = Arc::new(Limits::default());
        let connector = Connector::new(policy).with_lookup(rebinding);
        let engine = HttpClient { connector, limits };
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            let result = engine.send(request(&format!("http://rebind.example:{port}/"))).await;
            outcomes.push(match result.err() {
                Some(ToolError::Refused { code, .. }) => code,
                other => panic!("{other:?}"),
            });
        }
        // Connected and hung up; refused; the permitted one of two; nothing to connect to.
        let expected =
            [Code::Unreachable, Code::PolicyViolation, Code::Unreachable, Code::PolicyViolation];
        assert_eq!(outcomes, expected);
        accepting.abort();
    }
}
