//! The language service for editors.

use axum::http::StatusCode;

use crate::api::language;
use crate::http::request::{ApiRequest, HandlerResult, json};

/// `POST /api/v1/language/analyze`
pub(super) fn analyze(request: &ApiRequest) -> HandlerResult {
    let answer = language::analyze(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/complete`
pub(super) async fn complete(request: ApiRequest) -> HandlerResult {
    let answer = language::complete(request.service(), &request.who, &request.read()?).await?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/hover`
pub(super) async fn hover(request: ApiRequest) -> HandlerResult {
    let answer = language::hover(request.service(), &request.who, &request.read()?).await?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/references`
pub(super) fn references(request: &ApiRequest) -> HandlerResult {
    let answer = language::references(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/rename`
pub(super) fn rename(request: &ApiRequest) -> HandlerResult {
    let answer = language::rename(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/actions`
pub(super) fn actions(request: &ApiRequest) -> HandlerResult {
    let answer = language::actions(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/edit`
pub(super) fn edit(request: &ApiRequest) -> HandlerResult {
    let answer = language::edit_text(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/preview`
pub(super) async fn preview(request: ApiRequest) -> HandlerResult {
    let answer = language::preview(request.service(), &request.who, &request.read()?).await?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/pin`
pub(super) fn pin(request: &ApiRequest) -> HandlerResult {
    let answer = language::pin_output(request.service(), &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}

/// `POST /api/v1/language/compare`
pub(super) fn compare(request: &ApiRequest) -> HandlerResult {
    let answer = language::compare_texts(request.service(), &request.who, &request.read()?)?;
    Ok(json(StatusCode::OK, &answer))
}
