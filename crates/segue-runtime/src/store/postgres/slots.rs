//! Limits across processes: a row for each slot, with the process that has it.
//!
//! A process that waits asks again after a pause, and as soon as it hears that a slot of a full limit is
//! free. A slot of a dead process is free. A process that only lost its lease keeps its slots under its new
//! name, unless another one took them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::journal::new_ticket;
use super::owner::free_slots;
use super::{PostgresStore, Shared};
use crate::store::{SharedSlot, SharedSlots, StoreError};

/// Slots of one limit at most: a larger limit is kept as this one.
const SLOTS_MAX: u32 = 1_024;

/// The first and the longest pause of a process that waits.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

const ADD: &str = "INSERT INTO slot (name, number)
    SELECT $1, number FROM generate_series(1, $2::bigint) AS number ON CONFLICT DO NOTHING";

/// A row that another process takes at the same time is left to it. The owners that died are named, so that
/// one that just came is not meant. A process whose own lease has ended takes none, because its slot would be free
/// for others.
const TAKE: &str = "UPDATE slot SET owner = $3, ticket = $4
    WHERE EXISTS (SELECT FROM worker WHERE id = $3 AND expires_at > clock_timestamp())
        AND name = $1 AND number = (
        SELECT number FROM slot WHERE name = $1 AND number <= $2
            AND (owner IS NULL OR owner = ANY (ARRAY(
                SELECT held.owner FROM slot AS held WHERE held.name = $1 AND held.owner IS NOT NULL
                    AND NOT EXISTS (SELECT FROM worker WHERE id = held.owner))))
        ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING number";

/// The limits whose slots are in the database, as far as this process knows.
#[derive(Default)]
pub(super) struct KnownLimits(Mutex<BTreeSet<(Arc<str>, i64)>>);

#[async_trait]
impl SharedSlots for PostgresStore {
    async fn shared_slot(
        &self,
        name: &Arc<str>,
        max: u32,
    ) -> Result<Option<SharedSlot>, StoreError> {
        let max = i64::from(max.min(SLOTS_MAX));
        let mut pause = PAUSE;
        loop {
            let freed = self.shared.address.signals.slots.notified();
            let wanted = name.clone();
            // A slot that comes when its caller is gone is dropped, which frees it.
            let taken = async {
                self.owner().await?;
                self.on(move |shared| async move { take(&shared, &wanted, max).await }).await
            };
            match taken.await {
                Ok(Some(slot)) => return Ok(Some(slot)),
                // The call waits for the database, as turns do.
                Ok(None) | Err(StoreError::Unavailable { .. }) => {}
                Err(error) => return Err(error),
            }
            let _ = tokio::time::timeout(pause, freed).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Takes a slot, if one is free.
async fn take(
    shared: &Arc<Shared>,
    name: &Arc<str>,
    max: i64,
) -> Result<Option<SharedSlot>, StoreError> {
    let me = shared.ownership.name().unwrap_or_default();
    let session = shared.sessions.borrow().await?;
    let limit = (name.clone(), max);
    if !shared.limits.0.lock().contains(&limit) {
        session.execute(ADD, &[&&**name, &max]).await?;
        shared.limits.0.lock().insert(limit);
    }
    let ticket = new_ticket();
    let taken = session.query_opt(TAKE, &[&&**name, &max, &&*me, &ticket]).await;
    if taken.is_err() {
        // It may be ours now, and no call has it.
        shared.ownership.free_later(ticket);
    }
    if taken?.is_none() {
        return Ok(None);
    }
    let (shared, runtime) = (shared.clone(), tokio::runtime::Handle::current());
    Ok(Some(SharedSlot::new(move || drop(runtime.spawn(free(shared, ticket))))))
}

async fn free(shared: Arc<Shared>, ticket: i64) {
    let freed = async { free_slots(&*shared.sessions.borrow().await?, &[ticket]).await };
    if freed.await.is_err() {
        shared.ownership.free_later(ticket);
    }
}
