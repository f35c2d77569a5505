//! The same workflow in every dialect: the same plan, the same calls, in the same order.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::sync::Arc;

use segue_core::compile::{compile, convert};
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::Fact;
use segue_core::source::Source;
use segue_core::view::PlanView;
use support::catalog;
use support::world::{World, simulate};

const COMPOSITION: &str = r#"
name: publish
max_concurrency: 1
unresolved: keep
steps:
  - id: createAuthor
    tool: createAuthor
    parameters: { name: Alice, email: alice@test.com }
  - id: createBlog
    tool: createBlog
    parameters: { authorId: "{{ createAuthor._id }}", title: Hello }
    depends_on: [createAuthor]
  - id: createComment
    tool: createComment
    parameters: { blogId: "{{ createBlog._id }}", text: "by {{ createAuthor.name }}" }
    depends_on: [createBlog, createAuthor]
"#;

const PLAN: &str = r#"
{ "name": "publish",
  "tools": [
    { "name": "createComment", "dependsOn": ["createBlog", "createAuthor"],
      "parameters": { "blogId": "{{createBlog._id}}", "text": "by {{createAuthor.name}}" } },
    { "name": "createBlog", "dependsOn": "createAuthor",
      "parameters": { "authorId": "{{createAuthor._id}}", "title": "Hello" } },
    { "name": "createAuthor", "dependsOn": null,
      "parameters": { "name": "Alice", "email": "alice@test.com" } } ],
  "executionOrder": ["createAuthor", "createBlog", "createComment"] }
"#;

const CHAIN: &str = r#"
name: publish
implementation:
  type: composite
  composite:
    steps:
      - name: createAuthor
        tool: createAuthor
        inputs: { name: Alice, email: alice@test.com }
        on_success: { map_outputs: { _id: author_id, name: author_name } }
      - name: createBlog
        tool: createBlog
        inputs: { authorId: "{{ state.author_id }}", title: Hello }
        on_success: { map_outputs: { _id: blog_id } }
      - name: createComment
        tool: createComment
        inputs: { blogId: "{{ state.blog_id }}", text: "by {{ state.author_name }}" }
"#;

const SKILL: &str = r#"
name: publish
steps:
  - { id: c_comment, tool_id: createComment, inputs: { blogId: "{{b_blog._id}}", text: "by {{a_author.name}}" } }
  - { id: a_author, tool_id: createAuthor, inputs: { name: Alice, email: alice@test.com } }
  - { id: b_blog, tool_id: createBlog, inputs: { authorId: "{{a_author._id}}", title: Hello } }
"#;

const PROGRAM: &str = r#"
name: publish
flow: program
steps:
  - id: createAuthor
    tool: createAuthor
    parameters: { name: Alice, email: alice@test.com }
    on_success: { map_outputs: { _id: author_id, name: author_name } }
  - id: createBlog
    tool: createBlog
    parameters: { authorId: "{{ state.author_id }}", title: Hello }
    on_success: { map_outputs: { _id: blog_id } }
  - id: createComment
    tool: createComment
    parameters: { blogId: "{{ state.blog_id }}", text: "by {{ state.author_name }}" }
"#;

const WORLD: &str = "
answers:
  createAuthor: [{ value: { _id: a1, name: Alice } }]
  a_author: [{ value: { _id: a1, name: Alice } }]
  createBlog: [{ value: { _id: b1 } }]
  b_blog: [{ value: { _id: b1 } }]
";

fn plan_of(name: &str, text: &str) -> Arc<Plan> {
    let limits = Limits::default();
    let compiled = compile(&Source::new(name, text), &catalog(), &limits);
    let composition =
        compiled.composition.unwrap_or_else(|| panic!("{name}: {:?}", compiled.diagnostics));
    Arc::new(plan(&composition, &limits).unwrap())
}

/// Each call of a run: the tool and what it was called with.
fn calls(plan: &Arc<Plan>) -> Vec<String> {
    let outcome = simulate(plan, &mut World::parse(WORLD), &catalog());
    assert!(outcome.view.success, "{}", outcome.text);
    let called = outcome.journal.iter().filter_map(|entry| match &entry.fact {
        Fact::Called { node, args, .. } => Some((*node, args.to_string())),
        _ => None,
    });
    let run =
        segue_core::run::Run::replay(plan.clone(), Arc::new(Limits::default()), &outcome.journal)
            .unwrap();
    called.map(|(node, args)| format!("{} {args}", run.tool_name(node, 0))).collect()
}

/// SX-03, S4-19: the calls of every dialect are the same, in the same order.
#[test]
fn every_dialect_makes_the_same_calls() {
    let expected = [
        r#"blog:createAuthor {"name":"Alice","email":"alice@test.com"}"#,
        r#"blog:createBlog {"authorId":"a1","title":"Hello"}"#,
        r#"blog:createComment {"blogId":"b1","text":"by Alice"}"#,
    ];
    for (name, text) in [
        ("composition.yaml", COMPOSITION),
        ("plan.json", PLAN),
        ("chain.yaml", CHAIN),
        ("skill.yaml", SKILL),
        ("program.yaml", PROGRAM),
    ] {
        assert_eq!(calls(&plan_of(name, text)), expected, "{name}");
    }
}

/// SX-01: a plan and a composition with the same meaning compile to the same plan, and so do a
/// chain and a program; the views of all dialects have the same steps, tools and effects.
#[test]
fn the_same_words_in_two_dialects_are_one_plan() {
    let (composition, plan) = (plan_of("composition.yaml", COMPOSITION), plan_of("p.json", PLAN));
    assert_eq!(composition.hash(), plan.hash());
    let (chain, program) = (plan_of("chain.yaml", CHAIN), plan_of("program.yaml", PROGRAM));
    assert_eq!(chain.hash(), program.hash());
    let steps = |plan: &Plan| -> Vec<String> {
        let view = PlanView::from_plan(plan);
        let steps =
            view.steps.iter().map(|step| format!("{} {:?} {:?}", step.id, step.tool, step.effect));
        steps.collect()
    };
    assert_eq!(steps(&composition), steps(&plan));
    assert_eq!(steps(&composition), steps(&chain));
    let skill = SKILL.replace("a_author", "createAuthor").replace("b_blog", "createBlog");
    let skill = plan_of("skill.yaml", &skill.replace("c_comment", "createComment"));
    assert_eq!(steps(&composition), steps(&skill));
    let mut changed = plan_of("p.json", &PLAN.replace("Hello", "Goodbye"));
    assert_ne!(composition.hash(), changed.hash());
    changed = plan_of("p.json", &PLAN.replace("\"name\": \"publish\"", "\"name\": \"other\""));
    assert_ne!(composition.hash(), changed.hash());
}

/// A chain, a plan and a skill still make these calls after conversion.
#[test]
fn converted_documents_make_the_same_calls() {
    for (name, text) in [("plan.json", PLAN), ("chain.yaml", CHAIN), ("skill.yaml", SKILL)] {
        let native = convert(&Source::new(name, text), &Limits::default()).text.unwrap();
        let (before, after) = (plan_of(name, text), plan_of(name, &native));
        assert_eq!(before.hash(), after.hash(), "{native}");
        assert_eq!(calls(&before), calls(&after), "{native}");
    }
}
