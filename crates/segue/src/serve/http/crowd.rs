//! Who is connected, and who has to go when it gets too full.
//!
//! A connection on which nothing is asked holds a place that somebody else may need. When all places
//! are taken, the one that has been silent for longest gives way: whoever opens thousands and says
//! nothing only drives out himself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The connections.
pub(super) struct Crowd {
    places: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    count: usize,
    /// Grows with each silence that begins.
    clock: u64,
    /// Those that are silent, by when that began.
    silent: BTreeMap<u64, Arc<Notify>>,
}

/// One connection.
pub(super) struct Guest {
    crowd: Arc<Crowd>,
    leave: Arc<Notify>,
    /// When its silence began.
    silent: Mutex<Option<u64>>,
}

impl Crowd {
    pub(super) fn new(places: usize) -> Arc<Crowd> {
        Arc::new(Crowd { places, inside: Mutex::default() })
    }

    /// A place, unless everybody is busy.
    pub(super) fn enter(self: &Arc<Crowd>) -> Option<Arc<Guest>> {
        let mut inside = self.inside();
        if inside.count >= self.places {
            let (_, leave) = inside.silent.pop_first()?;
            leave.notify_one();
        }
        inside.count += 1;
        drop(inside);
        let (leave, silent) = (Arc::default(), Mutex::default());
        let guest = Arc::new(Guest { crowd: self.clone(), leave, silent });
        guest.falls_silent();
        Some(guest)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Nothing is asked on it from now on.
    pub(super) fn falls_silent(&self) {
        let mut inside = self.crowd.inside();
        inside.clock += 1;
        let now = inside.clock;
        inside.silent.insert(now, self.leave.clone());
        *self.silent() = Some(now);
    }

    /// Something is asked on it.
    pub(super) fn asks(&self) {
        let mut inside = self.crowd.inside();
        if let Some(since) = self.silent().take() {
            inside.silent.remove(&since);
        }
    }

    /// Whether nothing is asked on it.
    pub(super) fn is_silent(&self) -> bool {
        self.silent().is_some()
    }

    /// Resolves when it has to give way.
    pub(super) async fn has_to_go(&self) {
        self.leave.notified().await;
    }

    fn silent(&self) -> MutexGuard<'_, Option<u64>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    // Work in `Drop`, because a connection ends in many ways and its place must never be lost.
    fn drop(&mut self) {
        self.asks();
        self.crowd.inside().count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one that has been silent for longest goes; who asks something stays.
    #[tokio::test]
    async fn the_longest_silence_gives_way() {
        let crowd = Crowd::new(3);
        let [first, second, third] = [(); 3].map(|()| crowd.enter().unwrap());
        first.asks();
        third.asks();
        third.falls_silent();
        let fourth = crowd.enter().unwrap();
        second.has_to_go().await;
        drop(second);
        for guest in [&first, &third, &fourth] {
            guest.asks();
        }
        assert!(crowd.enter().is_none(), "everybody is busy");
        drop(first);
        assert!(crowd.enter().is_some());
    }
}
