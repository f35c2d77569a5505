//! Questions to a person at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::run::{Question, QuestionKind};
use segue_core::schema::Schema;
use segue_core::types::Type;
use segue_core::value::Value;
use segue_runtime::driver::{Confirmer, Decision};
use tokio::sync::oneshot;

use super::current_user::current_user;
use super::progress::ProgressDisplay;
use super::{input, print_status};
use crate::api::questions::{consent, list_calls, quoted, rollback_text, shown, stakes};
use crate::print::escape_control;

/// Asks on a terminal; elsewhere `otherwise` answers.
pub(super) fn confirmer(
    progress: &ProgressDisplay,
    otherwise: impl Confirmer + 'static,
) -> Box<dyn Confirmer> {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        Box::new(TerminalConfirmer { progress: progress.clone() })
    } else {
        Box::new(otherwise)
    }
}

struct TerminalConfirmer {
    progress: ProgressDisplay,
}

/// Held by whoever asks: there is one terminal, and one question at a time.
static TERMINAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[async_trait]
impl Confirmer for TerminalConfirmer {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        let _turn = TERMINAL.lock().await;
        let mut asking =
            OpenPrompt { progress: &self.progress, step: &question.step, is_open: true };
        self.progress.hide();
        let answer = prompt(question).await;
        asking.is_open = false;
        drop(asking);
        let (granted, data) = answer?;
        Some(Decision { granted, by: current_user(), data })
    }
}

/// A question that is being put. The run goes on meanwhile, unseen, and drops this when somebody else
/// has answered, or when it is too late to.
struct OpenPrompt<'a> {
    progress: &'a ProgressDisplay,
    step: &'a str,
    is_open: bool,
}

impl Drop for OpenPrompt<'_> {
    fn drop(&mut self) {
        if self.is_open {
            print_status(&format!("\nstep `{}` does not ask any more", escape_control(self.step)));
            forget_typed();
        }
        self.progress.show();
    }
}

/// What was typed before a question was read, or for one that does not stand any more, is no answer to it.
fn forget_typed() {
    #[cfg(unix)]
    {
        use rustix::termios::{QueueSelector, tcflush};
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    }
}

/// Puts a question, and waits for what somebody types. Nothing leaves it open.
async fn prompt(question: &Question) -> Option<(bool, Value)> {
    let step = &question.step;
    match &question.kind {
        QuestionKind::Run { composition, input, calls } => {
            let text = format!("{} [y/N] ", consent(composition, input, calls).message);
            Some((is_yes(&line(&text).await), Value::Null))
        }
        QuestionKind::Call {
            tool,
            args,
            effect,
            can_roll_back: is_undoable,
            parts,
            rollback: undo,
        } => {
            let (stakes, undo) = (stakes(*effect, *is_undoable), rollback_text(undo.as_ref()));
            let args = format!("{}\n{stakes}{}{undo}", indent(&shown(args)), list_calls(parts));
            let text = format!("step `{step}` wants to call `{tool}` with\n{args}may it? [y/N] ");
            Some((is_yes(&line(&text).await), Value::Null))
        }
        QuestionKind::Approval { message, schema } => {
            let text = format!("step `{step}` asks: {}\n[y/N] ", quoted(message));
            let granted = is_yes(&line(&text).await);
            let data = match schema {
                Some(schema) if granted => fill_in(schema).await,
                _ => Value::Null,
            };
            Some((granted, data))
        }
        QuestionKind::Doubt { tool, message, .. } => {
            let text = format!(
                "nobody knows whether step `{step}` did its work ({}).\nlook whether `{tool}` did \
                 it: [done/failed], or nothing to leave the run waiting ",
                quoted(message)
            );
            match line(&text).await.to_lowercase().as_str() {
                "d" | "done" => Some((true, Value::Null)),
                "f" | "failed" => Some((false, Value::Null)),
                _ => None,
            }
        }
    }
}

/// Asks for the members of a form, one after the other. What is left empty is left out; what does
/// not fit is asked again.
async fn fill_in(schema: &Arc<Schema>) -> Value {
    let Type::Object(form) = schema.ty() else { return Value::Null };
    let mut filled = Vec::new();
    for (name, property) in &form.properties {
        let usual = schema.json().get("properties").and_then(|all| all.get(name)?.get("default"));
        let mark = if property.required && usual.is_none() { "*" } else { "" };
        let usual = usual.map_or_else(String::new, |usual| format!(", else {usual}"));
        let prompt =
            format!("{}{mark} ({}{}): ", escape_control(name), property.ty, escape_control(&usual));
        loop {
            let text = line(&prompt).await;
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
                Err(why) => print_status(&why),
            }
        }
    }
    if filled.is_empty() { Value::Null } else { Value::object(filled) }
}

/// Asks for a yes, where nothing else goes on.
pub(super) fn ask(text: &str) -> bool {
    forget_typed();
    write(text);
    is_yes(&read_line())
}

fn is_yes(text: &str) -> bool {
    matches!(text.to_lowercase().as_str(), "y" | "yes")
}

fn write(text: &str) {
    let mut err = anstream::stderr().lock();
    let _ = write!(err, "{text}");
    let _ = err.flush();
}

/// What somebody types; nothing when nobody can.
fn read_line() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(_) => line.trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// Who reads what is typed. Nobody can be called back from reading: a question that is withdrawn
/// leaves the reader behind, and the next one gets what it reads.
struct LineReader {
    is_reading: bool,
    wanted: Option<oneshot::Sender<String>>,
}

static READER: Mutex<LineReader> = Mutex::new(LineReader { is_reading: false, wanted: None });

fn reader() -> MutexGuard<'static, LineReader> {
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What somebody types after a question.
async fn line(text: &str) -> String {
    // Before it is shown: whoever answers quickly is heard.
    forget_typed();
    write(&escape_control(text));
    let (wanted, typed) = oneshot::channel();
    let was_reading = {
        let mut reader = reader();
        reader.wanted = Some(wanted);
        std::mem::replace(&mut reader.is_reading, true)
    };
    if !was_reading {
        // A thread of its own: the runtime would wait for a blocking task, also after Ctrl-C.
        std::thread::spawn(|| {
            let line = read_line();
            let mut reader = reader();
            reader.is_reading = false;
            // Nobody wants it any more: it was meant for a question that is not open.
            let _ = reader.wanted.take().map(|wanted| wanted.send(line));
        });
    }
    typed.await.unwrap_or_default()
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
