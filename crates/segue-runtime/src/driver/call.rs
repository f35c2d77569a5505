//! One call in flight: a future that ends with an answer, at its timeout, or when the run aborts it.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::run::{Answer, Call, CallId, EventKind, Failure};
use segue_core::value::Value;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::local::DriverEvent;
use crate::store::Measured;
use crate::tools::call_scope::{Authorization, CallContext};
use crate::tools::call_updates::CallUpdates;
use crate::tools::gate::Permit;
use crate::tools::{self, ToolError};

/// Where a call comes from: its run, the run's owner, and its parent in the trace.
pub(super) struct CallOrigin {
    pub(super) run_id: Arc<str>,
    pub(super) owner: Option<Arc<str>>,
    pub(super) traceparent: Option<Arc<str>>,
}

/// Waits for a permit of the gate, then sends the call.
pub(super) async fn wait_and_send(
    context: CallContext<'_>,
    origin: CallOrigin,
    call: Call,
    is_retry: bool,
    mut ended: oneshot::Receiver<CallEnd>,
) -> DriverEvent {
    let permit = tokio::select! {
        biased;
        // Polled first: a call aborted here must not take the slot that another aborted call has
        // freed.
        Ok(_) = &mut ended => return unsent(call.id, Answer::Unsent),
        permit = context.gate.enter(&call.tool, is_retry) => permit,
    };
    match permit {
        Ok(permit) => send(context, origin, call, permit, ended).await,
        Err(error) => unsent(call.id, Answer::Failure(error.into())),
    }
}

/// The completion of a call that was never sent.
pub(super) fn unsent(call: CallId, answer: Answer) -> DriverEvent {
    DriverEvent::Answered(EventKind::Answered { call, answer }, None)
}

/// Sends a call that holds its permit.
pub(super) fn send<'a>(
    context: CallContext<'a>,
    origin: CallOrigin,
    call: Call,
    permit: Permit<'a>,
    ended: oneshot::Receiver<CallEnd>,
) -> CallFuture<'a> {
    let Call { id, tool, args, timeout_ms, key, step, attempt, purpose, .. } = call;
    let Call { covers_parts, overwrites, resume_handle: follows, .. } = call;
    let known = context.registry.get(&tool).expect("the gate admits only tools of the registry");
    let CallOrigin { run_id, owner, traceparent } = origin;
    let request = tools::ToolRequest {
        tool: tool.clone(),
        args,
        run_id,
        step,
        attempt,
        key,
        purpose,
        owner,
        traceparent,
        overwrites,
        asker: None,
        follows,
    };
    let authorization = Authorization { call: id, covers_parts, is_part: false };
    let work = context.call(known, request, authorization);
    let has_schema = known.spec.output.is_some();
    CallFuture {
        id,
        tool,
        has_schema,
        work,
        timeout_ms,
        timer: None,
        permit: Some(permit),
        ended,
        has_left: false,
        updates: context.updates,
    }
}

/// How a run ends a call before its answer.
pub(super) enum CallEnd {
    /// The run still waits for the answer, until this receiver abandons the call.
    Settles(oneshot::Receiver<CallEnd>),
    /// The run does not wait for the answer.
    Abandoned,
}

/// A call in flight. It ends with the answer, at its timeout, or when the run aborts it, whichever
/// comes first. Dropping the runner's future aborts the call.
pub(super) struct CallFuture<'a> {
    id: CallId,
    tool: ToolId,
    has_schema: bool,
    work: BoxFuture<'a, Result<Value, ToolError>>,
    timeout_ms: Option<u64>,
    /// Set when the call is sent: time in the queue does not count.
    timer: Option<Pin<Box<Sleep>>>,
    permit: Option<Permit<'a>>,
    ended: oneshot::Receiver<CallEnd>,
    has_left: bool,
    updates: Option<&'a Arc<CallUpdates>>,
}

impl Future for CallFuture<'_> {
    type Output = DriverEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DriverEvent> {
        if !self.has_left && self.ended.try_recv().is_ok() {
            return Poll::Ready(unsent(self.id, Answer::Unsent));
        }
        self.has_left = true;
        // A panic in a tool fails that call alone.
        let work = std::panic::catch_unwind(AssertUnwindSafe(|| self.work.poll_unpin(cx)));
        let answer = match work {
            Ok(Poll::Ready(outcome)) => answer(Ok(outcome)),
            Err(panic) => answer(Err(panic)),
            Ok(Poll::Pending) if self.is_late(cx) => {
                // The runner then tells the server to stop its work.
                self.updates.into_iter().for_each(|updates| updates.unmark_findable(self.id));
                Answer::TimedOut
            }
            Ok(Poll::Pending) => {
                // The run aborted the call, which says nothing about the tool.
                return self.poll_ended(cx).map(|()| unsent(self.id, Answer::Aborted));
            }
        };
        Poll::Ready(self.answered(answer))
    }
}

impl CallFuture<'_> {
    /// Ready when the run abandons the call; a call that settles continues.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.ended.poll_unpin(cx) {
                Poll::Ready(Ok(CallEnd::Settles(ended))) => self.ended = ended,
                Poll::Ready(Ok(CallEnd::Abandoned) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the call has timed out.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timeout) = self.timeout_ms else { return false };
        let sleep = || Box::pin(tokio::time::sleep(Duration::from_millis(timeout)));
        self.timer.get_or_insert_with(sleep).poll_unpin(cx).is_ready()
    }

    fn answered(&mut self, answer: Answer) -> DriverEvent {
        let measured = self.permit.take().map(|permit| Measured {
            tool: self.tool.clone(),
            has_schema: self.has_schema,
            took: permit.finish(is_answered(&answer)),
            result: match &answer {
                Answer::Value(value) => Ok(value.clone()),
                Answer::Failure(failure) => Err(failure.code),
                Answer::TimedOut | Answer::Aborted | Answer::Unsent => Err(Code::Timeout),
            },
        });
        DriverEvent::Answered(EventKind::Answered { call: self.id, answer }, measured)
    }
}

/// Whether the answer proves that the tool's source is reachable.
fn is_answered(answer: &Answer) -> bool {
    match answer {
        Answer::Value(_) => true,
        Answer::Failure(failure) => !matches!(failure.code, Code::Unreachable | Code::InDoubt),
        Answer::TimedOut | Answer::Aborted | Answer::Unsent => false,
    }
}

/// The payload of a panic.
type Panic = Box<dyn std::any::Any + Send>;

/// Translates a runner's result, or its panic, into an answer.
fn answer(outcome: Result<Result<Value, ToolError>, Panic>) -> Answer {
    match outcome {
        Ok(Ok(value)) => Answer::Value(value),
        Ok(Err(error)) => Answer::Failure(error.into()),
        Err(_) => {
            let mut failure = Failure::permanent(Code::Internal, "the tool's own code panicked");
            failure.in_doubt = true;
            Answer::Failure(failure)
        }
    }
}
