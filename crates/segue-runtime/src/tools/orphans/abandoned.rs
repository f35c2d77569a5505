//! Abandoned calls: ends the processes that have left the group of their command.
//!
//! A scan of all processes takes milliseconds, and a call may be dropped where nothing may block.
//! One thread therefore scans for all abandoned calls together. A new call with the same key waits
//! for the scan, and so does the end of the program.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::system;

/// How long the end of the program waits for the thread.
const SETTLE_MAX: Duration = Duration::from_secs(2);

struct Work {
    /// Calls whose processes are still to be ended.
    keys: Vec<Arc<str>>,
    /// Calls whose processes are being ended.
    under_way: Vec<Arc<str>>,
    has_thread: bool,
}

static WORK: Mutex<Work> =
    Mutex::new(Work { keys: Vec::new(), under_way: Vec::new(), has_thread: false });
static DONE: Condvar = Condvar::new();

/// Dropping this abandons the call, unless it was answered.
pub(crate) struct AbandonedCall {
    key: Option<Arc<str>>,
}

impl AbandonedCall {
    pub(crate) fn unless_answered(key: Arc<str>) -> AbandonedCall {
        AbandonedCall { key: Some(key) }
    }

    /// The call was answered: processes that its command left behind on purpose stay.
    pub(crate) fn answered(mut self) {
        self.key = None;
    }

    /// Ends the call's remaining processes, and waits for their end.
    pub(crate) async fn end(mut self) {
        if let Some(key) = self.key.take() {
            let _ = tokio::task::spawn_blocking(move || system::end(&[key])).await;
        }
    }
}

impl Drop for AbandonedCall {
    fn drop(&mut self) {
        // In `Drop`, because a call ends when its future is dropped.
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

/// Waits until no process of a call with this key is being ended.
pub(crate) async fn is_free(key: &Arc<str>) {
    let is_busy = |work: &Work| work.keys.iter().chain(&work.under_way).any(|other| other == key);
    if is_busy(&WORK.lock()) {
        let _ = tokio::task::spawn_blocking(settle).await;
    }
}

/// Waits until the processes of all abandoned calls have ended.
pub fn settle() {
    let is_busy = |work: &mut Work| work.has_thread;
    let _ = DONE.wait_while_for(&mut WORK.lock(), is_busy, SETTLE_MAX);
}
