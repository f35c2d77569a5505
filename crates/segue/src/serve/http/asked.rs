//! A request, for those who look at it later: what it is called, and what became of it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;
use segue_core::run::TraceContext;
use tokio::time::Instant;

use crate::observe::RequestOrigin;
use crate::observe::metrics::Metrics;
use crate::serve::rest::Answered;
use crate::serve::rest::problem;

/// What a request is called by whoever sent it, and by us in the answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest name that a caller may give.
const REQUEST_ID_CHARS: usize = 128;

/// What a request is counted under that has no row in the table.
const NO_ROUTE: &str = "none";

/// A request that was asked.
pub(super) struct Asked {
    /// What it is called, and the trace that it is a part of.
    pub(super) origin: RequestOrigin,
    at: Instant,
    method: Method,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Asked {
        let headers = request.headers();
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let (request_id, trace) = (Some(named(headers)), traceparent.and_then(TraceContext::parse));
        let origin = RequestOrigin { request_id, trace, session_id: None };
        Asked { origin, at: Instant::now(), method: request.method().clone() }
    }

    /// Says what became of it: to the caller what it is called, to us everything else.
    pub(super) fn answered(&self, response: &mut Response, metrics: Option<&Metrics>) {
        let took = self.at.elapsed();
        let route = response.extensions().get::<Answered>();
        let route = route.map_or(NO_ROUTE, |Answered(route)| route.name);
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

/// The caller's own name for a request, if it can stand in a line; else one that we make up.
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
