//! The one thread that writes. Whatever waits is written together and synced once.
//!
//! SQLite has one writer at a time anyway; a thread of our own makes the queue visible, and what is
//! in it when a sync ends goes into the next one. A lone run waits for nobody.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::desk::{COUNTS_APART, Desk};
use super::fault::Fault;
use super::schema::lengthen_log;
use crate::store::StoreError;

/// Requests that are written together at most, so that the first one does not wait for ever.
const TOGETHER_MAX: usize = 1_024;

/// Commits after which the process is one that writes a lot, and the log is made long.
const COMMITS_UNTIL_LONG: u64 = 16;

/// Something to write, and somebody who waits for it.
trait Request: Send {
    /// Writes it. May be called again after a transaction that failed.
    fn write(&mut self, desk: &mut Desk) -> Result<(), Fault>;
    /// Says that it is durable, or why not.
    fn answer(self: Box<Self>, result: Result<(), StoreError>);
}

struct Waiting<F, T> {
    work: F,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&mut Desk) -> Result<T, Fault> + Send> Request for Waiting<F, T> {
    fn write(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        match (self.work)(desk) {
            Ok(value) => self.done = Some(Ok(value)),
            // It changed nothing, so the others in the transaction go on.
            Err(Fault::Refused(error)) => self.done = Some(Err(error)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let Waiting { done, reply, .. } = *self;
        let done = result.and_then(|()| done.expect("what was committed was written before"));
        // Whoever asked may have gone; it is written nevertheless.
        let _ = reply.send(done);
    }
}

/// The queue to the thread that writes.
pub(super) struct Writer {
    queue: Option<Sender<Box<dyn Request>>>,
    thread: Option<JoinHandle<()>>,
    /// Transactions that somebody waited for, each with one sync.
    pub(super) commits: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn start(desk: Desk, path: &Path) -> Result<Writer, StoreError> {
        let (queue, requests) = channel();
        let commits = Arc::<AtomicU64>::default();
        let mut writing = Writing { desk, path: path.to_owned(), commits: commits.clone() };
        let thread = std::thread::Builder::new()
            .name("segue-store".to_owned())
            .spawn(move || writing.until_closed(&requests))
            .map_err(|error| StoreError::Unavailable { message: error.to_string() })?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), commits })
    }

    /// Has something written, and waits until it is durable. `work` refuses before it writes
    /// anything, and may be called twice.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let gone = |_| StoreError::Unavailable { message: "the store is closed".to_owned() };
        self.post(work).await.map_err(gone)?
    }

    /// Has something written. Nobody needs to wait for the answer.
    pub(super) fn post<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        if let Some(queue) = &self.queue {
            // When the thread is gone the reply goes with it, which whoever waits will see.
            let _ = queue.send(Box::new(Waiting { work, done: None, reply }));
        }
        answer
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What is queued is written first; the thread ends when the queue does.
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writing {
    desk: Desk,
    path: PathBuf,
    commits: Arc<AtomicU64>,
}

impl Writing {
    fn until_closed(&mut self, requests: &Receiver<Box<dyn Request>>) {
        while let Some(first) = self.next(requests) {
            let mut together = vec![first];
            together.extend(requests.try_iter().take(TOGETHER_MAX - 1));
            let before = self.commits.load(Ordering::Relaxed);
            self.write(together);
            let after = self.commits.load(Ordering::Relaxed);
            if (before..after).contains(&COMMITS_UNTIL_LONG) {
                // Without it everything is slower and nothing else.
                let _ = lengthen_log(&self.desk.connection, &self.path);
            }
        }
    }

    /// The next request, or nothing when there will be none. Counts are written when nobody comes
    /// for a while.
    fn next(&mut self, requests: &Receiver<Box<dyn Request>>) -> Option<Box<dyn Request>> {
        if self.desk.has_counts() {
            match requests.recv_timeout(COUNTS_APART) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                // They are hints: what cannot be written is lost.
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.desk.transaction(|desk| desk.write_counts_of(1));
                }
            }
        }
        requests.recv().ok()
    }

    /// All in one transaction. When that fails each is tried alone, so that one request that cannot
    /// be written does not stop the others.
    fn write(&mut self, mut together: Vec<Box<dyn Request>>) {
        let result = self.transaction(&mut together);
        if result.is_ok() || together.len() == 1 {
            let result = result.map_err(StoreError::from);
            together.into_iter().for_each(|request| request.answer(result.clone()));
            return;
        }
        for request in together {
            self.write(vec![request]);
        }
    }

    fn transaction(&mut self, requests: &mut [Box<dyn Request>]) -> Result<(), Fault> {
        self.desk.transaction(|desk| requests.iter_mut().try_for_each(|one| one.write(desk)))?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
