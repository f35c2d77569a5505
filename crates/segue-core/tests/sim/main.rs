//! Random compositions in random worlds: whatever fails and whenever, the machine keeps its promises.
//!
//! A seed makes a composition of all kinds of steps ([`author`]) and a world with latencies,
//! failures, lost and doubled answers, cancels and clocks that jump ([`world`]). The run is played
//! in time that is only counted ([`story`]), stopped after any turn and taken over by another
//! engine. Then an independent reference ([`model`]) says what must have happened, and each promise
//! is checked by a function of its name ([`check`]): J journal, E steps, S rollback, C cancelling
//! and time, A approvals. A seed that breaks one is shrunk to a minimal composition.
//!
//! The same seed gives the same bytes. `just sim 100000` goes further than the usual test run.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]
#![allow(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "the model is written to be read beside the rules, one function for each"
)]

mod author;
mod case;
mod check;
mod corpus;
mod dice;
mod draft;
mod examine;
mod ledger;
mod legal;
mod luck;
mod model;
mod parts;
mod story;
#[path = "../support/mod.rs"]
mod support;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use examine::{Broken, Seen};

/// Broken promises that are shrunk and shown.
const SHOWN_MAX: usize = 3;

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does something for every seed of a range, on all cores.
fn for_seeds(seeds: std::ops::Range<u64>, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    let cores = cores();
    quiet_panics();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            let thread = std::thread::Builder::new().name("sim".to_owned());
            let run = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    work(seed);
                }
            };
            thread.spawn_scoped(scope, run).unwrap();
        }
    });
}

/// A panic of the machine is a finding that is reported with its seed, not noise of its own.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some("sim") {
                usual(panic);
            }
        }));
    });
}

/// What a range of seeds showed.
#[derive(Default)]
struct Tally {
    statuses: BTreeMap<&'static str, u64>,
    turns: usize,
    /// The first seed that breaks each promise, and how many do.
    broken: BTreeMap<&'static str, (u64, Broken, u64)>,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Option<Result<Seen, Vec<Broken>>>) {
        let status = match outcome {
            None => "refused",
            Some(Ok(seen)) => {
                self.turns += seen.turns;
                seen.status
            }
            Some(Err(broken)) => {
                for how in broken {
                    let known = self.broken.entry(how.promise);
                    let (first, shown, count) = known.or_insert_with(|| (seed, how.clone(), 0));
                    *count += 1;
                    if seed < *first {
                        (*first, *shown) = (seed, how);
                    }
                }
                "broken"
            }
        };
        *self.statuses.entry(status).or_default() += 1;
    }
}

/// S0-93: retries, fallbacks, strategies and rollback, against a model of them.
#[test]
fn the_machine_keeps_its_promises_in_every_world() {
    let (first, seeds) = (number("SEGUE_SIM_FIRST", 0), number("SEGUE_SIM_SEEDS", 1_500));
    // For a planted bug, one failure is enough.
    let wanted = std::env::var("SEGUE_SIM_WANTED").ok();
    let found = AtomicBool::new(false);
    let tally: Mutex<Tally> = Mutex::default();
    let began = Instant::now();
    for_seeds(first..first + seeds, |seed| {
        if found.load(Ordering::Relaxed) {
            return;
        }
        let outcome = examine::seed(seed);
        let mut tally = tally.lock().unwrap();
        tally.add(seed, outcome);
        if wanted.as_deref().is_some_and(|wanted| tally.broken.contains_key(wanted)) {
            found.store(true, Ordering::Relaxed);
        }
    });
    let Tally { statuses, turns, broken } = tally.into_inner().unwrap();
    let (took, cores) = (began.elapsed().as_secs_f64(), cores());
    let rate = seeds as f64 / took / cores as f64;
    println!(
        "{seeds} seeds in {took:.1} s, {rate:.0} per second and core, {turns} turns: {statuses:?}"
    );
    let refused = statuses.get("refused").copied().unwrap_or(0);
    assert!(
        refused * 100 <= seeds,
        "{refused} compositions are refused: the author writes nonsense"
    );
    let names: Vec<String> =
        broken.iter().map(|(promise, (_, _, count))| format!("{promise} {count}")).collect();
    if wanted.is_some() {
        println!("broken: {}", names.join(", "));
        assert!(!found.into_inner(), "the planted bug is found");
    } else if !broken.is_empty() {
        let shown = broken.values().map(|(seed, how, _)| examine::explain(*seed, how));
        let shown = shown.take(SHOWN_MAX).collect::<Vec<_>>().join("\n");
        panic!("promises that are broken: {}\n\n{shown}", names.join(", "));
    }
}

/// Seeds beyond the usual ones that once broke a promise.
#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    for seed in [6_725, 33_646, 47_594] {
        let mut tally = Tally::default();
        let outcome = examine::seed(seed);
        assert!(outcome.is_some(), "seed {seed} is refused, and shows nothing any more");
        tally.add(seed, outcome);
        assert!(tally.broken.is_empty(), "seed {seed}: {:?}", tally.broken.keys());
    }
}
