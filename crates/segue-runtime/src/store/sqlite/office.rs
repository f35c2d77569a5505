//! Where writing is done: the queue, the file, and the slate before it.
//!
//! Turns reach the file in the order in which they were acknowledged. So whoever writes into the file
//! copies what stands on the slate first, in the same transaction. And whoever may change a run in
//! any other way than by its next turn first makes the slate forget how far runs have come: their
//! next turns go into the file, where they are held against what is there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::desk::{COUNTS_APART, Desk, Durable};
use super::fault::Fault;
use super::mark::{PAGES_MAX, PAGES_MIN};
use super::schema::{SqliteOptions, lengthen_log, open_reader, sync_log};
use super::slate::{Probe, Slate};
use super::turn::{self, Turn};
use super::writer::Request;
use crate::store::StoreError;
use crate::store::rules::is_over;

/// Requests that are written together at most, so that the first one does not wait for ever.
const TOGETHER_MAX: usize = 1_024;

/// Turns that are worth a sync: the thread writes them while others get theirs ready.
const TOGETHER_ENOUGH: usize = 16;

/// Turns without another run between them, after which a run seems to be alone. Every so many turns it
/// lets others go first nevertheless: they may have nothing to write, and something to do.
const ALONE_ENOUGH: u32 = 3;
const ALONE_MAX: u32 = 16;

/// What stands on the slate is copied so far apart, unless somebody wants to read it or there is more.
const COPIES_APART: Duration = Duration::from_millis(50);

/// So much, which is also what is copied together, so that others need not wait long.
const COPY_TOGETHER: usize = 1_024;

/// A slate that could not be copied is left alone for so long.
const COPY_PAUSE: Duration = Duration::from_millis(200);

/// Commits between two slates.
const SLATES_APART: u64 = 1_024;

#[derive(Default)]
struct Queue {
    posted: Vec<Box<dyn Request>>,
    /// Whose turn was the last one, unless its run is over with it.
    last: Option<Arc<str>>,
    /// How many turns there were while no other run was there, and nothing else to write.
    alone: u32,
    /// Whether somebody has left it to the thread. Else whoever posted something is about to write it.
    is_left: bool,
    /// Whether there are counts that want to be written when nobody comes for a while.
    has_counts: bool,
    /// Whether nothing more will come.
    is_closed: bool,
}

impl Queue {
    /// Whether nobody else seems to have anything to write.
    fn is_alone(&self) -> bool {
        self.alone > ALONE_ENOUGH && self.posted.is_empty() && !self.is_closed
    }
}

/// Whether a run seems to be alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    /// Others have something to write, too.
    No,
    /// It does.
    Yes,
    /// It does, and should let others go first once more.
    ForLong,
}

/// See the module.
pub(super) struct Office {
    /// The store's file.
    path: PathBuf,
    options: SqliteOptions,
    queue: Mutex<Queue>,
    /// Tells the thread that writes that there is something to do.
    news: Condvar,
    /// Tells the thread that does what nobody waits for.
    chores: Condvar,
    /// Whoever has it writes into the file.
    writing: Mutex<Writing>,
    /// Whoever has it writes on the slate. Taken after `writing` by whoever wants both.
    slate: Mutex<Option<Slate>>,
    slate_path: OnceLock<PathBuf>,
    /// What stands on the slate and is not in the file, the oldest first. Apart from the slate: nobody
    /// who copies it waits for whoever writes there, and is then woken in their place.
    waiting: Mutex<Vec<Arc<Turn>>>,
    /// Whether whoever has the slate keeps it for longer.
    is_tidying: AtomicBool,
    /// How many those are.
    ahead: AtomicUsize,
    commits: AtomicU64,
    /// Time that somebody waited for syncs.
    nanos: AtomicU64,
    /// How long that was the last time.
    took: AtomicU64,
}

/// What whoever writes into the file has at hand.
struct Writing {
    desk: Desk,
    /// Whether the log was made long, or that was tried.
    is_log_long: bool,
    /// Commits after which a slate is made, and how many pages it has then.
    slate_after: u64,
    slate_pages: u64,
    /// Looks at the slate, if there is one.
    probe: Option<Probe>,
}

impl Writing {
    /// Copies turns of the slate, which others may write on meanwhile.
    fn copy(&mut self, turns: &[Arc<Turn>], durable: Durable) -> Result<(), Fault> {
        let Writing { desk, probe, .. } = self;
        desk.transaction(durable, |desk| copy_onto(desk, probe, turns))
    }
}

/// Copies turns of the slate, unless somebody else has.
fn copy_onto(desk: &mut Desk, probe: &mut Option<Probe>, turns: &[Arc<Turn>]) -> Result<(), Fault> {
    let Some(probe) = probe else { return Ok(()) };
    if turns.is_empty() || !probe.is_to_copy()? {
        return Ok(());
    }
    turn::copy(turns, desk)
}

/// Whoever panicked has changed nothing: its transaction was not committed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Office {
    pub(super) fn new(desk: Desk, path: &Path, options: &SqliteOptions) -> Office {
        let slate_after = options.commits_until_slate;
        Office {
            path: path.to_owned(),
            options: options.clone(),
            queue: Mutex::default(),
            news: Condvar::new(),
            chores: Condvar::new(),
            writing: Mutex::new(Writing {
                desk,
                is_log_long: false,
                slate_after,
                slate_pages: PAGES_MIN,
                probe: None,
            }),
            slate: Mutex::default(),
            slate_path: OnceLock::new(),
            waiting: Mutex::default(),
            is_tidying: AtomicBool::new(false),
            ahead: AtomicUsize::new(0),
            commits: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            took: AtomicU64::new(0),
        }
    }

    #[cfg(test)]
    pub(super) fn put_slate(&self, slate: Slate, probe: Probe) {
        lock(&self.writing).probe = Some(probe);
        *lock(&self.slate) = Some(slate);
    }

    pub(super) fn lend(&self, path: PathBuf) {
        // There is one owner, and so one place.
        let _ = self.slate_path.set(path);
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    pub(super) fn posted(&self) -> usize {
        lock(&self.queue).posted.len()
    }

    pub(super) fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Acquire) > 0
    }

    /// Leaves what is posted to the thread.
    pub(super) fn leave(&self) {
        let mut queue = lock(&self.queue);
        // Whoever has just taken everything needs no waking.
        if !queue.is_left && (!queue.posted.is_empty() || queue.is_closed) {
            queue.is_left = true;
            self.news.notify_one();
        }
    }

    pub(super) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.leave();
        self.chores.notify_one();
    }

    /// Puts something into the queue. When that is closed the request goes, which whoever waits will
    /// see.
    pub(super) fn post(&self, request: Box<dyn Request>) {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return;
        }
        if request.turn().is_none() {
            queue.alone = 0;
        }
        queue.posted.push(request);
        if queue.posted.len() == TOGETHER_ENOUGH {
            queue.is_left = true;
            self.news.notify_one();
        }
    }

    /// Takes notice of a turn that is about to be written. The answer is whether its run is alone.
    pub(super) fn notice(&self, turn: &Turn) -> Alone {
        let mut queue = lock(&self.queue);
        let run_id = &turn.lease.run_id;
        let goes_on = match &queue.last {
            Some(last) => Arc::ptr_eq(last, run_id),
            // One run after the other.
            None => turn.begins.is_some(),
        };
        queue.alone = if goes_on { queue.alone.wrapping_add(1) } else { 1 };
        queue.last = (!is_over(turn.record.status)).then(|| run_id.clone());
        if !queue.is_alone() {
            Alone::No
        } else if queue.alone.is_multiple_of(ALONE_MAX) {
            Alone::ForLong
        } else {
            Alone::Yes
        }
    }

    /// Whether nobody has come since the last turn that was noticed.
    pub(super) fn is_still_alone(&self) -> bool {
        lock(&self.queue).is_alone()
    }

    /// Whether a sync takes too long to wait for it on the thread of a run.
    fn is_slow(&self) -> bool {
        Duration::from_nanos(self.took.load(Ordering::Relaxed)) > self.options.alone_max
    }

    /// Puts the turn of a run that seems to be alone on the slate, past the queue. The answer is
    /// whether it is durable there.
    pub(super) fn put_alone(&self, turn: &Arc<Turn>) -> bool {
        !self.is_slow() && self.put_turns(&[turn])
    }

    /// Writes what this run has posted, if nobody else has posted anything and it will not take
    /// long. The answer is whether nothing is left for the thread to do.
    pub(super) fn write_alone(&self, run_id: &Arc<str>) -> bool {
        if self.is_slow() {
            return false;
        }
        let mut queue = lock(&self.queue);
        let is_ours = |turn: &Arc<Turn>| turn.lease.run_id == *run_id;
        if !queue.posted.iter().all(|request| request.turn().is_some_and(is_ours)) {
            return false;
        }
        let mut posted = std::mem::take(&mut queue.posted);
        drop(queue);
        // The thread may have been faster.
        if posted.is_empty() {
            return true;
        }
        posted = self.put(posted);
        if posted.is_empty() {
            return true;
        }
        if let Ok(mut writing) = self.writing.try_lock() {
            // Another process may have the file for seconds.
            let may_write = !self.wants_care(&writing) && writing.desk.begin_at_once();
            if may_write {
                self.write(&mut writing, posted);
                self.note_counts(&writing);
                return true;
            }
        }
        let mut queue = lock(&self.queue);
        if !queue.is_closed {
            posted.append(&mut queue.posted);
            queue.posted = posted;
        }
        false
    }

    /// Puts turns on the slate, and answers them when they are durable there. What is left has to go
    /// into the file.
    fn put(&self, posted: Vec<Box<dyn Request>>) -> Vec<Box<dyn Request>> {
        let turns: Vec<&Arc<Turn>> = posted.iter().map_while(|request| request.turn()).collect();
        if turns.len() < posted.len() || !self.put_turns(&turns) {
            return posted;
        }
        posted.into_iter().for_each(|request| request.answer(Ok(())));
        Vec::new()
    }

    /// Puts turns on the slate. The answer is whether they are durable there.
    fn put_turns(&self, turns: &[&Arc<Turn>]) -> bool {
        // Else it is held for a moment and no longer.
        if self.is_tidying.load(Ordering::Relaxed) {
            return false;
        }
        let mut slate = lock(&self.slate);
        let began = Instant::now();
        if !slate.as_mut().is_some_and(|slate| slate.write(turns)) {
            return false;
        }
        self.note_commit(began);
        // Before others may write there: turns wait in the order in which they are acknowledged.
        let mut waiting = lock(&self.waiting);
        waiting.extend(turns.iter().map(|turn| Arc::clone(turn)));
        let before = self.ahead.fetch_add(turns.len(), Ordering::Release);
        drop((waiting, slate));
        if before == 0 || before < COPY_TOGETHER && before + turns.len() >= COPY_TOGETHER {
            // Held for a moment, so that the thread is not just about to go to sleep.
            drop(lock(&self.queue));
            self.chores.notify_one();
        }
        true
    }

    fn note_commit(&self, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.took.store(nanos, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes whether there are counts to write.
    fn note_counts(&self, writing: &Writing) {
        let mut queue = lock(&self.queue);
        if writing.desk.has_counts() && !queue.has_counts {
            queue.has_counts = true;
            self.chores.notify_one();
        }
    }

    /// Writes what is left to it, until the queue is closed.
    pub(super) fn write_all(&self) {
        let _closing = Closing(self);
        while let Some(posted) = self.wait() {
            let posted = self.put(posted);
            if posted.is_empty() {
                continue;
            }
            let mut writing = lock(&self.writing);
            if self.wants_care(&writing) {
                self.take_care(&mut writing);
            }
            self.write(&mut writing, posted);
            self.note_counts(&writing);
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

    /// Copies the slate and writes counts, a while after there is something to, until the queue is
    /// closed.
    pub(super) fn keep_up(&self) {
        let mut pause = COPIES_APART;
        let mut queue = lock(&self.queue);
        while !queue.is_closed {
            let ahead = self.ahead.load(Ordering::Acquire);
            let patience = match (ahead, queue.has_counts) {
                (COPY_TOGETHER.., _) if pause == COPIES_APART => Duration::ZERO,
                (1.., _) => pause,
                (0, true) => COUNTS_APART,
                (0, false) => {
                    queue = self.chores.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            let waited = self.chores.wait_timeout(queue, patience);
            let (after, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = after;
            if !timed_out.timed_out() {
                continue;
            }
            queue.has_counts &= ahead > 0;
            drop(queue);
            let mut writing = lock(&self.writing);
            if ahead == 0 {
                self.rest(&mut writing);
            } else {
                let copied = self.copy(&mut writing);
                pause = if copied.is_ok() { COPIES_APART } else { COPY_PAUSE };
                if copied.is_ok() && self.wants_care(&writing) {
                    self.take_care(&mut writing);
                }
                self.note_counts(&writing);
            }
            drop(writing);
            queue = lock(&self.queue);
        }
    }

    /// Nobody writes any more. What cannot be copied stays on the slate, for whoever opens the store
    /// next.
    pub(super) fn end(&self) {
        if let Some(slate) = &mut *lock(&self.slate) {
            slate.shut();
        }
        let _ = self.tidy(&mut lock(&self.writing));
    }

    /// Nobody comes: counts are written, and the slate is wiped, so that whoever opens the store has
    /// nothing to read there.
    fn rest(&self, writing: &mut Writing) {
        // They are hints: what cannot be written is lost.
        let _ = writing.desk.transaction(Durable::Now, |desk| desk.write_counts_of(1));
        if lock(&self.slate).as_ref().is_some_and(|slate| !slate.is_blank()) {
            let _ = self.tidy(writing);
        }
    }

    /// All in one transaction. When that fails each is tried alone, so that one request that cannot
    /// be written does not stop the others.
    fn write(&self, writing: &mut Writing, mut posted: Vec<Box<dyn Request>>) {
        let began = Instant::now();
        let only_turns = posted.iter().all(|request| request.turn().is_some());
        if !only_turns {
            // Runs may change in ways that the slate does not see.
            self.forget();
        }
        let ahead = lock(&self.waiting).clone();
        let Writing { desk, probe, .. } = writing;
        let result = desk.transaction(Durable::Now, |desk| {
            copy_onto(desk, probe, &ahead)?;
            posted.iter_mut().try_for_each(|request| request.write(desk))
        });
        self.copied(&ahead, result.is_ok());
        // What else was written may be about the same runs.
        if let (Ok(()), true, Some(slate)) = (&result, only_turns, &mut *lock(&self.slate)) {
            posted.iter().filter_map(|one| one.written()).for_each(|turn| slate.know(turn));
        }
        if result.is_ok() {
            self.note_commit(began);
        }
        if result.is_ok() || posted.len() == 1 {
            let result = result.map_err(StoreError::from);
            posted.into_iter().for_each(|request| request.answer(result.clone()));
            return;
        }
        for request in posted {
            self.write(writing, vec![request]);
        }
    }

    /// Has the file say how far runs are.
    fn forget(&self) {
        if let Some(slate) = &mut *lock(&self.slate) {
            slate.forget();
        }
    }

    /// Notes what became of turns on the slate that were to be copied. One whose turns cannot be
    /// copied takes no more: there may be no end to it.
    fn copied(&self, ahead: &[Arc<Turn>], is_done: bool) {
        if is_done {
            let mut waiting = lock(&self.waiting);
            waiting.drain(..ahead.len());
            self.ahead.fetch_sub(ahead.len(), Ordering::Release);
        } else if let Some(slate) = &mut *lock(&self.slate) {
            // What failed may be there after all.
            slate.forget();
            if !ahead.is_empty() {
                slate.shut();
            }
        }
    }

    /// Has everything in the file, and nothing on the slate.
    pub(super) fn wipe(&self) -> Result<(), StoreError> {
        Ok(self.tidy(&mut lock(&self.writing))?)
    }

    /// Copies some of the slate into the file. Nobody waits for it to be durable there.
    fn copy(&self, writing: &mut Writing) -> Result<(), Fault> {
        let ahead: Vec<_> = lock(&self.waiting).iter().take(COPY_TOGETHER).cloned().collect();
        if ahead.is_empty() {
            return Ok(());
        }
        let copied = writing.copy(&ahead, Durable::Later);
        self.copied(&ahead, copied.is_ok());
        copied
    }

    /// Begins the slate anew, or throws it away when nothing more may be written on it.
    fn tidy(&self, writing: &mut Writing) -> Result<(), Fault> {
        // Then nothing was copied, and all that is in the file is durable.
        if lock(&self.slate).is_none() {
            return Ok(());
        }
        // Most of it while others write on it, and the rest while nobody does.
        while self.ahead.load(Ordering::Acquire) > COPY_TOGETHER {
            self.copy(writing)?;
        }
        self.sync()?;
        self.is_tidying.store(true, Ordering::Relaxed);
        let tidied = self.tidy_alone(writing, &mut lock(&self.slate));
        self.is_tidying.store(false, Ordering::Relaxed);
        tidied
    }

    fn tidy_alone(&self, writing: &mut Writing, held: &mut Option<Slate>) -> Result<(), Fault> {
        let rest = lock(&self.waiting).clone();
        writing.copy(&rest, Durable::Later)?;
        self.copied(&rest, true);
        self.sync()?;
        let (left, done) = held.take().map_or((None, Ok(())), Slate::tidied);
        if left.is_none() {
            writing.probe = None;
        }
        *held = left;
        done.map_err(|error| Fault::Unavailable(error.to_string()))
    }

    /// Makes all durable that was copied.
    fn sync(&self) -> Result<(), Fault> {
        sync_log(&self.path).map_err(|error| Fault::Unavailable(error.to_string()))
    }

    /// Whether the thread should take care of something before it writes.
    fn wants_care(&self, writing: &Writing) -> bool {
        let Ok(slate) = self.slate.try_lock() else { return false };
        match &*slate {
            Some(slate) => slate.is_full() || slate.is_shut(),
            None => self.commits() >= writing.slate_after && self.slate_path.get().is_some(),
        }
    }

    /// Makes the log long, and makes a slate or begins it anew. Without them everything is slower and
    /// nothing else.
    fn take_care(&self, writing: &mut Writing) {
        let path = &self.path;
        if !std::mem::replace(&mut writing.is_log_long, true) {
            let _ = lengthen_log(&writing.desk.connection, path);
        }
        let has_slate = match &mut *lock(&self.slate) {
            Some(slate) => {
                if writing.slate_pages < PAGES_MAX && slate.was_full_soon() {
                    // A larger one is made next: everybody waits while one is begun anew.
                    (writing.slate_pages, writing.slate_after) = (PAGES_MAX, 0);
                    slate.shut();
                }
                true
            }
            None => false,
        };
        if has_slate {
            let _ = self.tidy(writing);
            return;
        }
        writing.slate_after = self.commits() + SLATES_APART;
        let Some(place) = self.slate_path.get() else { return };
        let Ok(reader) = open_reader(path) else { return };
        match Slate::make(place.clone(), reader, path, writing.slate_pages) {
            Ok((slate, probe)) => {
                writing.probe = Some(probe);
                *lock(&self.slate) = Some(slate);
            }
            // There may be room for a smaller one.
            Err(_) => writing.slate_pages = PAGES_MIN,
        }
    }
}
