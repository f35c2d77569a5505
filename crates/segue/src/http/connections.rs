//! How many connections there are, and which one is closed when there are too many.
//!
//! An idle connection takes a slot that another client may need. When all slots are taken, the connection
//! that has been idle for longest is closed. A client that floods idle connections evicts only its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The connections.
pub(super) struct ConnectionLimiter {
    limit: usize,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    count: usize,
    /// Grows with each connection that becomes idle.
    clock: u64,
    /// The idle connections, by when that began.
    idle_since: BTreeMap<u64, Arc<Notify>>,
}

/// One connection.
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    evict: Arc<Notify>,
    /// Since when it is idle.
    idle_since: Mutex<Option<u64>>,
}

impl ConnectionLimiter {
    pub(super) fn new(limit: usize) -> Arc<ConnectionLimiter> {
        Arc::new(ConnectionLimiter { limit, connections: Mutex::default() })
    }

    /// A slot, unless every connection has a request.
    pub(super) fn reserve(self: &Arc<ConnectionLimiter>) -> Option<Arc<ConnectionSlot>> {
        let mut connections = self.connections();
        if connections.count >= self.limit {
            let (_, evict) = connections.idle_since.pop_first()?;
            evict.notify_one();
        }
        connections.count += 1;
        drop(connections);
        let (evict, idle_since) = (Arc::default(), Mutex::default());
        let slot = Arc::new(ConnectionSlot { limiter: self.clone(), evict, idle_since });
        slot.end_request();
        Some(slot)
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock()
    }
}

impl ConnectionSlot {
    /// It has no request from now on.
    pub(super) fn end_request(&self) {
        let mut connections = self.limiter.connections();
        connections.clock += 1;
        let now = connections.clock;
        connections.idle_since.insert(now, self.evict.clone());
        *self.idle_since() = Some(now);
    }

    /// It has a request.
    pub(super) fn begin_request(&self) {
        let mut connections = self.limiter.connections();
        if let Some(since) = self.idle_since().take() {
            connections.idle_since.remove(&since);
        }
    }

    /// Whether it has no request.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_since().is_some()
    }

    /// Resolves when it has to close.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }

    fn idle_since(&self) -> MutexGuard<'_, Option<u64>> {
        self.idle_since.lock()
    }
}

impl Drop for ConnectionSlot {
    // Work in `Drop`, because a connection ends in many ways and its slot must never be lost.
    fn drop(&mut self) {
        self.begin_request();
        self.limiter.connections().count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection that has been idle for longest is closed; one with a request stays.
    #[tokio::test]
    async fn the_longest_idle_connection_is_evicted() {
        let limiter = ConnectionLimiter::new(3);
        let [first, second, third] = [(); 3].map(|()| limiter.reserve().unwrap());
        first.begin_request();
        third.begin_request();
        third.end_request();
        let fourth = limiter.reserve().unwrap();
        second.evicted().await;
        drop(second);
        for slot in [&first, &third, &fourth] {
            slot.begin_request();
        }
        assert!(limiter.reserve().is_none(), "every connection has a request");
        drop(first);
        assert!(limiter.reserve().is_some());
    }
}
