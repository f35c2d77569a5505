//! The command line: one file per command, each of which translates, makes one call of the engine
//! and translates back.
//!
//! Data goes to standard output, everything else to standard error.

mod app;
mod ask;
mod call;
mod check;
mod completions;
mod convert;
mod current_user;
mod doctor;
mod explain;
mod export;
mod generate;
mod import;
mod init;
mod input;
mod load;
mod login;
mod man;
mod mcp;
mod overrides;
mod plan;
mod plans;
mod progress;
mod prompt;
mod protected_files;
mod record;
mod reload;
mod run;
mod run_actions;
mod runs;
mod schema;
mod serve;
mod signals;
mod templates;
mod test;
mod token;
mod tools;
mod trust;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::observe::log;
use crate::print::escape_control;

/// Exit codes, as the contract has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Success,
    /// The run failed, also in part.
    RunFailed,
    /// The call, the configuration or the composition is wrong.
    Usage,
    /// A person said no, or must say something.
    Denied,
    /// A tool's source cannot be reached.
    Unreachable,
    /// Somebody pressed Ctrl-C.
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
  segue run hello.yaml -i name=Ada        run a composition
  segue check compositions/*.yaml         find every mistake before anything runs
  segue plan hello.yaml --format mermaid  see order, effects and what can be undone
  segue tools --search file               what is available

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

/// What every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// How to write: by default `rich` on a terminal and `plain` elsewhere
    #[arg(short, long, global = true, value_enum)]
    output: Option<Output>,
    /// The same as `-o json`
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    /// The configuration [default: segue.yaml here or above]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where runs and checkpoints are kept: `memory` or `sqlite:FILE`
    #[arg(long, global = true, value_name = "STORE")]
    store: Option<String>,
    /// Use only the tools of this toolset of the configuration
    #[arg(long, global = true, value_name = "NAME")]
    toolset: Option<String>,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Say more
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// What is written to standard error for operators: `error`, `warn`, `info`, `debug`, or a list
    /// such as `segue=debug,rmcp=info` [default: `SEGUE_LOG`, or `info` for `serve`]
    #[arg(long, global = true, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How that is written
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    log_format: log::LogFormat,
}

/// How to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A live tree, for a terminal
    Rich,
    /// A line per change
    Plain,
    /// One JSON document at the end
    Json,
    /// A JSON document per line, as things happen
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
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a composition
    Run(run::RunArgs),
    /// List runs, or show one
    Runs(runs::RunsArgs),
    /// Go on with a run that was interrupted or waits for a person
    Resume(run_actions::ResumeArgs),
    /// End a run that waits or was interrupted
    Cancel(run_actions::CancelArgs),
    /// Take back what a run did
    Rollback(run_actions::RollbackArgs),
    /// Answer the question that a run waits for, and go on
    Approve(run_actions::ApproveArgs),
    /// Find every mistake of compositions, without running anything
    Check(check::CheckArgs),
    /// Run the tests of compositions: mocked tools, expected calls and results
    Test(test::TestArgs),
    /// Show order, parallelism, effects and what can be undone
    Plan(plan::PlanArgs),
    /// List the plans that were made of words, or show one
    Plans(plans::PlansArgs),
    /// Write a document of another dialect as a composition
    Convert(convert::ConvertArgs),
    /// List the tools, or show one
    Tools(tools::ToolsArgs),
    Templates(templates::TemplatesArgs),
    /// Call one tool
    Call(call::CallArgs),
    /// Serve the configured compositions to an MCP host, over standard input and output
    Mcp(mcp::McpArgs),
    /// Serve the configured compositions over HTTP: REST at `/api/v1`, GraphQL at `/graphql`, MCP at `/mcp`
    Serve(serve::ServeArgs),
    /// Print definitions of the tools for another host, and what is lost on the way
    Export(export::ExportArgs),
    /// Write a typed client of a composition in another language, with a test
    Generate(generate::GenerateArgs),
    /// Explain an error code
    Explain(explain::ExplainArgs),
    /// Print the JSON Schema of compositions
    Schema(schema::SchemaArgs),
    /// Write a configuration and a working example
    Init(init::InitArgs),
    /// Say what is wrong with this installation and its configuration
    Doctor(doctor::DoctorArgs),
    /// Log in at an MCP server that has OAuth
    Login(login::LoginArgs),
    /// Allow the commands of a configuration that was found here
    Trust(trust::TrustArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page of this program, or write one for each command
    Man(man::ManArgs),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(generate::with_folder(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are answers, not mistakes.
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    let exit = cli.dispatch();
    // What calls have left behind that were given up at the end.
    segue_runtime::tools::settle();
    exit.into()
}

impl Cli {
    fn dispatch(self) -> Exit {
        let global = self.global;
        let usual = matches!(self.command, Command::Serve(_)).then(|| "info".to_owned());
        if matches!(self.command, Command::Serve(_) | Command::Mcp(_)) {
            log::set_format(global.log_format);
        }
        let in_env = || std::env::var("SEGUE_LOG").ok().filter(|level| !level.is_empty());
        if let Some(level) = global.log_level.clone().or_else(in_env).or(usual)
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
            Command::Convert(args) => convert::convert(&args),
            Command::Tools(args) => tools::tools(&global, &args),
            Command::Templates(args) => templates::templates(&global, &args),
            Command::Call(args) => call::call(&global, &args),
            Command::Mcp(args) => mcp::mcp(&global, &args),
            Command::Serve(args) => serve::serve(&global, &args),
            Command::Export(args) => export::export(&global, &args),
            Command::Generate(args) => generate::generate(&global, &args),
            Command::Explain(args) => explain::explain(&global, &args),
            Command::Schema(args) => schema::schema(&args),
            Command::Init(args) => init::init(&global, &args),
            Command::Doctor(args) => doctor::doctor(&global, &args),
            Command::Login(args) => login::login(&global, &args),
            Command::Trust(args) => trust::trust(&global, &args),
            Command::Completions(args) => completions::completions(&args),
            Command::Man(args) => man::man(&args),
        }
    }
}

/// A terminal that cannot move its cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Writes data to standard output. A reader that has gone away is no mistake of ours; data that
/// cannot be written is not a success.
pub(crate) fn print_data(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{newline}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        print_error(&format!("cannot write to standard output: {error}"), None);
        std::process::exit(1);
    }
}

/// Writes narration to standard error.
pub(crate) fn print_status(text: &str) {
    use std::io::Write as _;
    if log::is_json() {
        log::write_json_line("INFO", text, None);
        return;
    }
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Says what may go wrong.
pub(crate) fn print_warning(message: &str, help: &str) {
    if log::is_json() {
        return log::write_json_line("WARN", message, Some(help));
    }
    let bold = anstyle::Style::new().bold();
    let yellow = bold.fg_color(Some(anstyle::AnsiColor::Yellow.into()));
    print_status(&format!("{yellow}warning{yellow:#}{bold}: {}{bold:#}", escape_control(message)));
    print_status(&format!("{bold}help{bold:#}: {}", escape_control(help)));
}

/// Says what went wrong.
pub(crate) fn print_error(message: &str, help: Option<&str>) {
    if log::is_json() {
        log::write_json_line("ERROR", message, help);
        return;
    }
    let bold = anstyle::Style::new().bold();
    let red = bold.fg_color(Some(anstyle::AnsiColor::Red.into()));
    print_status(&format!("{red}error{red:#}{bold}: {}{bold:#}", escape_control(message)));
    if let Some(help) = help {
        print_status(&format!("{bold}help{bold:#}: {}", escape_control(help)));
    }
}

/// One JSON document on standard output: on one line where a document is a line.
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
