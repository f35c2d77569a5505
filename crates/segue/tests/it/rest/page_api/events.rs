//! `GET /api/v1/events`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::view::parse_rfc3339;

use super::super::{one, served, world};
use super::{EXECUTE, run_as, served_to_two};
use crate::served::{Served, TOKEN};
use crate::support::{Json, SEGUE, json};

#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    kind: String,
    data: Json,
}

/// Listens with this query and `Last-Event-ID`.
fn listen(
    served: &Served,
    token: &str,
    query: &str,
    last: Option<&str>,
) -> impl Iterator<Item = Event> + use<> {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Authorization", &*bearer)];
    headers.extend(last.map(|last| ("Last-Event-ID", last)));
    let mut stream = served.connect();
    let request = served.request("GET", &format!("/api/v1/events{query}"), &headers, "");
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    std::iter::from_fn(move || {
        let (mut id, mut kind, mut data) = (String::new(), String::new(), None);
        loop {
            let line = lines.next()?;
            if let Some(text) = line.strip_prefix("id: ") {
                text.clone_into(&mut id);
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = Some(serde_json::from_str(text).unwrap());
            } else if let (true, Some(data)) = (line.is_empty(), data.take()) {
                return Some(Event { id, kind, data });
            }
        }
    })
}

fn is_run<'a>(run_id: &'a str, status: &'a str) -> impl Fn(&Event) -> bool + 'a {
    move |event| {
        event.kind == "run" && event.data["run_id"] == run_id && event.data["status"] == status
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// One stream tells of runs, of their steps, of questions and of what is served.
#[test]
fn every_change_is_in_one_stream() {
    let (world, served) = served("");
    let asks = json!({ "composition": one("command:note", &json!({ "text": "x" })) });
    let waits = served.post(EXECUTE, &asks).is(202)["run_id"].as_str().unwrap().to_owned();
    let mut heard = listen(&served, TOKEN, &format!("?run={waits}"), None);
    let first = heard.next().unwrap();
    assert_eq!((&*first.kind, &first.data["gap"]), ("ready", &json!(false)));
    let questions = heard.find(|event| event.kind == "questions").unwrap();
    assert_eq!(questions.data["count"], 1);
    served.post(&format!("/api/v1/runs/{waits}/approve"), &json!({ "approved": true })).is(200);
    let told: Vec<Event> = heard
        .by_ref()
        .scan(0, |seen, event| {
            let wanted = event.kind == "ended"
                || is_run(&waits, "success")(&event)
                || event.kind == "questions" && event.data["count"] == 0;
            *seen += usize::from(wanted);
            Some((*seen, event))
        })
        .take_while(|(seen, event)| *seen < 3 || event.kind == "step")
        .map(|(_, event)| event)
        .collect();
    let steps: Vec<&Event> = told.iter().filter(|event| event.kind == "step").collect();
    assert!(steps.iter().all(|step| step.data["run_id"] == waits), "{steps:?}");
    let changes: Vec<_> = steps.iter().map(|step| step.data["event"].as_str().unwrap()).collect();
    assert_eq!(changes, ["step_started", "step_succeeded"], "{told:?}");
    // What is served changes.
    world.file("lib/other.yaml", "name: other\nsteps: [{ id: a, tool: echo }]\n");
    let changed = heard.find(|event| event.kind == "changed").unwrap();
    assert_eq!(changed.data, json!({ "compositions": true }));
    served.get("/api/v1/events?run=none").is_problem(404, "not-found");
    served.get("/api/v1/events?after=x").is_problem(400, "invalid-field");
    let many = "run=x&".repeat(17);
    served.get(&format!("/api/v1/events?{many}")).is_problem(422, "invalid-field");
}

/// A run of another process is told soon, with its steps, and told again when its process is killed.
#[test]
fn runs_of_other_processes_are_in_the_stream() {
    let world = world("");
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let quick = "name: quick\nsteps: [{ id: a, tool: echo, parameters: { x: 1 } }]\n";
    world.file("quick.yaml", quick);
    let slow = "name: slow\nsteps: [{ id: a, tool: echo }, { id: b, wait: 10m, depends_on: [a] }]";
    world.file("slow.yaml", slow);
    let mut heard = listen(&served, TOKEN, "", None);
    assert_eq!(heard.next().unwrap().kind, "ready");
    let mut delays = Vec::new();
    for _ in 0..5 {
        world.segue(&["--store", "sqlite:s.db", "run", "quick.yaml", "-q"]).exits(0);
        let told = heard.find(|event| event.data["status"] == "success").unwrap();
        let now = now_ms();
        let run = served.get(&format!("/api/v1/runs/{}", told.data["run_id"].as_str().unwrap()));
        assert_eq!(run.is(200)["name"], "quick");
        let listed = served.get("/api/v1/runs?limit=1").is(200);
        assert_eq!(listed["runs"][0]["tools"], json!(["builtin:echo"]), "{listed}");
        let ended = parse_rfc3339(told.data["completed_at"].as_str().unwrap()).unwrap();
        delays.push(now.saturating_sub(ended));
    }
    delays.sort_unstable();
    println!("from the end of a run to its event: {delays:?} ms");
    assert!(delays[2] <= 300, "{delays:?}");
    let mut child = world
        .command(SEGUE)
        .args(["--store", "sqlite:s.db", "run", "slow.yaml", "-q"])
        .spawn()
        .unwrap();
    let running = heard.find(|event| event.data["status"] == "running").unwrap();
    assert_eq!(running.data["interrupted"], false);
    let run_id = running.data["run_id"].as_str().unwrap();
    let mut steps = listen(&served, TOKEN, &format!("?run={run_id}"), None);
    steps.find(|event| event.kind == "step" && event.data["step"] == "b").unwrap();
    let listed = served.get("/api/v1/runs?limit=1").is(200)["runs"][0].clone();
    let progress = (&listed["steps_done"], &listed["steps_total"]);
    assert_eq!(progress, (&json!(1), &json!(2)), "{listed}");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = heard.find(|event| event.data["interrupted"] == true).unwrap();
    assert_eq!(
        (&killed.data["run_id"], &killed.data["status"]),
        (&json!(run_id), &json!("running"))
    );
    assert_eq!(killed.data["steps_done"], 1, "{killed:?}");
    let listed = served.get("/api/v1/runs?limit=1").is(200);
    assert_eq!(listed["runs"][0]["interrupted"], true, "{listed}");
}

/// A client that comes back with any cursor hears the rest, and each step once.
#[test]
fn a_client_comes_back_with_its_cursor() {
    let (_world, served) = served("");
    let mut first = listen(&served, TOKEN, "", None);
    let start = first.next().unwrap().id;
    let runs: Vec<String> =
        (0..3).map(|n| run_as(&served, TOKEN, &one("echo", &json!({ "n": n })))).collect();
    let query = format!("?run={}", runs[0]);
    // When the questions are counted is another matter.
    let resumed = |last: &str| {
        listen(&served, TOKEN, &query, Some(last)).filter(|event| event.kind != "questions")
    };
    let all: Vec<Event> = resumed(&start).take(7).collect();
    let of_kind = |events: &[Event], kind: &str| {
        let found = events.iter().filter(|event| event.kind == kind);
        found.map(|event| event.data.clone()).collect::<Vec<_>>()
    };
    let told = of_kind(&all, "run");
    let ids: Vec<&str> = told.iter().map(|run| run["run_id"].as_str().unwrap()).collect();
    assert_eq!(ids, runs, "each that changed, once: {all:?}");
    let steps = of_kind(&all, "step");
    assert_eq!(steps.len(), 2, "{all:?}");
    // From behind each event: the others.
    for (at, event) in all.iter().enumerate() {
        let rest: Vec<Event> = resumed(&event.id).take(all.len() - at).collect();
        assert_eq!(rest[0].kind, "ready");
        for kind in ["run", "step", "ended"] {
            assert_eq!(of_kind(&rest, kind), of_kind(&all[at + 1..], kind), "{kind} behind {at}");
        }
    }
    let from = format!("?run={}@{}", runs[0], steps[1]["seq"]);
    let late: Vec<Event> = listen(&served, TOKEN, &from, None).take(3).collect();
    assert_eq!(of_kind(&late, "step"), steps[1..]);
    let foreign = listen(&served, TOKEN, "", Some("999999999")).next().unwrap();
    assert_eq!(foreign.data["gap"], true, "a cursor of another store: {foreign:?}");
}

/// A principal hears of its own runs and questions; an administrator of all.
#[test]
fn a_client_receives_only_its_own_runs() {
    let (_world, served) = served_to_two("memory");
    let mut bob = listen(&served, "bob-token", "", None);
    let mut root = listen(&served, TOKEN, "", None);
    assert!(bob.next().is_some() && root.next().is_some());
    let asks = one("command:note", &json!({ "text": "x" }));
    let hers = run_as(&served, "ada-token", &asks);
    let his = run_as(&served, "bob-token", &one("echo", &json!({})));
    let seen = root.by_ref().take_while(|event| event.data["run_id"] != his);
    let seen: Vec<Event> = seen.collect();
    assert!(seen.iter().any(is_run(&hers, "waiting")), "{seen:?}");
    let first = bob.find(|event| event.kind == "run").unwrap();
    assert_eq!(first.data["run_id"], his, "he hears nothing of her run");
    let path = format!("/api/v1/events?run={hers}");
    let refused = served.send_by("bob-token", "GET", &path, &[], &json!(null));
    refused.is_problem(404, "not-found");
    let count = |token: &str| {
        let mut heard = listen(&served, token, "", None);
        heard.find(|event| event.kind == "questions").unwrap().data["count"].clone()
    };
    assert_eq!(["ada-token", "bob-token", TOKEN].map(count), [json!(1), json!(0), json!(1)]);
}
