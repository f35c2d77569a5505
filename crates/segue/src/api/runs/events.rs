//! The events of a run, as they happen, for clients that follow it.
//!
//! Events come out of the journal, so none is lost, and each has the number of its entry. A slow client
//! costs no memory of its own: all readers of a run share one buffer, and a reader that falls behind reads
//! the journal again, together with others that do.
//!
//! A run may write more events in a second than the server can send to a hundred clients one by one. So a
//! reader pauses after it has sent something, the longer the more readers there are, each for another
//! time, and then sends the rest at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use segue_core::access::Principal;
use segue_core::view::RunView;
use segue_runtime::engine::LoadedRun;
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::Instant;

use crate::api::error::Error;
use crate::api::runs::RunService;
use crate::api::runs::feed::RunFeed;
use crate::api::runs::handle::{RunHandle, RunProgress};
use crate::step_events::{StepEvent, step_event};

/// How long a stream may be silent before it sends a keep-alive.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// How often a run is looked at that this process does not drive.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// How many times as long as reading its journal took a reader waits at least before it reads the
/// journal of such a run again.
const POLL_PAUSE: u32 = 4;

/// The pause of a reader for each reader that there is: several times as long as it takes to serve one.
const PAUSE_EACH: Duration = Duration::from_micros(100);

/// How many different pauses there are, so that readers do not wake together.
const PAUSES: u32 = 16;

/// How many events a page has.
const PAGE: usize = 128;

/// How many pages of a journal are cached for other readers.
const PAGES_CACHED: usize = 64;

/// How many journals are read at once: the readers that wait mostly want the same one.
const JOURNAL_READS_MAX: usize = 1;

/// All readers of events.
pub struct EventReaders {
    service: Arc<RunService>,
    /// Becomes true when the server ends.
    leaving: watch::Receiver<bool>,
    /// A permit for each reader that may still come.
    permits: Arc<Semaphore>,
    readers_max: usize,
    /// A permit for each journal that may still be read.
    journal_reads: Semaphore,
    /// The journal that was read last, for other readers of the same run.
    last: Mutex<Option<Arc<CachedJournal>>>,
    /// Counts readers.
    opened: AtomicU32,
    /// The changes of all runs.
    feed: Arc<RunFeed>,
}

impl EventReaders {
    /// No readers yet, and as many as the limits allow.
    pub fn new(service: Arc<RunService>, leaving: watch::Receiver<bool>) -> Arc<EventReaders> {
        let readers_max = service.limits().served_streams_max;
        Arc::new(EventReaders {
            feed: RunFeed::new(service.clone()),
            service,
            leaving,
            permits: Arc::new(Semaphore::new(readers_max)),
            readers_max,
            journal_reads: Semaphore::new(JOURNAL_READS_MAX),
            last: Mutex::default(),
            opened: AtomicU32::new(0),
        })
    }

    /// How many readers there are.
    pub fn count(&self) -> usize {
        self.readers_max - self.permits.available_permits()
    }

    /// The service whose runs are followed.
    pub(super) fn service(&self) -> &Arc<RunService> {
        &self.service
    }

    /// The changes of all runs.
    pub(super) fn feed(&self) -> &Arc<RunFeed> {
        &self.feed
    }

    /// Becomes true when the server ends.
    pub(super) fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.clone()
    }

    /// A permit for a client.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let permit = self.permits.clone().try_acquire_owned();
        permit.map_err(|_| Error::busy("too many clients follow runs (`served_streams_max`)"))
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<CachedJournal>>> {
        self.last.lock()
    }

    /// The journal that was read last, if it is of this run and has something from this entry on.
    fn cached(&self, run_id: &Arc<str>, next: u64) -> Option<Arc<CachedJournal>> {
        let last = self.last().clone();
        last.filter(|last| last.stored.row.run_id == *run_id && last.has_more(next))
    }

    /// How long a reader pauses.
    fn pause(&self, nth: u32) -> Duration {
        let count = u32::try_from(self.count()).unwrap_or(u32::MAX);
        let pause = PAUSE_EACH.saturating_mul(count);
        pause + pause / PAUSES * (nth % PAUSES)
    }
}

/// What a reader sends.
pub enum StreamItem {
    /// An event.
    Event(Arc<StepEvent>),
    /// The run has ended: this is all of it.
    End {
        /// The number behind the last entry.
        seq: u64,
        /// The run.
        view: Box<RunView>,
    },
    /// Nothing happened for a while.
    KeepAlive,
}

/// A client that follows a run.
pub struct EventReader {
    readers: Arc<EventReaders>,
    /// Its principal.
    who: Principal,
    run_id: Arc<str>,
    /// The first entry that was not sent.
    next: u64,
    /// The length of the journal when it was read last.
    length: Option<u64>,
    /// The first entry that the live feed has, and the journal need not be read for; nothing when the
    /// feed has lost events.
    live_from: Option<u64>,
    /// Items to send.
    ready: VecDeque<StreamItem>,
    /// The live feed, if this process drives the run.
    feed: Option<LiveFeed>,
    /// Whether the journal has more than the items to send.
    is_behind: bool,
    /// Whether nothing comes after the items to send.
    is_over: bool,
    /// When something was sent last.
    sent_at: Instant,
    /// Its number among all readers.
    nth: u32,
    /// Until when it pauses.
    paused_until: Instant,
    /// How long it took to read the journal last.
    read_time: Duration,
    /// The client's permit, unless a stream of several runs holds it.
    _permit: Option<OwnedSemaphorePermit>,
}

struct LiveFeed {
    events: broadcast::Receiver<Arc<StepEvent>>,
    progress: watch::Receiver<RunProgress>,
}

/// Why a reader stops waiting.
enum WakeReason {
    /// An event of the live feed.
    Event(Arc<StepEvent>),
    /// The journal may have more.
    Poll,
    /// This process no longer drives the run.
    Detached,
    /// Nothing happened for a while.
    KeepAlive,
    /// The server ends.
    Leaving,
}

impl EventReader {
    /// Follows a run from an entry on.
    pub async fn open(
        readers: &Arc<EventReaders>,
        who: &Principal,
        run_id: &str,
        next: u64,
    ) -> Result<EventReader, Error> {
        let permit = Some(readers.permit()?);
        EventReader::open_with(readers, who, run_id, next, permit).await
    }

    /// The same as a part of a stream that has the permit.
    pub(super) async fn open_part(
        readers: &Arc<EventReaders>,
        who: &Principal,
        run_id: &str,
        next: u64,
    ) -> Result<EventReader, Error> {
        EventReader::open_with(readers, who, run_id, next, None).await
    }

    async fn open_with(
        readers: &Arc<EventReaders>,
        who: &Principal,
        run_id: &str,
        next: u64,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<EventReader, Error> {
        let nth = readers.opened.fetch_add(1, Ordering::Relaxed);
        let mut reader = EventReader {
            readers: readers.clone(),
            who: who.clone(),
            run_id: run_id.into(),
            next,
            length: None,
            live_from: None,
            ready: VecDeque::new(),
            feed: None,
            is_behind: false,
            is_over: false,
            sent_at: Instant::now(),
            nth,
            paused_until: Instant::now(),
            read_time: Duration::ZERO,
            _permit: permit,
        };
        reader.read_journal().await?;
        Ok(reader)
    }

    /// Whether everything was sent already.
    pub fn is_finished(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    /// The next item; nothing at the end.
    pub async fn next(&mut self) -> Option<StreamItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.sent_at = Instant::now();
                return Some(item);
            }
            if self.is_behind {
                tokio::time::sleep_until(self.paused_until).await;
                self.read_journal().await.ok()?;
                continue;
            }
            if self.is_over {
                return None;
            }
            match self.wait().await {
                WakeReason::Event(event) => self.queue_all(event),
                // The stream ends when the journal cannot be read; the client resumes from its last event.
                WakeReason::Poll => {
                    self.live_from = None;
                    self.read_journal().await.ok()?;
                }
                WakeReason::Detached => {
                    (self.feed, self.live_from) = (None, None);
                    self.read_journal().await.ok()?;
                }
                WakeReason::KeepAlive => self.ready.push_back(StreamItem::KeepAlive),
                WakeReason::Leaving => return None,
            }
        }
    }

    async fn wait(&mut self) -> WakeReason {
        let mut leaving = self.readers.leaving.clone();
        let happened = async {
            let Some(feed) = &mut self.feed else {
                tokio::time::sleep(POLL_EVERY.max(self.read_time * POLL_PAUSE)).await;
                return WakeReason::Poll;
            };
            tokio::time::sleep_until(self.paused_until).await;
            tokio::select! {
                biased;
                event = feed.events.recv() => match event {
                    Ok(event) => WakeReason::Event(event),
                    // It fell behind, or the run has ended.
                    Err(_) => WakeReason::Poll,
                },
                _ = feed.progress.wait_for(|progress| progress.outcome.is_some()) => {
                    WakeReason::Detached
                }
            }
        };
        tokio::select! {
            reason = happened => reason,
            () = tokio::time::sleep_until(self.sent_at + KEEP_ALIVE_EVERY) => WakeReason::KeepAlive,
            _ = leaving.wait_for(|leaving| *leaving) => WakeReason::Leaving,
        }
    }

    /// Queues an event, and those that came after it.
    fn queue_all(&mut self, event: Arc<StepEvent>) {
        self.queue(event);
        while let Some(feed) = &mut self.feed {
            match feed.events.try_recv() {
                Ok(event) => self.queue(event),
                Err(error) => {
                    // The lost events are in the journal.
                    if let TryRecvError::Lagged(_) = error {
                        (self.is_behind, self.live_from) = (true, None);
                    }
                    break;
                }
            }
        }
        self.paused_until = Instant::now() + self.readers.pause(self.nth);
    }

    fn queue(&mut self, event: Arc<StepEvent>) {
        if event.is_transient() {
            self.ready.push_back(StreamItem::Event(event));
        } else if event.seq >= self.next {
            self.next = event.seq + 1;
            self.ready.push_back(StreamItem::Event(event));
        }
    }

    /// Queues the next page of the journal.
    async fn read_journal(&mut self) -> Result<(), Error> {
        let service = &self.readers.service;
        // Before the journal is read, so that no event is lost between the two.
        if self.feed.is_none() {
            self.feed = service.handle(&self.who, &self.run_id).map(|handle| LiveFeed::of(&handle));
        }
        // A journal that did not grow has nothing new.
        let row = service.row(&self.who, &self.run_id).await;
        let length = row?.length;
        if !self.is_behind && self.length == Some(length) {
            return Ok(());
        }
        self.length = Some(length);
        let live_from = match self.feed {
            Some(_) => *self.live_from.get_or_insert(length),
            None => length,
        };
        let began = Instant::now();
        let page = JournalPage::read(&self.readers, &self.who, &self.run_id, self.next).await?;
        self.read_time = began.elapsed();
        self.ready.extend(page.events.iter().cloned().map(StreamItem::Event));
        self.ready.extend(page.end);
        self.next = page.next;
        self.is_behind = page.has_more || page.length < live_from;
        self.is_over = page.is_over;
        self.paused_until = Instant::now() + self.readers.pause(self.nth);
        Ok(())
    }
}

impl Drop for EventReader {
    // Work in `Drop`, because a reader is gone when its connection is.
    fn drop(&mut self) {
        if self.readers.count() == 1 {
            self.readers.last().take();
        }
    }
}

/// A journal that was read, with its pages.
struct CachedJournal {
    stored: LoadedRun,
    /// Events from an entry on, and whether there are more behind them.
    pages: Mutex<HashMap<u64, Events>>,
}

/// Some events, and whether there are more behind them.
type Events = (Arc<[Arc<StepEvent>]>, bool);

impl CachedJournal {
    fn length(&self) -> u64 {
        self.stored.journal.len() as u64
    }

    /// Whether there is something to send from an entry on; the end of the run counts.
    fn has_more(&self, next: u64) -> bool {
        self.length() > next || (self.length() == next && self.stored.run.is_finished())
    }

    /// The page from an entry on, made once for all readers.
    fn events(&self, next: u64) -> Events {
        let mut pages = self.pages.lock();
        if pages.len() >= PAGES_CACHED {
            pages.clear();
        }
        pages.entry(next).or_insert_with(|| self.page(next)).clone()
    }

    fn page(&self, next: u64) -> Events {
        let unread = self.stored.journal.iter().filter(|entry| entry.seq >= next);
        let mut events = unread.filter_map(|entry| step_event(&self.stored.run, entry));
        let some = events.by_ref().take(PAGE).map(|event| {
            // Serialised here, and not on the thread that serves connections.
            event.json_line();
            Arc::new(event)
        });
        (some.collect(), events.next().is_some())
    }
}

/// The next page of a journal.
struct JournalPage {
    events: Arc<[Arc<StepEvent>]>,
    /// The whole run, if it has ended.
    end: Option<StreamItem>,
    /// The first entry after the page.
    next: u64,
    /// The length of the journal.
    length: u64,
    has_more: bool,
    is_over: bool,
}

impl JournalPage {
    /// Reads a journal from an entry on. That takes time, so a blocking thread does it, for one journal at
    /// once, and once for all readers of the run.
    async fn read(
        readers: &Arc<EventReaders>,
        who: &Principal,
        run_id: &Arc<str>,
        next: u64,
    ) -> Result<JournalPage, Error> {
        let _permit = readers.journal_reads.acquire().await;
        let (readers, run_id, who) = (readers.clone(), run_id.clone(), who.clone());
        let handle = Handle::current();
        let read = move || {
            if let Some(cached) = readers.cached(&run_id, next) {
                return Ok(JournalPage::of(&cached, next));
            }
            let stored = handle.block_on(readers.service.stored(&who, &run_id))?;
            let journal = Arc::new(CachedJournal { stored, pages: Mutex::default() });
            *readers.last() = Some(journal.clone());
            Ok::<_, Error>(JournalPage::of(&journal, next))
        };
        tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|_| Err(Error::internal("the journal could not be read")))
    }

    fn of(journal: &CachedJournal, next: u64) -> JournalPage {
        let ((events, has_more), length) = (journal.events(next), journal.length());
        let is_over = journal.stored.run.is_finished() && !has_more;
        let mut next = match events.last() {
            Some(last) if has_more => next.max(last.seq + 1),
            _ => next.max(length),
        };
        let mut end = None;
        if is_over && next <= length {
            next = length + 1;
            end = Some(StreamItem::End { seq: length, view: Box::new(journal.stored.view()) });
        }
        JournalPage { events, end, next, length, has_more, is_over }
    }
}

impl LiveFeed {
    fn of(handle: &RunHandle) -> LiveFeed {
        LiveFeed { events: handle.follow(), progress: handle.watch() }
    }
}
