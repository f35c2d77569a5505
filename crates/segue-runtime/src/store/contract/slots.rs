//! Limits that all processes of a shared store keep together.

use std::sync::Arc;

use async_trait::async_trait;

use super::StoreError;

/// One slot of a limit. It is free again when it is dropped, and when its process has died and its lease is
/// over.
#[must_use]
pub struct SharedSlot {
    free: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl SharedSlot {
    /// A slot; `free` gives it back, and does not block.
    pub fn new(free: impl FnOnce() + Send + Sync + 'static) -> SharedSlot {
        SharedSlot { free: Some(Box::new(free)) }
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free();
        }
    }
}

/// Limits across processes. A store of one process has none: there a limit in memory is enough.
#[async_trait]
pub trait SharedSlots: Send + Sync {
    /// Waits for one of `max` slots with this name; none when processes do not share this store. The order
    /// of those that wait is not kept.
    async fn shared_slot(
        &self,
        _name: &Arc<str>,
        _max: u32,
    ) -> Result<Option<SharedSlot>, StoreError> {
        Ok(None)
    }
}
