//! `segue plan`

use clap::{Args, ValueEnum};
use segue_core::view::PlanView;
use segue_core::view::explain;

use super::app::{App, print_diagnostics};
use super::ask::{self, AskArgs};
use super::upstream::ServerSelection;
use super::{Exit, Global, print_data, to_json};

/// Show order, parallelism, effects and what can be undone
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// A file, or the name of a configured composition
    #[arg(value_name = "FILE|NAME", required_unless_present = "query")]
    composition: Option<String>,
    #[command(flatten)]
    ask: AskArgs,
    /// How to show it
    #[arg(long, value_enum, default_value = "text")]
    format: PlanFormat,
}

/// How to show a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// A Mermaid flow chart
    Mermaid,
    /// The DOT language of Graphviz
    Dot,
    /// A picture
    Svg,
}

pub(super) fn plan(global: &Global, args: &PlanArgs) -> Exit {
    let Some(composition) = &args.composition else {
        return ask::ask(global, &args.ask, args.format);
    };
    let app = match App::open(global, &ServerSelection::Compositions(vec![composition])) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let source = match app.source(composition) {
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
