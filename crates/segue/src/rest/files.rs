//! The files of compositions: list, read, save, rename and delete. An entity tag is the hash of a text.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::compositions::add_location;
use crate::api::files::{self, FilePrecondition};
use crate::api::requests::{RenameFile, SaveFile};
use crate::http::problem::Problem;
use crate::http::request::{ApiRequest, HandlerResult, json, no_content};

/// `GET /api/v1/files`
pub(super) fn list(request: &ApiRequest) -> HandlerResult {
    Ok(json(StatusCode::OK, &files::list(request.service(), &request.who)))
}

/// `GET /api/v1/files/{path}`
pub(super) fn get(request: &ApiRequest) -> HandlerResult {
    let file = files::read(request.service(), &request.who, request.part("path"))?;
    Ok(tagged(json(StatusCode::OK, &file), &file.hash))
}

/// `PUT /api/v1/files/{path}`
pub(super) fn put(request: &ApiRequest) -> HandlerResult {
    let (precondition, path) = (precondition(request)?, request.part("path"));
    let wanted: SaveFile = request.read()?;
    let saved = files::save(request.service(), &request.who, path, &wanted, &precondition)?;
    let (file, is_new) = saved;
    let mut response = json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &file);
    if is_new {
        add_location(&mut response, &address(&file.path));
    }
    Ok(tagged(response, &file.hash))
}

/// `DELETE /api/v1/files/{path}`
pub(super) fn delete(request: &ApiRequest) -> HandlerResult {
    let (precondition, path) = (precondition(request)?, request.part("path"));
    files::delete(request.service(), &request.who, path, &precondition)?;
    Ok(no_content())
}

/// `POST /api/v1/files/{path}/rename`
pub(super) fn rename(request: &ApiRequest) -> HandlerResult {
    let (precondition, path) = (precondition(request)?, request.part("path"));
    let wanted: RenameFile = request.read()?;
    let file = files::rename(request.service(), &request.who, path, &wanted, &precondition)?;
    let mut response = json(StatusCode::OK, &file);
    add_location(&mut response, &address(&file.path));
    Ok(tagged(response, &file.hash))
}

fn precondition(request: &ApiRequest) -> Result<FilePrecondition, Problem> {
    Ok(FilePrecondition::of(request.header("if-match"), request.header("if-none-match"))?)
}

/// The address of a file. Its path is one part of the address, so `/` is written `%2F`.
fn address(path: &str) -> String {
    let part: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
    format!("/api/v1/files/{}", part.replace('+', "%20"))
}

fn tagged(mut response: Response, hash: &str) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
