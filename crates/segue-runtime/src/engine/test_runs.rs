//! Tests, played: the core decides, and the calls that ask for real tools are made here.

use segue_core::run::Answer;
use segue_core::testing::{TestRun, TestRunResult};

use super::Engine;
use crate::tools::ToolRequest;

impl Engine {
    /// Plays a test to its end.
    pub async fn play(&self, mut play: TestRun<'_>) -> TestRunResult {
        // Tools that count the calls of a run must not take two tests for one.
        let run_id = self.new_run_id();
        while let Some(call) = play.next_call() {
            let tool = self.inner.registry.get(&call.tool);
            let tool = tool.expect("a test really calls only what the check has found");
            let request = ToolRequest {
                tool: call.tool,
                args: call.args,
                run_id: run_id.clone(),
                step: call.step,
                attempt: call.attempt,
                key: call.key,
                purpose: call.purpose,
                owner: None,
                traceparent: None,
                overwrites: call.overwrites,
                asker: None,
                follows: call.resume_handle,
            };
            let answer = match tool.runner.call(request).await {
                Ok(value) => Answer::Value(value),
                Err(error) => Answer::Failure(error.into()),
            };
            play.handle_answer(call.id, answer);
        }
        play.finish()
    }
}
