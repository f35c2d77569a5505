//! What tools implemented in code may call, and what needs confirmation.

use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::code_tools::{self, PartCaller, PartEffect, PartOutcome};
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::plan;
use segue_core::run::Failure;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, ConfirmPolicy, Impact, ToolSpec};
use segue_core::tool::{CodeTool, ConfirmWhen};
use segue_core::toolset::{Policy, Toolset};
use segue_core::value::Value;

const READS: Annotations = Annotations {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(false),
};
const WRITES: Annotations = Annotations { read_only: Some(false), idempotent: None, ..READS };
const DESTROYS: Annotations = Annotations { destructive: Some(true), ..WRITES };

fn tool(name: &str, annotations: Annotations) -> ToolSpec {
    let schema = r#"{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}"#;
    let schema = Arc::new(Schema::new(serde_json::from_str(schema).expect("it is JSON")));
    ToolSpec { annotations, ..ToolSpec::new(ToolId::new("t", name), "for a test", schema) }
}

fn composed(of: &[&str], atomic: bool) -> ToolSpec {
    let composed = CodeTool::new(of.iter().copied(), atomic);
    ToolSpec { code_tool: Some(composed), ..tool("whole", Annotations::default()) }
}

fn catalog() -> Catalog {
    let tools = [tool("read", READS), tool("write", WRITES), tool("delete", DESTROYS)];
    Catalog::new(tools.into_iter().map(Arc::new))
}

fn resolved(spec: &ToolSpec) -> ToolSpec {
    code_tools::resolve_parts(spec, &catalog()).expect("its parts are known")
}

fn args() -> Value {
    Value::object([("path", Value::from("x"))])
}

fn asked<'a>(tool: &'a ToolSpec, catalog: &'a Catalog) -> PartCaller<'a> {
    PartCaller { tool, catalog, covered: false, is_rollback: false, calls_made: 0, calls_max: 10 }
}

/// S3-12, S3-21, S3-24: an atomic tool needs confirmation if one of its parts does; another tool
/// leaves that to its parts; without such parts neither asks.
#[test]
fn an_atomic_tool_asks_for_its_parts() {
    for (of, atomic, asks) in [
        (&["read", "delete"][..], true, true),
        (&["read", "delete"], false, false),
        (&["read", "write"], true, false),
    ] {
        let whole = resolved(&composed(of, atomic));
        assert_eq!(whole.must_confirm(&args()), asks, "{of:?} {atomic}");
        assert_eq!(whole.may_ask_person(), of.contains(&"delete"), "{of:?} {atomic}");
        assert_eq!(whole.confirmation_covers_parts(false), atomic);
        assert!(whole.confirmation_covers_parts(true));
    }
    // An operator who trusts an atomic tool also trusts its parts.
    let vouched = ToolSpec { confirm: ConfirmPolicy::Never, ..composed(&["delete"], true) };
    assert!(!resolved(&vouched).must_confirm(&args()));
}

/// S3-10: the arguments decide; a rule that panics asks.
#[test]
fn arguments_decide_whether_it_asks() {
    let asks = ConfirmWhen::new(|args| args.get("path").and_then(Value::as_str).unwrap() == "etc");
    let spec = ToolSpec { confirm_when: Some(asks), ..tool("write", WRITES) };
    let path = |path: &str| Value::object([("path", Value::from(path))]);
    assert!(spec.needs_confirmation(), "with some arguments");
    assert!(spec.must_confirm(&path("etc")) && !spec.must_confirm(&path("home")));
    assert!(spec.must_confirm(&Value::Null), "it panicked");
}

/// The effect of a code tool is that of its parts, and never safer.
#[test]
fn the_effect_follows_from_the_parts() {
    let effect = |spec: &ToolSpec| resolved(spec).annotations.impact();
    assert_eq!(effect(&composed(&["read"], false)), Impact::Reads);
    assert_eq!(effect(&composed(&["read", "write"], false)), Impact::Writes);
    assert_eq!(effect(&composed(&["write", "delete"], false)), Impact::Destroys);
    let mild = ToolSpec { annotations: WRITES, ..composed(&["delete"], false) };
    assert_eq!(effect(&mild), Impact::Destroys);
    let worse = ToolSpec { annotations: DESTROYS, ..composed(&["read"], false) };
    assert_eq!(effect(&worse), Impact::Destroys);
    assert!(resolved(&worse).must_confirm(&args()), "what it does by itself asks");
}

/// S3-25: a tool that declares that it only reads cannot have a part that writes.
#[test]
fn a_reading_tool_has_reading_parts() {
    let reading = |of: &[&str]| ToolSpec { annotations: READS, ..composed(of, false) };
    assert!(code_tools::resolve_parts(&reading(&["read"]), &catalog()).is_ok());
    let refused = code_tools::resolve_parts(&reading(&["read", "write"]), &catalog()).unwrap_err();
    assert_eq!(refused.code, Code::PolicyViolation);
}

/// S3-13, S3-23, S3-27: only declared parts may be called, with valid arguments.
#[test]
fn parts_alone_may_be_called() {
    let (catalog, whole) = (catalog(), resolved(&composed(&["read", "delete"], false)));
    let call = |name: &str, args: &Value| {
        code_tools::authorize_part_call(asked(&whole, &catalog), name, args)
            .map(|call| (call.part.id.to_string(), call.asks))
            .map_err(|failure| (failure.code, failure.message.to_string()))
    };
    assert_eq!(call("read", &args()), Ok(("t:read".to_owned(), false)));
    assert_eq!(call("t:delete", &args()), Ok(("t:delete".to_owned(), true)));
    assert_eq!(call("write", &args()).unwrap_err().0, Code::ToolNotAllowed);
    let unknown = (Code::UnknownTool, "Unknown tool: raed".to_owned());
    assert_eq!(call("raed", &args()), Err(unknown));
    let missing = (Code::MissingParameter, "Missing required parameter: path".to_owned());
    assert_eq!(call("read", &Value::empty_object()), Err(missing));
    let wrong = Value::object([("path", Value::from(1))]);
    assert_eq!(call("read", &wrong).unwrap_err().0, Code::InputSchema);
}

/// S3-18: consent to the tool covers its parts; the number of calls is limited; a toolset applies,
/// except to a rollback.
#[test]
fn what_comes_first_before_a_part() {
    let (mut catalog, whole) = (catalog(), resolved(&composed(&["delete"], true)));
    let code = |caller: PartCaller<'_>| {
        code_tools::authorize_part_call(caller, "delete", &args())
            .map(|call| call.asks)
            .map_err(|f| f.code)
    };
    assert_eq!(code(PartCaller { covered: true, ..asked(&whole, &catalog) }), Ok(false));
    assert_eq!(code(PartCaller { calls_made: 10, ..asked(&whole, &catalog) }), Err(Code::Limit));
    let few = || Toolset::builder("few").from_catalog(&self::catalog());
    catalog.restrict(few().with_namespace("other").build().unwrap());
    assert_eq!(code(asked(&whole, &catalog)), Err(Code::ToolNotAllowed));
    let rollback = PartCaller { is_rollback: true, covered: true, ..asked(&whole, &catalog) };
    assert_eq!(code(rollback), Ok(false));
    catalog.restrict(few().policy(Policy::DenyAll).build().unwrap());
    assert_eq!(code(asked(&whole, &catalog)), Err(Code::PolicyViolation));
    catalog.restrict(few().build().unwrap());
    assert_eq!(code(asked(&whole, &catalog)), Ok(true));
}

/// A failure after a write is not retryable, and one with an unknown outcome is in doubt.
#[test]
fn a_failure_is_weighed_by_what_was_done() {
    let whole = resolved(&composed(&["read", "write"], true));
    let failure = || Failure::transient(Code::ToolError, "no luck");
    let (read, write) = (tool("read", READS), tool("write", WRITES));
    assert_eq!(PartEffect::of(&read, PartOutcome::Unknown), PartEffect::None);
    assert_eq!(PartEffect::of(&write, PartOutcome::Refused), PartEffect::None);
    assert!(PartEffect::None.apply_to(failure(), &whole).retryable);
    let written = PartEffect::of(&write, PartOutcome::Answered).apply_to(failure(), &whole);
    assert!(!written.retryable && !written.in_doubt);
    let unknown = PartEffect::of(&write, PartOutcome::Unknown).apply_to(failure(), &whole);
    assert!(unknown.in_doubt && unknown.code == Code::InDoubt);
}

/// S3-36: every reachable tool is listed with its effect, also through other code tools.
#[test]
fn everything_that_may_be_reached_is_declared() {
    let mut catalog = catalog();
    let inner = ToolSpec { id: ToolId::new("t", "inner"), ..composed(&["delete"], false) };
    catalog.insert(Arc::new(code_tools::resolve_parts(&inner, &catalog).unwrap()));
    let outer = code_tools::resolve_parts(&composed(&["read", "inner"], true), &catalog).unwrap();
    assert!(outer.must_confirm(&args()), "through the inner one");
    let declared = plan::reachable_calls(&outer);
    let named: Vec<(&str, Impact)> = declared.iter().map(|d| (d.tool.as_str(), d.effect)).collect();
    let expected =
        [("t:delete", Impact::Destroys), ("t:inner", Impact::Destroys), ("t:read", Impact::Reads)];
    assert_eq!(named, expected);
    assert!(!declared[0].can_roll_back && declared[2].can_roll_back);
}
