//! C and A: cancelling, time and approvals.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::composition::{Backoff, StepKind};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::run::{CallId, Effect, Fact, Failure, NodeId, TimerId};

use super::{Evidence, Finding, begins, demand};
use crate::story::{Told, Word};
use crate::trace::{node_of, settles};
use crate::world::LATENCY_MAX;

/// The longest that a call of any world takes to answer or to end, with a probe and a person who are
/// asked what became of it.
const GRACE_MS: u64 = 5 * LATENCY_MAX;

/// The same of a run in which a call that may write was awaited in vain: until its time was over, or until
/// the engine stopped.
fn grace_ms(evidence: &Evidence<'_>) -> u64 {
    let mut awaited: BTreeSet<CallId> = BTreeSet::new();
    let mut in_vain = false;
    for turn in evidence.story.turns.iter().filter(|turn| !turn.after_the_end) {
        match &turn.word {
            Word::Answered(call, _) => drop(awaited.remove(call)),
            Word::Fired(TimerId::Attempt(call)) => in_vain |= awaited.contains(call),
            word => in_vain |= word.resumes() && !awaited.is_empty(),
        }
        awaited.extend(turn.perform.iter().filter_map(|effect| match effect {
            Effect::Settle(call) => Some(*call),
            _ => None,
        }));
    }
    GRACE_MS + if in_vain { 2 * Limits::default().settle_timeout_ms } else { 0 }
}

fn first_cancel<'a>(evidence: &'a Evidence<'_>) -> Option<(usize, &'a Told)> {
    let turns = evidence.story.turns.iter().enumerate();
    turns.into_iter().find(|(_, turn)| turn.word.cancels() && !turn.after_the_end)
}

/// After a cancel nothing begins on the way forward.
pub(super) fn c1_nothing_starts_after_cancel(evidence: &Evidence<'_>) -> Finding {
    let Some((_, cancel)) = first_cancel(evidence) else { return Ok(()) };
    for entry in &evidence.journal()[cancel.entries.start..] {
        demand!(begins(&entry.fact).is_none(), "after a cancel: {:?}", entry.fact);
    }
    Ok(())
}

/// After a cancel the way forward ends as soon as running calls do.
pub(super) fn c2_cancel_ends_it_soon(evidence: &Evidence<'_>) -> Finding {
    let Some((_, cancel)) = first_cancel(evidence) else { return Ok(()) };
    let ends = evidence.story.end.is_some() || evidence.story.waits;
    demand!(ends, "a cancelled run never ends");
    let over = last_call_over(evidence);
    demand!(over <= cancel.now + grace_ms(evidence), "cancelled at {}, over at {over}", cancel.now);
    Ok(())
}

/// When the last step without a body was settled; going back may take longer.
fn last_call_over(evidence: &Evidence<'_>) -> u64 {
    let settled = evidence
        .journal()
        .iter()
        .filter(|entry| settles(&entry.fact) && !matches!(entry.fact, Fact::Skipped { .. }));
    let leaves = settled.filter(|entry| {
        node_of(&entry.fact).is_some_and(|node| evidence.trace.children(node).is_empty())
    });
    let over = leaves.map(|entry| evidence.story.turns[evidence.story.turn_of(entry.seq)].now);
    over.max().unwrap_or(0)
}

/// Nothing wakes before its time, and each rest ends at most once.
pub(super) fn c3_timers_are_not_early(evidence: &Evidence<'_>) -> Finding {
    let mut due: BTreeMap<NodeId, u64> = BTreeMap::new();
    for turn in &evidence.story.turns {
        // The next engine does not know how long no engine ran: a pause may be over by then.
        if turn.word.resumes() {
            due.values_mut().for_each(|at| *at = turn.now);
        }
        let fired = match turn.word {
            Word::Fired(TimerId::Step(node)) => Some(node),
            _ => None,
        };
        for entry in &evidence.story.journal[turn.entries.clone()] {
            match &entry.fact {
                Fact::Woke { node } => {
                    let at = due.remove(node);
                    let path = evidence.path(*node);
                    demand!(fired == Some(*node), "`{path}` wakes by itself");
                    demand!(at.is_some_and(|at| at <= turn.now), "`{path}` wakes too early");
                }
                Fact::BackedOff { node, until_ms, .. }
                | Fact::Slept { node, until_ms }
                | Fact::Paused { node, until_ms }
                | Fact::RollbackBackedOff { node, until_ms, .. } => {
                    due.insert(*node, turn.now + until_ms.saturating_sub(turn.wall));
                }
                Fact::RollbackCalled { node, .. } => {
                    let early = due.remove(node).is_some_and(|at| at > turn.now);
                    demand!(!early, "`{}` is undone again too early", evidence.path(*node));
                }
                fact if settles(fact) => drop(node_of(fact).and_then(|node| due.remove(&node))),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Rests between two questions to a probe: they have nothing to do with the step's own retries.
fn rests_of_probes(evidence: &Evidence<'_>) -> BTreeSet<u64> {
    let mut probing = BTreeSet::new();
    let mut rests = BTreeSet::new();
    for entry in evidence.journal() {
        let Some(node) = node_of(&entry.fact) else { continue };
        match &entry.fact {
            Fact::Probed { .. } => drop(probing.insert(node)),
            Fact::BackedOff { .. } if probing.contains(&node) => drop(rests.insert(entry.seq)),
            Fact::AnsweredLate { .. } | Fact::Woke { .. } => {}
            _ => drop(probing.remove(&node)),
        }
    }
    rests
}

/// How long a step may rest at most, and how long it was asked to.
fn rests<'a>(
    evidence: &'a Evidence<'_>,
) -> impl Iterator<Item = (String, u64, Backoff, &'a Failure)> {
    let probes = rests_of_probes(evidence);
    evidence.story.turns.iter().flat_map(move |turn| {
        let probes = probes.clone();
        evidence.story.journal[turn.entries.clone()].iter().filter_map(move |entry| {
            let (node, failure, until, backoff) = match &entry.fact {
                Fact::BackedOff { node, failure, until_ms } if !probes.contains(&entry.seq) => {
                    let composition = &evidence.trace.frame(node.frame).plan.composition;
                    let own = evidence.trace.step(*node).retry.backoff.clone();
                    let backoff = own.unwrap_or_else(|| composition.error_handling.backoff.clone());
                    (*node, failure, *until_ms, backoff)
                }
                Fact::RollbackBackedOff { node, failure, until_ms } => {
                    (*node, failure, *until_ms, Backoff::default())
                }
                _ => return None,
            };
            Some((evidence.path(node), until.wrapping_sub(turn.wall), backoff, &**failure))
        })
    })
}

/// A rest is never longer than the backoff's cap, or than what the tool asked for.
pub(super) fn c6_rests_are_within_their_cap(evidence: &Evidence<'_>) -> Finding {
    let limit = Limits::default().retry_after_ms_max;
    for (path, rest, backoff, failure) in rests(evidence) {
        let asked = failure.retry_after_ms.unwrap_or(0).min(limit);
        let cap = backoff.max_ms.max(asked);
        demand!(rest <= cap, "`{path}` rests {rest} ms, at most {cap} are allowed");
    }
    Ok(())
}

/// What a tool asks for with `Retry-After` is honoured, up to the limit; a run's own time ends the
/// rest.
pub(super) fn c7_retry_after_is_honoured(evidence: &Evidence<'_>) -> Finding {
    let limit = Limits::default().retry_after_ms_max;
    for (path, rest, _, failure) in rests(evidence) {
        let asked = failure.retry_after_ms.unwrap_or(0).min(limit);
        demand!(rest >= asked, "`{path}` rests {rest} ms, asked for {asked}");
    }
    let timeout = evidence.story.plan.composition.timeout_ms;
    if let Some(timeout) = timeout {
        // The next engine cannot know how long no engine ran; it grants the time once more.
        let engines =
            1 + evidence.story.turns.iter().filter(|turn| turn.word.resumes()).count() as u64;
        let (over, most) = (last_call_over(evidence), (timeout + grace_ms(evidence)) * engines);
        demand!(over <= most, "it had {timeout} ms, and is over after {over}");
    }
    Ok(())
}

/// A call that needs a yes is made only after one, for exactly this tool and these arguments.
pub(super) fn a1_no_call_without_its_yes(evidence: &Evidence<'_>) -> Finding {
    if evidence.story.started.options.approved {
        return Ok(());
    }
    let mut asked = BTreeMap::new();
    let mut granted = BTreeMap::new();
    let (mut waits, mut covered) = (false, false);
    for turn in &evidence.story.turns {
        for entry in &evidence.story.journal[turn.entries.clone()] {
            match &entry.fact {
                Fact::ConsentAsked => waits = true,
                Fact::Consented { .. } => {
                    let yes = matches!(&turn.word, Word::Decided(NodeId::RUN, true, _, _));
                    demand!(yes && waits, "the run is allowed by nobody");
                    (waits, covered) = (false, true);
                }
                Fact::Asked { node, candidate, args } => {
                    granted.remove(node);
                    asked.insert(*node, (*candidate, args));
                }
                Fact::Granted { node, .. } => {
                    let yes = matches!(&turn.word, Word::Decided(at, true, _, _) if at == node);
                    demand!(yes, "`{}` is granted by nobody", evidence.path(*node));
                    granted.extend(asked.remove(node).map(|what| (*node, what)));
                }
                Fact::Called { node, candidate, args } => {
                    let step = evidence.trace.step(*node);
                    let call = match (&step.kind, candidate) {
                        (StepKind::Tool(call), 0) => call,
                        (_, n) => &step.fallback[usize::from(*n) - 1],
                    };
                    let needs = call.tool.as_ref().is_some_and(|tool| tool.needs_confirmation());
                    let has = granted.get(node).is_some_and(|(c, a)| c == candidate && *a == args);
                    demand!(
                        !waits,
                        "`{}` is called before its run is allowed",
                        evidence.path(*node)
                    );
                    demand!(
                        has || !needs || covered,
                        "`{}` is called without a yes",
                        evidence.path(*node)
                    );
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Of two answers to one question the first counts, and a question that is over has none.
pub(super) fn a4_one_answer_wins(evidence: &Evidence<'_>) -> Finding {
    let mut open: BTreeMap<NodeId, bool> = BTreeMap::new();
    for turn in &evidence.story.turns {
        if let Word::Decided(node, granted, _, _) = &turn.word {
            let entries = &evidence.story.journal[turn.entries.clone()];
            if !open.get(node).copied().unwrap_or(false) {
                let path = evidence.path(*node);
                demand!(entries.is_empty(), "`{path}` takes a second answer: {entries:?}");
            } else if let Some(first) = entries.first() {
                // Who said no stands before what follows from it.
                let asked = (*node != NodeId::RUN).then_some(*node);
                let is_refused =
                    matches!(&first.fact, Fact::Refused { node, .. } if *node == asked);
                let first = entries.get(usize::from(is_refused)).unwrap_or(first);
                let yes = matches!(&first.fact, Fact::Resolved { node: at, done: true, .. } | Fact::Doubted { node: at, .. } | Fact::Granted { node: at, .. } | Fact::Succeeded { node: at, .. } if at == node)
                    || (*node == NodeId::RUN && matches!(first.fact, Fact::Consented { .. }));
                let no = match &first.fact {
                    Fact::Failed { node: at, failure }
                    | Fact::Tolerated { node: at, failure, .. } => {
                        is_refused && at == node && failure.code == Code::Denied
                    }
                    Fact::Resolved { node: at, done: false, .. } => at == node,
                    Fact::Stopped { frame: 0, failure } => {
                        is_refused && *node == NodeId::RUN && failure.code == Code::Denied
                    }
                    _ => false,
                };
                // An approval may come with data that does not fit.
                let misfit = matches!(&first.fact, Fact::Failed { node: at, failure } | Fact::Tolerated { node: at, failure, .. }
                    if at == node && failure.code == Code::InputSchema);
                let fits = if *granted { !is_refused && (yes || misfit) } else { no };
                demand!(fits, "`{}` hears {granted}, and {:?}", evidence.path(*node), first.fact);
            }
        }
        for entry in &evidence.story.journal[turn.entries.clone()] {
            match &entry.fact {
                Fact::Asked { node, .. } | Fact::Doubted { node, .. } => {
                    open.insert(*node, true);
                }
                Fact::ConsentAsked => drop(open.insert(NodeId::RUN, true)),
                Fact::Consented { .. } | Fact::Stopped { frame: 0, .. } => {
                    open.insert(NodeId::RUN, false);
                }
                Fact::AnsweredLate { .. } => {}
                fact => {
                    if let Some(node) = crate::trace::node_of(fact) {
                        open.insert(node, false);
                    }
                }
            }
        }
    }
    Ok(())
}
