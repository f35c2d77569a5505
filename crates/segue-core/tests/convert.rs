//! Documents of every dialect converted to the native one: the plan is the same, and no comment is
//! lost.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use segue_core::compile::source::Source;
use segue_core::compile::{compile, convert};
use segue_core::composition::{Composition, Dialect};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::plan::plan;
use std::sync::Arc;
use support::{cases, catalog, composition_of, with_compositions};

fn hash_of(composition: &Arc<Composition>) -> Arc<str> {
    plan(composition, &Limits::default()).unwrap().hash().clone()
}

/// Issue 6, equality: a converted document means the same to the last bit.
#[test]
fn every_converted_document_gives_the_same_plan() {
    let (tools, limits) = (catalog(), Limits::default());
    let mut converted = 0;
    for case in cases("run").into_iter().chain(cases("check/correct")) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let catalog = with_compositions(&case, &tools);
        let source = composition_of(&case);
        let before = compile(&source, &catalog, &limits).composition.unwrap();
        if name == "skill-reads-a-later-step" {
            continue;
        }
        let written = convert(&source, &limits);
        let text = written.text.unwrap_or_else(|| panic!("{name}: {:?}", written.diagnostics));
        let native = Source::new(source.name().to_owned(), text.clone());
        let compiled = compile(&native, &catalog, &limits);
        let after = compiled
            .composition
            .unwrap_or_else(|| panic!("{name}: {:?}\n{text}", compiled.diagnostics));
        assert_eq!(after.dialect, Dialect::Composition, "{name}\n{text}");
        assert_eq!(hash_of(&before), hash_of(&after), "{name}\n{text}");
        for comment in source.text().lines().map(str::trim).filter(|line| line.starts_with("# ")) {
            assert!(text.contains(comment), "{name} lost {comment}\n{text}");
        }
        let again = convert(&native, &limits).text.unwrap();
        assert_eq!(again, text, "{name}: what is native stays as it is");
        converted += usize::from(before.dialect != Dialect::Composition);
    }
    assert!(converted >= 90, "only {converted} documents of other dialects");
}

/// A document that would mean something else is refused, such as a skill that reads a later step.
#[test]
fn what_would_mean_something_else_is_refused() {
    let case = support::corpus().join("run/skill-reads-a-later-step");
    let written = convert(&composition_of(&case), &Limits::default());
    assert!(written.text.is_none());
    let finding = written.diagnostics.last().unwrap();
    assert_eq!(finding.code, Code::Conversion);
    assert!(finding.message.contains("Circular dependency"), "{}", finding.message);
}

const CHAIN: &str = r#"# What it is for.
name: kept_comments   # its name
documentation:
  summary: |
    Several lines
    # this is text
parameters:
  # what to look for
  - { name: term, type: string, required: true }
implementation:
  type: composite
  composite:
    steps:
      # first the search
      - tool: primary_data_tool
        inputs:
          query: "a # b {{ state.term }}"   # no comment inside the quotes
        on_success:
          map_outputs: { results: found_data }
          next: process_results
        on_failure: { next: fallback_data_tool }
      # only when the search fails
      - tool: fallback_data_tool
        inputs: { query: "{{ state.term }}" }
        on_success: { map_outputs: { results: found_data } }
      - tool: process_results
        inputs: { data: "{{ state.found_data }}" }
# the end
"#;

#[test]
fn comments_stay_with_what_they_are_about() {
    let written = convert(&Source::new("chain.yaml", CHAIN), &Limits::default()).text.unwrap();
    insta::assert_snapshot!("comments", &*written);
}
