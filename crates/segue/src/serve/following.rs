//! What happens in a run, as it happens, for whoever follows it.
//!
//! Events come out of the journal, so none is lost, and each has the number of its entry. A follower is
//! told what it can take: nothing is kept for one that does not listen, beyond what every follower of a
//! run shares. One that falls behind reads the journal again, together with others who do.
//!
//! A run may say more in a second than a hundred followers could be told one by one while others wait.
//! So who was told something rests, the longer the more there are, each for a time of its own, and hears
//! the rest at once.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::view::RunView;
use segue_runtime::engine::{EngineError, LoadedRun};
use tokio::runtime::Handle;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::Instant;

use super::active::{Active, Standing};
use super::hall::Hall;
use crate::step_events::{StepEvent, step_event};

/// The longest silence.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How long between two looks at a run that is not driven here.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long a follower that was told something rests at least, for each that there is: several times
/// as long as it takes to tell one.
const REST_EACH: Duration = Duration::from_micros(100);

/// Followers rest for different times, so that they do not wake together: so many different ones.
const RESTS: u32 = 16;

/// Events that are made ready at once.
const PAGE: usize = 128;

/// Pages of a journal that are kept for others who are as far behind.
const PAGES_KEPT: usize = 64;

/// Journals that are read for followers at once: whoever waits meanwhile mostly wants the same one.
const READERS: usize = 1;

/// All who follow runs.
pub struct Followers {
    hall: Arc<Hall>,
    /// Becomes true when nobody is told of runs any more.
    leaving: watch::Receiver<bool>,
    /// How many more there may be.
    places: Arc<Semaphore>,
    places_max: usize,
    /// How many more journals may be read for them.
    readers: Semaphore,
    /// The journal that was read last, for others who are behind in it.
    last: Mutex<Option<Arc<Reading>>>,
    /// Counts those who came.
    came: AtomicU32,
}

impl Followers {
    /// Nobody yet, and so many as the limits allow.
    pub fn new(hall: Arc<Hall>, leaving: watch::Receiver<bool>) -> Arc<Followers> {
        let places_max = hall.limits().served_streams_max;
        let (places, readers) = (Arc::new(Semaphore::new(places_max)), Semaphore::new(READERS));
        let (last, came) = (Mutex::default(), AtomicU32::new(0));
        Arc::new(Followers { hall, leaving, places, places_max, readers, last, came })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places_max - self.places.available_permits()
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Reading>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The journal that was read last, if it is of this run and says something from this entry on.
    fn known(&self, run_id: &Arc<str>, next: u64) -> Option<Arc<Reading>> {
        let last = self.last().clone();
        last.filter(|last| last.stored.row.run_id == *run_id && last.says_more(next))
    }

    /// How long one of them rests.
    fn rest(&self, nth: u32) -> Duration {
        let count = u32::try_from(self.count()).unwrap_or(u32::MAX);
        let rest = REST_EACH.saturating_mul(count);
        rest + rest / RESTS * (nth % RESTS)
    }
}

/// Why somebody cannot follow a run.
#[derive(Debug)]
pub enum Unfollowed {
    /// Too many do.
    Full,
    /// The run cannot be had.
    Engine(EngineError),
    /// Our own code panicked.
    Lost,
}

impl From<EngineError> for Unfollowed {
    fn from(error: EngineError) -> Unfollowed {
        Unfollowed::Engine(error)
    }
}

/// What a follower is told.
pub enum News {
    /// Something happened.
    Event(Arc<StepEvent>),
    /// The run is over: this is all of it.
    End {
        /// The number behind the last entry.
        seq: u64,
        /// The run.
        view: Box<RunView>,
    },
    /// Nothing happened for long.
    Silence,
}

/// One who follows a run.
pub struct Follower {
    followers: Arc<Followers>,
    /// Who it is.
    who: Principal,
    run_id: Arc<str>,
    /// The first entry that was not told.
    next: u64,
    /// Entries in the journal when it was looked at last.
    length: Option<u64>,
    /// From which entry on it hears what happens, and so need not read it; nothing when it has missed
    /// something.
    hears_from: Option<u64>,
    /// What can be sent.
    ready: VecDeque<News>,
    /// The run as it is driven here, and what happens in it.
    following: Option<Following>,
    /// Whether the journal says more than what was made ready of it.
    is_behind: bool,
    /// Whether nothing will come but what is ready.
    is_over: bool,
    /// When something was said last.
    heard: Instant,
    /// Which of all that ever came.
    nth: u32,
    /// Until when it rests.
    rests_until: Instant,
    _place: OwnedSemaphorePermit,
}

struct Following {
    events: broadcast::Receiver<Arc<StepEvent>>,
    standing: watch::Receiver<Standing>,
}

/// Why a follower looks up.
enum Woken {
    /// Something happened.
    Event(Arc<StepEvent>),
    /// The journal may say more.
    Look,
    /// Nobody drives the run here any more.
    Left,
    /// Nothing happened for long.
    Silence,
    /// Nobody is told anything any more.
    Leave,
}

impl Follower {
    /// Somebody who follows a run from an entry on.
    pub async fn open(
        followers: &Arc<Followers>,
        who: &Principal,
        run_id: &str,
        next: u64,
    ) -> Result<Follower, Unfollowed> {
        let place = followers.places.clone().try_acquire_owned();
        let place = place.map_err(|_| Unfollowed::Full)?;
        let nth = followers.came.fetch_add(1, Ordering::Relaxed);
        let mut follower = Follower {
            followers: followers.clone(),
            who: who.clone(),
            run_id: run_id.into(),
            next,
            length: None,
            hears_from: None,
            ready: VecDeque::new(),
            following: None,
            is_behind: false,
            is_over: false,
            heard: Instant::now(),
            nth,
            rests_until: Instant::now(),
            _place: place,
        };
        follower.read_journal().await?;
        Ok(follower)
    }

    /// Whether everything was said already.
    pub fn is_silent_for_good(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    /// What can be said without waiting.
    pub fn more(&mut self) -> Option<News> {
        self.ready.pop_front()
    }

    /// What is said next; nothing when that was all.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                self.heard = Instant::now();
                return Some(news);
            }
            if self.is_behind {
                tokio::time::sleep_until(self.rests_until).await;
                self.read_journal().await.ok()?;
                continue;
            }
            if self.is_over {
                return None;
            }
            match self.wait().await {
                Woken::Event(event) => self.tell_all(event),
                // A journal that cannot be read now is left; who comes back goes on from there.
                Woken::Look => {
                    self.hears_from = None;
                    self.read_journal().await.ok()?;
                }
                Woken::Left => {
                    (self.following, self.hears_from) = (None, None);
                    self.read_journal().await.ok()?;
                }
                Woken::Silence => self.ready.push_back(News::Silence),
                Woken::Leave => return None,
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let mut leaving = self.followers.leaving.clone();
        let happened = async {
            let Some(following) = &mut self.following else {
                tokio::time::sleep(LOOK_AGAIN).await;
                return Woken::Look;
            };
            tokio::time::sleep_until(self.rests_until).await;
            tokio::select! {
                biased;
                event = following.events.recv() => match event {
                    Ok(event) => Woken::Event(event),
                    // It fell behind, or the run is gone from here.
                    Err(_) => Woken::Look,
                },
                _ = following.standing.wait_for(|standing| standing.outcome.is_some()) => {
                    Woken::Left
                }
            }
        };
        tokio::select! {
            woken = happened => woken,
            () = tokio::time::sleep_until(self.heard + SILENCE_MAX) => Woken::Silence,
            _ = leaving.wait_for(|leaving| *leaving) => Woken::Leave,
        }
    }

    /// Makes ready what happened, and what has happened since.
    fn tell_all(&mut self, event: Arc<StepEvent>) {
        self.tell(event);
        while let Some(following) = &mut self.following {
            match following.events.try_recv() {
                Ok(event) => self.tell(event),
                Err(error) => {
                    // What it missed is in the journal.
                    if let TryRecvError::Lagged(_) = error {
                        (self.is_behind, self.hears_from) = (true, None);
                    }
                    break;
                }
            }
        }
        self.rests_until = Instant::now() + self.followers.rest(self.nth);
    }

    fn tell(&mut self, event: Arc<StepEvent>) {
        if event.is_transient() {
            self.ready.push_back(News::Event(event));
        } else if event.seq >= self.next {
            self.next = event.seq + 1;
            self.ready.push_back(News::Event(event));
        }
    }

    /// Makes ready what the journal says beyond what was told, so much of it as is sent soon.
    async fn read_journal(&mut self) -> Result<(), Unfollowed> {
        let hall = &self.followers.hall;
        // Before the journal is read, so that nothing falls between the two.
        if self.following.is_none() {
            self.following =
                hall.active(&self.who, &self.run_id).map(|active| Following::of(&active));
        }
        // A journal that did not grow says nothing new.
        let row = hall.row(&self.who, &self.run_id).await;
        let length = row.map_err(EngineError::Store)?.length;
        if !self.is_behind && self.length == Some(length) {
            return Ok(());
        }
        self.length = Some(length);
        let hears_from = match self.following {
            Some(_) => *self.hears_from.get_or_insert(length),
            None => length,
        };
        let page = Page::read(&self.followers, &self.who, &self.run_id, self.next).await?;
        self.ready.extend(page.events.iter().cloned().map(News::Event));
        self.ready.extend(page.end);
        self.next = page.next;
        self.is_behind = page.has_more || page.length < hears_from;
        self.is_over = page.is_over;
        self.rests_until = Instant::now() + self.followers.rest(self.nth);
        Ok(())
    }
}

impl Drop for Follower {
    // Work in `Drop`, because a follower is gone when its connection is.
    fn drop(&mut self) {
        if self.followers.count() == 1 {
            self.followers.last().take();
        }
    }
}

/// A journal that was read, and what was made of it already.
struct Reading {
    stored: LoadedRun,
    /// Events from an entry on, and whether there are more behind them.
    pages: Mutex<HashMap<u64, Events>>,
}

/// Some events, and whether there are more behind them.
type Events = (Arc<[Arc<StepEvent>]>, bool);

impl Reading {
    fn length(&self) -> u64 {
        self.stored.journal.len() as u64
    }

    /// Whether there is something to tell from an entry on; how a run ended is, too.
    fn says_more(&self, next: u64) -> bool {
        self.length() > next || (self.length() == next && self.stored.run.is_finished())
    }

    /// Events from an entry on, made once for all who are as far.
    fn events(&self, next: u64) -> Events {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= PAGES_KEPT {
            pages.clear();
        }
        pages.entry(next).or_insert_with(|| self.made(next)).clone()
    }

    fn made(&self, next: u64) -> Events {
        let unread = self.stored.journal.iter().filter(|entry| entry.seq >= next);
        let mut events = unread.filter_map(|entry| step_event(&self.stored.run, entry));
        let some = events.by_ref().take(PAGE).map(|event| {
            // Written here, and not where somebody waits for it.
            event.json_line();
            Arc::new(event)
        });
        (some.collect(), events.next().is_some())
    }
}

/// What a journal says next.
struct Page {
    events: Arc<[Arc<StepEvent>]>,
    /// The whole run, where it is over.
    end: Option<News>,
    /// The first entry behind it.
    next: u64,
    /// Entries of the journal that it was made of.
    length: u64,
    has_more: bool,
    is_over: bool,
}

impl Page {
    /// Reads a journal from an entry on. That is work which nobody else should wait behind, so it is done
    /// on a thread of its own, not for many at once, and once for all who need it.
    async fn read(
        followers: &Arc<Followers>,
        who: &Principal,
        run_id: &Arc<str>,
        next: u64,
    ) -> Result<Page, Unfollowed> {
        let _turn = followers.readers.acquire().await;
        let (followers, run_id, who) = (followers.clone(), run_id.clone(), who.clone());
        let handle = Handle::current();
        let read = move || {
            if let Some(known) = followers.known(&run_id, next) {
                return Ok(Page::of(&known, next));
            }
            let stored = handle.block_on(followers.hall.stored(&who, &run_id))?;
            let reading = Arc::new(Reading { stored, pages: Mutex::default() });
            *followers.last() = Some(reading.clone());
            Ok::<_, Unfollowed>(Page::of(&reading, next))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(Unfollowed::Lost))
    }

    fn of(reading: &Reading, next: u64) -> Page {
        let ((events, has_more), length) = (reading.events(next), reading.length());
        let is_over = reading.stored.run.is_finished() && !has_more;
        let mut next = match events.last() {
            Some(last) if has_more => next.max(last.seq + 1),
            _ => next.max(length),
        };
        let mut end = None;
        if is_over && next <= length {
            next = length + 1;
            end = Some(News::End { seq: length, view: Box::new(reading.stored.view()) });
        }
        Page { events, end, next, length, has_more, is_over }
    }
}

impl Following {
    fn of(active: &Active) -> Following {
        Following { events: active.follow(), standing: active.watch() }
    }
}
