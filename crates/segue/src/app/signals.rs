//! Signals that end the process, and hangups.

use std::sync::Arc;
use std::time::Duration;

use segue_runtime::store::Store;

use crate::print::{clear_live_display, print_status};

/// Completes when the process should end: on Ctrl-C, SIGTERM or SIGHUP. A second signal ends the process
/// at once.
pub(crate) fn interrupted(store: &Arc<dyn Store>) -> impl Future<Output = ()> + use<> {
    let store = store.clone();
    async move {
        signalled(true).await;
        exit_on_second_signal(store);
    }
}

/// The same for `segue serve`, where SIGHUP has the configuration read again ([`HangupSignals`]).
pub(crate) async fn interrupted_except_hangup(store: Arc<dyn Store>) {
    signalled(false).await;
    exit_on_second_signal(store);
}

/// How long the store may take to release the runs of a process that ends at once.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

fn exit_on_second_signal(store: Arc<dyn Store>) {
    print_status("stopping; press Ctrl-C again to stop at once");
    tokio::spawn(async move {
        signalled(true).await;
        // Without a release the next process counts these runs as crashed.
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, store.release_all()).await;
        clear_live_display();
        std::process::exit(130);
    });
}

#[cfg(unix)]
async fn signalled(with_hangup: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let (terminate, hangup) = (signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut hangup)) = (terminate, hangup) else {
        return std::future::pending().await;
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv(), if with_hangup => {}
    }
}

/// SIGHUP: either the terminal closed, or an operator wants the configuration read again.
#[cfg(unix)]
pub(crate) struct HangupSignals {
    signals: Option<tokio::signal::unix::Signal>,
    was_terminal: bool,
}

/// What a hangup means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// Read the configuration again.
    Reload,
    /// The terminal closed: end.
    Leave,
}

#[cfg(unix)]
impl HangupSignals {
    pub(crate) fn new() -> HangupSignals {
        use std::io::IsTerminal as _;
        use tokio::signal::unix::{SignalKind, signal};
        let was_terminal = std::io::stderr().is_terminal();
        HangupSignals { signals: signal(SignalKind::hangup()).ok(), was_terminal }
    }

    pub(crate) async fn next(&mut self) -> Hangup {
        use std::io::IsTerminal as _;
        match &mut self.signals {
            Some(signals) => drop(signals.recv().await),
            None => std::future::pending().await,
        }
        let is_gone = self.was_terminal && !std::io::stderr().is_terminal();
        if is_gone { Hangup::Leave } else { Hangup::Reload }
    }
}

/// Other systems have no SIGHUP.
#[cfg(not(unix))]
pub(crate) struct HangupSignals;

#[cfg(not(unix))]
impl HangupSignals {
    pub(crate) fn new() -> HangupSignals {
        HangupSignals
    }

    pub(crate) async fn next(&mut self) -> Hangup {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
async fn signalled(_with_hangup: bool) {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
