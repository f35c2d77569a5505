//! `segue tools`

mod changes;

use clap::{Args, Subcommand};
use segue_core::plan::explain::effect_label;
use segue_core::value::Value;
use segue_core::view::format_duration;
use segue_runtime::engine::UnavailableTools;

use super::app::App;
use super::upstream::ServerSelection;
use super::{Exit, Global, print_data, print_json, print_status, to_json};
use crate::api::tools::{ToolDetails, ToolList, has_words};
use crate::print::escape_control;

/// List the tools, or show one
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ToolsArgs {
    /// Only those whose name or description has all of these words
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    #[command(subcommand)]
    command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
enum ToolsCommand {
    /// Show everything that is known of one tool
    Show {
        /// Its id, or its short name
        id: String,
    },
    /// Show how tools of MCP servers changed since they were accepted
    Diff {
        /// Only this server, or this tool
        #[arg(value_name = "SERVER[:TOOL]")]
        what: Option<String>,
    },
    /// Accept tools of MCP servers as they are now
    Accept {
        /// A server, or a tool
        #[arg(value_name = "SERVER[:TOOL]", required = true)]
        what: Vec<String>,
    },
}

pub(super) fn tools(global: &Global, args: &ToolsArgs) -> Exit {
    let wanted = match &args.command {
        Some(ToolsCommand::Show { id }) => ServerSelection::Tool(id),
        Some(ToolsCommand::Diff { .. } | ToolsCommand::Accept { .. }) | None => {
            ServerSelection::Everything
        }
    };
    let app = match App::open(global, &wanted) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    match &args.command {
        Some(ToolsCommand::Show { id }) => show(global, &app, id),
        Some(ToolsCommand::Diff { what }) => changes::diff(global, &app, what.as_deref()),
        Some(ToolsCommand::Accept { what }) => changes::accept(global, &app, what),
        None => list(global, &app, args.search.as_deref().unwrap_or("")),
    }
}

fn list(global: &Global, app: &App, words: &str) -> Exit {
    for (name, why) in &app.upstream.failed {
        print_status(&format!(
            "note: the MCP server `{name}` cannot be used: {}",
            escape_control(why)
        ));
    }
    for id in &app.upstream.changed {
        print_status(&format!(
            "note: `{id}` is not what was accepted of it: {}",
            UnavailableTools::change_help(id)
        ));
    }
    let toolset = app.engine.toolset();
    let found: Vec<_> = toolset.tools().filter(|tool| has_words(tool, words)).collect();
    if global.is_json() {
        let tools = found.iter().map(|tool| ToolDetails::from(&***tool)).collect();
        print_data(&to_json(&ToolList { tools }));
        return Exit::Success;
    }
    let width = found.iter().map(|tool| tool.id.as_str().len()).max().unwrap_or(0);
    for tool in found {
        let effect = effect_label(tool.annotations.impact());
        let summary = tool.description.lines().next().unwrap_or("");
        print_data(&format!("{:<width$}  {effect:<8}  {summary}", tool.id.as_str()));
    }
    Exit::Success
}

fn show(global: &Global, app: &App, id: &str) -> Exit {
    let tool = match app.engine.tool(id) {
        Ok(tool) => tool,
        Err(error) => return app.report_unknown(&error, id),
    };
    if global.is_json() {
        print_json(global, &ToolDetails::from(&**tool));
        return Exit::Success;
    }
    print_data(&format!("{}\n{}\n", tool.id, tool.description));
    print_data(&format!("effect: {}", effect_label(tool.annotations.impact())));
    if let Some(composed) = &tool.code_tool {
        let parts: Vec<String> = composed.parts.keys().map(ToString::to_string).collect();
        let once = if composed.atomic { ", with one question for all" } else { "" };
        print_data(&format!("calls: {}{once}", parts.join(", ")));
    }
    let seen = tool.observed.as_ref();
    if let Some(seen) = seen.filter(|seen| seen.calls > 0) {
        print_data(&format!(
            "seen: {} calls, {} failed, half within {}, 19 of 20 within {}",
            seen.calls,
            seen.failures,
            format_duration(seen.p50_ms),
            format_duration(seen.p95_ms)
        ));
    }
    let parameters = tool.input.json().get("properties");
    if let Some(Value::Object(properties)) = parameters {
        print_data("\nparameters:");
        let required = tool.input.json().get("required").and_then(|r| r.as_array().cloned());
        for (name, schema) in properties.iter() {
            let is_required =
                required.as_ref().is_some_and(|names| names.contains(&Value::from(&**name)));
            let mark = if is_required { "*" } else { " " };
            let ty = segue_core::types::Type::from_schema(schema);
            let words = schema.get("description").and_then(Value::as_str).unwrap_or("");
            print_data(&format!("  {mark}{name}: {ty}  {words}"));
        }
    }
    if let Some(shape) = seen.and_then(|seen| seen.output.as_ref()) {
        let json = serde_json::to_string_pretty(&shape.ty().to_schema()).unwrap_or_default();
        print_data(&format!("\noutput in {} calls:\n{json}", shape.samples()));
    }
    if let Some(output) = &tool.output {
        let json = serde_json::to_string_pretty(output.json()).unwrap_or_default();
        print_data(&format!("\noutput schema:\n{json}"));
    }
    Exit::Success
}
