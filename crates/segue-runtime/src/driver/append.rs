//! Appends a turn to the store, and retries while the store is unavailable.

use std::time::Duration;

use crate::store::{AppendRecord, Lease, Store, StoreError};

/// The first and the longest pause between two attempts to write.
const STORE_PAUSE_MIN: Duration = Duration::from_millis(20);
const STORE_PAUSE_MAX: Duration = Duration::from_millis(500);

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
    let mut pause = STORE_PAUSE_MIN;
    while tokio::time::Instant::now() + pause <= until {
        tokio::time::sleep(pause).await;
        pause = STORE_PAUSE_MAX.min(pause * 2);
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
