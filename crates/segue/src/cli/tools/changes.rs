//! `segue tools diff` and `segue tools accept`: MCP tools whose definition changed.

use std::sync::Arc;

use segue_core::value::Value;
use segue_runtime::tools::mcp::{DefinitionChange, UpstreamServer};
use serde_json::json;

use crate::app::App;
use crate::cli::{Exit, Global, print_json};
use crate::print::{escape_control, print_data, print_error, print_status, unified_diff};

/// Unchanged lines shown around a change.
const CONTEXT_LINES: u32 = 2;

/// The changes of the tools that `what` names: a server, a tool, or everything.
fn changes<'a>(
    app: &'a App,
    what: Option<&str>,
) -> Vec<(&'a Arc<UpstreamServer>, DefinitionChange)> {
    let all = app.upstream.servers().flat_map(|server| {
        let changes = server.changes().into_iter();
        changes.map(move |change| (server, change))
    });
    let is_named = |(server, change): &(&Arc<UpstreamServer>, DefinitionChange)| match what {
        None => true,
        Some(what) if what == &**server.name() => true,
        Some(what) => what == id(server, change) || what == &*change.tool,
    };
    all.filter(is_named).collect()
}

fn id(server: &UpstreamServer, change: &DefinitionChange) -> String {
    format!("{}:{}", server.name(), change.tool)
}

pub(super) fn diff(global: &Global, app: &App, what: Option<&str>) -> Exit {
    let found = changes(app, what);
    if global.is_json() {
        let changes: Vec<_> = found
            .iter()
            .map(|(server, change)| {
                json!({
                    "tool": id(server, change),
                    "before": serde_json::Value::from(&change.before),
                    "now": change.now.as_ref().map(serde_json::Value::from),
                })
            })
            .collect();
        print_json(global, &json!({ "changes": changes }));
        return Exit::Success;
    }
    if found.is_empty() {
        print_status("no definition differs from the accepted one");
    }
    for (server, change) in &found {
        let id = id(server, change);
        let Some(now) = &change.now else {
            print_data(&format!("{id} was removed"));
            continue;
        };
        let (before, now) = (lines(&change.before), lines(now));
        print_data(&format!("{id} changed"));
        let shown = unified_diff(&before, &now, CONTEXT_LINES);
        shown.lines().for_each(|line| print_data(&escape_control(line)));
    }
    Exit::Success
}

/// A definition as indented JSON.
fn lines(definition: &Value) -> String {
    let definition: serde_json::Value = definition.into();
    let mut text = serde_json::to_string_pretty(&definition).unwrap_or_default();
    text.push('\n');
    text
}

pub(super) fn accept(global: &Global, app: &App, what: &[String]) -> Exit {
    for what in what {
        let found = changes(app, Some(what));
        if found.is_empty() {
            let known = app.upstream.servers().any(|server| &**server.name() == what)
                || app.engine.tool(what).is_ok();
            if !known {
                print_error(&format!("there is no MCP server and no tool `{what}`"), None);
                return Exit::Usage;
            }
            print_status(&format!(
                "the definition of `{what}` does not differ from the accepted one"
            ));
        }
        for (server, change) in found {
            server.accept(std::slice::from_ref(&change.tool));
            if !global.quiet {
                print_status(&format!("accepted `{}` as it is now", id(server, &change)));
            }
        }
    }
    Exit::Success
}
