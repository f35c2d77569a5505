//! One call of one tool outside a run; and compositions that code tools call.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use segue_core::access::Caller;
use segue_core::code_tools;
use segue_core::diagnostic::Code;
use segue_core::plan;
use segue_core::run::{
    CallId, NodeId, Options, Overwrites, Purpose, Question, QuestionId, QuestionKind,
};
use segue_core::tool::{ConfirmPolicy, Impact, ToolSpec};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};

use super::{Engine, EngineError, RunRequest};
use crate::confirm::{Confirmer, DenyAll};
use crate::store::MemoryStore;
use crate::tools::call_scope::{Authorization, CallContext, CompositionRunner, is_answered};
use crate::tools::{Registry, ToolError, ToolRequest};

/// The step name of a call that no step makes.
const STEP: &str = "call";

/// A tool to call.
pub struct CallRequest<'a> {
    /// The tool's id or short name.
    pub tool: &'a str,
    /// Its arguments.
    pub args: Value,
    /// Whether the caller approves every question in advance.
    pub approved: bool,
    /// Answers before a destructive call; [`DenyAll`] denies it.
    pub confirmer: &'a dyn Confirmer,
}

impl<'a> CallRequest<'a> {
    /// A call of this tool. Questions are denied.
    pub fn new(tool: &'a str, args: Value) -> CallRequest<'a> {
        CallRequest { tool, args, approved: false, confirmer: &DenyAll }
    }
}

impl Engine {
    /// Calls one tool once. It asks first where a step of a composition would.
    pub async fn call(&self, request: CallRequest<'_>) -> Result<Value, EngineError> {
        let CallRequest { tool: name, args, approved, confirmer } = request;
        let spec = self.tool(name)?.clone();
        if let Some(violation) = spec.input.violations(&args).first() {
            return Err(EngineError::Arguments { message: violation.to_string() });
        }
        let inner = &self.inner;
        let nested = Nested { engine: self, registry: &inner.registry, caller: None };
        if spec.composition.is_some() {
            let stops = Box::pin(std::future::pending());
            return Ok(nested.run(&spec, args, approved, confirmer, stops).await?);
        }
        let may_ask = !approved && spec.confirm != ConfirmPolicy::Never;
        let asks = may_ask && spec.must_confirm(&args);
        if asks {
            let effect = spec.annotations.impact();
            let question = Question {
                id: QuestionId::of_call(NodeId::RUN),
                step: STEP.into(),
                kind: QuestionKind::Call {
                    tool: spec.id.clone(),
                    args: args.clone(),
                    effect,
                    // A call outside a run is never rolled back.
                    can_roll_back: effect <= Impact::Reads,
                    parts: plan::reachable_calls(&spec),
                    rollback: None,
                },
            };
            let decision = confirmer.confirm(&question).await;
            if !decision.is_some_and(|decision| decision.granted) {
                return Err(ToolError::from(code_tools::not_confirmed_failure(&spec)).into());
            }
        }
        let overwrites = Overwrites::if_allowed(asks || !may_ask);
        let unknown = || EngineError::UnknownTool { name: name.to_owned(), nearest: None };
        let tool = inner.registry.get(&spec.id).ok_or_else(unknown)?;
        let key = inner.ids.ordered_id();
        let call = ToolRequest {
            tool: spec.id.clone(),
            args,
            run_id: key.clone(),
            step: STEP.into(),
            attempt: 1,
            key,
            purpose: Purpose::Work,
            owner: None,
            traceparent: None,
            overwrites,
            asker: None,
            follows: None,
        };
        let context = CallContext {
            registry: &inner.registry,
            catalog: &inner.catalog,
            gate: &inner.gate,
            limits: &inner.limits,
            confirmer,
            compositions: &nested,
            updates: None,
        };
        let covers_parts = spec.confirmation_covers_parts(approved);
        let pass = inner.gate.enter(&spec.id, false).await?;
        let call_id = CallId { node: NodeId::RUN, attempt: 1 };
        let authorization = Authorization { call: call_id, covers_parts, is_part: false };
        let outcome = context.call(tool, call, authorization).await;
        pass.finish(is_answered(&outcome));
        Ok(outcome?)
    }
}

/// Runs compositions for code tools that call them. Such a run is part of the tool's call: its
/// journal ends with the call, and no process resumes it after an interruption.
pub(crate) struct Nested<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) registry: &'a Registry,
    /// The caller of the run that the code is part of.
    pub(crate) caller: Option<Caller>,
}

impl CompositionRunner for Nested<'_> {
    fn run<'a>(
        &'a self,
        composition: &'a ToolSpec,
        args: Value,
        approved: bool,
        confirmer: &'a dyn Confirmer,
        stops: BoxFuture<'a, Arc<str>>,
    ) -> BoxFuture<'a, Result<Value, ToolError>> {
        Box::pin(async move {
            let engine = self.engine;
            let planned =
                composition.composition.as_ref().map(|it| plan::plan(it, engine.limits()));
            let Some(Ok(plan)) = planned else {
                let message = format!("`{}` cannot be planned", composition.id);
                return Err(ToolError::refused(Code::Limit, message));
            };
            let options = Options { approved, ..Options::default() };
            let caller = self.caller.clone();
            let request = RunRequest {
                options,
                caller,
                confirmer,
                cancel: stops,
                ..RunRequest::new(Arc::new(plan), args)
            };
            let expand = |document: &Value| engine.expand(document, self.caller.as_ref());
            let store = MemoryStore::default();
            let run = engine.run_with(request, self.registry, &store, &expand, None);
            match run.await {
                Ok(view) => value_of(&composition.id.to_string(), view),
                Err(error) => Err(ToolError::failed(error.to_string())),
            }
        })
    }
}

/// Translates the view of a run into a tool's answer.
fn value_of(name: &str, view: RunView) -> Result<Value, ToolError> {
    match (view.status, view.errors.first()) {
        (RunStatus::Success, _) => Ok(view.output),
        (RunStatus::Waiting, _) => {
            let message =
                format!("`{name}` waits for a person, and a call made by code cannot wait");
            Err(ToolError::NoAnswer { message })
        }
        (_, Some(error)) if view.errors.iter().any(|error| error.in_doubt) => {
            Err(ToolError::NoAnswer { message: error.message.clone() })
        }
        (_, Some(error)) => Err(ToolError::refused(error.code, error.message.clone())),
        (status, None) => {
            let message = format!("`{name}` ended as {status:?}");
            Err(ToolError::refused(Code::ToolError, message))
        }
    }
}
