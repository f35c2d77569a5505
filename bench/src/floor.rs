//! The floor that Segue is compared with: the code that a programmer would write by hand, without
//! an engine.
//!
//! It is an inline dataflow over plain `serde_json` values. A step names its tool and the source of
//! each argument, and starts when its inputs are there. All calls are futures polled in one place
//! (`FuturesUnordered`), none is a task. Arguments are built anew for every call, and every value
//! that is read is cloned, with every text and map in it, as in a program that does not share
//! values. The floor checks nothing, writes no journal, cannot be stopped and cannot fail.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Map, Value as Json, json};

use crate::journal::Journal;

/// A tool that is called by hand.
#[async_trait]
pub(crate) trait FloorTool: Send + Sync {
    async fn call(&self, args: Json) -> Json;
}

/// Returns its arguments.
pub(crate) struct Echo;

#[async_trait]
impl FloorTool for Echo {
    async fn call(&self, args: Json) -> Json {
        args
    }
}

/// Where an argument comes from: a member of the input or of a step's value, or a number.
pub(crate) enum From {
    Input(&'static str),
    Step(usize, &'static str),
    Number(usize),
}

/// A step: its arguments by name, from which its needs follow.
pub(crate) struct FloorStep {
    pub(crate) id: String,
    pub(crate) arguments: Vec<(String, From)>,
}

/// Steps in an order in which they can run, and the dependants of each.
pub(crate) struct Flow {
    steps: Arc<Vec<FloorStep>>,
    dependants: Vec<Vec<usize>>,
    waiting: Vec<usize>,
}

impl Flow {
    pub(crate) fn new(steps: Arc<Vec<FloorStep>>) -> Flow {
        let mut dependants = vec![Vec::new(); steps.len()];
        let mut waiting = vec![0; steps.len()];
        for (at, step) in steps.iter().enumerate() {
            for (_, from) in &step.arguments {
                if let From::Step(need, _) = from {
                    dependants[*need].push(at);
                    waiting[at] += 1;
                }
            }
        }
        Flow { steps, dependants, waiting }
    }

    /// Runs every step once, and returns their values.
    pub(crate) async fn run(&self, tool: &dyn FloorTool, input: &Json) -> Vec<Json> {
        let mut waiting = self.waiting.clone();
        let mut values = vec![Json::Null; self.steps.len()];
        let mut calls = FuturesUnordered::new();
        let call = |at: usize, values: &[Json]| {
            let args = self.arguments(at, input, values);
            async move { (at, tool.call(args).await) }
        };
        for at in (0..self.steps.len()).filter(|at| self.waiting[*at] == 0) {
            calls.push(call(at, &values));
        }
        while let Some((at, value)) = calls.next().await {
            values[at] = value;
            for next in &self.dependants[at] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    calls.push(call(*next, &values));
                }
            }
        }
        values
    }

    /// The same with a journal: the value of every step is durable before another step reads it.
    /// Values that are ready together are written together. The start of a call is not written.
    pub(crate) async fn run_durably(
        &self,
        tool: &dyn FloorTool,
        input: &Json,
        journal: &Journal,
    ) -> Vec<Json> {
        let mut waiting = self.waiting.clone();
        let mut values = vec![Json::Null; self.steps.len()];
        let mut calls = FuturesUnordered::new();
        let call = |at: usize, values: &[Json]| {
            let args = self.arguments(at, input, values);
            async move { (at, tool.call(args).await) }
        };
        for at in (0..self.steps.len()).filter(|at| self.waiting[*at] == 0) {
            calls.push(call(at, &values));
        }
        while let Some(first) = calls.next().await {
            let mut ended = vec![first];
            while let Some(Some(more)) = calls.next().now_or_never() {
                ended.push(more);
            }
            let mut lines = Vec::new();
            for one in &ended {
                serde_json::to_writer(&mut lines, one).expect("values have a form in JSON");
                lines.push(b'\n');
            }
            journal.append(lines).await;
            for (at, value) in ended {
                values[at] = value;
                for next in &self.dependants[at] {
                    waiting[*next] -= 1;
                    if waiting[*next] == 0 {
                        calls.push(call(*next, &values));
                    }
                }
            }
        }
        values
    }

    fn arguments(&self, at: usize, input: &Json, values: &[Json]) -> Json {
        let mut args = Map::new();
        for (name, from) in &self.steps[at].arguments {
            let value = match from {
                From::Input(member) => input[*member].clone(),
                From::Step(need, member) => values[*need][*member].clone(),
                From::Number(number) => Json::from(*number),
            };
            args.insert(name.clone(), value);
        }
        args.into()
    }
}

/// A loop: one call per item, `at_once` of them in flight, with the values in the order of the
/// items.
pub(crate) async fn map(tool: &dyn FloorTool, items: &[Json], at_once: usize) -> Vec<Json> {
    let mut values = vec![Json::Null; items.len()];
    let mut calls = FuturesUnordered::new();
    let mut next = 0;
    loop {
        while calls.len() < at_once && next < items.len() {
            let mut args = Map::new();
            args.insert("value".to_owned(), items[next].clone());
            let at = next;
            calls.push(async move { (at, tool.call(args.into()).await) });
            next += 1;
        }
        let Some((at, value)) = calls.next().await else { return values };
        values[at] = value;
    }
}

/// A record of about 200 bytes, as tools return it.
pub(crate) fn record() -> Json {
    json!({
        "id": "c0ffee12-7a31",
        "name": "Ada Lovelace",
        "email": "ada@example.org",
        "score": 97.5,
        "active": true,
        "tags": ["engine", "notes", "numbers"],
        "address": { "street": "12 St James's Square", "city": "London", "code": "SW1Y" },
    })
}

/// W1: each step reads the one before it.
pub(crate) fn chain(steps: usize) -> Vec<FloorStep> {
    let from = |at: usize| match at {
        0 => From::Input("value"),
        _ => From::Step(at - 1, "value"),
    };
    let step = |at| FloorStep { id: format!("s{at}"), arguments: vec![("value".into(), from(at))] };
    (0..steps).map(step).collect()
}

/// W2: one step, `width` that read it, one that reads all of them.
pub(crate) fn wide(width: usize) -> Vec<FloorStep> {
    let mut steps = chain(1);
    steps.extend((1..=width).map(|at| FloorStep {
        id: format!("s{at}"),
        arguments: vec![("value".into(), From::Step(0, "value"))],
    }));
    let all = (1..=width).map(|at| (format!("p{at}"), From::Step(at, "value")));
    steps.push(FloorStep { id: "last".into(), arguments: all.collect() });
    steps
}

/// W5: `width` steps a layer; each reads the record of one step of the layer before, and the numbers
/// of two others.
pub(crate) fn layered(steps: usize, width: usize) -> Vec<FloorStep> {
    let step = |at: usize| {
        let need = |n: usize| (at / width - 1) * width + (at * 7 + n * 3) % width;
        let mut arguments = vec![("n".to_owned(), From::Number(at))];
        if at < width {
            arguments.push(("value".into(), From::Input("value")));
        } else {
            arguments.push(("value".into(), From::Step(need(0), "value")));
            arguments.push(("second".into(), From::Step(need(1), "n")));
            arguments.push(("third".into(), From::Step(need(2), "n")));
        }
        FloorStep { id: format!("s{at}"), arguments }
    };
    (0..steps).map(step).collect()
}

/// Names → positions, dependants and one valid order: the cost of planning a graph by hand.
pub(crate) fn plan(steps: &[(String, Vec<String>)]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let by_name: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(at, (id, _))| (id.as_str(), at)).collect();
    let mut dependants = vec![Vec::new(); steps.len()];
    let mut waiting = vec![0usize; steps.len()];
    for (at, (_, needs)) in steps.iter().enumerate() {
        for need in needs {
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
