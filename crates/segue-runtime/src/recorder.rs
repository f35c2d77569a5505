//! Records every tool answer of a run, so that a test can replay the run.
//!
//! `Recorder::wrap` puts the outermost runner around each tool: it sees answers after redaction
//! and after injected faults.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::run::{Failure, Purpose};
use segue_core::testing::RecordedCall;
use segue_core::value::Value;
use tokio::time::Instant;

use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner, is_fallback};

/// The calls recorded so far.
#[derive(Clone, Default)]
pub struct Recorder {
    calls: Arc<Mutex<Vec<RecordedCall>>>,
}

impl Recorder {
    /// The calls, in the order in which they were made.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.calls.lock().clone()
    }

    /// Returns the tool with a runner that records its answers.
    pub(crate) fn wrap(&self, tool: Tool) -> Tool {
        let runner = RecordingTool { inner: tool.runner, recorder: self.clone() };
        Tool { spec: tool.spec, runner: Arc::new(runner) }
    }

    /// Records a call that starts, and returns its index.
    fn called(&self, call: &ToolRequest) -> usize {
        let mut calls = self.calls.lock();
        calls.push(RecordedCall {
            tool: call.tool.clone(),
            step: call.step.clone(),
            is_own: call.purpose == Purpose::Work && !is_fallback(call),
            purpose: call.purpose,
            answer: None,
            took_ms: 0,
        });
        calls.len() - 1
    }

    fn answered(&self, place: usize, answer: &Result<Value, ToolError>, since: Instant) {
        let mut calls = self.calls.lock();
        let call = &mut calls[place];
        call.answer = Some(answer.clone().map_err(Failure::from));
        call.took_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    }
}

struct RecordingTool {
    inner: Arc<dyn ToolRunner>,
    recorder: Recorder,
}

#[async_trait]
impl ToolRunner for RecordingTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let (place, since) = (self.recorder.called(&call), Instant::now());
        let answer = self.inner.call(call).await;
        self.recorder.answered(place, &answer, since);
        answer
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}
