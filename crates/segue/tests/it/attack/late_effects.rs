//! Random compositions whose writes land late, with failures beside them, cancels, rollbacks, timeouts and
//! kills at random moments: what each run says at its end is held against a ledger that Segue does not know.
//!
//! A batch is a few runs of one server at once. Each run may be cancelled or rolled back while it is under
//! way, or rolled back after its end; the server may be killed in the middle, and its successor goes on.
//! Calls in doubt are cleared up as a person would: by looking into the ledger.

mod check;
mod generate;
mod ledger;

use std::time::{Duration, Instant};

use segue_core::view::rfc3339;
use segue_runtime::driver::now_ms;

use self::check::{Over, differences};
use self::generate::{Generated, generate};
use self::ledger::{Ledger, Mark, runs, value};
use super::client::Client;
use super::{OPERATOR, Table, count, kill, kill_now, nothing, say, seed};
use crate::kill::Chance;
use crate::served::Served;
use crate::support::{Json, World, json};

/// Servers that are attacked at once, each in a world of its own.
const LANES: u64 = 2;

/// Runs of a batch. One kill hits all of those that are under way.
const BATCH: u64 = 3;

/// How long an undisturbed run may take to end.
const END_MAX: Duration = Duration::from_mins(1);

/// How long a run may stand still before the test resumes it.
const STILL_MAX: Duration = Duration::from_secs(5);

const COLUMNS: &[&str] = &["runs", "killed", "cancels", "rollbacks", "in doubt", "differ"];

/// An action on a run from outside, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Cancel(Duration),
    RollBack(Duration),
    RollBackAfterItsEnd,
}

/// A run of a batch.
struct Run {
    generated: Generated,
    act: Act,
    /// Once it was acknowledged.
    id: Option<String>,
}

struct Lane {
    world: World,
    ledger: Ledger,
    served: Served,
    chance: Chance,
    table: Table,
    kills: u64,
    findings: Vec<String>,
}

impl Lane {
    fn new(seed: u64) -> Lane {
        let world = World::new();
        let ledger = Ledger::make(&world, &format!("server: {{ token: {OPERATOR} }}\n"));
        let served = Served::start(&world, "sqlite:s.db", &[]);
        let table = Table::new("late effects", COLUMNS);
        let (chance, findings) = (Chance(seed), Vec::new());
        Lane { world, ledger, served, chance, table, kills: 0, findings }
    }

    fn client(&self) -> Client {
        Client::of(&self.served, OPERATOR)
    }

    fn moment(&mut self) -> Duration {
        Duration::from_millis(self.chance.below(500))
    }

    fn run(&mut self) -> Run {
        let act = match self.chance.below(10) {
            0 | 1 => Act::Cancel(self.moment()),
            2 | 3 => Act::RollBack(self.moment()),
            4 => Act::RollBackAfterItsEnd,
            _ => Act::Nothing,
        };
        Run { generated: generate(&mut self.chance), act, id: None }
    }

    fn batch(&mut self, count: u64, is_killed: bool) {
        let mut batch: Vec<Run> = (0..count).map(|_| self.run()).collect();
        let kill_after = is_killed.then(|| self.moment() + Duration::from_millis(50));
        self.disturb(&mut batch, kill_after);
        let dead_at = is_killed.then(|| rfc3339(now_ms()));
        if is_killed {
            self.kills += 1;
            let next = Served::start(&self.world, "sqlite:s.db", &[]);
            kill(std::mem::replace(&mut self.served, next));
        }
        self.adopt(&batch);
        let views: Vec<(Run, Json)> = batch
            .into_iter()
            .filter_map(|run| {
                let view = self.finish(&run)?;
                Some((run, view))
            })
            .collect();
        let marks = self.ledger.settled();
        for (run, view) in views {
            self.judge(&run, &view, dead_at.as_deref(), &marks);
        }
    }

    /// Starts the runs and lets everything happen to them that is to happen.
    fn disturb(&self, batch: &mut [Run], kill_after: Option<Duration>) {
        let client = self.client();
        let pid = self.served.pid();
        std::thread::scope(|scope| {
            if let Some(after) = kill_after {
                scope.spawn(move || {
                    std::thread::sleep(after);
                    kill_now(pid);
                });
            }
            for run in batch {
                let client = client.clone();
                scope.spawn(move || run.begin(&client));
            }
        });
    }

    /// Runs that began although their start was not acknowledged belong to the batch, too; work of
    /// an unknown run is a violation.
    fn adopt(&mut self, batch: &[Run]) {
        let known = |id: &String| batch.iter().any(|run| run.id.as_ref() == Some(id));
        let strangers: Vec<String> =
            runs(&self.ledger.read()).into_iter().filter(|id| !known(id)).collect();
        for id in strangers {
            let status = self.client().get(&format!("/api/v1/runs/{id}")).unwrap().status;
            if status == 404 {
                self.findings.push(format!("work of run {id}, which is not there"));
            }
        }
    }

    fn view(&self, id: &str) -> Option<Json> {
        let answer = self.client().get(&format!("/api/v1/runs/{id}")).unwrap();
        (answer.status == 200).then(|| answer.json())
    }

    /// Goes on with a run until it is over.
    fn finish(&mut self, run: &Run) -> Option<Json> {
        let id = run.id.as_ref()?;
        let begun = Instant::now();
        let mut stood = Instant::now();
        let mut rolls_back = run.act == Act::RollBackAfterItsEnd;
        loop {
            let Some(view) = self.view(id) else {
                self.findings.push(format!("lost: {id} was acknowledged"));
                return None;
            };
            match view["status"].as_str().unwrap() {
                "waiting" => self.clear_up(id, &view),
                "running" | "pending" if stood.elapsed() > STILL_MAX => {
                    stood = Instant::now();
                    let _ = self.client().post(&format!("/api/v1/runs/{id}/resume"), &json!({}));
                }
                "running" | "pending" => {}
                "rolled_back" | "rollback_failed" => return Some(view),
                _ if rolls_back => {
                    rolls_back = false;
                    self.table.add("sum of lanes", "rollbacks", 1);
                    let path = format!("/api/v1/runs/{id}/rollback");
                    self.client().post(&path, &json!({})).unwrap();
                }
                _ => return Some(view),
            }
            if begun.elapsed() > END_MAX {
                self.findings.push(format!("stuck: {view}"));
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Says of a call in doubt what the ledger says of it.
    fn clear_up(&mut self, id: &str, view: &Json) {
        let wait = &view["waiting_for"][0];
        let (Some(step), Some(name)) = (wait["step"].as_str(), wait["args"]["name"].as_str())
        else {
            return;
        };
        self.table.add("sum of lanes", "in doubt", 1);
        let marks = self.ledger.settled();
        let is_done = marks.iter().any(|mark| mark.what == "EFFECT" && mark.name == name);
        let known = if is_done {
            json!({ "step": step, "assume": "done", "value": value(name) })
        } else {
            json!({ "step": step, "assume": "failed" })
        };
        let _ = self.client().post_async(&format!("/api/v1/runs/{id}/resume"), &known);
    }

    fn judge(&mut self, run: &Run, view: &Json, dead_at: Option<&str>, marks: &[Mark]) {
        let without_undo = &run.generated.without_undo;
        let found = differences(&Over { view, without_undo, dead_at }, marks);
        let row = "sum of lanes";
        self.table.add(row, "runs", 1);
        self.table.add(row, "killed", u64::from(dead_at.is_some()));
        self.table.add(row, "cancels", u64::from(matches!(run.act, Act::Cancel(_))));
        self.table.add(row, "rollbacks", u64::from(matches!(run.act, Act::RollBack(_))));
        self.table.add(row, "differ", u64::from(!found.is_empty()));
        let about = format!("{:?}, dead at {dead_at:?}, {}", run.act, view["status"]);
        self.findings.extend(found.into_iter().map(|what| format!("{what} ({about})")));
    }
}

impl Run {
    /// Starts the run and acts on it. The server may be gone at any moment.
    fn begin(&mut self, client: &Client) -> Option<()> {
        let body = json!({ "composition": self.generated.composition });
        let answer = client.post_async("/api/v1/compositions/execute", &body).ok()?;
        assert!(matches!(answer.status, 200 | 202), "{answer:?} of {body}");
        let id = answer.json()["run_id"].as_str().unwrap().to_owned();
        self.id = Some(id.clone());
        let (after, act) = match self.act {
            Act::Nothing | Act::RollBackAfterItsEnd => return Some(()),
            Act::Cancel(after) => (after, "cancel"),
            Act::RollBack(after) => (after, "rollback"),
        };
        std::thread::sleep(after);
        client.post(&format!("/api/v1/runs/{id}/{act}"), &json!({})).ok()?;
        Some(())
    }
}

/// C: the word of every run is what happened, also when writes were under way when it was stopped.
#[test]
fn a_runs_word_is_what_happened() {
    let all = count("SEGUE_ATTACK_RUNS", 60, 2_000);
    let kills = count("SEGUE_ATTACK_KILLS", 10, 300);
    let (begun, seed) = (Instant::now(), seed("late effects"));
    let batches = all.div_ceil(BATCH);
    let mut table = Table::new("late effects", COLUMNS);
    let (mut killed, mut findings) = (0, Vec::new());
    std::thread::scope(|scope| {
        let work = |lane: u64| {
            move || {
                let mut work = Lane::new(seed.wrapping_add(lane));
                for batch in (0..batches).filter(|batch| batch % LANES == lane) {
                    // Kills are spread over all batches.
                    let is_killed = (batch + 1) * kills / batches > batch * kills / batches;
                    work.batch(BATCH.min(all - batch * BATCH), is_killed);
                }
                (work.table, work.kills, work.findings)
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|lane| scope.spawn(work(lane))).collect();
        for (counts, kills, found) in lanes.into_iter().map(|lane| lane.join().expect("see above"))
        {
            table.add_all(&counts);
            killed += kills;
            findings.extend(found);
        }
    });
    table.print();
    say(&format!("late effects: {killed} kills, took {:.0?}", begun.elapsed()));
    nothing(&findings);
    assert!(table.sum("runs") > all / 2, "too few runs were acknowledged to prove anything");
}
