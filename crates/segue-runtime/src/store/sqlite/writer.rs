//! Whoever writes, writes for all that wait, and syncs once.
//!
//! SQLite has one writer at a time anyway. A thread of our own makes the queue visible, and what is
//! in it when a sync ends goes into the next one. A run that is alone has nobody to share a sync
//! with, and waking a thread and being woken by it takes a third of what a fast sync takes. So it
//! writes by itself, on the thread that it is on, as long as syncs are fast.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use super::desk::Desk;
use super::fault::Fault;
use super::office::{Alone, Office};
use super::schema::SqliteOptions;
use super::turn::Turn;
use crate::store::{StoreError, StoreFigures};

/// Something to write, and somebody who waits for it.
pub(super) trait Request: Send {
    /// Writes it. May be called again after a transaction that failed.
    fn write(&mut self, desk: &mut Desk) -> Result<(), Fault>;
    /// Says that it is durable, or why not.
    fn answer(self: Box<Self>, result: Result<(), StoreError>);
    /// The turn of a run, if it is one.
    fn turn(&self) -> Option<&Arc<Turn>> {
        None
    }
    /// The same, if it was written and not refused.
    fn written(&self) -> Option<&Arc<Turn>> {
        None
    }
}

struct Waiting<F, T> {
    work: F,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&mut Desk) -> Result<T, Fault> + Send> Request for Waiting<F, T> {
    fn write(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        desk.settle()?;
        self.done = Some(unless_refused((self.work)(desk))?);
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let Waiting { done, reply, .. } = *self;
        let done = result.and_then(|()| done.expect("what was committed was written before"));
        // Whoever asked may have gone; it is written nevertheless.
        let _ = reply.send(done);
    }
}

struct WaitingTurn {
    turn: Arc<Turn>,
    /// What the file said to it; a slate says nothing.
    done: Result<(), StoreError>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl Request for WaitingTurn {
    fn write(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        self.done = unless_refused(self.turn.write(desk))?;
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let WaitingTurn { done, reply, .. } = *self;
        let _ = reply.send(result.and(done));
    }

    fn turn(&self) -> Option<&Arc<Turn>> {
        Some(&self.turn)
    }

    fn written(&self) -> Option<&Arc<Turn>> {
        self.done.is_ok().then_some(&self.turn)
    }
}

/// What was refused has changed nothing, so the others in the transaction go on.
pub(super) fn unless_refused<T>(done: Result<T, Fault>) -> Result<Result<T, StoreError>, Fault> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Refused(error)) => Ok(Err(error)),
        Err(fault) => Err(fault),
    }
}

/// The queue, and who writes what is in it.
pub(super) struct Writer {
    office: Arc<Office>,
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        desk: Desk,
        path: &Path,
        options: &SqliteOptions,
    ) -> Result<Writer, StoreError> {
        let office = Arc::new(Office::new(desk, path, options));
        let start = |name: &str, work: fn(&Office)| {
            let ours = office.clone();
            let thread = std::thread::Builder::new().name(name.to_owned());
            let started = thread.spawn(move || work(&ours));
            started.map_err(|error| StoreError::Unavailable { message: error.to_string() })
        };
        // One for what somebody waits for, and one for what nobody does.
        let threads =
            vec![start("segue-store", Office::write_all)?, start("segue-copy", Office::keep_up)?];
        Ok(Writer { office, threads })
    }

    /// Says where a slate may be made.
    pub(super) fn lend(&self, path: PathBuf) {
        self.office.lend(path);
    }

    /// How it does.
    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            syncs: self.commits(),
            sync_time: Duration::from_nanos(self.office.nanos()),
            queue: self.office.posted() as u64,
            ..StoreFigures::default()
        }
    }

    /// Times that somebody waited for a sync.
    pub(super) fn commits(&self) -> u64 {
        self.office.commits()
    }

    /// Whether there is something on the slate that is not in the file.
    pub(super) fn is_ahead(&self) -> bool {
        self.office.is_ahead()
    }

    /// Has everything in the file, and nothing on the slate.
    pub(super) async fn wipe(&self) -> Result<(), StoreError> {
        let office = self.office.clone();
        let wiped = tokio::task::spawn_blocking(move || office.wipe()).await;
        wiped.unwrap_or_else(|error| Err(StoreError::Unavailable { message: error.to_string() }))
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
    pub(super) async fn write_turn(&self, turn: Turn) -> Result<(), StoreError> {
        let turn = Arc::new(turn);
        let seems_alone = match self.office.notice(&turn) {
            Alone::No => false,
            Alone::Yes => true,
            Alone::ForLong => {
                tokio::task::yield_now().await;
                self.office.is_still_alone()
            }
        };
        if seems_alone && self.office.put_alone(&turn) {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        let request = WaitingTurn { turn: turn.clone(), done: Ok(()), reply };
        self.hand_in(&turn.lease.run_id, Box::new(request), seems_alone).await;
        answer.await.map_err(gone)?
    }

    /// Posts the turn of a run, which writes it by itself when it is alone.
    async fn hand_in(&self, run_id: &Arc<str>, request: Box<dyn Request>, seems_alone: bool) {
        self.office.post(request);
        let left = Left(&self.office);
        if !seems_alone {
            // Others on this thread may have something to write too.
            tokio::task::yield_now().await;
        }
        if self.office.write_alone(run_id) {
            std::mem::forget(left);
        } else {
            drop(left);
        }
    }

    /// Has something written. Nobody needs to wait for the answer.
    pub(super) fn post<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Desk) -> Result<T, Fault> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.office.post(Box::new(Waiting { work, done: None, reply }));
        self.office.leave();
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
        self.0.leave();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What is queued is written first; the threads end when the queue does.
        self.office.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.office.end();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use std::time::Instant;

    use futures_util::future::join;
    use futures_util::poll;
    use segue_core::run::{Entry, Fact, NodeId};
    use segue_core::value::Value;
    use segue_core::view::RunStatus;
    use tempfile::TempDir;

    use super::super::SqliteStore;
    use super::super::desk::Counts;
    use super::super::mark::{PAGES_MIN, take};
    use super::super::pack::hash;
    use super::super::schema::{BUSY_WAIT, beside, open_reader, open_writer};
    use super::super::slate::{Medium, Pages, Put, Slate};
    use super::super::turn::{Begins, Bundle, PackedRecord};
    use super::*;
    use crate::store::{Lease, Record, RunRow, Store as _};

    fn writer() -> (TempDir, PathBuf, Writer) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let options = SqliteOptions { alone_max: Duration::MAX, ..SqliteOptions::default() };
        let connection = open_writer(&path, &options).unwrap();
        let desk = Desk::new(connection, Arc::<Counts>::default());
        let writer = Writer::start(desk, &path, &options).unwrap();
        (folder, path, writer)
    }

    /// Says who writes.
    fn here() -> impl FnMut(&mut Desk) -> Result<ThreadId, Fault> + Send + 'static {
        |_| Ok(thread::current().id())
    }

    /// Instead of a turn: says who writes.
    struct Here {
        turn: Arc<Turn>,
        told: mpsc::Sender<ThreadId>,
        reply: oneshot::Sender<()>,
    }

    impl Request for Here {
        fn write(&mut self, _: &mut Desk) -> Result<(), Fault> {
            self.told.send(thread::current().id()).unwrap();
            Ok(())
        }

        fn answer(self: Box<Self>, _: Result<(), StoreError>) {
            let _ = self.reply.send(());
        }

        fn turn(&self) -> Option<&Arc<Turn>> {
            Some(&self.turn)
        }
    }

    /// Who writes a turn of this run.
    async fn turn_of(writer: &Writer, run_id: &str, told: mpsc::Sender<ThreadId>) {
        let run_id: Arc<str> = run_id.into();
        let lease = Lease { run_id: run_id.clone(), epoch: 1 };
        let empty = Record { expected: 0, entries: &[], status: RunStatus::Running, measured: &[] };
        let turn = Turn::new(lease, None, PackedRecord::new(empty, 1_000));
        let (reply, answer) = oneshot::channel();
        let here = Box::new(Here { turn: Arc::new(turn), told, reply });
        writer.hand_in(&run_id, here, false).await;
        answer.await.unwrap();
    }

    #[tokio::test]
    async fn a_run_that_is_alone_writes_by_itself() {
        let (_folder, _, writer) = writer();
        let (told, who) = mpsc::channel();
        turn_of(&writer, "one", told).await;
        assert_eq!(who.recv().unwrap(), thread::current().id());
        assert_eq!(writer.commits(), 1);
        assert_ne!(writer.write(here()).await.unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn runs_that_write_at_once_share_a_sync() {
        let (_folder, _, writer) = writer();
        let (told, who) = mpsc::channel();
        join(turn_of(&writer, "one", told.clone()), turn_of(&writer, "two", told)).await;
        assert_eq!(who.recv().unwrap(), who.recv().unwrap());
        assert_eq!(writer.commits(), 1);
    }

    /// A process that has the file holds up what wants to be written, and nothing else.
    #[tokio::test]
    async fn a_file_that_another_has_is_left_to_the_thread() {
        let (_folder, path, writer) = writer();
        let another = rusqlite::Connection::open(&path).unwrap();
        another.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (told, who) = mpsc::channel();
        let mut writing = std::pin::pin!(turn_of(&writer, "one", told));
        assert!(poll!(&mut writing).is_pending());
        tokio::task::yield_now().await;
        let began = Instant::now();
        assert!(poll!(&mut writing).is_pending());
        assert!(began.elapsed() < BUSY_WAIT / 2);
        another.execute_batch("ROLLBACK").unwrap();
        writing.await;
        assert_ne!(who.recv().unwrap(), thread::current().id());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_written() {
        let (_folder, _, writer) = writer();
        let (told, who) = mpsc::channel();
        {
            let mut writing = std::pin::pin!(turn_of(&writer, "one", told));
            assert!(poll!(&mut writing).is_pending());
        }
        who.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    /// How a slate fails.
    #[derive(Clone, Copy, Debug)]
    enum Failure {
        /// Nothing is written.
        Before,
        /// Some of it is.
        Torn,
        /// All of it is, and nobody hears of it.
        After,
        /// Somebody else has taken it, after all of it was.
        Taken,
        /// The same, and has copied it.
        Copied,
    }

    impl Failure {
        const ALL: [Failure; 5] =
            [Failure::Before, Failure::Torn, Failure::After, Failure::Taken, Failure::Copied];
    }

    /// A slate that fails once.
    struct Faulty {
        store: PathBuf,
        slate: PathBuf,
        file: Pages,
        puts: usize,
        fails: usize,
        how: Failure,
    }

    impl Medium for Faulty {
        fn put(&mut self, page: u64, bytes: &[u8]) -> io::Result<Put> {
            self.puts += 1;
            if self.puts != self.fails {
                return self.file.put(page, bytes);
            }
            match self.how {
                Failure::Before => {}
                Failure::Torn => drop(self.file.put(page, &bytes[..512])?),
                Failure::After => drop(self.file.put(page, bytes)?),
                Failure::Taken | Failure::Copied => {
                    self.file.put(page, bytes)?;
                    take(&mut fs::File::options().write(true).open(&self.slate)?)?;
                    if let Failure::Copied = self.how {
                        // Whoever opens the store copies it, and throws it away: its owner is nobody.
                        drop(SqliteStore::open(&self.store, SqliteOptions::default()).unwrap());
                    }
                    return Ok(Put::Taken);
                }
            }
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    fn turn(seq: u64, row: Option<RunRow>) -> Turn {
        let node = NodeId { frame: 0, position: 0 };
        let fact = Fact::Succeeded { node, output: Value::from(seq), given: None };
        let entries = [Entry { seq, at_ms: 1_000 + seq, fact }];
        let record =
            Record { expected: seq, entries: &entries, status: RunStatus::Running, measured: &[] };
        let bundle = Bundle { hash: hash(b"bundle"), text: "bundle".into() };
        let lease = Lease { run_id: "a".into(), epoch: 1 };
        let begins = row.map(|row| Begins { row, bundle, is_drawn: false });
        Turn::new(lease, begins, PackedRecord::new(record, 1_000))
    }

    fn begun() -> RunRow {
        RunRow {
            run_id: "a".into(),
            name: "a".into(),
            status: RunStatus::Pending,
            plan_hash: "plan".into(),
            started_ms: 1_000,
            updated_ms: 1_000,
            ended_ms: None,
            length: 0,
            owner: None,
            epoch: 1,
            caller: None,
        }
    }

    /// A run seems to be alone after a few turns, and so does one that begins when it is over. Runs that
    /// end one after the other are not.
    #[tokio::test]
    async fn whoever_is_alone_is_seen_to_be() {
        let (_folder, _, writer) = writer();
        let turn_of = |run_id: &Arc<str>, row: Option<RunRow>, status: RunStatus| {
            let mut turn = turn(0, row);
            turn.lease.run_id = run_id.clone();
            turn.record.status = status;
            writer.office.notice(&turn)
        };
        let ids: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
        let running = |at: usize| turn_of(&ids[at], None, RunStatus::Running);
        let ends = |at: usize| turn_of(&ids[at], None, RunStatus::Success);
        let (no, yes) = (Alone::No, Alone::Yes);
        assert_eq!(turn_of(&ids[0], Some(begun()), RunStatus::Running), no);
        assert_eq!([running(0), running(0), running(0), ends(0)], [no, no, yes, yes]);
        assert_eq!(turn_of(&ids[1], Some(begun()), RunStatus::Running), yes, "the next one");
        assert_eq!(running(1), yes);
        assert_eq!(turn_of(&ids[2], Some(begun()), RunStatus::Running), no, "two at once");
        let alone = [0; 31].map(|_| running(2));
        let count = |kind: Alone| alone.iter().filter(|alone| **alone == kind).count();
        assert_eq!((count(no), count(yes), count(Alone::ForLong)), (2, 27, 2));
        assert_eq!([ends(0), ends(1), ends(2), ends(0), ends(1)], [no; 5]);
    }

    /// How long the run is for whoever opens the store after a crash.
    async fn length_after_crash(folder: &Path) -> u64 {
        let image = TempDir::new().unwrap();
        fs::create_dir(image.path().join("runs.db-slates")).unwrap();
        for name in ["runs.db", "runs.db-wal", "runs.db-slates/somebody"] {
            fs::copy(folder.join(name), image.path().join(name)).unwrap();
        }
        let store = SqliteStore::open(&image.path().join("runs.db"), SqliteOptions::default());
        store.unwrap().load(&"a".into()).await.unwrap().len() as u64
    }

    /// J11: each write of a slate fails once, in every way. What is acknowledged is there, nothing
    /// comes twice, and the run goes on.
    #[tokio::test]
    async fn a_slate_that_fails_is_left() {
        for how in Failure::ALL {
            for fails in 1..7 {
                let (folder, path, writer) = writer();
                writer.write(here()).await.unwrap();
                let slate = beside(&path, "-slates").join("somebody");
                let reader = open_reader(&path).unwrap();
                let (mut made, probe) =
                    Slate::make(slate.clone(), reader, &path, PAGES_MIN).unwrap();
                let file = Pages::open(&slate).unwrap();
                let (store, place) = (path.clone(), slate.clone());
                let faulty = Faulty { store, slate: place, file, puts: 0, fails, how };
                made.replace_medium(Box::new(faulty));
                writer.office.put_slate(made, probe);
                for seq in 0..6 {
                    let mut turn = turn(seq, (seq == 0).then(begun));
                    if seq == 5 {
                        turn.record.status = RunStatus::Success;
                    }
                    writer.write_turn(turn).await.unwrap();
                    if slate.exists() {
                        assert_eq!(length_after_crash(folder.path()).await, seq + 1, "{how:?}");
                    }
                }
                drop(writer);
                let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
                assert_eq!(store.load(&"a".into()).await.unwrap().len(), 6, "{how:?} at {fails}");
                assert!(!slate.exists(), "what is not used any more is thrown away");
            }
        }
    }
}
