//! Questions to a person at a terminal, and their answers.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::limits::Limits;
use segue_core::run::{Question, QuestionKind};
use segue_core::schema::Schema;
use segue_core::types::Type;
use segue_core::value::Value;
use segue_runtime::confirm::{Confirmer, Decision};
use tokio::sync::oneshot;

use super::current_user::current_user;
use super::input;
use super::progress::ProgressDisplay;
use crate::api::questions::{consent, indented, list_calls, quoted, rollback_text, stakes};
use crate::print::{escape_control, print_status};

/// Asks on a terminal; without one, `otherwise` answers.
pub(super) fn confirmer(
    progress: &ProgressDisplay,
    otherwise: impl Confirmer + 'static,
) -> Box<dyn Confirmer> {
    if can_ask() {
        Box::new(TerminalConfirmer { progress: progress.clone() })
    } else {
        Box::new(otherwise)
    }
}

/// Whether a person can be asked: input and messages are a terminal's.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// `--yes` of a command on a stored run: approves what `segue run --yes` approves in advance, and
/// passes every other question on.
pub(super) struct ApproveInAdvance(pub(super) Box<dyn Confirmer>);

#[async_trait]
impl Confirmer for ApproveInAdvance {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        let is_covered = match &question.kind {
            QuestionKind::Run { .. } | QuestionKind::Call { .. } => true,
            QuestionKind::Approval { schema, .. } => {
                schema.as_ref().is_none_or(|form| form.violations(&Value::Null).is_empty())
            }
            QuestionKind::Doubt { .. } => false,
        };
        if !is_covered {
            return self.0.confirm(question).await;
        }
        Some(Decision { granted: true, by: current_user(), data: Value::Null })
    }
}

struct TerminalConfirmer {
    progress: ProgressDisplay,
}

/// Held while a question is open: there is one terminal, and one question at a time.
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

/// A question on the screen, with the progress display hidden. The run drops it when it was answered
/// elsewhere or timed out.
struct OpenPrompt<'a> {
    progress: &'a ProgressDisplay,
    step: &'a str,
    is_open: bool,
}

impl Drop for OpenPrompt<'_> {
    fn drop(&mut self) {
        if self.is_open {
            print_status(&format!("\nstep `{}` no longer asks", escape_control(self.step)));
            discard_typed();
        }
        self.progress.show();
    }
}

/// Discards what was typed before a question was shown: it is no answer to it.
fn discard_typed() {
    #[cfg(unix)]
    {
        use rustix::termios::{QueueSelector, tcflush};
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    }
}

/// Shows a question and reads the answer. `None` leaves the question open.
async fn prompt(question: &Question) -> Option<(bool, Value)> {
    let step = &question.step;
    match &question.kind {
        QuestionKind::Run { composition, input, calls } => {
            let text = format!("{} [y/N] ", consent(composition, input, calls).message);
            Some((is_yes(&line(&text).await), Value::Null))
        }
        QuestionKind::Call { tool, args, effect, can_roll_back, parts, rollback } => {
            let (stakes, rollback) =
                (stakes(*effect, *can_roll_back), rollback_text(rollback.as_ref()));
            let args = format!("{}\n{stakes}{}{rollback}", indented(args), list_calls(parts));
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
                "the call of step `{step}` is in doubt ({}).\ncheck whether `{tool}` took effect: \
                 [done/failed], or press Enter to leave the run waiting ",
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

/// Asks for the fields of a form, one after the other. An empty answer leaves a field out; an invalid one
/// is asked for again.
async fn fill_in(schema: &Arc<Schema>) -> Value {
    let Type::Object(form) = schema.ty() else { return Value::Null };
    let mut filled = Vec::new();
    for (name, property) in &form.properties {
        let default = schema.json().get("properties").and_then(|all| all.get(name)?.get("default"));
        let mark = if property.required && default.is_none() { "*" } else { "" };
        let default = default.map_or_else(String::new, |it| format!(", default {it}"));
        let prompt = format!(
            "{}{mark} ({}{}): ",
            escape_control(name),
            property.ty,
            escape_control(&default)
        );
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

/// Asks a yes-or-no question while no run is under way.
pub(super) fn ask(text: &str) -> bool {
    discard_typed();
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

/// Reads a line; empty if there is no input.
fn read_line() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(_) => line.trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// The thread that reads a line. Reading cannot be cancelled: when a question is withdrawn, the thread
/// stays, and its line answers the next question.
struct LineReader {
    is_reading: bool,
    receiver: Option<oneshot::Sender<String>>,
}

static READER: Mutex<LineReader> = Mutex::new(LineReader { is_reading: false, receiver: None });

/// Shows a question and reads a line.
async fn line(text: &str) -> String {
    // Before it is shown, so that a quick answer counts.
    discard_typed();
    write(&escape_control(text));
    let (sender, typed) = oneshot::channel();
    let was_reading = {
        let mut reader = READER.lock();
        reader.receiver = Some(sender);
        std::mem::replace(&mut reader.is_reading, true)
    };
    if !was_reading {
        // A thread of its own: the runtime would wait for a blocking task, also after Ctrl-C.
        std::thread::spawn(|| {
            let line = read_line();
            let mut reader = READER.lock();
            reader.is_reading = false;
            // Without a receiver the question was withdrawn.
            let _ = reader.receiver.take().map(|sender| sender.send(line));
        });
    }
    typed.await.unwrap_or_default()
}
