//! Authentication: host, origin and token or cookie of each request, before its handler sees anything of it.
//!
//! A request is sent to a host name of this server, comes from no web page except the allowed ones, and
//! has a token or the cookie of a session. Otherwise any web page could call a server on its visitor's machine. Only then is the body
//! read, once, within a size and a time.

mod failure_log;
mod oidc;
mod oidc_login;
mod session;
mod signatures;
mod stream_auth;
mod token;

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

use super::problem::{Problem, ProblemView};
use super::public::{NoCors, PublicRoutes};
use super::request::CollectedBody;
use super::request_log::RequestLog;
use crate::api::runs::RunService;
use crate::api::session::SignInMethods;
use crate::observe::RequestOrigin;
use crate::observe::metrics::Metrics;
pub(crate) use failure_log::AuthFailureLog;
use oidc::METADATA;
use session::{has_csrf, knows_csrf};
use stream_auth::StreamAuth;

pub use oidc::{Issuer, ProtectedResource, ResourceMetadata};
pub use oidc_login::{LoginRedirect, OIDC, OIDC_CALLBACK};
pub use session::{ActiveSession, BrowserSessions, CredentialCheck, Identity, OpenedSession};
pub use stream_auth::Authenticated;
pub use token::{AuthError, Authenticator, random_token};

/// Headers of every response.
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

/// The challenge when the token is invalid.
const INVALID: &str = r#"error="invalid_token""#;

/// The challenge when the token is valid and has no right here.
const INSUFFICIENT: &str = r#"error="insufficient_scope""#;

/// The path of sessions. Every caller gets an answer there: who it is, or how to sign in.
pub const SESSION: &str = "/api/v1/session";

/// Why a browser that came back from the issuer is not signed in. A part of the response that authentication logs.
#[derive(Clone)]
pub struct SignInFailure(pub AuthError);

/// What authentication checks.
pub(crate) struct AuthLayer {
    /// Which tokens and cookies are accepted, now.
    pub(crate) credentials: CredentialCheck,
    /// Whether connections are encrypted.
    pub(crate) is_encrypted: bool,
    /// The host names of this server.
    pub(crate) hosts: Vec<String>,
    /// Origins of web pages that may call.
    pub(crate) origins: Vec<WebOrigin>,
    /// Requests that need no token.
    pub(crate) public: Arc<PublicRoutes>,
    /// The service, for its limits.
    pub(crate) service: Arc<RunService>,
    /// The metrics of requests.
    pub(crate) metrics: Option<Arc<Metrics>>,
    /// The log of refused credentials.
    pub(crate) failures: AuthFailureLog,
}

/// The origin of a web page, with its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebOrigin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl WebOrigin {
    /// `https://app.example.org` is the same as `https://app.example.org:443`.
    pub(crate) fn parse(text: &str) -> Option<WebOrigin> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let default = match &*scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let host = uri.host()?.to_ascii_lowercase();
        Some(WebOrigin { port: uri.port_u16().or(default), scheme, host })
    }
}

impl AuthLayer {
    /// The caller of a request; nothing if the request needs no credential.
    async fn check(
        &self,
        request: &Parts,
        origin: &RequestOrigin,
    ) -> Result<Option<Identity>, Problem> {
        let headers = &request.headers;
        let host = host_of(&request.uri, headers).ok_or_else(|| {
            Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, "a `Host` is needed")
        })?;
        if !self.hosts.contains(&host) {
            let detail = format!("unknown host `{host}`; add it to `server.allowed_hosts`");
            return Err(Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail));
        }
        for origin in headers.get_all(header::ORIGIN) {
            if !self.is_allowed(origin, &host_and_port(&request.uri, headers)) {
                let detail = "the origin of this web page is not in `server.allowed_origins`";
                return Err(Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail));
            }
        }
        let path = request.uri.path();
        // A browser sends no token with a preflight, and public paths say nothing secret.
        if is_preflight(request) || (self.public.contains(request) && path != SESSION) {
            return Ok(None);
        }
        let log = |problem: Problem| {
            let (why, status) = (&problem.view().detail, problem.status().as_u16());
            self.failures.log(why, path, status, origin.request_id.as_deref());
            problem
        };
        let identity = match self.credentials.authenticate(headers, now_ms()).await {
            Ok(identity) => identity,
            // A page without a session asks here whether there is one.
            Err(AuthError::Absent | AuthError::Ended) if path == SESSION => return Ok(None),
            Err(error) => {
                let authenticator = self.credentials.accepted();
                let host = host_and_port(&request.uri, headers);
                let problem = log(self.problem(&authenticator, &error, &host, path));
                return if path == SESSION { Ok(None) } else { Err(problem) };
            }
        };
        // The cookie is sent to every port of its host, so the cookie alone does not make a session for a page.
        let is_page = identity.session.as_ref().is_none_or(|it| knows_csrf(it, headers));
        if path == SESSION && request.method == Method::GET && !is_page {
            return Ok(None);
        }
        let is_protected = match &identity.session {
            Some(session) => is_sign_in(request) || has_csrf(session, &request.method, headers),
            None => true,
        };
        if !is_protected {
            let detail = "a request with the cookie of a session needs the header `X-Segue-CSRF`";
            let problem = Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail);
            let help = "`POST /api/v1/session` returned its value as `csrf`";
            return Err(log(problem.help(help)));
        }
        Ok(Some(identity))
    }

    /// The problem of a refused credential, with the challenge that says how to get a good one.
    fn problem(
        &self,
        authenticator: &Authenticator,
        error: &AuthError,
        host: &str,
        path: &str,
    ) -> Problem {
        let mut status = StatusCode::UNAUTHORIZED;
        let (detail, challenge_error) = match error {
            AuthError::Absent => ("a token is needed: `Authorization: Bearer …`".to_owned(), ""),
            AuthError::Unavailable(_) | AuthError::TooOften => {
                return sign_in_problem(error, SignInMethods::default());
            }
            AuthError::Insufficient(_) => {
                status = StatusCode::FORBIDDEN;
                (error.to_string(), INSUFFICIENT)
            }
            AuthError::Unknown
            | AuthError::Expired
            | AuthError::Invalid(_)
            | AuthError::Ended
            | AuthError::Code => (error.to_string(), INVALID),
        };
        let mut challenge = vec![r#"realm="segue""#.to_owned()];
        if authenticator.issuer().is_some() {
            let scheme = if self.is_encrypted { "https" } else { "http" };
            let of = if path == "/mcp" { "/mcp" } else { "" };
            challenge.push(format!(r#"resource_metadata="{scheme}://{host}{METADATA}{of}""#));
        }
        challenge.extend(Some(challenge_error.to_owned()).filter(|error| !error.is_empty()));
        let problem = Problem::new(status, Code::Unauthorized, detail);
        problem.with_text(header::WWW_AUTHENTICATE, &format!("Bearer {}", challenge.join(", ")))
    }

    /// Whether a web page may call: it is an allowed one, or comes from the host that the request is sent to,
    /// which is checked before. A proxy in front of this server may have encrypted the connection.
    fn is_allowed(&self, origin: &HeaderValue, host: &str) -> bool {
        let Some(known) = origin.to_str().ok().and_then(WebOrigin::parse) else { return false };
        let schemes = if self.is_encrypted { &["https"][..] } else { &["http", "https"] };
        let own = schemes.iter().filter_map(|it| WebOrigin::parse(&format!("{it}://{host}")));
        self.origins.contains(&known) || own.into_iter().any(|own| own == known)
    }

    /// Reads the body within its size and time.
    async fn read(&self, headers: &HeaderMap, mut body: Body) -> Result<Bytes, Problem> {
        if headers.contains_key(header::CONTENT_ENCODING) {
            let detail = "the body must not be compressed: send it without `Content-Encoding`";
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Code::InvalidField,
                detail,
            ));
        }
        let limits = self.service.limits();
        let bytes_max = limits.served_body_bytes_max;
        let too_large = || {
            let detail = format!("a body has at most {bytes_max} bytes (`served_body_bytes_max`)");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::Limit, detail).closing()
        };
        if body.size_hint().lower() > bytes_max as u64 {
            // Reading would ask a client that waits for `100 Continue` to send the body.
            if !headers.contains_key(header::EXPECT) {
                self.discard_excess(&mut body).await;
            }
            return Err(too_large());
        }
        let read = Limited::new(&mut body, bytes_max).collect();
        match tokio::time::timeout(Duration::from_millis(limits.served_body_ms), read).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                self.discard_excess(&mut body).await;
                Err(too_large())
            }
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

    /// Reads on for a moment after a body was found too large. If the connection closed while the client
    /// still sends, the client would see a reset and not the response.
    async fn discard_excess(&self, body: &mut Body) {
        let limits = self.service.limits();
        let read = async {
            let mut left = limits.served_excess_bytes_max;
            while let Some(Ok(frame)) = body.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(bytes) else { return };
                left = rest;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(limits.served_excess_ms), read).await;
    }

    /// Authenticates a request, reads its body, and calls the next layer.
    async fn handle(
        &self,
        request: Request,
        next: Next,
        origin: RequestOrigin,
    ) -> Result<Response, Problem> {
        let (mut parts, mut body) = request.into_parts();
        // Before the check, so that no change of the tokens and no end of a session is missed.
        let (check, ended) = (self.credentials.clone(), self.credentials.ended_sessions());
        let identity = self.check(&parts, &origin).await?;
        if is_preflight(&parts) {
            return Ok(preflight());
        }
        let anonymous = || Authenticated::lasting(Principal::anonymous());
        let authenticated =
            identity.as_ref().map_or_else(anonymous, |identity| identity.authenticated.clone());
        parts.extensions.insert(authenticated.who.clone());
        identity.into_iter().for_each(|identity| drop(parts.extensions.insert(identity)));
        let credentials = StreamAuth::credentials(&parts.headers);
        let stream_auth = StreamAuth { authenticated, credentials, check, ended };
        let sign_in = is_sign_in(&parts).then(|| origin.request_id.clone());
        let request_id = origin.request_id.clone();
        parts.extensions.insert(origin);
        if !body.is_end_stream() {
            let bytes = self.read(&parts.headers, body).await?;
            // Our handlers take the bytes; the MCP library takes the body.
            parts.extensions.insert(CollectedBody(bytes.clone()));
            body = Body::from(bytes);
        }
        let response = next.run(Request::from_parts(parts, body)).await;
        if let (Some(id), Some(view)) = (sign_in, response.extensions().get::<ProblemView>()) {
            self.failures.log(&view.detail, SESSION, view.status, id.as_deref());
        }
        if let Some(SignInFailure(error)) = response.extensions().get() {
            let status = sign_in_problem(error, SignInMethods::default()).status().as_u16();
            self.failures.log(&error.to_string(), OIDC_CALLBACK, status, request_id.as_deref());
        }
        Ok(stream_auth.limit(response))
    }
}

/// The host name that a request is sent to, without its port.
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

/// The host name and the port that a request was sent to.
fn host_and_port(uri: &Uri, headers: &HeaderMap) -> String {
    let given = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    uri.authority().map_or_else(|| given.unwrap_or("").to_owned(), ToString::to_string)
}

/// The middleware: authentication, the request log, and the headers of every response.
pub(crate) async fn authenticate(
    State(auth): State<Arc<AuthLayer>>,
    request: Request,
    next: Next,
) -> Response {
    let page = request.headers().get(header::ORIGIN).cloned();
    let host = host_and_port(request.uri(), request.headers());
    let page = page.filter(|page| auth.is_allowed(page, &host));
    let log = RequestLog::of(&request);
    let mut response = match auth.handle(request, next, log.origin.clone()).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    };
    log.answered(&mut response, auth.metrics.as_deref());
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    // The response to a refused page does not name its origin, so its browser hides the response.
    let is_shared = response.extensions().get::<NoCors>().is_none();
    if let Some(page) = page.filter(|_| is_shared) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Whether a request signs in.
fn is_sign_in(request: &Parts) -> bool {
    request.method == Method::POST && request.uri.path() == SESSION
}

/// Why a caller is not signed in, with the ways to sign in.
pub fn sign_in_problem(error: &AuthError, methods: SignInMethods) -> Problem {
    let problem = |status, code| Problem::new(status, code, error.to_string());
    match error {
        AuthError::Unavailable(_) => problem(StatusCode::SERVICE_UNAVAILABLE, Code::Unreachable)
            .with(header::RETRY_AFTER, "5"),
        AuthError::TooOften => {
            problem(StatusCode::TOO_MANY_REQUESTS, Code::Limit).with(header::RETRY_AFTER, "60")
        }
        AuthError::Insufficient(_) => problem(StatusCode::FORBIDDEN, Code::Unauthorized),
        AuthError::Absent
        | AuthError::Unknown
        | AuthError::Expired
        | AuthError::Invalid(_)
        | AuthError::Ended
        | AuthError::Code => problem(StatusCode::UNAUTHORIZED, Code::Unauthorized).sign_in(methods),
    }
}

/// Whether a request is a CORS preflight.
fn is_preflight(request: &Parts) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(header::ORIGIN)
        && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight of an allowed page.
fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PUT, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ACCEPTED));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_the_same_when_a_browser_says_so() {
        let origin = |text| WebOrigin::parse(text);
        assert_eq!(origin("https://App.example"), origin("https://app.example:443"));
        assert_ne!(origin("http://app.example"), origin("https://app.example"));
        assert_ne!(origin("http://app.example"), origin("http://app.example:81"));
        assert_eq!(origin("null"), None);
    }
}
