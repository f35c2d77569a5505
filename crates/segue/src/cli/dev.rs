//! `segue dev`

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use segue_core::access::{Principal, THIS_MACHINE};
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::store::RunQuery;

use super::serve::{ServeArgs, ServeMode, start};
use super::{Exit, Global};
use crate::api::runs::handle::QuestionPolicy;
use crate::api::runs::{RunService, StartRun};
use crate::app::{App, AppOptions};
use crate::observe::RequestOrigin;
use crate::print::{print_note, print_status};

/// The composition that runs when there is no run to show.
const WELCOME: &str = include_str!("dev/welcome.yaml");

/// Open this folder's compositions in the browser, and reload them when they change
///
/// Serves like `segue serve --watch` on this machine, and prints a link that signs the browser in. Where no
/// compositions are configured, it serves those that it finds: `compositions/`, `*.segue.yaml` and
/// `examples/*/composition.yaml`.
#[derive(Args, Clone, Debug)]
pub(super) struct DevArgs {
    /// The port to listen on; 0 takes a free one [default: 7433, or a free one if it is taken]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Do not open the browser
    #[arg(long)]
    no_open: bool,
    /// Do not run an example when there is no run to show yet
    #[arg(long)]
    no_example: bool,
}

pub(super) fn dev(global: &Global, args: &DevArgs) -> Exit {
    let options = AppOptions { finds_compositions: true, edits: true, ..global.options() };
    let mode = ServeMode::Dev {
        opens_browser: !args.no_open && has_display(),
        runs_example: !args.no_example,
    };
    let serve = ServeArgs::for_dev(args.port);
    start(&options, &serve, mode).unwrap_or_else(|exit| exit)
}

/// Whether a browser can be opened for a person who sees it.
fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_screen =
        cfg!(any(target_os = "macos", windows)) || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    std::io::stderr().is_terminal() && has_screen
}

/// Opens an address in the browser. The address is printed, too, so a failure is only a note.
pub(super) fn open_browser(address: &str) {
    let mut command = if cfg!(target_os = "macos") {
        Command::new("open")
    } else if cfg!(windows) {
        let mut command = Command::new("rundll32");
        command.arg("url.dll,FileProtocolHandler");
        command
    } else {
        Command::new("xdg-open")
    };
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        // It is waited for, so that it leaves no zombie process.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(_) => print_note("no browser could be opened: open the link above"),
    }
}

/// Prints what this folder has, and runs an example where there is no run to show yet.
pub(super) async fn greet(app: &App, service: &Arc<RunService>, runs_example: bool) {
    let count = service.full_catalog().tools.iter().count();
    match (count, app.config.has_found_compositions) {
        (0, _) => print_status(
            "no composition here yet: `segue init` writes an example, and files in `compositions/` \
             appear when they are saved",
        ),
        (count, true) => print_status(&format!("{count} compositions found in this folder")),
        (count, false) => print_status(&format!("{count} compositions configured")),
    }
    if !runs_example || !app.config.has_found_compositions {
        return;
    }
    let query = RunQuery { limit: 1, ..RunQuery::default() };
    let has_runs = app.engine.store().runs(&query).await.is_ok_and(|it| !it.runs.is_empty());
    if !has_runs && run_welcome(service).await.is_some() {
        print_status("there was no run yet, so the example `welcome` ran");
    }
}

/// Runs the example, which calls nothing outside of this process.
async fn run_welcome(service: &Arc<RunService>) -> Option<()> {
    let engine = service.full_catalog().engine;
    let (plan, _) = engine.plan(&Source::new("welcome", WELCOME));
    let start = StartRun {
        plan: plan?,
        input: Value::empty_object(),
        context: Value::empty_object(),
        options: segue_core::run::Options::default(),
        policy: QuestionPolicy::Defer,
        run_id: None,
        selection: segue_core::run::StepSelection::default(),
        origin: RequestOrigin::default(),
    };
    let who = Principal::administrator(THIS_MACHINE);
    service.start(&who, start).await.ok().map(drop)
}
