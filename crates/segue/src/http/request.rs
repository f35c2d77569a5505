//! A request to a handler: its principal, path, query, headers and body, checked against its route.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::diagnostic::{Code, nearest_name};
use segue_core::document::read_json_value;
use segue_core::value::Value;
use serde::Serialize;

use super::auth::{CredentialCheck, Identity, ResourceMetadata};
use super::problem::Problem;
use super::readiness::StoreProbe;
use super::route::{ParameterKind, Route};
use crate::api::requests::{self, Request as Parsed};
use crate::api::runs::RunService;
use crate::api::runs::events::EventReaders;
use crate::observe::RequestOrigin;

/// What a handler answers.
pub type HandlerResult = Result<Response, Problem>;

/// The body of a request, which the auth layer has read.
#[derive(Clone, Debug, Default)]
pub struct CollectedBody(pub Bytes);

/// What the handlers of REST and GraphQL share.
pub struct HandlerState {
    /// The service.
    pub service: Arc<RunService>,
    /// The clients that follow runs.
    pub readers: Arc<EventReaders>,
    /// Which tokens and cookies are accepted.
    pub credentials: CredentialCheck,
    /// Who issues tokens for this server.
    pub metadata: ResourceMetadata,
    /// Whether the store can be written.
    pub store_probe: StoreProbe,
    /// Every route that is documented.
    pub routes: Vec<&'static Route>,
}

/// A request whose principal may call its route.
pub struct ApiRequest {
    /// What handlers share.
    pub state: Arc<HandlerState>,
    /// The principal.
    pub who: Principal,
    /// The principal with its session; nothing if the caller did not authenticate.
    pub identity: Option<Identity>,
    /// The ids of the request, for logs and traces.
    pub origin: RequestOrigin,
    body: Value,
    headers: HeaderMap,
    path: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl ApiRequest {
    pub(super) fn new(
        state: Arc<HandlerState>,
        route: &'static Route,
        path: Vec<(String, String)>,
        who: Principal,
        request: Request,
    ) -> Result<ApiRequest, Problem> {
        let (mut parts, _) = request.into_parts();
        let origin = parts.extensions.remove::<RequestOrigin>().unwrap_or_default();
        let identity = parts.extensions.remove::<Identity>();
        let query = parts.uri.query().unwrap_or("");
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect::<Vec<_>>();
        check_query(route, &query)?;
        let CollectedBody(bytes) = parts.extensions.remove().unwrap_or_default();
        let body = read_body(&state.service, route, &parts.headers, &bytes)?;
        Ok(ApiRequest { state, who, identity, origin, body, headers: parts.headers, path, query })
    }

    /// The service.
    pub fn service(&self) -> &Arc<RunService> {
        &self.state.service
    }

    /// The body, as the request of the service that it is.
    pub fn read<T: Parsed>(&self) -> Result<T, Problem> {
        Ok(requests::read(&self.body)?)
    }

    /// A part of the path.
    pub fn part(&self, name: &str) -> &str {
        self.path.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.queries(name).next()
    }

    /// Every parameter of this name.
    pub fn queries(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A header, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How long the caller waits for a run before it gets a reference. `Prefer: respond-async` does not
    /// wait; `Prefer: wait=5` waits five seconds.
    pub fn wait_timeout(&self) -> Duration {
        let longest = Duration::from_millis(self.service().limits().served_wait_ms_max);
        let preferences = self.headers.get_all("prefer").iter();
        let preferences = preferences.filter_map(|preference| preference.to_str().ok());
        let mut timeout = longest;
        for preference in preferences.flat_map(|text| text.split([',', ';'])).map(str::trim) {
            if preference.eq_ignore_ascii_case("respond-async") {
                return Duration::ZERO;
            }
            let seconds = preference.strip_prefix("wait=").and_then(|text| text.parse().ok());
            timeout = seconds.map_or(timeout, |seconds| Duration::from_secs(seconds).min(longest));
        }
        timeout
    }
}

/// Refuses parameters that the route does not list, and values that they do not take.
fn check_query(route: &Route, query: &[(String, String)]) -> Result<(), Problem> {
    for (at, (name, value)) in query.iter().enumerate() {
        let bad = |detail| Err(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail));
        let Some(known) = route.parameters.iter().find(|known| known.name == name) else {
            let names = route.parameters.iter().map(|known| known.name);
            let problem = bad(format!("there is no parameter `{name}`"));
            return match nearest_name(name, names) {
                Some(near) => problem.map_err(|p| p.help(format!("did you mean `{near}`?"))),
                None => problem,
            };
        };
        let is_first = query[..at].iter().all(|(other, _)| other != name);
        let repeats = matches!(known.kind, ParameterKind::Words(_) | ParameterKind::Texts);
        if !is_first && !repeats {
            return bad(format!("`{name}` is there more than once"));
        }
        if let Some(detail) = known.kind.problem_with(value) {
            return bad(format!("`{name}` {detail}"));
        }
    }
    Ok(())
}

/// The body as JSON; an empty object for a route without one.
fn read_body(
    service: &RunService,
    route: &Route,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Value, Problem> {
    let Some(body) = route.body else { return Ok(Value::empty_object()) };
    if bytes.is_empty() && !body.is_required {
        return Ok(Value::empty_object());
    }
    if let Some((name, limit)) = body.limit {
        let most = limit(&service.limits());
        if bytes.len() > most {
            let detail = format!("a body has at most {most} bytes here (`{name}`)");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::Limit, detail));
        }
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let detail = "the body must be JSON: `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidField, detail));
    }
    let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, Code::Parse, detail);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8".to_owned()))?;
    read_json_value(text, &service.limits()).map_err(|finding| bad(finding.message.clone()))
}

/// A response of JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_string(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response without a body.
pub fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
