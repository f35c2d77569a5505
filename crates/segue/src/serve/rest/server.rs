//! The server itself: whether it is there, what it can do, and who did what.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::value::Value;
use segue_core::view::rfc3339;
use segue_runtime::driver::now_ms;
use segue_runtime::store::RunQuery;

use super::openapi;
use super::page;
use super::routes::Route;
use super::shapes::Readiness;
use super::visit::{Answer, Visit, json};
use crate::serve::http::Principal;

/// `GET /healthz`
pub(super) fn health(_visit: &Visit) -> Answer {
    Ok(text("text/plain; charset=utf-8", "ok\n"))
}

/// `GET /readyz`
pub(super) async fn readiness(visit: Visit) -> Answer {
    let hall = &visit.rest.hall;
    let query = RunQuery { limit: 1, ..RunQuery::default() };
    hall.engine().store().runs(&query).await?;
    let readiness = Readiness {
        ready: true,
        compositions: hall.served().offers.iter().count(),
        runs: hall.under_way(),
    };
    Ok(json(StatusCode::OK, &readiness))
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

/// Who did what, in a line for programs.
pub(super) fn audit_line(
    route: &Route,
    who: &Principal,
    path: &str,
    response: &Response,
) -> String {
    let run_id = response.extensions().get::<RunId>().map(|RunId(run_id)| &**run_id);
    Value::object([
        ("audit", Value::from(rfc3339(now_ms()))),
        ("who", Value::from(&*who.name)),
        ("what", Value::from(route.name)),
        ("path", Value::from(path)),
        ("run_id", run_id.map_or(Value::Null, Value::from)),
        ("status", Value::from(u64::from(response.status().as_u16()))),
    ])
    .to_json()
}

/// The run that an answer is about, for those who say what was done.
#[derive(Clone)]
pub(super) struct RunId(pub(super) Arc<str>);
