//! Toolsets: source, filters, policy, in this order; and compositions that a toolset limits.

#![allow(clippy::unwrap_used, reason = "a broken fixture ends the test")]

use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::composition::Composition;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::composition_tool;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::ToolSpec;
use segue_core::toolset::{
    Filter, GuardError, Policy, Predicate, ToolAccess, ToolPattern, Toolset, ToolsetBuilder,
};

fn tool(id: &str, tags: &[&str], category: Option<&str>, scopes: &[&str]) -> Arc<ToolSpec> {
    let words = |words: &[&str]| words.iter().map(|word| Arc::from(*word)).collect();
    Arc::new(ToolSpec {
        tags: words(tags),
        scopes: words(scopes),
        category: category.map(Arc::from),
        ..ToolSpec::new(ToolId::from(id), id, Schema::any_object())
    })
}

/// In no order at all.
fn tools() -> Vec<Arc<ToolSpec>> {
    vec![
        tool("github:search", &["safe", "code"], Some("search"), &["read"]),
        tool("crm:find", &["safe"], Some("search"), &[]),
        tool("files:read", &[], None, &[]),
        tool("crm:delete_user", &["danger"], Some("users"), &["write", "admin"]),
        tool("echo", &[], None, &[]),
        tool("github:issue", &["safe", "write"], Some("issues"), &["write"]),
    ]
}

fn ids(toolset: &Toolset) -> Vec<&str> {
    toolset.ids().map(ToolId::as_str).collect()
}

fn words(words: &[&str]) -> Vec<Arc<str>> {
    words.iter().map(|word| Arc::from(*word)).collect()
}

fn patterns(texts: &[&str]) -> Vec<ToolPattern> {
    texts.iter().map(|text| ToolPattern::from(*text)).collect()
}

fn built(change: impl FnOnce(ToolsetBuilder) -> ToolsetBuilder) -> Toolset {
    change(Toolset::builder("t").from_tools(tools())).build().unwrap()
}

fn kept(filter: Filter) -> Vec<String> {
    built(|builder| builder.filter(filter)).ids().map(ToString::to_string).collect()
}

fn allowed(policy: Policy) -> Vec<String> {
    built(|builder| builder.policy(policy)).ids().map(ToString::to_string).collect()
}

/// S2-01, S2-10, S2-11, S2-63
#[test]
fn a_registry_feeds_a_toolset() {
    let catalog = Catalog::new(tools());
    let toolset =
        Toolset::builder("github-tools").from_catalog(&catalog).with_namespace("github").build();
    let toolset = toolset.unwrap();
    assert_eq!(&**toolset.name(), "github-tools");
    assert_eq!(ids(&toolset), ["github:issue", "github:search"]);
}

/// S2-03, S2-04, S2-20
#[test]
fn tools_come_sorted_and_the_last_of_equal_ids_counts() {
    let later = tool("echo", &["new"], None, &[]);
    let toolset = built(|builder| builder.from_tools([later]));
    let sorted =
        ["crm:delete_user", "crm:find", "echo", "files:read", "github:issue", "github:search"];
    assert_eq!(ids(&toolset), sorted);
    assert_eq!(toolset.tools().map(|tool| tool.id.as_str()).collect::<Vec<_>>(), sorted);
    let echo = toolset.get(&ToolId::from("echo")).unwrap();
    assert_eq!(echo.tags, words(&["new"]));
    assert_eq!((echo.id.namespace(), echo.id.name()), ("", "echo"));
}

/// S2-12, S2-13, S2-60
#[test]
fn no_source_is_an_error_and_an_empty_one_is_none() {
    let error = Toolset::builder("t").with_namespace("crm").build().unwrap_err();
    assert_eq!((error.code(), &*error.toolset), (Code::NoSource, "t"));
    let empty = Toolset::builder("t").from_tools([]).build().unwrap();
    assert!(empty.is_empty() && empty.ids().next().is_none());
}

/// S2-14
#[test]
fn filters_keep_what_they_say() {
    assert_eq!(kept(Filter::Namespaces(words(&["crm", "files"]))).len(), 3);
    assert_eq!(kept(Filter::TagsAll(words(&["safe", "write"]))), ["github:issue"]);
    assert_eq!(
        kept(Filter::TagsAny(words(&["danger", "code"]))),
        ["crm:delete_user", "github:search"]
    );
    assert_eq!(kept(Filter::TagsNone(words(&["safe", "danger"]))), ["echo", "files:read"]);
    assert_eq!(kept(Filter::Categories(words(&["search"]))), ["crm:find", "github:search"]);
    assert_eq!(
        kept(Filter::Allow(patterns(&["crm:*", "echo"]))),
        ["crm:delete_user", "crm:find", "echo"]
    );
    assert_eq!(kept(Filter::Deny(patterns(&["*:*"]))), ["echo"]);
    let short = Predicate::new(|tool: &ToolSpec| tool.id.name().len() == 4);
    assert_eq!(kept(Filter::Custom(short)), ["crm:find", "echo", "files:read"]);
}

/// S2-14: "one of nothing" is nothing, "all" and "none of nothing" is everything.
#[test]
fn filters_of_nothing() {
    for nothing in [
        Filter::Namespaces(Vec::new()),
        Filter::TagsAny(Vec::new()),
        Filter::Categories(Vec::new()),
        Filter::Allow(Vec::new()),
    ] {
        assert_eq!(kept(nothing.clone()).len(), 0, "{nothing:?}");
    }
    for all in [Filter::TagsAll(Vec::new()), Filter::TagsNone(Vec::new()), Filter::Deny(Vec::new())]
    {
        assert_eq!(kept(all.clone()).len(), 6, "{all:?}");
    }
}

/// S2-15, S2-16
#[test]
fn policies_allow_what_they_say() {
    assert_eq!(allowed(Policy::AllowAll).len(), 6);
    assert_eq!(allowed(Policy::DenyAll).len(), 0);
    assert_eq!(allowed(Policy::AllowNamespaces(words(&["files"]))), ["files:read"]);
    assert_eq!(allowed(Policy::DenyTags(words(&["danger", "write"]))).len(), 4);
    // A tool without scopes is allowed; one with two scopes needs both.
    assert_eq!(
        allowed(Policy::AllowScopes(words(&["read", "write"]))),
        ["crm:find", "echo", "files:read", "github:issue", "github:search"]
    );
    assert_eq!(allowed(Policy::AllowScopes(Vec::new())), ["crm:find", "echo", "files:read"]);
    let own = Policy::Custom(Predicate::new(|tool: &ToolSpec| tool.id.as_str() == "echo"));
    assert_eq!(allowed(own), ["echo"]);
    let every = vec![
        Policy::DenyTags(words(&["danger"])),
        Policy::AllowNamespaces(words(&["crm", "files"])),
    ];
    assert_eq!(allowed(Policy::Every(every)), ["crm:find", "files:read"]);
}

/// S2-06, S2-07, S2-09: every filter is asked in its order, of what the ones before it kept, and the
/// policy last.
#[test]
fn filters_come_in_order_and_before_the_policy() {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ask = |name: &'static str, answer: fn(&ToolSpec) -> bool| {
        let asked = asked.clone();
        Predicate::new(move |tool: &ToolSpec| {
            asked.lock().unwrap().push(format!("{name} {}", tool.id));
            answer(tool)
        })
    };
    let crm = ask("first", |tool| tool.id.namespace() == "crm");
    let find = ask("second", |tool| tool.id.name() == "find");
    let toolset = built(|builder| {
        builder
            .policy(Policy::Custom(ask("policy", |_| false)))
            .filter(Filter::Custom(crm))
            .filter(Filter::Custom(find))
    });
    let asked = asked.lock().unwrap();
    let of = |name: &str| asked.iter().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    assert_eq!(of("first").len(), 6);
    assert_eq!(of("second"), ["second crm:delete_user", "second crm:find"]);
    assert_eq!(asked.last().unwrap(), "policy crm:find");
    assert_eq!(of("policy").len(), 1);
    assert!(toolset.is_empty());
}

/// S2-05, S2-08: access depends only on a tool's definition, and an unknown tool is never allowed.
#[test]
fn verdicts_tell_what_belongs_from_what_is_allowed() {
    let toolset =
        built(|builder| builder.with_namespace("crm").policy(Policy::DenyTags(words(&["danger"]))));
    let verdict = |id: &str| toolset.access(&ToolId::from(id));
    assert_eq!(verdict("crm:find"), ToolAccess::Allowed);
    assert_eq!(verdict("crm:delete_user"), ToolAccess::Denied);
    assert_eq!(verdict("echo"), ToolAccess::Outside);
    let all = built(|builder| builder);
    assert_eq!(all.access(&ToolId::from("crm:nobody")), ToolAccess::Outside);
    assert!(all.get(&ToolId::from("crm:nobody")).is_none());
}

/// S2-21
#[test]
fn filtering_gives_another_toolset() {
    let all = built(|builder| builder);
    let some = all.filtered(&Filter::Namespaces(words(&["crm"])));
    assert_eq!((all.len(), ids(&some)), (6, vec!["crm:delete_user", "crm:find"]));
}

/// S2-02, S2-17, S2-19: many threads read a toolset at once; building consumes the builder.
#[test]
fn toolsets_are_read_by_many_threads() {
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    let custom = Predicate::new(|_| true);
    is_shared(&custom);
    let toolset = built(|builder| builder.filter(Filter::Custom(custom)));
    is_shared(&toolset);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(ids(&toolset).len(), 6)));
        }
    });
}

fn restricted(change: impl FnOnce(ToolsetBuilder) -> ToolsetBuilder) -> Catalog {
    let mut catalog = Catalog::new(tools());
    let inner =
        "name: clean-up\nsteps:\n  - { id: gone, tool: \"crm:delete_user\", parameters: {} }\n";
    let inner = compile(&Source::new("inner.yaml", inner), &catalog, &Limits::default());
    catalog.insert(Arc::new(composition_tool(&inner.composition.unwrap())));
    let toolset = change(Toolset::builder("support").from_catalog(&catalog)).build().unwrap();
    catalog.restrict(toolset);
    catalog
}

fn found(text: &str, catalog: &Catalog) -> Vec<(Code, usize, String)> {
    let source = Source::new("test.yaml", text);
    let compiled = compile(&source, catalog, &Limits::default());
    let errors = compiled.diagnostics.iter().map(|finding| finding.view(&source));
    errors
        .filter(|finding| finding.severity == segue_core::diagnostic::Severity::Error)
        .map(|finding| (finding.code, finding.line, finding.message))
        .collect()
}

/// SX-05, S2-45: a finding at the call.
#[test]
fn compositions_are_held_to_a_toolset() {
    let catalog = restricted(|builder| builder.filter(Filter::Deny(patterns(&["crm:delete_*"]))));
    let text = "
name: t
steps:
  - { id: a, tool: 'crm:find', parameters: {} }
  - { id: b, tool: 'crm:delete_user', parameters: {} }
  - id: c
    tool: echo
    parameters: {}
    fallback: [{ tool: 'crm:delete_user', parameters: {} }]
  - id: d
    loop:
      over: [1]
      steps:
        - { id: e, tool: delete_user, parameters: {} }
  - id: f
    tool: echo
    parameters: {}
    rollback: { tool: 'crm:delete_user', parameters: {} }
  - { id: g, tool: clean-up, parameters: {} }
";
    let found = found(text, &catalog);
    let lines: Vec<usize> = found.iter().map(|(_, line, _)| *line).collect();
    assert_eq!(lines, [5, 9, 14, 18, 19]);
    assert!(found.iter().all(|(code, ..)| *code == Code::ToolNotAllowed), "{found:?}");
    assert_eq!(found[0].2, "`crm:delete_user` is not in the toolset `support`");
    assert_eq!(
        found[4].2,
        "`composition:clean-up` cannot be called: `crm:delete_user` is not in the toolset `support`"
    );
}

/// SX-05
#[test]
fn a_policy_says_so_in_its_own_words() {
    let catalog = restricted(|builder| builder.policy(Policy::AllowScopes(words(&["read"]))));
    let chain = "
name: t
dialect: chain
steps:
  - { tool: 'github:search', inputs: {} }
  - { tool: 'github:issue', inputs: {} }
";
    let found = found(chain, &catalog);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0, found[0].1), (Code::PolicyViolation, 6));
    assert_eq!(found[0].2, "the policy of the toolset `support` does not allow `github:issue`");
}

/// SX-05: skills and plans have other keywords, and the same limits.
#[test]
fn every_dialect_is_held_to_a_toolset() {
    let catalog = restricted(|builder| builder.with_namespace("github"));
    let skill = "
name: t
steps:
  - { id: a, tool_id: 'github:search', inputs: {} }
  - { id: b, tool_id: 'crm:find', inputs: {} }
";
    let plan = "
tools:
  - { name: 'github:search', parameters: {} }
  - { name: 'crm:find', parameters: {} }
";
    for (text, line) in [(skill, 5), (plan, 4)] {
        let found = found(text, &catalog);
        let refused: Vec<(Code, usize)> =
            found.iter().map(|(code, line, _)| (*code, *line)).collect();
        assert_eq!(refused, [(Code::ToolNotAllowed, line)], "{found:?}");
    }
}

/// SX-05: a guard of the program checks every dialect, and the compositions that one calls.
#[test]
fn every_dialect_is_held_to_the_guards_of_a_program() {
    let catalog = restricted(|builder| {
        builder.guard(|composition: &Composition| match &*composition.name {
            "clean-up" => Err(GuardError::policy("no cleaning today")),
            "t" if composition.body.steps.len() > 1 => {
                Err(GuardError { code: Code::MaxStepsExceeded, message: "one is enough".into() })
            }
            _ => Ok(()),
        })
    });
    let calls = "name: t\nsteps:\n  - { id: a, tool: clean-up, parameters: {} }\n";
    let inside = "`composition:clean-up` cannot be called: no cleaning today".to_owned();
    assert_eq!(found(calls, &catalog), [(Code::PolicyViolation, 3, inside)]);
    for two in [
        "name: t\nsteps:\n  - { id: a, tool: echo }\n  - { id: b, tool: echo }\n",
        "name: t\nsteps:\n  - { id: a, tool_id: echo, inputs: {} }\n  - { id: b, tool_id: echo, inputs: {} }\n",
        "name: t\ntools:\n  - { name: echo, parameters: {} }\n  - { name: find, parameters: {} }\n",
        "name: t\ndialect: chain\nsteps:\n  - { tool: echo, inputs: {} }\n  - { tool: find, inputs: {} }\n",
    ] {
        let found = found(two, &catalog);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0, &*found[0].2), (Code::MaxStepsExceeded, "one is enough"));
    }
    assert!(found("name: other\nsteps:\n  - { id: a, tool: echo }\n", &catalog).is_empty());
}
