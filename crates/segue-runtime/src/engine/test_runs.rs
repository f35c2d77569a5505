//! Plays tests: the core decides, and this module makes the calls that a test wants to be real.

use segue_core::run::Answer;
use segue_core::testing::{TestRun, TestRunResult};

use super::Engine;
use crate::tools::ToolRequest;

impl Engine {
    /// Plays a test to its end.
    pub async fn play(&self, mut play: TestRun<'_>) -> TestRunResult {
        // Tools that count the calls of a run must not mistake two tests for one.
        let run_id = self.new_run_id();
        while let Some(call) = play.next_call() {
            let tool = self.inner.registry.get(&call.tool);
            let tool = tool.expect("the check has found every tool that a test really calls");
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
