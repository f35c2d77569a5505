//! `segue worker`: a process that drives runs of a shared store; `segue worker list`: all that share it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use segue_core::diagnostic::Code;
use segue_core::duration::format_duration;
use segue_core::view::rfc3339;
use segue_runtime::store::WorkerRow;
use serde::Serialize;
use tokio::sync::watch;

use super::error::{report_error, store_error};
use super::{Exit, Global, print_json, report, report_failure};
use crate::api::error::{Error, ErrorKind};
use crate::api::runs::RunService;
use crate::api::runs::worker::refusal;
use crate::app::reload::{FileStamps, Reloader};
use crate::app::service::{
    dispatcher, run_service, share_runs, spawn_pruning, start_threads, take_dispatched,
};
use crate::app::signals::{HangupSignals, interrupted_except_hangup};
use crate::app::{App, ServerSelection, load_config};
use crate::config::StoreLocation;
use crate::mcp::builtin;
use crate::print::{escape_control, print_data, print_error, print_status};

/// How long the last answers to a dispatcher may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  segue --store postgres://segue@db/segue worker        drive runs of this store
  segue --store postgres://segue@db/segue worker list   the processes that share it

The other processes: `segue serve --no-drive` only takes requests, `segue run --detach` leaves a run to
the workers. See docs/scaling.md.";

/// Drive runs of a store that several processes share
///
/// Claims runs that are due and that no living process drives, if this machine has their tools. SIGTERM
/// leaves them to other workers at once.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(super) struct WorkerArgs {
    #[command(subcommand)]
    command: Option<WorkerCommand>,
    /// How many runs to drive at once [default: `worker.runs`, else 256]
    #[arg(long, value_name = "N")]
    runs: Option<NonZeroUsize>,
    /// Also reload the configuration when its file changes; SIGHUP always reloads it
    #[arg(long)]
    watch: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum WorkerCommand {
    /// List the processes that share the store: heartbeats, versions, tools and runs
    List,
}

pub(super) fn worker(global: &Global, args: &WorkerArgs) -> Exit {
    match args.command {
        Some(WorkerCommand::List) => list(global),
        None => start(global, args).unwrap_or_else(|exit| exit),
    }
}

/// Fails unless other processes can use the store.
pub(super) fn require_shared(store: &StoreLocation, what: &str) -> Result<(), Error> {
    if store.is_shared() {
        return Ok(());
    }
    let message = format!("{what} needs a store that several processes share");
    let error = Error::new(ErrorKind::Invalid, Code::UnsharedStore, message);
    Err(error.help("set `store: postgres://…`; `segue explain unshared-store` says more"))
}

fn start(global: &Global, args: &WorkerArgs) -> Result<Exit, Exit> {
    let options = global.options();
    let config = load_config(&options).map_err(|error| report(&error))?;
    require_shared(&config.store, "`segue worker`").map_err(|error| report_error(&error))?;
    let dispatcher = dispatcher(&config).map_err(|error| report(&error))?;
    // Before the files are read, so that no change is missed.
    let seen = FileStamps::of(&config);
    let mut app = App::open_served(&options).map_err(|error| report(&error))?;
    let pools = start_threads().map_err(|error| report_failure(&error))?;
    let service = run_service(&app, &pools, app.served_observers(), builtin::names());
    if let Some(dispatcher) = dispatcher {
        service.set_dispatcher(dispatcher);
    }
    let runtime = app.runtime().clone();
    runtime.block_on(async {
        if let Err(error) = app.engine.store().try_write().await {
            print_error(&error.to_string(), Some("name a writable store with `--store`"));
            return Err(Exit::Usage);
        }
        spawn_pruning(&app);
        let interrupted = interrupted_except_hangup(app.engine.store());
        let (leave, leaving) = watch::channel(false);
        let dispatched =
            take_dispatched(&config, &service, leaving).map_err(|error| report(&error))?;
        share_runs(&service, args.runs.map_or(config.worker.runs, NonZeroUsize::get));
        print_status(&ready_line(&service));
        let (watches_config, shows_findings) = (args.watch, false);
        let reloader =
            Reloader { app: &mut app, service: &service, seen, watches_config, shows_findings };
        tokio::select! {
            () = interrupted => {}
            () = reloader.watch(Some(HangupSignals::new()), |_| {}) => {}
        }
        // No client waits here: other workers go on with the runs at once.
        leave.send_replace(true);
        service.stop_claiming().await;
        service.detach_all().await;
        if let Some(dispatched) = dispatched {
            // Its requests are answered now that no run is driven here.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, dispatched).await;
        }
        Ok(Exit::Success)
    })
}

fn ready_line(service: &RunService) -> String {
    let info = service.worker_info();
    let tools: Vec<&str> = info.namespaces.iter().map(|name| &**name).collect();
    format!(
        "worker ready on {}: drives up to {} runs with the tools of {}",
        escape_control(&info.host),
        info.room,
        escape_control(&tools.join(", "))
    )
}

/// A process that shares the store, as it is printed.
#[derive(Serialize)]
struct ListedWorker<'a> {
    id: &'a Arc<str>,
    host: &'a Arc<str>,
    version: &'a Arc<str>,
    /// Whether its lease holds.
    alive: bool,
    /// How many runs it drives at once; 0 if it only takes requests.
    room: usize,
    /// How many it drives now.
    runs: u64,
    namespaces: &'a [Arc<str>],
    /// Workers with different hashes have different tools.
    tools_hash: &'a Arc<str>,
    started_at: String,
    beat_ago_ms: u64,
    /// Why it claims no runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    refuses: Option<String>,
}

impl ListedWorker<'_> {
    fn new<'a>(worker: &'a WorkerRow, all: &[WorkerRow]) -> ListedWorker<'a> {
        let WorkerRow { id, info, started_ms, beat_ago_ms, is_alive, runs } = worker;
        let claims = *is_alive && info.room > 0;
        ListedWorker {
            id,
            host: &info.host,
            version: &info.version,
            alive: *is_alive,
            room: info.room,
            runs: *runs,
            namespaces: &info.namespaces,
            tools_hash: &info.tools_hash,
            started_at: rfc3339(*started_ms),
            beat_ago_ms: *beat_ago_ms,
            refuses: if claims { refusal(&info.version, all) } else { None },
        }
    }

    fn line(&self) -> String {
        let state = match self {
            ListedWorker { alive: false, .. } => "dead",
            ListedWorker { refuses: Some(_), .. } => "waits",
            ListedWorker { room: 0, .. } => "requests",
            _ => "alive",
        };
        let tools: Vec<&str> = self.namespaces.iter().map(|name| &**name).collect();
        let short = self.tools_hash.get(..8).unwrap_or_default();
        let line = format!(
            "{state:<8}  {:<20}  {:<8}  {:>4} of {:<4}  {:>8} ago  {short}  {}",
            self.host,
            self.version,
            self.runs,
            self.room,
            format_duration(self.beat_ago_ms),
            tools.join(", ")
        );
        let line = escape_control(&line).into_owned();
        match &self.refuses {
            Some(reason) => format!("{line}\n          claims no runs: {}", escape_control(reason)),
            None => line,
        }
    }
}

fn list(global: &Global) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    if let Err(error) = require_shared(&app.config.store, "`segue worker list`") {
        return report_error(&error);
    }
    let workers = match app.runtime().block_on(app.engine.store().workers()) {
        Ok(workers) => workers,
        Err(error) => return report_error(&store_error(error)),
    };
    let listed: Vec<_> = workers.iter().map(|worker| ListedWorker::new(worker, &workers)).collect();
    if global.is_json() {
        print_json(global, &serde_json::json!({ "workers": listed }));
    } else if listed.is_empty() {
        print_status("no process shares this store now; `segue worker` starts one");
    } else {
        listed.iter().for_each(|worker| print_data(&worker.line()));
    }
    Exit::Success
}
