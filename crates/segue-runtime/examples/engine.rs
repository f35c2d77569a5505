//! An engine in a program: a composition as text, one run, its result.
//!
//! `cargo run -p segue-runtime --example engine`

use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::builtin::{self, BuiltinConfig};

const GREET: &str = "
name: greet
input: { type: object, required: [name], properties: { name: { type: string } } }
steps:
  - { id: hello, tool: text_join, parameters: { parts: [Hello, '{{ input.name }}'], separator: ', ' } }
  - { id: size, tool: text_stats, parameters: { text: '{{ hello.text }}' } }
output: '{{ hello.text }} ({{ size.chars }} characters)'
";

/// The composition's output for a name.
pub async fn greet(name: &str) -> Result<Value, String> {
    let tools = builtin::tools(&BuiltinConfig::default());
    let (engine, unloaded) = Engine::builder().tools(tools).build();
    assert!(unloaded.is_empty(), "no compositions were given");
    // All findings at once, each with its location; no plan when one of them is an error.
    let (plan, findings) = engine.plan(&Source::new("greet.yaml", GREET));
    let plan = plan.ok_or_else(|| format!("{findings:?}"))?;
    let input = Value::object([("name", Value::from(name))]);
    let view = engine.run(RunRequest::new(plan, input)).await.map_err(|error| error.to_string())?;
    if view.success { Ok(view.output) } else { Err(format!("{:?}", view.errors)) }
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), String> {
    println!("{}", greet("Ada").await?);
    Ok(())
}
