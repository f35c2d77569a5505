//! E: steps and calls.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::composition::{StepKind, Strategy};
use segue_core::limits::Limits;
use segue_core::run::{Answer, CallId, Effect, Fact, NodeId};
use segue_core::value::Value;

use super::{Evidence, Finding, begins, demand};
use crate::story::Word;
use crate::trace::{node_of, settles};

/// A step that is settled is not called, opened or settled again.
pub(super) fn e1_settled_is_settled(evidence: &Evidence<'_>) -> Finding {
    let mut settled = BTreeSet::new();
    for entry in evidence.journal() {
        let Some(node) = node_of(&entry.fact) else { continue };
        let again = begins(&entry.fact).is_some() || settles(&entry.fact);
        let path = || evidence.path(node);
        demand!(!(again && settled.contains(&node)), "`{}` goes on: {:?}", path(), entry.fact);
        if settles(&entry.fact) {
            settled.insert(node);
        }
    }
    Ok(())
}

/// A call is sent only in the turn that announces it, with the announced arguments; so is a
/// question.
pub(super) fn e2_announced_before_done(evidence: &Evidence<'_>) -> Finding {
    for turn in &evidence.story.turns {
        let entries = &evidence.story.journal[turn.entries.clone()];
        let mut announced: Vec<(NodeId, &Value)> = Vec::new();
        let mut sought: Vec<NodeId> = Vec::new();
        let mut asked = 0;
        for entry in entries {
            match &entry.fact {
                Fact::Called { node, args, .. }
                | Fact::Probed { node, args, .. }
                | Fact::RollbackCalled { node, args } => {
                    announced.push((*node, args));
                }
                Fact::ResumeSent { node } => sought.push(*node),
                Fact::ConsentAsked | Fact::Asked { .. } | Fact::Doubted { .. } => asked += 1,
                _ => {}
            }
        }
        let mut asks = 0;
        for effect in &turn.perform {
            match effect {
                Effect::Call(call) if call.resume_handle.is_some() => {
                    let at = sought.iter().position(|node| *node == call.id.node);
                    demand!(at.is_some(), "`{}` is looked for and not announced", call.step);
                    sought.remove(at.unwrap_or(0));
                }
                Effect::Call(call) => {
                    let at =
                        announced.iter().position(|(n, a)| *n == call.id.node && **a == call.args);
                    demand!(at.is_some(), "`{}` is called and not announced", call.step);
                    announced.remove(at.unwrap_or(0));
                }
                Effect::Ask(_) => asks += 1,
                _ => {}
            }
        }
        demand!(announced.is_empty(), "announced and not called: {announced:?}");
        demand!(sought.is_empty(), "announced and not looked for: {sought:?}");
        // A new engine asks recorded questions again.
        let again = turn.word.resumes();
        demand!(again || asks <= asked, "asked without an announcement");
    }
    Ok(())
}

/// A step begins only when all that it needs is settled, and none of it failed.
pub(super) fn e3_needs_come_first(evidence: &Evidence<'_>) -> Finding {
    let mut settled: BTreeMap<NodeId, &Fact> = BTreeMap::new();
    for entry in evidence.journal() {
        let Some(node) = node_of(&entry.fact) else { continue };
        let starts = begins(&entry.fact).is_some() || matches!(entry.fact, Fact::Succeeded { .. });
        if starts {
            for need in &evidence.trace.step(node).needs {
                let position = u32::try_from(need.position).unwrap();
                let needed = NodeId { frame: node.frame, position };
                let there = settled.get(&needed);
                let fine = there.is_some_and(|fact| {
                    !matches!(fact, Fact::Failed { .. } | Fact::Cancelled { .. })
                });
                let path = evidence.path(node);
                demand!(fine, "`{path}` begins before `{}` is there", evidence.path(needed));
            }
        }
        if settles(&entry.fact) {
            settled.insert(node, &entry.fact);
        }
    }
    Ok(())
}

/// Every attempt of the same tool is called with the same arguments.
pub(super) fn e5_arguments_are_rendered_once(evidence: &Evidence<'_>) -> Finding {
    let mut first: BTreeMap<(NodeId, u16), &Value> = BTreeMap::new();
    for entry in evidence.journal() {
        if let Fact::Called { node, candidate, args } = &entry.fact {
            let said = first.entry((*node, *candidate)).or_insert(args);
            demand!(*said == args, "`{}` is called with other arguments", evidence.path(*node));
        }
    }
    Ok(())
}

/// No tool is tried more often than its budget allows, no attempt gets more time than its step has,
/// and nothing is called once the run's time is over.
pub(super) fn e6_attempts_are_bounded(evidence: &Evidence<'_>) -> Finding {
    let mut tries: BTreeMap<(NodeId, u16), u32> = BTreeMap::new();
    for entry in evidence.journal() {
        if let Fact::BackedOff { node, .. } = &entry.fact {
            let step = evidence.trace.step(*node);
            let budget = step.retry.max.unwrap_or(0) as usize;
            let is_call = matches!(step.kind, StepKind::Tool(_));
            let within = is_call || evidence.trace.retries(*node).len() <= budget;
            demand!(within, "`{}` begins anew more than {budget} times", evidence.path(*node));
        }
        // A call that was lost with its engine is no attempt of the tool.
        if let Fact::Lost { node } = &entry.fact {
            let last = tries.iter_mut().rfind(|((of, _), _)| of == node);
            last.into_iter().for_each(|(_, tried)| *tried -= 1);
        }
        let (Fact::Called { node, candidate, .. } | Fact::Entered { node, candidate, .. }) =
            &entry.fact
        else {
            continue;
        };
        let step = evidence.trace.step(*node);
        let composition = &evidence.trace.frame(node.frame).plan.composition;
        let handling = &composition.error_handling;
        let by_strategy = if handling.strategy == Strategy::Retry { 3 } else { 0 };
        let budget = step.retry.max.or(handling.max_retries).unwrap_or(by_strategy);
        let tried = tries.entry((*node, *candidate)).or_default();
        *tried += 1;
        let path = evidence.path(*node);
        demand!(
            *tried <= budget + 1,
            "`{path}` is tried {tried} times, {budget} retries are allowed"
        );
    }
    for (_, call) in evidence.story.calls() {
        let is_rollback = call.key.ends_with("/undo");
        let own = evidence.trace.step(call.id.node).timeout_ms;
        let timeout = own.or(is_rollback.then_some(Limits::default().rollback_timeout_ms));
        demand!(
            call.timeout_ms == timeout,
            "`{}` has {:?} for an attempt",
            call.step,
            call.timeout_ms
        );
    }
    let over = evidence.story.turns.iter().position(|turn| {
        matches!(turn.word, Word::Fired(segue_core::run::TimerId::Run)) && !turn.after_the_end
    });
    for turn in evidence.story.turns.iter().skip(over.unwrap_or(usize::MAX)) {
        for entry in &evidence.story.journal[turn.entries.clone()] {
            demand!(begins(&entry.fact).is_none(), "after the run's time: {:?}", entry.fact);
        }
    }
    Ok(())
}

/// The key of a call: the same for every attempt of the same work, another for other work.
pub(super) fn e7_keys(evidence: &Evidence<'_>) -> Finding {
    let mut candidates: BTreeMap<CallId, (bool, u16)> = BTreeMap::new();
    let mut attempts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for entry in evidence.journal() {
        let (node, work) = match &entry.fact {
            Fact::Called { node, candidate, .. } => (*node, (false, *candidate)),
            Fact::Entered { node, candidate, .. } => (*node, (false, *candidate)),
            Fact::Probed { node, .. } => (*node, (true, 1)),
            Fact::RollbackCalled { node, .. } => (*node, (true, 0)),
            _ => continue,
        };
        let attempt = attempts.entry(node).or_default();
        *attempt += 1;
        candidates.insert(CallId { node, attempt: *attempt }, work);
    }
    let mut works: BTreeMap<&str, (NodeId, (bool, u16))> = BTreeMap::new();
    let mut keys: BTreeMap<(NodeId, (bool, u16)), &str> = BTreeMap::new();
    for (_, call) in evidence.story.calls() {
        let Some(work) = candidates.get(&call.id) else {
            return Err(format!("`{}` has an attempt that nobody announced", call.step));
        };
        let work = (call.id.node, *work);
        let same = works.entry(&call.key).or_insert(work);
        demand!(*same == work, "`{}` has the key of other work: {}", call.step, call.key);
        let key = keys.entry(work).or_insert(&call.key);
        demand!(**key == *call.key, "`{}` changes its key: {} and {key}", call.step, call.key);
        let own = format!("{}/", evidence.story.started.run_id);
        demand!(call.key.starts_with(&own), "{} could be another run's key", call.key);
    }
    Ok(())
}

/// A late answer is recorded as late, and nothing else happens.
pub(super) fn e8_late_answers_change_nothing(evidence: &Evidence<'_>) -> Finding {
    let mut answered = BTreeSet::new();
    for turn in &evidence.story.turns {
        let Word::Answered(call, _) = &turn.word else { continue };
        if answered.insert(*call) {
            continue;
        }
        let entries = &evidence.story.journal[turn.entries.clone()];
        let only_late = entries.iter().all(|entry| {
            matches!(entry.fact, Fact::AnsweredLate { node, attempt } if node == call.node && attempt == call.attempt)
        });
        // After the end not even that is recorded.
        let written = usize::from(!turn.after_the_end);
        demand!(only_late && entries.len() == written, "a late answer writes {entries:?}");
        demand!(turn.perform.is_empty(), "a late answer does {:?}", turn.perform);
    }
    Ok(())
}

/// Never more calls of a composition under way than it allows, those of compositions inside it
/// included, nor more items of a loop.
pub(super) fn e9_never_more_than_allowed(evidence: &Evidence<'_>) -> Finding {
    let mut under_way: BTreeMap<u32, BTreeSet<NodeId>> = BTreeMap::new();
    let mut open: BTreeMap<NodeId, u32> = BTreeMap::new();
    for entry in evidence.journal() {
        if let Fact::Called { node, .. } | Fact::Probed { node, .. } = &entry.fact {
            for root in evidence.trace.roots(node.frame) {
                let plan = &evidence.trace.frame(root).plan;
                let max = plan.composition.max_concurrency as usize;
                let calls = under_way.entry(root).or_default();
                calls.insert(*node);
                demand!(calls.len() <= max, "{} calls at once, {max} are allowed", calls.len());
            }
        } else if let Some(node) = node_of(&entry.fact)
            && !matches!(
                entry.fact,
                Fact::AnsweredLate { .. } | Fact::HandleReceived { .. } | Fact::ResumeSent { .. }
            )
        {
            for root in evidence.trace.roots(node.frame) {
                under_way.entry(root).or_default().remove(&node);
            }
        }
        match &entry.fact {
            Fact::Opened { node, .. } => {
                let StepKind::Loop(each) = &evidence.trace.step(*node).kind else { continue };
                let items = open.entry(*node).or_default();
                *items += 1;
                demand!(
                    *items <= each.max_concurrency,
                    "`{}` has {items} items at once",
                    evidence.path(*node)
                );
            }
            Fact::Closed { frame, .. } => {
                let parent = evidence.trace.frame(*frame).parent;
                if let Some(items) = parent.and_then(|parent| open.get_mut(&parent)) {
                    *items -= 1;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A loop knows its items, and that they are not too many, before the first one starts.
pub(super) fn e11_loops_are_bounded_first(evidence: &Evidence<'_>) -> Finding {
    let mut items: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut rounds: BTreeMap<NodeId, usize> = BTreeMap::new();
    for entry in evidence.journal() {
        match &entry.fact {
            Fact::Looped { node, items: all } => {
                let StepKind::Loop(each) = &evidence.trace.step(*node).kind else { continue };
                let limit = Limits::default().loop_items_max;
                let max = each.max_iterations.map_or(limit, |max| max as usize);
                demand!(all.len() <= max, "`{}` has {} items", evidence.path(*node), all.len());
                items.insert(*node, all.len());
            }
            Fact::BackedOff { node, .. } => drop(rounds.remove(node)),
            Fact::Opened { node, .. } => {
                let count = rounds.entry(*node).or_default();
                *count += 1;
                let max = match &evidence.trace.step(*node).kind {
                    StepKind::Loop(_) => items.get(node).copied().unwrap_or(0),
                    StepKind::Repeat(repeat) => repeat.max_iterations as usize,
                    _ => continue,
                };
                demand!(*count <= max, "`{}` opens {count} rounds of {max}", evidence.path(*node));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Only a value that the tool returned is a success, and it is that value.
pub(super) fn e12_failures_are_no_values(evidence: &Evidence<'_>) -> Finding {
    for turn in &evidence.story.turns {
        for entry in &evidence.story.journal[turn.entries.clone()] {
            let Fact::Succeeded { node, output, .. } = &entry.fact else { continue };
            let StepKind::Tool(_) = &evidence.trace.step(*node).kind else { continue };
            if !evidence.trace.children(*node).is_empty() {
                continue;
            }
            // A probe or a person may give the output.
            let said = matches!(&turn.word, Word::Decided(at, true, data, _)
                if at == node && (data == output || output.is_null()));
            let probe = evidence.trace.step(*node).probe.as_ref();
            let told = probe.is_some_and(|probe| probe.output.is_some())
                && matches!(&turn.word, Word::Answered(call, Answer::Value(_)) if call.node == *node);
            let returned = said
                || told
                || matches!(&turn.word, Word::Answered(call, Answer::Value(value))
                if call.node == *node && value == output);
            demand!(returned, "`{}` succeeds without an answer", evidence.path(*node));
            // The value is unknown, so there is none.
            let tool = evidence.tool(*node);
            let fits = output.is_null()
                || tool.output.as_ref().is_none_or(|schema| schema.violations(output).is_empty());
            demand!(fits, "`{}` succeeds with what does not fit", evidence.path(*node));
        }
    }
    Ok(())
}
