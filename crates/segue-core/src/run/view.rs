//! State → [`RunView`].

use std::sync::Arc;

use super::advance::{candidate_call, tool_spec};
use super::consent::declared_calls;
use super::finish::results;
use super::frame::StepState;
use super::journal::{Entry, Fact, Failure, NodeId};
use super::node::NodeState;
use super::scope::FrameScope;
use super::state::RunState;
use super::{Question, QuestionId, QuestionKind, RollbackCall};
use crate::composition::tool::Impact;
use crate::composition::{Flow, StepKind, ToolCall};
use crate::id::ToolId;
use crate::limits::Limits;
use crate::plan::DeclaredCall;
use crate::value::{Map, Shared, Value};
use crate::view::{
    CoveredView, DecisionView, ErrorView, RunStatus, RunView, StepOrigin, StepStatus, StepView,
    Timestamp, WaitView,
};

/// The hint for a call in doubt.
fn resolve_doubt(state: &RunState) -> String {
    let run = state.started.as_ref().map_or("RUN", |started| &*started.run_id);
    format!(
        "find out whether it did its work, then `segue resume {run} --assume done` or \
         `--assume failed`"
    )
}

pub(super) fn run_view(state: &RunState) -> RunView {
    let Some(started) = &state.started else { return RunView::default() };
    let composition = &state.plan_of(0).composition;
    let mut view = RunView {
        run_id: started.run_id.clone(),
        request_id: started.request_id.clone(),
        plan_id: started.plan_id.clone(),
        chain_id: started.chain_id.clone(),
        name: composition.name.clone(),
        dialect: composition.dialect,
        status: if state.is_waiting() { RunStatus::Waiting } else { state.status },
        success: state.status == RunStatus::Success,
        output: state.output.clone(),
        results: shared_results(state),
        started_at: Some(Timestamp(state.started_ms)),
        plan_hash: started.plan_hash.clone(),
        part: started.part.clone(),
        ..RunView::default()
    };
    if state.ended_ms > 0 {
        view.completed_at = Some(Timestamp(state.ended_ms));
        view.duration_ms = state.ended_ms.saturating_sub(state.started_ms);
        view.duration = view.duration_ms.saturating_mul(1_000_000);
    }
    view.steps.reserve(state.frames.iter().map(|frame| frame.nodes.len()).sum());
    let mut said = Vec::new();
    add_steps(state, 0, true, &mut said, &mut view);
    // The cause comes before its consequences.
    view.errors.sort_by_key(|error| error.phase == "rollback");
    if state.status == RunStatus::Running {
        view.waiting_for = questions(state).map(|question| wait_view(&question)).collect();
    }
    if let Value::Object(names) = &state.activation_of(0).names {
        view.state.clone_from(names);
    }
    if let Some(failure) = state.failure.as_ref().filter(|failure| !said.contains(failure)) {
        view.errors.push(error_view(None, None, failure, 0, "run"));
    }
    state.redact_view(&mut view);
    view
}

/// Every output key with its value; the default output of a graph.
fn shared_results(state: &RunState) -> Shared<Map> {
    let composition = &state.plan_of(0).composition;
    let is_output = composition.output.is_none() && composition.body.flow == Flow::Graph;
    match &state.output {
        Value::Object(output) if state.ended_ms > 0 && is_output => output.clone(),
        _ => results(state, 0).into(),
    }
}

/// The open questions.
pub(super) fn questions(state: &RunState) -> impl Iterator<Item = Question> {
    let frames = 0..u32::try_from(state.frames.len()).unwrap_or(u32::MAX);
    let nodes = frames.flat_map(|frame| state.nodes_of(frame));
    let of_steps = nodes.filter_map(|node| question(state, node));
    state.consent_question().into_iter().chain(of_steps)
}

/// The question of a step, if it has one.
pub(super) fn question(state: &RunState, node: NodeId) -> Option<Question> {
    let (record, step) = (state.step_state(node), state.step(node));
    let tool = |candidate| tool_spec(candidate_call(step, candidate)).id.clone();
    let args = state.redact_step_value(node, &record.args);
    let kind = match (&record.node, &step.kind) {
        (NodeState::AwaitingConfirmation { .. }, StepKind::Approve { schema, .. }) => {
            QuestionKind::Approval { message: args.to_string().into(), schema: schema.clone() }
        }
        (NodeState::AwaitingConfirmation { candidate }, _) => {
            call_question(state, node, *candidate, args)
        }
        (NodeState::InDoubt { candidate }, _) => {
            let message = record.doubt.as_ref().map_or_else(|| "".into(), |d| d.message.clone());
            let message = state.sensitive.text(&message).map_or(message, Arc::from);
            QuestionKind::Doubt { tool: tool(*candidate), args, message }
        }
        _ => return None,
    };
    let id = QuestionId { node, seq: state.step_state(node).asked_seq };
    Some(Question { id, step: state.path(node), kind })
}

/// The question whether a tool may be called, with everything that a yes covers.
fn call_question(state: &RunState, node: NodeId, candidate: u16, args: Value) -> QuestionKind {
    let tool = tool_spec(candidate_call(state.step(node), candidate));
    let parts = declared_calls(state, node, candidate);
    let (effect, planned) = (tool.annotations.impact(), state.planned(node));
    let rollback = state.rollback_to_confirm(node, candidate);
    let rollback = rollback.map(|call| rollback_call(state, node, call, &args));
    // A composition is rolled back by its own steps.
    let can_roll_back = match tool.composition {
        Some(_) => parts.iter().all(|part| part.can_roll_back),
        None => planned.can_roll_back(candidate),
    };
    QuestionKind::Call {
        tool: tool.id.clone(),
        args,
        effect,
        can_roll_back: effect <= Impact::Reads || can_roll_back,
        parts,
        rollback,
    }
}

/// Everything that a yes covers, forward calls first.
fn covers(question: &QuestionKind) -> Vec<CoveredView> {
    let of = |declared: &DeclaredCall| {
        let DeclaredCall { tool, effect, arguments, can_roll_back, is_rollback, .. } =
            declared.clone();
        let with = |arguments| CoveredView {
            tool: tool.shared().clone(),
            effect,
            arguments,
            can_roll_back,
            is_rollback,
        };
        if arguments.is_empty() {
            return vec![with(None)];
        }
        arguments.into_iter().map(|it| with(Some(it))).collect()
    };
    match question {
        QuestionKind::Run { calls, .. } => calls.iter().flat_map(of).collect(),
        QuestionKind::Call { tool, args, effect, can_roll_back, parts, rollback } => {
            let own = CoveredView {
                tool: tool.shared().clone(),
                effect: *effect,
                arguments: Some(args.clone()),
                can_roll_back: *can_roll_back,
                is_rollback: false,
            };
            let rollback =
                rollback.as_ref().map(|RollbackCall { tool, args, effect }| CoveredView {
                    tool: tool.shared().clone(),
                    effect: *effect,
                    arguments: Some(args.clone()),
                    can_roll_back: true,
                    is_rollback: true,
                });
            std::iter::once(own).chain(parts.iter().flat_map(of)).chain(rollback).collect()
        }
        QuestionKind::Approval { .. } | QuestionKind::Doubt { .. } => Vec::new(),
    }
}

/// The rollback call of a step, given the redacted arguments of the step. What depends on the step's
/// output has no value yet and stays as written.
fn rollback_call(state: &RunState, node: NodeId, call: &ToolCall, args: &Value) -> RollbackCall {
    let mut scope = FrameScope::new(state, node.frame);
    scope.args = Some(args);
    let known = call.parameters.template.eval_known_paths(&scope, &Limits::default());
    let tool = tool_spec(call);
    RollbackCall {
        tool: tool.id.clone(),
        args: state.sensitive.value(&known),
        effect: tool.annotations.impact(),
    }
}

/// The decisions with person and time, in the order of the journal.
pub(super) fn decisions(state: &RunState, journal: &[Entry]) -> Vec<DecisionView> {
    let decision = |entry: &Entry| match &entry.fact {
        Fact::Consented { by } => Some((by.clone(), "approved the run".to_owned())),
        Fact::Granted { node, by } => {
            Some((by.clone(), format!("allowed `{}`", state.path(*node))))
        }
        Fact::Resolved { node, done, by } => {
            let what = if *done { "was done" } else { "was not done" };
            Some((by.clone(), format!("reported that `{}` {what}", state.path(*node))))
        }
        Fact::Refused { node: None, by } => Some((by.clone(), "refused the run".to_owned())),
        Fact::Refused { node: Some(node), by } => {
            Some((by.clone(), format!("refused `{}`", state.path(*node))))
        }
        Fact::CancelAsked { by } => Some((by.clone(), "cancelled the run".to_owned())),
        Fact::RollbackAsked { by } => Some((by.clone(), "requested a rollback".to_owned())),
        Fact::Succeeded { node, output, .. }
            if matches!(state.step(*node).kind, StepKind::Approve { .. }) =>
        {
            let by = output.get("by").and_then(Value::as_str).unwrap_or("").into();
            Some((by, format!("approved `{}`", state.path(*node))))
        }
        _ => None,
    };
    let decided = |entry| {
        let (by, what) = decision(entry)?;
        Some(DecisionView { at: Timestamp(entry.at_ms), by, what })
    };
    journal.iter().filter_map(decided).collect()
}

fn wait_view(question: &Question) -> WaitView {
    let (step, covers) = (question.step.clone(), covers(&question.kind));
    let text = |tool: &ToolId| Some(tool.shared().clone());
    match &question.kind {
        QuestionKind::Run { composition, input, .. } => WaitView {
            message: format!("may `{composition}` run, with everything that it calls?").into(),
            kind: "run",
            tool: None,
            args: input.clone(),
            schema: None,
            covers,
            step,
        },
        QuestionKind::Call { tool, args, rollback, .. } => WaitView {
            message: match rollback {
                None => format!("may `{tool}` be called?").into(),
                Some(RollbackCall { tool: rollback, args, .. }) => {
                    let last = format!("and `{rollback}` with {args} to roll it back");
                    format!("may `{tool}` be called, {last}?").into()
                }
            },
            kind: "call",
            tool: text(tool),
            args: args.clone(),
            schema: None,
            covers,
            step,
        },
        QuestionKind::Approval { message, schema } => WaitView {
            message: message.clone(),
            kind: "approval",
            tool: None,
            args: Value::Null,
            schema: schema.as_ref().map(|form| form.json().clone()),
            covers,
            step,
        },
        QuestionKind::Doubt { tool, args, message } => WaitView {
            message: format!("did `{tool}` do its work? ({message})").into(),
            kind: "doubt",
            tool: text(tool),
            args: args.clone(),
            schema: None,
            covers,
            step,
        },
    }
}

/// A frame's steps, each followed by the steps inside it.
///
/// A failure is reported once, at the step where it started: enclosing steps come later. Losing
/// branches of a race that was won do not count.
fn add_steps(
    state: &RunState,
    frame: u32,
    counts: bool,
    said: &mut Vec<Arc<Failure>>,
    view: &mut RunView,
) {
    for position in 0..state.frame(frame).nodes.len() {
        let node = NodeId { frame, position: u32::try_from(position).unwrap_or(u32::MAX) };
        let record = state.step_state(node);
        let step = step_view(state, node, record);
        if counts {
            count(&step, record, view);
        }
        let error = step.error.clone();
        let said_before = said.len();
        view.steps.push(step);
        if let Some(given) = &record.assigned_names {
            merge(&mut view.state, given);
        }
        let counted = state.outcome_frames(node);
        let all_count = counted.len() == record.frames.len();
        for inner in &record.frames {
            let inner_counts = counts && (all_count || counted.contains(inner));
            add_steps(state, *inner, inner_counts, said, view);
        }
        if let (true, Some(failure)) = (counts, record.node.failure())
            && !said[said_before..].contains(failure)
        {
            said.push(failure.clone());
            view.errors.push(call_error(state, node, record, failure));
        }
        // Also in a branch that lost its race: its side effect remains.
        let is_open =
            matches!(record.node, NodeState::RollbackFailed { .. } | NodeState::InDoubt { .. });
        view.errors.extend(error.filter(|_| is_open));
        warn_of_doubt(state, node, record, view);
        warn_of_kept_references(state, node, record, view);
    }
}

/// Warns about a call that was aborted before it answered and that no rollback covers: it may have
/// done its work.
fn warn_of_doubt(state: &RunState, node: NodeId, record: &StepState, view: &mut RunView) {
    if matches!(record.node, NodeState::Cancelled { in_doubt: true }) {
        let path = state.path(node);
        let message = format!("`{path}` was aborted before it answered; it may have done its work");
        view.warnings.push(message);
    }
}

/// Warns about references and fields without a value, where the run continued.
fn warn_of_kept_references(state: &RunState, node: NodeId, record: &StepState, view: &mut RunView) {
    let path = state.path(node);
    for reference in &record.kept {
        let message = format!("`{path}`: {reference} has no value and stays as written");
        view.warnings.push(message);
    }
    let Some(given) = record.assigned_names.as_ref().filter(|_| record.node.output().is_some())
    else {
        return;
    };
    for (field, name) in &state.step(node).on_success.map_outputs {
        if !given.contains_key(name) {
            let message = format!("the value of `{path}` has no `{field}`: `{name}` stays unset");
            view.warnings.push(message);
        }
    }
}

fn merge(into: &mut Map, given: &Map) {
    into.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
}

fn count(step: &StepView, record: &StepState, view: &mut RunView) {
    if record.origin.is_some() {
        return;
    }
    let ran = !matches!(step.status, StepStatus::Pending | StepStatus::Skipped);
    view.steps_executed += usize::from(ran && record.started_ms > 0);
    view.steps_succeeded += usize::from(step.status == StepStatus::Success);
    view.steps_failed +=
        usize::from(matches!(step.status, StepStatus::Failed | StepStatus::InDoubt));
}

fn step_view(state: &RunState, node: NodeId, record: &StepState) -> StepView {
    let step = state.step(node);
    let tool = match &step.kind {
        StepKind::Tool(call) => call.tool.as_ref().map(|tool| tool.id.shared().clone()),
        _ => None,
    };
    let path = state.path(node);
    let status = state.status_of(node);
    let began = record.started_ms > 0;
    StepView {
        id: path.clone(),
        kind: step.kind.keyword(),
        error: match &record.node {
            NodeState::RollbackFailed { failure, .. } => Some(error_view(
                Some(path),
                tool.clone(),
                failure,
                record.rollback_attempts,
                "rollback",
            )),
            NodeState::InDoubt { .. } => {
                let doubt = record.doubt.as_ref();
                doubt.map(|doubt| ErrorView {
                    hint: Some(resolve_doubt(state)),
                    in_doubt: true,
                    ..call_error(state, node, record, doubt)
                })
            }
            other => other.failure().map(|failure| call_error(state, node, record, failure)),
        },
        tool,
        status,
        attempts: attempts_of(record),
        input: state.redact_step_value(node, &record.args),
        output: record.node.output().map(|o| state.redact_step_value(node, o)).unwrap_or_default(),
        reason: match &record.node {
            NodeState::Skipped { reason, .. } => Some(reason.to_string()),
            _ => match record.origin {
                Some(StepOrigin::Reused) => Some("its value is reused from an earlier run".into()),
                Some(StepOrigin::Pinned) => Some("its value was given; nothing was called".into()),
                Some(StepOrigin::LeftOut) | None => None,
            },
        },
        started_at: began.then_some(Timestamp(record.started_ms)),
        completed_at: (began && record.ended_ms > 0).then_some(Timestamp(record.ended_ms)),
        duration_ms: record.ended_ms.saturating_sub(record.started_ms),
        would: None,
        origin: record.origin,
    }
}

/// The forward failure of a step.
fn call_error(state: &RunState, node: NodeId, record: &StepState, failure: &Failure) -> ErrorView {
    let tool = match &state.step(node).kind {
        StepKind::Tool(_) => {
            let call = candidate_call(state.step(node), record.candidate);
            call.tool.as_ref().map(|tool| tool.id.shared().clone())
        }
        _ => None,
    };
    error_view(Some(state.path(node)), tool, failure, attempts_of(record), "call")
}

/// The number of calls that do the step's work, without rollbacks and probes.
fn attempts_of(record: &StepState) -> u32 {
    record.attempts - record.rollback_attempts - record.probes
}

fn error_view(
    step: Option<Arc<str>>,
    tool: Option<Arc<str>>,
    failure: &Failure,
    attempts: u32,
    phase: &'static str,
) -> ErrorView {
    ErrorView {
        step,
        tool,
        code: failure.code,
        message: failure.message.to_string(),
        attempts,
        phase,
        retryable: failure.retryable,
        in_doubt: failure.in_doubt,
        hint: failure.hint.as_ref().map(ToString::to_string),
    }
}
