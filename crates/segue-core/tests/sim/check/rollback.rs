//! S: rollback.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::composition::ResolvedRollback;
use segue_core::run::{Fact, NodeId};
use segue_core::view::{RunStatus, StepStatus};

use super::{Evidence, Finding, begins, demand};
use crate::story::Word;
use crate::trace::node_of;
use crate::world::World;

/// The steps that were to be rolled back, in the order in which that started, including those that
/// could not be.
fn rollback_order(evidence: &Evidence<'_>) -> Vec<NodeId> {
    let mut order: Vec<NodeId> = Vec::new();
    for entry in evidence.journal() {
        if let Fact::RollbackCalled { node, .. } | Fact::RollbackFailed { node, .. } = &entry.fact
            && !order.contains(node)
        {
            order.push(*node);
        }
    }
    order
}

fn ended(evidence: &Evidence<'_>, want: fn(&Fact) -> bool) -> BTreeSet<NodeId> {
    let facts = evidence.journal().iter().map(|entry| &entry.fact);
    facts.filter(|fact| want(fact)).filter_map(node_of).collect()
}

/// A run with the status `rolled_back` has rolled back everything that was done or may have been;
/// otherwise it reports the steps that remain.
pub(super) fn s1_rolled_back_or_named(evidence: &Evidence<'_>) -> Finding {
    let rolled_back = ended(evidence, |fact| matches!(fact, Fact::RolledBack { .. }));
    let left = ended(evidence, |fact| matches!(fact, Fact::RollbackFailed { .. }));
    let status = evidence.story.view.status;
    let went_back = evidence.verdict.back.iter().any(|(root, _)| *root == 0);
    if !left.is_empty() && went_back {
        demand!(status == RunStatus::RollbackFailed, "something is left, and it is {status:?}");
    }
    for (node, _) in evidence.verdict.back.iter().flat_map(|(_, steps)| steps) {
        let known = rolled_back.contains(node) || left.contains(node);
        demand!(known, "`{}` is neither undone nor named", evidence.path(*node));
    }
    if status == RunStatus::RollbackFailed {
        demand!(!left.is_empty(), "nothing is left, and it says so");
    }
    let named = &evidence.story.view.errors;
    for node in &left {
        let path = evidence.path(*node);
        let is_named =
            named.iter().any(|e| e.phase == "rollback" && e.step.as_deref() == Some(&path));
        let shown = evidence
            .story
            .view
            .steps
            .iter()
            .any(|step| *step.id == *path && step.status == StepStatus::RollbackFailed);
        demand!(is_named || shown, "`{path}` is left and not named");
    }
    Ok(())
}

/// No step is rolled back before those that depend on it.
pub(super) fn s2_dependants_first(evidence: &Evidence<'_>) -> Finding {
    let order = rollback_order(evidence);
    let place: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(at, n)| (*n, at)).collect();
    for node in &order {
        let mut work = vec![*node];
        while let Some(at) = work.pop() {
            for position in &evidence.trace.planned(at).dependants {
                let dependant = NodeId { frame: node.frame, position: *position };
                let first = place.get(&dependant).is_none_or(|place_of| *place_of < place[node]);
                let path = evidence.path(*node);
                demand!(first, "`{path}` is undone before `{}`", evidence.path(dependant));
                work.push(dependant);
            }
        }
    }
    Ok(())
}

/// Each composition rolls its steps back one at a time, the one that was settled last first.
pub(super) fn s3_reverse_order(evidence: &Evidence<'_>) -> Finding {
    let settled = evidence.settled();
    let mut orders: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for node in rollback_order(evidence) {
        let order = orders.entry(scope_of(evidence, node)).or_default();
        order.push(settled.get(&node).copied().unwrap_or(0));
    }
    for order in orders.values() {
        demand!(order.windows(2).all(|pair| pair[0] > pair[1]), "undone in the order {order:?}");
    }
    Ok(())
}

/// The composition that rolls a step back: the last one around it that started to.
fn scope_of(evidence: &Evidence<'_>, node: NodeId) -> u32 {
    let mut scopes = evidence.journal().iter().filter_map(|entry| match &entry.fact {
        Fact::RollbackStarted { frame, steps, .. } if steps.contains(&node) => Some(*frame),
        Fact::AttemptRollbackStarted { node: owner, steps, .. } if steps.contains(&node) => {
            Some(evidence.trace.attempt_at(*owner, entry.seq)[0])
        }
        _ => None,
    });
    scopes.next_back().unwrap_or(0)
}

/// No step is rolled back while a forward call of the same composition, or another rollback of it,
/// is under way.
pub(super) fn s4_not_while_something_runs(evidence: &Evidence<'_>) -> Finding {
    let (mut calls, mut rollbacks) = (BTreeSet::new(), BTreeMap::new());
    for entry in evidence.journal() {
        let Some(node) = node_of(&entry.fact) else { continue };
        match &entry.fact {
            Fact::Called { .. } | Fact::Probed { .. } => drop(calls.insert(node)),
            Fact::AnsweredLate { .. } => {}
            Fact::RollbackCalled { .. } => {
                let scope = scope_of(evidence, node);
                let running = calls.iter().find(|call| evidence.trace.is_inside(call.frame, scope));
                let running = running.map(|other| evidence.path(*other));
                let path = evidence.path(node);
                demand!(running.is_none(), "`{path}` is undone while {running:?} runs");
                let other = rollbacks.insert(scope, node);
                demand!(other.is_none_or(|other| other == node), "two undos at once");
            }
            Fact::RolledBack { .. } | Fact::RollbackFailed { .. } => {
                rollbacks.remove(&scope_of(evidence, node));
            }
            _ => drop(calls.remove(&node)),
        }
    }
    Ok(())
}

/// Nothing begins in a body that has stopped.
pub(super) fn s5_nothing_starts_after_a_stop(evidence: &Evidence<'_>) -> Finding {
    for entry in evidence.journal() {
        let Some(node) = begins(&entry.fact) else { continue };
        let mut frame = Some(node.frame);
        while let Some(at) = frame {
            let stopped = evidence.trace.stopped_before(at, entry.seq);
            demand!(!stopped, "`{}` begins in a stopped body", evidence.path(node));
            frame = evidence.trace.frame(at).parent.map(|parent| parent.frame);
        }
    }
    Ok(())
}

/// A step that never started is never rolled back.
pub(super) fn s6_only_what_began(evidence: &Evidence<'_>) -> Finding {
    let began = ended(evidence, |fact| begins(fact).is_some());
    for node in rollback_order(evidence) {
        demand!(began.contains(&node), "`{}` never began", evidence.path(node));
    }
    Ok(())
}

/// A step is rolled back, or given up, once.
pub(super) fn s7_once(evidence: &Evidence<'_>) -> Finding {
    let mut over = BTreeSet::new();
    for entry in evidence.journal() {
        let Some(node) = node_of(&entry.fact) else { continue };
        match &entry.fact {
            Fact::RollbackCalled { .. } | Fact::RollbackBackedOff { .. } => {
                demand!(!over.contains(&node), "`{}` is undone again", evidence.path(node));
            }
            Fact::RolledBack { .. } | Fact::RollbackFailed { .. } => {
                demand!(over.insert(node), "`{}` is undone twice", evidence.path(node));
            }
            _ => {}
        }
    }
    Ok(())
}

/// No rollback is called for a step that cannot be rolled back, or need not be.
pub(super) fn s9_what_cannot_be_rolled_back_is_not(evidence: &Evidence<'_>) -> Finding {
    let called = ended(evidence, |fact| matches!(fact, Fact::RollbackCalled { .. }));
    for node in called {
        let step = evidence.trace.step(node);
        let candidate = evidence.verdict.ends.get(&node).map_or(0, |ended| ended.candidate);
        let rollback = match candidate {
            0 => &step.resolved_rollback,
            fallback => &step.fallback_rollbacks[usize::from(fallback) - 1],
        };
        demand!(
            matches!(rollback, ResolvedRollback::Call(_)),
            "`{}` has no undo to call",
            evidence.path(node)
        );
        let kept = evidence.verdict.kept.contains(&node);
        demand!(
            !kept,
            "`{}` is undone, though something irrevocable needed it",
            evidence.path(node)
        );
    }
    Ok(())
}

/// A cancellation does not affect a running rollback.
pub(super) fn s10_cancel_does_not_stop_it(evidence: &Evidence<'_>) -> Finding {
    let began = evidence
        .journal()
        .iter()
        .position(|entry| matches!(entry.fact, Fact::RollbackStarted { frame: 0, .. }));
    for turn in &evidence.story.turns {
        let going_back = began.is_some_and(|began| turn.entries.start > began);
        if matches!(turn.word, Word::Cancel) && going_back {
            demand!(turn.entries.is_empty(), "a cancel on the way back is written down");
            demand!(turn.perform.is_empty(), "a cancel on the way back does something");
        }
    }
    Ok(())
}

/// Every step was tried, whatever happened to the others.
pub(super) fn s11_one_failure_does_not_stop_the_rest(evidence: &Evidence<'_>) -> Finding {
    let over = ended(evidence, |fact| {
        matches!(fact, Fact::RolledBack { .. } | Fact::RollbackFailed { .. })
    });
    for entry in evidence.journal() {
        let (Fact::RollbackStarted { steps, .. } | Fact::AttemptRollbackStarted { steps, .. }) =
            &entry.fact
        else {
            continue;
        };
        for node in steps {
            demand!(over.contains(node), "`{}` was forgotten", evidence.path(*node));
        }
    }
    Ok(())
}

/// The result has the cause of the rollback, and the steps that remain.
pub(super) fn s12_first_cause_and_all_that_is_left(evidence: &Evidence<'_>) -> Finding {
    let began = evidence.journal().iter().find_map(|entry| match &entry.fact {
        Fact::RollbackStarted { frame: 0, failure, .. } => Some((entry.seq, failure)),
        _ => None,
    });
    let Some((seq, cause)) = began else { return Ok(()) };
    for entry in &evidence.journal()[..usize::try_from(seq).unwrap()] {
        if let Fact::Stopped { frame: 0, failure } = &entry.fact {
            demand!(failure == cause, "it stopped for {failure:?}, and goes back for {cause:?}");
        }
    }
    let end = evidence.journal().iter().find_map(|entry| match &entry.fact {
        Fact::Finished { status, failure, .. } => Some((status, failure)),
        _ => None,
    });
    let Some((status, failure)) = end else { return Ok(()) };
    if matches!(status, RunStatus::RolledBack | RunStatus::RollbackFailed) {
        let same = failure.as_ref().is_some_and(|failure| failure == cause);
        demand!(same, "the first cause {cause:?} is hidden by {failure:?}");
        demand!(!evidence.story.view.errors.is_empty(), "no error is reported");
    }
    Ok(())
}

/// The journal names the probe or the person who resolved a doubt, for the right step.
pub(super) fn s16_who_said_so(evidence: &Evidence<'_>) -> Finding {
    for turn in &evidence.story.turns {
        for entry in &evidence.story.journal[turn.entries.clone()] {
            let Fact::Resolved { node, done, by } = &entry.fact else { continue };
            let path = evidence.path(*node);
            match &turn.word {
                Word::Decided(at, said, _, _) => {
                    demand!(
                        at == node && said == done,
                        "`{path}`: what was said is not what counts"
                    );
                    demand!(**by == *World::somebody(), "`{path}`: somebody decided, not {by}");
                }
                Word::Answered(call, _) => {
                    demand!(call.node == *node, "`{path}`: the probe was asked about another step");
                    demand!(&**by == "the probe", "`{path}`: the probe decided, not {by}");
                }
                other => return Err(format!("`{path}` is resolved by {other:?}")),
            }
        }
    }
    Ok(())
}
