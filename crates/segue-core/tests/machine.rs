//! The corpus of the run machine: a folder per behaviour, with a composition, a world that it runs
//! in and the journal that came out. To add a case, add a folder; `just accept` writes the journal.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use segue_core::compile::compile;
use segue_core::compile::source::Source;
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::run::{Effect, Event, EventKind, Fact, Run};
use segue_core::tool::Catalog;
use segue_core::view::RunStatus;
use support::world::{Outcome, World, simulate};
use support::{cases, catalog, composition_of, with_compositions};

fn run_case(case: &Path, catalog: &Catalog) -> Outcome {
    let limits = Limits::default();
    let catalog = &with_compositions(case, catalog);
    let source = composition_of(case);
    let compiled = compile(&source, catalog, &limits);
    let name = case.display();
    let composition =
        compiled.composition.unwrap_or_else(|| panic!("{name}: {:?}", compiled.diagnostics));
    let plan = Arc::new(plan(&composition, &limits).unwrap());
    let world = fs::read_to_string(case.join("world.yaml")).unwrap_or_else(|_| "{}".to_owned());
    simulate(&plan, &mut World::parse(&world), catalog)
}

#[test]
fn every_run_of_the_corpus_goes_as_written() {
    let catalog = catalog();
    let all = cases("run");
    for case in &all {
        let first = run_case(case, &catalog);
        // J4: the same world gives the same journal, to the byte.
        assert_eq!(first.text, run_case(case, &catalog).text, "{}", case.display());
        insta::with_settings!({
            snapshot_path => case, prepend_module_to_snapshot => false, omit_expression => true,
        }, {
            insta::assert_snapshot!("journal", first.text);
        });
    }
    assert!(all.len() >= 30, "only {} cases", all.len());
}

/// B1: a run that is resumed to end stops before any forward step is evaluated, wherever its
/// journal was cut. A call in flight that may have written is in doubt; only rollbacks are called.
#[test]
fn a_run_that_is_taken_up_to_end_works_nothing_out() {
    let text = "name: poison\nsteps:\n  - { id: write, tool: 'misc:anything' }\n  - { id: bad, set: { x: '{{ write.a.b }}' }, depends_on: write }\noutput: '{{ bad.x }}'\n";
    let (limits, catalog) = (Arc::new(Limits::default()), catalog());
    let compiled = compile(&Source::new("poison.yaml", text), &catalog, &limits);
    let plan = plan(&compiled.composition.unwrap(), &limits).unwrap();
    let plan = Arc::new(plan);
    let whole = simulate(&plan, &mut World::parse("{}"), &catalog).journal;
    let failed = whole.iter().position(|entry| matches!(entry.fact, Fact::Failed { .. }));
    for cut in 1..=failed.unwrap() {
        for rolls_back in [false, true] {
            let mut run = Run::replay(plan.clone(), limits.clone(), &whole[..cut]).unwrap();
            let by = "ada".into();
            let kind = EventKind::ResumedToEnd { by, roll_back: rolls_back };
            let turn = run.handle(Event { at_ms: 1_000, entropy: 0, kind });
            let works_out = |fact: &Fact| match fact {
                Fact::Called { .. } | Fact::Tolerated { .. } => true,
                Fact::Succeeded { .. } => true,
                Fact::Failed { failure, .. } => !failure.in_doubt,
                _ => false,
            };
            let worked_out = turn.record.iter().find(|entry| works_out(&entry.fact));
            assert!(worked_out.is_none(), "cut at {cut}: {worked_out:?}");
            let calls = turn.perform.iter().any(|effect| matches!(effect, Effect::Call(_)));
            assert!(!calls, "cut at {cut}: {:?}", turn.perform);
            let ended = run.is_finished() || run.status() == RunStatus::Waiting;
            assert!(ended, "cut at {cut}: {:?}", run.status());
        }
    }
}
