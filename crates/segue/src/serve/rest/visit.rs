//! A request, held against its row of the table: what it may carry, and what it carries.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, Collected};
use segue_core::access::Principal;
use segue_core::diagnostic::{Code, nearest_name};
use segue_core::document::read_json_value;
use segue_core::schema::Schema;
use segue_core::value::Value;
use serde::Serialize;

use super::Rest;
use super::problem::Problem;
use super::routes::{Kind, Route};
use crate::observe::RequestOrigin;

/// What a handler answers.
pub type Answer = Result<Response, Problem>;

/// Somebody who asks for something that they may have.
pub struct Visit {
    /// What the door works with.
    pub rest: Arc<Rest>,
    /// Who it is.
    pub who: Principal,
    /// Where what they ask for comes from.
    pub origin: RequestOrigin,
    /// What they sent, or an empty object.
    pub body: Value,
    headers: HeaderMap,
    path: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl Visit {
    pub(super) async fn new(
        rest: Arc<Rest>,
        route: &'static Route,
        path: Vec<(String, String)>,
        who: Principal,
        request: Request,
    ) -> Result<Visit, Problem> {
        let (mut parts, body) = request.into_parts();
        let origin = parts.extensions.remove::<RequestOrigin>().unwrap_or_default();
        let query = parts.uri.query().unwrap_or("");
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect::<Vec<_>>();
        check_query(route, &query)?;
        let bytes = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let body = read_body(&rest, route, &parts.headers, &bytes)?;
        Ok(Visit { rest, who, origin, body, headers: parts.headers, path, query })
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

    /// How long the caller waits for a run before it gets a reference: `Prefer: respond-async` is not at
    /// all, `Prefer: wait=5` five seconds.
    pub fn patience(&self) -> Duration {
        let longest = Duration::from_millis(self.rest.hall.limits().served_wait_ms_max);
        let wishes = self.headers.get_all("prefer").iter().filter_map(|wish| wish.to_str().ok());
        let mut patience = longest;
        for wish in wishes.flat_map(|wish| wish.split([',', ';'])).map(str::trim) {
            if wish.eq_ignore_ascii_case("respond-async") {
                return Duration::ZERO;
            }
            let seconds = wish.strip_prefix("wait=").and_then(|seconds| seconds.parse().ok());
            patience =
                seconds.map_or(patience, |seconds| Duration::from_secs(seconds).min(longest));
        }
        patience
    }
}

/// Whatever the table does not list is a mistake, and is said to be one.
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
        if !is_first && !matches!(known.kind, Kind::Words(_)) {
            return bad(format!("`{name}` is there more than once"));
        }
        if let Some(detail) = known.kind.misfit(value) {
            return bad(format!("`{name}` {detail}"));
        }
    }
    Ok(())
}

fn read_body(
    rest: &Rest,
    route: &Route,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Value, Problem> {
    let Some(schema) = rest.bodies.get(route.name) else { return Ok(Value::empty_object()) };
    if bytes.is_empty() && route.body.is_some_and(|body| !body.is_required) {
        return Ok(Value::empty_object());
    }
    if let Some((name, limit)) = route.body.and_then(|body| body.limit) {
        let most = limit(&rest.hall.limits());
        if bytes.len() > most {
            let detail = format!("a body has at most {most} bytes here (`{name}`)");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::Limit, detail));
        }
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let detail = "a body is JSON and says so: `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidField, detail));
    }
    let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, Code::Parse, detail);
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8".to_owned()))?;
    let value = read_json_value(text, &rest.hall.limits())
        .map_err(|finding| bad(finding.message.clone()))?;
    fits(schema, &value)?;
    Ok(value)
}

/// What is wrong with a body of this shape.
pub(super) fn fits(schema: &Schema, body: &Value) -> Result<(), Problem> {
    if body.as_array().is_some() {
        let detail = "a request holds one thing: the body is an object, not a list of them";
        return Err(Problem::wrong(Code::InvalidField, detail));
    }
    match schema.violations(body).first() {
        None => Ok(()),
        Some(violation) => {
            let detail = format!("the body does not fit: {violation}");
            Err(Problem::wrong(Code::InvalidField, detail))
        }
    }
}

/// An answer of JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_string(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
