//! The object `segue.Run` of Restate: its key is a run, and its one handler drives the run.
//!
//! Restate calls the handlers of one key one after the other, so a request for a run waits while another one
//! drives it. The answer of the service becomes what Restate does next:
//!
//! | driven | Restate |
//! |---|---|
//! | `Over`, `Waits(OnCommand)` | is done: the process that sends a command asks again |
//! | `Waits(At)` | calls the object again when the run is due |
//! | `Waits(Now)`, `OwnedElsewhere`, `CannotHere`, an error | tries again, perhaps at another worker |
//!
//! What Restate gets to see, and keeps in its journal: ids of runs, due times and the sentences below.

#![allow(dead_code, reason = "the macro makes clients that nothing here calls")]

use std::sync::Arc;
use std::time::Duration;

use restate_sdk::context::{
    ContextClient as _, ContextSideEffects as _, ObjectContext, RunFuture as _,
};
use restate_sdk::endpoint::{Endpoint, ServiceOptions};
use restate_sdk::errors::HandlerResult;
use restate_sdk::serde::Json;
use restate_sdk::service::IntoServiceDefinition as _;
use segue_runtime::driver::now_ms;
use segue_runtime::store::Due;
use serde::{Deserialize, Serialize};

use super::DrivesRuns;
use crate::api::error::ErrorKind;
use crate::api::runs::dispatch::Driven;

/// The name of the object, and of its handler.
pub(super) const OBJECT: &str = "segue.Run";
pub(super) const HANDLER: &str = "drive";

/// A handler lasts as long as its run is driven. Restate breaks off what is silent for longer and tries
/// again, which joins the run that is driven here.
const SILENCE_MAX: Duration = Duration::from_hours(7 * 24);

/// When a failed attempt is repeated: soon, because a lease that ends frees a run.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// After that many attempts Restate forgets the request. A request that it keeps, paused, would keep all later
/// ones for the same run waiting. The run is in the store, and is sent again while it is due.
const ATTEMPTS_MAX: u64 = 50;

/// How long Restate remembers that a request has been made for a due time.
const KEY_RETENTION: Duration = Duration::from_mins(1);

/// A due time that is closer needs no key: requests for it are few.
const KEYED_MS_MIN: u64 = 1_000;

/// The shortest wait before Restate calls again for a run that should be due already, by a clock that is
/// behind.
const WAIT_MS_MIN: u64 = 250;

/// A request to drive a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wake {
    /// The due time for which the request was made, in milliseconds since 1970; none if the run was due then.
    #[serde(default)]
    pub(super) due_ms: Option<u64>,
}

/// What came of a request, as Restate keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Outcome {
    /// When the run is due; none if nothing is to be done.
    due_ms: Option<u64>,
}

/// The key under which Restate takes one request for a run and a due time, however often it is made.
pub(super) fn wake_key(run_id: &str, due_ms: u64) -> Option<String> {
    let is_far = due_ms > now_ms().saturating_add(KEYED_MS_MIN);
    is_far.then(|| format!("{run_id}/{due_ms}"))
}

/// The endpoint of a worker.
pub(super) fn endpoint(runs: Arc<dyn DrivesRuns>) -> Endpoint {
    let options = ServiceOptions::new()
        .inactivity_timeout(SILENCE_MAX)
        .abort_timeout(SILENCE_MAX)
        .idempotency_retention(KEY_RETENTION)
        // The store has the history of runs.
        .journal_retention(Duration::ZERO)
        .retry_policy_initial_interval(RETRY_MIN)
        .retry_policy_exponentiation_factor(2.0)
        .retry_policy_max_interval(RETRY_MAX)
        .retry_policy_max_attempts(ATTEMPTS_MAX)
        .retry_policy_kill_on_max_attempts();
    let object = RunObject { runs }.into_service_definition().options(options);
    Endpoint::builder().bind(object).build()
}

/// The object.
struct RunObject {
    runs: Arc<dyn DrivesRuns>,
}

#[restate_sdk::object(name = "segue.Run")]
impl RunObject {
    /// Drives the run until it ends or waits.
    #[handler]
    async fn drive(&self, ctx: ObjectContext<'_>, wake: Json<Wake>) -> HandlerResult<()> {
        let (run_id, Json(wake)): (Arc<str>, _) = (ctx.key().into(), wake);
        let driving = || async { drive_once(&*self.runs, &run_id).await.map(Json) };
        let Json(Outcome { due_ms }) = ctx.run(driving).name(HANDLER).await?;
        if let Some(due_ms) = due_ms {
            // Woken too early, it would otherwise wait for the request that it is itself.
            let key = wake_key(&run_id, due_ms).filter(|_| wake.due_ms != Some(due_ms));
            let wait_ms = due_ms.saturating_sub(now_ms()).max(WAIT_MS_MIN);
            let client = ctx.object_client::<RunObjectClient>(&*run_id);
            let mut request = client.drive(Json(Wake { due_ms: Some(due_ms) }));
            if let Some(key) = key {
                request = request.idempotency_key(key);
            }
            request.send_after(Duration::from_millis(wait_ms));
        }
        Ok(())
    }
}

/// Drives a run. Fails with one of our sentences if the request is to be repeated.
async fn drive_once(runs: &dyn DrivesRuns, run_id: &Arc<str>) -> HandlerResult<Outcome> {
    let again = |why: &'static str, reason: &str| {
        tracing::debug!(target: "segue::restate", run_id = &**run_id, "{why}: {reason}");
        Err(why.into())
    };
    match runs.drive(run_id).await {
        Ok(Driven::Over | Driven::Waits(Due::OnCommand)) => Ok(Outcome { due_ms: None }),
        Ok(Driven::Waits(Due::At(due_ms))) => Ok(Outcome { due_ms: Some(due_ms) }),
        Ok(Driven::Waits(Due::Now)) => again("this worker has given the run back", ""),
        Ok(Driven::OwnedElsewhere) => again("another process drives the run", ""),
        Ok(Driven::CannotHere(reason)) => again("this worker cannot drive the run", &reason),
        // A run that was deleted.
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Outcome { due_ms: None }),
        Err(error) => again("the run could not be driven", &error.message),
    }
}
