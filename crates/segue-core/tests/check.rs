//! The corpus of `segue check`: every planted mistake is found at its place, all at once, and
//! correct compositions give nothing. To add a case, add a folder.
//!
//! `expected.txt` has a line per finding: `severity code line:column part of the message or help`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::diagnostic::{Code, DiagnosticView};
use segue_core::limits::Limits;
use segue_core::source::Source;
use support::{cases, catalog, composition_of};

fn findings(case: &Path, catalog: &Catalog) -> Vec<DiagnosticView> {
    let source = composition_of(case);
    let compiled = compile(&source, catalog, &Limits::default());
    compiled.diagnostics.iter().map(|finding| finding.view(&source)).collect()
}

fn line(finding: &DiagnosticView) -> String {
    let severity = format!("{:?}", finding.severity).to_lowercase();
    let help = finding.help.as_deref().unwrap_or("-");
    let (code, line, column) = (finding.code, finding.line, finding.column);
    format!("{severity} {code} {line}:{column} {} | {help}", finding.message)
}

/// Whether a finding is the one that an expectation describes.
fn fits(expected: &str, finding: &DiagnosticView) -> bool {
    let mut parts = expected.splitn(4, ' ');
    let mut next = || parts.next().unwrap_or("");
    let head = [next(), next(), next()].join(" ");
    let text = next();
    let said = line(finding);
    said.starts_with(&format!("{head} ")) && said[head.len()..].contains(text)
}

#[test]
fn every_planted_mistake_is_found_at_its_place() {
    let catalog = catalog();
    let mut wrong = String::new();
    let all = cases("check/broken");
    for case in &all {
        let expected = fs::read_to_string(case.join("expected.txt")).unwrap();
        let expected: Vec<&str> =
            expected.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let found = findings(case, &catalog);
        let same = expected.len() == found.len()
            && expected.iter().zip(&found).all(|(expected, found)| fits(expected, found));
        if !same {
            let name = case.file_name().unwrap().to_string_lossy();
            let _ = writeln!(wrong, "\n{name}");
            expected.iter().for_each(|line| writeln!(wrong, "  expected {line}").unwrap());
            found.iter().for_each(|found| writeln!(wrong, "  found    {}", line(found)).unwrap());
        }
    }
    assert!(all.len() >= 60, "only {} broken compositions", all.len());
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn correct_compositions_give_nothing() {
    let catalog = catalog();
    let mut wrong = String::new();
    let all = cases("check/correct");
    for case in &all {
        for finding in findings(case, &catalog) {
            let name = case.file_name().unwrap().to_string_lossy();
            let _ = writeln!(wrong, "{name}: {}", line(&finding));
        }
    }
    assert!(all.len() >= 30, "only {} correct compositions", all.len());
    assert!(wrong.is_empty(), "{wrong}");
}

/// A chain with many meaningless names: a hint for each.
fn chatty(names: usize, tool: &str) -> Source {
    let names: Vec<String> = (0..names).map(|n| format!("x{n}: {n}")).collect();
    let text = format!(
        "name: chatty\ndialect: chain\nsteps:\n  - set: {{ {} }}\n  - {{ tool: {tool}, inputs: {{}} }}\n",
        names.join(", ")
    );
    Source::new("chatty.yaml", text)
}

#[test]
fn what_is_not_shown_stops_nothing() {
    let (catalog, limits) = (catalog(), Limits::default());
    let shown = limits.diagnostics_max;
    let compiled = compile(&chatty(shown + 50, "tool_a"), &catalog, &limits);
    assert!(compiled.composition.is_some());
    assert_eq!(compiled.diagnostics.len(), shown + 1);
    let last = compiled.diagnostics.last().unwrap();
    assert_eq!(last.message, "52 more findings are not shown");
    // Errors are never among the omitted findings.
    let compiled = compile(&chatty(shown + 50, "tool_z"), &catalog, &limits);
    assert!(compiled.composition.is_none());
    assert!(compiled.diagnostics.iter().any(|finding| finding.code == Code::UnknownTool));
}
