//! REST: every response matches the OpenAPI document.

mod door;
mod execute;
mod files;
mod language;
mod load;
mod oidc;
mod page_api;
mod partial;
pub(crate) mod plans;
mod reload;
mod rights;
mod runs;
mod walk;

use std::sync::OnceLock;

use segue::rest::openapi;
use segue::server;

use crate::serve::{CONFIG, DOUBLE};
use crate::served::{Answer, Served};
use crate::support::{Json, World, json};

/// A server in a world with these lines of configuration more.
pub(crate) fn served(more: &str) -> (World, Served) {
    let world = world(more);
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

fn world(more: &str) -> World {
    let world = World::new();
    let server = if more.contains("server:") {
        ""
    } else {
        "server: { token: open-sesame-open-sesame-open-sesame }\n"
    };
    world.file("segue.yaml", format!("{CONFIG}{server}{more}"));
    world.file("lib/double.yaml", DOUBLE);
    world
}

/// A composition of one step.
fn one(tool: &str, parameters: &Json) -> Json {
    json!({ "name": "one", "steps": [
        { "id": "a", "tool": tool, "parameters": parameters, "output_key": "a" }] })
}

fn document() -> &'static Json {
    static DOCUMENT: OnceLock<Json> = OnceLock::new();
    DOCUMENT.get_or_init(|| openapi::document(&server::routes()))
}

/// Fails unless an answer is one that the document lists for its route, and has its shape.
#[track_caller]
pub(crate) fn documented(method: &str, path: &str, answer: &Answer) {
    let path = path.split('?').next().unwrap();
    let fits = |template: &str| {
        let (parts, given) = (template.split('/'), path.split('/'));
        parts.clone().count() == given.clone().count()
            && parts.zip(given).all(|(part, given)| part.starts_with('{') || part == given)
    };
    let paths = document()["paths"].as_object().unwrap();
    // One that is written out comes before one with parts to fill in.
    let known = paths.get(path).or_else(|| paths.iter().find(|(p, _)| fits(p)).map(|(_, p)| p));
    let Some(operation) = known.and_then(|known| known.get(method.to_lowercase())) else {
        assert!(matches!(answer.status, 401 | 403 | 404 | 405), "{method} {path}: {answer:?}");
        return;
    };
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{method} {path}: {answer:?} is not documented");
    let kind =
        answer.headers.get("content-type").map_or("", |kind| kind.split(';').next().unwrap());
    let Some(content) = response.get("content") else {
        return assert_eq!(answer.body, "", "{method} {path}");
    };
    let content = content.get(kind).unwrap_or_else(|| panic!("{kind} of {method} {path}"));
    let Some(schema) = content.get("schema") else { return };
    let schema = json!({ "allOf": [schema], "components": document()["components"] });
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = schema
        .iter_errors(&answer.json())
        .map(|e| format!("{} at {}", e, e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{method} {path}: {errors:?} in {}", answer.body);
}

/// A test that holds answers against the document notices when one does not fit.
#[test]
#[should_panic(expected = "is not documented")]
fn an_answer_that_is_not_documented_is_noticed() {
    let answer = Answer { status: 418, headers: [].into(), body: String::new() };
    documented("GET", "/api/v1/runs", &answer);
}

/// The document in the repository is the served one; the page and its style need nothing else.
#[test]
fn the_document_is_served_and_current() {
    let (_world, served) = served("");
    assert_eq!(served.get("/openapi.json").body, server::openapi());
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/openapi.json");
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    assert!(committed == server::openapi(), "`just gen` writes `schema/openapi.json`");
    let page = served.ask("GET", "/docs", &[], "");
    assert!(page.headers["content-security-policy"].starts_with("default-src 'none'"));
    for foreign in ["<script", "http://", "https://", "style=\""] {
        assert!(!page.body.contains(foreign), "{foreign}");
    }
    assert!(page.body.contains("/api/v1/compositions/execute"));
    assert!(served.ask("GET", "/docs/style.css", &[], "").body.contains("font"));
}

#[test]
fn the_document_names_each_operation_once_and_has_every_shape() {
    let text = server::openapi();
    let document = document();
    for at in text.split("\"$ref\": \"#").skip(1) {
        let pointer = at.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
    let operations = document["paths"].as_object().unwrap().values().flat_map(|path| {
        path.as_object().unwrap().values().map(|o| o["operationId"].as_str().unwrap())
    });
    let mut names: Vec<&str> = operations.collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 22, "{count}");
}
