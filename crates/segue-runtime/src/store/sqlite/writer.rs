//! One writer: it writes for all that wait, in one transaction, and syncs once.
//!
//! SQLite has one writer at a time anyway. A thread of our own makes the queue visible, and what is
//! in it when a sync ends goes into the next one. A run that is alone has nobody to share a sync
//! with, and waking a thread and being woken by it takes a third of what a fast sync takes. So it
//! writes on the thread that it is on while the writer is idle, as long as syncs are fast.
//!
//! A second thread moves what is committed from SQLite's log into the file, on a connection of its
//! own: no run waits for it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::ack_log::AckLog;
use super::append_batch::AppendBatch;
use super::error::SqliteError;
use super::run_cache::RunCache;
use super::schema::{CheckpointMode, SqliteOptions, checkpoint, preallocate_log};
use crate::store::{StoreError, StoreFigures};

/// Requests that are written together at most, so that the first one does not wait for ever.
const TOGETHER_MAX: usize = 1_024;

/// The log is merged into the file so long after a commit, or after so many of them.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
const CHECKPOINT_COMMITS: u64 = 1_000;

/// Something to write, and somebody who waits for it.
trait Request: Send {
    /// Writes it. May be called again after a transaction that failed.
    fn write(&mut self, cache: &mut RunCache) -> Result<(), SqliteError>;
    /// Says that it is durable, or why not.
    fn answer(self: Box<Self>, result: Result<(), StoreError>);
}

struct QueuedWrite<F, T> {
    work: F,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&mut RunCache) -> Result<T, SqliteError> + Send> Request
    for QueuedWrite<F, T>
{
    fn write(&mut self, cache: &mut RunCache) -> Result<(), SqliteError> {
        self.done = Some(match (self.work)(cache) {
            Ok(value) => Ok(value),
            // It has changed nothing, so the others in the transaction go on.
            Err(SqliteError::Refused(error)) => Err(error),
            Err(fault) => return Err(fault),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let QueuedWrite { done, reply, .. } = *self;
        let done = result.and_then(|()| done.expect("what was committed was written before"));
        // Whoever asked may have gone; it is written nevertheless.
        let _ = reply.send(done);
    }
}

#[derive(Default)]
struct Queue {
    posted: Vec<Box<dyn Request>>,
    /// Whether the thread is to write what is posted. Else whoever posted it is about to.
    is_left: bool,
    /// Whether nothing more will come.
    is_closed: bool,
}

/// What the threads share.
struct Shared {
    path: PathBuf,
    options: SqliteOptions,
    queue: Mutex<Queue>,
    /// Tells the thread that writes that there is something to do.
    news: Condvar,
    /// Tells the thread that merges the log that there is something in it.
    committed: Condvar,
    /// Whoever has it writes.
    cache: Mutex<RunCache>,
    /// Writes down what is acknowledged.
    witness: OnceLock<Arc<AckLog>>,
    /// Commits that the log was last merged after.
    merged: AtomicU64,
    commits: AtomicU64,
    /// Time that commits took.
    nanos: AtomicU64,
    /// How long the last one took.
    took: AtomicU64,
}

/// Whoever panicked has changed nothing: its transaction was not committed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the queue when the thread ends, whatever ends it: nobody waits for nothing.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.is_closed = true;
        queue.posted.clear();
    }
}

impl Shared {
    /// Puts something into the queue. When that is closed the request goes, which whoever waits will
    /// see.
    fn post(&self, request: Box<dyn Request>) {
        let mut queue = lock(&self.queue);
        if !queue.is_closed {
            queue.posted.push(request);
        }
    }

    /// Leaves what is posted to the thread.
    fn hand_over(&self) {
        let mut queue = lock(&self.queue);
        if !queue.is_left && (!queue.posted.is_empty() || queue.is_closed) {
            queue.is_left = true;
            self.news.notify_one();
        }
    }

    /// Writes what is posted if it is one request and nobody writes; the answer is whether nothing is
    /// left for the thread to do.
    fn write_alone(&self) -> bool {
        if Duration::from_nanos(self.took.load(Ordering::Relaxed)) > self.options.alone_max {
            return false;
        }
        let Ok(mut cache) = self.cache.try_lock() else { return false };
        let mut queue = lock(&self.queue);
        if queue.posted.len() > 1 || queue.is_left {
            return false;
        }
        // The thread may have been faster.
        let Some(request) = queue.posted.pop() else { return true };
        drop(queue);
        // Another process may have the file for seconds.
        if cache.begin_at_once() {
            self.write(&mut cache, vec![request]);
            return true;
        }
        self.post(request);
        false
    }

    /// Writes what is left to it, until the queue is closed.
    fn write_all(&self) {
        let _closing = CloseOnDrop(self);
        let mut is_log_long = false;
        while let Some(posted) = self.wait() {
            let mut cache = lock(&self.cache);
            if !is_log_long && self.commits() >= self.options.commits_until_long_log {
                is_log_long = true;
                // Without it everything is slower, and nothing else.
                let _ = preallocate_log(&cache.connection, &self.path);
            }
            self.write(&mut cache, posted);
        }
    }

    /// Waits until there is something to write; nothing when there never will be.
    fn wait(&self) -> Option<Vec<Box<dyn Request>>> {
        let mut queue = lock(&self.queue);
        while !queue.is_left || queue.posted.is_empty() {
            queue.is_left = false;
            if queue.is_closed {
                return None;
            }
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let count = queue.posted.len().min(TOGETHER_MAX);
        queue.is_left = count < queue.posted.len();
        Some(queue.posted.drain(..count).collect())
    }

    /// All in one transaction. When that fails each is tried alone, so that one request that cannot
    /// be written does not stop the others.
    fn write(&self, cache: &mut RunCache, mut posted: Vec<Box<dyn Request>>) {
        let began = Instant::now();
        let write =
            |cache: &mut RunCache| posted.iter_mut().try_for_each(|request| request.write(cache));
        let result = cache.transaction(write);
        if result.is_ok() {
            if let Some(witness) = self.witness.get() {
                let (commit, runs) = cache.committed();
                witness.note(commit, runs);
            }
            self.note_commit(began);
        }
        if result.is_ok() || posted.len() == 1 {
            let result = result.map_err(StoreError::from);
            posted.into_iter().for_each(|request| request.answer(result.clone()));
            return;
        }
        for request in posted {
            self.write(cache, vec![request]);
        }
    }

    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    fn note_commit(&self, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.took.store(nanos, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let unmerged = commits - self.merged.load(Ordering::Relaxed);
        if unmerged == 1 || unmerged == CHECKPOINT_COMMITS {
            // Held for a moment, so that the thread is not just about to go to sleep.
            drop(lock(&self.queue));
            self.committed.notify_one();
        }
    }

    /// Merges the log a while after there is something in it, until the queue is closed.
    fn merge_all(&self, connection: &Connection) {
        let mut queue = lock(&self.queue);
        let mut since: Option<Instant> = None;
        while !queue.is_closed {
            let unmerged = self.commits() - self.merged.load(Ordering::Relaxed);
            if unmerged == 0 {
                since = None;
                queue = self.committed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            let patience = CHECKPOINT_INTERVAL.saturating_sub(waited);
            if unmerged < CHECKPOINT_COMMITS && !patience.is_zero() {
                let waited = self.committed.wait_timeout(queue, patience);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(queue);
            since = None;
            self.merge(connection);
            queue = lock(&self.queue);
        }
    }

    fn merge(&self, connection: &Connection) {
        let commit = {
            let mut cache = lock(&self.cache);
            if cache.has_counts() {
                // They are hints: what cannot be written is lost.
                let _ = cache.transaction(|cache| cache.write_counts_of(1));
            }
            cache.committed().0
        };
        let commits = self.commits();
        // One that fails is tried again after the next commits.
        let merged = checkpoint(connection, CheckpointMode::Passive);
        if let (Ok(true), Some(witness)) = (merged, self.witness.get()) {
            witness.merged(commit);
        }
        self.merged.store(commits, Ordering::Relaxed);
    }
}

/// The queue, and who writes what is in it.
pub(super) struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    /// Starts to write at `desk`, and to merge the log on a connection of its own.
    pub(super) fn start(
        cache: RunCache,
        merges: Connection,
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<Writer, StoreError> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            options: options.clone(),
            queue: Mutex::default(),
            news: Condvar::new(),
            committed: Condvar::new(),
            cache: Mutex::new(cache),
            witness: OnceLock::new(),
            merged: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            took: AtomicU64::new(0),
        });
        let started = |thread: std::io::Result<JoinHandle<()>>| {
            thread.map_err(|error| StoreError::Unavailable { message: error.to_string() })
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let (writes, merged) = (shared.clone(), shared.clone());
        let mut writer = Writer { shared, threads: Vec::new() };
        let writing = thread("segue-store").spawn(move || writes.write_all());
        writer.threads.push(started(writing)?);
        let merging = thread("segue-merge").spawn(move || merged.merge_all(&merges));
        writer.threads.push(started(merging)?);
        Ok(writer)
    }

    /// Has what is acknowledged from now on written down there.
    pub(super) fn set_ack_log(&self, witness: Arc<AckLog>) {
        // There is one owner, and so one witness.
        let _ = self.shared.witness.set(witness);
    }

    /// How it does.
    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            syncs: self.commits(),
            sync_time: Duration::from_nanos(self.shared.nanos.load(Ordering::Relaxed)),
            queue: lock(&self.shared.queue).posted.len() as u64,
            ..StoreFigures::default()
        }
    }

    /// Times that somebody waited for a sync.
    pub(super) fn commits(&self) -> u64 {
        self.shared.commits()
    }

    /// Has something written that nobody waits for.
    pub(super) fn post(
        &self,
        mut work: impl FnMut(&mut RunCache) -> Result<(), SqliteError> + Send + 'static,
    ) {
        let (reply, _) = oneshot::channel();
        let work = move |cache: &mut RunCache| {
            cache.settle()?;
            work(cache)
        };
        self.shared.post(Box::new(QueuedWrite { work, done: None, reply }));
        self.shared.hand_over();
    }

    /// Has something written, and waits until it is durable. `work` refuses before it writes
    /// anything, and may be called twice.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let work = move |cache: &mut RunCache| {
            cache.settle()?;
            work(cache)
        };
        self.shared.post(Box::new(QueuedWrite { work, done: None, reply }));
        self.shared.hand_over();
        answer.await.map_err(gone)?
    }

    /// The same for a turn of a run, which writes it by itself when it is alone.
    pub(super) async fn write_batch(&self, turn: AppendBatch) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let work = move |cache: &mut RunCache| turn.write(cache);
        self.shared.post(Box::new(QueuedWrite { work, done: None, reply }));
        // The thread writes it also when whoever posted it is not there any more.
        let left = HandOverOnDrop(&self.shared);
        // Others on this thread may have something to write too.
        tokio::task::yield_now().await;
        if self.shared.write_alone() {
            std::mem::forget(left);
        } else {
            drop(left);
        }
        answer.await.map_err(gone)?
    }
}

/// When the thread is gone the reply goes with it.
fn gone(_: oneshot::error::RecvError) -> StoreError {
    StoreError::Unavailable { message: "the store is closed".to_owned() }
}

/// Something that is left to the thread when this is dropped.
struct HandOverOnDrop<'a>(&'a Shared);

impl Drop for HandOverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What is queued is written first; the threads end when the queue does.
        lock(&self.shared.queue).is_closed = true;
        self.shared.hand_over();
        self.shared.committed.notify_one();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let mut cache = lock(&self.shared.cache);
        if cache.has_counts() {
            let _ = cache.transaction(|cache| cache.write_counts_of(1));
        }
        // What others keep from being merged stands in the log, where it is durable too.
        let merged = checkpoint(&cache.connection, CheckpointMode::Truncate);
        if let (Ok(true), Some(witness)) = (merged, self.shared.witness.get()) {
            witness.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use futures_util::future::join;
    use futures_util::poll;
    use tempfile::TempDir;

    use super::super::run_cache::Counts;
    use super::super::schema::{BUSY_WAIT, open_merger, open_writer};
    use super::*;

    fn writer() -> (TempDir, PathBuf, Writer) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let options = SqliteOptions { alone_max: Duration::MAX, ..SqliteOptions::default() };
        let connection = open_writer(&path, &options).unwrap();
        let cache = RunCache::new(connection, Arc::<Counts>::default());
        let merges = open_merger(&path).unwrap();
        let writer = Writer::start(cache, merges, &path, &options).unwrap();
        (folder, path, writer)
    }

    /// Instead of a turn: says who writes.
    async fn who_writes(writer: &Writer) -> ThreadId {
        let (reply, answer) = oneshot::channel();
        let work = |_: &mut RunCache| Ok(thread::current().id());
        writer.shared.post(Box::new(QueuedWrite { work, done: None, reply }));
        let left = HandOverOnDrop(&writer.shared);
        tokio::task::yield_now().await;
        if writer.shared.write_alone() {
            std::mem::forget(left);
        } else {
            drop(left);
        }
        answer.await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_run_that_is_alone_writes_by_itself() {
        let (_folder, _, writer) = writer();
        assert_eq!(who_writes(&writer).await, thread::current().id());
        assert_eq!(writer.commits(), 1);
        let there = writer.write(|_| Ok(thread::current().id())).await.unwrap();
        assert_ne!(there, thread::current().id());
    }

    #[tokio::test]
    async fn runs_that_write_at_once_share_a_sync() {
        let (_folder, _, writer) = writer();
        let (one, two) = join(who_writes(&writer), who_writes(&writer)).await;
        assert_eq!(one, two);
        assert_eq!(writer.commits(), 1);
    }

    /// A process that has the file holds up what wants to be written, and nothing else.
    #[tokio::test]
    async fn a_file_that_another_has_is_left_to_the_thread() {
        let (_folder, path, writer) = writer();
        let another = rusqlite::Connection::open(&path).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut writing = std::pin::pin!(who_writes(&writer));
        assert!(poll!(&mut writing).is_pending());
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert!(poll!(&mut writing).is_pending());
        assert!(began.elapsed() < BUSY_WAIT / 2);
        another.execute_batch("ROLLBACK").unwrap();
        assert_ne!(writing.await, thread::current().id());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_written() {
        let (_folder, _, writer) = writer();
        {
            let mut writing = std::pin::pin!(who_writes(&writer));
            assert!(poll!(&mut writing).is_pending());
        }
        let began = Instant::now();
        while writer.commits() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
    }
}
