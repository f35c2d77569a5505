//! The OpenAPI document for people: one page without scripts and without files of other servers.

use std::fmt::Write as _;
use std::sync::OnceLock;

use serde_json::Value as Json;

use super::openapi::{self, tag};
use crate::http::route::Route;

/// The page loads only our own style, and no other page may frame it.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
code { font: 0.9em/1.4 ui-monospace, monospace; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); text-transform: capitalize; }
h3 { margin: 1.5rem 0 0.25rem; font-size: 1rem; }
.verb { display: inline-block; min-width: 4.5em; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
td { border-top: 1px solid var(--soft); padding: 0.2rem 0.75rem 0.2rem 0; vertical-align: top; }
td:first-child { white-space: nowrap; }
.right { opacity: 0.7; }
";

/// The page.
pub(super) fn text(routes: &[&'static Route]) -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| page(routes, &openapi::document(routes)))
}

fn page(routes: &[&'static Route], document: &Json) -> String {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Segue</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <link rel=\"stylesheet\" href=\"/docs/style.css\">\n<h1>Segue</h1>\n",
    );
    let about = document["info"]["description"].as_str().unwrap_or("");
    let _ = writeln!(
        html,
        "<p>{}</p>\n<p>The same for programs: <code>/openapi.json</code></p>",
        marked(about)
    );
    let shown = || routes.iter().filter(|route| route.has_handler());
    let mut tags: Vec<&str> = Vec::new();
    for route in shown() {
        if !tags.contains(&tag(route)) {
            tags.push(tag(route));
        }
    }
    for name in tags {
        let _ = writeln!(html, "<h2>{name}</h2>");
        for route in shown().filter(|route| tag(route) == name) {
            let operation = &document["paths"][route.path][route.verb.as_str().to_lowercase()];
            describe(&mut html, route, operation);
        }
    }
    html.push_str("<h2>shapes</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        shape(&mut html, name, schema);
    }
    html
}

fn describe(html: &mut String, route: &Route, operation: &Json) {
    let _ = writeln!(
        html,
        "<h3 id=\"{}\"><code><span class=\"verb\">{}</span>{}</code></h3>\n<p>{} \
         <span class=\"right\">({})</span></p>",
        route.name,
        route.verb.as_str(),
        escaped(route.path),
        marked(route.about),
        route.right.as_str()
    );
    if !route.more.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", marked(route.more));
    }
    html.push_str("<table>\n");
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let [name, place, about] =
            ["name", "in", "description"].map(|field| parameter[field].as_str().unwrap_or(""));
        let kind = kind(&parameter["schema"]);
        let _ =
            writeln!(html, "<tr><td><code>{name}</code> ({place})<td>{kind}<td>{}", marked(about));
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = writeln!(html, "<tr><td>body<td>{}<td>", kind(body));
    }
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let content = response["content"].as_object().and_then(|content| content.iter().next());
        let holds = content.map_or_else(String::new, |(media, content)| {
            let schema = &content["schema"];
            if schema.is_null() { escaped(media) } else { kind(schema) }
        });
        let about = response["description"].as_str().unwrap_or("");
        let _ = writeln!(html, "<tr><td>{status}<td>{holds}<td>{}", marked(about));
    }
    html.push_str("</table>\n");
}

fn shape(html: &mut String, name: &str, schema: &Json) {
    let about = schema["description"].as_str().unwrap_or("");
    let _ = writeln!(
        html,
        "<h3 id=\"shape-{name}\"><code>{name}</code></h3>\n<p>{}</p>",
        marked(about)
    );
    html.push_str("<table>\n");
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.contains(&&**field) { "" } else { "?" };
        let about = schema["description"].as_str().unwrap_or("");
        let _ = writeln!(
            html,
            "<tr><td><code>{field}</code>{mark}<td>{}<td>{}",
            kind(schema),
            marked(about)
        );
    }
    html.push_str("</table>\n");
    if let Some(words) = schema["enum"].as_array() {
        let _ = writeln!(html, "<p>{}</p>", some(words));
    }
}

/// The type of a value, in a few words.
fn kind(schema: &Json) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|at| at.rsplit('/').next()) {
        return format!("<a href=\"#shape-{name}\">{name}</a>");
    }
    if let Some(words) = schema["enum"].as_array() {
        return some(words);
    }
    if let Some(ways) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return ways.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Json::String(word) if word == "array" => format!("array of {}", kind(&schema["items"])),
        Json::String(word) => escaped(word),
        Json::Array(words) => {
            words.iter().filter_map(Json::as_str).map(escaped).collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

fn some(words: &[Json]) -> String {
    let words = words.iter().map(|word| match word {
        Json::String(word) => format!("<code>{}</code>", escaped(word)),
        other => escaped(&other.to_string()),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text whose parts between backticks are code.
fn marked(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    parts.collect()
}
