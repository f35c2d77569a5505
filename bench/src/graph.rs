//! The cost of planning, and how compiling grows.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};

use crate::floor::{self, From};
use crate::measure::{Clock, Row, compare, interval, median, median_time, show};
use crate::workload::{Workload, lazily, source};

/// Steps per layer of the layered graph.
pub(crate) const WIDTH: usize = 20;

pub(crate) fn catalog() -> Catalog {
    let mut spec = ToolSpec::new(ToolId::new("bench", "echo"), "echoes", Schema::any_object());
    spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    Catalog::new([Arc::new(spec)])
}

/// Document limits that admit ten thousand steps.
pub(crate) fn limits() -> Limits {
    Limits { document_nodes_max: 2_000_000, document_bytes_max: 64 << 20, ..Limits::default() }
}

fn layered_source(steps: usize) -> Source {
    source(&floor::layered(steps, WIDTH))
}

pub(crate) fn rows() -> Vec<Row> {
    let (catalog, limits) = (catalog(), limits());
    let steps = floor::layered(1_000, WIDTH);
    let names: Vec<(String, Vec<String>)> = steps
        .iter()
        .map(|step| {
            let needs = step.arguments.iter().filter_map(|(_, from)| match from {
                From::Step(need, _) => Some(steps[*need].id.clone()),
                From::Input(_) | From::Number(_) => None,
            });
            (step.id.clone(), needs.collect())
        })
        .collect();
    let composition =
        compile(&source(&steps), &catalog, &limits).composition.expect("the graph is sound");
    let planned = compare(
        Clock::Processor,
        &mut || {
            black_box(floor::plan(black_box(&names)));
        },
        &mut || {
            black_box(plan(black_box(&composition), &limits).expect("the graph is sound"));
        },
    );
    let plan_row = planned.row("plan of the 1,000-step graph", 3.0, 1);
    vec![plan_row, growth(&catalog, &limits)]
}

/// Compile + check + plan of 1,000 steps as the floor, of 10,000 steps as the engine: for counting.
pub(crate) fn compilation() -> Workload {
    let of = |steps: usize| {
        lazily(
            move || (layered_source(steps), catalog(), limits()),
            |(source, catalog, limits)| compile_and_plan(source, catalog, limits),
        )
    };
    Workload {
        name: "compile + check + plan, 1,000 → 10,000 steps".to_owned(),
        most: 12.0,
        steps: 1,
        floor: of(1_000),
        engine: of(10_000),
    }
}

fn compile_and_plan(source: &Source, catalog: &Catalog, limits: &Limits) {
    let composition = compile(source, catalog, limits).composition.expect("sound");
    black_box(plan(&composition, limits).expect("sound"));
}

/// The time of compile + check + plan at 10,000 steps, in multiples of 1,000 steps. Both take turns,
/// and the small one is done ten times in its turn, so that a slow moment hits both alike. The target
/// is one of instructions, in the rows that are counted: memory beyond the caches takes its time.
fn growth(catalog: &Catalog, limits: &Limits) -> Row {
    const PAIRS: usize = 9;
    let (small, large) = (layered_source(1_000), layered_source(10_000));
    let time = |source: &Source, times: u32| {
        let begun = Instant::now();
        for _ in 0..times {
            compile_and_plan(source, catalog, limits);
        }
        begun.elapsed() / times
    };
    let pairs: Vec<(Duration, Duration)> =
        (0..PAIRS).map(|_| (time(&small, 10), time(&large, 1))).collect();
    let ratios: Vec<f64> =
        pairs.iter().map(|(small, large)| large.as_secs_f64() / small.as_secs_f64()).collect();
    let (low, high) = interval(&ratios);
    Row {
        name: "compile + check + plan, 1,000 → 10,000 steps".to_owned(),
        floor: show(median_time(pairs.iter().map(|(small, _)| *small))),
        engine: show(median_time(pairs.iter().map(|(_, large)| *large))),
        ratio: format!("{:.1} ({low:.1}–{high:.1})", median(&ratios)),
        target: "—".to_owned(),
        met: None,
    }
}
