//! Whoever writes, writes for all that wait, and syncs once.
//!
//! SQLite has one writer at a time anyway. A thread of our own makes the queue visible, and what is
//! in it when a sync ends goes into the next one. A run that is alone has nobody to share a sync
//! with, and waking a thread and being woken by it takes a third of what a fast sync takes. So it
//! writes by itself, on the thread that it is on, as long as syncs are fast.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::desk::{COUNTS_APART, Desk};
use super::fault::Fault;
use super::schema::lengthen_log;
use crate::store::{StoreError, StoreFigures};

/// Requests that are written together at most, so that the first one does not wait for ever.
const TOGETHER_MAX: usize = 1_024;

/// Commits after which the process is one that writes a lot, and the log is made long.
const COMMITS_UNTIL_LONG: u64 = 16;

/// Whoever writes by itself holds up everything else on its thread, for so long and not longer.
const ALONE_MAX: Duration = Duration::from_millis(1);

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

/// A request in the queue.
struct Posted {
    /// The run that it is of.
    run_id: Option<Arc<str>>,
    request: Box<dyn Request>,
}

#[derive(Default)]
struct Queue {
    posted: Vec<Posted>,
    /// Whether there are counts that want to be written when nobody comes for a while.
    has_counts: bool,
    /// Whether nothing more will come.
    is_closed: bool,
}

/// The queue, and who writes what is in it.
pub(super) struct Writer {
    office: Arc<Office>,
    thread: Option<JoinHandle<()>>,
}

struct Office {
    queue: Mutex<Queue>,
    /// Tells the thread that there is something to do.
    news: Condvar,
    /// Whoever has it writes.
    writing: Mutex<Writing>,
    commits: AtomicU64,
    /// Time that transactions took.
    nanos: AtomicU64,
}

impl Writer {
    pub(super) fn start(desk: Desk, path: &Path) -> Result<Writer, StoreError> {
        let writing =
            Writing { desk, path: path.to_owned(), took: Duration::ZERO, is_log_long: false };
        let office = Arc::new(Office {
            queue: Mutex::default(),
            news: Condvar::new(),
            writing: Mutex::new(writing),
            commits: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        });
        let ours = office.clone();
        let thread = std::thread::Builder::new()
            .name("segue-store".to_owned())
            .spawn(move || ours.until_closed())
            .map_err(|error| StoreError::Unavailable { message: error.to_string() })?;
        Ok(Writer { office, thread: Some(thread) })
    }

    /// How it does.
    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            syncs: self.commits(),
            sync_time: Duration::from_nanos(self.office.nanos.load(Ordering::Relaxed)),
            queue: lock(&self.office.queue).posted.len() as u64,
            ..StoreFigures::default()
        }
    }

    /// Transactions that somebody waited for, each with one sync.
    pub(super) fn commits(&self) -> u64 {
        self.office.commits.load(Ordering::Relaxed)
    }

    /// Has something written, and waits until it is durable. `work` refuses before it writes
    /// anything, and may be called twice.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.post(work).await.map_err(gone)?
    }

    /// The same for a turn of a run, which writes it by itself when it is alone.
    pub(super) async fn write_turn<T: Send + 'static>(
        &self,
        run_id: &Arc<str>,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = self.office.post(Some(run_id.clone()), work);
        let left = Left(&self.office);
        // Others on this thread may have something to write too.
        tokio::task::yield_now().await;
        if self.office.write_alone(run_id) {
            std::mem::forget(left);
        } else {
            drop(left);
        }
        answer.await.map_err(gone)?
    }

    /// Has something written. Nobody needs to wait for the answer.
    pub(super) fn post<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let answer = self.office.post(None, work);
        self.office.news.notify_one();
        answer
    }
}

/// When the thread is gone the reply goes with it.
fn gone(_: oneshot::error::RecvError) -> StoreError {
    StoreError::Unavailable { message: "the store is closed".to_owned() }
}

/// Something that is left to the thread, also when whoever posted it is not there any more.
struct Left<'a>(&'a Office);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.news.notify_one();
    }
}

/// Closes the queue when the thread ends, whatever ends it: nobody waits for nothing.
struct Closing<'a>(&'a Office);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.is_closed = true;
        queue.posted.clear();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What is queued is written first; the thread ends when the queue does.
        lock(&self.office.queue).is_closed = true;
        self.office.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whoever panicked has changed nothing: its transaction was not committed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    fn post<T: Send + 'static>(
        &self,
        run_id: Option<Arc<str>>,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let mut queue = lock(&self.queue);
        // Else the reply goes, which whoever waits will see.
        if !queue.is_closed {
            let request = Box::new(Waiting { work, done: None, reply });
            queue.posted.push(Posted { run_id, request });
        }
        answer
    }

    /// Writes what this run has posted, if nobody else has posted anything and it will not take
    /// long. The answer is whether nothing is left for the thread to do.
    fn write_alone(&self, run_id: &Arc<str>) -> bool {
        let Ok(mut writing) = self.writing.try_lock() else { return false };
        if writing.took > ALONE_MAX || writing.wants_long_log(self.commits()) {
            return false;
        }
        let mut queue = lock(&self.queue);
        if queue.posted.iter().any(|posted| posted.run_id.as_ref() != Some(run_id)) {
            return false;
        }
        // The thread may have been faster.
        if queue.posted.is_empty() {
            return true;
        }
        // Another process may have the file for seconds.
        if !writing.desk.begin_at_once() {
            return false;
        }
        let posted = std::mem::take(&mut queue.posted);
        drop(queue);
        self.write(&mut writing, posted);
        !self.note_counts(&writing)
    }

    /// Notes whether there are counts to write; the answer is whether the thread should know, of
    /// these or of anything else.
    fn note_counts(&self, writing: &Writing) -> bool {
        let mut queue = lock(&self.queue);
        let is_news = writing.desk.has_counts() && !queue.has_counts;
        queue.has_counts |= is_news;
        is_news || !queue.posted.is_empty()
    }

    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    fn until_closed(&self) {
        let _closing = Closing(self);
        while self.wait() {
            let mut writing = lock(&self.writing);
            if writing.wants_long_log(self.commits()) {
                writing.make_log_long();
            }
            let mut queue = lock(&self.queue);
            let count = queue.posted.len().min(TOGETHER_MAX);
            let posted: Vec<Posted> = queue.posted.drain(..count).collect();
            drop(queue);
            if !posted.is_empty() {
                self.write(&mut writing, posted);
                self.note_counts(&writing);
            }
        }
    }

    /// Waits until there is something to write; the answer is whether there ever will be. Counts are
    /// written when nobody comes for a while.
    fn wait(&self) -> bool {
        let mut queue = lock(&self.queue);
        while queue.posted.is_empty() {
            if queue.is_closed {
                return false;
            }
            if !queue.has_counts {
                queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.news.wait_timeout(queue, COUNTS_APART);
            let (after, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = after;
            if timed_out.timed_out() && queue.posted.is_empty() {
                queue.has_counts = false;
                drop(queue);
                // They are hints: what cannot be written is lost.
                let _ = lock(&self.writing).desk.transaction(|desk| desk.write_counts_of(1));
                queue = lock(&self.queue);
            }
        }
        true
    }

    /// All in one transaction. When that fails each is tried alone, so that one request that cannot
    /// be written does not stop the others.
    fn write(&self, writing: &mut Writing, mut posted: Vec<Posted>) {
        let result = writing.transaction(&mut posted);
        let nanos = u64::try_from(writing.took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if result.is_ok() {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        if result.is_ok() || posted.len() == 1 {
            let result = result.map_err(StoreError::from);
            posted.into_iter().for_each(|posted| posted.request.answer(result.clone()));
            return;
        }
        for posted in posted {
            self.write(writing, vec![posted]);
        }
    }
}

/// What whoever writes has at hand.
struct Writing {
    desk: Desk,
    path: PathBuf,
    /// How long the last transaction took.
    took: Duration,
    /// Whether the log was made long, or that was tried.
    is_log_long: bool,
}

impl Writing {
    fn transaction(&mut self, posted: &mut [Posted]) -> Result<(), Fault> {
        let began = Instant::now();
        let write =
            |desk: &mut Desk| posted.iter_mut().try_for_each(|posted| posted.request.write(desk));
        let result = self.desk.transaction(write);
        self.took = began.elapsed();
        result
    }

    fn wants_long_log(&self, commits: u64) -> bool {
        commits > COMMITS_UNTIL_LONG && !self.is_log_long
    }

    fn make_log_long(&mut self) {
        self.is_log_long = true;
        // Without it everything is slower and nothing else.
        let _ = lengthen_log(&self.desk.connection, &self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use futures_util::future::join;
    use futures_util::poll;
    use tempfile::TempDir;

    use super::super::desk::Counts;
    use super::super::schema::{SqliteOptions, open_writer};
    use super::*;

    fn writer() -> (TempDir, PathBuf, Writer) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let connection = open_writer(&path, &SqliteOptions::default()).unwrap();
        let desk = Desk::new(connection, Arc::<Counts>::default());
        let writer = Writer::start(desk, &path).unwrap();
        (folder, path, writer)
    }

    /// Says who writes.
    fn here() -> impl FnMut(&mut Desk) -> Result<ThreadId, Fault> + Send + 'static {
        |_| Ok(thread::current().id())
    }

    #[tokio::test]
    async fn a_run_that_is_alone_writes_by_itself() {
        let (_folder, _, writer) = writer();
        let run_id: Arc<str> = "one".into();
        assert_eq!(writer.write_turn(&run_id, here()).await.unwrap(), thread::current().id());
        assert_eq!(writer.commits(), 1);
        assert_ne!(writer.write(here()).await.unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn runs_that_write_at_once_share_a_sync() {
        let (_folder, _, writer) = writer();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let both = join(writer.write_turn(&one, here()), writer.write_turn(&two, here())).await;
        assert_eq!(both.0.unwrap(), both.1.unwrap());
        assert_eq!(writer.commits(), 1);
    }

    /// A process that has the file holds up what wants to be written, and nothing else.
    #[tokio::test]
    async fn a_file_that_another_has_is_left_to_the_thread() {
        let (_folder, path, writer) = writer();
        let another = rusqlite::Connection::open(&path).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        let run_id: Arc<str> = "one".into();
        let mut writing = std::pin::pin!(writer.write_turn(&run_id, here()));
        assert!(poll!(&mut writing).is_pending());
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert!(poll!(&mut writing).is_pending());
        assert!(began.elapsed() < super::super::schema::BUSY_WAIT / 2);
        another.execute_batch("ROLLBACK").unwrap();
        assert_ne!(writing.await.unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_written() {
        let (_folder, _, writer) = writer();
        let (written, told) = mpsc::channel();
        let run_id: Arc<str> = "one".into();
        {
            let work = move |_: &mut Desk| {
                written.send(()).unwrap();
                Ok(())
            };
            let mut writing = std::pin::pin!(writer.write_turn(&run_id, work));
            assert!(poll!(&mut writing).is_pending());
        }
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
