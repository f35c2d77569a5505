//! A caller that may run served compositions and nothing else, on each surface.

use super::super::client::Client;
use crate::serve::host::Host;
use crate::support::{Json, World, json};

/// Where a caller comes in.
pub(super) enum Caller {
    Rest(Client),
    Graphql(Client),
    Mcp(Client),
    /// A host on stdin and stdout that cannot ask a person.
    Stdio(Box<Host>),
}

/// What a caller was answered.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether the run was carried out.
    pub(super) is_done: bool,
    /// Why not, in words; empty when nothing was said.
    pub(super) reason: String,
    /// The run that was begun, if one was.
    pub(super) run_id: Option<String>,
    /// The whole answer.
    pub(super) all: String,
}

impl Caller {
    pub(super) fn stdio(world: &World) -> Caller {
        Caller::Stdio(Box::new(Host::legacy(world, &json!({}))))
    }

    pub(super) fn surface(&self) -> &'static str {
        match self {
            Caller::Rest(_) => "REST",
            Caller::Graphql(_) => "GraphQL",
            Caller::Mcp(_) => "MCP over HTTP",
            Caller::Stdio(_) => "MCP over stdio",
        }
    }

    /// Asks for a run: `name` or `composition`, `input`, `options`.
    pub(super) fn execute(&mut self, request: &Json) -> Said {
        let call = || json!({ "name": "composition_execute", "arguments": request });
        match self {
            Caller::Rest(client) => {
                let answer = client.post("/api/v1/compositions/execute", request).unwrap();
                let body = answer.json();
                let is_done = answer.status == 200 && body["success"] == true;
                said(is_done, &body, &[&body["detail"], &body])
            }
            Caller::Graphql(client) => {
                let query = "mutation ($r: CompositionRequest!) { executeComposition(request: $r) { \
                             runId status success output errors { message } waitingFor { message } } }";
                let answer = client.graphql(query, &json!({ "r": request })).unwrap();
                let run = &answer["data"]["executeComposition"];
                said(run["success"] == true, &answer, &[&answer, run])
            }
            Caller::Mcp(client) => mcp(&client.mcp("tools/call", call()).unwrap()),
            Caller::Stdio(host) => mcp(&host.ask("tools/call", call())),
        }
    }
}

/// The answer of a call of MCP.
fn mcp(answer: &Json) -> Said {
    let result = &answer["result"];
    let run = &result["structuredContent"];
    let is_done = result["isError"] == false && run["status"] == "success";
    let text = &result["content"][0]["text"];
    said(is_done, answer, &[&answer["error"]["message"], text, run])
}

/// The first reason that one of these gives.
fn said(is_done: bool, all: &Json, places: &[&Json]) -> Said {
    let reason = places.iter().find_map(|place| match place {
        Json::String(text) => Some(text.clone()),
        _ => {
            let text = |list: &str| Some(place.get(list)?.get(0)?["message"].as_str()?.to_owned());
            text("errors").or_else(|| text("waiting_for")).or_else(|| text("waitingFor"))
        }
    });
    let ids = ["/run_id", "/data/executeComposition/runId", "/result/_meta/segue~1runId"];
    let run_id = ids.iter().find_map(|at| Some(all.pointer(at)?.as_str()?.to_owned()));
    Said { is_done, reason: reason.unwrap_or_default(), run_id, all: all.to_string() }
}
