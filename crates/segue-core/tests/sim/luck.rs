//! Compositions that work when their tools do, among tools of which one call in twenty fails for a
//! while: three retries are enough for nearly all of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_core::view::RunStatus;

use crate::author::{self, Taste};
use crate::examine::promises;
use crate::story::play;
use crate::world::World;
use crate::{case, for_seeds, number};

/// Of a hundred calls, how many fail.
const FAILURES: u64 = 5;

#[test]
fn nearly_all_sound_compositions_succeed_among_flaky_tools() {
    let usual = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    let seeds = number("SEGUE_SIM_SOUND", usual);
    let (succeeded, refused, calls) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let others: Mutex<Vec<String>> = Mutex::default();
    for_seeds(0..seeds, |seed| {
        let draft = author::write(seed, Taste::Sound);
        let Ok(plan) = case::planned(&draft) else {
            refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let story = play(&plan, &World::mild(seed, FAILURES));
        calls.fetch_add(story.calls().count() as u64, Ordering::Relaxed);
        // Whatever becomes of it, it ends as the model says.
        let broken = promises(&story).into_iter();
        others.lock().unwrap().extend(broken.map(|broken| format!("seed {seed}: {broken:?}")));
        if story.view.status == RunStatus::Success {
            succeeded.fetch_add(1, Ordering::Relaxed);
        } else {
            let (status, errors) = (story.view.status.as_str(), &story.view.errors);
            println!("seed {seed} ends as {status}: {errors:?}");
        }
    });
    let (succeeded, refused) = (succeeded.into_inner(), refused.into_inner());
    let ran = seeds - refused;
    println!(
        "{succeeded} of {ran} sound compositions succeed ({:.3} %), {} calls, {refused} refused",
        100.0 * succeeded as f64 / ran as f64,
        calls.into_inner()
    );
    let others = others.into_inner().unwrap();
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(refused * 100 <= seeds, "{refused} are refused");
    assert!(succeeded * 1_000 >= ran * 999, "only {succeeded} of {ran} succeed");
}
