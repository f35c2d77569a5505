//! The door: who may come in, before anything else of a request is looked at.
//!
//! A request comes to a name that is ours, from no web page but those that are allowed, and brings the
//! token. Otherwise a page that somebody looks at could use what runs on their machine. Only then is
//! its body read, whole, within a bound and a time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_runtime::driver::now_ms;
use tokio::sync::watch;

use super::asked::Asked;
use super::oidc::METADATA;
use super::pass::{Pass, Stay};
use super::token::{Keyring, Refusal};
use crate::observe::RequestOrigin as Asker;
use crate::observe::metrics::Metrics;
use crate::serve::audit::Knocks;
use crate::serve::hall::Hall;
use crate::serve::rest::problem::Problem;

/// What is said with every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Headers that an allowed page may send.
const ACCEPTED: &str = "authorization, content-type, prefer, idempotency-key, last-event-id, \
mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, traceparent, x-request-id";

/// Headers that an allowed page may read.
const EXPOSED: &str = "location, retry-after, allow, mcp-session-id, x-request-id";

/// Says that there was a token and that it is the reason.
const INVALID: &str = r#"error="invalid_token""#;

/// Says that the token is good and does not reach.
const INSUFFICIENT: &str = r#"error="insufficient_scope""#;

/// Who may come in.
pub(super) struct Door {
    pub(super) keyring: watch::Receiver<Arc<Keyring>>,
    /// Whether connections are encrypted.
    pub(super) is_encrypted: bool,
    /// Names that we are reached under.
    pub(super) hosts: Vec<String>,
    /// Web pages that may ask.
    pub(super) origins: Vec<Origin>,
    /// Paths that anybody may see.
    pub(super) open: Vec<&'static str>,
    /// Whose limits are in force.
    pub(super) hall: Arc<Hall>,
    /// Who counts.
    pub(super) metrics: Option<Arc<Metrics>>,
    /// Who was not let in.
    pub(super) knocks: Knocks,
}

/// A web page's origin, whose port is always known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl Origin {
    /// `https://app.example.org` is the same as `https://app.example.org:443`.
    pub(super) fn parse(text: &str) -> Option<Origin> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match &*scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let host = uri.host()?.to_ascii_lowercase();
        Some(Origin { port: uri.port_u16().or(usual), scheme, host })
    }
}

impl Door {
    /// Who comes in with this request.
    async fn admit(&self, request: &Parts, origin: &Asker) -> Result<Pass, Problem> {
        let headers = &request.headers;
        let host = host_of(&request.uri, headers).ok_or_else(|| {
            Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, "a `Host` is needed")
        })?;
        if !self.hosts.contains(&host) {
            let detail =
                format!("this is not `{host}`; `server.allowed_hosts` says what else it is");
            return Err(Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail));
        }
        for origin in headers.get_all(header::ORIGIN) {
            if !self.is_allowed(origin) {
                let detail = "this web page may not ask; `server.allowed_origins` says which may";
                return Err(Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail));
            }
        }
        let path = request.uri.path();
        // A browser sends no token with it; and what is the same everywhere needs none.
        if is_preflight(request) || self.open.contains(&path) {
            return Ok(Pass::lasting(Principal::anonymous()));
        }
        let keyring = self.keyring.borrow().clone();
        let who = keyring.who(headers, now_ms()).await;
        who.map_err(|refusal| {
            let problem = self.refused(&keyring, &refusal, &host_and_port(request), path);
            let (why, status) = (&problem.view().detail, problem.status().as_u16());
            self.knocks.tell(why, path, status, origin.request_id.as_deref());
            problem
        })
    }

    /// How somebody is told that they are not let in, and how they could be.
    fn refused(&self, keyring: &Keyring, refusal: &Refusal, host: &str, path: &str) -> Problem {
        let mut status = StatusCode::UNAUTHORIZED;
        let (detail, error) = match refusal {
            Refusal::Absent => ("a token is needed: `Authorization: Bearer …`".to_owned(), ""),
            Refusal::Unknown => ("this token opens nothing here".to_owned(), INVALID),
            Refusal::Expired => ("this token has expired".to_owned(), INVALID),
            Refusal::Unfit(why) => (format!("this token cannot be used: {why}"), INVALID),
            Refusal::Insufficient(why) => {
                status = StatusCode::FORBIDDEN;
                (format!("this token may do nothing here: {why}"), INSUFFICIENT)
            }
            Refusal::Undecided(why) => {
                let problem =
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unreachable, why.clone());
                return problem.with(header::RETRY_AFTER, "5");
            }
        };
        let mut challenge = vec![r#"realm="segue""#.to_owned()];
        if keyring.issuer().is_some() {
            let scheme = if self.is_encrypted { "https" } else { "http" };
            let of = if path == "/mcp" { "/mcp" } else { "" };
            challenge.push(format!(r#"resource_metadata="{scheme}://{host}{METADATA}{of}""#));
        }
        challenge.extend(Some(error.to_owned()).filter(|error| !error.is_empty()));
        let problem = Problem::new(status, Code::Unauthorized, detail);
        problem.with_text(header::WWW_AUTHENTICATE, &format!("Bearer {}", challenge.join(", ")))
    }

    /// Whether a web page may ask.
    fn is_allowed(&self, origin: &HeaderValue) -> bool {
        let known = origin.to_str().ok().and_then(Origin::parse);
        known.is_some_and(|origin| self.origins.contains(&origin))
    }

    /// The body, whole.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
        if headers.contains_key(header::CONTENT_ENCODING) {
            let detail = "a body is sent as it is, without `Content-Encoding`";
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Code::InvalidField,
                detail,
            ));
        }
        let limits = self.hall.limits();
        let bytes_max = limits.served_body_bytes_max;
        let too_large = || {
            let detail = format!("a body has at most {bytes_max} bytes (`served_body_bytes_max`)");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::Limit, detail).closing()
        };
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(too_large());
        }
        let read = Limited::new(body, bytes_max).collect();
        let patience = Duration::from_millis(limits.served_body_ms);
        match tokio::time::timeout(patience, read).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => {
                let detail = "the body could not be read";
                Err(Problem::new(StatusCode::BAD_REQUEST, Code::Parse, detail).closing())
            }
            Err(_) => {
                let detail = "the body did not arrive in time (`served_body_ms`)";
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, Code::Timeout, detail).closing())
            }
        }
    }
}

/// The name that a request is sent to, without its port.
fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (given, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return None;
    }
    let authority: axum::http::uri::Authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => given?.to_str().ok()?.parse().ok()?,
    };
    Some(authority.host().to_ascii_lowercase())
}

/// The name and the port that a request was sent to, which is one of ours.
fn host_and_port(request: &Parts) -> String {
    let given = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri.authority().map_or_else(|| given.unwrap_or("").to_owned(), ToString::to_string)
}

/// Lets in who may, and hands on a request whose body is there.
pub(super) async fn enter(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let page = request.headers().get(header::ORIGIN).cloned();
    let asked = Asked::of(&request);
    let mut response = match within(&door, request, next, asked.origin.clone()).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    };
    asked.answered(&mut response, door.metrics.as_deref());
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    // A page that was refused is not named, so its browser does not show it the answer.
    if let Some(page) = page.filter(|page| door.is_allowed(page)) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Whether a browser asks what one of its pages may ask for.
fn is_preflight(request: &Parts) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(header::ORIGIN)
        && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// What a page may ask for, once it may ask at all. Nothing is told that a page could not know.
fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PUT, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ACCEPTED));
    response
}

async fn within(
    door: &Door,
    request: Request,
    next: Next,
    origin: Asker,
) -> Result<Response, Problem> {
    let (mut parts, mut body) = request.into_parts();
    // Before they are let in, so that no change is missed.
    let keyring = door.keyring.clone();
    let pass = door.admit(&parts, &origin).await?;
    if is_preflight(&parts) {
        return Ok(preflight());
    }
    parts.extensions.insert(pass.who.clone());
    let stay = Stay { pass, credentials: Stay::credentials(&parts.headers), keyring };
    parts.extensions.insert(origin);
    if !body.is_end_stream() {
        body = Body::from(door.read(&parts.headers, body).await?);
    }
    Ok(stay.bound(next.run(Request::from_parts(parts, body)).await))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_the_same_when_a_browser_says_so() {
        let origin = |text| Origin::parse(text);
        assert_eq!(origin("https://App.example"), origin("https://app.example:443"));
        assert_ne!(origin("http://app.example"), origin("https://app.example"));
        assert_ne!(origin("http://app.example"), origin("http://app.example:81"));
        assert_eq!(origin("null"), None);
    }
}
