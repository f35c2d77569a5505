//! `segue export`

use clap::{Args, ValueEnum};
use segue_core::expose::{self, Adapter, Export, ExportFormat};

use super::{Exit, Global, print_json, to_json};
use crate::api::tools::ExportReport;
use crate::app::ServerSelection;
use crate::print::{escape_control, print_data, print_error, print_status};

const EXAMPLES: &str = "\
Examples:
  segue export --format openai --strict --toolset support > tools.json
  segue export --format mcp --json    definitions, losses, errors and names in one document";

/// Print tool definitions for another host: MCP, OpenAI, Anthropic or Gemini
///
/// Prints the definitions to standard output. Reports on standard error which parts of a schema the
/// format cannot express.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExportArgs {
    /// The format of the definitions
    #[arg(long, value_enum)]
    format: ExportShape,
    /// Write strict definitions: the host makes its model follow the schemas
    #[arg(long)]
    strict: bool,
}

/// The format of the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportShape {
    /// The response of an MCP server to `tools/list`
    Mcp,
    /// OpenAI's Chat Completions API, and compatible ones
    Openai,
    /// OpenAI's Responses API
    OpenaiResponses,
    /// Anthropic's Messages API
    Anthropic,
    /// Gemini's API
    Gemini,
}

impl ExportShape {
    fn format(self) -> ExportFormat {
        match self {
            ExportShape::Mcp => ExportFormat::Mcp,
            ExportShape::Openai => ExportFormat::OpenAi,
            ExportShape::OpenaiResponses => ExportFormat::OpenAiResponses,
            ExportShape::Anthropic => ExportFormat::Anthropic,
            ExportShape::Gemini => ExportFormat::Gemini,
        }
    }
}

pub(super) fn export(global: &Global, args: &ExportArgs) -> Exit {
    let format = args.format.format();
    let adapter = if args.strict { Adapter::strict(format) } else { Some(Adapter::new(format)) };
    if adapter.is_none() {
        let message = format!("`{}` has no strict form", format.as_str());
        print_error(&message, Some("`openai`, `openai-responses` and `anthropic` have one"));
        return Exit::Usage;
    }
    let app = match global.open(&ServerSelection::Everything) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let export = match expose::export(Some(&app.engine.toolset()), adapter, app.engine.limits()) {
        Ok(export) => export,
        Err(error) => {
            print_error(&error.to_string(), None);
            return Exit::Usage;
        }
    };
    show(global, &export);
    for (name, why) in &app.upstream.failed {
        print_error(
            &format!("the MCP server `{name}` cannot be used: {}", escape_control(why)),
            None,
        );
    }
    match (export.errors.is_empty(), app.upstream.failed.is_empty()) {
        (_, false) => Exit::Unreachable,
        (false, true) => Exit::RunFailed,
        (true, true) => Exit::Success,
    }
}

fn show(global: &Global, export: &Export) {
    if global.is_json() {
        print_json(global, &ExportReport::from(export));
    } else {
        print_data(&to_json(&export.definitions()));
    }
    if !global.quiet {
        export.losses.iter().for_each(|loss| print_status(&escape_control(&loss.to_string())));
    }
    for error in &export.errors {
        print_error(&format!("`{}` was not exported: {}", error.tool, error.message), None);
    }
}
