//! The program is killed at random moments, again and again, and nothing is lost, repeated or stuck.
//!
//! J1, J6, J9, J10, E1, E7, S7, R3: Segue's journals are compared with a log that the tools write
//! and Segue does not know. Each lane is a folder with its own store; a cycle in it starts one or
//! two runs, kills them, kills the processes that resume them, and at last lets one finish. Calls
//! in doubt are settled as a person would: by looking into the log.
//!
//! `SEGUE_KILL_CYCLES` says how many cycles (`just kill 1000`), `SEGUE_KILL_SEED` which moments. A
//! seed gives the same kills after the same times; what they hit depends on the machine.

#![cfg(unix)]

pub(crate) mod check;
#[cfg(feature = "postgres")]
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use segue_core::run::Entry;
use segue_runtime::store::{
    JournalStore as _, RunHistory as _, RunQuery, RunRow, SqliteOptions, SqliteStore,
};

use crate::support::{Done, Json, SEGUE, World, copy_folder, repository};
use check::{Marks, Promise};

/// Folders in which cycles run concurrently. Most of the time every process waits for a tool.
const LANES: usize = 4;

/// Runs of one cycle.
const RUNS_MAX: usize = 2;

/// How often a run may be resumed undisturbed before it counts as stuck.
const ROUNDS_MAX: usize = 30;

/// Compositions, and how they end when no call in doubt is answered with a failure.
const COMPOSITIONS: &[(&str, &[&str])] = &[
    ("together", &["success"]),
    ("long", &["success"]),
    ("stubborn", &["success"]),
    ("nested", &["success"]),
    ("probed", &["success"]),
    ("back", &["rolled_back"]),
    // A rollback that must not be repeated, and whose answer was lost, is named.
    ("back-once", &["rolled_back", "rollback_failed"]),
];

/// The counts of all cycles.
#[derive(Debug, Default)]
struct Tally {
    cycles: u64,
    runs: u64,
    kills: u64,
    recoveries: u64,
    in_doubt: u64,
    set_aside: u64,
    probed: u64,
    statuses: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.cycles += other.cycles;
        self.runs += other.runs;
        self.kills += other.kills;
        self.recoveries += other.recoveries;
        self.in_doubt += other.in_doubt;
        self.set_aside += other.set_aside;
        self.probed += other.probed;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}

/// S0-93
#[test]
fn killed_at_any_moment_nothing_is_lost_repeated_or_stuck() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cycles = number("SEGUE_KILL_CYCLES").unwrap_or(100);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("SEGUE_KILL_SEED").unwrap_or_else(|| u64::from(now().subsec_nanos()));
    say(&format!("seed {seed}"));
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let lanes = LANES as u64;
        let work = |lane| {
            let cycles = cycles / lanes + u64::from(lane < cycles % lanes);
            move || Lane::new(seed.wrapping_add(lane)).cycles(cycles)
        };
        let lanes: Vec<_> = (0..lanes).map(|lane| scope.spawn(work(lane))).collect();
        lanes.into_iter().for_each(|lane| tally.add(lane.join().expect("see above")));
    });
    let Tally { cycles, runs, kills, recoveries, in_doubt, set_aside, probed, statuses } = tally;
    say(&format!(
        "{cycles} cycles, {runs} runs, {kills} kills, {recoveries} recoveries, {in_doubt} in doubt, \
         {set_aside} set aside, {probed} probed; lost 0, repeated 0, stuck 0; {statuses:?}"
    ));
    assert!(kills >= cycles / 2, "too few kills hit anything: {kills}");
}

#[allow(clippy::print_stderr, reason = "what was measured is for whoever runs the test")]
fn say(text: &str) {
    eprintln!("kill: {text}");
}

/// Good enough to choose moments.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A moment within a time. Few are in its first third, in which a process only begins.
    fn moment(&mut self, within: Duration) -> Duration {
        let whole = u64::try_from(within.as_micros()).unwrap();
        let early = if self.below(8) == 0 { 0 } else { whole / 3 };
        Duration::from_micros(early + self.below(whole - early))
    }
}

/// A folder in which one cycle follows another.
struct Lane {
    world: World,
    chance: Chance,
    store: SqliteStore,
    runtime: tokio::runtime::Runtime,
    /// What an undisturbed run of each composition gives, and how long it takes.
    whole: BTreeMap<&'static str, (Json, Duration)>,
    /// The runs of earlier cycles.
    earlier: BTreeSet<Arc<str>>,
    tally: Tally,
}

/// One run of a cycle: what runs it, and what becomes of it.
struct Started {
    child: Child,
    after: Duration,
}

impl Lane {
    fn new(seed: u64) -> Lane {
        let world = World::new();
        copy_folder(&repository().join("crates/segue/tests/it/kill/world"), &world.folder());
        world.file("log", "");
        let store = SqliteStore::open(&world.path("runs.db"), SqliteOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (chance, tally) = (Chance(seed), Tally::default());
        let (whole, earlier) = (BTreeMap::new(), BTreeSet::new());
        let mut lane = Lane { world, chance, store, runtime, whole, earlier, tally };
        for (name, expected) in COMPOSITIONS {
            let begun = Instant::now();
            let view = Lane::finish(lane.start(&["run", name, "--json"])).json();
            assert_eq!(view["status"], expected[0], "{view:#}");
            lane.earlier.insert(view["run_id"].as_str().unwrap().into());
            lane.whole.insert(name, (anonymous(&view), begun.elapsed()));
        }
        lane
    }

    fn cycles(mut self, cycles: u64) -> Tally {
        for _ in 0..cycles {
            self.cycle();
            self.tally.cycles += 1;
        }
        self.tally
    }

    fn cycle(&mut self) {
        let before = Marks::read(&self.world);
        let mut promise = Promise::default();
        let (composition, expected) = self.choose();
        let longest = self.whole[composition].1;
        let count = 1 + self.chance.below(RUNS_MAX as u64);
        let mut started: Vec<Started> = (0..count)
            .map(|_| Started {
                child: self.start(&["run", composition, "--json"]),
                after: self.chance.moment(longest),
            })
            .collect();
        started.sort_by_key(|started| started.after);
        let begun = Instant::now();
        let mut acknowledged = Vec::new();
        for Started { child, after } in started {
            if let Some(done) = self.kill(child, after.saturating_sub(begun.elapsed())) {
                acknowledged.push(done.json());
            }
        }
        self.promised(&mut promise);
        for _ in 0..self.chance.below(4) {
            let child = self.start(&["resume", "--all"]);
            let after = self.chance.moment(longest);
            self.tally.recoveries += 1;
            self.kill(child, after);
            self.promised(&mut promise);
        }
        self.clear_up(&mut promise, longest);
        let marks = Marks::read(&self.world).since(&before);
        for view in &acknowledged {
            let run_id: Arc<str> = view["run_id"].as_str().unwrap().into();
            let row = self.wait(self.store.run(&run_id));
            let status = row.expect("lost: a run that was told of").status;
            assert!(view["status"] == status.as_str() || view["status"] == "waiting", "{view:#}");
            promise.runs.insert(run_id);
        }
        let runs = std::mem::take(&mut promise.runs);
        for run_id in &runs {
            let journal = self.journal(run_id);
            let view = self.world.json(0, &Self::args(&["runs", "show", run_id, "--json"]));
            self.tally.probed += check::probes(&journal);
            check::run(&journal, &marks, &view);
            check::result(&journal, &view, &self.whole[composition].0, expected);
            let status = view["status"].as_str().unwrap().to_owned();
            *self.tally.statuses.entry(status).or_default() += 1;
            self.tally.runs += 1;
        }
        marks.belong_to(&runs);
        self.earlier.extend(runs);
    }

    fn choose(&mut self) -> (&'static str, &'static [&'static str]) {
        let count = u64::try_from(COMPOSITIONS.len()).unwrap();
        COMPOSITIONS[usize::try_from(self.chance.below(count)).unwrap()]
    }

    /// Goes on with everything until nothing is unfinished; sometimes even that is killed.
    fn clear_up(&mut self, promise: &mut Promise, longest: Duration) {
        for _ in 0..ROUNDS_MAX {
            let done = Self::finish(self.start(&["resume", "--all"]));
            assert!(matches!(done.code, Some(0 | 1 | 3)), "{done:?}");
            self.tally.recoveries += 1;
            self.promised(promise);
            let rows = self.unfinished();
            if rows.is_empty() {
                return;
            }
            for row in rows {
                if row.set_aside.is_some() {
                    // A person goes on with it.
                    self.tally.set_aside += 1;
                    Self::finish(self.start(&["resume", &row.run_id]));
                    self.promised(promise);
                    continue;
                }
                let view =
                    self.world.json(0, &Self::args(&["runs", "show", &row.run_id, "--json"]));
                let Some(wait) = view["waiting_for"].get(0).cloned() else { continue };
                assert_eq!(wait["kind"], "doubt", "{view:#}");
                self.tally.in_doubt += 1;
                let (name, step) = (wait["args"]["name"].as_str().unwrap(), &wait["step"]);
                let did = Marks::read(&self.world).count("END", name) > 0;
                let value = format!("{{\"name\":\"{name}\",\"done\":true}}");
                let known = ["resume", &row.run_id, "--step", step.as_str().unwrap(), "--assume"];
                let outcome = if did { vec!["done", "--value", &value] } else { vec!["failed"] };
                let child = self.start(&[&known[..], &outcome[..]].concat());
                if self.chance.below(4) == 0 {
                    let after = self.chance.moment(longest);
                    self.kill(child, after);
                } else {
                    Self::finish(child);
                }
                self.promised(promise);
            }
        }
        panic!("stuck: {:?}", self.unfinished());
    }

    /// Records what is durable now: none of it may be called from now on.
    fn promised(&mut self, promise: &mut Promise) {
        let marks = Marks::read(&self.world);
        let newest = RunQuery { limit: RUNS_MAX, ..RunQuery::default() };
        let rows = self.wait(self.store.runs(&newest)).runs;
        let new = rows.into_iter().map(|row| row.run_id).filter(|id| !self.earlier.contains(id));
        promise.runs.extend(new);
        for run_id in &promise.runs.clone() {
            promise.hold(&self.journal(run_id), &marks);
        }
    }

    fn args<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--config", "segue.yaml", "--store", "sqlite:runs.db", "-q"]].concat()
    }

    fn start(&self, args: &[&str]) -> Child {
        let mut command = self.world.command(SEGUE);
        command.args(Self::args(args)).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Kills a process after a time, unless it has ended by then.
    fn kill(&mut self, mut child: Child, after: Duration) -> Option<Done> {
        let until = Instant::now() + after;
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_some() {
            return Some(Self::finish(child));
        }
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        // It may have ended just before.
        if output.status.code().is_some() {
            return Some(Done::of(output));
        }
        self.tally.kills += 1;
        None
    }

    fn finish(child: Child) -> Done {
        let done = Done::of(child.wait_with_output().unwrap());
        assert!(matches!(done.code, Some(0 | 1 | 3 | 4)), "{done:?}");
        done
    }

    fn wait<T, E: std::fmt::Debug>(&self, future: impl Future<Output = Result<T, E>>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    fn unfinished(&self) -> Vec<RunRow> {
        let found = self.wait(self.store.unfinished());
        assert!(found.damaged.is_empty(), "{:?}", found.damaged);
        found.runs
    }

    fn journal(&self, run_id: &Arc<str>) -> Vec<Entry> {
        self.wait(self.store.load(run_id))
    }
}

/// What a run gives, whichever run it is.
fn anonymous(view: &Json) -> Json {
    let text = view["output"].to_string().replace(view["run_id"].as_str().unwrap(), "RUN");
    serde_json::from_str(&text).unwrap()
}

/// The log of a folder.
fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap()
}
