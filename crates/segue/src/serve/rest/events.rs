//! What happens in a run, as it happens: server-sent events.
//!
//! Events come out of the journal, so none is lost, and each has the number of its entry. A follower is
//! sent what it can take: nothing is kept for one that does not read, beyond what every follower of a
//! run shares. One that falls behind reads the journal again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_core::view::RunView;
use segue_runtime::engine::Stored;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};
use tokio::time::Instant;

use super::Rest;
use super::problem::Problem;
use super::visit::{Answer, Visit};
use crate::change::{Event, event};
use crate::serve::active::{Active, Standing};

/// The longest silence.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How long between two looks at a run that is not driven here.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Events that are made ready at once.
const PAGE: usize = 512;

/// How soon a client that lost us should come back, in milliseconds.
const RETRY: &str = "retry: 1000\n\n";

/// `GET /api/v1/runs/{id}/events`
pub(super) async fn follow(visit: Visit) -> Answer {
    let next = match visit.header("last-event-id").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(last)) => last.saturating_add(1),
        Some(Err(_)) => {
            let detail = "`Last-Event-ID` is the number of an event";
            return Err(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail));
        }
    };
    let follower = Follower::open(&visit.rest, &visit.who, visit.part("id"), next).await?;
    if follower.is_over && follower.ready.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let events = stream::unfold(follower, |mut follower| async {
        let bytes = follower.next().await?.message();
        Some((Ok::<_, Infallible>(bytes), follower))
    });
    let retry = stream::once(async { Ok(Bytes::from_static(RETRY.as_bytes())) });
    let mut response = Response::new(Body::from_stream(retry.chain(events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// What a follower is told.
pub(in crate::serve) enum News {
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

impl News {
    /// JSON has no line breaks outside of texts, where they are escaped, so a line holds it.
    fn message(&self) -> Bytes {
        match self {
            News::Event(event) => {
                let (id, name, data) = (event.seq, event.event, event.line());
                // Whoever comes back asks for what is behind an entry; this is none.
                if event.is_passing() {
                    return format!("event: {name}\ndata: {data}\n\n").into();
                }
                format!("id: {id}\nevent: {name}\ndata: {data}\n\n").into()
            }
            News::End { seq, view } => {
                let data = serde_json::to_string(view).unwrap_or_default();
                format!("id: {seq}\nevent: run\ndata: {data}\n\n").into()
            }
            News::Silence => ": still here\n\n".into(),
        }
    }
}

/// One who follows a run.
pub(in crate::serve) struct Follower {
    rest: Arc<Rest>,
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
    leaving: watch::Receiver<bool>,
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
    pub(in crate::serve) async fn open(
        rest: &Arc<Rest>,
        who: &Principal,
        run_id: &str,
        next: u64,
    ) -> Result<Follower, Problem> {
        let place = rest.followers.clone().try_acquire_owned();
        let place =
            place.map_err(|_| Problem::busy("too many follow runs (`served_streams_max`)"))?;
        let mut follower = Follower {
            rest: rest.clone(),
            who: who.clone(),
            run_id: run_id.into(),
            next,
            length: None,
            ready: VecDeque::new(),
            following: None,
            is_behind: false,
            is_over: false,
            heard: Instant::now(),
            leaving: rest.leaving.clone(),
            _place: place,
        };
        follower.read_journal().await?;
        Ok(follower)
    }

    /// What is said next; nothing when that was all.
    pub(in crate::serve) async fn next(&mut self) -> Option<News> {
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
            _ = self.leaving.wait_for(|leaving| *leaving) => Woken::Leave,
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
    async fn read_journal(&mut self) -> Result<(), Problem> {
        let hall = &self.rest.hall;
        // Before the journal is read, so that nothing falls between the two.
        if self.following.is_none() {
            self.following =
                hall.active(&self.who, &self.run_id).map(|active| Following::of(&active));
        }
        // A journal that did not grow says nothing new.
        let length = Some(hall.row(&self.who, &self.run_id).await?.length);
        if !self.is_behind && self.length.is_some() && self.length == length {
            return Ok(());
        }
        self.length = length;
        let page = Page::read(&self.rest, &self.who, &self.run_id, self.next).await?;
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
        rest: &Arc<Rest>,
        who: &Principal,
        run_id: &Arc<str>,
        next: u64,
    ) -> Result<Page, Problem> {
        let _turn = rest.readers.acquire().await;
        let (hall, run_id, handle) = (rest.hall.clone(), run_id.clone(), Handle::current());
        let who = who.clone();
        let read = move || {
            let stored = handle.block_on(hall.stored(&who, &run_id))?;
            Ok::<_, Problem>(Page::of(&stored, next))
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| {
            let detail = "the journal could not be read";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail))
        })
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
