//! Serves a call in flight: it asks people for the call, and calls the tools that the call's code
//! uses.
//!
//! The core decides whether a part may be called and whether it asks first
//! ([`segue_core::code_tools`]). A part waits at the gate like any call. All of this happens inside
//! the future of the call, so it ends with the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::catalog::Catalog;
use segue_core::code_tools::{self, PartCall, PartCaller, PartEffect, PartOutcome};
use segue_core::limits::Limits;
use segue_core::plan;
use segue_core::run::{CallId, Overwrites, Purpose, Question, QuestionId, QuestionKind};
use segue_core::tool::{ConfirmPolicy, Impact, ToolSpec};
use segue_core::value::Value;
use tokio::sync::Mutex;

use super::call_channel::{CallChannel, CallMessage};
use super::call_updates::{CallUpdate, CallUpdates};
use super::gate::Gate;
use super::{Registry, Tool, ToolError, ToolRequest};
use crate::confirm::{Confirmer, Decision};

/// Runs a composition that is a part.
pub(crate) trait CompositionRunner: Send + Sync {
    /// Returns the composition's value. `approved` means that its calls do not ask. `stops`
    /// resolves when nothing new may start, to the name of who stops it.
    fn run<'a>(
        &'a self,
        composition: &'a ToolSpec,
        args: Value,
        approved: bool,
        confirmer: &'a dyn Confirmer,
        stops: BoxFuture<'a, Arc<str>>,
    ) -> BoxFuture<'a, Result<Value, ToolError>>;
}

/// What every call needs.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) catalog: &'a Catalog,
    pub(crate) gate: &'a Gate,
    pub(crate) limits: &'a Limits,
    pub(crate) confirmer: &'a dyn Confirmer,
    pub(crate) compositions: &'a dyn CompositionRunner,
    /// Receives the updates of a run's calls.
    pub(crate) updates: Option<&'a Arc<CallUpdates>>,
}

/// A call's identity, and what was approved with it.
#[derive(Clone, Copy)]
pub(crate) struct Authorization {
    /// The step's call.
    pub(crate) call: CallId,
    /// Whether the approval covers the calls of its parts.
    pub(crate) covers_parts: bool,
    /// Whether this call is itself a part.
    pub(crate) is_part: bool,
}

impl<'a> CallContext<'a> {
    /// Calls a tool that has its permit.
    pub(crate) fn call(
        self,
        tool: &'a Tool,
        mut call: ToolRequest,
        authorization: Authorization,
    ) -> BoxFuture<'a, Result<Value, ToolError>> {
        if !tool.runner.may_ask() {
            return tool.runner.call(call);
        }
        let of = self.updates.filter(|_| !authorization.is_part);
        let (asker, asked) =
            CallChannel::pair(of.map(|updates| (updates.clone(), authorization.call)));
        call.asker = Some(asker);
        let scope = CallScope {
            context: self,
            spec: self.catalog.get(&call.tool).unwrap_or(&tool.spec),
            authorization,
            call: call.clone(),
            turn: Mutex::new(()),
            made: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
        };
        Box::pin(scope.serve(tool.runner.call(call), asked))
    }
}

/// One call, and the services that it may use.
struct CallScope<'a> {
    context: CallContext<'a>,
    /// The tool, with its parts.
    spec: &'a Arc<ToolSpec>,
    authorization: Authorization,
    call: ToolRequest,
    /// Held while a person is asked: one question at a time.
    turn: Mutex<()>,
    /// Calls of parts so far.
    made: AtomicUsize,
    /// Calls of parts in flight that may write.
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
                // Boxed: the set reserves room for one future from the start.
                Some(asking) = asked.next() => under_way.push(Box::pin(self.handle(asking))),
            }
        };
        // Their answers are lost, so it is unknown what these parts did.
        if self.writing.load(Ordering::Relaxed) > 0 {
            trace = PartEffect::Unknown;
        }
        outcome.map_err(|error| trace.apply_to(error.into(), self.spec).into())
    }

    /// Handles a message of the call, and returns its effect on the world.
    async fn handle(&self, asking: CallMessage) -> PartEffect {
        // The receiver of a reply may be gone.
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
            CallMessage::Update(update) => {
                self.forward(update);
                PartEffect::None
            }
        }
    }

    /// Forwards an update. A part's handle is dropped: the caller repeats the part instead of
    /// resuming it.
    fn forward(&self, update: CallUpdate) {
        let is_forwarded = !self.authorization.is_part || matches!(update, CallUpdate::Progress(_));
        if let Some(updates) = self.context.updates.filter(|_| is_forwarded) {
            updates.push(self.authorization.call, update);
        }
    }

    async fn ask(&self, kind: QuestionKind) -> Option<Decision> {
        let _turn = self.turn.lock().await;
        let id = QuestionId::of_call(self.authorization.call.node);
        let question = Question { id, step: self.call.step.clone(), kind };
        // No person is asked for a run that has stopped.
        tokio::select! {
            biased;
            () = self.wait_stopped() => None,
            decision = self.context.confirmer.confirm(&question) => decision,
        }
    }

    /// Resolves when the run stops; never for a call that rolls back.
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
                parts: plan::reachable_calls(&part),
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
                Arc::from("the enclosing run")
            });
            let covered = self.authorization.covers_parts;
            return compositions.run(part, args, covered, confirmer, stops).await;
        }
        let permit = gate.enter(&part.id, false).await?;
        if self.is_settling() {
            return Err(code_tools::run_stopped_failure(part).into());
        }
        let tool = registry.get(&part.id).expect("the gate admits only tools of the registry");
        let call = ToolRequest {
            tool: part.id.clone(),
            args,
            // The same code makes the same calls in the same order, so a repeated call gets the
            // same key.
            key: format!("{}/{}", self.call.key, nth + 1).into(),
            overwrites: Overwrites::if_allowed(is_allowed),
            asker: None,
            follows: None,
            ..self.call.clone()
        };
        let covers_parts = part.confirmation_covers_parts(self.authorization.covers_parts);
        let authorization = Authorization { covers_parts, is_part: true, ..self.authorization };
        let outcome = self.context.call(tool, call, authorization).await;
        permit.finish(is_answered(&outcome));
        outcome
    }
}

/// Whether the outcome proves that the tool's source is reachable.
pub(crate) fn is_answered(outcome: &Result<Value, ToolError>) -> bool {
    !matches!(outcome, Err(ToolError::Unreachable { .. } | ToolError::NoAnswer { .. }))
}
