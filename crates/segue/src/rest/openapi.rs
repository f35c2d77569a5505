//! The tables of routes as OpenAPI 3.1, with the JSON Schemas of our types.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use segue_core::access::Right;
use serde_json::{Map, Value as Json, json};

use crate::http::problem::{PROBLEM_JSON, ProblemView};
use crate::http::route::{ParameterKind, ResponseContent, Route};

const ABOUT: &str = "Composes tools into one reliable tool. Every request needs a token: \
`Authorization: Bearer …`. Bodies are JSON. An error is a problem (RFC 9457) whose `code` has a \
page in the manual.";

/// The document, as text.
pub fn text(routes: &[&'static Route]) -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = serde_json::to_string_pretty(&document(routes)).unwrap_or_default();
        text.push('\n');
        text
    })
}

/// The document.
pub fn document(routes: &[&'static Route]) -> Json {
    let settings = |settings: SchemaSettings| {
        let settings = settings.with(|s| s.definitions_path = "/components/schemas".into());
        settings.into_generator()
    };
    // A request may leave out members with a default; a response has them.
    let mut read = settings(SchemaSettings::draft2020_12().for_deserialize());
    let mut written = settings(SchemaSettings::draft2020_12().for_serialize());
    let mut paths = Map::new();
    for route in routes.iter().filter(|route| route.has_handler()) {
        let operation = operation(route, &mut read, &mut written);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.as_str().to_lowercase()] = operation;
    }
    let mut schemas = written.take_definitions(true);
    schemas.extend(read.take_definitions(true));
    let mut names: Vec<(String, Json)> = schemas.into_iter().collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Segue",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": names.into_iter().collect::<Map<_, _>>(),
        },
    })
}

fn operation(route: &Route, read: &mut SchemaGenerator, written: &mut SchemaGenerator) -> Json {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.about,
        "tags": [tag(route)],
        "x-right": route.right.as_str(),
    });
    if !route.more.is_empty() {
        operation["description"] = json!(route.more);
    }
    if route.right == Right::Public {
        operation["security"] = json!([]);
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": body.is_required,
            "content": { "application/json": { "schema": (body.shape)(read) } },
        });
    }
    operation["responses"] = responses(route, written);
    operation
}

fn parameters(route: &Route) -> Vec<Json> {
    let parts = route.parts().map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let queries = route.parameters.iter().map(|parameter| {
        let schema = match parameter.kind {
            ParameterKind::Text => json!({ "type": "string" }),
            ParameterKind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            ParameterKind::Flag => json!({ "type": "boolean" }),
            ParameterKind::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            ParameterKind::Word(words) => json!({ "type": "string", "enum": words() }),
            ParameterKind::Words(words) => {
                json!({ "type": "array", "items": { "type": "string", "enum": words() } })
            }
        };
        json!({
            "name": parameter.name, "in": "query", "required": parameter.is_required,
            "description": parameter.about, "schema": schema,
        })
    });
    let headers = route.headers.iter().map(|(name, about)| {
        json!({
            "name": name, "in": "header", "required": false,
            "description": about, "schema": { "type": "string" },
        })
    });
    parts.chain(queries).chain(headers).collect()
}

fn responses(route: &Route, written: &mut SchemaGenerator) -> Json {
    let mut responses = Map::new();
    for spec in route.responses {
        let mut response = json!({ "description": spec.about });
        match spec.content {
            ResponseContent::Nothing => {}
            ResponseContent::Json(shape) => {
                response["content"] = json!({ "application/json": { "schema": shape(written) } });
            }
            ResponseContent::Other(kind) => response["content"] = json!({ kind: {} }),
        }
        responses.insert(spec.status.to_string(), response);
    }
    let problem = written.subschema_for::<ProblemView>();
    for status in problems(route) {
        let response = json!({
            "description": reason(status),
            "content": { PROBLEM_JSON: { "schema": problem } },
        });
        responses.insert(status.to_string(), response);
    }
    responses.into()
}

/// The statuses of every problem that a route may answer with.
pub fn problems(route: &Route) -> BTreeSet<u16> {
    let mut statuses = BTreeSet::from([400, 403, 500, 503]);
    if route.right != Right::Public {
        statuses.insert(401);
    }
    // Any request may have a body, wanted or not.
    statuses.extend([408, 413, 415]);
    if route.body.is_some() {
        statuses.insert(422);
    }
    statuses.extend(route.problems);
    statuses
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "it cannot be read",
        401 => "the token is missing or wrong",
        403 => "the host, the origin or the rights are not allowed",
        404 => "something that the request names does not exist",
        408 => "the body did not arrive in time",
        409 => "the state of a run, a plan or a template does not allow it",
        412 => "a file holds another text than the request expects",
        413 => "the body is too large",
        415 => "the body is not plain JSON",
        422 => "the request can be read and makes no sense; `diagnostics` says where",
        500 => "a fault of Segue itself",
        502 => "the model gave no plan",
        503 => "the server is busy; `Retry-After` says when to try again",
        _ => "a problem",
    }
}

/// The part of the path that routes are grouped by.
pub(super) fn tag(route: &Route) -> &'static str {
    let rest = route.path.strip_prefix("/api/v1/").unwrap_or("server");
    match rest.split('/').next().unwrap_or("server") {
        "compositions" if rest.contains("templates") => "templates",
        other => other,
    }
}
