//! A tool of a server: one call of it, from its arguments to its value.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::value::Value;

use super::calls::pending::{PendingRequest, RpcAnswer};
use super::calls::result::{self as call_result, ParsedResult};
use super::calls::{CallParams, RequestError};
use super::connection::Connection;
use super::definition::Listing;
use super::frames::FrameSink;
use super::server::UpstreamServer;
use super::server_record::ProtocolEra;
use super::task::{self, Task, TaskError, TaskSupport};
use crate::tools::{ToolError, ToolRequest, ToolRunner};

/// Calls with at least this timeout become tasks, where the server leaves the choice to the client.
const TASK_FROM: Duration = Duration::from_mins(1);

/// How often a server may ask a person within one call.
const ROUNDS_MAX: usize = 8;

/// A tool of a server.
pub(super) struct McpTool {
    pub(super) server: Arc<UpstreamServer>,
    pub(super) name: Arc<str>,
    pub(super) pin: Arc<str>,
    pub(super) read_only: bool,
    /// Whether its schema says that some arguments are also sent as headers.
    pub(super) has_headers: bool,
    pub(super) task: TaskSupport,
}

#[async_trait]
impl ToolRunner for McpTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let outcome = self.called_once(call).await;
        self.server.all_secrets().redact_outcome(outcome)
    }

    fn may_ask(&self) -> bool {
        true
    }
}

impl McpTool {
    async fn called_once(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let connection = self.server.connection().await?;
        if let Some(handle) = &call.follows {
            return match task::TaskHandle::found(handle) {
                Some(begun) => Box::pin(self.followed(&call, connection, begun)).await,
                None => {
                    Err(ToolError::NoAnswer { message: format!("{handle} is not a task handle") })
                }
            };
        }
        let listing = self.server.current(&connection).await?;
        self.check_pin(&call, &listing)?;
        let mut answers = None;
        for _ in 0..ROUNDS_MAX {
            let calling = CallParams {
                tool: &self.name,
                args: call.args.clone(),
                has_headers: self.has_headers,
                key: &call.key,
                traceparent: call.traceparent.as_deref(),
                asker: call.asker.clone(),
                answers: answers.take(),
                task_ms: self.task_ms(&connection),
                frames: FrameSink::of(&call.run_id, || self.server.all_secrets()),
            };
            let slot = self.called(&call, &connection, &calling).await?;
            let Some(RpcAnswer::Result(raw)) = slot.answer() else {
                return self.value(slot.answer(), &connection);
            };
            let Ok(called) = ParsedResult::read(raw) else {
                return self.value(slot.answer(), &connection);
            };
            if called.may_be_task()
                && let Some(begun) = task::begun(raw)
            {
                if let Some(asker) = &call.asker {
                    asker.send_handle(begun.handle());
                }
                return Box::pin(self.followed(&call, connection, begun)).await;
            }
            // In the modern era a server asks by answering; it is then called again with the
            // person's answer.
            answers = match called.forms() {
                None => None,
                Some((forms, state)) => {
                    let answering = slot.answer_forms(&self.server.config.name, forms);
                    Box::pin(answering).await.ok().map(|responses| (responses, state))
                }
            };
            if answers.is_none() {
                return self.result(&called, &connection);
            }
        }
        let message = format!("the server asks more than {ROUNDS_MAX} times");
        Err(ToolError::refused(Code::ToolError, message))
    }

    async fn called(
        &self,
        call: &ToolRequest,
        connection: &Connection,
        calling: &CallParams<'_>,
    ) -> Result<Arc<PendingRequest>, ToolError> {
        match connection.calls.call(calling, self.server.timeouts()).await {
            Ok(slot) => Ok(slot),
            Err(RequestError::Unsent(why)) => Err(self.server.unusable(why, None).into()),
            Err(RequestError::NoAnswer(why)) => Err(ToolError::NoAnswer {
                message: format!("`{}` was called and did not answer: {why}", call.tool),
            }),
            Err(RequestError::TimedOut(time)) => Err(self.timed_out(time)),
        }
    }

    /// Refuses the call when the tool's definition differs from the planned one.
    fn check_pin(&self, call: &ToolRequest, listing: &Listing) -> Result<(), ToolError> {
        let message = match listing.tools.get(&self.name) {
            Some(now) if now.pin == self.pin => return Ok(()),
            Some(_) => format!(
                "the server changed the definition of `{}` since it was checked, so it was not \
                 called; `segue tools diff {}` shows the change",
                call.tool, call.tool
            ),
            None => format!("the server no longer offers `{}`", call.tool),
        };
        Err(ToolError::refused(Code::DefinitionChanged, message))
    }

    /// The lifetime of the task that a call should become, if any. Where the server leaves the
    /// choice, long calls become tasks: a request that stays open for minutes is easily lost.
    fn task_ms(&self, connection: &Connection) -> Option<u64> {
        let patience = self.server.timeouts();
        let wanted = match self.task {
            TaskSupport::Forbidden => false,
            TaskSupport::Optional => connection.takes_tasks() && patience.idle > TASK_FROM,
            TaskSupport::Required => true,
        };
        (wanted && connection.era == ProtocolEra::Legacy)
            .then(|| u64::try_from(patience.total.as_millis()).unwrap_or(u64::MAX))
    }

    /// The value of a call that the server made into a task.
    async fn followed(
        &self,
        call: &ToolRequest,
        connection: Arc<Connection>,
        begun: task::TaskHandle,
    ) -> Result<Value, ToolError> {
        let server = self.server.config.name.clone();
        let (asker, patience) = (call.asker.clone(), self.server.timeouts());
        let task = Task::new(connection.clone(), server.clone(), asker, patience, begun);
        match task.wait_for_end().await {
            Ok(answer) => self.value(Some(&answer), &connection),
            Err(TaskError::TimedOut(time)) => Err(self.timed_out(time)),
            Err(TaskError::NoAnswer(why)) => Err(ToolError::NoAnswer {
                message: format!("`{}` started a task and its result is unknown: {why}", call.tool),
            }),
            Err(TaskError::Unknown(why)) => Err(ToolError::NoAnswer {
                message: format!("the server no longer knows its task: {why}"),
            }),
            Err(TaskError::Declined(wanted)) => Err(call_result::declined(&server, &wanted)),
            Err(TaskError::Cancelled) => {
                Err(self.unknown_outcome(Code::ToolError, format!("`{server}` cancelled its task")))
            }
        }
    }

    /// The value of an answer.
    fn result(
        &self,
        called: &ParsedResult<'_>,
        connection: &Connection,
    ) -> Result<Value, ToolError> {
        let server = &self.server.config.name;
        let value = called.value(server, &self.server.limits);
        // A tool that failed after its question was declined failed because of that.
        match (value, connection.take_declined()) {
            (Err(ToolError::Refused { message, code: Code::ToolError, .. }), Some(asked)) => {
                let ToolError::Refused { code, message: why, retryable } =
                    call_result::declined(server, &asked)
                else {
                    return Err(ToolError::failed(message));
                };
                let message = format!("{message} ({why})");
                Err(ToolError::Refused { code, message, retryable })
            }
            (value, _) => value,
        }
    }

    fn value(
        &self,
        answer: Option<&RpcAnswer>,
        connection: &Connection,
    ) -> Result<Value, ToolError> {
        let server = &self.server.config.name;
        let limits = &self.server.limits;
        if let Some(RpcAnswer::Result(raw)) = answer {
            let called =
                ParsedResult::read(raw).map_err(|error| call_result::malformed(server, &error))?;
            return self.result(&called, connection);
        }
        // A question of an earlier call does not concern this one.
        connection.take_declined();
        match answer {
            Some(RpcAnswer::Error { code, message }) => {
                // Wrong parameters and unknown tools stay wrong.
                let retryable = !matches!(code, -32602 | -32601 | -32600 | 400..=499);
                let message = format!("{message} ({code})");
                Err(ToolError::Refused { code: Code::ToolError, message, retryable })
            }
            Some(RpcAnswer::TooLarge) => Err(ToolError::refused(
                Code::Limit,
                format!("the answer is over the limit of {} bytes", limits.mcp_message_bytes_max),
            )),
            Some(RpcAnswer::Malformed(why)) => Err(call_result::malformed(server, why)),
            Some(RpcAnswer::Lost(why)) => Err(ToolError::NoAnswer { message: why.clone() }),
            Some(RpcAnswer::Result(_)) | None => {
                Err(ToolError::NoAnswer { message: "there is no answer".to_owned() })
            }
        }
    }

    /// The failure of a call that timed out.
    fn timed_out(&self, time: Duration) -> ToolError {
        self.unknown_outcome(Code::Timeout, format!("no answer within {} ms", time.as_millis()))
    }

    /// The failure of a call without an outcome: a tool that only reads has changed nothing.
    fn unknown_outcome(&self, code: Code, message: String) -> ToolError {
        if self.read_only {
            return ToolError::Refused { code, message, retryable: true };
        }
        ToolError::NoAnswer { message }
    }
}
