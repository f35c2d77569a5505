//! Random edits of the compositions of the corpus, the examples and the templates, in several notations.
//!
//! For each: lines that the edit does not concern keep their bytes; the text means what the same edit
//! makes of the plain value, and compiles to the same; the inverse edits restore the bytes.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod declared;
mod generate;
mod model;
mod random;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::diagnostic::{Code, Severity};
use segue_core::document::{ReadLimits, read};
use segue_core::language::edit::{Edit, edit};
use segue_core::language::{TextEdit, apply};
use segue_core::limits::Limits;
use segue_core::source::{Source, Span};
use segue_core::value::Value;

use random::Random;
use texts::Text;

/// How many edits are tried.
const EDITS: u64 = 1_000;

fn value_of(source: &Source) -> Value {
    read(source, ReadLimits::for_documents(&Limits::default()))
        .unwrap_or_else(|findings| panic!("{findings:?}\n{}", source.text()))
        .to_value()
}

/// The edits that restore the original text.
fn inverse(text: &str, edits: &[TextEdit]) -> Vec<TextEdit> {
    let mut grown = 0_i64;
    let back = |edit: &TextEdit| {
        let range = edit.span.range();
        let start = usize::try_from(i64::try_from(range.start).unwrap() + grown).unwrap();
        grown += i64::try_from(edit.text.len()).unwrap() - i64::try_from(range.len()).unwrap();
        TextEdit { span: Span::new(start, start + edit.text.len()), text: text[range].to_owned() }
    };
    edits.iter().map(back).collect()
}

/// What a text compiles to: its steps with their kinds and needs, and the codes of its errors.
fn compiled(source: &Source, catalog: &Catalog) -> (Vec<String>, Vec<Code>) {
    let compiled = compile(source, catalog, &Limits::default());
    let mut steps = Vec::new();
    if let Some(composition) = &compiled.composition {
        composition.body.walk(&mut |step| {
            steps.push(format!("{} {} {:?}", step.id, step.kind.keyword(), step.needs));
        });
    }
    let errors = compiled.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let mut codes: Vec<Code> = errors.map(|found| found.code).collect();
    codes.sort();
    (steps, codes)
}

/// Everything that is wrong about one edit, or the reason for which it is refused.
fn wrong(text: &Text, change: &Edit, catalog: &Catalog) -> Result<Vec<String>, Code> {
    let source = text.source();
    let edited = match edit(&source, change, catalog, &Limits::default()) {
        Ok(edited) => edited,
        Err(error) if error.code == Code::Internal => return Ok(vec![error.message]),
        Err(error) => return Err(error.code),
    };
    let mut wrong = Vec::new();
    let after = apply(source.text(), &edited.edits);
    if apply(&after, &inverse(source.text(), &edited.edits)) != source.text() {
        wrong.push("the inverse edits do not restore the text".to_owned());
    }
    let in_order = edited.edits.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start);
    if !in_order {
        wrong.push("the edits are not in order".to_owned());
    }
    if text.is_crlf() && after.matches('\n').count() != after.matches("\r\n").count() {
        wrong.push("a line lost its ending".to_owned());
    }
    let after_source = Source::new(source.name().clone(), after.as_str());
    let before = value_of(&source);
    let now = value_of(&after_source);
    if let Some(expected) = model::applied(&before, change) {
        if now != expected {
            wrong.push(format!("it means {now}\ninstead of {expected}"));
        }
        let plain = Source::new("model.json", expected.to_json());
        let (ours, theirs) = (compiled(&after_source, catalog), compiled(&plain, catalog));
        if ours != theirs {
            wrong.push(format!("it compiles to {ours:?}\ninstead of {theirs:?}"));
        }
    }
    wrong.extend(model::broken_promise(&before, &now, change));
    if let Edit::RenameStep { step, to } = change {
        let same = |(steps, codes): (Vec<String>, Vec<Code>), id: &str| {
            let steps: Vec<String> = steps
                .iter()
                .map(|line| {
                    line.strip_prefix(&format!("{id} "))
                        .map_or(line.clone(), |rest| format!("? {rest}"))
                })
                .collect();
            (steps, codes)
        };
        let (was, is) = (compiled(&source, catalog), compiled(&after_source, catalog));
        if same(was.clone(), step) != same(is.clone(), to) {
            wrong.push(format!("it compiled to {was:?}\nand now to {is:?}"));
        }
    }
    let missing = declared::missing_lines(&source, change, &after);
    if !missing.is_empty() {
        wrong.push(format!("lines changed that have nothing to do with it: {missing:#?}"));
    }
    Ok(wrong)
}

#[test]
fn a_thousand_random_edits_change_their_own_lines_only() {
    let catalog = support::catalog();
    let texts = texts::all();
    let seed: u64 = std::env::var("SEGUE_EDIT_SEED").map_or(1, |seed| seed.parse().unwrap());
    let count: u64 =
        std::env::var("SEGUE_EDIT_COUNT").map_or(EDITS, |count| count.parse().unwrap());
    let mut done: BTreeMap<&'static str, u32> = BTreeMap::new();
    let mut refused: BTreeMap<(&'static str, &'static str), u32> = BTreeMap::new();
    let (mut made, mut tried) = (0, 0);
    let mut failures: Vec<String> = Vec::new();
    while made < count && failures.len() < 5 {
        tried += 1;
        assert!(tried < 20 * count, "too many edits are refused: {made} of {tried}");
        let mut random = Random::new(seed.wrapping_mul(1_000_003) + tried);
        let text = texts[random.below(texts.len())].varied(&mut random);
        let Some(change) = generate::random_edit(&value_of(&text.source()), &mut random) else {
            continue;
        };
        let wrong = match wrong(&text, &change, &catalog) {
            Ok(wrong) => wrong,
            Err(code) => {
                *refused.entry((model::kind(&change), code.as_str())).or_default() += 1;
                continue;
            }
        };
        if !wrong.is_empty() {
            let wrong = wrong.join("\n");
            failures.push(format!(
                "try {tried}, {}: {change:?}\n{wrong}\n---\n{}",
                text.name, text.text
            ));
        }
        made += 1;
        *done.entry(model::kind(&change)).or_default() += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n=====\n"));
    println!("{made} edits of {} texts: {done:?}", texts.len());
    println!("refused: {refused:?}");
    assert!(count < EDITS || done.len() >= 12, "not every kind of edit occurred: {done:?}");
}

/// Dialects other than the native one and chains are refused, with a reason.
#[test]
fn other_dialects_are_refused() {
    let catalog = support::catalog();
    let change =
        Edit::SetField { step: None, field: Arc::from("/description"), value: Value::from("x") };
    let mut refused = 0;
    for text in texts::of_other_dialects() {
        let error = edit(&text.source(), &change, &catalog, &Limits::default()).unwrap_err();
        assert_eq!(error.code, Code::Unsupported, "{}: {}", text.name, error.message);
        assert!(error.help.is_some());
        refused += 1;
    }
    assert!(refused >= 5, "only {refused} texts of other dialects");
}
