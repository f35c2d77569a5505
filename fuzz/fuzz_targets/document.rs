//! A document through every stage: read, checked, converted, planned, drawn, dry-run, run with
//! tools that answer at once, and shown.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use segue_core::compile::{compile, convert, read_header, read_template};
use segue_core::plan::plan;
use segue_core::run::{admit, dry_run};
use segue_core::source::Source;
use segue_core::testing::read_tests;
use segue_core::value::Value;
use segue_core::view::PlanView;
use segue_core::view::explain;
use segue_fuzz::{CATALOG, LIMITS, run, started};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let name = if text.trim_start().starts_with('{') { "fuzz.json" } else { "fuzz.yaml" };
    let source = Source::new(name, &*text);
    let _ = read_header(&source, &LIMITS);
    let mut found = convert(&source, &LIMITS).diagnostics;
    found.extend(read_template(&source, &LIMITS).err().into_iter().flatten());
    found.extend(read_tests(&source, &LIMITS).1);
    let compiled = compile(&source, &CATALOG, &LIMITS);
    found.extend(compiled.diagnostics);
    found.iter().for_each(|finding| drop(finding.view(&source)));
    let Some(composition) = compiled.composition else { return };
    let Ok(plan) = plan(&composition, &LIMITS) else { return };
    let plan = Arc::new(plan);
    let view = PlanView::from_plan(&plan);
    drop((
        explain::to_text(&view),
        explain::mermaid(&view),
        explain::dot(&view),
        explain::svg(&view),
    ));
    let input = composition.input.as_ref().and_then(|schema| schema.sample());
    let (input, context) = (input.unwrap_or_else(Value::empty_object), Value::empty_object());
    let Ok(input) = admit(&plan, input, &context, &LIMITS) else {
        return;
    };
    let view = dry_run(&plan, &started(input.clone()), &LIMITS);
    drop(serde_json::to_string(&view));
    let chance = data.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31) ^ u64::from(*byte));
    let view = run(&plan, input, chance);
    drop(serde_json::to_string(&view));
});
