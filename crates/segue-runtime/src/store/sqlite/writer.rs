//! The one writer: it writes every queued request in one transaction, and syncs once (group commit).
//!
//! SQLite has one writer at a time anyway. A queue of our own makes that visible: the requests that
//! arrive during one sync go into the next transaction together. A lone run has no other run to share
//! a sync with, and two hand-overs between threads cost a third of a fast sync. So it writes on its
//! own thread while the writer is idle, through the same code, as long as syncs are fast.
//!
//! A second thread moves committed pages from SQLite's log into the file (a checkpoint), on a
//! connection of its own that no run waits for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::ack_log::AckLog;
use super::error::SqliteError;
use super::run_cache::RunCache;
use super::schema::{CheckpointMode, SqliteOptions, checkpoint, preallocate_log};
use crate::store::{StoreError, StoreFigures};

/// Requests in one transaction at most, so that the first one does not wait too long.
const TOGETHER_MAX: usize = 1_024;

/// A checkpoint follows so long after a commit, or after so many commits.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
const CHECKPOINT_COMMITS: u64 = 1_000;

/// After so many commits a process is one that writes a lot, and gets a log of full length.
const COMMITS_UNTIL_LONG_LOG: u64 = 16;

/// A write, and the task that waits for it.
trait Request: Send {
    /// Writes. Called once more after a transaction that failed.
    fn write(&mut self, cache: &mut RunCache) -> Result<(), SqliteError>;
    /// Tells the task that the write is durable, or why not.
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
            // A refused request changed nothing, so the others in the transaction go on.
            Err(SqliteError::Refused(error)) => Err(error),
            Err(fault) => return Err(fault),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let QueuedWrite { done, reply, .. } = *self;
        let done = result.and_then(|()| done.expect("a commit follows the write"));
        // The task may have been dropped; the write stands.
        let _ = reply.send(done);
    }
}

#[derive(Default)]
struct Queue {
    posted: Vec<Box<dyn Request>>,
    /// Whether the writer thread is to write the posted requests. Else the task that posted them may.
    is_handed_over: bool,
    /// Whether the store is closing: nothing more comes.
    is_closed: bool,
}

/// What the threads share.
struct Shared {
    path: PathBuf,
    options: SqliteOptions,
    queue: Mutex<Queue>,
    /// Wakes the writer thread.
    handed_over: Condvar,
    /// Wakes the checkpoint thread.
    committed: Condvar,
    /// The connection that writes. Its holder is the writer.
    cache: Mutex<RunCache>,
    ack_log: OnceLock<Arc<AckLog>>,
    commits: AtomicU64,
    /// Commits before the last checkpoint.
    checkpointed: AtomicU64,
    /// Time that all commits took.
    nanos: AtomicU64,
    /// Time that the last commit took.
    last_nanos: AtomicU64,
}

/// Closes the queue when the writer thread ends, also by a panic: no task waits for ever.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        queue.posted.clear();
    }
}

impl Shared {
    /// Queues a request. A closed queue drops it, and so its reply.
    fn post(&self, request: Box<dyn Request>) {
        let mut queue = self.queue.lock();
        if !queue.is_closed {
            queue.posted.push(request);
        }
    }

    /// Leaves the posted requests to the writer thread.
    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        if !queue.is_handed_over && (!queue.posted.is_empty() || queue.is_closed) {
            queue.is_handed_over = true;
            self.handed_over.notify_one();
        }
    }

    /// Writes the posted request on this thread, if it is the only one, the writer is idle, and syncs are
    /// fast.
    fn write_alone(&self) {
        let last = Duration::from_nanos(self.last_nanos.load(Ordering::Relaxed));
        if last > self.options.alone_max {
            return;
        }
        let Some(mut cache) = self.cache.try_lock() else { return };
        let mut queue = self.queue.lock();
        if queue.posted.len() > 1 || queue.is_handed_over {
            return;
        }
        let Some(request) = queue.posted.pop() else { return };
        drop(queue);
        // Another process may hold the file's lock for seconds: the writer thread waits for it.
        if cache.begin_at_once() {
            self.write(&mut cache, vec![request]);
        } else {
            self.post(request);
        }
    }

    /// The writer thread.
    fn write_all(&self) {
        let _closing = CloseOnDrop(self);
        while let Some(posted) = self.next_batch() {
            self.write(&mut self.cache.lock(), posted);
        }
    }

    /// Waits for requests; none when the queue is closed and empty.
    fn next_batch(&self) -> Option<Vec<Box<dyn Request>>> {
        let mut queue = self.queue.lock();
        while !queue.is_handed_over || queue.posted.is_empty() {
            queue.is_handed_over = false;
            if queue.is_closed {
                return None;
            }
            self.handed_over.wait(&mut queue);
        }
        let count = queue.posted.len().min(TOGETHER_MAX);
        queue.is_handed_over = count < queue.posted.len();
        Some(queue.posted.drain(..count).collect())
    }

    /// Writes all requests in one transaction. When that fails, each gets a transaction of its own, so
    /// that one bad request does not stop the others.
    fn write(&self, cache: &mut RunCache, mut posted: Vec<Box<dyn Request>>) {
        let began = Instant::now();
        let write =
            |cache: &mut RunCache| posted.iter_mut().try_for_each(|request| request.write(cache));
        let result = cache.transaction(write);
        if result.is_ok() {
            if let Some(ack_log) = self.ack_log.get() {
                let (commit, runs) = cache.committed();
                ack_log.note(commit, runs);
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

    /// Commits since the last checkpoint.
    fn pending_commits(&self) -> u64 {
        self.commits() - self.checkpointed.load(Ordering::Relaxed)
    }

    fn note_commit(&self, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanos.store(nanos, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let is_due = [1, CHECKPOINT_COMMITS].contains(&self.pending_commits());
        if is_due || commits == COMMITS_UNTIL_LONG_LOG {
            // Under the lock, so that the checkpoint thread is not just about to wait.
            drop(self.queue.lock());
            self.committed.notify_one();
        }
    }

    /// The checkpoint thread.
    fn checkpoint_all(&self, connection: &Connection) {
        let mut is_log_long = false;
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            if self.pending_commits() == 0 {
                self.committed.wait(&mut queue);
                continue;
            }
            // The commits of one interval share a checkpoint.
            let due = Instant::now() + CHECKPOINT_INTERVAL;
            while !queue.is_closed && self.pending_commits() < CHECKPOINT_COMMITS {
                if !is_log_long && self.commits() >= COMMITS_UNTIL_LONG_LOG {
                    is_log_long = true;
                    // A short log makes syncs slower, and nothing else.
                    let lengthen = || preallocate_log(connection, &self.path);
                    let _ = MutexGuard::unlocked(&mut queue, lengthen);
                }
                if self.committed.wait_until(&mut queue, due).timed_out() {
                    break;
                }
            }
            MutexGuard::unlocked(&mut queue, || self.checkpoint(connection));
        }
    }

    fn checkpoint(&self, connection: &Connection) {
        let commit = {
            let mut cache = self.cache.lock();
            cache.flush_counts();
            cache.committed().0
        };
        let commits = self.commits();
        // After an error the next commits bring the next checkpoint.
        let is_complete = checkpoint(connection, CheckpointMode::Passive);
        if let (Ok(true), Some(ack_log)) = (is_complete, self.ack_log.get()) {
            ack_log.checkpointed(commit);
        }
        self.checkpointed.store(commits, Ordering::Relaxed);
    }
}

/// The queue of writes and its threads.
pub(super) struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    /// Starts the threads: one writes on the connection of `cache`, one takes checkpoints on
    /// `checkpointer`.
    pub(super) fn start(
        cache: RunCache,
        checkpointer: Connection,
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<Writer, StoreError> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            options: options.clone(),
            queue: Mutex::default(),
            handed_over: Condvar::new(),
            committed: Condvar::new(),
            cache: Mutex::new(cache),
            ack_log: OnceLock::new(),
            commits: AtomicU64::new(0),
            checkpointed: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            last_nanos: AtomicU64::new(0),
        });
        let mut writer = Writer { shared: shared.clone(), threads: Vec::new() };
        let writing = shared.clone();
        writer.spawn("segue-store", move || writing.write_all())?;
        writer.spawn("segue-checkpoint", move || shared.checkpoint_all(&checkpointer))?;
        Ok(writer)
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), StoreError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| StoreError::Unavailable { message: error.to_string() })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Notes every commit from now on there, before its tasks hear of it.
    pub(super) fn set_ack_log(&self, ack_log: Arc<AckLog>) {
        // A store has one owner, and so one acknowledgement log.
        let _ = self.shared.ack_log.set(ack_log);
    }

    /// Its figures.
    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            syncs: self.shared.commits(),
            sync_time: Duration::from_nanos(self.shared.nanos.load(Ordering::Relaxed)),
            queue: self.shared.queue.lock().posted.len() as u64,
            ..StoreFigures::default()
        }
    }

    fn queue<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.shared.post(Box::new(QueuedWrite { work, done: None, reply }));
        answer
    }

    /// Has the writer thread write, without waiting for it. `work` refuses before it writes anything,
    /// and may be called twice.
    pub(super) fn post<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let answer = self.queue(move |cache| {
            // `work` may read the rows of runs that have turns in this transaction.
            cache.write_statuses()?;
            work(cache)
        });
        self.shared.hand_over();
        answer
    }

    /// The same, and waits until it is durable.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.post(work).await.map_err(closed)?
    }

    /// The same for a turn of a run, which this thread writes when it is alone. `work` knows the run
    /// from the cache.
    pub(super) async fn write_turn<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = self.queue(work);
        // The writer thread writes it also when the caller drops this future.
        let handing_over = HandOverOnDrop(&self.shared);
        // Other runs on this thread may have turns to write, too.
        tokio::task::yield_now().await;
        self.shared.write_alone();
        drop(handing_over);
        answer.await.map_err(closed)?
    }
}

/// A writer thread that ended drops its replies.
fn closed(_: oneshot::error::RecvError) -> StoreError {
    StoreError::Unavailable { message: "the store is closed".to_owned() }
}

/// Hands over to the writer thread when dropped.
struct HandOverOnDrop<'a>(&'a Shared);

impl Drop for HandOverOnDrop<'_> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The writer thread empties the queue first.
        self.shared.queue.lock().is_closed = true;
        self.shared.hand_over();
        self.shared.committed.notify_one();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let mut cache = self.shared.cache.lock();
        cache.flush_counts();
        // Readers of other processes may prevent it: then the log keeps the rest, as durable.
        let is_complete = checkpoint(&cache.connection, CheckpointMode::Truncate);
        if let (Ok(true), Some(ack_log)) = (is_complete, self.shared.ack_log.get()) {
            ack_log.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use futures_util::future::join;
    use futures_util::poll;
    use tempfile::TempDir;

    use super::super::schema::{BUSY_WAIT, open_checkpointer, open_writer};
    use super::*;
    use crate::store::pending_counts::PendingCounts;

    fn writer() -> (TempDir, PathBuf, Writer) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let options = SqliteOptions { alone_max: Duration::MAX, ..SqliteOptions::default() };
        let connection = open_writer(&path, &options).unwrap();
        let cache = RunCache::new(connection, Arc::<PendingCounts>::default());
        let checkpointer = open_checkpointer(&path).unwrap();
        let writer = Writer::start(cache, checkpointer, &path, &options).unwrap();
        (folder, path, writer)
    }

    /// Instead of a turn: tells which thread writes.
    async fn writing_thread(writer: &Writer) -> ThreadId {
        writer.write_turn(|_| Ok(thread::current().id())).await.unwrap()
    }

    #[tokio::test]
    async fn a_lone_run_writes_on_its_own_thread() {
        let (_folder, _, writer) = writer();
        assert_eq!(writing_thread(&writer).await, thread::current().id());
        assert_eq!(writer.figures().syncs, 1);
        let there = writer.write(|_| Ok(thread::current().id())).await.unwrap();
        assert_ne!(there, thread::current().id());
    }

    #[tokio::test]
    async fn runs_that_write_at_once_share_a_sync() {
        let (_folder, _, writer) = writer();
        let (one, two) = join(writing_thread(&writer), writing_thread(&writer)).await;
        assert_eq!(one, two);
        assert_eq!(writer.figures().syncs, 1);
    }

    /// A process that holds the file's lock delays writes, and nothing else.
    #[tokio::test]
    async fn the_writer_thread_waits_for_a_locked_file() {
        let (_folder, path, writer) = writer();
        let another = rusqlite::Connection::open(&path).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut writing = std::pin::pin!(writing_thread(&writer));
        assert!(poll!(&mut writing).is_pending());
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert!(poll!(&mut writing).is_pending());
        assert!(began.elapsed() < BUSY_WAIT / 2);
        another.execute_batch("ROLLBACK").unwrap();
        assert_ne!(writing.await, thread::current().id());
    }

    #[tokio::test]
    async fn a_write_whose_caller_is_gone_is_written() {
        let (_folder, _, writer) = writer();
        {
            let mut writing = std::pin::pin!(writing_thread(&writer));
            assert!(poll!(&mut writing).is_pending());
        }
        let began = Instant::now();
        while writer.figures().syncs == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::yield_now();
        }
    }
}
