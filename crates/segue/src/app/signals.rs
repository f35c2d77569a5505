//! Signals that end the process, and hangups.

use std::sync::Arc;
use std::time::Duration;

use segue_runtime::store::Store;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::print::{clear_live_display, print_status};

/// Completes when the process should end: on Ctrl-C, SIGTERM or SIGHUP. A second signal ends the process
/// at once. Signals count from the call of this function, not from the first poll.
pub(crate) fn interrupted(store: &Arc<dyn Store>) -> impl Future<Output = ()> + use<> {
    interrupted_by(EndSignals::listen(true), store.clone())
}

/// The same for `segue serve`, where SIGHUP has the configuration read again ([`HangupSignals`]).
pub(crate) fn interrupted_except_hangup(
    store: &Arc<dyn Store>,
) -> impl Future<Output = ()> + use<> {
    interrupted_by(EndSignals::listen(false), store.clone())
}

async fn interrupted_by(mut first: EndSignals, store: Arc<dyn Store>) {
    first.next().await;
    exit_on_second_signal(store);
}

/// How long the store may take to release the runs of a process that ends at once.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

fn exit_on_second_signal(store: Arc<dyn Store>) {
    // Before the message: a signal that arrives before this process listens would be lost.
    let mut second = EndSignals::listen(true);
    print_status("stopping; press Ctrl-C again to stop at once");
    tokio::spawn(async move {
        second.next().await;
        // Without a release the next process counts these runs as crashed.
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, store.release_all()).await;
        clear_live_display();
        std::process::exit(130);
    });
}

/// The signals that end the process. It receives those that arrive after [`EndSignals::listen`].
#[cfg(unix)]
struct EndSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

#[cfg(unix)]
impl EndSignals {
    fn listen(with_hangup: bool) -> EndSignals {
        let hangup = if with_hangup { signal(SignalKind::hangup()).ok() } else { None };
        EndSignals {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
            hangup,
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            () = received(&mut self.interrupt) => {}
            () = received(&mut self.terminate) => {}
            () = received(&mut self.hangup) => {}
        }
    }
}

/// Completes when the signal arrives; never if the process cannot listen to it.
#[cfg(unix)]
async fn received(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => drop(signals.recv().await),
        None => std::future::pending().await,
    }
}

/// SIGHUP: either the terminal closed, or an operator wants the configuration read again.
#[cfg(unix)]
pub(crate) struct HangupSignals {
    signals: Option<Signal>,
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
        let was_terminal = std::io::stderr().is_terminal();
        HangupSignals { signals: signal(SignalKind::hangup()).ok(), was_terminal }
    }

    pub(crate) async fn next(&mut self) -> Hangup {
        use std::io::IsTerminal as _;
        received(&mut self.signals).await;
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

/// Other systems have Ctrl-C only.
#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn listen(_with_hangup: bool) -> EndSignals {
        EndSignals
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
