//! `segue plan`

use clap::{Args, ValueEnum};
use segue_core::view::PlanView;
use segue_core::view::explain;

use super::ask::{self, AskArgs};
use super::{Exit, Global, report, source_of, to_json};
use crate::app::{App, ServerSelection};
use crate::print::{print_data, print_diagnostics};

/// Show order, parallelism, effects and what can be rolled back
///
/// Runs nothing. With `--ask`, a model makes the plan, and the plan is stored.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// A composition file, or the name of a configured composition
    #[arg(value_name = "FILE|NAME", required_unless_present = "query", add = super::completions::compositions())]
    composition: Option<String>,
    #[command(flatten)]
    ask: AskArgs,
    /// The format of the plan
    #[arg(long, value_enum, default_value = "text")]
    format: PlanFormat,
}

/// The format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
    /// A Mermaid flow chart
    Mermaid,
    /// The DOT language of Graphviz
    Dot,
    /// An SVG picture
    Svg,
}

pub(super) fn plan(global: &Global, args: &PlanArgs) -> Exit {
    let Some(composition) = &args.composition else {
        return ask::ask(global, &args.ask, args.format);
    };
    let options = global.options_reporting(&[composition]);
    let app = match App::open(&options, &ServerSelection::Compositions(vec![composition])) {
        Ok(app) => app,
        Err(error) => return report(&error),
    };
    let source = match source_of(&app, composition) {
        Ok(source) => source,
        Err(exit) => return exit,
    };
    let (plan, diagnostics, unreachable) = app.plan(&source);
    print_diagnostics(&diagnostics, &source);
    let Some(plan) = plan else {
        return if unreachable { Exit::Unreachable } else { Exit::Usage };
    };
    let view = PlanView::from_plan(&plan);
    print_data(&match args.format {
        PlanFormat::Text if global.is_json() => to_json(&view),
        PlanFormat::Text => explain::to_text(&view),
        PlanFormat::Json => to_json(&view),
        PlanFormat::Mermaid => explain::mermaid(&view),
        PlanFormat::Dot => explain::dot(&view),
        PlanFormat::Svg => explain::svg(&view),
    });
    Exit::Success
}
