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

use super::local::Happened;
use crate::store::Measured;
use crate::tools::gate::Pass;
use crate::tools::notes::Notes;
use crate::tools::reach::{Around, Standing};
use crate::tools::{self, ToolError};

/// Whose call it is: the run, whose that is, and where the call stands in its trace.
pub(super) struct Whose {
    pub(super) run_id: Arc<str>,
    pub(super) owner: Option<Arc<str>>,
    pub(super) traceparent: Option<Arc<str>>,
}

/// Waits for a call's turn, and makes it.
pub(super) async fn queue(
    around: Around<'_>,
    whose: Whose,
    call: Call,
    is_retry: bool,
    mut ended: oneshot::Receiver<Ending>,
) -> Happened {
    let pass = tokio::select! {
        biased;
        // First: what is ended here must not leave with the slot that another one's end has freed.
        Ok(_) = &mut ended => return unsent(call.id, Answer::Unsent),
        pass = around.gate.enter(&call.tool, is_retry) => pass,
    };
    match pass {
        Ok(pass) => leave(around, whose, call, pass, ended).await,
        Err(error) => unsent(call.id, Answer::Failure(error.into())),
    }
}

/// The answer of a call that never left.
pub(super) fn unsent(call: CallId, answer: Answer) -> Happened {
    Happened::Answered(EventKind::Answered { call, answer }, None)
}

/// Makes a call that may leave.
pub(super) fn leave<'a>(
    around: Around<'a>,
    whose: Whose,
    call: Call,
    pass: Pass<'a>,
    ended: oneshot::Receiver<Ending>,
) -> Calling<'a> {
    let Call { id, tool, args, timeout_ms, key, step, attempt, purpose, .. } = call;
    let Call { covers_parts, overwrites, follows, .. } = call;
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
        overwrites,
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

/// How the run of a call ends before the call does.
pub(super) enum Ending {
    /// Its answer is awaited, until it is abandoned this way.
    Settles(oneshot::Receiver<Ending>),
    /// Nobody waits for its answer.
    Abandoned,
}

/// A call that is under way. It waits for the answer, the end of its time or its own end, whichever
/// is first. Dropping the runner's future is what ends it.
pub(super) struct Calling<'a> {
    id: CallId,
    tool: ToolId,
    has_schema: bool,
    work: BoxFuture<'a, Result<Value, ToolError>>,
    timeout_ms: Option<u64>,
    /// Set when it leaves: its time counts from then, not from when it queues.
    timer: Option<Pin<Box<Sleep>>>,
    pass: Option<Pass<'a>>,
    ended: oneshot::Receiver<Ending>,
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
                return self.poll_ended(cx).map(|()| unsent(self.id, Answer::Ended));
            }
        };
        Poll::Ready(self.answered(answer))
    }
}

impl Calling<'_> {
    /// Whether it is abandoned; one that settles goes on.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.ended.poll_unpin(cx) {
                Poll::Ready(Ok(Ending::Settles(ended))) => self.ended = ended,
                Poll::Ready(Ok(Ending::Abandoned) | Err(_)) => return Poll::Ready(()),
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

/// What a panic leaves behind.
type Panic = Box<dyn std::any::Any + Send>;

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
