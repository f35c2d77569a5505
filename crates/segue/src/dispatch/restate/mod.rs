//! Restate as the dispatcher: run ids and due times → requests to Restate, and requests of Restate → driven runs.
//!
//! ```text
//! client.rs     requests to Restate: its ingress takes runs, its admin API takes the address of the workers
//! object.rs     the object `segue.Run` of the workers: its key is a run, its one handler drives the run
//! endpoint.rs   the port on which Restate calls the workers
//! diagnose.rs   what `segue doctor` finds
//! ```
//!
//! What Restate loses, refuses or does twice delays a run and never harms it: the store says which runs are
//! due, and its leases say which process writes a run. So every request to Restate may be repeated.
//!
//! Not here: sending due runs again (`api::runs::worker`), and driving (`api::runs::dispatch`).

mod client;
mod diagnose;
mod endpoint;
mod object;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::error::Error;
use crate::api::runs::RunService;
use crate::api::runs::dispatch::Driven;

pub use client::{RestateClient, RestateError};
pub use diagnose::diagnose;
pub use endpoint::{listen, listen_address};

/// Drives runs: the service, or what stands for it in a test.
#[async_trait]
pub trait DrivesRuns: Send + Sync {
    /// Takes a run if no living process owns it, and drives it until it ends or waits. Dropping the future
    /// stops nothing: the run goes on.
    async fn drive(&self, run_id: &Arc<str>) -> Result<Driven, Error>;
}

#[async_trait]
impl DrivesRuns for Arc<RunService> {
    async fn drive(&self, run_id: &Arc<str>) -> Result<Driven, Error> {
        self.drive_dispatched(run_id).await
    }
}

/// The first pause after a registration that failed, and the longest.
const REGISTER_PAUSE_MIN: Duration = Duration::from_millis(250);
const REGISTER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often a worker checks that Restate still knows the workers.
const REGISTERED_EVERY: Duration = Duration::from_mins(1);

/// Has Restate call this process for runs at this listener, and registers the address at which Restate reaches
/// the workers. Ends after `leaving` has become true and every request is answered, which they are once the
/// service has released its runs.
pub async fn serve(
    runs: Arc<dyn DrivesRuns>,
    restate: Arc<RestateClient>,
    listener: TcpListener,
    leaving: watch::Receiver<bool>,
) {
    let answering = endpoint::answer(listener, object::endpoint(runs), leaving.clone());
    tokio::join!(answering, keep_registered(&restate, leaving));
}

/// Registers the workers with Restate at the start, and again whenever Restate does not know them, such as
/// after it lost its data. Workers that start together all register the same address.
async fn keep_registered(restate: &RestateClient, mut leaving: watch::Receiver<bool>) {
    let mut pause = REGISTER_PAUSE_MIN;
    let mut is_known = false;
    loop {
        let tried = if is_known { is_still_known(restate).await } else { restate.register().await };
        let wait = match tried {
            Ok(()) => {
                is_known = true;
                pause = REGISTER_PAUSE_MIN;
                REGISTERED_EVERY
            }
            Err(error) => {
                tracing::warn!(target: "segue::restate", "the workers are not registered: {error}");
                is_known = false;
                pause = (pause * 2).min(REGISTER_PAUSE_MAX);
                pause
            }
        };
        if tokio::time::timeout(wait, leaving.wait_for(|leaving| *leaving)).await.is_ok() {
            return;
        }
    }
}

/// Fails if Restate does not know the workers. A Restate that cannot be reached may still know them.
async fn is_still_known(restate: &RestateClient) -> Result<(), RestateError> {
    match restate.registered_at().await {
        Ok(None) => Err(RestateError::NotRegistered),
        Ok(Some(_)) | Err(_) => Ok(()),
    }
}
