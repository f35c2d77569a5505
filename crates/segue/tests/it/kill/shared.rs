//! Workers, the server and the database itself are killed at random moments while they share a store. No run is
//! lost, no completed step is repeated, and none is stuck.
//!
//! J1, J6, J8, E1, E2, E7, S7: a cycle starts one or two runs, and kills or stops one process at a random moment.
//! Workers of other processes go on with what it had. After a few cycles a person answers what is asked until
//! every run is over; then each run is compared with the log of the tools.
//!
//! `SEGUE_KILL_CYCLES` says how many cycles (`just kill-shared 1000`), `SEGUE_KILL_SEED` which moments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use segue_core::view::RunStatus;

use super::check::{self, Marks, Promise};
use super::{COMPOSITIONS, Chance, anonymous};
#[cfg(feature = "restate")]
use crate::restate_server::RestateServer as Dispatcher;
use crate::served::{Served, TOKEN};
use crate::shared::{Cluster, LEASE, Process, TAKEOVER_MAX};
use crate::support::{Json, json};

/// Without Restate nothing is a dispatcher.
#[cfg(not(feature = "restate"))]
type Dispatcher = crate::postgres_server::Server;

/// Workers at the same time.
const WORKERS: usize = 3;

/// Cycles between two moments at which every run is over.
const BATCH: u64 = 10;

/// A run that does not end in this time is stuck.
const STUCK: Duration = Duration::from_mins(3);

/// Compositions beside [`COMPOSITIONS`] whose runs are left by their workers for a while.
const WAITING: &[(&str, &[&str])] = &[("approved", &["success"]), ("rests", &["success"])];

/// What is killed, the likelier the more often it is named.
const VICTIMS: &[Victim] = &[
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::Worker,
    Victim::Database,
    Victim::Database,
    Victim::Server,
    Victim::Stopped,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Worker,
    Database,
    Server,
    /// A worker that stands still for longer than its lease.
    Stopped,
    /// Restate, where it is the dispatcher.
    Dispatcher,
}

/// The counts of all cycles.
#[derive(Debug, Default)]
struct Tally {
    cycles: u64,
    runs: u64,
    kills: BTreeMap<Victim, u64>,
    /// How long runs of a dead worker had no other owner.
    takeovers: Vec<Duration>,
    approvals: u64,
    in_doubt: u64,
    set_aside: u64,
    statuses: BTreeMap<String, u64>,
}

/// A run whose owner died.
struct Orphan {
    run_id: Arc<str>,
    owner: Arc<str>,
    epoch: u64,
    died: Instant,
}

struct Harness {
    cluster: Cluster,
    dispatcher: Option<Dispatcher>,
    chance: Chance,
    workers: Vec<Process>,
    /// Its owner's name, by the room of a worker.
    owners: BTreeMap<u16, Arc<str>>,
    server: Option<Served>,
    /// What an undisturbed run of each composition gives.
    whole: BTreeMap<&'static str, Json>,
    /// The runs of earlier batches.
    earlier: BTreeSet<Arc<str>>,
    /// The runs of this batch that a client was told of.
    acknowledged: BTreeSet<Arc<str>>,
    promise: Promise,
    orphans: Vec<Orphan>,
    /// Commands of a person that are under way, by their runs.
    answers: BTreeMap<Arc<str>, Child>,
    tally: Tally,
}

fn say(text: &str) {
    // Not captured by the test harness.
    let _ = writeln!(std::io::stderr(), "kill-shared: {text}");
}

#[test]
fn killed_at_any_moment_a_shared_store_loses_repeats_and_blocks_nothing() {
    if let Some(cluster) = Cluster::new("") {
        run(Harness::new(cluster, None), TAKEOVER_MAX);
    }
}

/// The same where Restate decides who drives a run, and is killed, too. It asks again after up to two seconds
/// whether a run that another worker drove has no owner any more.
#[cfg(feature = "restate")]
#[test]
fn killed_at_any_moment_with_restate_loses_repeats_and_blocks_nothing() {
    let Some(restate) = Dispatcher::start() else { return };
    let [port] = crate::restate_server::free_ports();
    let driver = format!(
        "driver: {{ restate: {{ ingress: '{}', admin: '{}', advertise: 'http://127.0.0.1:{port}' }} }}\n\
         limits: {{ dispatch_again_ms: 1000 }}\n",
        restate.ingress(),
        restate.admin()
    );
    if let Some(cluster) = Cluster::driven_by(&driver, "") {
        run(Harness::new(cluster, Some(restate)), TAKEOVER_MAX + Duration::from_secs(2));
    }
}

fn run(mut harness: Harness, takeover_max: Duration) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cycles = number("SEGUE_KILL_CYCLES").unwrap_or(20);
    harness.chance.0 = number("SEGUE_KILL_SEED").unwrap_or(harness.chance.0);
    say(&format!("seed {}", harness.chance.0));
    // Few kills may all hit workers without a run: then more follow.
    let cycles_max = cycles + 60;
    while harness.tally.cycles < cycles
        || harness.tally.takeovers.is_empty() && harness.tally.cycles < cycles_max
    {
        harness.batch((cycles_max - harness.tally.cycles).min(BATCH));
        if harness.tally.cycles.is_multiple_of(50) {
            say(&harness.tally.text());
        }
    }
    say(&harness.tally.text());
    let longest = harness.tally.takeovers.iter().max().expect("no kill hit a worker with a run");
    assert!(*longest <= takeover_max, "taken over after {longest:?}");
}

impl Tally {
    fn text(&self) -> String {
        let mut takeovers = self.takeovers.clone();
        takeovers.sort();
        let half = takeovers.get(takeovers.len() / 2).copied().unwrap_or_default();
        let longest = takeovers.last().copied().unwrap_or_default();
        format!(
            "{} cycles, {} runs, kills {:?}; {} takeovers, p50 {} ms, longest {} ms (lease {} ms); {} approvals, \
             {} in doubt, {} set aside; lost 0, repeated 0, stuck 0; {:?}",
            self.cycles,
            self.runs,
            self.kills,
            takeovers.len(),
            half.as_millis(),
            longest.as_millis(),
            LEASE.as_millis(),
            self.approvals,
            self.in_doubt,
            self.set_aside,
            self.statuses
        )
    }
}

fn compositions() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    COMPOSITIONS.iter().chain(WAITING)
}

impl Harness {
    fn new(cluster: Cluster, dispatcher: Option<Dispatcher>) -> Harness {
        let workers: Vec<Process> = (0..WORKERS).map(|_| cluster.worker()).collect();
        let server = Some(cluster.server());
        let mut harness = Harness {
            cluster,
            dispatcher,
            chance: Chance(u64::from(std::process::id())),
            workers,
            owners: BTreeMap::new(),
            server,
            whole: BTreeMap::new(),
            earlier: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            promise: Promise::default(),
            orphans: Vec::new(),
            answers: BTreeMap::new(),
            tally: Tally::default(),
        };
        for (name, expected) in compositions() {
            let run_id = harness.cluster.start(name);
            let view = harness.cluster.ended_with_answers(&run_id);
            assert_eq!(view.status.as_str(), expected[0], "{name}: {:?}", view.errors);
            harness.whole.insert(name, anonymous(&harness.cluster.view_json(&run_id)));
            harness.earlier.insert(run_id);
        }
        harness
    }

    /// Some cycles, and the end of all their runs.
    fn batch(&mut self, cycles: u64) {
        let before = Marks::read(&self.cluster.world);
        for _ in 0..cycles {
            self.cycle(&before);
            self.tally.cycles += 1;
        }
        self.settle(&before);
        let marks = Marks::read(&self.cluster.world).since(&before);
        let runs: BTreeSet<Arc<str>> = self.new_runs();
        let lost: Vec<_> = self.acknowledged.difference(&runs).collect();
        assert!(lost.is_empty(), "lost: runs that were told of: {lost:?}");
        for run_id in &runs {
            let (journal, view) = (self.cluster.journal(run_id), self.cluster.view_json(run_id));
            let name = view["name"].as_str().unwrap();
            check::run(&journal, &marks, &view);
            let (name, expected) = compositions().find(|(known, _)| *known == name).unwrap();
            check::result(&journal, &view, &self.whole[name], expected);
            *self.tally.statuses.entry(view["status"].as_str().unwrap().to_owned()).or_default() +=
                1;
            self.tally.runs += 1;
        }
        marks.belong_to(&runs);
        self.earlier.extend(runs);
        self.acknowledged.clear();
        self.promise = Promise::default();
    }

    fn cycle(&mut self, before: &Marks) {
        for _ in 0..=self.chance.below(4) {
            self.start();
        }
        self.pass_time(0, 300);
        let victims = u64::try_from(VICTIMS.len()).unwrap();
        let mut victim = VICTIMS[usize::try_from(self.chance.below(victims)).unwrap()];
        if self.dispatcher.is_some() && self.chance.below(5) == 0 {
            victim = Victim::Dispatcher;
        }
        match victim {
            Victim::Worker => self.kill_worker(),
            Victim::Database => self.kill_database(),
            Victim::Server => {
                // It is killed when it is dropped.
                self.server = None;
                self.server = Some(self.cluster.server());
            }
            Victim::Stopped => self.stop_worker(),
            Victim::Dispatcher => {
                let restate = self.dispatcher.as_mut().unwrap();
                restate.kill();
                restate.start_again();
            }
        }
        *self.tally.kills.entry(victim).or_default() += 1;
        self.hold_promises(before);
    }

    /// Starts a run, by a command or through the server.
    fn start(&mut self) {
        let count = u64::try_from(compositions().count()).unwrap();
        let nth = usize::try_from(self.chance.below(count)).unwrap();
        let name = compositions().nth(nth).unwrap().0;
        let started = if self.chance.below(4) == 0 {
            self.cluster.try_start(name)
        } else {
            let prefer = [("Prefer", "respond-async")];
            let server = self.server.as_ref().unwrap();
            let path = "/api/v1/compositions/execute";
            let answer = server.send_by(TOKEN, "POST", path, &prefer, &json!({ "name": name }));
            matches!(answer.status, 200 | 202)
                .then(|| answer.json()["run_id"].as_str().unwrap().into())
        };
        self.acknowledged.extend(started);
    }

    fn kill_worker(&mut self) {
        let at = usize::try_from(self.chance.below(WORKERS as u64)).unwrap();
        self.note_owners();
        let owner = self.owners.get(&self.workers[at].room).cloned();
        let rows = self.cluster.unfinished();
        self.workers.remove(at).kill();
        let died = Instant::now();
        let mine = rows.into_iter().filter(|row| row.owner.is_some() && row.owner == owner);
        self.orphans.extend(mine.filter_map(|row| {
            let owner = row.owner?;
            Some(Orphan { run_id: row.run_id, owner, epoch: row.epoch, died })
        }));
        self.workers.push(self.cluster.worker());
    }

    fn kill_database(&mut self) {
        self.cluster.server.kill();
        // Mostly a moment, now and then longer than a lease.
        let down = if self.chance.below(6) == 0 { 4_000 } else { self.chance.below(900) };
        std::thread::sleep(Duration::from_millis(down));
        self.cluster.server.start_again();
        // Nobody could take them meanwhile.
        self.orphans.clear();
    }

    fn stop_worker(&mut self) {
        let at = usize::try_from(self.chance.below(WORKERS as u64)).unwrap();
        self.workers[at].signal(Signal::STOP);
        self.pass_time(3_500, 5_000);
        self.workers[at].signal(Signal::CONT);
    }

    fn note_owners(&mut self) {
        for worker in &self.workers {
            self.owners.extend(self.cluster.find_owner(worker).map(|owner| (worker.room, owner)));
        }
    }

    /// Lets a random time pass, and looks meanwhile which runs have another owner.
    fn pass_time(&mut self, least_ms: u64, most_ms: u64) {
        let ms = least_ms + self.chance.below(most_ms - least_ms);
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until {
            self.look();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn look(&mut self) {
        let Harness { orphans, cluster, tally, .. } = self;
        orphans.retain(|orphan| {
            let row = cluster.row(&orphan.run_id);
            let is_taken = row.epoch > orphan.epoch;
            if is_taken {
                tally.takeovers.push(orphan.died.elapsed());
            }
            // It may have ended just before the kill.
            !is_taken && row.ended_ms.is_none() && row.owner.as_ref() == Some(&orphan.owner)
        });
    }

    /// What is completed now may not be called from now on.
    fn hold_promises(&mut self, before: &Marks) {
        for run_id in self.new_runs() {
            let journal = self.cluster.journal(&run_id);
            // Read after the journal: what it says is done has been begun by then.
            let marks = Marks::read(&self.cluster.world).since(before);
            self.promise.hold(&journal, &marks);
        }
    }

    fn new_runs(&self) -> BTreeSet<Arc<str>> {
        let ids = self.cluster.runs().into_iter().map(|row| row.run_id);
        ids.filter(|run_id| !self.earlier.contains(run_id)).collect()
    }

    /// Answers every question until no run is unfinished.
    fn settle(&mut self, before: &Marks) {
        let began = Instant::now();
        loop {
            self.look();
            let rows = self.cluster.unfinished();
            if rows.is_empty() {
                break;
            }
            assert!(began.elapsed() < STUCK, "stuck: {rows:#?}");
            self.answers.retain(|_, child| child.try_wait().unwrap().is_none());
            for row in rows {
                if self.answers.contains_key(&row.run_id) {
                    continue;
                }
                if row.set_aside.is_some() {
                    // A person goes on with it.
                    self.tally.set_aside += 1;
                    self.cluster.segue(&["resume", &row.run_id, "-q"]);
                } else if row.status == RunStatus::Waiting
                    && let Some((kind, child)) = self.cluster.answer(&row.run_id)
                {
                    let count = if kind == "doubt" {
                        &mut self.tally.in_doubt
                    } else {
                        &mut self.tally.approvals
                    };
                    *count += 1;
                    self.answers.insert(row.run_id, child);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for (_, mut child) in std::mem::take(&mut self.answers) {
            let _ = child.wait();
        }
        self.hold_promises(before);
    }
}
