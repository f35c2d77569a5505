//! Journal → every attempt of a step, with its time and its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::journal::{Entry, Fact, Failure, NodeId};
use super::state::RunState;
use crate::view::{AttemptView, StepStatus, Timestamp};

/// The attempts of every step that calls a tool, in the order of the journal.
pub(super) fn attempts(
    state: &RunState,
    tool_of: impl Fn(NodeId, u16) -> String,
    journal: &[Entry],
) -> Vec<AttemptView> {
    let mut attempts: Vec<AttemptView> = Vec::new();
    let mut open: BTreeMap<NodeId, usize> = BTreeMap::new();
    for entry in journal {
        if let Fact::Called { node, candidate, .. } = &entry.fact {
            open.insert(*node, attempts.len());
            attempts.push(AttemptView {
                step: state.path(*node),
                tool: tool_of(*node, *candidate),
                started_at: Timestamp(entry.at_ms),
                duration_ms: None,
                outcome: "open",
                code: None,
                message: None,
                pause_ms: None,
            });
            continue;
        }
        let Some((node, outcome, failure)) = attempt_end(&entry.fact) else { continue };
        let is_doubt = state.settled_status(&entry.fact) == Some(StepStatus::InDoubt);
        let outcome = if is_doubt { "in_doubt" } else { outcome };
        if let Some(attempt) = open.remove(&node).and_then(|at| attempts.get_mut(at)) {
            attempt.duration_ms = Some(entry.at_ms.saturating_sub(attempt.started_at.0));
            attempt.outcome = outcome;
            attempt.code = failure.map(|failure| failure.code);
            attempt.message = failure.map(|failure| failure.message.to_string());
            if let Fact::BackedOff { until_ms, .. } = &entry.fact {
                attempt.pause_ms = Some(until_ms.saturating_sub(entry.at_ms));
            }
        }
    }
    attempts
}

/// The outcome of an attempt, for a fact that ends one.
fn attempt_end(fact: &Fact) -> Option<(NodeId, &'static str, Option<&Arc<Failure>>)> {
    Some(match fact {
        Fact::Succeeded { node, .. } => (*node, "done", None),
        Fact::BackedOff { node, failure, .. }
        | Fact::GaveUp { node, failure }
        | Fact::Tolerated { node, failure, .. }
        | Fact::Failed { node, failure } => (*node, "failed", Some(failure)),
        Fact::Probed { node, failure, .. } | Fact::Doubted { node, failure } => {
            (*node, "in_doubt", Some(failure))
        }
        Fact::Lost { node } => (*node, "lost", None),
        Fact::Cancelled { node, .. } => (*node, "cancelled", None),
        _ => return None,
    })
}
