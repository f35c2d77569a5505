//! The local driver: one future per call, all polled in one place.
//!
//! Record, then perform: a turn's entries are appended to the store before any of its effects
//! begins. A failing store therefore starts nothing; it is waited for, but not for ever.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt, poll_fn, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use segue_core::access::Caller;
use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::run::{
    Answer, Call, CallId, Effect, Entry, Event, EventKind, Purpose, Question, QuestionId, Run,
    SpanSubject, TimerId, Turn,
};
use segue_core::template;
use tokio::sync::oneshot;

use super::append::append;
use super::call::{CallEnd, CallFuture, CallOrigin, send, unsent, wait_and_send};
use super::commands::{CommandRouter, MailboxReceiver, Received, is_stop};
use super::evaluations::Evaluating;
use super::{DriverContext, Expand, IdSource, InputAck, Observer, StartMode, now_ms};
use crate::confirm::{Confirmer, Decision};
use crate::store::{
    AppendRecord, Lease, Measured, NewRun, Store, StoreError, run_ended, stopped_by,
};
use crate::tools::call_scope::CallContext;
use crate::tools::call_updates::{CallUpdate, CallUpdates};

/// Moves a run until it is over, or until it waits for a person who is not there.
pub async fn drive(
    run: &mut Run,
    first: StartMode,
    drive: DriverContext<'_>,
) -> Result<(), StoreError> {
    let (run_id, lease, written, begins, wishes, words) = match first {
        StartMode::Start(started, reused) => {
            let run_id = started.run_id.clone();
            (run_id, None, 0, EventKind::Rerun { started, reused }, Vec::new(), Vec::new())
        }
        StartMode::Resume { lease, written, commands: mut wishes, command_numbers: words } => {
            let begins = resume_event(run, &mut wishes);
            (lease.run_id.clone(), Some(lease), written, begins, wishes, words)
        }
    };
    let updates = Arc::new(CallUpdates::default());
    let timeout_ms = drive.limits.evaluation_timeout_ms;
    let evaluating = drive.router.evaluations.enter(&run_id, run.interrupt(), timeout_ms);
    evaluating.set_deadline(deadline(&begins, &drive.plan));
    let mut driver = Driver {
        run,
        run_id,
        plan: drive.plan,
        lease,
        measured: Vec::new(),
        context: CallContext {
            registry: drive.registry,
            catalog: drive.catalog,
            gate: drive.gate,
            limits: drive.limits,
            confirmer: drive.confirmer,
            compositions: drive.compositions,
            updates: Some(&updates),
        },
        updates: &updates,
        found: Vec::new(),
        store: drive.store,
        observer: drive.observer,
        ids: drive.ids,
        expand: drive.expand,
        in_flight: FuturesUnordered::new(),
        may_be_cancelled: false,
        turn: Turn::default(),
        completions: Vec::new(),
        ends: Vec::new(),
        asked: Vec::new(),
        mailbox: None,
        router: drive.router,
        written,
        unacknowledged: Vec::new(),
        evaluating,
        is_interrupted: false,
        proceeds: false,
        is_leaving: false,
    };
    let driven = driver.drive(begins, wishes, words, drive.cancel).await;
    if let (Err(_), Some(lease)) = (&driven, driver.lease.take()) {
        drive.unreleased.release(drive.store, lease).await;
    }
    driven
}

/// How a run that was read goes on. That it is to end counts before anything of it is worked out:
/// that may be what ended the process before.
fn resume_event(run: &Run, wishes: &mut Vec<EventKind>) -> EventKind {
    let ends = |command: &EventKind| {
        matches!(command, EventKind::Cancel { .. } | EventKind::RollBack { .. })
            && !run.is_finished()
    };
    match wishes.iter().position(ends).map(|at| wishes.remove(at)) {
        Some(EventKind::Cancel { by }) => EventKind::ResumedToEnd { by, roll_back: false },
        Some(EventKind::RollBack { by }) => EventKind::ResumedToEnd { by, roll_back: true },
        _ => EventKind::Resumed,
    }
}

/// Asks somebody, until somebody else has answered.
async fn ask(
    confirmer: &dyn Confirmer,
    question: Question,
    ended: oneshot::Receiver<()>,
) -> Completion {
    // Its end first: nobody is asked what is answered already.
    match select(ended, confirmer.confirm(&question)).await {
        Either::Left(_) => Completion::Withdrawn,
        Either::Right((decision, _)) => Completion::Answers(question.id, decision),
    }
}

/// Calls, questions and timers are all futures that end in an event. There are far more calls than
/// others, so these have no box of their own.
type InFlight<'a> = FuturesUnordered<Either<CallFuture<'a>, BoxFuture<'a, Completion>>>;

/// What a future ended in.
pub(super) enum Completion {
    /// An event.
    Event(EventKind),
    /// A call that is under way has told something.
    Update(CallId, CallUpdate),
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
    plan: Arc<Plan>,
    /// The right to write the run, once it has begun.
    lease: Option<Lease>,
    /// Calls that ended and are not in the store yet.
    measured: Vec<Measured>,
    context: CallContext<'a>,
    updates: &'a Arc<CallUpdates>,
    /// Calls that can be found again, once that is written down.
    found: Vec<CallId>,
    store: &'a dyn Store,
    observer: &'a dyn Observer,
    ids: &'a IdSource,
    expand: &'a Expand<'a>,
    in_flight: InFlight<'a>,
    /// Whether the wish that the run ends is under way too.
    may_be_cancelled: bool,
    /// What is to be written and done next.
    turn: Turn,
    /// What has happened and the run was not told yet.
    completions: Vec<Completion>,
    /// Ends a call that is under way. A list: there are few, and the first ones answer first.
    ends: Vec<(CallId, oneshot::Sender<CallEnd>)>,
    /// Questions that somebody is being asked; without its other half one is withdrawn.
    asked: Vec<(QuestionId, oneshot::Sender<()>)>,
    /// What is wanted of the run from outside; nobody listens before there is time to.
    mailbox: Option<MailboxReceiver>,
    router: &'a Arc<CommandRouter>,
    /// Entries that are in the store.
    written: u64,
    /// What the run was told from outside, and is not durable yet.
    unacknowledged: Vec<InputAck>,
    evaluating: Evaluating,
    /// Whether what the run was told last was interrupted: what shall end the run comes next.
    is_interrupted: bool,
    /// Whether the run paused, or one of its evaluations took too long: it goes on with `Proceed`.
    proceeds: bool,
    /// Whether the process ends, and what the run was told last is dropped.
    is_leaving: bool,
}

impl<'a> Driver<'a> {
    async fn drive(
        &mut self,
        begins: EventKind,
        wishes: Vec<EventKind>,
        words: Vec<u64>,
        cancel: BoxFuture<'a, Arc<str>>,
    ) -> Result<(), StoreError> {
        self.handle(begins);
        if self.lease.is_some() {
            self.catch_up();
        }
        self.apply_commands(wishes).await?;
        self.observer.recorded(InputAck::Start);
        for word in words {
            self.remove_command(word).await;
        }
        self.until_finished(cancel).await?;
        self.stop_driving().await
    }

    /// What was to happen while nobody was there happens first, in its order. So an answer that comes
    /// after the time of its question comes too late, whoever brings it.
    fn catch_up(&mut self) {
        let now = now_ms();
        let mut overdue = Vec::new();
        self.turn.perform.retain(|effect| match effect {
            Effect::SetTimer { timer, at_ms } if *at_ms <= now => {
                overdue.push((*at_ms, *timer));
                false
            }
            _ => true,
        });
        overdue.sort();
        for (_, timer) in overdue {
            self.handle(EventKind::TimerFired(timer));
        }
    }

    /// Does what is wanted of the run, in one turn with what it begins with: nothing starts that is not
    /// wanted any more.
    async fn apply_commands(&mut self, wishes: Vec<EventKind>) -> Result<(), StoreError> {
        let mut answered = Vec::new();
        for command in wishes {
            if let EventKind::Decided { question, .. } = &command {
                answered.push(*question);
            }
            self.handle(command);
        }
        self.write_and_perform().await?;
        answered.into_iter().for_each(|question| self.withdraw(question));
        Ok(())
    }

    async fn until_finished(&mut self, cancel: BoxFuture<'a, Arc<str>>) -> Result<(), StoreError> {
        // Among the calls: when all that is under way was polled and nothing is ready, the set has
        // itself polled once more, after everybody else. With this there is always one more.
        self.wait_for(cancel.map(Completion::Cancelled));
        self.may_be_cancelled = true;
        while !self.run.is_finished() {
            if self.run.is_waiting() && self.asked.is_empty() && !self.proceeds {
                return Ok(());
            }
            if let Some(heard) = poll_fn(|cx| self.gather(cx)).await {
                self.handle_command(heard).await?;
                continue;
            }
            self.handle_gathered();
            self.write_and_perform().await?;
        }
        Ok(())
    }

    /// Waits until something happens, and takes everything that has: it is written together, and
    /// synced once. What somebody wants from outside comes by itself.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        let mut cancelled = None;
        while let Poll::Ready(Some(happened)) = self.in_flight.poll_next_unpin(cx) {
            match happened {
                Completion::Cancelled(by) => cancelled = Some(by),
                other => self.completions.push(other),
            }
        }
        // What a call told was before its answer, if that is there, too.
        let noted = self.updates.take();
        if !noted.is_empty() {
            let noted = noted.into_iter().map(|(call, note)| Completion::Update(call, note));
            self.completions.splice(0..0, noted);
        }
        // Answers first: what has happened counts before what is wished for.
        if let Some(by) = cancelled {
            self.may_be_cancelled = false;
            self.completions.push(Completion::Cancelled(by));
        }
        if std::mem::take(&mut self.proceeds) {
            self.completions.push(Completion::Event(EventKind::Proceed));
        }
        if !self.completions.is_empty() {
            return Poll::Ready(None);
        }
        let is_idle = self.in_flight.len() == usize::from(self.may_be_cancelled);
        assert!(!is_idle || self.is_interrupted, "a run that is not finished waits for something");
        let listening = self.mailbox.get_or_insert_with(|| self.router.register(&self.run_id));
        match listening.poll(cx) {
            Poll::Ready(Some(heard)) => Poll::Ready(Some(heard)),
            _ => Poll::Pending,
        }
    }

    /// Tells the run what was gathered, as long as it goes on.
    fn handle_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.completions);
        for happened in gathered.drain(..) {
            let event = match happened {
                Completion::Event(event) => event,
                Completion::Update(call, CallUpdate::Handle(handle)) => {
                    self.found.push(call);
                    EventKind::HandleReceived { call, handle }
                }
                Completion::Update(call, CallUpdate::Progress(progress)) => {
                    self.observer.progressed(self.run, call, &progress);
                    continue;
                }
                Completion::Answered(event, measured) => {
                    self.measured.extend(measured);
                    event
                }
                Completion::Answers(question, decision) => {
                    self.withdraw(question);
                    let Some(Decision { granted, by, data }) = decision else { continue };
                    EventKind::Decided { question, granted, by, data }
                }
                Completion::Cancelled(by) => {
                    self.unacknowledged.push(InputAck::Cancel);
                    EventKind::Cancel { by }
                }
                Completion::Withdrawn => continue,
            };
            self.handle(event);
            if self.run.is_finished() {
                break;
            }
        }
        self.completions = gathered;
    }

    /// Does what somebody wants; the word that it came by is thrown away once that is durable.
    async fn handle_command(&mut self, heard: Received) -> Result<(), StoreError> {
        if let EventKind::Decided { question, .. } = heard.event {
            self.withdraw(question);
        }
        self.handle(heard.event);
        self.write_and_perform().await?;
        if let Some(word) = heard.command {
            self.remove_command(word).await;
        }
        if let Some(recorded) = heard.recorded {
            // Whoever told the run may be gone.
            let _ = recorded.send(());
        }
        Ok(())
    }

    /// What came by this word is durable. Left there, it is heard again after a crash, and changes
    /// nothing.
    async fn remove_command(&mut self, word: u64) {
        let _ = self.store.remove_command(word).await;
    }

    /// Nobody need answer this question any more.
    fn withdraw(&mut self, question: QuestionId) {
        self.asked.retain(|(asked, _)| *asked != question);
        self.unacknowledged.push(InputAck::Answer(question));
    }

    /// Tells the run what happened. Not asynchronous: events are large, and a future would carry
    /// them along.
    fn handle(&mut self, kind: EventKind) {
        if let EventKind::Answered { call, .. } = &kind {
            self.take_end(*call);
        }
        if is_stop(&kind) {
            self.evaluating.clear_stop();
        } else if let EventKind::TimerFired(TimerId::Run) = &kind {
            self.evaluating.set_deadline(None);
        }
        let event = Event { at_ms: now_ms(), entropy: self.ids.random_u64(), kind };
        self.evaluating.begin();
        self.run.handle_into(event, &mut self.turn);
        let ended = self.evaluating.end();
        self.is_interrupted = ended.is_interrupted;
        self.is_leaving |= ended.is_leaving;
        self.proceeds |= ended.goes_on;
    }

    /// Writes down what became true, and does what follows from it.
    async fn write_and_perform(&mut self) -> Result<(), StoreError> {
        if self.is_leaving {
            // What was evaluated may have been interrupted, which is no fact about the run. Whoever
            // moves it is about to drop it.
            return std::future::pending().await;
        }
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
            let Driver { asked, run, unacknowledged, .. } = self;
            asked.retain(|(question, _)| {
                let stands = run.has_open_question(*question);
                if !stands {
                    unacknowledged.push(InputAck::Answer(*question));
                }
                stands
            });
        }
        for recorded in self.unacknowledged.drain(..) {
            self.observer.recorded(recorded);
        }
        self.found.drain(..).for_each(|call| self.updates.mark_findable(call));
        for effect in perform.drain(..) {
            self.perform(effect);
        }
        record.clear();
        self.turn = Turn { record, perform };
        Ok(())
    }

    /// A run that waits for a person is left to whoever brings the answer.
    async fn stop_driving(&mut self) -> Result<(), StoreError> {
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
            let (template, status) =
                (ToolId::new(template::USAGE_NAMESPACE, id), self.run.status());
            self.measured.push(run_ended(template, status, stopped_by(entries), took_ms));
        }
        let record = AppendRecord {
            expected: self.written,
            entries,
            status: self.run.status(),
            measured: &self.measured,
        };
        match &self.lease {
            Some(lease) => {
                let patience = Duration::from_millis(self.context.limits.store_wait_ms_max);
                append(self.store, lease, record, patience).await?;
            }
            None => {
                let run = NewRun { run_id: &self.run_id, plan: &self.plan };
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
            Effect::Abort(call) => {
                // An answer that is on its way already leaves nobody to tell.
                if let Some(end) = self.take_end(call) {
                    let _ = end.send(CallEnd::Abandoned);
                }
            }
            Effect::Ask(question) => {
                let (end, ended) = oneshot::channel();
                self.asked.push((question.id, end));
                self.wait_for(ask(self.context.confirmer, question, ended));
            }
            Effect::Expand { node, document } => {
                let outcome = (self.expand)(&document);
                let event = EventKind::Expanded { node, outcome };
                self.wait_for(std::future::ready(Completion::Event(event)));
            }
            Effect::SetTimer { timer, at_ms } => {
                if timer == TimerId::Run {
                    self.evaluating.set_deadline(Some(at_ms));
                }
                self.wait_for(wake(timer, at_ms));
            }
        }
    }

    fn call(&mut self, call: Call) {
        let (end, ended) = oneshot::channel();
        if call.resume_handle.is_some() {
            self.updates.mark_findable(call.id);
        }
        self.ends.push((call.id, end));
        let (around, whose) = (self.context, self.call_origin(call.id));
        let gate = around.gate;
        let is_retry = call.attempt > 1 && call.purpose == Purpose::Work;
        // Few calls have to wait; the others are spared the room that waiting takes.
        match gate.try_enter(&call.tool, is_retry) {
            Some(Ok(pass)) => {
                let calling = send(around, whose, call, pass, ended);
                self.in_flight.push(Either::Left(calling));
            }
            Some(Err(error)) => {
                let refused = unsent(call.id, Answer::Failure(error.into()));
                self.wait_for(std::future::ready(refused));
            }
            None => self.wait_for(wait_and_send(around, whose, call, is_retry, ended)),
        }
    }

    /// A call that may write starts nothing more, and its answer is awaited. It can be abandoned
    /// afterwards.
    fn settle(&mut self, call: CallId) {
        self.updates.mark_settling(call);
        if let Some((_, end)) = self.ends.iter_mut().find(|(id, _)| *id == call) {
            let (next, ended) = oneshot::channel();
            let end = std::mem::replace(end, next);
            let _ = end.send(CallEnd::Settles(ended));
        }
    }

    fn call_origin(&self, call: CallId) -> CallOrigin {
        let run_id = self.run_id.clone();
        let traceparent = self.run.trace().map(|trace| {
            let span = trace.span(&run_id, SpanSubject::Attempt(call));
            trace.traceparent(span)
        });
        let owner = self.run.caller().and_then(Caller::owner).cloned();
        CallOrigin { run_id, owner, traceparent }
    }

    fn wait_for(&mut self, what: impl Future<Output = Completion> + Send + 'a) {
        self.in_flight.push(Either::Right(Box::pin(what)));
    }

    /// What ends a call, out of those that are under way.
    fn take_end(&mut self, call: CallId) -> Option<oneshot::Sender<CallEnd>> {
        self.updates.unmark_findable(call);
        let at = self.ends.iter().position(|(id, _)| *id == call)?;
        Some(self.ends.swap_remove(at).1)
    }
}

/// When the time of a run that begins is over: what it evaluates first has to end by then, too.
fn deadline(begins: &EventKind, plan: &Plan) -> Option<u64> {
    let EventKind::Rerun { started, .. } = begins else { return None };
    let timeout_ms = started.options.timeout_ms.or(plan.composition.timeout_ms)?;
    Some(now_ms().saturating_add(timeout_ms))
}

async fn wake(timer: TimerId, at_ms: u64) -> Completion {
    let wait = at_ms.saturating_sub(now_ms());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    Completion::Event(EventKind::TimerFired(timer))
}
