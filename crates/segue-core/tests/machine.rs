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
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::tool::Catalog;
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
