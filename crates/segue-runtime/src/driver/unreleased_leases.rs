//! Leases of runs that stopped because their store could not be written.
//!
//! Such a run has no driver any more, but this process, which is alive, still owns it: no other
//! process would take it. The lease is released at once or, when the store refuses that too, before
//! the next resume.

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
    /// Releases the lease of a run without a driver, now or later.
    pub(crate) async fn release(&self, store: &dyn Store, lease: Lease) {
        let released = store.release(&lease).await;
        if let Err(StoreError::Unavailable { .. } | StoreError::Broken { .. }) = released {
            self.leases.lock().insert(lease.run_id.clone(), lease);
        }
    }

    /// Releases a lease that is still held, before the run is resumed.
    pub(crate) async fn release_now(&self, store: &dyn Store, run_id: &Arc<str>) {
        let lease = self.leases.lock().remove(run_id);
        if let Some(lease) = lease {
            self.release(store, lease).await;
        }
    }
}
