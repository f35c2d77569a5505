//! The language service on texts with a cursor. To add a case, add a file to `corpus/language`.
//!
//! Its first line says what is asked and of which file: `complete x.yaml`, `hover x.json`,
//! `definition x.yaml`, `rename x.yaml NAME`. The text follows, with `‸` at the position, then a
//! line `=====` and the expected answer. `INSTA_UPDATE=always` writes the answers anew.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use segue_core::catalog::Catalog;
use segue_core::language::{Analysis, Completion, Observations, apply};
use segue_core::limits::Limits;
use segue_core::source::{Source, Span};
use segue_core::value::Value;
use support::{catalog_of, corpus};

/// Proposals that an answer lists.
const SHOWN: usize = 14;

fn tools() -> Catalog {
    catalog_of(&fs::read_to_string(corpus().join("language/tools.yaml")).unwrap())
}

fn files() -> Vec<PathBuf> {
    let folder = fs::read_dir(corpus().join("language")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// The step `read` returned this in its last run.
fn observations() -> Observations {
    let text = r#"{"content": "hello", "info": {"size": 5}}"#;
    let value: Value = serde_json::from_str(text).unwrap();
    Observations { steps: [("read".into(), value)].into(), ..Observations::default() }
}

fn answer(case: &str) -> String {
    let (head, text) = case.split_once('\n').unwrap();
    let words: Vec<&str> = head.split(' ').collect();
    let at = text.find('‸').expect("the case has a cursor");
    let text = text.replacen('‸', "", 1);
    let source = Source::new(words[1], text.as_str());
    let analysis = Analysis::new(&source, &tools(), &Limits::default());
    let analysis = analysis.with_observations(observations());
    let at = u32::try_from(at).unwrap();
    match words[0] {
        "complete" => completions(&analysis, at),
        "hover" => hover(&analysis, at),
        "definition" => definition(&analysis, at),
        "rename" => match analysis.rename(at, words[2]) {
            Ok(edits) => apply(&text, &edits),
            Err(error) => {
                let help = error.help.as_deref().unwrap_or("-");
                format!("{}: {error}; {help}\n", error.code)
            }
        },
        other => panic!("unknown request `{other}`"),
    }
}

fn completions(analysis: &Analysis, at: u32) -> String {
    let found = analysis.completions(at);
    let mut shown = String::new();
    for Completion { label, kind, detail, edit, required, .. } in found.iter().take(SHOWN) {
        let detail = detail.as_deref().unwrap_or("-");
        let must = if *required { "*" } else { "" };
        let old = analysis.source().slice(edit.span);
        let _ = writeln!(shown, "{label}{must} | {kind:?} | {detail} | {old:?} -> {:?}", edit.text);
    }
    if found.len() > SHOWN {
        let _ = writeln!(shown, "… and {} more", found.len() - SHOWN);
    }
    shown
}

fn hover(analysis: &Analysis, at: u32) -> String {
    let Some(found) = analysis.hover(at) else { return "nothing\n".to_owned() };
    let word = analysis.source().slice(found.span);
    let ty = found.ty.as_deref().unwrap_or("-");
    let schema = found.schema.map_or_else(|| "-".to_owned(), |schema| schema.to_json());
    format!("{word:?} is {ty}\n{}\nschema: {schema}\n", found.contents)
}

fn definition(analysis: &Analysis, at: u32) -> String {
    let place = |span: Span| {
        let position = analysis.source().position(span.start);
        format!("{}:{} {:?}", position.line, position.column, analysis.source().slice(span))
    };
    let declared = analysis.definition(at).map_or_else(|| "nothing".to_owned(), place);
    let mut shown = format!("declared {declared}\n");
    for span in analysis.references(at) {
        let _ = writeln!(shown, "used {}", place(span));
    }
    shown
}

#[test]
fn every_case_has_its_answer() {
    let update = std::env::var("INSTA_UPDATE").is_ok_and(|word| word == "always");
    let mut wrong = String::new();
    let files = files();
    assert!(files.len() >= 30, "only {} cases", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (case, expected) = text.split_once("\n=====\n").expect("the case has an answer");
        let found = answer(&format!("{case}\n"));
        if update {
            fs::write(&file, format!("{case}\n=====\n{found}")).unwrap();
        } else if found != expected {
            let name = file.file_name().unwrap().display();
            let _ = writeln!(wrong, "{name}: expected\n{expected}found\n{found}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
