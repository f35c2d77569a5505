//! Compares what the machine did with what the model predicts.

use std::collections::BTreeMap;

use segue_core::composition::StepKind;
use segue_core::run::{CallId, Fact, NodeId};
use segue_core::value::Value;
use segue_core::view::{RunStatus, StepStatus};

use super::{Evidence, Finding, demand};
use crate::model::{Back, End};
use crate::trace::settles;

/// The calls that were made, by id.
fn made<'a>(evidence: &'a Evidence<'_>) -> BTreeMap<CallId, (String, &'a Value, &'a str)> {
    let calls = evidence.story.calls();
    calls.map(|(_, call)| (call.id, (call.tool.to_string(), &call.args, &*call.key))).collect()
}

fn is_rollback(key: &str) -> bool {
    key.ends_with("/undo")
}

/// Every call has the arguments that its templates give, from exactly what it may see.
pub(super) fn e4_arguments_are_what_they_mean(evidence: &Evidence<'_>) -> Finding {
    arguments(evidence, false)
}

/// A rollback gets the arguments that its own step's input and output give.
pub(super) fn s8_rollback_gets_its_own_values(evidence: &Evidence<'_>) -> Finding {
    arguments(evidence, true)
}

fn arguments(evidence: &Evidence<'_>, rollback: bool) -> Finding {
    let made = made(evidence);
    for call in &evidence.verdict.calls {
        let Some((_, args, key)) = made.get(&call.call) else { continue };
        let same = is_rollback(key) != rollback || **args == call.args;
        let path = evidence.path(call.call.node);
        demand!(same, "`{path}` is called with {args}, and should with {}", call.args);
    }
    Ok(())
}

/// The rollbacks of some steps: the same as the model's, in its order.
fn same_rollbacks(evidence: &Evidence<'_>, about: impl Fn(NodeId) -> bool) -> Finding {
    let names = |nodes: &[NodeId]| nodes.iter().map(|n| evidence.path(*n)).collect::<Vec<_>>();
    let mut found: Vec<(u32, Vec<NodeId>)> = Vec::new();
    let mut announced: BTreeMap<NodeId, usize> = BTreeMap::new();
    for entry in evidence.journal() {
        match &entry.fact {
            Fact::RollbackStarted { frame, steps, .. } => {
                announced.extend(steps.iter().map(|node| (*node, found.len())));
                found.push((*frame, Vec::new()));
            }
            Fact::AttemptRollbackStarted { node, steps, .. } => {
                announced.extend(steps.iter().map(|node| (*node, found.len())));
                found.push((evidence.trace.attempt_at(*node, entry.seq)[0], Vec::new()));
            }
            Fact::RollbackCalled { node, .. } | Fact::RollbackFailed { node, .. }
                if about(*node) =>
            {
                let Some(by) = announced.get(node) else {
                    return Err(format!("`{}` is undone by nobody", evidence.path(*node)));
                };
                let steps = &mut found[*by].1;
                if !steps.contains(node) {
                    steps.push(*node);
                }
            }
            _ => {}
        }
    }
    let mut expected = evidence.verdict.back.clone();
    expected.sort_by_key(|(root, _)| *root);
    found.sort_by_key(|(root, _)| *root);
    let is: Vec<u32> = found.iter().map(|(root, _)| *root).collect();
    let should: Vec<u32> = expected.iter().map(|(root, _)| *root).collect();
    demand!(is == should, "bodies {is:?} go back, and should {should:?}");
    for ((_, found), (_, expected)) in found.iter().zip(&expected) {
        let expected: Vec<NodeId> =
            expected.iter().map(|(node, _)| *node).filter(|node| about(*node)).collect();
        demand!(
            *found == expected,
            "undone: {:?}, should be: {:?}",
            names(found),
            names(&expected)
        );
    }
    Ok(())
}

/// Whether a step around has a kind.
fn is_inside(evidence: &Evidence<'_>, node: NodeId, kind: fn(&StepKind) -> bool) -> bool {
    let mut at = evidence.trace.frame(node.frame).parent;
    while let Some(parent) = at {
        if kind(&evidence.trace.step(parent).kind) {
            return true;
        }
        at = evidence.trace.frame(parent.frame).parent;
    }
    false
}

/// Inner compositions are rolled back like everything else.
pub(super) fn s13_nested_compositions(evidence: &Evidence<'_>) -> Finding {
    same_rollbacks(evidence, |node| {
        is_inside(evidence, node, |kind| matches!(kind, StepKind::Tool(_)))
    })
}

/// Exactly the items with side effects are rolled back, each by itself.
pub(super) fn s14_items_of_loops(evidence: &Evidence<'_>) -> Finding {
    same_rollbacks(evidence, |node| {
        is_inside(evidence, node, |kind| matches!(kind, StepKind::Loop(_)))
    })
}

/// A step that may have done its work is neither a success nor a failure.
pub(super) fn s15_doubt_is_doubt(evidence: &Evidence<'_>) -> Finding {
    for entry in evidence.journal().iter().filter(|entry| settles(&entry.fact)) {
        let Some(node) = crate::trace::node_of(&entry.fact) else { continue };
        let Some(ended) = evidence.verdict.ends.get(&node) else { continue };
        let said = match &entry.fact {
            Fact::Failed { failure, .. } => failure.in_doubt,
            Fact::Cancelled { in_doubt, .. } => *in_doubt,
            Fact::Succeeded { .. } | Fact::Tolerated { .. } | Fact::Skipped { .. } => false,
            _ => continue,
        };
        let path = evidence.path(node);
        let is = ended.end.in_doubt();
        demand!(
            said == is,
            "`{path}`: in doubt {is}, and the journal says {said}: {:?}",
            entry.fact
        );
    }
    Ok(())
}

/// Everything else: every step's outcome and value, every call, the order of rollbacks, the run's
/// status.
pub(super) fn the_model_agrees(evidence: &Evidence<'_>) -> Finding {
    let verdict = evidence.verdict;
    demand!(verdict.wrong.is_empty(), "{}", verdict.wrong.join("; "));
    for entry in evidence.journal().iter().filter(|entry| settles(&entry.fact)) {
        let Some(node) = crate::trace::node_of(&entry.fact) else { continue };
        let path = evidence.path(node);
        let Some(ended) = verdict.ends.get(&node) else {
            return Err(format!("`{path}` should not exist"));
        };
        let same = match (&entry.fact, &ended.end) {
            (Fact::Succeeded { output, .. }, End::Done(value)) => output == value,
            (Fact::Tolerated { output, failure, .. }, End::Tolerated(value, expected)) => {
                output == value && failure.code == expected.code
            }
            (Fact::Failed { failure, .. }, End::Failed(expected)) => failure.code == expected.code,
            (Fact::Skipped { .. }, End::Skipped { .. })
            | (Fact::Cancelled { .. }, End::Cancelled { .. }) => true,
            _ => false,
        };
        demand!(same, "`{path}`: {:?}, and should be {:?}", entry.fact, ended.end);
    }
    same_rollbacks(evidence, |_| true)?;
    let made = made(evidence);
    let expected: BTreeMap<CallId, &str> =
        verdict.calls.iter().map(|call| (call.call, call.tool.as_str())).collect();
    for (id, (tool, _, _)) in &made {
        let path = evidence.path(id.node);
        let should = expected.get(id);
        demand!(should == Some(&tool.as_str()), "`{path}` calls {tool}, and should {should:?}");
    }
    for (id, tool) in &expected {
        demand!(made.contains_key(id), "`{}` does not call {tool}", evidence.path(id.node));
    }
    for (node, back) in verdict.back.iter().flat_map(|(_, steps)| steps) {
        let rolled_back = evidence
            .journal()
            .iter()
            .any(|entry| matches!(&entry.fact, Fact::RolledBack { node: at } if at == node));
        let path = evidence.path(*node);
        demand!(
            rolled_back == (*back == Back::RolledBack),
            "`{path}` rolled back: {rolled_back}, should be {back:?}"
        );
    }
    run_agrees(evidence)
}

fn run_agrees(evidence: &Evidence<'_>) -> Finding {
    let (view, verdict) = (&evidence.story.view, evidence.verdict);
    let (is, should) = (view.status.as_str(), verdict.status.as_str());
    demand!(is == should, "the run ends as {is}, and should as {should}");
    demand!(
        view.output == verdict.output,
        "its output is {}, and should be {}",
        view.output,
        verdict.output
    );
    demand!(view.success == (verdict.status == RunStatus::Success), "success is {}", view.success);
    let shown = view.steps.iter().filter(|step| step.status == StepStatus::RolledBack).count();
    let rolled_back = verdict.back.iter().flat_map(|(_, steps)| steps);
    let rolled_back = rolled_back.filter(|(_, back)| *back == Back::RolledBack).count();
    demand!(
        shown == rolled_back,
        "{shown} steps are shown as rolled back, and should be {rolled_back}"
    );
    Ok(())
}
