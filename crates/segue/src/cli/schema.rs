//! `segue schema`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use segue_core::compile::dialect::{
    Draft, WorkspaceTools, composition_schema, test_schema, workspace_schema,
};
use segue_core::value::Value;

use super::{Exit, Global, print_json, report, to_json};
use crate::app::{App, ServerSelection};
use crate::graphql;
use crate::print::{print_data, print_error, print_note, print_status};
use crate::server;

/// The schema that `segue init` and `--write` write, below the folder of the configuration.
pub(super) const WORKSPACE_SCHEMA: &str = ".segue/composition.schema.json";

/// Print the JSON Schema of compositions or tests, the OpenAPI document, or the GraphQL schema
///
/// With `--tools`, the schema of compositions names the tools of this folder and their parameters, for
/// editors that do not use `segue lsp`.
#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// The JSON Schema draft; older editors need draft 7
    #[arg(long, value_enum, default_value = "2020-12")]
    draft: DraftName,
    /// Add the tools of this folder and their parameters
    #[arg(long, conflicts_with_all = ["test", "openapi", "graphql"])]
    tools: bool,
    /// Start no MCP server; use the tool definitions that were recorded before
    #[arg(long, requires = "tools")]
    offline: bool,
    /// Write it to `.segue/composition.schema.json` beside the configuration, in draft 7, which every editor
    /// reads
    #[arg(long, requires = "tools", conflicts_with = "draft")]
    write: bool,
    /// Print the schema of test files
    #[arg(long, conflicts_with = "openapi")]
    test: bool,
    /// Print the OpenAPI document of `segue serve`
    #[arg(long, conflicts_with = "draft")]
    openapi: bool,
    /// Print the GraphQL schema of `segue serve`
    #[arg(long, conflicts_with_all = ["draft", "test", "openapi"])]
    graphql: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DraftName {
    /// The current draft
    #[value(name = "2020-12")]
    Draft2020,
    /// For older editors
    #[value(name = "07", alias = "draft-07", alias = "7")]
    Draft07,
}

pub(super) fn schema(global: &Global, args: &SchemaArgs) -> Exit {
    if args.openapi {
        print_data(server::openapi().trim_end());
        return Exit::Success;
    }
    if args.graphql {
        print_data(graphql::sdl().trim_end());
        return Exit::Success;
    }
    let draft = match args.draft {
        DraftName::Draft2020 => Draft::Draft2020,
        DraftName::Draft07 => Draft::Draft07,
    };
    if args.tools {
        return tools(global, args, draft).unwrap_or_else(|exit| exit);
    }
    let schema = if args.test { test_schema(draft) } else { composition_schema(draft) };
    print_json(global, &schema);
    Exit::Success
}

fn tools(global: &Global, args: &SchemaArgs, draft: Draft) -> Result<Exit, Exit> {
    let selection =
        if args.offline { ServerSelection::Recorded } else { ServerSelection::Everything };
    let app = global.open(&selection)?;
    if !global.quiet {
        for source in unknown_sources(&app) {
            print_note(&format!(
                "the tools of `{source}` are not known, so every name is accepted"
            ));
        }
    }
    if !args.write {
        print_json(global, &of_tools(&app, draft));
        return Ok(Exit::Success);
    }
    let file = write_to(&app, &app.config.folder()).map_err(|message| {
        print_error(&message, None);
        Exit::Usage
    })?;
    if !global.quiet {
        print_status(&format!("wrote {}", file.display()));
    }
    Ok(Exit::Success)
}

/// Writes the schema of a new folder's tools without starting a server.
pub(super) fn write_for_new(global: &Global, folder: &Path) -> Result<PathBuf, Exit> {
    let mut options = global.options();
    (options.config, options.quiet) = (Some(folder.join("segue.yaml")), true);
    let app = App::open(&options, &ServerSelection::Recorded).map_err(|error| report(&error))?;
    write_to(&app, folder).map_err(|message| {
        print_error(&message, None);
        Exit::Usage
    })
}

fn write_to(app: &App, folder: &Path) -> Result<PathBuf, String> {
    let file = folder.join(WORKSPACE_SCHEMA);
    let written = std::fs::create_dir_all(file.parent().unwrap_or(folder)).and_then(|()| {
        std::fs::write(&file, format!("{}\n", to_json(&of_tools(app, Draft::Draft07))))
    });
    match written {
        Ok(()) => Ok(file),
        Err(error) => Err(format!("cannot write `{}`: {error}", file.display())),
    }
}

fn of_tools(app: &App, draft: Draft) -> Value {
    let (catalog, unknown_sources) = (app.engine.catalog(), unknown_sources(app));
    workspace_schema(draft, WorkspaceTools { catalog, unknown_sources: &unknown_sources })
}

/// Servers that cannot be used and have no recorded tools.
fn unknown_sources(app: &App) -> BTreeSet<Arc<str>> {
    let catalog = app.engine.catalog();
    let has_tools = |name: &str| catalog.tools().any(|tool| tool.id.namespace() == name);
    let servers = app.upstream.servers().map(|server| server.name());
    let servers = servers.chain(app.upstream.failed.keys());
    servers.filter(|name| !has_tools(name)).cloned().collect()
}
