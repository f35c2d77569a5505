//! Tools, and toolsets for other hosts.

use axum::http::StatusCode;
use segue_core::diagnostic::Code;
use segue_core::expose::ExportFormat;

use crate::api::error::{Error, ErrorKind};
use crate::api::tools::{self, ToolList};
use crate::http::request::{ApiRequest, HandlerResult, json};

/// `GET /api/v1/tools`
pub(super) fn list(request: &ApiRequest) -> HandlerResult {
    let search = request.query("search").unwrap_or("");
    let tools = tools::list(request.service(), &request.who, search);
    Ok(json(StatusCode::OK, &ToolList { tools }))
}

/// `GET /api/v1/tools/{id}`
pub(super) fn get(request: &ApiRequest) -> HandlerResult {
    let tool = tools::find(request.service(), &request.who, request.part("id"))?;
    Ok(json(StatusCode::OK, &tool))
}

/// `GET /api/v1/toolsets/{name}/export`
pub(super) fn export(request: &ApiRequest) -> HandlerResult {
    let Some(format) = request.query("format").and_then(ExportFormat::parse) else {
        let message = "`format` is needed: the shape that the host takes";
        return Err(Error::new(ErrorKind::Malformed, Code::NilAdapter, message).into());
    };
    let (name, is_strict) = (request.part("name"), request.query("strict") == Some("true"));
    let report = tools::export(request.service(), &request.who, name, format, is_strict)?;
    Ok(json(StatusCode::OK, &report))
}
