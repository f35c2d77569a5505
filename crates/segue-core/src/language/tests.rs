//! What an analysis says of small texts; the larger cases are folders in `tests/corpus/language`.

use super::*;
use crate::composition::tool::Impact;
use crate::diagnostic::Code;
use crate::schema::Schema;
use crate::tool::ToolSpec;

fn analysis(text: &str) -> Analysis {
    let search = ToolSpec::new(ToolId::new("web", "search"), "Searches", Schema::any_object());
    let catalog = Catalog::new([Arc::new(search)]);
    Analysis::new(&Source::new("x.yaml", text), &catalog, &Limits::default())
}

#[test]
fn a_composition_with_errors_still_has_its_steps() {
    let text = "name: x\nsteps:\n  - id: a\n    tool: web:search\n  - 7\n  - id: b\n    tool: nothing\n    \
                depends_on: [a, missing]\n";
    let analysis = analysis(text);
    assert!(analysis.composition().is_none());
    let steps: Vec<_> = analysis.steps().iter().map(|step| (&*step.id, step.effect)).collect();
    assert_eq!(steps, [("a", Impact::Unknown), ("b", Impact::Unknown)]);
    assert_eq!(&*analysis.steps()[1].needs[0], "a");
}

#[test]
fn the_outline_nests_steps_and_shows_input_and_output() {
    let text = "name: x\ninput:\n  type: object\n  properties:\n    q: { type: string }\nsteps:\n  - id: both\n    \
                parallel:\n      - id: left\n        tool: web:search\n      - id: right\n        wait: 1s\noutput: 1\n";
    let items = analysis(text).outline();
    let names: Vec<_> = items.iter().map(|item| (&*item.name, item.kind)).collect();
    use OutlineKind::{Input, Output, Step};
    assert_eq!(names, [("input", Input), ("both", Step), ("output", Output)]);
    assert_eq!(items[0].children[0].detail.as_deref(), Some("string"));
    let labels: Vec<_> = items[1].children.iter().map(|item| &*item.name).collect();
    assert_eq!(labels, ["left", "right"]);
    assert_eq!(items[1].children[0].children[0].detail.as_deref(), Some("web:search"));
}

#[test]
fn a_suggestion_is_an_action() {
    let text = "name: x\nsteps:\n  - id: a\n    tol: web:search\n";
    let analysis = analysis(text);
    let at = u32::try_from(text.find("tol").unwrap()).unwrap();
    let actions = analysis.actions(Span { start: at, end: at });
    assert_eq!(actions[0].title, "change `tol` to `tool`");
    assert!(apply(text, &actions[0].edits).contains("    tool: web:search"));
    assert!(analysis.actions(Span::default()).is_empty());
}

#[test]
fn a_text_that_does_not_parse_keeps_its_steps_and_other_findings() {
    let text = "name: x\nsteps:\n  - id: a\n    tool: web:search\n    par\n  - id: b\n    tool: web:serch\n    \
                parameters: { q: \"{{ a.x }}\" }\n";
    let analysis = analysis(text);
    assert_eq!(analysis.steps().len(), 2);
    assert_eq!(&*analysis.steps()[1].needs[0], "a");
    let codes: Vec<Code> = analysis.findings().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::Parse, Code::UnknownTool]);
    assert!(analysis.composition().is_none());
}

#[test]
fn tokens_are_those_of_expressions() {
    let text = "name: x\nsteps:\n  - id: a\n    tool: web:search\n    when: input.n is not even\n    \
                parameters: { q: \"on {{ input.n | default('x', boolean=true) }}\" }\n";
    let tokens = analysis(text).tokens();
    let shown: Vec<(&str, TokenKind)> =
        tokens.iter().map(|token| (&text[token.span.range()], token.kind)).collect();
    use TokenKind::{Brace, Filter, Keyword, Member, Name, Operator, Test, Text};
    let condition = [("input", Name), (".", Operator), ("n", Member), ("is", Keyword)];
    assert_eq!(shown[..4], condition);
    assert_eq!(shown[4..6], [("not", Keyword), ("even", Test)]);
    let template = [
        ("{{", Brace),
        ("input", Name),
        (".", Operator),
        ("n", Member),
        ("|", Operator),
        ("default", Filter),
        ("(", Operator),
        ("'x'", Text),
        (",", Operator),
        ("boolean", Member),
        ("=", Operator),
        ("true", Keyword),
        (")", Operator),
        ("}}", Brace),
    ];
    assert_eq!(shown[6..], template);
}

#[test]
fn links_lead_to_compositions_and_to_pages_about_codes() {
    let inner = "name: inner\nsteps:\n  - { id: a, wait: 1s }\n";
    let inner = compile::compile(
        &Source::new("folder/inner.yaml", inner),
        &Catalog::default(),
        &Limits::default(),
    );
    let tool = crate::plan::composition_tool(&inner.composition.unwrap());
    let text = "$schema: https://example.com/schema.json\nname: x\nsteps:\n  - id: a\n    tool: inner\n    \
                retry: { max: 1, on: [timeout] }\n";
    let catalog = Catalog::new([Arc::new(tool)]);
    let analysis = Analysis::new(&Source::new("x.yaml", text), &catalog, &Limits::default());
    let links = analysis.links();
    let shown: Vec<(&str, &LinkTarget)> =
        links.iter().map(|link| (&text[link.span.range()], &link.target)).collect();
    assert_eq!(
        shown[0],
        (
            "https://example.com/schema.json",
            &LinkTarget::Url("https://example.com/schema.json".into())
        )
    );
    assert_eq!(
        shown[1],
        ("inner", &LinkTarget::Composition { source: "folder/inner.yaml".into() })
    );
    assert_eq!(shown[2], ("timeout", &LinkTarget::ErrorPage { code: Code::Timeout }));
}
