//! Planning is a pure function: the same input gives the same plan, on any thread and at any time.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::sync::Arc;

use segue_core::compile::compile;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::Fact;
use segue_core::source::Source;
use support::catalog;
use support::world::{World, simulate};

const SKILL: &str = "
name: report
guards: { max_steps: 3, allowed_tools: ['builtin:echo', 'builtin:sleep'] }
steps:
  - { id: c, tool_id: 'builtin:echo', inputs: { n: 3 } }
  - { id: a, tool_id: 'builtin:echo', inputs: { n: 1 } }
  - { id: b, tool_id: 'builtin:sleep', inputs: { ms: 1 } }
";

/// Every finding as a line, and the hash of the plan, if there is one.
fn planned(text: &str) -> (Vec<String>, Option<Arc<Plan>>) {
    let limits = Limits::default();
    let compiled = compile(&Source::new("skill.yaml", text), &catalog(), &limits);
    let findings = compiled.diagnostics.iter().map(|d| format!("{} {}", d.code, d.message));
    let made = compiled.composition.map(|composition| plan(&composition, &limits).unwrap());
    (findings.collect(), made.map(Arc::new))
}

/// S2-39, S2-56: many threads compile the same skill at once and get the same findings every time;
/// no state leaks to another skill.
#[test]
fn guards_say_the_same_of_the_same_skill() {
    let refused = SKILL.replace("max_steps: 3", "max_steps: 2").replace(", 'builtin:sleep'", "");
    let (findings, nothing) = planned(&refused);
    assert!(nothing.is_none());
    let codes: Vec<&str> =
        findings.iter().map(|finding| finding.split(' ').next().unwrap()).collect();
    assert_eq!(codes, [Code::MaxStepsExceeded.as_str(), Code::ToolNotAllowed.as_str()]);
    let hash = planned(SKILL).1.unwrap().hash().clone();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(planned(&refused).0, findings);
                    let (noticed, plan) = planned(SKILL);
                    assert_eq!((noticed.len(), plan.unwrap().hash()), (0, &hash));
                }
            });
        }
    });
}

/// S2-01, S2-38, S2-52, S2-57: one plan, read by many runs at once, is the same plan afterwards, and each
/// run takes its steps in the same order.
#[test]
fn a_plan_is_read_by_many_runs_and_never_changes() {
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    let (_, plan) = planned(SKILL);
    let plan = plan.unwrap();
    is_shared(&plan);
    let before = (plan.hash().clone(), format!("{:?}", plan.steps));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let outcome = simulate(&plan, &mut World::parse("{}"), &catalog());
                let called = outcome.journal.iter().filter_map(|entry| match &entry.fact {
                    Fact::Called { args, .. } => Some(args.to_string()),
                    _ => None,
                });
                assert_eq!(called.collect::<Vec<_>>(), [r#"{"n":1}"#, r#"{"ms":1}"#, r#"{"n":3}"#]);
            });
        }
    });
    assert_eq!((plan.hash().clone(), format!("{:?}", plan.steps)), before);
}

/// S2-61: a skill runs one step at a time, whatever its options, and has no error handling.
#[test]
fn a_skill_is_sequential_and_does_not_recover() {
    let (_, plan) = planned(SKILL);
    let mut world = World::parse("options: { max_concurrency: 8 }\nlatency: { a: 50, b: 20 }\n");
    let outcome = simulate(&plan.unwrap(), &mut world, &catalog());
    let mut running = 0;
    for entry in &outcome.journal {
        match entry.fact {
            Fact::Called { .. } => running += 1,
            Fact::Succeeded { .. } => running -= 1,
            _ => {}
        }
        assert!(running <= 1, "{}", outcome.text);
    }
    for word in ["retry_count: 2", "on_failure: { action: continue }", "fallback: []"] {
        let text = SKILL.replace("inputs: { n: 1 }", &format!("inputs: {{ n: 1 }}, {word}"));
        let (findings, plan) = planned(&text);
        assert!(plan.is_none(), "{word}");
        assert!(findings[0].starts_with("invalid-field"), "{findings:?}");
    }
}
