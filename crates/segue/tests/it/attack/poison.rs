//! Documents that are made to hang, fill or end a server: it answers others meanwhile, its memory stays
//! bounded, each run ends with an error, and a restart is clean.

mod cases;
mod health;

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use self::cases::{CASES, Case, ENDLESS, ladder, numbers};
use self::health::{Health, peak_bytes, quantile};
use super::client::Client;
use super::{OPERATOR, is_long, kill, nothing, say};
use crate::served::{Answer, Served};
use crate::support::{Json, SEGUE, World, json, until};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// Each run is given 3 s, or the 10 s that an evaluation may take; a case may take so much longer before it
/// counts as never ending.
const CASE_MAX: Duration = Duration::from_mins(1);

/// Peak memory of the server.
const PEAK_BYTES_MAX: u64 = 1_000_000_000;

/// What the kernel lets the server have, so that one that is not bounded does not take the machine.
const ADDRESS_KIB_MAX: u64 = 6_000_000;

/// How long `/healthz` may take.
const HEALTH_MAX: Duration = Duration::from_millis(100);

/// By how much more it may take in the short form, which runs unoptimised beside other tests: there the
/// 99th percentile must stay below this, and no answer may take [`STALL_MAX`].
const BUSY_FACTOR: u32 = 5;

/// A server that stands still for this long is blocked, on whichever machine.
const STALL_MAX: Duration = Duration::from_secs(2);

/// How long a start may take before the server is ready.
const READY_MAX: Duration = Duration::from_secs(5);

const GOOD: &str = "name: good\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n";

fn world() -> World {
    let world = World::new();
    world.file("ladder.json", ladder().to_string());
    world.file("server.py", include_str!("poison/server.py"));
    world.file(
        "segue.yaml",
        format!(
            "compositions: ['lib/*.yaml']\nserver: {{ token: {OPERATOR} }}\n\
             mcpServers: {{ ladder: {{ command: python3, args: [server.py, ladder.json] }} }}\n"
        ),
    );
    world.file("lib/good.yaml", GOOD);
    world
}

fn start(world: &World) -> Served {
    let script = format!("ulimit -v {ADDRESS_KIB_MAX}; exec \"$0\" \"$@\"");
    let mut command: Command = world.command("sh");
    command.args(["-c", &script, SEGUE]);
    Served::start_by(command, "sqlite:s.db", &[])
}

/// A server under attack, and the client that polls its health.
struct Patient {
    served: Served,
    health: Health,
    _world: World,
}

impl Patient {
    fn new() -> Patient {
        let world = world();
        let served = start(&world);
        let health = Health::of(&served.address);
        Patient { served, health, _world: world }
    }
}

/// What came of a case.
struct Outcome {
    took: Duration,
    peak: u64,
    health: Vec<Duration>,
    /// The code of the error, or `success`.
    code: String,
    wrong: Vec<String>,
}

/// Sends a case and looks at everything that must hold meanwhile.
fn meet(case: &Case, patient: &mut Patient) -> Outcome {
    patient.health.take();
    let client = Client::of(&patient.served, OPERATOR).waiting(CASE_MAX);
    let begun = Instant::now();
    let answer = client.send_text("POST", EXECUTE, &[], &(case.body)());
    let took = begun.elapsed();
    let peak = peak_bytes(patient.served.pid());
    let mut wrong = Vec::new();
    let code = match &answer {
        Ok(answer) => code_of(answer).unwrap_or_else(|what| {
            wrong.push(what);
            answer.status.to_string()
        }),
        Err(error) => {
            wrong.push(format!("no answer after {took:.1?} ({:?})", error.kind()));
            "none".to_owned()
        }
    };
    if code == "success" && !case.may_succeed {
        wrong.push("ended well".to_owned());
    }
    if let Some(status) = patient.served.ended() {
        wrong.push(format!("the server has ended: {status}"));
    } else if client.get("/healthz").map_or(0, |answer| answer.status) != 200 {
        wrong.push("the server does not answer any more".to_owned());
    }
    if peak > PEAK_BYTES_MAX {
        wrong.push(format!("{} MB", peak / 1_000_000));
    }
    let health = patient.health.take();
    wrong.extend(unhealthy(&health));
    Outcome { took, peak, health, code, wrong }
}

/// The code of the error that an answer names, or what is wrong with the answer.
fn code_of(answer: &Answer) -> Result<String, String> {
    let body: Json = serde_json::from_str(&answer.body).map_err(|error| format!("{error}"))?;
    if answer.status == 200 && body["success"] == true {
        return Ok("success".to_owned());
    }
    let error = if answer.status == 200 { &body["errors"][0] } else { &body };
    let said = error["message"].as_str().or(error["detail"].as_str()).unwrap_or_default();
    match error["code"].as_str() {
        Some(code) if answer.status < 500 && !said.is_empty() && !said.contains("panic") => {
            Ok(code.to_owned())
        }
        _ => Err(format!("no clear error: {} {:.300}", answer.status, answer.body)),
    }
}

/// What is wrong with how `/healthz` was answered meanwhile.
fn unhealthy(samples: &[Duration]) -> Option<String> {
    let (most, longest) = (quantile(samples, 990), quantile(samples, 1000));
    let is_well = if is_long() {
        longest <= HEALTH_MAX
    } else {
        most <= HEALTH_MAX * BUSY_FACTOR && longest < STALL_MAX
    };
    (!is_well).then(|| format!("/healthz took {most:.0?} (99 %), {longest:.0?} at most"))
}

/// B: each document ends in a clear error, in time, in little memory, and other clients do not
/// notice.
#[test]
fn poison_ends_in_an_error() {
    let mut patient = Patient::new();
    let mut findings = Vec::new();
    let mut all = Vec::new();
    let mut text = String::from("\npoison: code, time, peak memory, /healthz 99 % and maximum\n");
    for case in CASES {
        let Outcome { took, peak, health, code, wrong } = meet(case, &mut patient);
        let (most, longest) = (quantile(&health, 990), quantile(&health, 1000));
        let (peak, mark) = (peak / 1_000_000, if wrong.is_empty() { "" } else { "  WRONG" });
        let _ = writeln!(
            text,
            "{:<42} {code:<22} {took:>8.1?} {peak:>6} MB {most:>8.0?} {longest:>8.0?}{mark}",
            case.name
        );
        all.extend(health);
        if !wrong.is_empty() {
            findings.push(format!("{}: {}", case.name, wrong.join("; ")));
            // The next case meets a server that is well; this one is killed.
            patient = Patient::new();
        }
    }
    let (most, longest) = (quantile(&all, 990), quantile(&all, 1000));
    say(&format!(
        "{text}poison: {} cases, {} wrong; /healthz {} samples, {most:.1?} (99 %), {longest:.1?} at most\n",
        CASES.len(),
        findings.len(),
        all.len()
    ));
    nothing(&findings);
}

/// A run that evaluates for long, whatever bounds each evaluation has: step after step. They wait for a
/// call, because a run is acknowledged with everything that its first turn evaluates.
fn long_poison() -> Json {
    let call = json!({ "id": "call", "tool": "echo", "parameters": {} });
    let steps = (0..200)
        .map(|n| {
            let value = format!("{{{{ input.v | json_query('{ENDLESS}') }}}}");
            let set = json!({ format!("v{n}"): value });
            let on_failure = json!({ "action": "continue" });
            json!({ "id": format!("s{n}"), "set": set, "on_failure": on_failure, "depends_on": ["call"] })
        });
    let steps: Vec<Json> = std::iter::once(call).chain(steps).collect();
    let composition = json!({ "name": "long-poison", "max_concurrency": 1, "steps": steps });
    let input = json!({ "v": numbers(1_000) });
    json!({ "composition": composition, "input": input, "options": { "timeout": "120s" } })
}

/// Starts one and returns its id.
fn begin(served: &Served) -> String {
    let client = Client::of(served, OPERATOR);
    let answer = client.post_async(EXECUTE, &long_poison()).unwrap();
    assert_eq!(answer.status, 202, "{:.300}", answer.body);
    answer.json()["run_id"].as_str().unwrap().to_owned()
}

/// Starts the next server; how long it took until it was ready, or what was wrong.
fn restart(world: &World, before: Served) -> (Served, Result<Duration, String>) {
    kill(before);
    let begun = Instant::now();
    let served = start(world);
    let client = Client::of(&served, OPERATOR).waiting(CASE_MAX);
    loop {
        let ready = client.get("/readyz").map_or(0, |answer| answer.status);
        if ready == 200 {
            return (served, Ok(begun.elapsed()));
        }
        if begun.elapsed() > READY_MAX * BUSY_FACTOR {
            return (served, Err(format!("/readyz says {ready} after {:.1?}", begun.elapsed())));
        }
    }
}

/// The status of a run, once it has one of these.
fn reaches(served: &Served, run: &str, wanted: &[&str]) -> Result<String, String> {
    let client = Client::of(served, OPERATOR).waiting(CASE_MAX);
    let begun = Instant::now();
    loop {
        let answer =
            client.get(&format!("/api/v1/runs/{run}")).map_err(|error| format!("{error}"))?;
        let status = answer.json()["status"].as_str().unwrap_or_default().to_owned();
        if wanted.contains(&&*status) {
            return Ok(status);
        }
        if begun.elapsed() > CASE_MAX {
            return Err(format!("`{status}` after {:.0?}", begun.elapsed()));
        }
    }
}

/// Cancels a poison run, which must not need evaluating it.
fn cancel(served: &Served, run: &str) -> Result<String, String> {
    let client = Client::of(served, OPERATOR).waiting(CASE_MAX);
    let answer = client.post(&format!("/api/v1/runs/{run}/cancel"), &json!({}));
    let answer = answer.map_err(|error| format!("cancel: no answer ({:?})", error.kind()))?;
    if answer.status >= 400 {
        return Err(format!("cancel: {} {:.200}", answer.status, answer.body));
    }
    reaches(served, run, &["cancelled"]).map_err(|status| format!("cancelled, and {status}"))
}

/// A command that kills its caller, as a document would that no limit stops.
const DEADLY: &str = "\
commands: { deadly: { argv: [sh, -c, 'kill -9 $PPID'], destructive: false, idempotent: true } }
";

const BASE: [&str; 4] = ["--config", "segue.yaml", "--store", "sqlite:s.db"];

/// Surfaces that list runs and do not mark this one as set aside.
fn not_said_to_be_aside(world: &World, run: &str) -> Vec<String> {
    let shows: [&[&str]; 3] = [&["runs"], &["runs", "show", run], &["doctor"]];
    let says = |args: &[&str]| {
        let done = world.segue(&[&BASE[..], args].concat());
        (done.stdout + &done.stderr).contains("set aside")
    };
    let silent = shows.into_iter().filter(|args| !says(args));
    silent
        .map(|args| format!("`segue {}` does not say that it is set aside", args.join(" ")))
        .collect()
}

/// B: killed in the middle of a poison run, a server starts clean, and the run can be cancelled, which
/// needs evaluating nothing of it.
#[test]
fn a_restart_after_poison_is_clean() {
    let world = world();
    let served = start(&world);
    let run = begin(&served);
    let (served, ready) = restart(&world, served);
    say(&format!("poison: ready after a kill: {ready:.1?}"));
    let mut wrong: Vec<String> = ready.err().into_iter().collect();
    wrong.extend(cancel(&served, &run).err());
    nothing(&wrong);
    let good = Client::of(&served, OPERATOR).post(EXECUTE, &json!({ "name": "good" })).unwrap();
    assert_eq!(good.is(200)["success"], true);
}

/// B: a run during which the process died twice is set aside: the third one starts clean, says so, serves
/// others, and cancels it.
#[test]
fn a_run_that_ends_its_process_twice_is_set_aside() {
    let world = world();
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    world.file("segue.yaml", config + DEADLY);
    world.file("lib/deadly.yaml", "name: deadly\nsteps: [ { id: a, tool: 'command:deadly' } ]\n");
    let mut served = start(&world);
    let _ = Client::of(&served, OPERATOR).post_async(EXECUTE, &json!({ "name": "deadly" }));
    until(|| served.ended());
    let again = world.segue(&[&BASE[..], &["resume", "--all"]].concat());
    assert_eq!(again.code, None, "it is taken up once more: {again:?}");
    let (mut served, ready) = restart(&world, served);
    say(&format!("poison: ready after two deaths: {ready:.1?}"));
    let mut wrong: Vec<String> = ready.err().into_iter().collect();
    let listed = Client::of(&served, OPERATOR).get("/api/v1/runs").unwrap().json();
    let run = listed["runs"][0]["run_id"].as_str().unwrap_or_else(|| panic!("{listed}"));
    wrong.extend(not_said_to_be_aside(&world, run));
    wrong.extend(cancel(&served, run).err());
    let good = Client::of(&served, OPERATOR).post(EXECUTE, &json!({ "name": "good" })).unwrap();
    assert_eq!(good.is(200)["success"], true);
    if let Some(status) = served.ended() {
        wrong.push(format!("the server has ended: {status}"));
    }
    nothing(&wrong);
}

/// Files that a program may stumble over, and what is in them.
fn bad_files() -> Vec<(String, Vec<u8>)> {
    let expression = |text: &str| {
        format!("name: bad\nsteps: [ {{ id: a, set: {{ v: '{{{{ {text} }}}}' }} }} ]\n")
            .into_bytes()
    };
    let texts =
        ["\u{a0}x", "1 – 2", "“x”", "€", "x\u{a0}|\u{a0}upper", "'a' ~\u{2009}b", "𝔞", "\u{feff}"];
    let mut all: Vec<(String, Vec<u8>)> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| (format!("lib/bad{n}.yaml"), expression(text)))
        .collect();
    all.push(("lib/deep.yaml".to_owned(), format!("{}x\n", "- ".repeat(100_000)).into_bytes()));
    all.push(("lib/deep.json".to_owned(), "[".repeat(100_000).into_bytes()));
    all.push(("lib/bytes.yaml".to_owned(), b"name: \xff\xfe\nsteps: []\n".to_vec()));
    all
}

/// B: a bad file that appears is a finding about that file and nothing else, for a server that runs and
/// for every command.
#[test]
fn a_bad_file_is_a_finding_and_nothing_else() {
    let world = world();
    let mut served = start(&world);
    let mut wrong = Vec::new();
    for (file, bytes) in bad_files() {
        world.file(&file, bytes);
        // Something good comes with it: once that is served, the bad one has been seen.
        let name = format!("with-{}", file.replace(['/', '.'], "-"));
        world.file(&format!("lib/{name}.yaml"), GOOD.replace("good", &name));
        let client = Client::of(&served, OPERATOR);
        let is_served = until(|| {
            if served.ended().is_some() {
                return Some(false);
            }
            let answer = client.post(EXECUTE, &json!({ "name": name }));
            answer.is_ok_and(|answer| answer.status == 200).then_some(true)
        });
        if !is_served {
            wrong.push(format!("{file}: the server has ended"));
        }
        let base = ["--config", "segue.yaml", "--store", "memory"];
        for (args, code) in [
            (vec!["check", &*file], 2),
            (vec!["check", "lib/good.yaml"], 0),
            (vec!["run", "good", "-q"], 0),
            (vec!["plan", "good"], 0),
            (vec!["tools"], 0),
        ] {
            let done = world.segue(&[&base[..], &args].concat());
            if done.code != Some(code) || done.stderr.contains("panicked") {
                let said: String = done.stderr.chars().take(200).collect();
                wrong.push(format!("{file}: {args:?} ends with {:?}: {said}", done.code));
            }
        }
        std::fs::remove_file(world.path(&file)).unwrap();
        if served.ended().is_some() {
            served = start(&world);
        }
    }
    say(&format!("poison: {} bad files, {} wrong", bad_files().len(), wrong.len()));
    nothing(&wrong);
}
