//! Whether the store can be written. Any client may ask, and each write costs a sync, so the answer is
//! kept for a moment.

use std::time::Duration;

use segue_runtime::store::{Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is kept.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// How long the store may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The last answer.
#[derive(Default)]
pub struct StoreProbe {
    last: Mutex<Option<(Instant, Result<(), StoreError>)>>,
}

impl StoreProbe {
    /// Whether the store can be written.
    pub async fn check(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Requests that come meanwhile wait for the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < PROBE_EVERY
        {
            return found.clone();
        }
        let slow = |_| Err(StoreError::Unavailable { message: "it does not answer".to_owned() });
        let found =
            tokio::time::timeout(PROBE_TIMEOUT, store.try_write()).await.unwrap_or_else(slow);
        *last = Some((Instant::now(), found.clone()));
        found
    }
}
