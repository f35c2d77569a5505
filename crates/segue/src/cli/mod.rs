//! The command line: one file per command. A command reads its arguments, makes one call of the engine
//! and prints the result.
//!
//! Data goes to standard output, everything else to standard error. `app` makes the engine.

mod ask;
mod call;
mod check;
mod completions;
mod convert;
mod current_user;
mod dev;
mod doctor;
mod error;
mod explain;
mod export;
mod generate;
mod help;
mod import;
mod init;
mod input;
mod login;
mod lsp;
mod man;
mod mcp;
mod plan;
mod plans;
mod progress;
mod prompt;
mod record;
mod run;
mod run_actions;
mod run_ids;
mod run_view;
mod runs;
mod schema;
mod serve;
mod store;
mod templates;
mod test;
mod token;
mod tools;
mod trust;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use segue_core::source::Source;

use crate::app::{self, App, AppError, AppOptions, ReportedFiles, ServerSelection};
use crate::config::Config;
use crate::observe::log;
use crate::print::{print_data, print_error};

/// How a command ends; the exit codes are documented for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Success,
    /// The run failed, also in part.
    RunFailed,
    /// The call, the configuration or the composition is wrong.
    Usage,
    /// A person denied the run, or it waits for one.
    Denied,
    /// A source of tools cannot be reached.
    Unreachable,
    /// Ctrl-C or another signal.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::RunFailed => 1,
            Exit::Usage => 2,
            Exit::Denied => 3,
            Exit::Unreachable => 4,
            Exit::Interrupted => 130,
        })
    }
}

const EXAMPLES: &str = "\
Examples:
  segue init                              write a working example
  segue dev                               see this folder in the browser
  segue run hello.yaml -i name=Ada        run a composition
  segue check compositions/*.yaml         find every error before anything runs
  segue plan hello.yaml --format mermaid  see order, effects and what can be rolled back
  segue tools --search file               find tools by words

Exit codes: 0 success · 1 the run failed · 2 wrong usage, configuration or composition ·
3 denied or waiting for a person · 4 a tool source is unreachable · 130 interrupted";

/// Composes tools into one reliable tool.
#[derive(Debug, Parser)]
#[command(name = "segue", version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// The options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Output format [default: `rich` on a terminal, `plain` elsewhere]
    #[arg(short, long, global = true, help_heading = GLOBAL, value_enum)]
    output: Option<Output>,
    /// Same as `-o json`
    #[arg(long, global = true, help_heading = GLOBAL, conflicts_with = "output")]
    json: bool,
    /// Configuration file [default: segue.yaml in this folder or a parent]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store for runs and checkpoints: `memory`, `sqlite:FILE` or `postgres://…` [default: `store` of
    /// the configuration, else a file in the user's data folder]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "STORE")]
    store: Option<String>,
    /// Use only the tools of this configured toolset
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "NAME")]
    toolset: Option<String>,
    /// Print only errors
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    quiet: bool,
    /// Print more details
    #[arg(short, long, global = true, help_heading = GLOBAL, conflicts_with = "quiet")]
    verbose: bool,
    /// Log level on standard error: `error`, `warn`, `info`, `debug`, or a list such as
    /// `segue=debug,rmcp=info` [default: the variable `SEGUE_LOG`, else `info` for `serve` and `worker`, else off]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log format
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: log::LogFormat,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A live tree of steps, for a terminal
    Rich,
    /// One line per change
    Plain,
    /// One JSON document at the end
    Json,
    /// One JSON document per line, as steps change
    Ndjson,
}

impl Global {
    fn output(&self) -> Output {
        use std::io::IsTerminal as _;
        match self.output {
            Some(output) => output,
            None if self.json => Output::Json,
            None if std::io::stderr().is_terminal() && !is_dumb() => Output::Rich,
            None => Output::Plain,
        }
    }

    fn is_json(&self) -> bool {
        matches!(self.output(), Output::Json | Output::Ndjson)
    }

    /// What the arguments say about the configuration.
    fn options(&self) -> AppOptions {
        AppOptions {
            folder: None,
            config: self.config.clone(),
            store: self.store.clone(),
            toolset: self.toolset.clone(),
            quiet: self.quiet,
            verbose: self.verbose,
            shows_waits: !self.quiet && !self.is_json(),
            finds_compositions: false,
            edits: false,
            reported: ReportedFiles::None,
        }
    }

    /// The options of a command that prints the findings about these compositions itself.
    fn options_reporting(&self, names: &[impl AsRef<str>]) -> AppOptions {
        let names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        AppOptions { reported: ReportedFiles::Named(names), ..self.options() }
    }

    /// An engine whose runs are not stored.
    fn open(&self, selection: &ServerSelection<'_>) -> Result<App, Exit> {
        App::open(&self.options(), selection).map_err(|error| report(&error))
    }

    /// An engine with the store of runs.
    fn open_stored(&self, selection: &ServerSelection<'_>) -> Result<App, Exit> {
        App::open_stored(&self.options(), selection).map_err(|error| report(&error))
    }

    fn load_config(&self) -> Result<Config, Exit> {
        app::load_config(&self.options()).map_err(|error| report(&error))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Runs(runs::RunsArgs),
    Resume(run_actions::ResumeArgs),
    Cancel(run_actions::CancelArgs),
    Rollback(run_actions::RollbackArgs),
    Approve(run_actions::ApproveArgs),
    Check(check::CheckArgs),
    Test(test::TestArgs),
    Plan(plan::PlanArgs),
    Plans(plans::PlansArgs),
    Convert(convert::ConvertArgs),
    Tools(tools::ToolsArgs),
    Templates(templates::TemplatesArgs),
    Store(store::StoreArgs),
    Call(call::CallArgs),
    Mcp(mcp::McpArgs),
    Serve(serve::ServeArgs),
    Worker(worker::WorkerArgs),
    Dev(dev::DevArgs),
    Export(export::ExportArgs),
    Generate(generate::GenerateArgs),
    Explain(explain::ExplainArgs),
    Schema(schema::SchemaArgs),
    Init(init::InitArgs),
    Doctor(doctor::DoctorArgs),
    Login(login::LoginArgs),
    Lsp(lsp::LspArgs),
    Trust(trust::TrustArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    completions::complete();
    let cli = match Cli::try_parse_from(generate::with_folder(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => {
            help::print(&error);
            // Help and version are answers, not mistakes.
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    let exit = cli.dispatch();
    // Ends processes and connections of calls that were given up.
    segue_runtime::tools::settle();
    exit.into()
}

impl Cli {
    fn dispatch(self) -> Exit {
        let global = self.global;
        let default_level = match self.command {
            Command::Serve(_) | Command::Worker(_) => Some("info".to_owned()),
            Command::Dev(_) | Command::Lsp(_) => Some("warn".to_owned()),
            _ => None,
        };
        if matches!(
            self.command,
            Command::Serve(_)
                | Command::Worker(_)
                | Command::Dev(_)
                | Command::Lsp(_)
                | Command::Mcp(_)
        ) {
            log::set_format(global.log_format);
        }
        let in_env = || std::env::var("SEGUE_LOG").ok().filter(|level| !level.is_empty());
        if let Some(level) = global.log_level.clone().or_else(in_env).or(default_level)
            && let Err(message) = log::open(global.log_format, &level)
        {
            print_error(&message, None);
            return Exit::Usage;
        }
        match self.command {
            Command::Run(args) => run::run(&global, &args),
            Command::Runs(args) => runs::runs(&global, &args),
            Command::Resume(args) => run_actions::resume(&global, &args),
            Command::Cancel(args) => run_actions::cancel(&global, &args),
            Command::Rollback(args) => run_actions::rollback(&global, &args),
            Command::Approve(args) => run_actions::approve(&global, &args),
            Command::Check(args) => check::check(&global, &args),
            Command::Test(args) => test::test(&global, &args),
            Command::Plan(args) => plan::plan(&global, &args),
            Command::Plans(args) => plans::plans(&global, &args),
            Command::Convert(args) => convert::convert(&global, &args),
            Command::Tools(args) => tools::tools(&global, &args),
            Command::Templates(args) => templates::templates(&global, &args),
            Command::Store(args) => store::store(&global, &args),
            Command::Call(args) => call::call(&global, &args),
            Command::Mcp(args) => mcp::mcp(&global, &args),
            Command::Serve(args) => serve::serve(&global, &args),
            Command::Worker(args) => worker::worker(&global, &args),
            Command::Dev(args) => dev::dev(&global, &args),
            Command::Export(args) => export::export(&global, &args),
            Command::Generate(args) => generate::generate(&global, &args),
            Command::Explain(args) => explain::explain(&global, &args),
            Command::Schema(args) => schema::schema(&global, &args),
            Command::Init(args) => init::init(&global, &args),
            Command::Doctor(args) => doctor::doctor(&global, &args),
            Command::Login(args) => login::login(&global, &args),
            Command::Lsp(args) => lsp::lsp(&global, &args),
            Command::Trust(args) => trust::trust(&global, &args),
            Command::Completions(args) => completions::completions(&args),
            Command::Man(args) => man::man(&args),
        }
    }
}

/// Prints why there is no engine. The command ends as wrongly used.
fn report(error: &AppError) -> Exit {
    error.print();
    Exit::Usage
}

/// The text of a composition: a file, a configured name, or a template's id.
fn source_of(app: &App, name: &str) -> Result<Source, Exit> {
    app.find(name).map_err(|error| report(&error))
}

/// Prints why this process cannot serve.
fn report_failure(error: &AppError) -> Exit {
    error.print();
    Exit::RunFailed
}

/// A terminal that cannot move its cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Prints a JSON document to standard output; with `ndjson`, on one line.
pub(crate) fn print_json(global: &Global, value: &impl serde::Serialize) {
    match global.output() {
        Output::Ndjson => print_data(&serde_json::to_string(value).unwrap_or_default()),
        _ => print_data(&to_json(value)),
    }
}

/// Pretty JSON for standard output.
pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
