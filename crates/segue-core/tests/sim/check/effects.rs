//! Compares what the run reports with the effects in the world: those that land late, and without
//! an answer.

use std::collections::BTreeMap;

use segue_core::composition::{ResolvedRollback, StepKind};
use segue_core::limits::Limits;
use segue_core::run::{CallId, Effect, Fact, NodeId, Purpose};
use segue_core::tool::Impact;
use segue_core::view::{RunStatus, StepStatus, StepView};

use super::{Evidence, Finding, demand};
use crate::ledger::Account;
use crate::trace::{node_of, settles};

/// Steps that call a tool which may write, and how each was settled.
fn writes<'a>(evidence: &'a Evidence<'_>) -> BTreeMap<NodeId, &'a Fact> {
    let settled = evidence.journal().iter().filter(|entry| settles(&entry.fact));
    let nodes = settled.filter_map(|entry| Some((node_of(&entry.fact)?, &entry.fact)));
    nodes.filter(|(node, _)| may_write(evidence, *node)).collect()
}

fn may_write(evidence: &Evidence<'_>, node: NodeId) -> bool {
    let step = evidence.trace.step(node);
    if !matches!(step.kind, StepKind::Tool(_)) || !evidence.verdict.ends.contains_key(&node) {
        return false;
    }
    let tool = evidence.tool(node);
    tool.composition.is_none() && tool.annotations.impact() != Impact::Reads
}

/// How the result shows a step; nothing when several attempts at a composition share its name.
fn shown<'a>(evidence: &'a Evidence<'_>, node: NodeId) -> Option<&'a StepView> {
    let path = evidence.path(node);
    let mut steps = evidence.story.view.steps.iter().filter(|step| *step.id == *path);
    steps.next().filter(|_| steps.next().is_none())
}

/// Whether the result reports a step whose outcome is unknown.
fn is_named_in_doubt(evidence: &Evidence<'_>, node: NodeId) -> bool {
    let path = evidence.path(node);
    let is_it = |step: &Option<std::sync::Arc<str>>| step.as_deref() == Some(&path);
    let view = &evidence.story.view;
    let by_itself = |step: &StepView| {
        let told = step.error.as_ref().is_some_and(|error| error.in_doubt);
        *step.id == *path && (told || step.status == StepStatus::InDoubt)
    };
    view.errors.iter().any(|error| error.in_doubt && is_it(&error.step))
        || view.steps.iter().any(by_itself)
}

/// After a rollback no effect remains, except those that the run reports as in doubt.
pub(super) fn s1_no_effect_stands_unnamed(evidence: &Evidence<'_>) -> Finding {
    if !evidence.story.ledger.is_kept {
        return Ok(());
    }
    let account = Account::new(evidence.story, evidence.trace);
    let all_is_back = evidence.story.view.status == RunStatus::RolledBack;
    for node in writes(evidence).into_keys() {
        let step = evidence.trace.step(node);
        let candidate = evidence.verdict.ends[&node].candidate;
        let rollback = match candidate {
            0 => &step.resolved_rollback,
            fallback => &step.fallback_rollbacks[usize::from(fallback) - 1],
        };
        let said = shown(evidence, node).is_some_and(|s| s.status == StepStatus::RolledBack);
        let claims = said || (all_is_back && !matches!(rollback, ResolvedRollback::NotNeeded));
        let stands = claims && account.stands(node) && !is_named_in_doubt(evidence, node);
        let (path, status) = (evidence.path(node), evidence.story.view.status.as_str());
        demand!(!stands, "the run is {status}, and what `{path}` did stands");
    }
    Ok(())
}

/// A call that may write is not abandoned before its deadline; a read may be.
pub(super) fn s4_no_write_is_abandoned(evidence: &Evidence<'_>) -> Finding {
    let mut made: BTreeMap<CallId, bool> = BTreeMap::new();
    let stopped_at = |node: NodeId| {
        let stopped = evidence.trace.frame(node.frame).stopped?;
        Some(evidence.story.turns[evidence.story.turn_of(stopped)].now)
    };
    for turn in &evidence.story.turns {
        for effect in &turn.perform {
            match effect {
                Effect::Call(call) => {
                    let writes = call.purpose == Purpose::Work && may_write(evidence, call.id.node);
                    made.insert(call.id, writes);
                }
                Effect::Abort(call) if made.get(call) == Some(&true) => {
                    let stopped = stopped_at(call.node).unwrap_or(u64::MAX);
                    let waited = turn.now.saturating_sub(stopped);
                    let path = evidence.path(call.node);
                    let awaited = waited >= Limits::default().settle_timeout_ms;
                    demand!(awaited, "`{path}` writes, and is given up at once");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A step reported as done has its effect, one reported as not done has none, and one with an
/// unknown outcome is in doubt wherever it is shown.
pub(super) fn s15_the_run_says_what_the_world_has(evidence: &Evidence<'_>) -> Finding {
    if !evidence.story.ledger.is_kept {
        return Ok(());
    }
    let account = Account::new(evidence.story, evidence.trace);
    for (node, fact) in writes(evidence) {
        let path = evidence.path(node);
        let landed = account.landed(node).is_some();
        let in_doubt = match fact {
            Fact::Succeeded { .. } => {
                demand!(landed, "`{path}` is said to be done, and the world has nothing of it");
                false
            }
            Fact::Failed { failure, .. } | Fact::Tolerated { failure, .. } => {
                let certain = !failure.in_doubt && !failure.acted;
                demand!(!(certain && landed), "`{path}` failed, and the world has its effect");
                failure.in_doubt
            }
            Fact::Cancelled { in_doubt, .. } => {
                demand!(
                    *in_doubt || !landed,
                    "`{path}` was cancelled, and the world has its effect"
                );
                *in_doubt
            }
            _ => {
                demand!(!landed, "`{path}` did not run, and the world has its effect");
                false
            }
        };
        let Some(step) = shown(evidence, node) else { continue };
        let is_back = matches!(step.status, StepStatus::RolledBack | StepStatus::RollbackFailed);
        let tolerated = matches!(fact, Fact::Tolerated { .. });
        let says = step.status == StepStatus::InDoubt;
        demand!(
            is_back || tolerated || says == in_doubt,
            "`{path}`: in doubt {in_doubt}, and it is shown as {}",
            step.status.as_str()
        );
    }
    Ok(())
}
