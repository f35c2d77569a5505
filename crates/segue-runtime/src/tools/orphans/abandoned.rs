//! Calls that were given up: what has left the group of their commands is ended.
//!
//! Looking through all processes takes milliseconds, and a call may be dropped where nothing may wait.
//! So one thread does it for all calls that are given up together. A call that carries the same key
//! begins after that, and a program that ends waits for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::system;

/// How long whoever ends waits for the thread.
const SETTLE_MAX: Duration = Duration::from_secs(2);

struct Work {
    /// Calls whose processes are still to be ended.
    keys: Vec<Arc<str>>,
    /// Those whose processes are being ended.
    under_way: Vec<Arc<str>>,
    has_thread: bool,
}

static WORK: Mutex<Work> =
    Mutex::new(Work { keys: Vec::new(), under_way: Vec::new(), has_thread: false });
static DONE: Condvar = Condvar::new();

/// A call that counts as given up when this is dropped, unless it was answered.
pub(crate) struct AbandonedCall {
    key: Option<Arc<str>>,
}

impl AbandonedCall {
    pub(crate) fn unless_answered(key: Arc<str>) -> AbandonedCall {
        AbandonedCall { key: Some(key) }
    }

    /// It was answered: what its command left behind on purpose stays.
    pub(crate) fn answered(mut self) {
        self.key = None;
    }

    /// Ends what is left of it, and waits for that.
    pub(crate) async fn end(mut self) {
        if let Some(key) = self.key.take() {
            let _ = tokio::task::spawn_blocking(move || system::end(&[key])).await;
        }
    }
}

impl Drop for AbandonedCall {
    fn drop(&mut self) {
        // Work in `Drop`, because a call ends by being dropped and there is no later moment.
        let Some(key) = self.key.take() else { return };
        let mut work = WORK.lock();
        work.keys.push(key);
        if !work.has_thread {
            let thread = std::thread::Builder::new().name("segue-abandoned".to_owned());
            work.has_thread = thread.spawn(end_all).is_ok();
        }
    }
}

fn end_all() {
    loop {
        let mut now = WORK.lock();
        now.under_way = std::mem::take(&mut now.keys);
        let keys = now.under_way.clone();
        now.has_thread = !keys.is_empty();
        drop(now);
        DONE.notify_all();
        if keys.is_empty() {
            return;
        }
        system::end(&keys);
    }
}

/// Waits until nothing of a call of this key is being ended.
pub(crate) async fn is_free(key: &Arc<str>) {
    let is_busy = |work: &Work| work.keys.iter().chain(&work.under_way).any(|other| other == key);
    if is_busy(&WORK.lock()) {
        let _ = tokio::task::spawn_blocking(settle).await;
    }
}

/// Waits until what was given up has ended.
pub fn settle() {
    let is_busy = |work: &mut Work| work.has_thread;
    let _ = DONE.wait_while_for(&mut WORK.lock(), is_busy, SETTLE_MAX);
}
