//! Runs that would grow beyond all bounds end in a failure that names the limit.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::compile::compile;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::{Answer, Effect, Event, EventKind, Fact, Failure, Run, admit};
use segue_core::source::Source;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use support::catalog;
use support::world::{Around as _, World, simulate};

fn plan_of(text: &str) -> Arc<Plan> {
    let (catalog, limits) = (catalog(), Limits::default());
    let compiled = compile(&Source::new("test.yaml", text), &catalog, &limits);
    let composition = compiled.composition.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    Arc::new(plan(&composition, &limits).unwrap())
}

/// The steps of a run that set one name after the other, each from the last one.
fn sets(count: usize, template: &str) -> String {
    let mut text =
        "name: sets\nsteps:\n  - { id: s0, set: { v0: \"{{ 'x' * 1000 }}\" } }\n".to_owned();
    for step in 1..count {
        let value = template.replace('V', &format!("{{{{ v{} }}}}", step - 1));
        let _ = writeln!(text, "  - {{ id: s{step}, set: {{ v{step}: {value} }} }}");
    }
    text
}

fn failures(journal: &[segue_core::run::Entry]) -> Vec<Arc<Failure>> {
    let failed = |entry: &segue_core::run::Entry| match &entry.fact {
        Fact::Failed { failure, .. } => Some(failure.clone()),
        _ => None,
    };
    journal.iter().filter_map(failed).collect()
}

/// Sixty steps that each hold the last value twice: shared in memory, but too large to serialize.
/// Or each one inside the next.
#[test]
fn values_that_grow_by_sharing_end_at_a_limit() {
    for template in
        ["[\"V\", \"V\"]", "{ a: \"V\", b: [\"V\"] }", "\"V and V\"", "[\"V\"]", "{ a: \"V\" }"]
    {
        let plan = plan_of(&sets(100, template));
        let mut run = Run::new(plan, Arc::new(Limits::default()));
        let kind = EventKind::Start(Box::new(World::parse("{}").started()));
        let turn = run.handle(Event { at_ms: 1, entropy: 1, kind });
        assert_eq!(run.status(), RunStatus::Failed, "{template}");
        let failures = failures(&turn.record);
        assert_eq!(failures.first().map(|failure| failure.code), Some(Code::Limit), "{template}");
        // The view can be serialized.
        let sizes = turn.record.iter().map(|entry| match &entry.fact {
            Fact::Succeeded { output, .. } => output.size(),
            _ => 0,
        });
        assert!(sizes.sum::<usize>() < 1 << 28, "{template}");
    }
}

/// The same small value in many steps is no reason to stop.
#[test]
fn values_that_stay_small_may_be_shared_freely() {
    let text: String = (1..200).fold(
        "name: shared\nsteps:\n  - { id: s0, set: { v0: \"{{ 'x' * 10000 }}\" } }\n".to_owned(),
        |text, step| {
            format!("{text}  - {{ id: s{step}, set: {{ v{step}: [\"{{{{ v0 }}}}\"] }} }}\n")
        },
    );
    let outcome = simulate(&plan_of(&text), &mut World::parse("{}"), &catalog());
    assert_eq!(outcome.view.status, RunStatus::Success);
}

/// Every entry is searched for sensitive texts, so their number is limited: an input with too many
/// is refused before the run starts, an answer with too many fails its step.
#[test]
fn a_run_has_so_many_sensitive_texts() {
    let few = Limits { sensitive_texts_max: 3, sensitive_bytes_max: 1_000, ..Limits::default() };
    let plan = plan_of(
        "name: t\ninput:\n  type: object\n  properties: { keys: { writeOnly: true }, other: {} }\nsteps:\n  \
         - { id: a, set: { x: 1 } }\n",
    );
    let admitted = |keys: Vec<Value>, other: usize| {
        let other = vec![Value::from("other"); other].into();
        let input = Value::object([("keys", Value::from(keys)), ("other", other)]);
        admit(&plan, input, &Value::empty_object(), &few).map_err(|errors| errors[0].code)
    };
    let texts = |count: usize| (0..count).map(|n| format!("key-{n}").into()).collect::<Vec<_>>();
    assert!(admitted(texts(3), 100).is_ok());
    assert_eq!(admitted(texts(4), 0), Err(Code::Limit));
    assert_eq!(admitted((1_000..1_004).map(Value::from).collect(), 0), Err(Code::Limit));
    assert_eq!(admitted(vec!["x".repeat(1_001).into()], 0), Err(Code::Limit));

    let text = "name: t\nsteps:\n  - { id: a, tool: \"misc:anything\", sensitive: [/keys] }\n";
    for (count, code) in [(3, None), (4, Some(Code::Limit))] {
        let mut run = Run::new(plan_of(text), Arc::new(few.clone()));
        let kind = EventKind::Start(Box::new(World::parse("{}").started()));
        let turn = run.handle(Event { at_ms: 1, entropy: 1, kind });
        let Some(Effect::Call(call)) = turn.perform.first() else { panic!("{turn:?}") };
        let (call, answer) = (call.id, Value::object([("keys", texts(count).into())]));
        let kind = EventKind::Answered { call, answer: Answer::Value(answer) };
        let turn = run.handle(Event { at_ms: 2, entropy: 1, kind });
        assert_eq!(failures(&turn.record).first().map(|failure| failure.code), code);
    }
}

/// While the flag is raised a run starts no step; the driver's next event gives the reason. Steps
/// start after the flag is cleared.
#[test]
fn a_raised_flag_stops_a_run_s_evaluations() {
    for raised in [true, false] {
        let plan = plan_of("name: t\nsteps:\n  - { id: a, set: { x: \"{{ 1 + 1 }}\" } }\n");
        let mut run = Run::new(plan, Arc::new(Limits::default()));
        if raised {
            run.interrupt().raise();
        }
        let started = Box::new(World::parse("{}").started());
        let turn = run.handle(Event { at_ms: 1, entropy: 1, kind: EventKind::Start(started) });
        assert!(failures(&turn.record).is_empty());
        assert_eq!(run.is_finished(), !raised);
        if raised {
            run.interrupt().clear();
            let kind = EventKind::Cancel { by: "ada".into() };
            run.handle(Event { at_ms: 2, entropy: 1, kind });
        }
        let status = if raised { RunStatus::Cancelled } else { RunStatus::Success };
        assert_eq!(run.status(), status);
    }
}

/// A raised flag does not affect the rollback of a run, which cannot be cancelled.
#[test]
fn a_raised_flag_does_not_stop_a_rollback() {
    let text = "name: t\nsteps:\n  - id: a\n    tool: shop:charge\n    parameters: { amount: 1, currency: EUR, card: c }\n    \
                rollback: { tool: \"misc:anything\", parameters: { card: \"{{ args.card }}\" } }\n";
    let mut run = Run::new(plan_of(text), Arc::new(Limits::default()));
    let mut at_ms = 0;
    let mut handle = |run: &mut Run, kind| {
        at_ms += 1;
        run.handle(Event { at_ms, entropy: 1, kind })
    };
    let turn = handle(&mut run, EventKind::Start(Box::new(World::parse("{}").started())));
    let Some(Effect::Call(call)) = turn.perform.first() else { panic!("{turn:?}") };
    let answer = Answer::Value(Value::empty_object());
    let call = call.id;
    handle(&mut run, EventKind::Answered { call, answer });
    run.interrupt().raise();
    let turn = handle(&mut run, EventKind::RollBack { by: "ada".into() });
    let rolls_back = turn.perform.iter().any(|effect| matches!(effect, Effect::Call(_)));
    assert!(rolls_back, "{turn:?}");
}
