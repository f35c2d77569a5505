//! The language service on a composition of 1,000 steps, in multiples of the compile of its text.

use std::hint::black_box;
use std::time::Duration;

use segue_core::compile::compile;
use segue_core::document::to_yaml;
use segue_core::language::Analysis;
use segue_core::language::edit::{self, Edit, Place};
use segue_core::source::Source;
use segue_core::value::Value;

use crate::floor;
use crate::graph::{WIDTH, catalog, limits};
use crate::measure::{Clock, Row, compare, show};
use crate::workload::source;

const STEPS: usize = 1_000;

/// The most compiles of the same text that an edit of the graph costs.
const EDIT_RATIO: f64 = 10.0;

/// An author who types waits no longer than this.
const FINDINGS_MAX: Duration = Duration::from_millis(150);
const COMPLETION_MAX: Duration = Duration::from_millis(50);

pub(crate) fn rows() -> Vec<Row> {
    let json = source(&floor::layered(STEPS, WIDTH));
    let value: Value = serde_json::from_str(json.text()).expect("the benchmark writes JSON");
    let text = to_yaml(&value);
    let last = text.rfind("{{ ").expect("the last step reads others") + 3;
    // A path that is being typed, and a line that is no YAML.
    let typing = [&text[..last], "s1.\n  broken", &text[last..]].concat();
    let yaml = Source::new("bench.yaml", text.as_str());
    let broken = Source::new("bench.yaml", typing);
    let (catalog, limits) = (catalog(), limits());
    let correct = Analysis::new(&yaml, &catalog, &limits);
    assert!(correct.composition().is_some(), "{:?}", correct.findings());
    let unfinished = Analysis::new(&broken, &catalog, &limits);
    let position = |at: usize| u32::try_from(at).expect("the text is short");
    let tool = position(text.rfind("bench:").expect("the last step calls a tool"));
    let id = position(text.find("id: s0").expect("the first step has an id") + 4);
    assert!(!correct.completions(position(last)).is_empty(), "names are proposed");
    assert!(!unfinished.completions(position(last)).is_empty(), "names are proposed");
    assert!(correct.rename(id, "renamed").expect("the name is free").len() > 3);

    let measured = |work: &mut dyn FnMut()| {
        let mut compiled = || {
            black_box(compile(black_box(&yaml), &catalog, &limits));
        };
        compare(Clock::Processor, &mut compiled, work)
    };
    let named = |name: &str| format!("{name}, {STEPS} steps (floor: compile)");
    let row = |name: &str, most: Option<Duration>, work: &mut dyn FnMut()| {
        let pairs = measured(work);
        let met = most.map(|most| pairs.engine() <= most);
        let target = most.map_or_else(|| "—".to_owned(), |most| format!("≤ {}", show(most)));
        Row { target, met, ..pairs.row(&named(name), 0.0, 1) }
    };
    let edited = |name: &str, change: &Edit| {
        let make = || edit::edit(black_box(&yaml), black_box(change), &catalog, &limits);
        assert!(!make().expect("the edit is possible").edits.is_empty(), "{name}");
        let pairs = measured(&mut || {
            let _ = black_box(make());
        });
        pairs.row(&named(name), EDIT_RATIO, 1)
    };
    let middle = format!("s{}", STEPS / 2);
    let analyze = |source: &Source| {
        black_box(Analysis::new(black_box(source), &catalog, &limits));
    };
    let complete = |analysis: &Analysis, at: u32| {
        black_box(analysis.completions(black_box(at)));
    };
    vec![
        row("findings", Some(FINDINGS_MAX), &mut || analyze(&yaml)),
        row("findings of a broken text", Some(FINDINGS_MAX), &mut || analyze(&broken)),
        row("completion of a name", Some(COMPLETION_MAX), &mut || {
            complete(&correct, position(last));
        }),
        row("completion of a tool", Some(COMPLETION_MAX), &mut || complete(&correct, tool)),
        row("completion in a broken text", Some(COMPLETION_MAX), &mut || {
            complete(&unfinished, position(last));
        }),
        row("hover", Some(COMPLETION_MAX), &mut || {
            black_box(correct.hover(position(last)));
        }),
        row("rename", None, &mut || {
            black_box(correct.rename(id, "renamed").expect("the name is free"));
        }),
        edited(
            "edit: a parameter",
            &Edit::SetField {
                step: Some(middle.as_str().into()),
                field: "/parameters/n".into(),
                value: Value::from(7),
            },
        ),
        edited(
            "edit: add a step",
            &Edit::AddStep {
                step: Value::object([("id", Value::from("added")), ("wait", Value::from("1s"))]),
                place: Place::After { step: middle.as_str().into() },
            },
        ),
        edited(
            "edit: move a step",
            &Edit::MoveStep {
                step: middle.as_str().into(),
                place: Place::After { step: format!("s{}", STEPS - 1).into() },
            },
        ),
        edited(
            "edit: rename a step",
            &Edit::RenameStep { step: middle.as_str().into(), to: "renamed".into() },
        ),
    ]
}
