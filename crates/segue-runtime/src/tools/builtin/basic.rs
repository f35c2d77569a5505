//! `echo`, `fail` and `sleep`, for tests and examples.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lru::LruCache;
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

/// How many counters `fail` keeps; the least recently used one is dropped first.
const COUNTERS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// The id of a run, and the id of a step.
type StepOfRun = (Arc<str>, Arc<str>);

/// How many calls each step of a run has made.
struct Fail {
    calls: Mutex<LruCache<StepOfRun, u64>>,
}

impl Default for Fail {
    fn default() -> Fail {
        Fail { calls: Mutex::new(LruCache::new(COUNTERS_MAX)) }
    }
}

impl Fail {
    fn count(&self, call: &ToolRequest) -> u64 {
        let mut calls = self.calls.lock();
        let count = calls.get_or_insert_mut((call.run_id.clone(), call.step.clone()), || 0);
        *count += 1;
        // The attempt is in the journal and survives a restart; the counter does not.
        u64::from(call.attempt).max(*count)
    }
}

#[async_trait]
impl ToolRunner for Fail {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let args = ToolArgs(&call.args);
        let count = self.count(&call);
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

#[cfg(test)]
mod tests {
    use segue_core::id::ToolId;
    use segue_core::run::{Overwrites, Purpose};

    use super::*;

    fn call(run_id: usize) -> ToolRequest {
        ToolRequest {
            tool: ToolId::new("builtin", "fail"),
            args: Value::empty_object(),
            run_id: run_id.to_string().into(),
            step: "a".into(),
            attempt: 1,
            key: "k".into(),
            purpose: Purpose::Work,
            owner: None,
            traceparent: None,
            overwrites: Overwrites::if_allowed(false),
            asker: None,
            follows: None,
        }
    }

    /// A full cache keeps the newest counter and forgets the one that was used least recently.
    #[test]
    fn the_newest_counter_is_kept() {
        let fail = Fail::default();
        (0..=COUNTERS_MAX.get()).for_each(|run_id| assert_eq!(fail.count(&call(run_id)), 1));
        assert_eq!(fail.count(&call(COUNTERS_MAX.get())), 2);
        assert_eq!(fail.count(&call(0)), 1, "forgotten");
    }
}
