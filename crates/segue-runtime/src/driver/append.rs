//! Writing a turn, with patience for a store that cannot be written now.

use std::time::Duration;

use segue_core::composition::Backoff;

use crate::store::{AppendRecord, Lease, Store, StoreError};

/// How long to leave a store alone that could not be written: at first, and at most.
const STORE_PAUSES: Backoff = Backoff::doubling(20, 500);

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
    for nth in 1.. {
        let pause = Duration::from_millis(STORE_PAUSES.wait_ms(nth));
        if tokio::time::Instant::now() + pause > until {
            break;
        }
        tokio::time::sleep(pause).await;
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
