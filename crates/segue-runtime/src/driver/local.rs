//! The local driver: one future per call, all polled in one place.
//!
//! Record, then perform: a turn's entries are appended to the store before any of its effects
//! begins. A failing store therefore starts nothing; it is waited for, but not for ever.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt, poll_fn, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use segue_core::access::Caller;
use segue_core::diagnostic::Code;
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
use tokio::time::Sleep;

use super::{Chance, Confirmer, Decision, Observer, now_ms};
use crate::engine::{Ears, Heard, Listening};
use crate::store::{Lease, Measured, NewRun, Record, Store, StoreError, run_ended, stopped_by};
use crate::tools::gate::{Gate, Pass};
use crate::tools::notes::{Note, Notes};
use crate::tools::reach::{Around, Compositions, Standing};
use crate::tools::{self, Registry, ToolError};

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
        First::Resume { lease, written, wishes, words } => {
            (lease.run_id.clone(), Some(lease), written, EventKind::Resumed, wishes, words)
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

/// What a panic leaves behind.
type Panic = Box<dyn std::any::Any + Send>;

/// Calls, questions and timers are all futures that end in an event. There are far more calls than
/// others, so these have no box of their own.
type UnderWay<'a> = FuturesUnordered<Either<Calling<'a>, BoxFuture<'a, Happened>>>;

/// What a future ended in.
enum Happened {
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
    ends: Vec<(CallId, oneshot::Sender<()>)>,
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
            Effect::End(call) => {
                // An answer that is on its way already leaves nobody to tell.
                if let Some(end) = self.take_end(call) {
                    let _ = end.send(());
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

    fn whose(&self, call: CallId) -> Whose {
        let run_id = self.run_id.clone();
        let traceparent = self.run.trace().map(|trace| {
            let span = trace.span(&run_id, Spanned::Attempt(call));
            trace.traceparent(span)
        });
        let owner = self.run.caller().and_then(Caller::owner).cloned();
        Whose { run_id, owner, traceparent }
    }

    fn wait_for(&mut self, what: impl Future<Output = Happened> + Send + 'a) {
        self.under_way.push(Either::Right(Box::pin(what)));
    }

    /// What ends a call, out of those that are under way.
    fn take_end(&mut self, call: CallId) -> Option<oneshot::Sender<()>> {
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

/// Whose call it is: the run, whose that is, and where the call stands in its trace.
struct Whose {
    run_id: Arc<str>,
    owner: Option<Arc<str>>,
    traceparent: Option<Arc<str>>,
}

/// Waits for a call's turn, and makes it.
async fn queue(
    around: Around<'_>,
    whose: Whose,
    call: Call,
    is_retry: bool,
    mut ended: oneshot::Receiver<()>,
) -> Happened {
    let pass = tokio::select! {
        biased;
        // First: what is ended here must not leave with the slot that another one's end has freed.
        Ok(()) = &mut ended => return unsent(call.id, Answer::Unsent),
        pass = around.gate.enter(&call.tool, is_retry) => pass,
    };
    match pass {
        Ok(pass) => leave(around, whose, call, pass, ended).await,
        Err(error) => unsent(call.id, Answer::Failure(error.into())),
    }
}

/// The answer of a call that never left.
fn unsent(call: CallId, answer: Answer) -> Happened {
    Happened::Answered(EventKind::Answered { call, answer }, None)
}

/// Makes a call that may leave.
fn leave<'a>(
    around: Around<'a>,
    whose: Whose,
    call: Call,
    pass: Pass<'a>,
    ended: oneshot::Receiver<()>,
) -> Calling<'a> {
    let Call { id, tool, args, timeout_ms, key, step, attempt, purpose, covers_parts, follows } =
        call;
    let known = around.registry.get(&tool).expect("the gate lets through what the registry has");
    let Whose { run_id, owner, traceparent } = whose;
    let request = tools::Call {
        tool: tool.clone(),
        args,
        run_id,
        step,
        attempt,
        key,
        purpose,
        owner,
        traceparent,
        asker: None,
        follows,
    };
    let standing = Standing { call: id, covers_parts, is_part: false };
    let work = around.make(known, request, standing);
    let has_schema = known.spec.output.is_some();
    Calling {
        id,
        tool,
        has_schema,
        work,
        timeout_ms,
        timer: None,
        pass: Some(pass),
        ended,
        has_left: false,
        notes: around.notes,
    }
}

/// A call that is under way. It waits for the answer, the end of its time or its own end, whichever
/// is first. Dropping the runner's future is what ends it.
struct Calling<'a> {
    id: CallId,
    tool: ToolId,
    has_schema: bool,
    work: BoxFuture<'a, Result<Value, ToolError>>,
    timeout_ms: Option<u64>,
    /// Set when it leaves: its time counts from then, not from when it queues.
    timer: Option<Pin<Box<Sleep>>>,
    pass: Option<Pass<'a>>,
    ended: oneshot::Receiver<()>,
    has_left: bool,
    notes: Option<&'a Arc<Notes>>,
}

impl Future for Calling<'_> {
    type Output = Happened;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Happened> {
        if !self.has_left && self.ended.try_recv().is_ok() {
            return Poll::Ready(unsent(self.id, Answer::Unsent));
        }
        self.has_left = true;
        // A panic of a tool is that call's failure and nobody else's.
        let work = std::panic::catch_unwind(AssertUnwindSafe(|| self.work.poll_unpin(cx)));
        let answer = match work {
            Ok(Poll::Ready(outcome)) => answer(Ok(outcome)),
            Err(panic) => answer(Err(panic)),
            Ok(Poll::Pending) if self.is_late(cx) => {
                // Whoever works on it is told to stop.
                self.notes.into_iter().for_each(|notes| notes.forget(self.id));
                Answer::TimedOut
            }
            Ok(Poll::Pending) => {
                // Ended by us: it says nothing about the tool.
                let ended = self.ended.poll_unpin(cx);
                return ended.map(|_| unsent(self.id, Answer::Ended));
            }
        };
        Poll::Ready(self.answered(answer))
    }
}

impl Calling<'_> {
    /// Whether its time is over.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timeout) = self.timeout_ms else { return false };
        let sleep = || Box::pin(tokio::time::sleep(Duration::from_millis(timeout)));
        self.timer.get_or_insert_with(sleep).poll_unpin(cx).is_ready()
    }

    fn answered(&mut self, answer: Answer) -> Happened {
        let measured = self.pass.take().map(|pass| Measured {
            tool: self.tool.clone(),
            has_schema: self.has_schema,
            took: pass.settle(is_heard(&answer)),
            result: match &answer {
                Answer::Value(value) => Ok(value.clone()),
                Answer::Failure(failure) => Err(failure.code),
                Answer::TimedOut | Answer::Ended | Answer::Unsent => Err(Code::Timeout),
            },
        });
        Happened::Answered(EventKind::Answered { call: self.id, answer }, measured)
    }
}

/// Whether the tool's source has shown that it is there.
fn is_heard(answer: &Answer) -> bool {
    match answer {
        Answer::Value(_) => true,
        Answer::Failure(failure) => !matches!(failure.code, Code::Unreachable | Code::InDoubt),
        Answer::TimedOut | Answer::Ended | Answer::Unsent => false,
    }
}

/// What a runner's word, or its panic, means.
fn answer(outcome: Result<Result<Value, ToolError>, Panic>) -> Answer {
    match outcome {
        Ok(Ok(value)) => Answer::Value(value),
        Ok(Err(error)) => Answer::Failure(error.into()),
        Err(_) => {
            let mut failure = Failure::lasting(Code::Internal, "the tool's own code panicked");
            failure.in_doubt = true;
            Answer::Failure(failure)
        }
    }
}
