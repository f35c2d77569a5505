//! The server itself: whether it is there, what it can do, and who did what.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::view::RunStatus;
use segue_runtime::store::{RunQuery, Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::openapi;
use super::page;
use super::problem::Problem;
use super::shapes::Readiness;
use super::visit::{Answer, Visit, json};
use crate::observe::metrics::{GaugeValues, MEDIA_TYPE};

/// Runs that are counted as waiting at most.
const WAITING_MAX: usize = 1_000;

/// How long the answer to whether the store can be written holds.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a store may take to say so.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// `GET /healthz`
pub(super) fn health(_visit: &Visit) -> Answer {
    Ok(text("text/plain; charset=utf-8", "ok\n"))
}

/// `GET /readyz`
pub(super) async fn readiness(visit: Visit) -> Answer {
    let hall = &visit.rest.hall;
    visit.rest.readiness.check(&*hall.store()).await?;
    let readiness = Readiness {
        ready: true,
        compositions: hall.served(&visit.who).offers.iter().count(),
        runs: hall.under_way(&visit.who),
    };
    Ok(json(StatusCode::OK, &readiness))
}

/// Whether the store can be written, as it was found a moment ago. Anybody may ask, and each look costs a
/// sync.
#[derive(Default)]
pub(super) struct Writable {
    last: Mutex<Option<(Instant, Result<(), StoreError>)>>,
}

impl Writable {
    async fn check(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Who comes meanwhile waits for the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < LOOK_EVERY
        {
            return found.clone();
        }
        let slow = |_| Err(StoreError::Unavailable { message: "it does not answer".to_owned() });
        let found = tokio::time::timeout(LOOK_MAX, store.try_write()).await.unwrap_or_else(slow);
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

/// `GET /.well-known/oauth-protected-resource`
pub(super) fn resource(visit: &Visit) -> Answer {
    described(visit, "")
}

/// `GET /.well-known/oauth-protected-resource/mcp`
pub(super) fn resource_of_mcp(visit: &Visit) -> Answer {
    described(visit, "/mcp")
}

fn described(visit: &Visit, path: &str) -> Answer {
    let known = visit.rest.resource.metadata(visit.header("host").unwrap_or(""), path);
    let none = || Problem::not_found("no issuer is configured (`server.oidc`)");
    Ok(json(StatusCode::OK, &known.ok_or_else(none)?))
}

/// `GET /openapi.json`
pub(super) fn document(_visit: &Visit) -> Answer {
    Ok(text("application/json", openapi::text()))
}

/// `GET /docs`
pub(super) fn page(_visit: &Visit) -> Answer {
    let mut response = text("text/html; charset=utf-8", page::text());
    let policy = HeaderValue::from_static(page::POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// `GET /docs/style.css`
pub(super) fn style(_visit: &Visit) -> Answer {
    Ok(text("text/css; charset=utf-8", page::STYLE))
}

fn text(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// `GET /metrics`
pub(super) async fn metrics(visit: Visit) -> Answer {
    let (rest, hall) = (&visit.rest, &visit.rest.hall);
    let Some(metrics) = &hall.observing().metrics else {
        return Err(Problem::not_found("nothing is counted here"));
    };
    let (engine, statuses) = (hall.everything().engine, vec![RunStatus::Waiting]);
    let query = RunQuery { statuses, limit: WAITING_MAX, ..RunQuery::default() };
    // Numbers without names: they are of everybody's runs, whoever looks.
    let everybody = Principal::administrator("metrics");
    let figures = GaugeValues {
        active: hall.under_way(&everybody),
        waiting: engine.store().runs(&query).await?.runs.len(),
        followers: rest.followers.count(),
        store: engine.store().figures(),
    };
    let mut response = Response::new(Body::from(metrics.render(&figures)));
    let kind = HeaderValue::from_static(MEDIA_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The run that an answer is about, for those who say what was done.
#[derive(Clone)]
pub(super) struct RunId(pub(super) Arc<str>);
