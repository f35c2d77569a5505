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

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Once};

use proptest::prelude::{ProptestConfig, proptest};
use proptest::sample::{Index, select};
use segue_core::catalog::Catalog;
use segue_core::composition::Composition;
use segue_core::diagnostic::Code;
use segue_core::language::{Analysis, Completion, Observations, TextEdit, apply};
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::source::{Source, Span};
use segue_core::value::Value;
use segue_core::view::PlanView;
use support::{cases, catalog_of, corpus};

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

/// Every composition of the corpus.
fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in ["check/correct", "check/broken", "run"] {
        for case in cases(part) {
            for name in ["composition.yaml", "composition.json"] {
                if let Ok(text) = fs::read_to_string(case.join(name)) {
                    found.push((name.to_owned(), text));
                }
            }
        }
    }
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let (case, _) = text.split_once("\n=====\n").unwrap();
        let (head, text) = case.split_once('\n').unwrap();
        found.push((head.split(' ').nth(1).unwrap().to_owned(), text.replace('‸', "")));
    }
    assert!(found.len() > 300, "only {} texts", found.len());
    found
}

/// Edits lie inside the text, on character boundaries, sorted, without overlaps.
fn check_edits(text: &str, edits: &[TextEdit]) {
    let mut from = 0;
    for edit in edits {
        let range = edit.span.range();
        assert!(from <= range.start && range.start <= range.end, "{edits:?}");
        assert!(text.get(range.clone()).is_some(), "{edit:?} does not fit");
        from = range.end;
    }
}

/// Everything that can be asked at a position, of any text.
fn ask_everything(analysis: &Analysis, at: u32) {
    let text = analysis.source().text();
    for finding in analysis.findings() {
        assert_ne!(finding.code, Code::Internal, "{finding:?}");
    }
    for proposal in analysis.completions(at) {
        check_edits(text, std::slice::from_ref(&proposal.edit));
        let end = u32::try_from(text.len()).unwrap();
        let (span, at) = (proposal.edit.span, at.min(end));
        // A position inside a character means the character.
        assert!(span.start <= at && at <= span.end + 3, "{proposal:?} is not at {at}");
    }
    if let Some(hover) = analysis.hover(at) {
        assert!(text.get(hover.span.range()).is_some(), "{hover:?} in {text:?}");
    }
    let spans = analysis.references(at).into_iter().chain(analysis.definition(at));
    for span in spans.chain(analysis.rename_span(at)) {
        assert!(
            text.get(span.range()).is_some_and(|word| !word.is_empty()),
            "{span:?} in {text:?}"
        );
    }
    for to in ["another_name", "7", "read-it", "ü", "", "a b"] {
        if let Ok(edits) = analysis.rename(at, to) {
            check_edits(text, &edits);
        }
    }
    for token in analysis.tokens() {
        assert!(text.get(token.span.range()).is_some(), "{token:?} in {text:?}");
    }
    for link in analysis.links() {
        assert!(text.get(link.span.range()).is_some(), "{link:?} in {text:?}");
    }
    for action in analysis.actions(Span { start: 0, end: u32::MAX }) {
        check_edits(text, &action.edits);
    }
    let _ = (analysis.outline(), analysis.steps());
}

thread_local! {
    /// Panics of this thread. The service contains them, so only the hook sees them.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            hook(panic);
        }));
    });
}

/// What a typing author or a hostile one puts into a text.
const INSERTED: &[&str] = &[
    "",
    "\"",
    "'",
    "{{ ",
    "}}",
    "{{ read.",
    "{",
    "[",
    "]",
    "}",
    ":",
    "- ",
    "\n",
    "\r\n",
    "\t",
    "# ",
    "|\n",
    "&a ",
    "*a ",
    "\u{feff}",
    "ü",
    "🦀",
    ".",
    "| ",
    "is ",
    "tool: ",
    "par",
    ",",
    "---\n",
    "\\",
    "lambda x: ",
    "(",
    "$",
];

/// `PROPTEST_CASES` asks for more.
fn cases_wanted() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

fn boundary(text: &str, at: Index) -> usize {
    text.floor_char_boundary(at.index(text.len() + 1))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases_wanted(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_and_any_position_are_answered(
        which: Index, cut: (Index, Index), keeps_all: bool,
        inserted in select(INSERTED), place: Index, at: Index, is_near: bool,
    ) {
        static TEXTS: LazyLock<Vec<(String, String)>> = LazyLock::new(texts);
        static TOOLS: LazyLock<Catalog> = LazyLock::new(|| {
            let mut tools = support::catalog();
            self::tools().tools().for_each(|tool| tools.insert(tool.clone()));
            tools
        });
        count_panics();
        PANICS.set(0);
        let (name, text) = which.get(&TEXTS);
        let (from, to) = (boundary(text, cut.0), boundary(text, cut.1));
        let (from, to) = if keeps_all { (0, 0) } else { (from.min(to), from.max(to)) };
        let mut text = [&text[..from], &text[to..]].concat();
        let place = boundary(&text, place);
        text.insert_str(place, inserted);
        let at = if is_near { place + inserted.len() } else { at.index(text.len() + 9) };
        let source = Source::new(name.as_str(), text.as_str());
        let analysis = Analysis::new(&source, &TOOLS, &Limits::default());
        ask_everything(&analysis.with_observations(observations()), u32::try_from(at).unwrap());
        assert_eq!(PANICS.get(), 0, "{at} in {text:?}");
    }
}

/// After a rename, a correct composition is the same up to the name, and renaming back restores the
/// text.
#[test]
fn a_renamed_composition_is_the_same_up_to_the_name() {
    let tools = support::catalog();
    let limits = Limits::default();
    let fresh = "quite_another_name";
    let (mut renamed, mut refused) = (0, 0);
    for case in cases("check/correct") {
        let source = support::composition_of(&case);
        let analysis = Analysis::new(&source, &tools, &limits);
        let Some(composition) = analysis.composition().cloned() else { continue };
        let before = plan_json(&composition, &limits);
        let mut ids = Vec::new();
        composition.body.walk(&mut |step| ids.push((step.id.clone(), step.id_span.start + 1)));
        for (id, at) in ids {
            let Ok(edits) = analysis.rename(at, fresh) else {
                refused += 1;
                continue;
            };
            check_edits(source.text(), &edits);
            let text = apply(source.text(), &edits);
            let after = Source::new(source.name().clone(), text.as_str());
            let after = Analysis::new(&after, &tools, &limits);
            let composition = after.composition().expect("it stays correct");
            let name = case.file_name().unwrap().display();
            assert_eq!(plan_json(composition, &limits).replace(fresh, &id), before, "{name}: {id}");
            let back = after.rename(edits[0].span.start + 1, &id).expect("it was called so");
            assert_eq!(apply(&text, &back), source.text(), "{name}: {id}");
            renamed += 1;
        }
    }
    assert!(renamed > 200 && refused * 4 < renamed, "{renamed} renamed, {refused} refused");
}

/// After a rename of a property of the input the composition is correct, and renaming back restores the text.
#[test]
fn a_renamed_input_keeps_its_composition_correct() {
    let (tools, limits, fresh) = (support::catalog(), Limits::default(), "quite_another_name");
    let (mut renamed, mut refused) = (0, 0);
    for case in cases("check/correct").into_iter().chain(cases("run")) {
        let source = support::composition_of(&case);
        let analysis = Analysis::new(&source, &tools, &limits);
        let Some(composition) = analysis.composition() else { continue };
        let Some(properties) =
            composition.input.as_ref().and_then(|it| it.json().get("properties"))
        else {
            continue;
        };
        for name in properties.as_object().into_iter().flat_map(|known| known.keys()) {
            // A use in an expression, or the declaration of a property that nothing reads.
            let used = format!("input.{name}");
            let Some(at) = source.text().find(&used).map(|at| at + "input.".len()) else {
                continue;
            };
            let at = u32::try_from(at + 1).unwrap();
            let Ok(edits) = analysis.rename(at, fresh) else {
                refused += 1;
                continue;
            };
            check_edits(source.text(), &edits);
            let text = apply(source.text(), &edits);
            let after = Source::new(source.name().clone(), text.as_str());
            let after = Analysis::new(&after, &tools, &limits);
            let now = after.composition().expect("it stays correct").input.as_ref().unwrap();
            assert!(now.json().get("properties").unwrap().get(fresh).is_some(), "{text}");
            let back = after.rename(edits[0].span.start + 1, name).expect("it was called so");
            assert_eq!(apply(&text, &back), source.text(), "{}: {name}", case.display());
            renamed += 1;
        }
    }
    assert!(renamed > 20 && refused * 4 < renamed, "{renamed} renamed, {refused} refused");
}

/// A plan without its hash.
fn plan_json(composition: &Arc<Composition>, limits: &Limits) -> String {
    let mut view = PlanView::from_plan(&plan(composition, limits).unwrap());
    view.hash = "".into();
    serde_json::to_string(&view).unwrap()
}
