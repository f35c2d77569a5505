//! The written form of the journal: every fact reads back as it was, to the byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use segue_core::compile::compile;
use segue_core::composition::Strategy as OnFailure;
use segue_core::diagnostic::Code;
use segue_core::document::read_trusted_json;
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::run::{Entry, Fact, Failure, LoopItem, NodeId, Options, Started};
use segue_core::source::Source;
use segue_core::value::{Map, Number, Shared, Value};
use segue_core::view::{PerformedPart, RunStatus};

fn any_text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Arc::from)
}

fn any_number() -> impl Strategy<Value = Number> {
    let written = ["-0", "1e400", "18446744073709551616", "3.14159265358979323846264338327"];
    prop_oneof![
        any::<i64>().prop_map(Number::Int),
        (i64::MAX as u64 + 1..).prop_map(Number::UInt),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Number::Float),
        prop::sample::select(written.to_vec()).prop_map(Number::from_literal),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any_number().prop_map(Value::Number),
        any_text().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..5).prop_map(Value::object),
        ]
    })
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<Option<u64>>());
    let code = prop::sample::select(Code::ALL);
    (code, any_text(), prop::option::of(any_text()), flags).prop_map(
        |(code, message, hint, (retryable, in_doubt, acted, retry_after_ms))| Failure {
            code,
            message,
            hint,
            retryable,
            in_doubt,
            acted,
            retry_after_ms,
        },
    )
}

fn any_options() -> impl Strategy<Value = Options> {
    let strategy = prop::option::of(
        prop::sample::select(OnFailure::WORDS).prop_map(|word| OnFailure::parse(word).unwrap()),
    );
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<Option<u64>>(), any::<Option<u32>>(), strategy, flags).prop_map(
        |(timeout_ms, max_concurrency, strategy, (approved, consented, vouched))| Options {
            timeout_ms,
            max_concurrency,
            strategy,
            approved,
            consented,
            vouched,
        },
    )
}

/// The parts of facts.
#[derive(Clone, Debug)]
struct Parts {
    node: NodeId,
    value: Value,
    text: Arc<str>,
    failure: Arc<Failure>,
    options: Options,
    number: u64,
    flag: bool,
    optional: bool,
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let node = any::<(u32, u32)>().prop_map(NodeId::from);
    (
        node,
        any_value(),
        any_text(),
        any_failure(),
        any_options(),
        any::<u64>(),
        any::<(bool, bool)>(),
    )
        .prop_map(|(node, value, text, failure, options, number, (flag, optional))| Parts {
            node,
            value,
            text,
            failure: Arc::new(failure),
            options,
            number,
            flag,
            optional,
        })
}

/// One fact of every kind. `kind_of` fails if one is missing.
fn every_fact(parts: Parts) -> Vec<Fact> {
    let Parts { node, value, text, failure, options, number, flag, optional } = parts;
    let narrow = u32::try_from(number % 7).unwrap();
    let candidate = 3;
    let given: Map = [(text.clone(), value.clone())].into_iter().collect();
    let item = LoopItem { value: value.clone(), index: 1, length: 2 };
    let started = Started {
        run_id: text.clone(),
        request_id: text.clone(),
        plan_id: text.clone(),
        chain_id: text.clone(),
        input: value.clone(),
        context: value.clone(),
        options,
        plan_hash: optional.then(|| text.clone()),
        engine: text.clone(),
        caller: None,
        trace: Some(segue_core::run::TraceContext::of_run("run")),
        part: optional.then(|| PerformedPart {
            until: flag.then(|| text.clone()),
            only: (!flag).then(|| text.clone()),
            run: (!flag).then(|| text.clone()),
            pinned: vec![text.clone()],
        }),
    };
    let second = failure.clone();
    let (args, output, until_ms, by) = (value.clone(), value.clone(), number, text.clone());
    vec![
        Fact::Started(Box::new(started)),
        Fact::Opened { node, body: narrow, item: optional.then_some(item) },
        Fact::Entered { node, candidate, input: value.clone() },
        Fact::Looped { node, items: vec![value.clone(), Value::Null].into() },
        Fact::Asked { node, candidate, args: args.clone() },
        Fact::Granted { node, by: text.clone() },
        Fact::Called { node, candidate, args: args.clone() },
        Fact::BackedOff { node, failure: failure.clone(), until_ms },
        Fact::Woke { node },
        Fact::GaveUp { node, failure: failure.clone() },
        Fact::Slept { node, until_ms },
        Fact::Succeeded { node, output: output.clone(), given: optional.then(|| given.into()) },
        Fact::Tolerated { node, failure: failure.clone(), output: output.clone() },
        Fact::Failed { node, failure: failure.clone() },
        Fact::Skipped { node, reason: text, by_failure: flag },
        Fact::Cancelled { node, in_doubt: flag },
        Fact::TimedOut { node, failure: failure.clone() },
        Fact::Stopped { frame: narrow, failure: failure.clone() },
        Fact::Closed { frame: narrow, failed: flag, is_final: optional },
        Fact::RollbackStarted { frame: narrow, failure: failure.clone(), steps: vec![node, node] },
        Fact::RollbackCalled { node, args },
        Fact::RollbackBackedOff { node, failure: failure.clone(), until_ms },
        Fact::RolledBack { node },
        Fact::RollbackFailed { node, failure: failure.clone() },
        Fact::AnsweredLate { node, attempt: narrow },
        Fact::Finished {
            status: RunStatus::RolledBack,
            output,
            failure: optional.then(|| failure.clone()),
        },
        Fact::Expanding { node, document: value.clone() },
        Fact::Visited { frame: narrow, position: narrow },
        Fact::Probed { node, failure: failure.clone(), args: value.clone() },
        Fact::Doubted { node, failure },
        Fact::Resolved { node, done: flag, by: by.clone() },
        Fact::Lost { node },
        Fact::Paused { node, until_ms },
        Fact::RollbackAsked { by: by.clone() },
        Fact::RollbackEntered { node, input: value.clone() },
        Fact::Reused { node, output: value.clone(), given: None },
        Fact::ReferencesKept { node, references: vec!["{{ a.b }}".into(), "".into()] },
        Fact::ConsentAsked,
        Fact::Consented { by: by.clone() },
        Fact::HandleReceived { node, handle: value.clone() },
        Fact::ResumeSent { node },
        Fact::Refused { node: flag.then_some(node), by: by.clone() },
        Fact::CancelAsked { by },
        Fact::FailureDecided { node, failure: second.clone() },
        Fact::AttemptRollbackStarted { node, failure: second, steps: vec![node] },
        Fact::Pinned { node, output: value, given: None },
        Fact::LeftOut { node },
    ]
}

/// The position of each kind of fact in `every_fact`: a new kind does not compile without one.
fn kind_of(fact: &Fact) -> usize {
    match fact {
        Fact::Started(_) => 0,
        Fact::Opened { .. } => 1,
        Fact::Entered { .. } => 2,
        Fact::Looped { .. } => 3,
        Fact::Asked { .. } => 4,
        Fact::Granted { .. } => 5,
        Fact::Called { .. } => 6,
        Fact::BackedOff { .. } => 7,
        Fact::Woke { .. } => 8,
        Fact::GaveUp { .. } => 9,
        Fact::Slept { .. } => 10,
        Fact::Succeeded { .. } => 11,
        Fact::Tolerated { .. } => 12,
        Fact::Failed { .. } => 13,
        Fact::Skipped { .. } => 14,
        Fact::Cancelled { .. } => 15,
        Fact::TimedOut { .. } => 16,
        Fact::Stopped { .. } => 17,
        Fact::Closed { .. } => 18,
        Fact::RollbackStarted { .. } => 19,
        Fact::RollbackCalled { .. } => 20,
        Fact::RollbackBackedOff { .. } => 21,
        Fact::RolledBack { .. } => 22,
        Fact::RollbackFailed { .. } => 23,
        Fact::AnsweredLate { .. } => 24,
        Fact::Finished { .. } => 25,
        Fact::Expanding { .. } => 26,
        Fact::Visited { .. } => 27,
        Fact::Probed { .. } => 28,
        Fact::Doubted { .. } => 29,
        Fact::Resolved { .. } => 30,
        Fact::Lost { .. } => 31,
        Fact::Paused { .. } => 32,
        Fact::RollbackAsked { .. } => 33,
        Fact::RollbackEntered { .. } => 34,
        Fact::Reused { .. } => 35,
        Fact::ReferencesKept { .. } => 36,
        Fact::ConsentAsked => 37,
        Fact::Consented { .. } => 38,
        Fact::HandleReceived { .. } => 39,
        Fact::ResumeSent { .. } => 40,
        Fact::Refused { .. } => 41,
        Fact::CancelAsked { .. } => 42,
        Fact::FailureDecided { .. } => 43,
        Fact::AttemptRollbackStarted { .. } => 44,
        Fact::Pinned { .. } => 45,
        Fact::LeftOut { .. } => 46,
        Fact::Expanded { .. } => unreachable!("a plan has a test of its own"),
    }
}

fn again(entry: &Entry) -> (String, Entry) {
    let written = serde_json::to_string(entry).unwrap();
    let value = read_trusted_json(&written).unwrap().to_value();
    let read = Entry::from_value(&value).unwrap_or_else(|error| panic!("{error}: {written}"));
    (written, read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// D5, J3: the stored form of a fact is complete.
    #[test]
    fn every_fact_reads_back_as_it_was(parts in any_parts(), at_ms in any::<u64>()) {
        for (at, fact) in every_fact(parts).into_iter().enumerate() {
            prop_assert_eq!(kind_of(&fact), at);
            let entry = Entry { seq: at as u64, at_ms, fact };
            let (written, read) = again(&entry);
            prop_assert_eq!(format!("{read:?}"), format!("{entry:?}"));
            prop_assert_eq!(again(&read).0, written);
        }
    }
}

/// The stored form. A change here changes how old journals are read.
#[test]
fn an_entry_is_written_so() {
    let node = NodeId { frame: 0, position: 3 };
    let args = Value::object([("n", Value::Number(Number::from_literal("18446744073709551616")))]);
    let called = Entry { seq: 1, at_ms: 2, fact: Fact::Called { node, candidate: 0, args } };
    assert_eq!(
        serde_json::to_string(&called).unwrap(),
        r#"{"seq":1,"at_ms":2,"fact":{"called":{"node":[0,3],"candidate":0,"args":{"n":18446744073709551616}}}}"#
    );
    let rolled_back = Entry { seq: 1, at_ms: 2, fact: Fact::RolledBack { node } };
    assert_eq!(
        serde_json::to_string(&rolled_back).unwrap(),
        r#"{"seq":1,"at_ms":2,"fact":{"undone":{"node":[0,3]}}}"#
    );
}

/// An expanded composition is compiled again from its stored bundle.
#[test]
fn a_plan_in_an_entry_means_the_same_again() {
    let text = "name: made\nsteps: [ { id: say, tool: echo, parameters: { n: 1 } } ]";
    let limits = Limits::default();
    let compiled = compile(&Source::new("made.yaml", text), &support::catalog(), &limits);
    let plan = Arc::new(plan(&compiled.composition.unwrap(), &limits).unwrap());
    let node = NodeId { frame: 0, position: 0 };
    let fact = Fact::Expanded { node, plan: plan.clone(), input: Value::empty_object() };
    let (_, read) = again(&Entry { seq: 0, at_ms: 0, fact });
    let Fact::Expanded { plan: read, .. } = read.fact else { panic!("another fact") };
    assert_eq!(read.hash(), plan.hash());
}

/// A large value that is read out of a value is the same one, not a copy.
#[test]
fn values_are_shared_when_they_are_read() {
    let node = NodeId { frame: 0, position: 0 };
    let fact = Fact::Called { node, candidate: 0, args: Value::from(vec![Value::from("x")]) };
    let written = serde_json::to_string(&Entry { seq: 0, at_ms: 0, fact }).unwrap();
    let value = read_trusted_json(&written).unwrap().to_value();
    let Fact::Called { args, .. } = Entry::from_value(&value).unwrap().fact else { panic!() };
    let inside = value.get("fact").and_then(|f| f.get("called")).and_then(|c| c.get("args"));
    assert!(Shared::ptr_eq(inside.unwrap().as_array().unwrap(), args.as_array().unwrap()));
}
