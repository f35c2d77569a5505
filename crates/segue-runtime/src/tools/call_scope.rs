//! A call that is under way gets what it asks for: people's answers, and calls of its parts.
//!
//! Whether a part may be called, and whether a person comes first, is the core's to say
//! ([`segue_core::composed`]). A part waits at the gate like any call. Everything happens inside the
//! future of the call that asks, so it ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::code_tools::{self, PartCall, PartCaller, PartEffect, PartOutcome};
use segue_core::limits::Limits;
use segue_core::run::{CallId, Overwrites, Purpose, Question, QuestionId, QuestionKind};
use segue_core::tool::{Catalog, ConfirmPolicy, Impact, ToolSpec};
use segue_core::value::Value;
use tokio::sync::Mutex;

use super::call_channel::{CallChannel, CallMessage};
use super::call_updates::{CallUpdate, CallUpdates};
use super::gate::Gate;
use super::{Registry, Tool, ToolError, ToolRequest};
use crate::confirm::{Confirmer, Decision};

/// Runs a composition that is a part.
pub(crate) trait CompositionRunner: Send + Sync {
    /// Its value. `approved` says that nobody is asked about its calls, and `stops` resolves when nothing new
    /// may start, to who wants that.
    fn run<'a>(
        &'a self,
        composition: &'a ToolSpec,
        args: Value,
        approved: bool,
        confirmer: &'a dyn Confirmer,
        stops: BoxFuture<'a, Arc<str>>,
    ) -> BoxFuture<'a, Result<Value, ToolError>>;
}

/// What calls have around them.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) catalog: &'a Catalog,
    pub(crate) gate: &'a Gate,
    pub(crate) limits: &'a Limits,
    pub(crate) confirmer: &'a dyn Confirmer,
    pub(crate) compositions: &'a dyn CompositionRunner,
    /// Where calls of a run leave what they tell of themselves.
    pub(crate) updates: Option<&'a Arc<CallUpdates>>,
}

/// Whose call it is, and what was allowed with it.
#[derive(Clone, Copy)]
pub(crate) struct Authorization {
    /// The step's call.
    pub(crate) call: CallId,
    /// Whether calls of its parts are allowed, too.
    pub(crate) covers_parts: bool,
    /// Whether it is one of its parts.
    pub(crate) is_part: bool,
}

impl<'a> CallContext<'a> {
    /// Makes a call that may leave.
    pub(crate) fn call(
        self,
        tool: &'a Tool,
        mut call: ToolRequest,
        standing: Authorization,
    ) -> BoxFuture<'a, Result<Value, ToolError>> {
        if !tool.runner.may_ask() {
            return tool.runner.call(call);
        }
        let of = self.updates.filter(|_| !standing.is_part);
        let (asker, asked) = CallChannel::pair(of.map(|updates| (updates.clone(), standing.call)));
        call.asker = Some(asker);
        let reach = CallScope {
            context: self,
            spec: self.catalog.get(&call.tool).unwrap_or(&tool.spec),
            authorization: standing,
            call: call.clone(),
            turn: Mutex::new(()),
            made: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
        };
        Box::pin(reach.serve(tool.runner.call(call), asked))
    }
}

/// One call, seen from where it gets what it asks for.
struct CallScope<'a> {
    context: CallContext<'a>,
    /// The tool, with its parts.
    spec: &'a Arc<ToolSpec>,
    authorization: Authorization,
    call: ToolRequest,
    /// Held by whoever asks a person: there is one question at a time.
    turn: Mutex<()>,
    /// Calls of parts so far.
    made: AtomicUsize,
    /// Those under way that change something.
    writing: AtomicUsize,
}

impl<'a> CallScope<'a> {
    async fn serve(
        self,
        mut work: BoxFuture<'a, Result<Value, ToolError>>,
        mut asked: UnboundedReceiver<CallMessage>,
    ) -> Result<Value, ToolError> {
        let mut under_way = FuturesUnordered::new();
        let mut trace = PartEffect::None;
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut work => break outcome,
                Some(left) = under_way.next(), if !under_way.is_empty() => trace = trace.max(left),
                // Apart: the set has room for one from the beginning.
                Some(asking) = asked.next() => under_way.push(Box::pin(self.handle(asking))),
            }
        };
        // Nobody will hear what they answer.
        if self.writing.load(Ordering::Relaxed) > 0 {
            trace = PartEffect::Unknown;
        }
        outcome.map_err(|error| trace.apply_to(error.into(), self.spec).into())
    }

    /// Gives what is asked for, and says what that leaves behind.
    async fn handle(&self, asking: CallMessage) -> PartEffect {
        // Whoever asked may have gone; then nobody hears the answer.
        match asking {
            CallMessage::Person { message, schema, reply } => {
                let kind = QuestionKind::Approval { message, schema: Some(schema) };
                let _ = reply.send(self.ask(kind).await);
                PartEffect::None
            }
            CallMessage::Part { name, args, reply } => {
                let (outcome, trace) = self.call_part(&name, args).await;
                let _ = reply.send(outcome);
                trace
            }
            CallMessage::Update(note) => {
                self.note(note);
                PartEffect::None
            }
        }
    }

    /// A part is not looked for: its caller makes it again.
    fn note(&self, note: CallUpdate) {
        let is_told = !self.authorization.is_part || matches!(note, CallUpdate::Progress(_));
        if let Some(updates) = self.context.updates.filter(|_| is_told) {
            updates.push(self.authorization.call, note);
        }
    }

    async fn ask(&self, kind: QuestionKind) -> Option<Decision> {
        let _turn = self.turn.lock().await;
        let id = QuestionId::of_call(self.authorization.call.node);
        let question = Question { id, step: self.call.step.clone(), kind };
        // Nobody is asked for a run that has stopped.
        tokio::select! {
            biased;
            () = self.wait_stopped() => None,
            decision = self.context.confirmer.confirm(&question) => decision,
        }
    }

    /// Comes when the run has stopped; never for a call that takes something back.
    async fn wait_stopped(&self) {
        match self.context.updates {
            Some(updates) => updates.wait_settling(self.authorization.call).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the run has stopped, so that nothing new starts.
    fn is_settling(&self) -> bool {
        self.context.updates.is_some_and(|updates| updates.is_settling(self.authorization.call))
    }

    async fn call_part(&self, name: &str, args: Value) -> (Result<Value, ToolError>, PartEffect) {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        let caller = PartCaller {
            tool: self.spec,
            catalog: self.context.catalog,
            covered: self.authorization.covers_parts,
            is_rollback: self.call.purpose == Purpose::Rollback,
            calls_made: nth,
            calls_max: self.context.limits.part_calls_max,
        };
        let PartCall { part, asks } = match code_tools::authorize_part_call(caller, name, &args) {
            Ok(call) => call,
            Err(failure) => return (Err(failure.into()), PartEffect::None),
        };
        if asks {
            let effect = part.annotations.impact();
            let kind = QuestionKind::Call {
                tool: part.id.clone(),
                args: args.clone(),
                effect,
                can_roll_back: effect <= Impact::Reads || part.can_roll_back(),
                parts: code_tools::reachable_calls(&part),
                rollback: None,
            };
            if !self.ask(kind).await.is_some_and(|decision| decision.granted) {
                return (Err(code_tools::not_confirmed_failure(&part).into()), PartEffect::None);
            }
        }
        let writes =
            usize::from(PartEffect::of(&part, PartOutcome::Unknown) == PartEffect::Unknown);
        self.writing.fetch_add(writes, Ordering::Relaxed);
        let is_allowed =
            asks || self.authorization.covers_parts || part.confirm == ConfirmPolicy::Never;
        let outcome = self.send_part(&part, args, nth, is_allowed).await;
        self.writing.fetch_sub(writes, Ordering::Relaxed);
        let end = match &outcome {
            Ok(_) => PartOutcome::Answered,
            Err(ToolError::NoAnswer { .. }) => PartOutcome::Unknown,
            Err(_) => PartOutcome::Refused,
        };
        let checked = outcome.and_then(|value| {
            code_tools::check_output(&part, &value)?;
            Ok(value)
        });
        (checked, PartEffect::of(&part, end))
    }

    async fn send_part(
        &self,
        part: &Arc<ToolSpec>,
        args: Value,
        nth: usize,
        is_allowed: bool,
    ) -> Result<Value, ToolError> {
        let CallContext { registry, gate, compositions, confirmer, .. } = self.context;
        if self.is_settling() {
            return Err(code_tools::run_stopped_failure(part).into());
        }
        if part.composition.is_some() {
            let stops = Box::pin(async {
                self.wait_stopped().await;
                Arc::from("the run around it")
            });
            let covered = self.authorization.covers_parts;
            return compositions.run(part, args, covered, confirmer, stops).await;
        }
        let pass = gate.enter(&part.id, false).await?;
        if self.is_settling() {
            return Err(code_tools::run_stopped_failure(part).into());
        }
        let tool = registry.get(&part.id).expect("the gate lets through what the registry has");
        let call = ToolRequest {
            tool: part.id.clone(),
            args,
            // The same code makes the same calls in the same order, so a repeated one is known.
            key: format!("{}/{}", self.call.key, nth + 1).into(),
            overwrites: Overwrites::if_allowed(is_allowed),
            asker: None,
            follows: None,
            ..self.call.clone()
        };
        let covers_parts =
            code_tools::confirmation_covers_parts(part, self.authorization.covers_parts);
        let standing = Authorization { covers_parts, is_part: true, ..self.authorization };
        let outcome = self.context.call(tool, call, standing).await;
        pass.finish(is_answered(&outcome));
        outcome
    }
}

/// Whether a tool's source has shown that it is there.
pub(crate) fn is_answered(outcome: &Result<Value, ToolError>) -> bool {
    !matches!(outcome, Err(ToolError::Unreachable { .. } | ToolError::NoAnswer { .. }))
}
