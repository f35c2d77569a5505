//! One seed, from its composition to its violations, if any; and the smallest composition with the
//! same violation.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use segue_core::run::Fact;

use crate::author::{self, Taste};
use crate::case;
use crate::check::{Evidence, PROMISES};
use crate::dice::Dice;
use crate::draft::Draft;
use crate::model;
use crate::story::{Story, play, play_with_crashes};
use crate::trace::Trace;
use crate::world::World;

/// A promise that was broken, and how.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) promise: &'static str,
    pub(crate) how: String,
    /// The turns after which the engine stopped.
    pub(crate) crashes: BTreeSet<usize>,
}

impl Broken {
    fn new(promise: &'static str, how: impl Into<String>) -> Broken {
        Broken { promise, how: how.into(), crashes: BTreeSet::new() }
    }
}

/// What a seed showed.
pub(crate) struct Seen {
    pub(crate) status: &'static str,
    pub(crate) turns: usize,
}

/// Tries a composition in a world; nothing when it does not compile.
pub(crate) fn examine(draft: &Draft, world: &World) -> Option<Result<Seen, Vec<Broken>>> {
    let plan = case::planned(draft).ok()?;
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let story = play(&plan, world);
        let mut broken = promises(&story);
        broken.extend(same_again(&story, &play(&plan, world)));
        if world.is_jumpy() {
            broken.extend(same_by_any_clock(&story, &play(&plan, &world.with_clock(false))));
        }
        broken.extend(crashed(&story, world));
        if broken.is_empty() {
            Ok(Seen { status: story.view.status.as_str(), turns: story.turns.len() })
        } else {
            Err(broken)
        }
    }));
    Some(tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(vec![Broken::new("PANIC", text.unwrap_or_default())])
    }))
}

/// Every promise that a story breaks.
pub(crate) fn promises(story: &Story) -> Vec<Broken> {
    let trace = Trace::new(&story.plan, &story.journal);
    let verdict = model::interpret(story, &trace);
    let evidence = Evidence { story, trace: &trace, verdict: &verdict };
    // Of a run that waits for a person, only what was promised so far can be looked at.
    let is_open = |promise: &str| story.waits && (promise.starts_with('S') || promise == "MODEL");
    let checked = PROMISES.iter().filter(|(promise, _)| !is_open(promise));
    checked
        .filter_map(|(promise, check)| check(&evidence).err().map(|how| Broken::new(promise, how)))
        .collect()
}

/// Stories up to this many turns are stopped after every turn, longer ones after some.
const EVERY_TURN_UP_TO: usize = 6;

/// The engine stops after a turn, and sometimes again while another one takes over: every promise
/// holds nevertheless, and the model says what must have become of it.
fn crashed(story: &Story, world: &World) -> Vec<Broken> {
    let turns = story.turns.iter().take_while(|turn| !turn.after_the_end).count();
    let mut dice = Dice::for_thing(turns as u64, &story.started.run_id);
    let points: Vec<usize> = if turns <= EVERY_TURN_UP_TO {
        (0..turns).collect()
    } else {
        (0..3).map(|_| dice.small(turns)).collect()
    };
    let mut broken = Vec::new();
    for point in points {
        let once = BTreeSet::from([point]);
        let mut crashes = once.clone();
        let while_it_takes_over = dice.one_in(4);
        if while_it_takes_over {
            crashes.insert(point + 1);
        } else if dice.one_in(3) {
            crashes.insert(point + 1 + dice.small(6));
        }
        let found = stopped_after(story, world, &crashes);
        // J9: taking over a second time is like taking over once.
        if while_it_takes_over && !found.is_empty() && stopped_after(story, world, &once).is_empty()
        {
            let how = format!("taken over twice, it breaks {}", found[0].promise);
            broken.push(Broken { crashes: crashes.clone(), ..Broken::new("J9", how) });
        }
        broken.extend(found);
    }
    broken
}

fn stopped_after(story: &Story, world: &World, crashes: &BTreeSet<usize>) -> Vec<Broken> {
    let again = play_with_crashes(&story.plan, world, crashes.clone());
    let found = promises(&again).into_iter();
    found.map(|broken| Broken { crashes: crashes.clone(), ..broken }).collect()
}

/// J4: the same seed, the same bytes.
fn same_again(story: &Story, again: &Story) -> Option<Broken> {
    let differs = !story.is_same(again);
    differs.then(|| Broken::new("J4", "the same seed gives another story"))
}

/// C4: whatever the clock on the wall shows, the same happens in the same order.
fn same_by_any_clock(story: &Story, other: &Story) -> Option<Broken> {
    let (one, two) = (timeless(story), timeless(other));
    let differs = one.iter().zip(&two).position(|(a, b)| a != b);
    let at = differs.or((one.len() != two.len()).then_some(one.len().min(two.len())))?;
    let how = format!("by another clock: {:?} and {:?}", one.get(at), two.get(at));
    Some(Broken::new("C4", how))
}

/// Facts without the times that they hold.
fn timeless(story: &Story) -> Vec<String> {
    let facts = story.journal.iter().map(|entry| match &entry.fact {
        Fact::BackedOff { node, failure, .. } => format!("rested {node:?} {failure:?}"),
        Fact::RollbackBackedOff { node, failure, .. } => {
            format!("undo rested {node:?} {failure:?}")
        }
        Fact::Slept { node, .. } => format!("slept {node:?}"),
        Fact::Paused { node, .. } => format!("paused {node:?}"),
        // The value of an approval says when it was given.
        Fact::Succeeded { node, .. } => format!("succeeded {node:?}"),
        Fact::Finished { status, .. } => format!("finished {status:?}"),
        other => format!("{other:?}"),
    });
    facts.collect()
}

/// A seed in full; nothing when its composition is refused.
pub(crate) fn seed(seed: u64) -> Option<Result<Seen, Vec<Broken>>> {
    examine(&author::write(seed, Taste::Wild), &World::new(seed))
}

/// What a broken promise looks like for people: the smallest composition that breaks it, and the
/// story of that.
pub(crate) fn explain(seed: u64, broken: &Broken) -> String {
    report(seed, &author::write(seed, Taste::Wild), &World::new(seed), broken)
}

/// The failure of a seed, and the smallest composition that fails alike.
fn report(seed: u64, draft: &Draft, world: &World, broken: &Broken) -> String {
    let (smallest, broken) = shrink(draft, world, broken.clone());
    let Broken { promise, how, crashes } = &broken;
    let after =
        if crashes.is_empty() { String::new() } else { format!(" (stopped after {crashes:?})") };
    let mut text = format!("seed {seed} breaks {promise}{after}: {how}\n\n{}", smallest.show());
    let told = case::planned(&smallest).ok().and_then(|plan| {
        let play = || play_with_crashes(&plan, world, crashes.clone());
        catch_unwind(AssertUnwindSafe(play)).ok()
    });
    if let Some(story) = told {
        text.push('\n');
        text.push_str(&story.text());
    }
    text
}

/// Takes parts away as long as the same promise stays broken.
fn shrink(draft: &Draft, world: &World, mut broken: Broken) -> (Draft, Broken) {
    let mut smallest = draft.clone();
    let mut tries = 0;
    'again: loop {
        for less in smallest.smaller() {
            tries += 1;
            if tries > 3_000 {
                break 'again;
            }
            let Some(Err(found)) = examine(&less, world) else { continue };
            if let Some(other) = found.into_iter().find(|other| other.promise == broken.promise) {
                (smallest, broken) = (less, other);
                continue 'again;
            }
        }
        break;
    }
    (smallest, broken)
}
