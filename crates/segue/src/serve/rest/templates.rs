//! Templates: compositions to start from.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::diagnostic::Code;
use segue_core::value::{Map, Value};
use segue_core::view::TemplateView;
use segue_runtime::library::Library;

use super::problem::Problem;
use super::shapes::TemplateList;
use super::visit::{Answer, Visit, json};
use crate::serve::execution::keep_template;

fn library(visit: &Visit) -> Library {
    visit.rest.hall.served(&visit.who).library
}

/// `GET /api/v1/compositions/templates`
pub(super) async fn list(visit: Visit) -> Answer {
    let templates = library(&visit).list(visit.query("search").unwrap_or("")).await?;
    Ok(json(StatusCode::OK, &TemplateList { templates }))
}

/// `GET /api/v1/compositions/templates/{id}`
pub(super) async fn get(visit: Visit) -> Answer {
    Ok(json(StatusCode::OK, &library(&visit).get(visit.part("id")).await?))
}

/// `POST /api/v1/compositions/templates`
pub(super) async fn create(visit: Visit) -> Answer {
    let Some(id) = visit.body.get("id").and_then(Value::as_str) else {
        return Err(Problem::wrong(Code::InvalidField, "a new template needs an `id`"));
    };
    let kept = keep(&visit, id, false).await?;
    let mut response = json(StatusCode::CREATED, &kept);
    if let Ok(at) = HeaderValue::from_str(&format!("/api/v1/compositions/templates/{id}")) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// `PUT /api/v1/compositions/templates/{id}`
pub(super) async fn put(visit: Visit) -> Answer {
    let id = visit.part("id");
    if visit.body.get("id").and_then(Value::as_str).is_some_and(|given| given != id) {
        let detail = "`id` is another one than that of the path";
        return Err(Problem::wrong(Code::InvalidField, detail));
    }
    let is_new = library(&visit).stored_template(id).await.is_err();
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &keep(&visit, id, true).await?))
}

/// `DELETE /api/v1/compositions/templates/{id}`
pub(super) async fn delete(visit: Visit) -> Answer {
    library(&visit).remove(visit.part("id")).await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

async fn keep(visit: &Visit, id: &str, may_replace: bool) -> Result<TemplateView, Problem> {
    let given = visit.body.as_object().map(|given| (**given).clone()).unwrap_or_default();
    let mut given: Map = given.into_iter().filter(|(_, value)| !value.is_null()).collect();
    given.shift_insert(0, "id".into(), id.into());
    Ok(keep_template(&visit.rest.hall, &visit.who, given, may_replace).await?)
}
