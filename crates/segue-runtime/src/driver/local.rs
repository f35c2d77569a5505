//! The local driver: one future per call, all polled by one task.
//!
//! Record, then perform: a turn's entries are in the store before any of its effects begins. While
//! the store fails, the driver starts nothing; it retries for a limited time.

use std::collections::BTreeMap;
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
use super::call::{CallEnd, CallFuture, CallOrigin, HeldLease, send, unsent, wait_and_send};
use super::commands::{CommandRouter, MailboxReceiver, Received, is_stop};
use super::evaluations::Evaluating;
use super::{DriverContext, Expand, IdSource, InputAck, Observer, StartMode, now_ms};
use crate::confirm::{Confirmer, Decision};
use crate::store::{
    AppendRecord, Due, Lease, Measured, NewRun, Store, StoreError, run_ended, stopped_by,
};
use crate::tools::call_scope::CallContext;
use crate::tools::call_updates::{CallUpdate, CallUpdates};

/// Drives a run until it finishes, or until it waits for a person who is not here.
pub async fn drive(
    run: &mut Run,
    first: StartMode,
    drive: DriverContext<'_>,
) -> Result<(), StoreError> {
    let (run_id, lease, written, begins, commands, numbers) = match first {
        StartMode::Start(started, selection) => {
            let run_id = started.run_id.clone();
            let begins = EventKind::StartPart { started, selection };
            (run_id, None, 0, begins, Vec::new(), Vec::new())
        }
        StartMode::Resume { lease, written, mut commands, command_numbers: numbers } => {
            let begins = resume_event(run, &mut commands);
            (lease.run_id.clone(), Some(lease), written, begins, commands, numbers)
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
        withheld: None,
        ends: Vec::new(),
        asked: Vec::new(),
        mailbox: None,
        router: drive.router,
        written,
        unacknowledged: Vec::new(),
        timers: BTreeMap::new(),
        evaluating,
        is_interrupted: false,
        proceeds: false,
        is_leaving: false,
    };
    let driven = driver.drive(begins, commands, numbers, drive.cancel).await;
    if let (Err(_), Some(lease)) = (&driven, driver.lease.take()) {
        drive.unreleased.release(drive.store, lease).await;
    }
    driven
}

/// The event that a restored run begins with. A command to end the run comes before any evaluation:
/// an evaluation may be what ended the process before.
fn resume_event(run: &Run, commands: &mut Vec<EventKind>) -> EventKind {
    let ends = |command: &EventKind| {
        matches!(command, EventKind::Cancel { .. } | EventKind::RollBack { .. })
            && !run.is_finished()
    };
    match commands.iter().position(ends).map(|at| commands.remove(at)) {
        Some(EventKind::Cancel { by }) => EventKind::ResumedToEnd { by, roll_back: false },
        Some(EventKind::RollBack { by }) => EventKind::ResumedToEnd { by, roll_back: true },
        _ => EventKind::Resumed,
    }
}

/// Asks the confirmer, until the question is withdrawn.
async fn ask(
    confirmer: &dyn Confirmer,
    question: Question,
    ended: oneshot::Receiver<()>,
) -> DriverEvent {
    // The withdrawal is polled first: an answered question is not asked.
    match select(ended, confirmer.confirm(&question)).await {
        Either::Left(_) => DriverEvent::Withdrawn,
        Either::Right((decision, _)) => DriverEvent::Answers(question.id, decision),
    }
}

/// Calls, questions and timers are futures that end in an event. Calls are by far the most
/// frequent, so they are not boxed.
type InFlight<'a> = FuturesUnordered<Either<CallFuture<'a>, BoxFuture<'a, DriverEvent>>>;

/// The result of one of these futures.
pub(super) enum DriverEvent {
    /// An event.
    Event(EventKind),
    /// A call in flight reported something.
    Update(CallId, CallUpdate),
    /// A call was answered; the measurement updates the statistics of its tool.
    Answered(EventKind, Option<Measured>),
    /// The confirmer answered the question, or left it open.
    Answers(QuestionId, Option<Decision>),
    /// The question was withdrawn, because another answer came first.
    Withdrawn,
    /// The caller cancelled the run.
    Cancelled(Arc<str>),
    /// A call did not leave, because this process may not own the run any more.
    Withheld(StoreError),
}

struct Driver<'a> {
    run: &'a mut Run,
    run_id: Arc<str>,
    plan: Arc<Plan>,
    /// The right to write the run; `None` until its first entry is stored.
    lease: Option<Lease>,
    /// Measurements of finished calls that are not in the store yet.
    measured: Vec<Measured>,
    context: CallContext<'a>,
    updates: &'a Arc<CallUpdates>,
    /// Calls that got a handle by which they can be found again, and origin entry is not durable
    /// yet.
    found: Vec<CallId>,
    store: &'a dyn Store,
    observer: &'a dyn Observer,
    ids: &'a IdSource,
    expand: &'a Expand<'a>,
    in_flight: InFlight<'a>,
    /// Whether the future that cancels the run is among those in flight.
    may_be_cancelled: bool,
    /// The entries and effects of the turn in progress.
    turn: Turn,
    /// Completions that the run has not handled yet.
    completions: Vec<DriverEvent>,
    /// Why a call that the journal announces did not leave: the next owner finds it in doubt.
    withheld: Option<StoreError>,
    /// Ends a call in flight. A list: there are few, and the first ones answer first.
    ends: Vec<(CallId, oneshot::Sender<CallEnd>)>,
    /// Questions that the confirmer is being asked; dropping the sender withdraws one.
    asked: Vec<(QuestionId, oneshot::Sender<()>)>,
    /// Receives commands from outside; opened the first time that the run waits.
    mailbox: Option<MailboxReceiver>,
    router: &'a Arc<CommandRouter>,
    /// How many entries are in the store.
    written: u64,
    /// Inputs from outside that are not durable yet.
    unacknowledged: Vec<InputAck>,
    /// When each timer fires that has not fired yet. Some may have become pointless meanwhile.
    timers: BTreeMap<TimerId, u64>,
    evaluating: Evaluating,
    /// Whether the last evaluation was interrupted: the command that ends the run comes next.
    is_interrupted: bool,
    /// Whether the run paused, or an evaluation took too long: `Proceed` continues it.
    proceeds: bool,
    /// Whether the process is shutting down: the last event's entries are dropped.
    is_leaving: bool,
}

impl<'a> Driver<'a> {
    async fn drive(
        &mut self,
        begins: EventKind,
        commands: Vec<EventKind>,
        numbers: Vec<u64>,
        cancel: BoxFuture<'a, Arc<str>>,
    ) -> Result<(), StoreError> {
        self.handle(begins);
        if self.lease.is_some() {
            self.catch_up();
        }
        self.apply_commands(commands).await?;
        self.observer.recorded(InputAck::Start);
        for number in numbers {
            self.remove_command(number).await;
        }
        self.until_finished(cancel).await?;
        self.stop_driving().await
    }

    /// Timers that expired while no process drove the run fire first, in their order. An answer
    /// that comes after its question's timeout is therefore too late, through whichever channel it
    /// comes.
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

    /// Applies pending commands in the same turn that starts the run, so that no step starts which
    /// a command stops.
    async fn apply_commands(&mut self, commands: Vec<EventKind>) -> Result<(), StoreError> {
        let mut answered = Vec::new();
        for command in commands {
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
        // In the same set as the calls: `FuturesUnordered` yields once it has polled as many
        // futures as it holds. With this one it holds more than there are calls to poll.
        self.wait_for(cancel.map(DriverEvent::Cancelled));
        self.may_be_cancelled = true;
        while !self.run.is_finished() {
            if self.run.is_waiting() && self.asked.is_empty() && !self.proceeds {
                return Ok(());
            }
            if let Some(received) = poll_fn(|cx| self.gather(cx)).await {
                self.handle_command(received).await?;
                continue;
            }
            if let Some(error) = self.withheld.take() {
                return Err(error);
            }
            self.handle_gathered();
            self.write_and_perform().await?;
        }
        Ok(())
    }

    /// Waits until something completes, and takes everything that has: one turn, one sync. A
    /// command from outside is returned alone.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        let mut cancelled = None;
        while let Poll::Ready(Some(happened)) = self.in_flight.poll_next_unpin(cx) {
            match happened {
                DriverEvent::Cancelled(by) => cancelled = Some(by),
                DriverEvent::Withheld(error) => {
                    self.withheld = Some(error);
                    return Poll::Ready(None);
                }
                other => self.completions.push(other),
            }
        }
        // A call's updates come before its answer, when both are there.
        let updates = self.updates.take();
        if !updates.is_empty() {
            let updates =
                updates.into_iter().map(|(call, update)| DriverEvent::Update(call, update));
            self.completions.splice(0..0, updates);
        }
        // Answers come before a cancel: they have already happened.
        if let Some(by) = cancelled {
            self.may_be_cancelled = false;
            self.completions.push(DriverEvent::Cancelled(by));
        }
        if std::mem::take(&mut self.proceeds) {
            self.completions.push(DriverEvent::Event(EventKind::Proceed));
        }
        if !self.completions.is_empty() {
            return Poll::Ready(None);
        }
        let is_idle = self.in_flight.len() == usize::from(self.may_be_cancelled);
        assert!(!is_idle || self.is_interrupted, "a run that is not finished waits for something");
        let mailbox = self.mailbox.get_or_insert_with(|| self.router.register(&self.run_id));
        match mailbox.poll(cx) {
            Poll::Ready(Some(received)) => Poll::Ready(Some(received)),
            _ => Poll::Pending,
        }
    }

    /// Has the run handle the gathered completions, until it finishes.
    fn handle_gathered(&mut self) {
        let mut gathered = std::mem::take(&mut self.completions);
        for happened in gathered.drain(..) {
            let event = match happened {
                DriverEvent::Event(event) => {
                    self.forget_timer(&event);
                    event
                }
                DriverEvent::Update(call, CallUpdate::Handle(handle)) => {
                    self.found.push(call);
                    EventKind::HandleReceived { call, handle }
                }
                DriverEvent::Update(call, CallUpdate::Progress(progress)) => {
                    self.observer.progressed(self.run, call, &progress);
                    continue;
                }
                DriverEvent::Answered(event, measured) => {
                    self.measured.extend(measured);
                    event
                }
                DriverEvent::Answers(question, decision) => {
                    self.withdraw(question);
                    let Some(Decision { granted, by, data }) = decision else { continue };
                    EventKind::Decided { question, granted, by, data }
                }
                DriverEvent::Cancelled(by) => {
                    self.unacknowledged.push(InputAck::Cancel);
                    EventKind::Cancel { by }
                }
                DriverEvent::Withdrawn | DriverEvent::Withheld(_) => continue,
            };
            self.handle(event);
            if self.run.is_finished() {
                break;
            }
        }
        self.completions = gathered;
    }

    /// A timer that fired is no reason to drive the run again. One that was set anew meanwhile stays.
    fn forget_timer(&mut self, event: &EventKind) {
        if let EventKind::TimerFired(timer) = event
            && self.timers.get(timer).is_some_and(|at_ms| *at_ms <= now_ms())
        {
            self.timers.remove(timer);
        }
    }

    /// Handles a command, and removes it from the store once its entries are durable.
    async fn handle_command(&mut self, received: Received) -> Result<(), StoreError> {
        if let EventKind::Decided { question, .. } = received.event {
            self.withdraw(question);
        }
        self.handle(received.event);
        self.write_and_perform().await?;
        if let Some(number) = received.command {
            self.remove_command(number).await;
        }
        if let Some(recorded) = received.recorded {
            // The sender of the command may be gone.
            let _ = recorded.send(());
        }
        Ok(())
    }

    /// Removes a command origin entries are durable. If removal fails, the command is delivered
    /// again after a restart, and changes nothing.
    async fn remove_command(&mut self, number: u64) {
        let _ = self.store.remove_command(number).await;
    }

    /// Withdraws a question that needs no answer any more.
    fn withdraw(&mut self, question: QuestionId) {
        self.asked.retain(|(asked, _)| *asked != question);
        self.unacknowledged.push(InputAck::Answer(question));
    }

    /// Has the run handle an event. Not async: events are large, and the future would hold them.
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

    /// Stores the turn's entries, then performs its effects.
    async fn write_and_perform(&mut self) -> Result<(), StoreError> {
        if self.is_leaving {
            // The evaluation may have been interrupted, which is no fact about the run. The owner
            // of this future is about to drop it.
            return std::future::pending().await;
        }
        // Taken here and put back empty, so that the next turn reuses the allocations.
        let Turn { mut record, mut perform } = std::mem::take(&mut self.turn);
        if !record.is_empty() {
            // Facts before acts. A crash between the two leaves a call in doubt, which recovery can
            // ask about. The other order would leave a call that no journal knows.
            let written = self.run.redacted(&record);
            self.write(&written).await?;
            self.written += written.len() as u64;
            self.observer.observe(self.run, &written);
            // Withdraw questions that timed out, or origin run is over.
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
        if let Some(lease) = self.lease.as_ref().filter(|lease| !self.store.is_held(lease))
            && perform.iter().any(|effect| matches!(effect, Effect::Call(_)))
        {
            // The answer of the store came late, and the lease may have ended meanwhile.
            self.store.hold(lease).await?;
        }
        for effect in perform.drain(..) {
            self.perform(effect);
        }
        record.clear();
        self.turn = Turn { record, perform };
        Ok(())
    }

    /// Releases the lease of a run that waits for a person, so that another process can resume it: when a
    /// person answers, or when a timer fires.
    async fn stop_driving(&mut self) -> Result<(), StoreError> {
        let due = self.timers.values().min().copied().map_or(Due::OnCommand, Due::At);
        match self.lease.take() {
            Some(lease) if !self.run.is_finished() => self.store.release_until(&lease, due).await,
            _ => Ok(()),
        }
    }

    async fn write(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let (is_finished, is_part) = (self.run.is_finished(), self.run.is_part());
        if let (true, Some(id), Some(last)) =
            (is_finished && !is_part, &self.plan.composition.template, entries.last())
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
            is_part,
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
                // If the answer is here already, there is no call to abort.
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
                self.wait_for(std::future::ready(DriverEvent::Event(event)));
            }
            Effect::SetTimer { timer, at_ms } => {
                if timer == TimerId::Run {
                    self.evaluating.set_deadline(Some(at_ms));
                }
                self.timers.insert(timer, at_ms);
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
        let (context, origin) = (self.context, self.call_origin(call.id));
        let gate = context.gate;
        let is_retry = call.attempt > 1 && call.purpose == Purpose::Work;
        // Few calls wait at the gate; the others need no boxed future.
        match gate.try_enter(&call.tool, is_retry) {
            Some(Ok(permit)) => {
                let calling = send(context, origin, call, permit, ended);
                self.in_flight.push(Either::Left(calling));
            }
            Some(Err(error)) => {
                let refused = unsent(call.id, Answer::Failure(error.into()));
                self.wait_for(std::future::ready(refused));
            }
            None => {
                let held = HeldLease { store: self.store, lease: self.lease.clone() };
                self.wait_for(wait_and_send(context, (origin, held), call, is_retry, ended));
            }
        }
    }

    /// A call that may write starts no further calls, and the run waits for its answer. The run can
    /// still abandon it afterwards.
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

    fn wait_for(&mut self, what: impl Future<Output = DriverEvent> + Send + 'a) {
        self.in_flight.push(Either::Right(Box::pin(what)));
    }

    /// Removes the sender that ends a call in flight.
    fn take_end(&mut self, call: CallId) -> Option<oneshot::Sender<CallEnd>> {
        self.updates.unmark_findable(call);
        let at = self.ends.iter().position(|(id, _)| *id == call)?;
        Some(self.ends.swap_remove(at).1)
    }
}

/// The deadline of a run that starts: its first evaluation must end by then, too.
fn deadline(begins: &EventKind, plan: &Plan) -> Option<u64> {
    let EventKind::StartPart { started, .. } = begins else { return None };
    let timeout_ms = started.options.timeout_ms.or(plan.composition.timeout_ms)?;
    Some(now_ms().saturating_add(timeout_ms))
}

async fn wake(timer: TimerId, at_ms: u64) -> DriverEvent {
    let wait = at_ms.saturating_sub(now_ms());
    tokio::time::sleep(Duration::from_millis(wait)).await;
    DriverEvent::Event(EventKind::TimerFired(timer))
}
