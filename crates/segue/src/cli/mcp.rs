//! `segue mcp`

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::{oneshot, watch};

use super::{Exit, Global, report, report_failure};
use crate::app::reload::{FileStamps, Reloader};
use crate::app::service::{
    dispatcher, recover, run_service, share_runs, spawn_pruning, start_threads,
};
use crate::app::signals::interrupted;
use crate::app::{App, current_thread_runtime};
use crate::mcp::{self, builtin};
use crate::print::print_error;

const EXAMPLES: &str = "\
In a host's configuration:
  { \"mcpServers\": { \"segue\": { \"command\": \"segue\", \"args\": [\"--config\", \"/path/segue.yaml\", \"mcp\"] } } }

Every configured composition is a tool; see docs/serving.md.";

/// Serve the configured compositions to an MCP host over standard input and output
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct McpArgs {
    /// Also reload the configuration when its file changes
    #[arg(long)]
    watch: bool,
}

pub(super) fn mcp(global: &Global, args: &McpArgs) -> Exit {
    serve(global, args).unwrap_or_else(|exit| exit)
}

fn serve(global: &Global, args: &McpArgs) -> Result<Exit, Exit> {
    let config = global.load_config()?;
    // A thread of its own answers the client's handshake while MCP servers may still be starting.
    let (ready, service_ready) = watch::channel(None);
    let (gone, is_gone) = oneshot::channel();
    let limits = Arc::new(config.limits.clone());
    let connection = std::thread::Builder::new().name("mcp".to_owned()).spawn(move || {
        current_thread_runtime().block_on(mcp::serve_stdio(service_ready, limits));
        let _ = gone.send(());
    });
    connection.map_err(|error| {
        print_error(&format!("cannot start a thread for the client: {error}"), None);
        Exit::RunFailed
    })?;
    // Before the files are read, so that no change is missed.
    let seen = FileStamps::of(&config);
    let mut app = App::open_served(&global.options()).map_err(|error| report(&error))?;
    let pools = start_threads().map_err(|error| report_failure(&error))?;
    let service = run_service(&app, &pools, app.observers(), builtin::names());
    if let Some(dispatcher) = dispatcher(&config).map_err(|error| report(&error))? {
        service.set_dispatcher(dispatcher);
    }
    let runtime = app.runtime().clone();
    runtime.block_on(recover(&app, &service, None));
    share_runs(&service, app.config.worker.runs);
    spawn_pruning(&app);
    ready.send_replace(Some(service.clone()));
    let (watches_config, shows_findings) = (args.watch, false);
    let reloader =
        Reloader { app: &mut app, service: &service, seen, watches_config, shows_findings };
    runtime.block_on(watch_until_gone(reloader, is_gone));
    Ok(Exit::Success)
}

/// Applies changes to files until the client disconnects.
async fn watch_until_gone(reloader: Reloader<'_>, gone: oneshot::Receiver<()>) {
    let service = reloader.service;
    let store = reloader.app.engine.store().clone();
    tokio::select! {
        _ = gone => service.settle(Duration::from_millis(service.limits().served_leave_ms)).await,
        // A signal does not wait for runs under way: the next process resumes them from their journal.
        () = interrupted(&store) => {}
        () = reloader.watch(None, |_| {}) => {}
    }
    service.stop_claiming().await;
    service.detach_all().await;
}
