//! Prints the view of a run, and makes its exit code.

use segue_core::diagnostic::Code;
use segue_core::duration::format_duration;
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_core::view::explain;
use segue_core::view::{ErrorView, RunStatus, RunView, StepStatus, StepView};
use segue_runtime::driver::now_ms;

use super::{Exit, Global, Output, print_json, to_json};
use crate::api::questions::waiting_text;
use crate::print::{escape_control, print_data, print_error, print_status};

pub(super) fn show(global: &Global, view: &RunView) -> Exit {
    match global.output() {
        Output::Json | Output::Ndjson => print_json(global, view),
        Output::Rich | Output::Plain => {
            if !view.output.is_null() {
                print_data(&to_json(&view.output));
            }
            show_errors(view);
            show_questions(view);
            if !global.quiet {
                print_status(&summary(view));
            }
        }
    }
    exit_code(view)
}

/// Prints the output of a composition that was called as a tool, or its errors.
pub(super) fn show_result(view: &RunView) -> Exit {
    if view.success {
        print_data(&to_json(&view.output));
    }
    show_errors(view);
    exit_code(view)
}

/// Prints the questions that a run waits for.
pub(super) fn show_questions(view: &RunView) {
    let waits: Vec<_> = view.waiting_for.iter().filter(|wait| wait.kind != "doubt").collect();
    for wait in &waits {
        let message = format!("step `{}` waits for an answer: {}", wait.step, waiting_text(wait));
        let step = if waits.len() > 1 { format!(" --step '{}'", wait.step) } else { String::new() };
        let help = format!("`segue approve {}{step}`, or with `--deny`", view.run_id);
        print_error(&message, Some(&help));
    }
}

pub(super) fn show_errors(view: &RunView) {
    for (at, error) in view.errors.iter().enumerate() {
        let place = match (&error.step, &error.tool) {
            (Some(step), Some(tool)) => format!("step `{step}` ({tool}): "),
            (Some(step), None) => format!("step `{step}`: "),
            _ => String::new(),
        };
        let doubt = if error.in_doubt { " — the call may have taken effect" } else { "" };
        let message = format!("[{}] {place}{}{doubt}", error.code, error.message);
        let help = help_for(error);
        // Several errors with one remedy: it follows the last of them.
        let next = view.errors.get(at + 1).and_then(help_for);
        print_error(&message, help.filter(|help| next != Some(help)));
    }
}

fn help_for(error: &ErrorView) -> Option<&str> {
    error.hint.as_deref().or_else(|| hint_for(error))
}

/// The option that gives what a run lacked.
fn hint_for(error: &ErrorView) -> Option<&'static str> {
    match (error.phase, error.code) {
        ("check", Code::InputSchema) => {
            Some("`-i name=value` gives an input, `segue plan` shows which there are")
        }
        ("check", Code::PolicyViolation) => Some("`--context name=value` gives it"),
        _ => None,
    }
}

pub(super) fn summary(view: &RunView) -> String {
    let word = view.status.as_str().replace('_', " ");
    let took = match view.started_at {
        // A waiting run has no end yet.
        Some(began) if view.completed_at.is_none() => now_ms().saturating_sub(began.0),
        _ => view.duration_ms,
    };
    format!(
        "{}: {word} · {} of {} steps · {}",
        view.name,
        view.steps_succeeded,
        view.steps.len(),
        format_duration(took)
    )
}

pub(super) fn exit_code(view: &RunView) -> Exit {
    let refused = !view.errors.is_empty() && view.errors.iter().all(|error| error.phase == "check");
    match view.status {
        RunStatus::Success => Exit::Success,
        RunStatus::DryRun if view.success => Exit::Success,
        RunStatus::Denied | RunStatus::Waiting => Exit::Denied,
        RunStatus::Cancelled => Exit::Interrupted,
        // A run that was rolled back after a signal counts as interrupted.
        _ if view.errors.iter().any(|error| error.code == Code::Cancelled) => Exit::Interrupted,
        _ if refused => Exit::Usage,
        _ if view.errors.iter().any(|error| error.code == Code::Unreachable) => Exit::Unreachable,
        _ => Exit::RunFailed,
    }
}

/// Prints the calls of a dry run: their arguments, their effects and their rollback.
pub(super) fn show_dry_run(global: &Global, view: &RunView) -> Exit {
    if global.is_json() {
        print_json(global, view);
        return exit_code(view);
    }
    for step in &view.steps {
        print_data(&effect_line(step));
        if let (Some(_), Value::Object(args)) = (&step.tool, &step.input) {
            args.iter().for_each(|(name, value)| {
                print_data(&format!("    {name}: {}", escape_control(&value.to_json())));
            });
        }
    }
    show_errors(view);
    if !global.quiet && view.status == RunStatus::DryRun {
        print_status(&match view.steps_executed {
            0 => "nothing was called".to_owned(),
            1 => "1 step only reads and was called; nothing else was".to_owned(),
            n => format!("{n} steps only read and were called; nothing else was"),
        });
    }
    exit_code(view)
}

/// `write  builtin:files_write  writes · rollback: builtin:files_restore`
fn effect_line(step: &StepView) -> String {
    let what = step.tool.as_deref().unwrap_or(step.kind);
    let mut notes = Vec::new();
    if let Some(would) = &step.would {
        notes.push(explain::effect_label(would.effect).to_owned());
        let changes = !matches!(would.effect, Impact::None | Impact::Reads);
        notes.extend(
            Some(explain::rollback_label(&would.rollback)).filter(|w| changes && !w.is_empty()),
        );
        notes.extend(would.confirms.then(|| "asks first".to_owned()));
        notes.extend(would.called.then(|| "called".to_owned()));
    }
    match step.status {
        StepStatus::Failed => notes.push("failed".to_owned()),
        StepStatus::InDoubt => notes.push("in doubt".to_owned()),
        StepStatus::Cancelled => notes.push("cancelled".to_owned()),
        _ => {}
    }
    notes.extend(step.reason.as_ref().map(|reason| format!("skipped: {reason}")));
    format!("{}  {what}  {}", step.id, notes.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_exit_codes() {
        let view = |status| RunView { status, ..RunView::default() };
        assert_eq!(exit_code(&view(RunStatus::Success)), Exit::Success);
        assert_eq!(exit_code(&view(RunStatus::Partial)), Exit::RunFailed);
        assert_eq!(exit_code(&view(RunStatus::RolledBack)), Exit::RunFailed);
        assert_eq!(exit_code(&view(RunStatus::Denied)), Exit::Denied);
        assert_eq!(exit_code(&view(RunStatus::Cancelled)), Exit::Interrupted);
    }
}
