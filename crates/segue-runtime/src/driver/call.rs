//! One call that is under way: it waits for its answer, the end of its time or its own end.

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

use super::local::Completion;
use crate::store::Measured;
use crate::tools::call_scope::{Authorization, CallContext};
use crate::tools::call_updates::CallUpdates;
use crate::tools::gate::Permit;
use crate::tools::{self, ToolError};

/// Whose call it is: the run, whose that is, and where the call stands in its trace.
pub(super) struct CallOrigin {
    pub(super) run_id: Arc<str>,
    pub(super) owner: Option<Arc<str>>,
    pub(super) traceparent: Option<Arc<str>>,
}

/// Waits for a call's turn, and makes it.
pub(super) async fn wait_and_send(
    around: CallContext<'_>,
    whose: CallOrigin,
    call: Call,
    is_retry: bool,
    mut ended: oneshot::Receiver<CallEnd>,
) -> Completion {
    let pass = tokio::select! {
        biased;
        // First: what is ended here must not leave with the slot that another one's end has freed.
        Ok(_) = &mut ended => return unsent(call.id, Answer::Unsent),
        pass = around.gate.enter(&call.tool, is_retry) => pass,
    };
    match pass {
        Ok(pass) => send(around, whose, call, pass, ended).await,
        Err(error) => unsent(call.id, Answer::Failure(error.into())),
    }
}

/// The answer of a call that never left.
pub(super) fn unsent(call: CallId, answer: Answer) -> Completion {
    Completion::Answered(EventKind::Answered { call, answer }, None)
}

/// Makes a call that may leave.
pub(super) fn send<'a>(
    around: CallContext<'a>,
    whose: CallOrigin,
    call: Call,
    pass: Permit<'a>,
    ended: oneshot::Receiver<CallEnd>,
) -> CallFuture<'a> {
    let Call { id, tool, args, timeout_ms, key, step, attempt, purpose, .. } = call;
    let Call { covers_parts, overwrites, resume_handle: follows, .. } = call;
    let known = around.registry.get(&tool).expect("the gate lets through what the registry has");
    let CallOrigin { run_id, owner, traceparent } = whose;
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
    let standing = Authorization { call: id, covers_parts, is_part: false };
    let work = around.call(known, request, standing);
    let has_schema = known.spec.output.is_some();
    CallFuture {
        id,
        tool,
        has_schema,
        work,
        timeout_ms,
        timer: None,
        pass: Some(pass),
        ended,
        has_left: false,
        updates: around.updates,
    }
}

/// How the run of a call ends before the call does.
pub(super) enum CallEnd {
    /// Its answer is awaited, until it is abandoned this way.
    Settles(oneshot::Receiver<CallEnd>),
    /// Nobody waits for its answer.
    Abandoned,
}

/// A call that is under way. It waits for the answer, the end of its time or its own end, whichever
/// is first. Dropping the runner's future is what ends it.
pub(super) struct CallFuture<'a> {
    id: CallId,
    tool: ToolId,
    has_schema: bool,
    work: BoxFuture<'a, Result<Value, ToolError>>,
    timeout_ms: Option<u64>,
    /// Set when it leaves: its time counts from then, not from when it queues.
    timer: Option<Pin<Box<Sleep>>>,
    pass: Option<Permit<'a>>,
    ended: oneshot::Receiver<CallEnd>,
    has_left: bool,
    updates: Option<&'a Arc<CallUpdates>>,
}

impl Future for CallFuture<'_> {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
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
                self.updates.into_iter().for_each(|updates| updates.unmark_findable(self.id));
                Answer::TimedOut
            }
            Ok(Poll::Pending) => {
                // Ended by us: it says nothing about the tool.
                return self.poll_ended(cx).map(|()| unsent(self.id, Answer::Aborted));
            }
        };
        Poll::Ready(self.answered(answer))
    }
}

impl CallFuture<'_> {
    /// Whether it is abandoned; one that settles goes on.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.ended.poll_unpin(cx) {
                Poll::Ready(Ok(CallEnd::Settles(ended))) => self.ended = ended,
                Poll::Ready(Ok(CallEnd::Abandoned) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether its time is over.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timeout) = self.timeout_ms else { return false };
        let sleep = || Box::pin(tokio::time::sleep(Duration::from_millis(timeout)));
        self.timer.get_or_insert_with(sleep).poll_unpin(cx).is_ready()
    }

    fn answered(&mut self, answer: Answer) -> Completion {
        let measured = self.pass.take().map(|pass| Measured {
            tool: self.tool.clone(),
            has_schema: self.has_schema,
            took: pass.finish(is_answered(&answer)),
            result: match &answer {
                Answer::Value(value) => Ok(value.clone()),
                Answer::Failure(failure) => Err(failure.code),
                Answer::TimedOut | Answer::Aborted | Answer::Unsent => Err(Code::Timeout),
            },
        });
        Completion::Answered(EventKind::Answered { call: self.id, answer }, measured)
    }
}

/// Whether the tool's source has shown that it is there.
fn is_answered(answer: &Answer) -> bool {
    match answer {
        Answer::Value(_) => true,
        Answer::Failure(failure) => !matches!(failure.code, Code::Unreachable | Code::InDoubt),
        Answer::TimedOut | Answer::Aborted | Answer::Unsent => false,
    }
}

/// What a panic leaves behind.
type Panic = Box<dyn std::any::Any + Send>;

/// What a runner's word, or its panic, means.
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
