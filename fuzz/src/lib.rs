//! Shared by the fuzz targets: limits that are soon reached, the tools of the corpus, and a driver
//! that answers every call at once.
//!
//! A panic ends a target even where the program would catch it: the fuzzer's hook runs first.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use segue_core::catalog::Catalog;
use segue_core::diagnostic::Code;
use segue_core::document::{Node, ReadLimits, read};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{
    Answer, CallId, Effect, Event, EventKind, Failure, Options, Run, Started, TimerId,
    plan_composition,
};
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunView;

/// How many events a run handles before it is dropped.
const EVENTS_MAX: usize = 2_000;

/// Limits that a small input can reach within one execution.
pub static LIMITS: LazyLock<Arc<Limits>> = LazyLock::new(|| {
    Arc::new(Limits {
        loop_items_max: 50,
        repeat_rounds_max: 20,
        run_calls_max: 500,
        run_visits_max: 500,
        expression_fuel_max: 200_000,
        expression_output_bytes_max: 1 << 20,
        value_bytes_max: 4 << 20,
        run_value_bytes_max: 64 << 20,
        ..Limits::default()
    })
});

/// The tools that the corpus is written against.
pub static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let text = include_str!("../../crates/segue-core/tests/corpus/tools.yaml");
    let source = Source::new("tools.yaml", text);
    let root = read(&source, ReadLimits::for_documents(&Limits::default())).expect("a fixture");
    let tools = root.get("tools").map_or(&[][..], Node::items);
    Catalog::new(tools.iter().map(|node| Arc::new(tool(node))))
});

fn tool(node: &Node) -> ToolSpec {
    let text = |name: &str| node.get(name).and_then(Node::as_str).cloned().unwrap_or_default();
    let schema = |name: &str| node.get(name).map(|node| Arc::new(Schema::new(node.to_value())));
    let input = schema("input").unwrap_or_else(Schema::any_object);
    let mut spec = ToolSpec::new(ToolId::from(&*text("id")), text("description"), input);
    spec.output = schema("output");
    let annotations = node.get("annotations");
    let flag = |name: &str| annotations?.get(name)?.to_value().as_bool();
    spec.annotations = Annotations {
        read_only: flag("read_only"),
        destructive: flag("destructive"),
        idempotent: flag("idempotent"),
        open_world: flag("open_world"),
    };
    spec
}

/// The start of a run.
pub fn started(input: Value) -> Started {
    Started {
        run_id: "run".into(),
        request_id: "request".into(),
        plan_id: "plan".into(),
        chain_id: "chain".into(),
        input,
        context: Value::empty_object(),
        options: Options::default(),
        plan_hash: None,
        engine: "fuzz".into(),
        caller: None,
        trace: None,
        part: None,
    }
}

/// Runs a plan: `chance` chooses the answers of calls, questions are approved or denied by it as
/// well, and timers fire at once.
pub fn run(plan: &Arc<Plan>, input: Value, mut chance: u64) -> RunView {
    let mut run = Run::new(plan.clone(), LIMITS.clone());
    let mut coming = VecDeque::from([EventKind::Start(Box::new(started(input)))]);
    let mut journal = Vec::new();
    let mut at_ms = 1_767_225_600_000;
    for _ in 0..EVENTS_MAX {
        let Some(kind) = coming.pop_front() else { break };
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        at_ms += 1;
        let turn = run.handle(Event { at_ms, entropy: chance, kind });
        drop(serde_json::to_string(&*run.redacted(&turn.record)));
        journal.extend(turn.record);
        for effect in turn.perform {
            match effect {
                Effect::Call(call) => {
                    let answer = answer(run.tool_for(call.id.node, 0, call.purpose), chance);
                    coming.push_back(EventKind::Answered { call: call.id, answer });
                }
                // The answer is queued already.
                Effect::Settle(_) => {}
                Effect::Abort(call) => coming.push_back(aborted(call)),
                Effect::Ask(question) => coming.push_back(EventKind::Decided {
                    question: question.id,
                    granted: chance % 3 > 0,
                    by: "somebody".into(),
                    data: Value::Null,
                }),
                Effect::Expand { node, document } => {
                    let outcome = plan_composition(&document, &CATALOG, &LIMITS);
                    coming.push_back(EventKind::Expanded { node, outcome });
                }
                Effect::SetTimer { timer: TimerId::Run, .. } => {}
                Effect::SetTimer { timer, at_ms: due } => {
                    at_ms = at_ms.max(due);
                    coming.push_back(EventKind::TimerFired(timer));
                }
            }
        }
    }
    let again = Run::replay(plan.clone(), LIMITS.clone(), &journal).expect("its own journal");
    assert_eq!(again.status(), run.status(), "a replay ends in another status");
    run.view()
}

fn aborted(call: CallId) -> EventKind {
    EventKind::Answered { call, answer: Answer::Aborted }
}

fn answer(tool: Option<&Arc<ToolSpec>>, chance: u64) -> Answer {
    match (chance >> 32) % 8 {
        0 => Answer::Failure(Failure::transient(Code::ToolError, "it failed")),
        1 => Answer::TimedOut,
        _ => {
            let output = tool.and_then(|tool| tool.output.as_ref());
            Answer::Value(output.and_then(|schema| schema.sample()).unwrap_or_default())
        }
    }
}

/// An input in two parts, separated by a zero byte.
pub fn halves(data: &[u8]) -> (String, String) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (one, other) = data.split_at(at);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(one), text(other.get(1..).unwrap_or_default()))
}
