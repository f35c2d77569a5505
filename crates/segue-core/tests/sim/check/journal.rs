//! J: the journal, and its replay.

use std::sync::Arc;

use segue_core::limits::Limits;
use segue_core::run::{Fact, Run};
use segue_core::view::StepStatus;

use super::{Evidence, Finding, demand};
use crate::dice::{Dice, digest};
use crate::story::{read_back, replayed};

/// Stories up to this many turns are cut after every turn, longer ones after some.
const EVERY_TURN_UP_TO: usize = 12;

/// Entries are numbered from zero without a gap.
pub(super) fn j2_no_gap_and_no_reorder(evidence: &Evidence<'_>) -> Finding {
    for (at, entry) in evidence.journal().iter().enumerate() {
        demand!(entry.seq == at as u64, "entry {at} has number {}", entry.seq);
    }
    Ok(())
}

/// A journal that is cut after a turn restores the run, and the restored run answers the next event
/// as the original did.
pub(super) fn j3_replay_is_the_run(evidence: &Evidence<'_>) -> Finding {
    let story = evidence.story;
    let turns = story.turns.len();
    let mut dice = Dice::for_thing(turns as u64, &story.started.run_id);
    let crashed = story.turns.iter().any(|turn| turn.word.resumes());
    let cuts: Vec<usize> = if turns <= EVERY_TURN_UP_TO && !crashed {
        (0..=turns).collect()
    } else {
        (0..3).map(|_| dice.small(turns)).chain([turns]).collect()
    };
    for cut in cuts {
        let (run, turn) = replayed(story, cut);
        let Some(turn) = turn else {
            let (again, live) = (shown(&run), serde_json::to_string(&story.view));
            demand!(again == live.unwrap_or_default(), "the whole journal gives another view");
            continue;
        };
        let next = &story.turns[cut];
        let (again, live) = (&turn.perform, &next.perform);
        let same = digest(again) == digest(live);
        demand!(same, "cut before turn {cut}, it does {again:?} in place of {live:?}");
        let (again, live) = (&turn.record[..], &story.journal[next.entries.clone()]);
        let same = digest(&again) == digest(&live);
        demand!(same, "cut before turn {cut}, it writes {again:?} in place of {live:?}");
    }
    let cut = dice.small(turns + 1);
    let mut live = Run::new(story.plan.clone(), Arc::new(Limits::default()));
    for (at, turn) in story.turns[..cut].iter().enumerate() {
        if turn.word.resumes() {
            live = read_back(story, at);
        }
        live.handle(turn.word.event(turn.wall, turn.entropy));
    }
    let again = read_back(story, cut);
    demand!(shown(&again) == shown(&live), "cut before turn {cut}, it shows another view");
    Ok(())
}

fn shown(run: &Run) -> String {
    serde_json::to_string(&run.view()).unwrap()
}

/// A run finishes once, and later events change nothing.
pub(super) fn j6_the_end_is_the_end(evidence: &Evidence<'_>) -> Finding {
    let journal = evidence.journal();
    let ends = journal.iter().filter(|e| matches!(e.fact, Fact::Finished { .. })).count();
    demand!(ends <= 1, "it ends {ends} times");
    let last = journal.iter().position(|e| matches!(e.fact, Fact::Finished { .. }));
    if let Some(entry) = journal.iter().skip(last.unwrap_or(journal.len())).nth(1) {
        return Err(format!("after its end: {:?}", entry.fact));
    }
    for turn in evidence.story.turns.iter().filter(|turn| turn.after_the_end) {
        demand!(turn.perform.is_empty(), "after its end it does {:?}", turn.perform);
    }
    if let Some(end) = &evidence.story.end {
        let (then, now) = (serde_json::to_string(end), serde_json::to_string(&evidence.story.view));
        demand!(then.unwrap() == now.unwrap(), "its view changes after its end");
    }
    Ok(())
}

/// After all events the run is finished, and so is every step of it; or it waits for a person, with
/// an open question.
pub(super) fn j10_every_run_ends(evidence: &Evidence<'_>) -> Finding {
    if evidence.story.waits {
        demand!(!evidence.story.view.waiting_for.is_empty(), "it waits, and nobody knows for what");
        return Ok(());
    }
    demand!(evidence.story.end.is_some(), "it never ends");
    for step in &evidence.story.view.steps {
        let open = matches!(step.status, StepStatus::Pending | StepStatus::Running);
        demand!(!open, "`{}` is left {}", step.id, step.status.as_str());
    }
    Ok(())
}
