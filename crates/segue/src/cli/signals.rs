//! Signals that end the process, and hangups.

use std::sync::Arc;
use std::time::Duration;

use segue_runtime::store::Store;

use super::print_status;

/// Ends when somebody wants the process to end: Ctrl-C, a terminal that closes, a supervisor. The
/// second time the process ends at once.
pub(super) fn interrupted(store: &Arc<dyn Store>) -> impl Future<Output = ()> + use<> {
    let store = store.clone();
    async move {
        signalled(true).await;
        second_time_at_once(store);
    }
}

/// The same for what is served: a terminal that closes ends it, and any other hangup means something else.
pub(super) async fn interrupted_for_good(store: Arc<dyn Store>) {
    signalled(false).await;
    second_time_at_once(store);
}

/// How long the store has to release the runs of a process that ends at once.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

fn second_time_at_once(store: Arc<dyn Store>) {
    print_status("stopping; press Ctrl-C again to stop at once");
    tokio::spawn(async move {
        signalled(true).await;
        // Else the next process takes its runs for those of a process that died, which counts against
        // them.
        let _ = tokio::time::timeout(RELEASED_WITHIN, store.release_all()).await;
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn signalled(is_hangup_one: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, hangup) = (signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut hangup)) = (terminate, hangup) else {
        return std::future::pending().await;
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv(), if is_hangup_one => {}
    }
}

/// Comes with every hangup. A terminal that has closed is told from somebody's signal by being gone.
#[cfg(unix)]
pub(super) struct HangupSignals {
    signals: Option<tokio::signal::unix::Signal>,
    was_terminal: bool,
}

/// What a hangup means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hangup {
    /// Somebody wants the configuration to be read again.
    Reload,
    /// The terminal is gone.
    Leave,
}

#[cfg(unix)]
impl HangupSignals {
    pub(super) fn new() -> HangupSignals {
        use std::io::IsTerminal as _;
        use tokio::signal::unix::{SignalKind, signal};
        let was_terminal = std::io::stderr().is_terminal();
        HangupSignals { signals: signal(SignalKind::hangup()).ok(), was_terminal }
    }

    pub(super) async fn next(&mut self) -> Hangup {
        use std::io::IsTerminal as _;
        match &mut self.signals {
            Some(signals) => drop(signals.recv().await),
            None => std::future::pending().await,
        }
        let is_gone = self.was_terminal && !std::io::stderr().is_terminal();
        if is_gone { Hangup::Leave } else { Hangup::Reload }
    }
}

/// There are none.
#[cfg(not(unix))]
pub(super) struct Hangups;

#[cfg(not(unix))]
impl HangupSignals {
    pub(super) fn new() -> HangupSignals {
        HangupSignals
    }

    pub(super) async fn next(&mut self) -> Hangup {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
async fn signalled(_is_hangup_one: bool) {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
