//! Steps that a program makes while it runs, executed as a chain with one call.
//!
//! `cargo run -p segue-runtime --example chain`

use segue_core::value::Value;
use segue_runtime::chains::ChainError;
use segue_runtime::engine::Engine;
use segue_runtime::tools::builtin::{self, BuiltinConfig};

/// The final state of a chain of two steps.
pub async fn final_state(text: &str) -> Result<Value, ChainError> {
    let (engine, _) = Engine::builder().tools(builtin::tools(&BuiltinConfig::default())).build();
    let steps: Vec<Value> = serde_json::from_str(
        r#"[{"tool": "text_split", "inputs": {"text": "{{ state.text }}", "separator": " "},
             "on_success": {"map_outputs": {"parts": "words"}}},
            {"tool": "text_join", "inputs": {"parts": "{{ state.words }}", "separator": "-"},
             "on_success": {"map_outputs": {"text": "slug"}}}]"#,
    )
    .expect("the steps of this example are JSON");
    let state = Value::object([("text", Value::from(text))]);
    let chains = engine.chains(Value::empty_object());
    let result = chains.execute_chain(&steps, Some(&state), Some("slugs")).await?;
    Ok(result.get("final_state").cloned().unwrap_or_default())
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), ChainError> {
    println!("{}", final_state("one two three").await?);
    Ok(())
}
