//! Questions to a person at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::run::{Question, QuestionKind};
use segue_core::schema::Schema;
use segue_core::types::Type;
use segue_core::value::Value;
use segue_runtime::driver::{Confirmer, Decision};

use super::input;
use super::progress::Progress;
use crate::print::clean;
use crate::serve::question::{consent, listed, undo_words};

/// Asks on a terminal; elsewhere `otherwise` answers.
pub(super) fn confirmer(
    progress: &Progress,
    otherwise: impl Confirmer + 'static,
) -> Box<dyn Confirmer> {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        Box::new(Prompt { progress: progress.clone() })
    } else {
        Box::new(otherwise)
    }
}

struct Prompt {
    progress: Progress,
}

#[async_trait]
impl Confirmer for Prompt {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        let (progress, question) = (self.progress.clone(), question.clone());
        // A thread of its own: the runtime would wait for a blocking task, also after Ctrl-C.
        let (answer, answered) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = answer.send(progress.suspend(|| put(&question)));
        });
        let (granted, data) = answered.await.ok()??;
        Some(Decision { granted, by: "terminal".into(), data })
    }
}

/// Held by whoever asks: there is one terminal, and one question at a time.
static TERMINAL: Mutex<()> = Mutex::new(());

/// Puts a question, and waits for what somebody types. Nothing leaves it open.
fn put(question: &Question) -> Option<(bool, Value)> {
    let _turn = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    let step = &question.step;
    match &question.kind {
        QuestionKind::Run { composition, input, calls } => {
            let text = format!("{} [y/N] ", consent(composition, input, calls).message);
            Some((ask(&text), Value::Null))
        }
        QuestionKind::Call { tool, args, parts, undo } => {
            let args = serde_json::to_string_pretty(args).unwrap_or_default();
            let undo = undo_words(undo.as_ref());
            let args = format!("{}\n{}{undo}", indent(&args), listed(parts));
            let text = format!("step `{step}` wants to call `{tool}` with\n{args}may it? [y/N] ");
            Some((ask(&text), Value::Null))
        }
        QuestionKind::Approval { message, schema } => {
            let granted = ask(&format!("step `{step}` asks: {}\n[y/N] ", clean(message)));
            let form = schema.as_ref().filter(|_| granted);
            Some((granted, form.map_or(Value::Null, fill_in)))
        }
        QuestionKind::Doubt { tool, message, .. } => {
            let text = format!(
                "nobody knows whether step `{step}` did its work ({}).\nlook whether `{tool}` did \
                 it: [done/failed], or nothing to leave the run waiting ",
                clean(message)
            );
            match line(&text).to_lowercase().as_str() {
                "d" | "done" => Some((true, Value::Null)),
                "f" | "failed" => Some((false, Value::Null)),
                _ => None,
            }
        }
    }
}

/// Asks for the members of a form, one after the other. What is left empty is left out; what does
/// not fit is asked again.
fn fill_in(schema: &Arc<Schema>) -> Value {
    let Type::Object(form) = schema.ty() else { return Value::Null };
    let mut filled = Vec::new();
    for (name, property) in &form.properties {
        let usual = schema.json().get("properties").and_then(|all| all.get(name)?.get("default"));
        let mark = if property.required && usual.is_none() { "*" } else { "" };
        let usual = usual.map_or_else(String::new, |usual| format!(", else {usual}"));
        let prompt = format!("{}{mark} ({}{}): ", clean(name), property.ty, clean(&usual));
        loop {
            let text = line(&prompt);
            if text.is_empty() {
                break;
            }
            let text = match (&property.ty, text.to_lowercase().as_str()) {
                (Type::Bool, "y" | "yes") => "true".to_owned(),
                (Type::Bool, "n" | "no") => "false".to_owned(),
                _ => text,
            };
            let pair = format!("{name}={text}");
            match input::read_pair(&pair, schema.ty(), &Limits::default()) {
                Ok(member) => {
                    filled.push(member);
                    break;
                }
                Err(why) => say_again(&why),
            }
        }
    }
    if filled.is_empty() { Value::Null } else { Value::object(filled) }
}

fn say_again(why: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{why}");
}

/// Asks for a yes.
pub(super) fn ask(text: &str) -> bool {
    matches!(line(text).to_lowercase().as_str(), "y" | "yes")
}

/// What somebody types after a question; nothing when nobody can.
fn line(text: &str) -> String {
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{text}");
    let _ = err.flush();
    drop(err);
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(_) => line.trim().to_owned(),
        Err(_) => String::new(),
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
