//! A server is killed right after it acknowledged something, on every surface, and nothing is lost.
//!
//! A cycle sends a few requests of one surface at once; the thread that has read the first whole answer
//! kills the server. After the restart every acknowledged run is there, and every acknowledged approval,
//! denial, cancel, resume and rollback takes effect. In every fourth cycle, what was acknowledged is read
//! before the kill, by the same client and by another process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Result;
use std::time::{Duration, Instant};

use super::client::Client;
use super::{OPERATOR, Table, count, is_long, kill, kill_now, nothing, say, seed};
use crate::kill::Chance;
use crate::served::{Answer, Served};
use crate::support::{Json, SEGUE, World, json};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// Servers that are attacked at once, each with a store of its own.
const LANES: u64 = 3;

/// Requests of one cycle, at once.
const REQUESTS: usize = 3;

/// How long an acknowledged act may take to take effect after the restart.
const EFFECT_MAX: Duration = Duration::from_secs(8);

const CONFIG: &str = "\
compositions: ['lib/*.yaml']
limits: { served_wait_ms: 50 }
commands:
  silent: { argv: [sleep, '2'], destructive: false, idempotent: false }
";

/// Compositions by name. `holds` lasts long enough to be killed in it, and ends by itself after that.
const COMPOSITIONS: &[(&str, &str)] = &[
    ("holds", "name: holds\nsteps: [ { id: a, tool: sleep, parameters: { ms: 300 } } ]\n"),
    ("quick", "name: quick\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n"),
    ("endless", "name: endless\nsteps: [ { id: a, tool: sleep, parameters: { ms: 600000 } } ]\n"),
    (
        "asks",
        "name: asks\nsteps:\n  - { id: ok, approve: { message: 'go on?' } }\n  - { id: b, tool: echo, depends_on: [ok] }\n",
    ),
    (
        "doubts",
        "name: doubts\nsteps: [ { id: a, tool: 'command:silent', timeout: 20ms } ]\noutput: 1\n",
    ),
    (
        "saves",
        "name: saves\nsteps: [ { id: a, tool: checkpoint_save, parameters: { content: x } } ]\n",
    ),
];

/// What is acknowledged, and on which surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Surface {
    RestStart,
    RestKey,
    GraphqlStart,
    McpTask,
    RestApprove,
    RestDeny,
    RestCancel,
    RestResume,
    RestRollback,
    GraphqlApprove,
    GraphqlCancel,
    McpCancel,
}

use Surface as S;

const SURFACES: &[Surface] = &[
    S::RestStart,
    S::RestKey,
    S::GraphqlStart,
    S::McpTask,
    S::RestApprove,
    S::RestDeny,
    S::RestCancel,
    S::RestResume,
    S::RestRollback,
    S::GraphqlApprove,
    S::GraphqlCancel,
    S::McpCancel,
];

impl Surface {
    fn title(self) -> &'static str {
        match self {
            S::RestStart => "REST start, respond-async",
            S::RestKey => "REST start, Idempotency-Key",
            S::GraphqlStart => "GraphQL executeComposition",
            S::McpTask => "MCP tools/call as a task",
            S::RestApprove => "REST approve",
            S::RestDeny => "REST deny",
            S::RestCancel => "REST cancel",
            S::RestResume => "REST resume",
            S::RestRollback => "REST rollback",
            S::GraphqlApprove => "GraphQL approveRun",
            S::GraphqlCancel => "GraphQL cancelRun",
            S::McpCancel => "MCP tasks/cancel",
        }
    }

    /// The composition whose run is started, or acted on.
    fn composition(self) -> &'static str {
        match self {
            S::RestStart | S::GraphqlStart | S::McpTask => "holds",
            S::RestKey => "quick",
            S::RestApprove | S::RestDeny | S::GraphqlApprove => "asks",
            S::RestCancel | S::GraphqlCancel | S::McpCancel => "endless",
            S::RestResume => "doubts",
            S::RestRollback => "saves",
        }
    }

    /// The status that a run must have before it is acted on; none for a start.
    fn before(self) -> Option<&'static str> {
        match self {
            S::RestStart | S::RestKey | S::GraphqlStart | S::McpTask => None,
            S::RestCancel | S::GraphqlCancel | S::McpCancel => Some("running"),
            S::RestApprove | S::RestDeny | S::GraphqlApprove | S::RestResume => Some("waiting"),
            S::RestRollback => Some("success"),
        }
    }

    /// The statuses that the act leads to; none for a start, of which only the run must be there.
    fn after(self) -> &'static [&'static str] {
        match self {
            S::RestStart | S::GraphqlStart | S::McpTask => &[],
            S::RestKey | S::RestApprove | S::GraphqlApprove | S::RestResume => &["success"],
            S::RestDeny => &["denied", "failed"],
            S::RestCancel | S::GraphqlCancel | S::McpCancel => &["cancelled"],
            S::RestRollback => &["rolled_back"],
        }
    }

    /// Sends the request. The id of the run is the acknowledgement; an answer without one is none.
    fn send(self, client: &Client, subject: &str) -> Result<Option<String>> {
        let run = |action: &str| format!("/api/v1/runs/{subject}/{action}");
        let started = json!({ "name": self.composition() });
        let mutation = |query: &str, field: &str, variables: Json| {
            let answer = client.graphql(query, &variables)?;
            Ok(answer["data"][field]["runId"].as_str().map(ToOwned::to_owned))
        };
        match self {
            S::RestStart => Ok(run_of(&client.post_async(EXECUTE, &started)?)),
            S::RestKey => {
                let key = [("Idempotency-Key", subject)];
                Ok(run_of(&client.send("POST", EXECUTE, &key, &started)?))
            }
            S::GraphqlStart => mutation(
                "mutation ($n: String!) { executeComposition(request: { name: $n }, respondAsync: true) { runId } }",
                "executeComposition",
                json!({ "n": self.composition() }),
            ),
            S::McpTask => {
                let call = json!({ "name": self.composition(), "arguments": {} });
                let answer = client.mcp("tools/call", call)?;
                Ok(answer["result"]["taskId"].as_str().map(ToOwned::to_owned))
            }
            S::RestApprove => {
                Ok(run_of(&client.post_async(&run("approve"), &json!({ "approved": true }))?))
            }
            S::RestDeny => {
                Ok(run_of(&client.post_async(&run("approve"), &json!({ "approved": false }))?))
            }
            S::RestCancel => Ok(run_of(&client.post_async(&run("cancel"), &json!({}))?)),
            S::RestResume => {
                let known = json!({ "assume": "done", "value": {} });
                Ok(run_of(&client.post_async(&run("resume"), &known)?))
            }
            S::RestRollback => Ok(run_of(&client.post_async(&run("rollback"), &json!({}))?)),
            S::GraphqlApprove => mutation(
                "mutation ($r: ID!) { approveRun(runId: $r, approved: true, respondAsync: true) { runId } }",
                "approveRun",
                json!({ "r": subject }),
            ),
            S::GraphqlCancel => mutation(
                "mutation ($r: ID!) { cancelRun(runId: $r, respondAsync: true) { runId } }",
                "cancelRun",
                json!({ "r": subject }),
            ),
            S::McpCancel => {
                let answer = client.mcp("tasks/cancel", json!({ "taskId": subject }))?;
                Ok(answer.get("result").map(|_| subject.to_owned()))
            }
        }
    }
}

/// The run that an answer acknowledges.
fn run_of(answer: &Answer) -> Option<String> {
    let is_good = matches!(answer.status, 200 | 202);
    let run = || answer.json()["run_id"].as_str().map(ToOwned::to_owned);
    is_good.then(run).flatten()
}

fn status_of(answer: &Answer) -> Option<String> {
    let status = || answer.json()["status"].as_str().map(ToOwned::to_owned);
    (answer.status == 200).then(status).flatten()
}

const COLUMNS: &[&str] = &["kills", "acknowledged", "read at once", "unreadable", "lost"];

/// A server that is killed again and again.
struct Lane {
    world: World,
    served: Served,
    chance: Chance,
    table: Table,
    findings: Vec<String>,
}

fn world() -> World {
    let world = World::new();
    world.file("segue.yaml", format!("{CONFIG}server: {{ token: {OPERATOR} }}\n"));
    for (name, text) in COMPOSITIONS {
        world.file(&format!("lib/{name}.yaml"), text);
    }
    world
}

impl Lane {
    fn new(seed: u64) -> Lane {
        let world = world();
        let served = Served::start(&world, "sqlite:s.db", &[]);
        let table = Table::new("acknowledged", COLUMNS);
        Lane { world, served, chance: Chance(seed), table, findings: Vec::new() }
    }

    fn client(&self) -> Client {
        Client::of(&self.served, OPERATOR)
    }

    /// What requests are about: runs that stand as they must, or keys.
    fn subjects(&mut self, surface: Surface) -> Vec<String> {
        let client = self.client();
        let Some(before) = surface.before() else {
            return (0..REQUESTS).map(|_| format!("key-{}", self.chance.next())).collect();
        };
        let body = json!({ "name": surface.composition() });
        let start = || run_of(&client.post_async(EXECUTE, &body).unwrap()).expect("a run");
        let runs: Vec<String> = (0..REQUESTS).map(|_| start()).collect();
        runs.into_iter().filter(|run| self.reaches(run, &[before]).is_ok()).collect()
    }

    /// Waits until a run has one of these statuses; the error is how it stands instead.
    fn reaches(&self, run: &str, wanted: &[&str]) -> std::result::Result<(), String> {
        let client = self.client();
        let begun = Instant::now();
        loop {
            let answer = client.get(&format!("/api/v1/runs/{run}")).unwrap();
            let status = status_of(&answer).unwrap_or_else(|| answer.status.to_string());
            if wanted.contains(&&*status) {
                return Ok(());
            }
            if begun.elapsed() > EFFECT_MAX {
                return Err(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends all at once; whichever thread has an acknowledgement first kills the server.
    fn send_and_kill(&self, surface: Surface, subjects: &[String]) -> BTreeMap<String, String> {
        let (client, pid) = (self.client(), self.served.pid());
        let send = |subject: &String| {
            let acknowledged = surface.send(&client, subject).ok().flatten();
            if acknowledged.is_some() {
                kill_now(pid);
            }
            acknowledged.map(|run| (subject.clone(), run))
        };
        std::thread::scope(|scope| {
            let send = &send;
            let threads: Vec<_> = subjects.iter().map(|s| scope.spawn(move || send(s))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Sends one after the other and reads at once what was acknowledged, here and in another process.
    fn send_and_read(&mut self, surface: Surface, subjects: &[String]) -> BTreeMap<String, String> {
        let client = self.client();
        let mut acknowledged = BTreeMap::new();
        for (at, subject) in subjects.iter().enumerate() {
            let Some(run) = surface.send(&client, subject).unwrap() else { continue };
            let here = client.get(&format!("/api/v1/runs/{run}")).unwrap();
            self.table.add(surface.title(), "read at once", 1);
            let mut is_readable = here.status == 200;
            if at == 0 {
                let args = ["--config", "segue.yaml", "--store", "sqlite:s.db", "runs", "show"];
                let shown = self.world.segue(&[&args[..], &[&run, "--json"]].concat());
                is_readable &= shown.code == Some(0);
            }
            if !is_readable {
                self.table.add(surface.title(), "unreadable", 1);
                let what = format!("{}: {run} cannot be read: {}", surface.title(), here.status);
                self.findings.push(what);
            }
            acknowledged.insert(subject.clone(), run);
        }
        kill_now(self.served.pid());
        acknowledged
    }

    fn cycle(&mut self, number: u64) {
        let at = usize::try_from(number).unwrap() % SURFACES.len();
        let surface = SURFACES[at];
        let subjects = self.subjects(surface);
        let acknowledged = if self.chance.below(4) == 0 {
            self.send_and_read(surface, &subjects)
        } else {
            self.send_and_kill(surface, &subjects)
        };
        self.restart();
        self.table.add(surface.title(), "kills", 1);
        for (subject, run) in acknowledged {
            self.table.add(surface.title(), "acknowledged", 1);
            if let Err(lost) = self.is_kept(surface, &subject, &run) {
                self.table.add(surface.title(), "lost", 1);
                self.findings.push(format!("{}: lost {run}: {lost}", surface.title()));
            }
        }
        if surface.before() == Some("running") {
            subjects.iter().for_each(|run| {
                let _ = self.client().post(&format!("/api/v1/runs/{run}/cancel"), &json!({}));
            });
        }
    }

    fn restart(&mut self) {
        kill_now(self.served.pid());
        let next = Served::start(&self.world, "sqlite:s.db", &[]);
        kill(std::mem::replace(&mut self.served, next));
    }

    /// Holds what was acknowledged against what the next server knows.
    fn is_kept(&self, surface: Surface, key: &str, run: &str) -> std::result::Result<(), String> {
        let client = self.client();
        let found = client.get(&format!("/api/v1/runs/{run}")).unwrap();
        if found.status != 200 {
            return Err(format!("{} after the restart", found.status));
        }
        if surface == S::RestKey {
            let again = surface.send(&client, key).unwrap();
            if again.as_deref() != Some(run) {
                return Err(format!("the same key is another run: {again:?}"));
            }
        }
        if surface.after().is_empty() {
            return Ok(());
        }
        let reached = self.reaches(run, surface.after());
        reached.map_err(|status| format!("acknowledged, and `{status}` after the restart"))
    }
}

/// A: nothing that was acknowledged is lost by `kill -9`, and it can be read at once.
#[test]
fn acknowledged_means_durable() {
    let (kills, seed) = (count("SEGUE_ATTACK_KILLS", 24, 400), seed("acknowledged"));
    let begun = Instant::now();
    let mut table = Table::new("acknowledged", COLUMNS);
    let mut findings = Vec::new();
    std::thread::scope(|scope| {
        let work = |lane: u64| {
            move || {
                let mut work = Lane::new(seed.wrapping_add(lane));
                (0..kills).filter(|n| n % LANES == lane).for_each(|n| work.cycle(n));
                (work.table, work.findings)
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|lane| scope.spawn(work(lane))).collect();
        for (counts, found) in lanes.into_iter().map(|lane| lane.join().expect("see above")) {
            table.add_all(&counts);
            findings.extend(found);
        }
    });
    table.print();
    say(&format!("acknowledged: took {:.0?}", begun.elapsed()));
    nothing(&findings);
    assert_eq!(table.sum("kills"), kills);
    assert!(table.sum("acknowledged") >= kills / 2, "too few acknowledgements to prove anything");
}

/// How long a full store may be called ready: readiness is looked at once in a while.
const READY_MAX: Duration = Duration::from_secs(30);

/// A: on a store that takes no more, nothing is acknowledged that is not there, and the server says that
/// it is not ready. The bound on the size of files stands for a full disk.
#[test]
fn a_full_store_acknowledges_nothing() {
    let world = world();
    let blocks = if is_long() { 4_000 } else { 2_000 };
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = world.command("sh");
    command.args(["-c", &script, SEGUE]);
    let served = Served::start_by(command, "sqlite:s.db", &[]);
    let client = Client::of(&served, OPERATOR);
    let large = "x".repeat(200_000);
    let (mut accepted, mut refused, mut absent) = (0_u64, 0_u64, Vec::new());
    while refused < 20 && accepted < 400 {
        // Not the same text twice, as large values are kept once.
        let text = format!("{accepted}-{refused}-{large}");
        let step = json!({ "id": "a", "tool": "echo", "parameters": { "text": scrambled(&text) } });
        let body = json!({ "composition": { "name": "large", "steps": [step] } });
        let answer = client.post_async(EXECUTE, &body).unwrap();
        match run_of(&answer) {
            None => refused += 1,
            Some(run) => {
                accepted += 1;
                let found = client.get(&format!("/api/v1/runs/{run}")).unwrap().status;
                if found != 200 {
                    absent.push(format!("202 for {run}, then {found}"));
                }
            }
        }
        if absent.len() > 20 {
            break;
        }
    }
    // A store that is full for large values may have room for small ones.
    let small = json!({ "composition": { "name": "small", "steps": [
        { "id": "a", "tool": "echo", "parameters": {} }] } });
    let mut is_ready = true;
    let until = Instant::now() + READY_MAX;
    while is_ready && Instant::now() < until {
        let is_taken = run_of(&client.post_async(EXECUTE, &small).unwrap()).is_some();
        is_ready = is_taken || client.get("/readyz").unwrap().status != 503;
    }
    let missing = absent.len();
    say(&format!(
        "full store: {accepted} accepted, {refused} refused, {missing} of the accepted absent, ready at the end: {is_ready}"
    ));
    nothing(&absent);
    assert!(refused > 0, "the store never was full");
    assert!(!is_ready, "ready on a store that takes no run");
}

/// A text of the same length that does not compress.
fn scrambled(text: &str) -> String {
    let seed = text.bytes().take(20).fold(7, |h: u64, b| h.wrapping_mul(31) ^ u64::from(b));
    let mut chance = Chance(seed);
    let mut scrambled = String::new();
    while scrambled.len() < text.len() {
        let _ = write!(scrambled, "{:016x}", chance.next());
    }
    scrambled
}
