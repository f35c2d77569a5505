//! The server itself: health, readiness, metrics, documentation and token metadata.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::view::RunStatus;
use segue_runtime::store::RunQuery;

use super::{docs_page, openapi};
use crate::api::error::Error;
use crate::api::responses::Readiness;
use crate::http::request::{ApiRequest, HandlerResult, json};
use crate::observe::metrics::{GaugeValues, MEDIA_TYPE};

/// How many waiting runs are counted at most.
const WAITING_MAX: usize = 1_000;

/// `GET /healthz`
pub(super) fn health(_request: &ApiRequest) -> HandlerResult {
    Ok(text("text/plain; charset=utf-8", "ok\n"))
}

/// `GET /readyz`
pub(super) async fn readiness(request: ApiRequest) -> HandlerResult {
    let (service, who) = (request.service(), &request.who);
    request.state.store_probe.check(&*service.store()).await.map_err(Error::from)?;
    let readiness = Readiness {
        ready: true,
        compositions: service.catalog(who).tools.iter().count(),
        runs: service.active_count(who),
    };
    Ok(json(StatusCode::OK, &readiness))
}

/// `GET /.well-known/oauth-protected-resource`
pub(super) fn resource(request: &ApiRequest) -> HandlerResult {
    metadata(request, "")
}

/// `GET /.well-known/oauth-protected-resource/mcp`
pub(super) fn resource_of_mcp(request: &ApiRequest) -> HandlerResult {
    metadata(request, "/mcp")
}

fn metadata(request: &ApiRequest, path: &str) -> HandlerResult {
    let known = request.state.metadata.of(request.header("host").unwrap_or(""), path);
    let none = || Error::not_found("no issuer is configured (`server.oidc`)");
    Ok(json(StatusCode::OK, &known.ok_or_else(none)?))
}

/// `GET /openapi.json`
pub(super) fn document(request: &ApiRequest) -> HandlerResult {
    Ok(text("application/json", openapi::text(&request.state.routes)))
}

/// `GET /docs`
pub(super) fn page(request: &ApiRequest) -> HandlerResult {
    let mut response = text("text/html; charset=utf-8", docs_page::text(&request.state.routes));
    let policy = HeaderValue::from_static(docs_page::POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// `GET /docs/style.css`
pub(super) fn style(_request: &ApiRequest) -> HandlerResult {
    Ok(text("text/css; charset=utf-8", docs_page::STYLE))
}

fn text(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// `GET /metrics`
pub(super) async fn metrics(request: ApiRequest) -> HandlerResult {
    let service = request.service();
    let Some(metrics) = &service.observing().metrics else {
        return Err(Error::not_found("this server has no metrics").into());
    };
    let (engine, statuses) = (service.full_catalog().engine, vec![RunStatus::Waiting]);
    let query = RunQuery { statuses, limit: WAITING_MAX, ..RunQuery::default() };
    // The counts are of all runs, whichever principal reads them.
    let everybody = Principal::administrator("metrics");
    let figures = GaugeValues {
        active: service.active_count(&everybody),
        waiting: engine.store().runs(&query).await.map_err(Error::from)?.runs.len(),
        followers: request.state.readers.count(),
        store: engine.store().figures(),
    };
    let mut response = Response::new(Body::from(metrics.render(&figures)));
    let kind = HeaderValue::from_static(MEDIA_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
