//! What happens in a run, as it happens, for whoever follows it.
//!
//! Events come out of the journal, so none is lost, and each has the number of its entry. A follower is
//! told what it can take: nothing is kept for one that does not listen, beyond what every follower of a
//! run shares. One that falls behind reads the journal again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::view::RunView;
use segue_runtime::engine::{EngineError, Stored};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::Instant;

use super::active::{Active, Standing};
use super::hall::Hall;
use crate::change::{Event, event};

/// The longest silence.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How long between two looks at a run that is not driven here.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Events that are made ready at once.
const PAGE: usize = 512;

/// Journals that are read for followers at once.
const READERS: usize = 2;

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
}

impl Followers {
    /// Nobody yet, and so many as the limits allow.
    pub fn new(hall: Arc<Hall>, leaving: watch::Receiver<bool>) -> Arc<Followers> {
        let places_max = hall.limits().served_streams_max;
        let (places, readers) = (Arc::new(Semaphore::new(places_max)), Semaphore::new(READERS));
        Arc::new(Followers { hall, leaving, places, places_max, readers })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places_max - self.places.available_permits()
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
    Event(Arc<Event>),
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
    /// Entries in the journal when it was read last.
    length: Option<u64>,
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
    _place: OwnedSemaphorePermit,
}

struct Following {
    events: broadcast::Receiver<Arc<Event>>,
    standing: watch::Receiver<Standing>,
}

/// Why a follower looks up.
enum Woken {
    /// Something happened.
    Event(Arc<Event>),
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
        let mut follower = Follower {
            followers: followers.clone(),
            who: who.clone(),
            run_id: run_id.into(),
            next,
            length: None,
            ready: VecDeque::new(),
            following: None,
            is_behind: false,
            is_over: false,
            heard: Instant::now(),
            _place: place,
        };
        follower.read_journal().await?;
        Ok(follower)
    }

    /// Whether everything was said already.
    pub fn is_silent_for_good(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    /// What is said next; nothing when that was all.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                self.heard = Instant::now();
                return Some(news);
            }
            if self.is_behind {
                self.read_journal().await.ok()?;
                continue;
            }
            if self.is_over {
                return None;
            }
            match self.wait().await {
                Woken::Event(event) => self.tell(event),
                // A journal that cannot be read now is left; who comes back goes on from there.
                Woken::Look => self.read_journal().await.ok()?,
                Woken::Left => {
                    self.following = None;
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

    fn tell(&mut self, event: Arc<Event>) {
        if event.is_passing() {
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
        let length = Some(row.map_err(EngineError::Store)?.length);
        if !self.is_behind && self.length.is_some() && self.length == length {
            return Ok(());
        }
        self.length = length;
        let page = Page::read(&self.followers, &self.who, &self.run_id, self.next).await?;
        self.ready.extend(page.news);
        self.next = page.next;
        self.is_behind = page.has_more;
        self.is_over = page.is_over;
        Ok(())
    }
}

/// What a journal says next.
struct Page {
    news: Vec<News>,
    /// The first entry behind it.
    next: u64,
    has_more: bool,
    is_over: bool,
}

impl Page {
    /// Reads a journal from an entry on. That is work which nobody else should wait behind, so it is done
    /// on a thread of its own, and not for many at once.
    async fn read(
        followers: &Followers,
        who: &Principal,
        run_id: &Arc<str>,
        next: u64,
    ) -> Result<Page, Unfollowed> {
        let _turn = followers.readers.acquire().await;
        let (hall, run_id, handle) = (followers.hall.clone(), run_id.clone(), Handle::current());
        let who = who.clone();
        let read = move || {
            let stored = handle.block_on(hall.stored(&who, &run_id))?;
            Ok::<_, Unfollowed>(Page::of(&stored, next))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(Unfollowed::Lost))
    }

    fn of(stored: &Stored, next: u64) -> Page {
        let unread = stored.journal.iter().filter(|entry| entry.seq >= next);
        let mut events = unread.filter_map(|entry| event(&stored.run, entry));
        let told: Vec<Event> = events.by_ref().take(PAGE).collect();
        let (has_more, end) = (events.next().is_some(), stored.journal.len() as u64);
        let is_over = stored.run.is_finished() && !has_more;
        let mut next = match told.last() {
            Some(last) => next.max(last.seq + 1),
            None => next,
        };
        let mut news: Vec<News> =
            told.into_iter().map(|event| News::Event(Arc::new(event))).collect();
        if is_over && next <= end {
            next = end + 1;
            news.push(News::End { seq: end, view: Box::new(stored.view()) });
        }
        Page { news, next, has_more, is_over }
    }
}

impl Following {
    fn of(active: &Active) -> Following {
        Following { events: active.follow(), standing: active.watch() }
    }
}
