//! `echo`, `fail` and `sleep`: what tests and examples are made of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::value::Value;

use super::BuiltinSpec;
use super::args::ToolArgs;
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};

const ECHO: BuiltinSpec = BuiltinSpec::reads(
    "echo",
    "Returns its arguments unchanged",
    r#"{"type":"object"}"#,
    r#"{"type":"object"}"#,
);

const FAIL: BuiltinSpec = BuiltinSpec::reads(
    "fail",
    "Fails its first `times` calls by a step of a run (always, when absent), then returns `value`",
    r#"{"type":"object","additionalProperties":false,"properties":{
        "times":{"type":"integer","minimum":0,"description":"calls that fail; all of them when absent"},
        "message":{"type":"string","description":"the message of the failure"},
        "value":{"description":"what is returned afterwards"}}}"#,
    r#"{"type":"object","required":["value"],"additionalProperties":false,"properties":{"value":{}}}"#,
);

const SLEEP: BuiltinSpec = BuiltinSpec::reads(
    "sleep",
    "Waits for a number of milliseconds, at most an hour",
    r#"{"type":"object","required":["ms"],"additionalProperties":false,"properties":{
        "ms":{"type":"integer","minimum":0,"maximum":3600000},
        "value":{"description":"what is returned afterwards"}}}"#,
    r#"{"type":"object","required":["slept_ms","value"],"additionalProperties":false,"properties":{
        "slept_ms":{"type":"integer"},"value":{}}}"#,
);

/// The longest sleep.
const SLEEP_MS_MAX: u64 = 3_600_000;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        ECHO.tool(Arc::new(Echo)),
        FAIL.tool(Arc::new(Fail::default())),
        SLEEP.tool(Arc::new(Sleep)),
    ]
}

struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

/// Counters that `fail` keeps; the oldest goes first.
const COUNTERS_MAX: usize = 10_000;

#[derive(Default)]
struct Fail {
    calls: Mutex<Calls>,
}

/// How often each step of a run has called.
#[derive(Default)]
struct Calls {
    by_step: BTreeMap<(Arc<str>, Arc<str>), u64>,
    oldest_first: VecDeque<(Arc<str>, Arc<str>)>,
}

impl Calls {
    fn count(&mut self, call: &ToolRequest) -> u64 {
        let step = (call.run_id.clone(), call.step.clone());
        if !self.by_step.contains_key(&step) {
            self.oldest_first.push_back(step.clone());
            if self.oldest_first.len() > COUNTERS_MAX
                && let Some(oldest) = self.oldest_first.pop_front()
            {
                self.by_step.remove(&oldest);
            }
        }
        let count = self.by_step.entry(step).or_default();
        *count += 1;
        // The attempt is in the journal and survives a restart, which the counter does not.
        u64::from(call.attempt).max(*count)
    }
}

#[async_trait]
impl ToolRunner for Fail {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let args = ToolArgs(&call.args);
        let count = self.calls.lock().count(&call);
        if args.count("times")?.is_none_or(|times| count <= times) {
            return Err(ToolError::failed(args.text_or("message", "failed as asked")?));
        }
        Ok(Value::object([("value", args.value("value").cloned().unwrap_or_default())]))
    }
}

struct Sleep;

#[async_trait]
impl ToolRunner for Sleep {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let args = ToolArgs(&call.args);
        let ms = args.count("ms")?.unwrap_or(0).min(SLEEP_MS_MAX);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let value = args.value("value").cloned().unwrap_or_default();
        Ok(Value::object([("slept_ms", Value::from(ms)), ("value", value)]))
    }
}
