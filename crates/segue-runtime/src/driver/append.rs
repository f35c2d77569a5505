//! Appends a turn to the store, and retries while the store is unavailable.

use std::time::Duration;

use segue_core::composition::Backoff;

use crate::store::{AppendRecord, Lease, Store, StoreError};

/// The first and the longest pause between two attempts to write.
const STORE_PAUSES: Backoff = Backoff::doubling(20, 500);

/// Appends entries, and retries for `patience` while the store is unavailable. Meanwhile the run
/// starts nothing new. Calls in flight continue: aborting them would leave them in doubt.
pub(super) async fn append(
    store: &dyn Store,
    lease: &Lease,
    record: AppendRecord<'_>,
    patience: Duration,
) -> Result<(), StoreError> {
    let mut error = match store.append(lease, record).await {
        Err(error @ StoreError::Unavailable { .. }) => error,
        other => return other,
    };
    let until = tokio::time::Instant::now() + patience;
    for nth in 1.. {
        let pause = Duration::from_millis(STORE_PAUSES.wait_ms(nth));
        if tokio::time::Instant::now() + pause > until {
            break;
        }
        tokio::time::sleep(pause).await;
        error = match store.append(lease, record).await {
            Err(error @ StoreError::Unavailable { .. }) => error,
            // Only this driver holds the lease: the entries were written, and only the answer was
            // lost.
            Err(StoreError::Fenced { actual, .. })
                if actual == record.expected + record.entries.len() as u64 =>
            {
                return Ok(());
            }
            other => return other,
        };
    }
    Err(error)
}
