//! Tools, and toolsets for other hosts.

use axum::http::StatusCode;
use segue_core::diagnostic::{Code, nearest_name};
use segue_core::expose::{self, Adapter, ExportFormat};
use segue_core::toolset::Toolset;
use segue_core::value::Value;

use super::problem::Problem;
use super::visit::{Answer, Visit, json};
use crate::serve::listing::{Report, definition, has_words};

/// The toolset of every tool that may be used.
const ALL: &str = "all";

/// `GET /api/v1/tools`
pub(super) fn list(visit: &Visit) -> Answer {
    let words = visit.query("search").unwrap_or("");
    let toolset = visit.rest.hall.served(&visit.who).engine.toolset();
    let found = toolset.tools().filter(|tool| has_words(tool, words));
    let tools: Vec<Value> = found.map(|tool| definition(tool)).collect();
    Ok(json(StatusCode::OK, &Value::object([("tools", Value::from(tools))])))
}

/// `GET /api/v1/tools/{id}`
pub(super) fn get(visit: &Visit) -> Answer {
    let engine = visit.rest.hall.served(&visit.who).engine;
    let tool = engine.usable_tool(visit.part("id"))?;
    Ok(json(StatusCode::OK, &definition(tool)))
}

/// `GET /api/v1/toolsets/{name}/export`
pub(super) fn export(visit: &Visit) -> Answer {
    let toolset = toolset(visit)?;
    let Some(format) = visit.query("format").and_then(ExportFormat::parse) else {
        let detail = "`format` is needed: the shape that the host takes";
        return Err(Problem::new(StatusCode::BAD_REQUEST, Code::NilAdapter, detail));
    };
    let is_strict = visit.query("strict") == Some("true");
    let adapter = if is_strict { Adapter::strict(format) } else { Some(Adapter::new(format)) };
    if adapter.is_none() {
        let detail = format!("`{}` has no strict form", format.as_str());
        return Err(Problem::wrong(Code::Conversion, detail));
    }
    let engine = visit.rest.hall.served(&visit.who).engine;
    match expose::export(Some(&toolset), adapter, engine.limits()) {
        Ok(export) => Ok(json(StatusCode::OK, &Report::from(&export))),
        Err(error) => Err(Problem::wrong(Code::Conversion, error.to_string())),
    }
}

fn toolset(visit: &Visit) -> Result<Toolset, Problem> {
    let (name, hall) = (visit.part("name"), &visit.rest.hall);
    let engine = hall.served(&visit.who).engine;
    match hall.toolset(name) {
        Some(builder) => {
            let built = builder.from_tools(engine.toolset().tools().cloned()).build();
            built.map_err(|error| Problem::wrong(Code::NoSource, error.to_string()))
        }
        None if name == ALL => Ok(engine.toolset()),
        None => {
            let problem = Problem::not_found(format!("there is no toolset `{name}`"));
            let names = hall.toolset_names();
            let names = names.iter().map(|name| &**name).chain([ALL]);
            Err(match nearest_name(name, names) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem,
            })
        }
    }
}
