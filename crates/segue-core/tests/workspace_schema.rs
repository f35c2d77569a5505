//! The JSON Schema with the tools of a workspace: it accepts what Segue accepts, in both drafts, and finds
//! wrong names and parameters.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jsonschema::Validator;
use segue_core::catalog::Catalog;
use segue_core::compile::dialect::{Draft, WorkspaceTools, workspace_schema};
use segue_core::diagnostic::Code;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;
use serde_json::{Value as Json, json};
use support::{cases, catalog, catalog_of, composition_of, with_compositions};

const DRAFTS: [Draft; 2] = [Draft::Draft2020, Draft::Draft07];

fn schema(catalog: &Catalog, unknown: &[&str], draft: Draft) -> Json {
    let unknown_sources = unknown.iter().map(|name| (*name).into()).collect::<BTreeSet<_>>();
    let tools = WorkspaceTools { catalog, unknown_sources: &unknown_sources };
    Json::from(&workspace_schema(draft, tools))
}

fn validator(catalog: &Catalog, unknown: &[&str], draft: Draft) -> Validator {
    let schema = schema(catalog, unknown, draft);
    assert!(jsonschema::meta::is_valid(&schema), "{draft:?}");
    jsonschema::validator_for(&schema).unwrap()
}

fn document(source: &Source) -> Option<Json> {
    let node = read(source, ReadLimits::for_documents(&Limits::default())).ok()?;
    Some(Json::from(&node.to_value()))
}

fn yaml(text: &str) -> Json {
    document(&Source::new("c.yaml", text)).unwrap()
}

#[test]
fn every_correct_composition_is_accepted() {
    let mut wrong = String::new();
    let all = cases("check/correct");
    for draft in DRAFTS {
        let common = validator(&catalog(), &[], draft);
        for case in &all {
            let extended = with_compositions(case, &catalog());
            let has_more = extended.tools().count() > catalog().tools().count();
            let own = has_more.then(|| validator(&extended, &[], draft));
            let validator = own.as_ref().unwrap_or(&common);
            let document = document(&composition_of(case)).unwrap();
            for error in validator.iter_errors(&document) {
                let name = case.file_name().unwrap().to_string_lossy();
                let _ = writeln!(wrong, "{draft:?} {name} {}: {error}", error.instance_path());
            }
        }
    }
    assert!(all.len() >= 30, "only {} correct compositions", all.len());
    assert!(wrong.is_empty(), "{wrong}");
}

/// Most broken compositions with a wrong tool or a wrong parameter are refused; what depends on the types of
/// expressions is not.
#[test]
fn wrong_tools_and_parameters_of_the_corpus_are_refused() {
    let codes = [Code::UnknownTool, Code::MissingParameter, Code::UnknownParameter];
    let validator = validator(&catalog(), &[], Draft::Draft07);
    let (mut refused, mut accepted) = (0, Vec::new());
    for case in cases("check/broken") {
        let expected = std::fs::read_to_string(case.join("expected.txt")).unwrap();
        let has_code = |line: &str| codes.iter().any(|c| line.starts_with(&format!("error {c} ")));
        if !expected.lines().any(has_code) {
            continue;
        }
        match document(&composition_of(&case)) {
            Some(document) if validator.is_valid(&document) => {
                accepted.push(case.file_name().unwrap().to_string_lossy().into_owned());
            }
            _ => refused += 1,
        }
    }
    assert!(refused > accepted.len(), "{refused} refused, accepted: {accepted:#?}");
}

const TOOLS: &str = r##"
tools:
- id: fs:read
  description: Reads a file
  input:
    type: object
    required: [path]
    additionalProperties: false
    properties:
      path: { type: string, minLength: 3 }
      head: { type: integer, exclusiveMinimum: 0 }
      mode: { enum: [text, binary] }
      filter: { $ref: "#/$defs/filter" }
      pair: { type: array, items: [{ type: string }, { type: number }] }
    $defs:
      filter:
        type: object
        properties:
          not: { $ref: "#/$defs/filter" }
          word: { type: string, pattern: "^[a-z]+$" }
          odd: { type: string, pattern: "(?P<x>a)" }
- id: git:log
- id: git:read
"##;

fn with_step(step: &Json) -> Json {
    json!({ "name": "c", "steps": [step] })
}

#[test]
fn parameters_are_those_of_the_tool() {
    for draft in DRAFTS {
        let validator = validator(&catalog_of(TOOLS), &["web"], draft);
        for (is_right, parameters) in [
            (true, json!({ "path": "a.txt" })),
            (true, json!({ "path": "a.txt", "head": 3, "mode": "text" })),
            (true, json!({ "path": "{{ input.path }}", "head": "{{ input.head }}" })),
            (true, json!({ "path": "a.txt", "mode": "{{ input.mode }}" })),
            (true, json!({ "path": "a.txt", "filter": { "not": { "word": "{{ input.w }}" } } })),
            (true, json!({ "path": "a.txt", "filter": { "odd": "anything" } })),
            (true, json!({ "path": "a.txt", "pair": ["a", "{{ input.n }}"] })),
            (true, json!("{{ input }}")),
            (false, json!({})),
            (false, json!({ "path": 7 })),
            (false, json!({ "path": "a" })),
            (false, json!({ "path": "a.txt", "head": 0 })),
            (false, json!({ "path": "a.txt", "mode": "test" })),
            (false, json!({ "path": "a.txt", "tail": 1 })),
            (false, json!({ "path": "a.txt", "filter": { "not": { "word": "A" } } })),
            (false, json!({ "path": "a.txt", "pair": ["a", "b"] })),
            (false, json!("a.txt")),
        ] {
            let step = json!({ "id": "a", "tool": "fs:read", "parameters": parameters });
            let document = with_step(&step);
            assert_eq!(validator.is_valid(&document), is_right, "{draft:?} {parameters}");
        }
        let without = with_step(&json!({ "id": "a", "tool": "fs:read" }));
        assert!(!validator.is_valid(&without), "a required parameter is missing");
        let none = with_step(&json!({ "id": "a", "tool": "git:log" }));
        assert!(validator.is_valid(&none));
    }
}

#[test]
fn names_are_those_of_the_catalog() {
    let names = [
        (true, "git:log"),
        (true, "log"),
        // A composition may say by `servers` whose `read` it means.
        (true, "read"),
        (true, "web:anything"),
        (false, "git:lgo"),
        (false, "fs:write"),
        (false, "other:tool"),
    ];
    for draft in DRAFTS {
        let validator = validator(&catalog_of(TOOLS), &["web"], draft);
        for (is_right, name) in names {
            let document = with_step(&json!({ "id": "a", "tool": name }));
            assert_eq!(validator.is_valid(&document), is_right, "{draft:?} {name}");
            let fallback = json!({ "id": "a", "tool": "log", "fallback": [{ "tool": name }] });
            assert_eq!(validator.is_valid(&with_step(&fallback)), is_right, "{draft:?} {name}");
        }
    }
}

#[test]
fn parameters_are_checked_in_bodies_rollbacks_and_chains() {
    let validator = validator(&catalog_of(TOOLS), &[], Draft::Draft07);
    let accepted = |text: &str| validator.is_valid(&yaml(text));
    let body = |path: &str| {
        format!(
            "name: c\nsteps:\n- id: l\n  loop: {{ over: [1], steps: [{{ id: a, tool: 'fs:read', \
             parameters: {{ path: {path} }} }}] }}\n"
        )
    };
    assert!(accepted(&body("a.txt")) && !accepted(&body("7")));
    let rollback = |path: &str| {
        format!(
            "name: c\nsteps:\n- id: a\n  tool: git:log\n  rollback: {{ tool: 'fs:read', parameters: \
             {{ path: {path} }} }}\n"
        )
    };
    assert!(accepted(&rollback("a.txt")) && !accepted(&rollback("[]")));
    let chain = |field: &str, path: &str| {
        format!("name: c\ndialect: chain\nsteps:\n- tool: fs:read\n  {field}: {{ path: {path} }}\n")
    };
    for field in ["inputs", "parameters"] {
        assert!(accepted(&chain(field, "a.txt")) && !accepted(&chain(field, "7")), "{field}");
    }
}

/// Editors show these.
#[test]
fn names_and_parameters_have_their_descriptions() {
    let schema = schema(&catalog_of(TOOLS), &[], Draft::Draft07);
    let names = &schema["definitions"]["tool_name"]["allOf"][0]["anyOf"][0];
    let at = names["enum"].as_array().unwrap().iter().position(|it| it == "fs:read").unwrap();
    assert_eq!(names["enumDescriptions"][at], "Reads a file");
    assert_eq!(
        names["enum"].as_array().unwrap().len(),
        names["enumDescriptions"].as_array().unwrap().len()
    );
}
