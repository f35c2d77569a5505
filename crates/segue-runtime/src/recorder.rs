//! Writes down what the tools of a run answer, so that a test can tell the run again.
//!
//! A runner around each tool, outside of everything else that stands around it: secrets are taken out
//! by then, and faults have happened.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::run::{Failure, Purpose};
use segue_core::testing::RecordedCall;
use segue_core::value::Value;
use tokio::time::Instant;

use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner, is_fallback};

/// What was written down so far.
#[derive(Clone, Default)]
pub struct Recorder {
    calls: Arc<Mutex<Vec<RecordedCall>>>,
}

impl Recorder {
    /// The calls, in the order in which they were made.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.calls.lock().clone()
    }

    /// The tool, whose answers are written down.
    pub(crate) fn wrap(&self, tool: Tool) -> Tool {
        let runner = RecordingTool { inner: tool.runner, recorder: self.clone() };
        Tool { spec: tool.spec, runner: Arc::new(runner) }
    }

    /// A call leaves; the number is its place.
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
