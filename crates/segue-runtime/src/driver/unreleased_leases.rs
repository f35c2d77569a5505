//! Leases of runs that stopped because their store could not be written.
//!
//! Such a run has no driver any more, but its owner is this process, which is alive: nobody else would
//! take it. It is released at once, or, when the store refuses that too, before somebody takes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{Lease, Store, StoreError};

/// Leases that could not be released yet.
#[derive(Default)]
pub(crate) struct UnreleasedLeases {
    leases: Mutex<BTreeMap<Arc<str>, Lease>>,
}

impl UnreleasedLeases {
    /// Releases a run that nobody drives any more, now or later.
    pub(crate) async fn release(&self, store: &dyn Store, lease: Lease) {
        let released = store.release(&lease).await;
        if let Err(StoreError::Unavailable { .. } | StoreError::Broken { .. }) = released {
            self.leases.lock().insert(lease.run_id.clone(), lease);
        }
    }

    /// Releases a run that somebody is about to take, if that is still to do.
    pub(crate) async fn release_now(&self, store: &dyn Store, run_id: &Arc<str>) {
        let lease = self.leases.lock().remove(run_id);
        if let Some(lease) = lease {
            self.release(store, lease).await;
        }
    }
}
