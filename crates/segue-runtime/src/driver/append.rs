//! Writing a turn, with patience for a store that cannot be written now.

use std::time::Duration;

use crate::store::{AppendRecord, Lease, Store, StoreError};

/// How long to leave a store alone that could not be written: at first, and at most.
const STORE_PAUSE_MIN: Duration = Duration::from_millis(20);
const STORE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Adds to a run, and waits for a store that cannot be written now. Meanwhile nothing new begins,
/// and calls that are under way go on: ending them would leave them in doubt.
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
            // Nobody else writes with this lease: it was written, and only the answer was lost.
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
