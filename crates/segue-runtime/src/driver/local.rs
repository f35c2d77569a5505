//! The local driver: one future per call, all polled in one place.
//!
//! Record, then perform: a turn's entries are appended to the store before any of its effects
//! begins. A failing store therefore starts nothing; it is waited for, but not for ever.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt, poll_fn, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{
    Answer, Call, CallId, Effect, Entry, Event, EventKind, Failure, Purpose, Question, QuestionId,
    Reused, Run, Spanned, Started, TimerId, Turn,
};
use segue_core::template;
use segue_core::tool::Catalog;
use segue_core::value::Value;
use tokio::sync::oneshot;

use super::calling::{Calling, Ending, Whose, leave, queue, unsent};
use super::{Chance, Confirmer, Decision, Observer, now_ms};
use crate::engine::{Ears, Heard, Listening};
use crate::store::{Lease, Measured, NewRun, Record, Store, StoreError, run_ended, stopped_by};
use crate::tools::Registry;
use crate::tools::gate::Gate;
use crate::tools::notes::{Note, Notes};
use crate::tools::reach::{Around, Compositions};

/// How long to leave a store alone that could not be written: at first, and at most.
const STORE_PAUSE_MIN: Duration = Duration::from_millis(20);
const STORE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a driver needs to move a run.
pub struct Drive<'a> {
    /// What the run executes.
    pub plan: Arc<Plan>,
    /// The tools.
    pub registry: &'a Registry,
    /// Where calls wait for their turn.
    pub gate: &'a Gate,
    /// Where the journal goes.
    pub store: &'a dyn Store,
    /// Who is asked.
    pub confirmer: &'a dyn Confirmer,
    /// What is known of the tools.
    pub catalog: &'a Catalog,
    /// Every bound.
    pub limits: &'a Limits,
    /// What runs compositions that code calls.
    pub(crate) compositions: &'a dyn Compositions,
    /// Who watches.
    pub observer: &'a dyn Observer,
    /// Randomness.
    pub chance: &'a Chance,
    /// What compiles a composition that was made at run time.
    pub expand: &'a Expand<'a>,
    /// Resolves when the run should end, to who wants it.
    pub cancel: BoxFuture<'a, Arc<str>>,
    /// What else is wanted of it meanwhile.
    pub(crate) ears: &'a Arc<Ears>,
}

/// Compiles and plans a composition that was made at run time, or says why it cannot.
pub type Expand<'a> = dyn Fn(&Value) -> Result<Arc<Plan>, Failure> + Send + Sync + 'a;

/// How a run is set in motion.
pub enum First {
    /// It begins, with what it takes over from an earlier one. The last is [`NewRun::is_drawn`].
    Start(Box<Started>, Vec<Reused>, bool),
    /// It was read from its journal, and goes on; then this happens.
    Resume {
        /// The right to write it.
        lease: Lease,
        /// Entries that are in the store.
        written: u64,
        /// What is wanted of it, in this order.
        wishes: Vec<EventKind>,
        /// The words in the store that some of these came by.
        words: Vec<u64>,
    },
}

/// Moves a run until it is over, or until it waits for a person who is not there.
pub async fn drive(run: &mut Run, first: First, drive: Drive<'_>) -> Result<(), StoreError> {
    let is_drawn = matches!(first, First::Start(.., true));
    let (run_id, lease, written, begins, wishes, words) = match first {
        First::Start(started, reused, _) => {
            let run_id = started.run_id.clone();
            (run_id, None, 0, EventKind::Rerun { started, reused }, Vec::new(), Vec::new())
        }
        First::Resume { lease, written, mut wishes, words } => {
            let begins = taken_up(run, &mut wishes);
            (lease.run_id.clone(), Some(lease), written, begins, wishes, words)
        }
    };
    let notes = Arc::new(Notes::default());
    let mut driver = Driver {
        run,
        run_id,
        is_drawn,
        plan: drive.plan,
        lease,
        measured: Vec::new(),
        around: Around {
            registry: drive.registry,
            catalog: drive.catalog,
            gate: drive.gate,
            limits: drive.limits,
            confirmer: drive.confirmer,
            compositions: drive.compositions,
            notes: Some(&notes),
        },
        notes: &notes,
        found: Vec::new(),
        store: drive.store,
        observer: drive.observer,
        chance: drive.chance,
        expand: drive.expand,
        under_way: FuturesUnordered::new(),
        may_be_cancelled: false,
        turn: Turn::default(),
        happened: Vec::new(),
        ends: Vec::new(),
        asked: Vec::new(),
        listening: None,
        ears: drive.ears,
        written,
    };
    driver.handle(begins);
    if driver.lease.is_some() {
        driver.catch_up();
    }
    driver.answer_to(wishes).await?;
    for word in words {
        driver.throw_away(word).await;
    }
    driver.until_finished(drive.cancel).await?;
    driver.leave().await
}

/// How a run that was read goes on. That it is to end counts before anything of it is worked out:
/// that may be what ended the process before.
fn taken_up(run: &Run, wishes: &mut Vec<EventKind>) -> EventKind {
    let ends = |wish: &EventKind| {
        matches!(wish, EventKind::Cancel { .. } | EventKind::RollBack { .. }) && !run.is_finished()
    };
    match wishes.iter().position(ends).map(|at| wishes.remove(at)) {
        Some(EventKind::Cancel { by }) => EventKind::ResumedToEnd { by, rolls_back: false },
        Some(EventKind::RollBack { by }) => EventKind::ResumedToEnd { by, rolls_back: true },
        _ => EventKind::Resumed,
    }
}

/// Asks somebody, until somebody else has answered.
async fn ask(
    confirmer: &dyn Confirmer,
    question: Question,
    ended: oneshot::Receiver<()>,
) -> Happened {
    // Its end first: nobody is asked what is answered already.
    match select(ended, confirmer.confirm(&question)).await {
        Either::Left(_) => Happened::Withdrawn,
        Either::Right((decision, _)) => Happened::Answers(question.id, decision),
    }
}

/// Calls, questions and timers are all futures that end in an event. There are far more calls than
/// others, so these have no box of their own.
type UnderWay<'a> = FuturesUnordered<Either<Calling<'a>, BoxFuture<'a, Happened>>>;

/// What a future ended in.
pub(super) enum Happened {
    /// An event.
    Event(EventKind),
    /// A call that is under way has told something.
    Noted(CallId, Note),
    /// A call was answered, which teaches something about its tool.
    Answered(EventKind, Option<Measured>),
    /// Whoever was asked has answered, or left the question open.
    Answers(QuestionId, Option<Decision>),
    /// Somebody else answered the question.
    Withdrawn,
    /// Somebody wants the run to end.
    Cancelled(Arc<str>),
}

struct Driver<'a> {
    run: &'a mut Run,
    run_id: Arc<str>,
    /// Whether it was drawn for this run.
    is_drawn: bool,
    plan: Arc<Plan>,
    /// The right to write the run, once it has begun.
    lease: Option<Lease>,
    /// Calls that ended and are not in the store yet.
    measured: Vec<Measured>,
    around: Around<'a>,
    notes: &'a Arc<Notes>,
    /// Calls that can be found again, once that is written down.
    found: Vec<CallId>,
    store: &'a dyn Store,
    observer: &'a dyn Observer,
    chance: &'a Chance,
    expand: &'a Expand<'a>,
    under_way: UnderWay<'a>,
    /// Whether the wish that the run ends is under way too.
    may_be_cancelled: bool,
    /// What is to be written and done next.
    turn: Turn,
    /// What has happened and the run was not told yet.
    happened: Vec<Happened>,
    /// Ends a call that is under way. A list: there are few, and the first ones answer first.
    ends: Vec<(CallId, oneshot::Sender<Ending>)>,
    /// Questions that somebody is being asked; without its other half one is withdrawn.
    asked: Vec<(QuestionId, oneshot::Sender<()>)>,
    /// What is wanted of the run from outside; nobody listens before there is time to.
    listening: Option<Listening>,
    ears: &'a Arc<Ears>,
    /// Entries that are in the store.
    written: u64,
}

impl<'a> Driver<'a> {
    /// What was to happen while nobody was there happens first, in its order. So an answer that comes
    /// after the time of its question comes too late, whoever brings it.
    fn catch_up(&mut self) {
        let now = now_ms();
        let mut overdue = Vec::new();
        self.turn.perform.retain(|effect| match effect {
            Effect::Wake { timer, at_ms } if *at_ms <= now => {
                overdue.push((*at_ms, *timer));
                false
            }
            _ => true,
        });
        overdue.sort();
        for (_, timer) in overdue {
            self.handle(EventKind::Fired(timer));
        }
    }

    /// Does what is wanted of the run, in one turn with what it begins with: nothing starts that is not
    /// wanted any more.
    async fn answer_to(&mut self, wishes: Vec<EventKind>) -> Result<(), StoreError> {
        let mut answered = Vec::new();
        for wish in wishes {
            if let EventKind::Decided { question, .. } = &wish {
                answered.push(*question);
            }
            self.handle(wish);
        }
        self.carry_out().await?;
        answered.into_iter().for_each(|question| self.withdraw(question));
        Ok(())
    }

    async fn until_finished(&mut self, cancel: BoxFuture<'a, Arc<str>>) -> Result<(), StoreError> {
        // Among the calls: when all that is under way was polled and nothing is ready, the set has
        // itself polled once more, after everybody else. With this there is always one more.
        self.wait_for(cancel.map(Happened::Cancelled));
        self.may_be_cancelled = true;
        while !self.run.is_finished() {
            if self.run.is_waiting() && self.asked.is_empty() {
                return Ok(());
            }
            if let Some(heard) = poll_fn(|cx| self.gather(cx)).await {
                self.heed(heard).await?;
                continue;
            }
            self.handle_gathered();
            self.carry_out().await?;
        }
        Ok(())
    }

    /// Waits until something happens, and takes everything that has: it is written together, and
    /// synced once. What somebody wants from outside comes by itself.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<Option<Heard>> {
        let mut cancelled = None;
        while let Poll::Ready(Some(happened)) = self.under_way.poll_next_unpin(cx) {
            match happened {
                Happened::Cancelled(by) => cancelled = Some(by),
                other => self.happened.push(other),
            }
        }
        // What a call told was before its answer, if that is there, too.
        let noted = self.notes.take();
        if !noted.is_empty() {
            let noted = noted.into_iter().map(|(call, note)| Happened::Noted(call, note));
            self.happened.splice(0..0, noted);
        }
        // Answers first: what has happened counts before what is wished for.
        if let Some(by) = cancelled {
            self.may_be_cancelled = false;
            self.happened.push(Happened::Cancelled(by));
        }
        if !self.happened.is_empty() {
            return Poll::Ready(None);
        }
        let is_idle = self.under_way.len() == usize::from(self.may_be_cancelled);
        assert!(!is_idle, "a run that is not finished waits for something");
        let listening = self.listening.get_or_insert_with(|| self.ears.listen(&self.run_id));
        match listening.poll(cx) {
            Poll::Ready(Some(heard)) => Poll::Ready(Some(heard)),
            _ => Poll::Pending,
        }
    }

    /// Tells the run what was gathered, as long as it goes on.
    fn handle_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.happened);
        for happened in gathered.drain(..) {
            let event = match happened {
                Happened::Event(event) => event,
                Happened::Noted(call, Note::Followed(handle)) => {
                    self.found.push(call);
                    EventKind::Followed { call, handle }
                }
                Happened::Noted(call, Note::Progress(progress)) => {
                    self.observer.progressed(self.run, call, &progress);
                    continue;
                }
                Happened::Answered(event, measured) => {
                    self.measured.extend(measured);
                    event
                }
                Happened::Answers(question, decision) => {
                    self.withdraw(question);
                    let Some(Decision { granted, by, data }) = decision else { continue };
                    EventKind::Decided { question, granted, by, data }
                }
                Happened::Cancelled(by) => EventKind::Cancel { by },
                Happened::Withdrawn => continue,
            };
            self.handle(event);
            if self.run.is_finished() {
                break;
            }
        }
        self.happened = gathered;
    }

    /// Does what somebody wants; the word that it came by is thrown away once that is durable.
    async fn heed(&mut self, heard: Heard) -> Result<(), StoreError> {
        if let EventKind::Decided { question, .. } = heard.event {
            self.withdraw(question);
        }
        self.handle(heard.event);
        self.carry_out().await?;
        if let Some(word) = heard.word {
            self.throw_away(word).await;
        }
        Ok(())
    }

    /// What came by this word is durable. Left there, it is heard again after a crash, and changes
    /// nothing.
    async fn throw_away(&mut self, word: u64) {
        let _ = self.store.take_word(word).await;
    }

    /// Nobody need answer this question any more.
    fn withdraw(&mut self, question: QuestionId) {
        self.asked.retain(|(asked, _)| *asked != question);
    }

    /// Tells the run what happened. Not asynchronous: events are large, and a future would carry
    /// them along.
    fn handle(&mut self, kind: EventKind) {
        if let EventKind::Answered { call, .. } = &kind {
            self.take_end(*call);
        }
        let event = Event { at_ms: now_ms(), entropy: self.chance.draw(), kind };
        self.run.handle_into(event, &mut self.turn);
    }

    /// Writes down what became true, and does what follows from it.
    async fn carry_out(&mut self) -> Result<(), StoreError> {
        // Taken, and given back empty: there is a turn after every step, and it keeps its room.
        let Turn { mut record, mut perform } = std::mem::take(&mut self.turn);
        if !record.is_empty() {
            // Facts before acts. A crash between the two leaves a call in doubt, which recovery
            // can ask about; the other order leaves a call nobody knows of, which nothing can.
            let written = self.run.redacted(&record);
            self.write(&written).await?;
            self.written += written.len() as u64;
            self.observer.observe(self.run, &written);
            // Too late for those that nobody answered in time, or whose run is over.
            self.asked.retain(|(question, _)| self.run.is_asked(*question));
        }
        self.found.drain(..).for_each(|call| self.notes.mark_findable(call));
        for effect in perform.drain(..) {
            self.perform(effect);
        }
        record.clear();
        self.turn = Turn { record, perform };
        Ok(())
    }

    /// A run that waits for a person is left to whoever brings the answer.
    async fn leave(&mut self) -> Result<(), StoreError> {
        match self.lease.take() {
            Some(lease) if !self.run.is_finished() => self.store.release(&lease).await,
            _ => Ok(()),
        }
    }

    async fn write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        if let (true, Some(id), Some(last)) =
            (self.run.is_finished(), &self.plan.composition.template, entries.last())
        {
            let took_ms = last.at_ms.saturating_sub(self.run.started_ms());
            let (template, status) = (ToolId::new(template::COUNTED, id), self.run.status());
            self.measured.push(run_ended(template, status, stopped_by(entries), took_ms));
        }
        let record = Record {
            expected: self.written,
            entries,
            status: self.run.status(),
            measured: &self.measured,
        };
        match &self.lease {
            Some(lease) => {
                let patience = Duration::from_millis(self.around.limits.store_wait_ms_max);
                append(self.store, lease, record, patience).await?;
            }
            None => {
                let Driver { run_id, plan, is_drawn, .. } = self;
                let run = NewRun { run_id, plan, is_drawn: *is_drawn };
                self.lease = Some(self.store.create(run, record).await?);
            }
        }
        self.measured.clear();
        Ok(())
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Call(call) => self.call(call),
            Effect::Settle(call) => self.settle(call),
            Effect::End(call) => {
                // An answer that is on its way already leaves nobody to tell.
                if let Some(end) = self.take_end(call) {
                    let _ = end.send(Ending::Abandoned);
                }
            }
            Effect::Ask(question) => {
                let (end, ended) = oneshot::channel();
                self.asked.push((question.id, end));
                self.wait_for(ask(self.around.confirmer, question, ended));
            }
            Effect::Expand { node, document } => {
                let outcome = (self.expand)(&document);
                let event = EventKind::Expanded { node, outcome };
                self.wait_for(std::future::ready(Happened::Event(event)));
            }
            Effect::Wake { timer, at_ms } => self.wait_for(wake(timer, at_ms)),
        }
    }

    fn call(&mut self, call: Call) {
        let (end, ended) = oneshot::channel();
        if call.follows.is_some() {
            self.notes.mark_findable(call.id);
        }
        self.ends.push((call.id, end));
        let (around, whose) = (self.around, self.whose(call.id));
        let gate = around.gate;
        let is_retry = call.attempt > 1 && call.purpose == Purpose::Do;
        // Few calls have to wait; the others are spared the room that waiting takes.
        match gate.try_enter(&call.tool, is_retry) {
            Some(Ok(pass)) => {
                let calling = leave(around, whose, call, pass, ended);
                self.under_way.push(Either::Left(calling));
            }
            Some(Err(error)) => {
                let refused = unsent(call.id, Answer::Failure(error.into()));
                self.wait_for(std::future::ready(refused));
            }
            None => self.wait_for(queue(around, whose, call, is_retry, ended)),
        }
    }

    /// A call that may write starts nothing more, and its answer is awaited. It can be abandoned
    /// afterwards.
    fn settle(&mut self, call: CallId) {
        self.notes.mark_settling(call);
        if let Some((_, end)) = self.ends.iter_mut().find(|(id, _)| *id == call) {
            let (next, ended) = oneshot::channel();
            let end = std::mem::replace(end, next);
            let _ = end.send(Ending::Settles(ended));
        }
    }

    fn whose(&self, call: CallId) -> Whose {
        let run_id = self.run_id.clone();
        let traceparent = self.run.trace().map(|trace| {
            let span = trace.span(&run_id, Spanned::Attempt(call));
            trace.traceparent(span)
        });
        Whose { run_id, traceparent }
    }

    fn wait_for(&mut self, what: impl Future<Output = Happened> + Send + 'a) {
        self.under_way.push(Either::Right(Box::pin(what)));
    }

    /// What ends a call, out of those that are under way.
    fn take_end(&mut self, call: CallId) -> Option<oneshot::Sender<Ending>> {
        self.notes.forget(call);
        let at = self.ends.iter().position(|(id, _)| *id == call)?;
        Some(self.ends.swap_remove(at).1)
    }
}

/// Adds to a run, and waits for a store that cannot be written now. Meanwhile nothing new begins,
/// and calls that are under way go on: ending them would leave them in doubt.
async fn append(
    store: &dyn Store,
    lease: &Lease,
    record: Record<'_>,
    patience: Duration,
) -> Result<(), StoreError> {
    let mut error = match store.append(lease, record).await {
        Err(error @ StoreError::Unavailable { .. }) => error,
        other => return other,
    };
    let until = tokio::time::Instant::now() + patience;
    let mut pause = STORE_PAUSE_MIN;
    while tokio::time::Instant::now() + pause <= until {
        tokio::time::sleep(pause).await;
        pause = STORE_PAUSE_MAX.min(pause * 2);
        error = match store.append(lease, record).await {
            Err(error @ StoreError::Unavailable { .. }) => error,
            // Nobody else writes with this lease: it was written, and only the answer was lost.
            Err(StoreError::Fenced { actual, .. })
                if actual == record.expected + record.entries.len() as u64 =>
            {
                return Ok(());
            }
            other => return other,
        };
    }
    Err(error)
}

async fn wake(timer: TimerId, at_ms: u64) -> Happened {
    let wait = at_ms.saturating_sub(now_ms());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    Happened::Event(EventKind::Fired(timer))
}
