//! Tools written by the program: a destructive one, one that calls it many times and asks once, and a
//! wrapper. The program answers the questions itself.
//!
//! `cargo run -p segue-runtime --example own_tools`

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::run::{Question, QuestionKind};
use segue_core::source::Source;
use segue_core::tool::Annotations;
use segue_core::value::Value;
use segue_core::view::RunView;
use segue_runtime::confirm::{Confirmer, Decision};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::local::{LocalTool, ToolContext};
use segue_runtime::tools::{Tool, ToolError};
use segue_runtime::wrap::Wrapper;

/// The sent mails, in order.
type Outbox = Arc<Mutex<Vec<String>>>;

/// Sends a mail. It cannot be rolled back, so it asks.
struct Send {
    outbox: Outbox,
}

#[async_trait]
impl LocalTool for Send {
    fn name(&self) -> &'static str {
        "send"
    }

    fn description(&self) -> &'static str {
        "Sends a mail"
    }

    fn parameters(&self) -> Value {
        schema(
            r#"{"type":"object","required":["to"],"properties":{"to":{"type":"string"}},
                "additionalProperties":false}"#,
        )
    }

    fn annotations(&self) -> Annotations {
        Annotations { destructive: Some(true), ..Annotations::default() }
    }

    async fn execute(&self, args: Value, _context: &ToolContext) -> Result<Value, ToolError> {
        let to = args.get("to").and_then(Value::as_str).unwrap_or_default();
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).push(to.to_owned());
        Ok(Value::object([("sent", Value::from(to))]))
    }
}

/// Sends a mail to each of many. One question covers all of them.
struct SendAll;

#[async_trait]
impl LocalTool for SendAll {
    fn name(&self) -> &'static str {
        "send_all"
    }

    fn description(&self) -> &'static str {
        "Sends a mail to each of many"
    }

    fn parameters(&self) -> Value {
        schema(
            r#"{"type":"object","required":["to"],"properties":{
                "to":{"type":"array","items":{"type":"string"}}}}"#,
        )
    }

    fn composed_of(&self) -> Vec<&str> {
        vec!["send"]
    }

    fn atomic(&self) -> bool {
        true
    }

    async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let all = args.get("to").and_then(Value::as_array).cloned().unwrap_or_default();
        for to in all.iter() {
            let mail = Value::object([("to", to.clone())]);
            // An error ends the loop and is the answer of this call.
            context.registry().execute("send", mail).await?;
        }
        Ok(Value::object([("sent", Value::from(all.len()))]))
    }
}

/// Approves mails within the company, and records the questions.
#[derive(Default)]
pub struct MailPolicy {
    /// The tools that it was asked about, with what they may call.
    pub asked: Mutex<Vec<(String, usize)>>,
}

#[async_trait]
impl Confirmer for MailPolicy {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        let QuestionKind::Call { tool, args, parts, .. } = &question.kind else { return None };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((tool.to_string(), parts.len()));
        let granted = !args.to_string().contains("@elsewhere");
        Some(Decision { granted, by: "the mail policy".into(), data: Value::Null })
    }
}

/// Sends mails through `send_all`, and one through a wrapper that adds a timeout and retries to `send`.
pub async fn send(to: &[&str], policy: &MailPolicy) -> Result<(RunView, Vec<String>), String> {
    let outbox = Outbox::default();
    let (engine, unloaded) = Engine::builder()
        .tools([Tool::local(Send { outbox: outbox.clone() }), Tool::local(SendAll)])
        .wrapper(
            Wrapper::around("send").named("send_surely").retry(2).timeout(Duration::from_secs(5)),
        )
        .build();
    assert!(unloaded.is_empty(), "every tool finds the tools that it calls: {unloaded:?}");
    let text = "
name: invite
input: { type: object, properties: { to: { type: array, items: { type: string } } } }
steps:
  - { id: all, tool: send_all, parameters: { to: '{{ input.to }}' } }
  - { id: note, tool: send_surely, parameters: { to: archive@here }, depends_on: all }
";
    let (plan, findings) = engine.plan(&Source::new("invite.yaml", text));
    let plan = plan.ok_or_else(|| format!("{findings:?}"))?;
    let to: Vec<Value> = to.iter().map(|to| Value::from(*to)).collect();
    let input = Value::object([("to", Value::from(to))]);
    let request = RunRequest { confirmer: policy, ..RunRequest::new(plan, input) };
    let view = engine.run(request).await.map_err(|error| error.to_string())?;
    let sent = outbox.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((view, sent))
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).expect("the schemas of this example are JSON")
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), String> {
    for to in [["ada@here", "bob@here"], ["ada@here", "eve@elsewhere"]] {
        let policy = MailPolicy::default();
        let (view, sent) = send(&to, &policy).await?;
        println!("{}: sent to {sent:?}", view.status.as_str());
    }
    Ok(())
}
