//! `segue mcp`

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use segue_runtime::driver::now_ms;
use segue_runtime::store::Retention;
use tokio::sync::{oneshot, watch};

use super::app::{App, store_file};
use super::load::load_config;
use super::reload::{FileStamps, Reloader};
use super::signals::interrupted;
use super::{Exit, Global, print_error, print_status};
use crate::api::runs::RunService;
use crate::api::threads::ThreadPools;
use crate::config::{Config, RunRetention};
use crate::mcp::{self, builtin};
use crate::observe::Observers;

const EXAMPLES: &str = "\
In a host's configuration:
  { \"mcpServers\": { \"segue\": { \"command\": \"segue\", \"args\": [\"--config\", \"/path/segue.yaml\", \"mcp\"] } } }

Every configured composition is a tool; see docs/serving.md.";

/// Serve the configured compositions to an MCP host, over standard input and output
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct McpArgs {
    /// Follow the configuration, too, as it changes
    #[arg(long)]
    watch: bool,
}

pub(super) fn mcp(global: &Global, args: &McpArgs) -> Exit {
    let config = match load_config(global) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    // The client is greeted on a thread of its own, while tool servers may still be starting.
    let (open, opening) = watch::channel(None);
    let (gone, is_gone) = oneshot::channel();
    let limits = Arc::new(config.limits.clone());
    let door = std::thread::Builder::new().name("mcp".to_owned()).spawn(move || {
        super::run::runtime().block_on(mcp::serve_stdio(opening, limits));
        let _ = gone.send(());
    });
    if let Err(error) = door {
        print_error(&format!("no thread for the client: {error}"), None);
        return Exit::RunFailed;
    }
    // Before they are read, so that no change is missed.
    let seen = FileStamps::of(&config);
    let mut app = match App::open_served(global) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let pools = match pools() {
        Ok(pools) => pools,
        Err(exit) => return exit,
    };
    let (service, runtime) = (run_service(&app, &pools, app.observers()), app.runtime().clone());
    runtime.block_on(recover(global, &app, &service, None));
    spawn_pruning(&app);
    open.send_replace(Some(service.clone()));
    let watch = Reloader { app: &mut app, service: &service, seen, follows_config: args.watch };
    runtime.block_on(serve(global, watch, is_gone));
    Exit::Success
}

/// The threads of a server.
pub(super) fn pools() -> Result<ThreadPools, Exit> {
    ThreadPools::start().map_err(|error| {
        print_error(&format!("no threads to work with: {error}"), None);
        Exit::RunFailed
    })
}

/// What the configured engine serves.
pub(super) fn run_service(app: &App, pools: &ThreadPools, observing: Observers) -> Arc<RunService> {
    let (engine, library, toolsets) =
        (app.engine.clone(), app.library().clone(), app.config.toolsets.clone());
    RunService::new(engine, library, toolsets, builtin::names(), pools.threads(), observing)
}

/// How far apart a server looks for runs to forget.
const FORGETS_APART: Duration = Duration::from_hours(1);

/// Forgets runs as the configuration wants it, as long as this process is there.
pub(super) fn spawn_pruning(app: &App) {
    let Some(RunRetention { older_than_ms, keep }) = app.config.retention else { return };
    if app.config.discovered && !is_own_store(&app.config) {
        return print_status(
            "note: `retention` of a configuration that was found needs a `store` beside it",
        );
    }
    let store = app.engine.store().clone();
    app.runtime().spawn(async move {
        loop {
            let ended_before_ms = older_than_ms.map(|age| now_ms().saturating_sub(age));
            match store.prune(Retention { ended_before_ms, keep_last: keep }).await {
                Ok(0) => {}
                Ok(runs) => tracing::info!(target: "segue::store", runs, "forgot runs"),
                Err(error) => tracing::warn!(target: "segue::store", "{error}"),
            }
            tokio::time::sleep(FORGETS_APART).await;
        }
    });
}

/// Whether the store lies in the folder of the configuration. Whoever wrote a configuration that was
/// merely found there does not decide about everybody's runs.
fn is_own_store(config: &Config) -> bool {
    let folder = config.file.as_deref().and_then(|file| file.parent()?.canonicalize().ok());
    let store = store_file(&config.store).and_then(|store| store.canonicalize().ok());
    folder.zip(store).is_some_and(|(folder, store)| store.starts_with(folder))
}

/// Goes on with what was interrupted: everything whose servers are there, or what waited for those that
/// are there now. Whoever asks for such a run finds it under way.
pub(super) async fn recover(
    global: &Global,
    app: &App,
    service: &Arc<RunService>,
    now: Option<&BTreeSet<Arc<str>>>,
) {
    match service.recover(&app.upstream.pending(), now).await {
        Ok(count) if global.verbose => print_status(&format!("{count} runs are not over")),
        Ok(_) => {}
        Err(error) => print_error(&error.to_string(), None),
    }
}

/// Looks after the files until the client goes away.
async fn serve(global: &Global, watch: Reloader<'_>, gone: oneshot::Receiver<()>) {
    let service = watch.service;
    let store = watch.app.engine.store().clone();
    tokio::select! {
        _ = gone => service.settle(Duration::from_millis(service.limits().served_leave_ms)).await,
        // Whoever ends us does not wait. What is under way goes on from its journal next time.
        () = interrupted(&store) => {}
        () = watch.watch(global, None, |_| {}) => {}
    }
    service.detach_all().await;
}
