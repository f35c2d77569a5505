//! Templates: list, read, create, replace and delete.

use axum::http::StatusCode;

use super::compositions::add_location;
use crate::api::requests::PutTemplate;
use crate::api::responses::TemplateList;
use crate::api::templates;
use crate::http::request::{ApiRequest, HandlerResult, json, no_content};

/// `GET /api/v1/compositions/templates`
pub(super) async fn list(request: ApiRequest) -> HandlerResult {
    let search = request.query("search").unwrap_or("");
    let templates = templates::list(request.service(), &request.who, search).await?;
    Ok(json(StatusCode::OK, &TemplateList { templates }))
}

/// `GET /api/v1/compositions/templates/{id}`
pub(super) async fn get(request: ApiRequest) -> HandlerResult {
    let template = templates::find(request.service(), &request.who, request.part("id")).await?;
    Ok(json(StatusCode::OK, &template))
}

/// `POST /api/v1/compositions/templates`
pub(super) async fn create(request: ApiRequest) -> HandlerResult {
    let template: PutTemplate = request.read()?;
    let stored = templates::create(request.service(), &request.who, template, false).await?;
    let mut response = json(StatusCode::CREATED, &stored);
    add_location(&mut response, &format!("/api/v1/compositions/templates/{}", stored.id));
    Ok(response)
}

/// `PUT /api/v1/compositions/templates/{id}`
pub(super) async fn put(request: ApiRequest) -> HandlerResult {
    let (template, id) = (request.read::<PutTemplate>()?, request.part("id"));
    let (stored, is_new) = templates::put(request.service(), &request.who, id, template).await?;
    Ok(json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &stored))
}

/// `DELETE /api/v1/compositions/templates/{id}`
pub(super) async fn delete(request: ApiRequest) -> HandlerResult {
    templates::delete(request.service(), &request.who, request.part("id")).await?;
    Ok(no_content())
}
