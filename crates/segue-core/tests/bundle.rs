//! A plan is restored from its bundle unchanged, whatever happened to the tools meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fs;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::composition::{Composition, ResolvedRollback};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::bundle::{BundleError, unbundle};
use segue_core::plan::{Plan, composition_tool, plan};
use segue_core::run::Run;
use segue_core::schema::Schema;
use segue_core::source::{Edition, Source};
use segue_core::tool::{DeclaredRollback, ToolSpec};
use segue_core::value::Value;
use support::world::{World, simulate};
use support::{cases, catalog, composition_of, with_compositions};

fn composition(source: &Source, catalog: &Catalog) -> Arc<Composition> {
    let compiled = compile(source, catalog, &Limits::default());
    compiled.composition.unwrap_or_else(|| panic!("{}: {:?}", source.name(), compiled.diagnostics))
}

fn plan_of(source: &Source, catalog: &Catalog) -> Arc<Plan> {
    Arc::new(plan(&composition(source, catalog), &Limits::default()).unwrap())
}

/// A plan as text, including its hash.
fn whole(plan: &Plan) -> String {
    plan.hash();
    format!("{plan:?}")
}

#[track_caller]
fn comes_back(plan: &Plan) -> Arc<Plan> {
    let again = unbundle(&plan.bundle(), &Limits::default()).unwrap();
    assert_eq!(again.hash(), plan.hash());
    // Observations of tools are not stored, so the duration estimates are missing too.
    if plan.tools.values().all(|tool| tool.observed.is_none()) {
        assert_eq!(whole(&again), whole(plan));
    }
    again
}

#[test]
fn every_correct_composition_of_the_corpus_comes_back() {
    let catalog = catalog();
    for case in cases("check/correct") {
        comes_back(&plan_of(&composition_of(&case), &catalog));
    }
}

/// Bundles without an edition were compiled before the translation was corrected, and keep their hash.
#[test]
fn a_bundle_keeps_the_edition_of_its_translation() {
    let (catalog, limits) = (catalog(), Limits::default());
    let source = composition_of(&support::corpus().join("run/toolhive-definition"));
    let now = plan_of(&source, &catalog);
    let before = plan_of(&source.with_edition(Edition::First), &catalog);
    assert_ne!(now.hash(), before.hash(), "nothing was corrected");
    assert!(now.bundle().contains("edition") && !before.bundle().contains("edition"));
    comes_back(&now);
    comes_back(&before);
    let other = before.bundle().replace(&**before.hash(), now.hash());
    assert!(matches!(unbundle(&other, &limits), Err(BundleError::Changed { .. })));
}

/// A bundle holds the whole text, and says which of its compositions is meant.
#[test]
fn one_of_several_compositions_of_a_text_comes_back() {
    let text = "kind: VirtualMCPServer\nspec:\n  compositeTools:\n    \
                - { name: a, steps: [{ id: a, tool: fetch, arguments: { url: a } }] }\n    \
                - { name: b, steps: [{ id: b, tool: fetch, arguments: { url: b } }] }\n";
    let source = Source::new("two.yaml", text).with_servers(vec!["vmcp".into()]);
    let tools = ["vmcp:fetch", "web:fetch"]
        .map(|id| Arc::new(ToolSpec::new(ToolId::from(id), "", Schema::any_object())));
    for name in ["a", "b"] {
        let plan =
            plan_of(&source.clone().with_part(Some(name.into())), &Catalog::new(tools.clone()));
        assert_eq!(&*plan.composition.name, name);
        assert!(plan.tools.keys().all(|id| id.as_str() == "vmcp:fetch"));
        assert_eq!(comes_back(&plan).composition.name, plan.composition.name);
    }
}

/// J3: a journal replays on the restored plan.
#[test]
fn every_run_of_the_corpus_replays_on_the_plan_that_comes_back() {
    let (catalog, limits) = (catalog(), Arc::new(Limits::default()));
    for case in cases("run") {
        let catalog = with_compositions(&case, &catalog);
        let plan = plan_of(&composition_of(&case), &catalog);
        let again = comes_back(&plan);
        let world = fs::read_to_string(case.join("world.yaml")).unwrap_or_else(|_| "{}".to_owned());
        let outcome = simulate(&plan, &mut World::parse(&world), &catalog);
        let replayed = Run::replay(again, limits.clone(), &outcome.journal).unwrap();
        let view = |view| serde_json::to_string(view).unwrap();
        assert_eq!(view(&replayed.view()), view(&outcome.view), "{}", case.display());
    }
}

#[test]
fn compositions_inside_come_back_at_any_depth() {
    let mut catalog = catalog();
    let texts = [
        "name: inner\nsteps: [{ id: a, tool: misc:anything, parameters: { n: 18446744073709551616 } }]",
        "name: middle\nsteps: [{ id: a, tool: inner }, { id: b, tool: composition:inner }]",
        "name: outer\nsteps: [{ id: a, tool: middle, fallback: [{ tool: inner }] }, { id: b, tool: inner }]",
    ];
    let mut last = None;
    for text in texts {
        let made = composition(&Source::new("x.yaml", text), &catalog);
        catalog.insert(Arc::new(composition_tool(&made)));
        last = Some(made);
    }
    let plan = plan(&last.unwrap(), &Limits::default()).unwrap();
    let bundle = plan.bundle();
    assert_eq!(bundle.matches("name: inner").count(), 1, "a text is written once");
    comes_back(&plan);
}

/// Among all tools the name `undo` is ambiguous; it must stay unresolved if only one of the two was
/// needed.
#[test]
fn a_short_name_means_what_it_meant() {
    let tool = |id: &str, rollback: Option<&str>| {
        let mut spec = ToolSpec::new(ToolId::from(id), "", Schema::any_object());
        spec.annotations.destructive = Some(false);
        if let Some(rollback) = rollback {
            let parameters = Value::empty_object();
            spec.rollback = DeclaredRollback::Call { tool: rollback.into(), parameters };
        }
        Arc::new(spec)
    };
    let tools = [tool("x:undo", None), tool("y:undo", None), tool("x:do", Some("undo"))];
    let source = Source::new(
        "x.yaml",
        "name: n\nsteps: [{ id: a, tool: \"x:do\" }, { id: b, tool: \"x:undo\" }]",
    );
    let ambiguous = plan_of(&source, &Catalog::new(tools.clone()));
    assert!(matches!(ambiguous.steps[0].step.resolved_rollback, ResolvedRollback::Unknown));
    let again = unbundle(&ambiguous.bundle(), &Limits::default()).unwrap();
    assert!(matches!(again.steps[0].step.resolved_rollback, ResolvedRollback::Unknown));

    let [x, _, work] = tools;
    let clear = plan_of(&source, &Catalog::new([x, work]));
    let again = unbundle(&clear.bundle(), &Limits::default()).unwrap();
    assert!(
        matches!(&again.steps[0].step.resolved_rollback, ResolvedRollback::Call(call) if &*call.name == "x:undo")
    );
}

#[test]
fn a_bundle_that_means_something_else_is_refused() {
    let catalog = catalog();
    let plan = plan_of(&composition_of(&cases("run")[0]), &catalog);
    let bundle = plan.bundle();
    let wrong = bundle.replace(&**plan.hash(), &"0".repeat(64));
    assert!(matches!(unbundle(&wrong, &Limits::default()), Err(BundleError::Changed { .. })));
    let newer = bundle.replacen("\"format\":1", "\"format\":2", 1);
    assert!(matches!(unbundle(&newer, &Limits::default()), Err(BundleError::Unreadable { .. })));
    let broken = bundle.replacen("steps:", "stops:", 1);
    assert!(matches!(unbundle(&broken, &Limits::default()), Err(BundleError::Uncompiled { .. })));
}
