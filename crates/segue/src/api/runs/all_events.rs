//! One stream of everything that a page follows: changed runs, the number of open questions, changes of
//! the served compositions and tools, and the steps of some runs.
//!
//! A cursor says which events a client has received: a place among the changes of all runs, and the next
//! entry of each run whose steps it follows. A client that comes back with it misses nothing.

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, SelectAll, Stream, StreamExt as _};
use segue_core::access::Principal;
use segue_core::view::RunStatus;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast};

use super::events::{EventReader, EventReaders, StreamItem};
use super::feed::{ChangedRun, FeedSubscription, OpenQuestions, visible_questions};
use crate::api::error::Error;
use crate::step_events::StepEvent;

/// How many runs a client follows in one stream.
pub const FOLLOWED_MAX: usize = 16;

/// How many characters at the end of its id name a run in a cursor.
const TAIL: usize = 12;

/// Which events a client has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The place among the changes of all runs.
    at: u64,
    /// The end of the id of each run that it follows, and the next entry.
    next: Vec<(Arc<str>, u64)>,
}

impl Cursor {
    /// Reads a cursor; nothing if it is none.
    pub fn parse(text: &str) -> Option<Cursor> {
        let mut parts = text.split('~');
        let at = parts.next()?.parse().ok()?;
        let next = parts.map(|part| {
            let (run, next) = part.rsplit_once(':')?;
            Some((Arc::from(run), next.parse().ok()?))
        });
        Some(Cursor { at, next: next.collect::<Option<_>>()? })
    }

    fn next_of(&self, run_id: &str) -> Option<u64> {
        self.next.iter().find(|(run, _)| **run == *tail(run_id)).map(|(_, next)| *next)
    }
}

impl Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        self.next.iter().try_for_each(|(run, next)| write!(f, "~{run}:{next}"))
    }
}

/// The end of an id, as a cursor names it: nothing that separates its parts.
fn tail(run_id: &str) -> String {
    let safe = run_id.chars().rev().filter(char::is_ascii_alphanumeric).take(TAIL);
    safe.collect::<Vec<_>>().into_iter().rev().collect()
}

/// A run whose steps a client follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowRequest {
    /// The run.
    pub run_id: Arc<str>,
    /// The first entry that it wants.
    pub next: u64,
}

impl FollowRequest {
    /// Reads `ID`, or `ID@SEQ` for the entries from `SEQ` on.
    pub fn parse(text: &str) -> Option<FollowRequest> {
        match text.split_once('@') {
            None => Some(FollowRequest { run_id: text.into(), next: 0 }),
            Some((run_id, next)) => {
                Some(FollowRequest { run_id: run_id.into(), next: next.parse().ok()? })
            }
        }
    }
}

/// An event of the stream.
pub enum ServiceEvent {
    /// The client receives everything from here on. `is_gap`: it may have missed something before, and should read
    /// the lists again.
    Ready {
        /// Whether it may have missed something.
        is_gap: bool,
    },
    /// A run changed.
    Run(Arc<ChangedRun>),
    /// So many questions wait.
    Questions(usize),
    /// A step of a run changed.
    Step {
        /// The run.
        run_id: Arc<str>,
        /// The change.
        event: Arc<StepEvent>,
    },
    /// A run that is followed has ended.
    Ended {
        /// The run.
        run_id: Arc<str>,
        /// Its status.
        status: RunStatus,
    },
    /// The served compositions or tools changed.
    Catalog,
}

/// What the sources of a stream bring.
enum Incoming {
    Run(Arc<ChangedRun>),
    Behind,
    Questions(Arc<OpenQuestions>),
    Step(usize, StreamItem),
    /// The journal of a run that is followed cannot be read any more, unless the run has ended.
    Unreadable(usize),
    Catalog,
}

struct FollowedRun {
    run_id: Arc<str>,
    is_over: bool,
}

/// The stream of one client.
pub struct AllEvents {
    readers: Arc<EventReaders>,
    who: Principal,
    sources: SelectAll<BoxStream<'static, Incoming>>,
    /// What to tell next, each with the cursor after it.
    ready: VecDeque<(ServiceEvent, Cursor)>,
    cursor: Cursor,
    runs: Vec<FollowedRun>,
    questions: Option<usize>,
    _permit: OwnedSemaphorePermit,
}

impl AllEvents {
    /// Begins to listen, from a cursor on if there is one.
    pub async fn open(
        readers: &Arc<EventReaders>,
        who: &Principal,
        followed: Vec<FollowRequest>,
        after: Option<Cursor>,
    ) -> Result<AllEvents, Error> {
        if followed.len() > FOLLOWED_MAX {
            let message = format!("a stream follows at most {FOLLOWED_MAX} runs");
            return Err(Error::invalid(message));
        }
        let permit = readers.permit()?;
        let FeedSubscription { runs, questions, since } = readers.feed().subscribe().await?;
        let mut all = AllEvents {
            readers: readers.clone(),
            who: who.clone(),
            sources: SelectAll::new(),
            ready: VecDeque::new(),
            cursor: Cursor { at: after.as_ref().map_or(since, |after| after.at), next: Vec::new() },
            runs: Vec::new(),
            questions: None,
            _permit: permit,
        };
        for FollowRequest { run_id, next } in followed {
            let next = after.as_ref().and_then(|after| after.next_of(&run_id)).unwrap_or(next);
            all.cursor.next.push((tail(&run_id).into(), next));
            all.runs.push(FollowedRun { run_id, is_over: false });
            all.follow(all.runs.len() - 1, next).await?;
        }
        let first = all.cursor.clone();
        let is_gap = if after.is_some() { all.catch_up().await? } else { false };
        all.ready.push_front((ServiceEvent::Ready { is_gap }, first));
        all.sources.push(changed_runs(runs).boxed());
        let counted = values_of(questions).filter_map(async |known| known);
        all.sources.push(counted.map(Incoming::Questions).boxed());
        let catalog = values_of(readers.service().reloads()).skip(1);
        all.sources.push(catalog.map(|_| Incoming::Catalog).boxed());
        Ok(all)
    }

    /// Follows the steps of a run from an entry on.
    async fn follow(&mut self, nth: usize, next: u64) -> Result<(), Error> {
        let run = &mut self.runs[nth];
        let reader = EventReader::open_part(&self.readers, &self.who, &run.run_id, next).await?;
        run.is_over = false;
        let steps = stream::unfold(Some(reader), move |reader| async move {
            let mut reader = reader?;
            match reader.next().await {
                Some(item) => Some((Incoming::Step(nth, item), Some(reader))),
                None => Some((Incoming::Unreadable(nth), None)),
            }
        });
        self.sources.push(steps.boxed());
        Ok(())
    }

    /// Queues the runs that changed behind the cursor; returns whether the client misses some.
    async fn catch_up(&mut self) -> Result<bool, Error> {
        let changes = self.readers.service().store().changes(Some(self.cursor.at)).await?;
        for change in &changes.runs {
            if self.who.can_see(super::owner(&change.row).as_deref()) {
                let changed = self.readers.feed().changed(Some(change.at), &change.row).await;
                self.cursor.at = change.at;
                self.push(ServiceEvent::Run(Arc::new(changed)));
            }
        }
        self.cursor.at = changes.next;
        if changes.has_more {
            self.cursor.at = self.readers.service().store().changes(None).await?.next;
        }
        Ok(changes.is_gap || changes.has_more)
    }

    fn push(&mut self, event: ServiceEvent) {
        self.ready.push_back((event, self.cursor.clone()));
    }

    /// The next event and the cursor after it; `None` when the stream ends.
    async fn next(&mut self) -> Option<(ServiceEvent, Cursor)> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            match self.sources.next().await? {
                Incoming::Run(run) => self.run_changed(run).await,
                Incoming::Behind => {
                    if self.catch_up().await.ok()? {
                        self.push(ServiceEvent::Ready { is_gap: true });
                    }
                }
                Incoming::Questions(questions) => {
                    let count = visible_questions(&questions, &self.who);
                    if self.questions.replace(count) != Some(count) {
                        self.push(ServiceEvent::Questions(count));
                    }
                }
                Incoming::Catalog => self.push(ServiceEvent::Catalog),
                Incoming::Step(nth, item) => self.step_changed(nth, item),
                Incoming::Unreadable(nth) if self.runs[nth].is_over => {}
                // The client comes back with its cursor.
                Incoming::Unreadable(_) => return None,
            }
        }
    }

    async fn run_changed(&mut self, run: Arc<ChangedRun>) {
        let is_new = run.at.is_none_or(|at| at > self.cursor.at);
        if !is_new || !self.who.can_see(run.owner.as_deref()) {
            return;
        }
        self.cursor.at = run.at.unwrap_or(self.cursor.at);
        // A run that had ended is rolled back on request.
        let reopened = |followed: &FollowedRun| followed.is_over && followed.run_id == run.run_id;
        if let (true, Some(nth)) = (run.is_open, self.runs.iter().position(reopened)) {
            let next = self.cursor.next[nth].1.saturating_sub(1);
            // If it cannot be read now, the client reads the run itself.
            let _ = self.follow(nth, next).await;
        }
        self.push(ServiceEvent::Run(run));
    }

    fn step_changed(&mut self, nth: usize, item: StreamItem) {
        let run_id = self.runs[nth].run_id.clone();
        match item {
            StreamItem::Event(event) => {
                if !event.is_transient() {
                    self.cursor.next[nth].1 = event.seq + 1;
                }
                self.push(ServiceEvent::Step { run_id, event });
            }
            StreamItem::End { seq, view } => {
                self.cursor.next[nth].1 = seq + 1;
                self.runs[nth].is_over = true;
                self.push(ServiceEvent::Ended { run_id, status: view.status });
            }
            StreamItem::KeepAlive => {}
        }
    }

    /// Everything from here on, until the server ends.
    pub fn into_stream(self) -> impl Stream<Item = (ServiceEvent, Cursor)> {
        let mut leaving = self.readers.leaving();
        let left = async move {
            let _ = leaving.wait_for(|leaving| *leaving).await;
        };
        let events = stream::unfold(self, |mut all| async { Some((all.next().await?, all)) });
        events.take_until(Box::pin(left))
    }
}

/// The changes of runs, and when some were lost.
fn changed_runs(
    receiver: broadcast::Receiver<Arc<ChangedRun>>,
) -> impl Stream<Item = Incoming> + Send {
    stream::unfold(receiver, |mut receiver| async {
        match receiver.recv().await {
            Ok(run) => Some((Incoming::Run(run), receiver)),
            Err(RecvError::Lagged(_)) => Some((Incoming::Behind, receiver)),
            Err(RecvError::Closed) => None,
        }
    })
}

/// A value now and whenever it changes.
fn values_of<T: Clone + Send + Sync + 'static>(
    receiver: tokio::sync::watch::Receiver<T>,
) -> impl Stream<Item = T> + Send {
    stream::unfold((receiver, true), |(mut receiver, is_first)| async move {
        if !is_first {
            receiver.changed().await.ok()?;
        }
        let value = receiver.borrow_and_update().clone();
        Some((value, (receiver, false)))
    })
}
