//! The run service of a command that serves: started, recovered after a crash, and pruned.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use segue_runtime::driver::now_ms;
use segue_runtime::store::{Retention, RunRow};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{App, AppError};
use crate::api::runs::RunService;
use crate::api::runs::dispatch::Dispatcher;
use crate::api::threads::ThreadPools;
#[cfg(feature = "restate")]
use crate::config::RestateConfig;
use crate::config::{Config, DriverConfig, RunRetention};
#[cfg(feature = "restate")]
use crate::dispatch::restate::{RestateClient, listen, listen_address, serve};
use crate::observe::Observers;
use crate::print::{print_error, print_note, print_status};

/// The time between two searches for runs to delete.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);

/// How many resumed runs the start names, without `--verbose`.
const RESUMED_NAMED_MAX: usize = 10;

/// Starts the threads of a server.
pub(crate) fn start_threads() -> Result<ThreadPools, AppError> {
    ThreadPools::start()
        .map_err(|error| AppError::new(format!("cannot start threads: {error}"), None))
}

/// The service over a configured engine. A composition cannot take one of the `reserved` tool names.
pub(crate) fn run_service(
    app: &App,
    pools: &ThreadPools,
    observers: Observers,
    reserved: BTreeSet<&'static str>,
) -> Arc<RunService> {
    let (engine, library, toolsets) =
        (app.engine.clone(), app.library().clone(), app.config.toolsets.clone());
    let service = RunService::new(engine, library, toolsets, reserved, pools.threads(), observers);
    service.set_broken(app.not_loaded());
    service.set_pending_sources(app.upstream.pending());
    service.set_installation(app.installation());
    service.set_approvals(app.config.server.approvals);
    service.set_files(app.editable_files());
    service
}

/// Resumes interrupted runs whose servers are ready; with `ready`, only those that waited for one of
/// these servers. A client that asks for such a run finds it under way. Runs of a shared store are claimed
/// instead ([`share_runs`]).
pub(crate) async fn recover(
    app: &App,
    service: &Arc<RunService>,
    ready: Option<&BTreeSet<Arc<str>>>,
) {
    if service.is_shared() {
        return;
    }
    match service.recover(&app.upstream.pending(), ready).await {
        Ok(resumed) if resumed.is_empty() || app.options.quiet => {}
        Ok(resumed) => {
            let shown_max = if app.options.verbose { usize::MAX } else { RESUMED_NAMED_MAX };
            print_status(&resumed_runs(&resumed, shown_max));
        }
        Err(error) => print_error(&error.to_string(), None),
    }
}

/// Which runs were resumed, in one line.
fn resumed_runs(runs: &[RunRow], shown_max: usize) -> String {
    let shown = runs.iter().take(shown_max);
    let shown: Vec<String> = shown.map(|run| format!("{} ({})", run.run_id, run.name)).collect();
    let more = match runs.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let runs = if runs.len() == 1 { "run" } else { "runs" };
    format!("resumes the interrupted {runs} {}{more}", shown.join(", "))
}

/// What decides which process drives a run; none where processes claim runs from the store.
pub(crate) fn dispatcher(config: &Config) -> Result<Option<Arc<dyn Dispatcher>>, AppError> {
    match &config.driver {
        DriverConfig::Local => Ok(None),
        #[cfg(feature = "restate")]
        DriverConfig::Restate(restate) => Ok(Some(restate_client(restate)?)),
        #[cfg(not(feature = "restate"))]
        DriverConfig::Restate(_) => {
            let message = "this Segue was built without the feature `restate`";
            let help = "use a build with it, or remove `driver`";
            Err(AppError::new(message, Some(help.to_owned())))
        }
    }
}

/// A client of the configured Restate.
#[cfg(feature = "restate")]
pub(crate) fn restate_client(config: &RestateConfig) -> Result<Arc<RestateClient>, AppError> {
    let client = RestateClient::new(&config.ingress, &config.admin, &config.advertise);
    client.map(Arc::new).map_err(|error| {
        let help = "correct `driver.restate`; an address there has no password";
        AppError::new(error.to_string(), Some(help.to_owned()))
    })
}

/// Has the dispatcher, where there is one, ask this process to drive runs. The task ends once `leaving` has
/// become true and the service has released its runs.
pub(crate) fn take_dispatched(
    config: &Config,
    service: &Arc<RunService>,
    leaving: watch::Receiver<bool>,
) -> Result<Option<JoinHandle<()>>, AppError> {
    #[cfg(feature = "restate")]
    if let DriverConfig::Restate(config) = &config.driver {
        let restate = restate_client(config)?;
        let at = config.listen.unwrap_or_else(|| listen_address(restate.advertise()));
        let connections = &service.threads().connections;
        let listener = {
            let _guard = connections.enter();
            listen(at).map_err(|error| {
                let help = "`driver.restate.listen` names another address";
                AppError::new(format!("cannot listen on {at}: {error}"), Some(help.to_owned()))
            })?
        };
        print_status(&format!(
            "Restate calls this worker at {}; listening at {at}",
            config.advertise
        ));
        let runs = Arc::new(service.clone());
        return Ok(Some(connections.spawn(serve(runs, restate, listener, leaving))));
    }
    let _ = (config, service, leaving);
    Ok(None)
}

/// Takes part in driving the runs of a store that several processes share: so many at once.
pub(crate) fn share_runs(service: &Arc<RunService>, room: usize) {
    if service.is_shared() {
        service.set_room(room);
        service.threads().requests.spawn(service.clone().share_runs());
    }
}

/// Deletes finished runs in the background, as `retention` says, while this process lives.
pub(crate) fn spawn_pruning(app: &App) {
    let Some(RunRetention { older_than_ms, keep }) = app.config.retention else { return };
    if app.config.discovered && !is_own_store(&app.config) {
        return print_note(
            "`retention` has no effect: a configuration that was found here may only prune a \
             `store` in its own folder",
        );
    }
    let store = app.engine.store().clone();
    app.runtime().spawn(async move {
        loop {
            let ended_before_ms = older_than_ms.map(|age| now_ms().saturating_sub(age));
            match store.prune(Retention { ended_before_ms, keep_last: keep }).await {
                Ok(0) => {}
                Ok(runs) => tracing::info!(target: "segue::store", runs, "pruned runs"),
                Err(error) => tracing::warn!(target: "segue::store", "{error}"),
            }
            tokio::time::sleep(PRUNE_INTERVAL).await;
        }
    });
}

/// Whether the store lies in the folder of the configuration. A configuration that was merely found in
/// the working directory must not delete runs of the user's shared store.
fn is_own_store(config: &Config) -> bool {
    let folder = config.file.as_deref().and_then(|file| file.parent()?.canonicalize().ok());
    let store = config.store.file().and_then(|store| store.canonicalize().ok());
    folder.zip(store).is_some_and(|(folder, store)| store.starts_with(folder))
}
