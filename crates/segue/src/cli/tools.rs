//! `segue tools`

mod changes;

use clap::{Args, Subcommand};
use segue_core::duration::format_duration;
use segue_core::toolset::search;
use segue_core::value::Value;
use segue_core::view::explain::effect_label;
use segue_runtime::engine::UnavailableTools;

use super::call::report_unknown;
use super::{Exit, Global, print_json, to_json};
use crate::api::tools::{ToolDetails, ToolList};
use crate::app::{App, ServerSelection};
use crate::print::{escape_control, print_data, print_note};

/// List tools, or show one
///
/// Prints one line per tool: its id, its effect and its description.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ToolsArgs {
    /// Search by words in names and descriptions: the best first, typos forgiven
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
    #[command(subcommand)]
    command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
enum ToolsCommand {
    /// Show one tool: parameters, effect, schemas and statistics
    Show {
        /// The tool: its id or its short name
        id: String,
    },
    /// Show how the definitions of MCP tools changed since they were accepted
    Diff {
        /// Limit to this server or this tool
        #[arg(value_name = "SERVER[:TOOL]")]
        what: Option<String>,
    },
    /// Accept the current definitions of MCP tools
    Accept {
        /// MCP servers, or single tools of them
        #[arg(value_name = "SERVER[:TOOL]", required = true)]
        what: Vec<String>,
    },
}

pub(super) fn tools(global: &Global, args: &ToolsArgs) -> Exit {
    let selection = match &args.command {
        Some(ToolsCommand::Show { id }) => ServerSelection::Tool(id),
        Some(ToolsCommand::Diff { .. } | ToolsCommand::Accept { .. }) | None => {
            ServerSelection::Everything
        }
    };
    let app = match global.open(&selection) {
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
    let untrusted = app.upstream.untrusted();
    for (name, why) in &app.upstream.failed {
        if !untrusted.contains(name) {
            print_note(&format!("the MCP server `{name}` cannot be used: {}", escape_control(why)));
        }
    }
    if !untrusted.is_empty() {
        let names: Vec<String> = untrusted.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        let which = if untrusted.len() == 1 { "server" } else { "servers" };
        let note = format!(
            "without the MCP {which} {names}: read the configuration, then run `segue trust`"
        );
        print_note(&note);
    }
    for id in &app.upstream.changed {
        print_note(&format!(
            "the definition of `{id}` differs from the accepted one: {}",
            UnavailableTools::change_help(id)
        ));
    }
    let toolset = app.engine.toolset();
    let found = search(toolset.usable_tools(), words);
    if global.is_json() {
        let tools = found.iter().map(|tool| ToolDetails::from(&***tool)).collect();
        print_data(&to_json(&ToolList { tools }));
        return Exit::Success;
    }
    let width = found.iter().map(|tool| tool.id.as_str().len()).max().unwrap_or(0);
    for tool in found {
        let effect = effect_label(tool.annotations.impact());
        let summary = first_sentence(&tool.description);
        print_data(&format!("{:<width$}  {effect:<8}  {summary}", tool.id.as_str()));
    }
    Exit::Success
}

/// The first sentence of the first line: descriptions of MCP tools are often a paragraph for a model.
fn first_sentence(description: &str) -> &str {
    let line = description.lines().next().unwrap_or("");
    line.find(". ").map_or(line, |end| &line[..=end])
}

fn show(global: &Global, app: &App, id: &str) -> Exit {
    let tool = match app.engine.tool(id) {
        Ok(tool) => tool,
        Err(error) => return report_unknown(app, error, id),
    };
    if global.is_json() {
        print_json(global, &ToolDetails::from(&**tool));
        return Exit::Success;
    }
    print_data(&format!("{}\n{}\n", tool.id, tool.description));
    print_data(&format!("effect: {}", effect_label(tool.annotations.impact())));
    if let Some(composed) = &tool.code_tool {
        let parts: Vec<String> = composed.parts.keys().map(ToString::to_string).collect();
        let once = if composed.atomic { ", with one confirmation for all" } else { "" };
        print_data(&format!("calls: {}{once}", parts.join(", ")));
    }
    let stats = tool.observed.as_ref();
    if let Some(stats) = stats.filter(|stats| stats.calls > 0) {
        print_data(&format!(
            "statistics: {} calls, {} failed, p50 {}, p95 {}",
            stats.calls,
            stats.failures,
            format_duration(stats.p50_ms),
            format_duration(stats.p95_ms)
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
            print_data(format!("  {mark}{name}: {ty}  {words}").trim_end());
        }
    }
    let json = serde_json::to_string_pretty(tool.input.json()).unwrap_or_default();
    print_data(&format!("\ninput schema:\n{json}"));
    if let Some(shape) = stats.and_then(|stats| stats.output.as_ref()) {
        let json = serde_json::to_string_pretty(&shape.ty().to_schema()).unwrap_or_default();
        print_data(&format!("\noutput observed in {} calls:\n{json}", shape.samples()));
    }
    if let Some(output) = &tool.output {
        let json = serde_json::to_string_pretty(output.json()).unwrap_or_default();
        print_data(&format!("\noutput schema:\n{json}"));
    }
    Exit::Success
}
