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
use segue_core::composed::{self, Caller, PartCall, PartEnd, Trace};
use segue_core::limits::Limits;
use segue_core::run::{CallId, Overwrites, Purpose, Question, QuestionId, QuestionKind};
use segue_core::tool::{Catalog, Confirm, Impact, ToolSpec};
use segue_core::value::Value;
use tokio::sync::Mutex;

use super::ask::{Asker, Asking};
use super::gate::Gate;
use super::notes::{Note, Notes};
use super::{Call, Registry, Tool, ToolError};
use crate::driver::{Confirmer, Decision};

/// Runs a composition that is a part.
pub(crate) trait Compositions: Send + Sync {
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
pub(crate) struct Around<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) catalog: &'a Catalog,
    pub(crate) gate: &'a Gate,
    pub(crate) limits: &'a Limits,
    pub(crate) confirmer: &'a dyn Confirmer,
    pub(crate) compositions: &'a dyn Compositions,
    /// Where calls of a run leave what they tell of themselves.
    pub(crate) notes: Option<&'a Arc<Notes>>,
}

/// Whose call it is, and what was allowed with it.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    /// The step's call.
    pub(crate) call: CallId,
    /// Whether calls of its parts are allowed, too.
    pub(crate) covers_parts: bool,
    /// Whether it is one of its parts.
    pub(crate) is_part: bool,
}

impl<'a> Around<'a> {
    /// Makes a call that may leave.
    pub(crate) fn make(
        self,
        tool: &'a Tool,
        mut call: Call,
        standing: Standing,
    ) -> BoxFuture<'a, Result<Value, ToolError>> {
        if !tool.runner.may_ask() {
            return tool.runner.call(call);
        }
        let of = self.notes.filter(|_| !standing.is_part);
        let (asker, asked) = Asker::pair(of.map(|notes| (notes.clone(), standing.call)));
        call.asker = Some(asker);
        let reach = Reach {
            around: self,
            spec: self.catalog.get(&call.tool).unwrap_or(&tool.spec),
            standing,
            call: call.clone(),
            turn: Mutex::new(()),
            made: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
        };
        Box::pin(reach.serve(tool.runner.call(call), asked))
    }
}

/// One call, seen from where it gets what it asks for.
struct Reach<'a> {
    around: Around<'a>,
    /// The tool, with its parts.
    spec: &'a Arc<ToolSpec>,
    standing: Standing,
    call: Call,
    /// Held by whoever asks a person: there is one question at a time.
    turn: Mutex<()>,
    /// Calls of parts so far.
    made: AtomicUsize,
    /// Those under way that change something.
    writing: AtomicUsize,
}

impl<'a> Reach<'a> {
    async fn serve(
        self,
        mut work: BoxFuture<'a, Result<Value, ToolError>>,
        mut asked: UnboundedReceiver<Asking>,
    ) -> Result<Value, ToolError> {
        let mut under_way = FuturesUnordered::new();
        let mut trace = Trace::None;
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut work => break outcome,
                Some(left) = under_way.next(), if !under_way.is_empty() => trace = trace.max(left),
                // Apart: the set has room for one from the beginning.
                Some(asking) = asked.next() => under_way.push(Box::pin(self.give(asking))),
            }
        };
        // Nobody will hear what they answer.
        if self.writing.load(Ordering::Relaxed) > 0 {
            trace = Trace::Unknown;
        }
        outcome.map_err(|error| trace.weigh(error.into(), self.spec).into())
    }

    /// Gives what is asked for, and says what that leaves behind.
    async fn give(&self, asking: Asking) -> Trace {
        // Whoever asked may have gone; then nobody hears the answer.
        match asking {
            Asking::Person { message, schema, reply } => {
                let kind = QuestionKind::Approval { message, schema: Some(schema) };
                let _ = reply.send(self.ask(kind).await);
                Trace::None
            }
            Asking::Part { name, args, reply } => {
                let (outcome, trace) = self.call_part(&name, args).await;
                let _ = reply.send(outcome);
                trace
            }
            Asking::Nothing(note) => {
                self.note(note);
                Trace::None
            }
        }
    }

    /// A part is not looked for: its caller makes it again.
    fn note(&self, note: Note) {
        let is_told = !self.standing.is_part || matches!(note, Note::Progress(_));
        if let Some(notes) = self.around.notes.filter(|_| is_told) {
            notes.leave(self.standing.call, note);
        }
    }

    async fn ask(&self, kind: QuestionKind) -> Option<Decision> {
        let _turn = self.turn.lock().await;
        let id = QuestionId::of_call(self.standing.call.node);
        let question = Question { id, step: self.call.step.clone(), kind };
        // Nobody is asked for a run that has stopped.
        tokio::select! {
            biased;
            () = self.settling() => None,
            decision = self.around.confirmer.confirm(&question) => decision,
        }
    }

    /// Comes when the run has stopped; never for a call that takes something back.
    async fn settling(&self) {
        match self.around.notes {
            Some(notes) => notes.settling(self.standing.call).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the run has stopped, so that nothing new starts.
    fn is_settling(&self) -> bool {
        self.around.notes.is_some_and(|notes| notes.is_settling(self.standing.call))
    }

    async fn call_part(&self, name: &str, args: Value) -> (Result<Value, ToolError>, Trace) {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        let caller = Caller {
            tool: self.spec,
            catalog: self.around.catalog,
            covered: self.standing.covers_parts,
            takes_back: self.call.purpose == Purpose::Undo,
            made: nth,
            max: self.around.limits.part_calls_max,
        };
        let PartCall { part, asks } = match composed::part_call(caller, name, &args) {
            Ok(call) => call,
            Err(failure) => return (Err(failure.into()), Trace::None),
        };
        if asks {
            let effect = part.annotations.impact();
            let kind = QuestionKind::Call {
                tool: part.id.clone(),
                args: args.clone(),
                effect,
                is_undoable: effect <= Impact::Reads || part.is_undoable(),
                parts: composed::declared(&part),
                undo: None,
            };
            if !self.ask(kind).await.is_some_and(|decision| decision.granted) {
                return (Err(composed::not_confirmed(&part).into()), Trace::None);
            }
        }
        let writes = usize::from(Trace::of(&part, PartEnd::Unknown) == Trace::Unknown);
        self.writing.fetch_add(writes, Ordering::Relaxed);
        let is_allowed = asks || self.standing.covers_parts || part.confirm == Confirm::Never;
        let outcome = self.make_part(&part, args, nth, is_allowed).await;
        self.writing.fetch_sub(writes, Ordering::Relaxed);
        let end = match &outcome {
            Ok(_) => PartEnd::Answered,
            Err(ToolError::Silent { .. }) => PartEnd::Unknown,
            Err(_) => PartEnd::Refused,
        };
        let checked = outcome.and_then(|value| {
            composed::check_value(&part, &value)?;
            Ok(value)
        });
        (checked, Trace::of(&part, end))
    }

    async fn make_part(
        &self,
        part: &Arc<ToolSpec>,
        args: Value,
        nth: usize,
        is_allowed: bool,
    ) -> Result<Value, ToolError> {
        let Around { registry, gate, compositions, confirmer, .. } = self.around;
        if self.is_settling() {
            return Err(composed::run_stopped(part).into());
        }
        if part.composition.is_some() {
            let stops = Box::pin(async {
                self.settling().await;
                Arc::from("the run around it")
            });
            let covered = self.standing.covers_parts;
            return compositions.run(part, args, covered, confirmer, stops).await;
        }
        let pass = gate.enter(&part.id, false).await?;
        if self.is_settling() {
            return Err(composed::run_stopped(part).into());
        }
        let tool = registry.get(&part.id).expect("the gate lets through what the registry has");
        let call = Call {
            tool: part.id.clone(),
            args,
            // The same code makes the same calls in the same order, so a repeated one is known.
            key: format!("{}/{}", self.call.key, nth + 1).into(),
            overwrites: Overwrites::if_allowed(is_allowed),
            asker: None,
            follows: None,
            ..self.call.clone()
        };
        let covers_parts = composed::covers(part, self.standing.covers_parts);
        let standing = Standing { covers_parts, is_part: true, ..self.standing };
        let outcome = self.around.make(tool, call, standing).await;
        pass.settle(is_heard(&outcome));
        outcome
    }
}

/// Whether a tool's source has shown that it is there.
pub(crate) fn is_heard(outcome: &Result<Value, ToolError>) -> bool {
    !matches!(outcome, Err(ToolError::Unreachable { .. } | ToolError::Silent { .. }))
}
