//! The log of requests: their ids, their metrics and their results.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use segue_core::run::TraceContext;
use tokio::time::Instant;

use super::problem;
use super::route::MatchedRoute;
use crate::observe::RequestOrigin;
use crate::observe::metrics::Metrics;

/// The header with the id of a request, which its client or the server chooses.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that a client may choose.
const REQUEST_ID_CHARS: usize = 128;

/// The route in metrics of a request that has none.
const NO_ROUTE: &str = "none";

/// A request that is being answered.
pub(super) struct RequestLog {
    /// Its id and its trace.
    pub(super) origin: RequestOrigin,
    at: Instant,
    method: Method,
}

impl RequestLog {
    pub(super) fn of(request: &Request) -> RequestLog {
        let headers = request.headers();
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let (request_id, trace) = (Some(named(headers)), traceparent.and_then(TraceContext::parse));
        let origin = RequestOrigin { request_id, trace, session_id: None };
        RequestLog { origin, at: Instant::now(), method: request.method().clone() }
    }

    /// Logs and counts the response, and adds the id of the request to it.
    pub(super) fn answered(&self, response: &mut Response, metrics: Option<&Metrics>) {
        let took = self.at.elapsed();
        let route = response.extensions().get::<MatchedRoute>();
        let route = route.map_or(NO_ROUTE, |MatchedRoute(route)| route.name);
        let status = response.status().as_u16();
        if let Some(metrics) = metrics {
            metrics.count_request(route, status, took);
        }
        let http_request_id = self.origin.request_id.as_deref().unwrap_or_default();
        tracing::debug!(
            target: "segue::http", http_request_id, method = self.method.as_str(), route, status,
            duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX), "request answered"
        );
        problem::name_request(response, http_request_id);
        if let Ok(value) = HeaderValue::from_str(http_request_id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
    }
}

/// The client's id of a request, if it can stand in a log; else a new one.
fn named(headers: &HeaderMap) -> Arc<str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_sane =
        |name: &&str| (1..=REQUEST_ID_CHARS).contains(&name.len()) && name.bytes().all(is_plain);
    given.filter(is_sane).map_or_else(|| uuid::Uuid::now_v7().to_string().into(), Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_if_it_can_stand_in_a_line() {
        let name = |given: &str| {
            let value = HeaderValue::from_bytes(given.as_bytes()).unwrap();
            named(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(&*name("abc-1.2_3:4"), "abc-1.2_3:4");
        for odd in ["", "a b", "a\"b", "{}", &"x".repeat(129)] {
            assert_ne!(&*name(odd), odd);
            assert_eq!(name(odd).len(), 36);
        }
        assert_ne!(named(&HeaderMap::new()), named(&HeaderMap::new()));
    }
}
