//! Who did what, in a line for programs.

use segue_core::access::Principal;
use segue_core::value::Value;
use segue_core::view::rfc3339;
use segue_runtime::driver::now_ms;

/// The line: who did what, to what, in which run, and what came of it.
pub fn line(who: &Principal, what: &str, to: &str, run_id: Option<&str>, status: Value) -> String {
    Value::object([
        ("audit", Value::from(rfc3339(now_ms()))),
        ("who", Value::from(&*who.name)),
        ("what", Value::from(what)),
        ("path", Value::from(to)),
        ("run_id", run_id.map_or(Value::Null, Value::from)),
        ("status", status),
    ])
    .to_json()
}
