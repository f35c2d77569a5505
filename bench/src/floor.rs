//! What one would write by hand, without an engine.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::value::{Map, Value};

/// A step of the layered graph: its name and the names that it needs.
pub(crate) struct FloorStep {
    pub(crate) id: String,
    pub(crate) needs: Vec<String>,
}

/// The layered graph: `width` steps a layer, three needs each.
pub(crate) fn layered(steps: usize, width: usize) -> Vec<FloorStep> {
    (0..steps)
        .map(|at| {
            let layer = at / width;
            let needs = if layer == 0 {
                Vec::new()
            } else {
                (0..3)
                    .map(|n| format!("s{}", (layer - 1) * width + (at * 7 + n * 3) % width))
                    .collect()
            };
            FloorStep { id: format!("s{at}"), needs }
        })
        .collect()
}

/// Names → positions, who waits for whom, and one valid order.
pub(crate) fn plan(steps: &[FloorStep]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let by_name: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(at, step)| (step.id.as_str(), at)).collect();
    let mut dependants = vec![Vec::new(); steps.len()];
    let mut waiting = vec![0usize; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for need in &step.needs {
            dependants[by_name[need.as_str()]].push(at);
            waiting[at] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..steps.len()).filter(|at| waiting[*at] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(at) = ready.pop() {
        order.push(at);
        for next in &dependants[at] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    (dependants, order)
}

/// An echo tool, called by hand.
#[allow(clippy::unused_async, reason = "a tool is asynchronous, also the one that need not be")]
pub(crate) async fn echo(args: Value) -> Value {
    args
}

/// A value of about 200 bytes.
pub(crate) fn payload() -> Value {
    let mut map = Map::new();
    map.insert("n".into(), Value::from(1));
    map.insert("text".into(), Value::from("x".repeat(120)));
    map.insert("flag".into(), Value::Bool(true));
    map.insert("list".into(), Value::from(vec![Value::from(1), Value::from(2), Value::from(3)]));
    map.into()
}

/// W1 by hand: ten steps, each reads the last one's value, copied as a plain program would.
pub(crate) async fn chain(steps: usize) -> Value {
    let mut value = payload();
    for _ in 0..steps {
        let mut args = Map::new();
        args.insert("value".into(), deep_copy(value.get("value").unwrap_or(&value)));
        value = echo(args.into()).await;
    }
    value
}

/// What `serde_json::Value::clone` does: every text and every map again.
pub(crate) fn deep_copy(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(text.to_string()),
        Value::Array(items) => items.iter().map(deep_copy).collect::<Vec<_>>().into(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, value)| (Arc::from(key.to_string()), deep_copy(value)));
            Value::Object(Arc::new(members.collect()))
        }
        other => other.clone(),
    }
}
