//! Stored runs: history, resuming, doubt, questions, rollback.

use std::io::{Read as _, Write as _};

use crate::support::{Json, SEGUE, World, json};

const NOTE: &str = "
name: note
steps:
  - { id: save, tool: checkpoint_save, parameters: { content: kept } }
  - { id: say, tool: echo, parameters: { id: '{{ save.id }}' } }
";

const ASK: &str = "
name: ask
steps:
  - { id: first, tool: echo, parameters: { n: 1 } }
  - { id: ask, approve: { message: 'go on with {{ first.n }}?' } }
  - { id: after, tool: echo, parameters: { by: '{{ ask.by }}' } }
";

fn last(world: &World) -> Json {
    world.json(0, &["runs", "show", "last", "--json"])
}

fn checkpoints(world: &World) -> usize {
    let listed = world.json(0, &["call", "checkpoint_list", "--json"]);
    listed["checkpoints"].as_array().unwrap().len()
}

#[test]
fn every_run_is_kept_and_listed_newest_first() {
    let world = World::with(NOTE);
    let first = world.run(0, &[]);
    world.file("d.yaml", "name: other\nsteps: [{ id: a, tool: fail }]");
    world.segue(&["run", "d.yaml"]).exits(1);
    let listed = world.json(0, &["runs", "--json"]);
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!((&runs[0]["name"], &runs[0]["status"]), (&json!("other"), &json!("failed")));
    assert_eq!((&runs[1]["run_id"], &runs[1]["success"]), (&first["run_id"], &json!(true)));
    let only = world.json(0, &["runs", "--status", "success", "--name", "not", "--json"]);
    assert_eq!(only["runs"].as_array().unwrap().len(), 1);
    // What is shown later is what was shown at once, but for the clock.
    let id = first["run_id"].as_str().unwrap();
    let shown = world.json(0, &["runs", "show", id, "--json"]);
    for field in ["output", "results", "steps", "errors", "status", "plan_hash", "state"] {
        assert_eq!(shown[field], first[field], "{field}");
    }
    let tail = &id[id.len() - 6..];
    assert_eq!(world.json(0, &["runs", "show", tail, "--json"])["run_id"], first["run_id"]);
    world.segue(&["runs", "show", "nosuch"]).exits(2);
}

#[test]
fn nothing_is_kept_in_memory() {
    let world = World::with(NOTE);
    world.segue(&["run", "c.yaml", "--store", "memory"]).exits(0);
    assert_eq!(world.json(0, &["runs", "--json"])["runs"], json!([]));
}

/// E1, J1: what was done before a crash stays done, whatever the moment of the crash.
#[test]
fn a_run_goes_on_after_a_crash_at_any_write() {
    for write in 1..=3 {
        let world = World::with(NOTE);
        let inject = format!("crash-after={write}");
        let crashed = world.segue(&["run", "c.yaml", "-q", "--inject", &inject]);
        assert_eq!(crashed.code, None, "{write}: {crashed:?}");
        let resumed = world.segue(&["resume", "last", "--json"]);
        if write == 1 {
            // A write was in flight, and its outcome is unknown.
            assert_eq!(resumed.exits(3).json()["waiting_for"][0]["kind"], "doubt");
            world.segue(&["resume", "last", "--assume", "failed"]).exits(4);
        } else if write == 2 {
            assert_eq!(resumed.exits(0).json()["status"], "success");
        } else {
            // It was over.
            assert_eq!(resumed.exits(0).json()["status"], "success");
            assert_eq!(last(&world)["status"], "success");
        }
        assert_eq!(checkpoints(&world), usize::from(write > 1), "{write}");
    }
}

/// S15, S16: doubt is cleared up by a named person, once, with a value that fits.
#[test]
fn doubt_waits_for_a_person() {
    let world = World::with(NOTE);
    let view = world.run(3, &["--inject", "lost=save"]);
    assert_eq!(
        (&view["status"], &view["errors"][0]["in_doubt"]),
        (&json!("waiting"), &json!(true))
    );
    world.segue(&["resume", "last"]).exits(3);
    let wrong = world.segue(&["resume", "last", "--assume", "done", "--value", "{"]).exits(2);
    assert!(wrong.stderr.contains("--value is not JSON"), "{}", wrong.stderr);
    let wrong = world.segue(&["resume", "last", "--assume", "done", "--value", "{\"id\": 7}"]);
    assert!(wrong.exits(2).stderr.contains("cannot have returned that"));
    world.segue(&["resume", "last", "--assume", "done", "--step", "say"]).exits(2);
    let value = r#"{"id": "c1", "summary": "", "created_at": "2026-01-01T00:00:00Z"}"#;
    let done = world.segue(&["resume", "last", "--assume", "done", "--value", value, "--json"]);
    assert_eq!(done.exits(0).json()["results"]["say"], json!({ "id": "c1" }));
    world.segue(&["resume", "last", "--assume", "done"]).exits(2);
    let journal = world.segue(&["runs", "show", "last", "--journal"]).exits(0).stdout;
    assert!(journal.contains(r#""resolved":{"node":[0,0],"done":true,"by":"#), "{journal}");
}

/// A1, A2: a question stands until it is answered, once.
#[test]
fn a_question_outlives_the_process() {
    let world = World::with(ASK);
    let view = world.run(3, &[]);
    assert_eq!(view["waiting_for"][0]["message"], "go on with 1?");
    world.segue(&["resume", "last"]).exits(3);
    world.segue(&["approve", "last", "--step", "after"]).exits(2);
    // Independent of the environment, which any process can set.
    let mut approve = world.command(SEGUE);
    approve.env("USER", "\u{1b}[31mroot").args(["approve", "last", "--json"]);
    let approved = crate::support::Done::of(approve.output().unwrap()).exits(0).json();
    let by = &approved["results"]["after"]["by"];
    assert_eq!(*by, me(&world));
    let again = world.segue(&["approve", "last"]).exits(2);
    assert!(again.stderr.contains("no open question"), "{}", again.stderr);
    let shown = world.segue(&["runs", "show", "last"]).stdout;
    assert!(shown.contains(&format!("Z  {}: approved `ask`", me(&world))), "{shown}");
    let decisions = &last(&world)["decisions"];
    assert_eq!((&decisions[0]["by"], &decisions[0]["what"]), (by, &json!("approved `ask`")));
    assert!(decisions[0]["at"].as_str().unwrap().ends_with('Z'), "{decisions}");
}

/// Who answers a question sees what it is: the step, the tool and its arguments, whichever the answer is.
#[test]
fn an_answer_shows_its_question() {
    let composition = "name: c\nsteps:\n  - { id: ask, approve: { message: 'go on?' } }\n  \
                       - { id: del, tool: checkpoint_delete, parameters: { id: k1 }, depends_on: [ask] }\n";
    for answer in [&["approve", "last"][..], &["approve", "last", "--deny"]] {
        let world = World::with(composition);
        world.run(3, &[]);
        let said = world.segue(&["approve", "last"]).exits(3).stderr;
        assert!(said.contains("step `ask` asks: go on?"), "{said}");
        let said = world.segue(answer).stderr;
        for part in ["step `del` asks: ", "checkpoint_delete", "k1"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let world = World::with(composition);
    world.run(3, &[]);
    let said = world.segue(&["approve", "last", "-q"]).exits(3).stderr;
    assert!(!said.contains("asks: "), "{said}");
}

/// A1: a denial and a cancel record who made them, too.
#[test]
fn the_person_who_refuses_or_cancels_is_named() {
    let world = World::with(ASK);
    for (words, what) in [("approve --deny", "refused `ask`"), ("cancel", "cancelled the run")] {
        world.run(3, &[]);
        let mut words: Vec<&str> = words.split(' ').collect();
        words.insert(1, "last");
        world.segue(&words);
        let decisions = last(&world)["decisions"].clone();
        let made: Vec<_> = decisions.as_array().unwrap().iter().map(|one| &one["what"]).collect();
        assert_eq!(made, [what]);
        assert_eq!(decisions[0]["by"], me(&world));
    }
}

/// Who runs the tests, as the system says.
fn me(world: &World) -> String {
    let named = world.command("id").arg("-un").output().unwrap();
    String::from_utf8(named.stdout).unwrap().trim().to_owned()
}

/// Attempts that failed are shown with their times and reasons.
#[test]
fn every_attempt_is_told() {
    let world = World::with(
        "name: c\nerror_handling: { backoff: { initial: 1ms, jitter: false } }\nsteps:\n\
         \x20 - { id: f, tool: fail, parameters: { times: 2, value: 1, message: too early }, retry_count: 2 }\n",
    );
    world.run(0, &[]);
    let attempts = last(&world)["attempts"].clone();
    let told = |n: usize| (&attempts[n]["step"], &attempts[n]["outcome"], &attempts[n]["message"]);
    for n in [0, 1] {
        assert_eq!(told(n), (&json!("f"), &json!("failed"), &json!("too early")), "{attempts}");
    }
    assert_eq!(told(2), (&json!("f"), &json!("done"), &Json::Null));
    let shown = world.segue(&["runs", "show", "last"]).stdout;
    assert_eq!(shown.matches("[tool-error] too early").count(), 2, "{shown}");
}

/// J5: damage is named for programs too, found by `doctor`, and can be got rid of.
#[test]
fn damaged_runs_are_named_and_forgotten() {
    let world = World::with(NOTE);
    world.run(0, &[]);
    world.run(0, &[]);
    let script = "import sqlite3, os\n\
        file = sqlite3.connect(os.environ['XDG_DATA_HOME'] + '/segue/segue.db')\n\
        file.execute('DELETE FROM turn WHERE number = 1')\n\
        file.execute('UPDATE run SET epoch = 9 WHERE number = 2')\n\
        file.commit()\n";
    assert!(world.command("python3").args(["-c", script]).status().unwrap().success());
    let listed = world.json(0, &["runs", "--json"]);
    assert_eq!(listed["damaged"].as_array().unwrap().len(), 1, "{listed}");
    let doctor = world.segue(&["doctor"]).exits(2).stdout;
    assert!(doctor.contains("is damaged") && doctor.contains("and 1 more"), "{doctor}");
    assert_eq!(world.json(0, &["runs", "prune", "--damaged", "--json"])["forgotten"], 2);
    assert_eq!(world.json(0, &["runs", "--json"]), json!({ "runs": [], "damaged": [] }));
    world.segue(&["doctor"]).exits(0);
}

/// A server forgets what the configuration says; a configuration that was merely found says so only of a
/// store in its own folder.
#[test]
fn a_server_forgets_old_runs() {
    use crate::support::until;

    let world = World::with(NOTE).merely_found();
    world.file("segue.yaml", "store: sqlite:own.db\nretention: { keep: 1 }\n");
    world.segue(&["trust", "-q"]).exits(0);
    let count = |args: &[&str]| {
        let listed = world.json(0, &[&["runs", "--json"], args].concat());
        listed["runs"].as_array().unwrap().len()
    };
    for _ in 0..3 {
        world.segue(&["run", "c.yaml", "-q"]).exits(0);
        world.segue(&["run", "c.yaml", "-q", "--store", "sqlite:../other.db"]).exits(0);
    }
    world.file("c.yaml", ASK);
    world.run(3, &[]);
    let other = ["--store", "sqlite:../other.db"];
    assert_eq!((count(&[]), count(&other)), (4, 3));
    let mut serve = world.command(SEGUE);
    serve.args(["serve", "--listen", "127.0.0.1:0"]).args(other);
    let mut serve = serve.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(serve.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("may only prune a `store` in its own folder") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0);
    }
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_eq!(count(&other), 3);
    let mut serve = world.command(SEGUE);
    serve.args(["serve", "--listen", "127.0.0.1:0"]).stderr(std::process::Stdio::null());
    let mut serve = serve.spawn().unwrap();
    until(|| (count(&[]) == 2).then_some(()));
    serve.kill().unwrap();
    serve.wait().unwrap();
}

/// Two runs that failed differ by why, and by what they were given.
#[test]
fn what_runs_failed_with_is_compared() {
    let world = World::with(
        "name: c\ninput: { type: object, properties: { why: { type: string } } }\n\
         steps: [{ id: f, tool: fail, parameters: { message: '{{ input.why }}' } }, { id: w, wait: 1ms }]\n",
    );
    let runs = [world.run(1, &["-i", "why=one"]), world.run(1, &["-i", "why=two"])];
    let [one, two] = [0, 1].map(|n: usize| runs[n]["run_id"].as_str().unwrap());
    let compared = world.json(0, &["runs", "compare", one, two, "--json"]);
    assert_eq!(compared["run"]["input"]["second"], json!({ "why": "two" }), "{compared}");
    assert_eq!(compared["run"]["errors"]["first"][0][2], "one", "{compared}");
    assert_eq!(compared["differences"][0]["error/message"]["second"], "two", "{compared}");
    assert!(compared["durations_ms"][1].is_u64());
    let text = world.segue(&["runs", "compare", one, two]).exits(0).stdout;
    assert!(text.contains("run input: {\"why\":\"one\"} → {\"why\":\"two\"}"), "{text}");
    assert!(world.segue(&["runs", "compare", one, one]).stdout.contains("nothing differs"));
}

#[test]
fn a_question_can_be_denied_and_a_waiting_run_cancelled() {
    let world = World::with(ASK);
    world.run(3, &[]);
    let denied = world.segue(&["approve", "last", "--deny", "--json"]).exits(3).json();
    assert_eq!(denied["status"], "denied");
    world.run(3, &[]);
    assert_eq!(world.segue(&["cancel", "last", "--json"]).exits(0).json()["status"], "cancelled");
    assert!(world.segue(&["cancel", "last"]).exits(1).stderr.contains("has ended"));
}

/// Following a run ends when no process drives it.
#[test]
fn a_run_without_an_owner_is_not_followed_for_ever() {
    let world = World::with(ASK);
    world.run(3, &[]);
    assert_eq!(world.json(3, &["runs", "show", "last", "--watch", "--json"])["status"], "waiting");
    assert_eq!(world.segue(&["run", "c.yaml", "-q", "--inject", "crash-after=1"]).code, None);
    let watched = world.segue(&["runs", "show", "last", "--watch", "--json"]).exits(1);
    assert!(watched.stderr.contains("no process is running it"), "{}", watched.stderr);
    assert_eq!(watched.json()["status"], "running");
}

/// `last` is resolved once, when following begins.
#[test]
fn another_run_does_not_disturb_who_follows_one() {
    use std::io::{BufRead as _, BufReader};

    let world = World::with(
        "name: slow\nsteps: [{ id: a, wait: 1ms }, { id: nap, tool: sleep, parameters: { ms: 3000 }, depends_on: a }]\n",
    );
    world.file("d.yaml", "name: other\nsteps: [{ id: b, tool: echo }]\n");
    let mut slow = world.command(SEGUE);
    slow.args(["run", "c.yaml", "-o", "ndjson"]).stdout(std::process::Stdio::piped());
    let mut slow = slow.spawn().unwrap();
    let mut lines = BufReader::new(slow.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"nap\"")).unwrap();
    let mut watch = world.command(SEGUE);
    watch.args(["runs", "show", "last", "--watch"]).stderr(std::process::Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines().map(Result::unwrap);
    said.find(|line| line.starts_with("[nap]")).unwrap();
    world.segue(&["run", "d.yaml"]).exits(0);
    // Not from when following began.
    let done = said.find(|line| line.starts_with("[nap] done in")).unwrap();
    assert!(done.starts_with("[nap] done in 3"), "{done}");
    assert!(said.last().unwrap().starts_with("slow: success"));
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert_eq!(slow.wait().unwrap().code(), Some(0));
}

/// S7: a finished run is rolled back once, on request.
#[test]
fn a_finished_run_is_rolled_back_by_hand() {
    let world = World::with(NOTE);
    world.run(0, &[]);
    let back = world.segue(&["rollback", "last", "--json"]).exits(0).json();
    assert_eq!((&back["status"], &back["errors"]), (&json!("rolled_back"), &json!([])));
    assert_eq!(checkpoints(&world), 0);
    // There is nothing left to roll back.
    world.segue(&["rollback", "last", "--json"]);
    assert_eq!(last(&world)["status"], "rolled_back");
}

#[test]
fn runs_are_compared_and_forgotten() {
    let world = World::with(
        "name: c\ninput: { type: object, properties: { n: { type: integer } } }\n\
         steps: [{ id: a, tool: echo, parameters: { n: '{{ input.n }}' } }]",
    );
    let one = world.run(0, &["-i", "n=1"]);
    let two = world.run(0, &["-i", "n=2"]);
    let ids = [one["run_id"].as_str().unwrap(), two["run_id"].as_str().unwrap()];
    let compared = world.json(0, &["runs", "compare", ids[0], ids[1], "--json"]);
    assert_eq!(compared["differences"][0]["output/n"], json!({ "first": 1, "second": 2 }));
    let same = world.json(0, &["runs", "compare", ids[0], ids[0], "--json"]);
    assert_eq!(same["differences"], json!([]));
    world.segue(&["runs", "prune"]).exits(2);
    assert_eq!(world.json(0, &["runs", "prune", "--keep", "1", "--json"])["forgotten"], 1);
    assert_eq!(world.json(0, &["runs", "--json"])["runs"].as_array().unwrap().len(), 1);
}

/// J5: a run whose store is gone says so; a file that is no store is refused.
#[test]
fn a_store_that_cannot_be_used_is_named() {
    let world = World::with(NOTE);
    world.file("not.db", "this is not a database, and long enough to be looked at as one");
    let refused = world.segue(&["run", "c.yaml", "--store", "sqlite:not.db"]).exits(2);
    assert!(refused.stderr.contains("cannot open the store `not.db`"), "{}", refused.stderr);
}

/// Everything that was written anywhere in a world, as text.
pub(crate) fn everything(world: &World) -> String {
    let mut all = String::new();
    let mut folders = vec![world.folder().parent().unwrap().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() != "segue.yaml" {
                all.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
            }
        }
    }
    all
}

/// D2: a secret of the configuration that a tool tells is seen nowhere.
#[test]
fn a_secret_that_a_tool_tells_is_written_nowhere() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: leak, tool: leak }\n  - { id: say, tool: echo, parameters: { text: '{{ leak }}' } }\n",
    );
    world.file(
        "segue.yaml",
        "commands:\n  leak: { argv: [sh, -c, 'echo \"token $CANARY\"; echo \"$CANARY\" >&2'], env: { CANARY: '${CANARY}' }, read_only: true }\n",
    );
    let mut command = world.command(SEGUE);
    command.env("CANARY", "canary-7f3a9b");
    command.args(["run", "c.yaml", "--config", "segue.yaml", "-v"]);
    let done = crate::support::Done::of(command.output().unwrap()).exits(0);
    assert!(done.stdout.contains("token «secret»"), "{}", done.stdout);
    let seen = done.stdout + &done.stderr + &everything(&world);
    assert!(!seen.contains("canary-7f3a9b"));
}

/// Answers each request with the request, as text.
fn echoing() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap() == 0 {
                    break;
                }
                asked.push(byte[0]);
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                asked.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&asked).unwrap();
        }
    });
    port
}

/// D2: a secret that stands in the configuration itself, where a command or an HTTP operation is given it,
/// is one that a tool may not tell either.
#[test]
fn a_secret_that_is_written_for_a_tool_is_written_nowhere_else() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: told, tool: tell }\n  - { id: asked, tool: ask, parameters: { mode: fast-mode } }\n",
    );
    let port = echoing();
    world.file(
        "segue.yaml",
        format!(
            "commands:\n  tell: {{ argv: [sh, -c, 'echo \"$API_TOKEN in $MODE; $2\"', x, --, 'https://u:literal-a@h.example/'], \
             env: {{ API_TOKEN: literal-b, MODE: some-mode }}, read_only: true }}\n\
             http:\n  ask:\n    url: 'http://127.0.0.1:{port}/x?api_key=literal-d&mode=plain-mode'\n    \
             headers: {{ Authorization: Bearer literal-e, X-Mode: '{{{{ args.mode }}}}' }}\n    \
             query: {{ access_token: literal-c, kind: any-kind }}\n    \
             input: {{ type: object, properties: {{ mode: {{ type: string }} }} }}\n    read_only: true\n"
        ),
    );
    let done = world.segue(&["run", "c.yaml", "-v", "--json"]).exits(0);
    let seen = format!("{}{}{}", done.stdout, done.stderr, everything(&world));
    for plain in ["some-mode", "plain-mode", "fast-mode", "any-kind"] {
        assert!(done.stdout.contains(plain), "{plain}: {}", done.stdout);
    }
    for letter in ["a", "b", "c", "d", "e"] {
        assert!(!seen.contains(&format!("literal-{letter}")), "{letter}: {seen}");
    }
}

/// D2: a secret that a run is given is used and not written down; a short one is named.
#[test]
fn a_secret_that_a_run_is_given_is_written_nowhere() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: count, tool: text_stats, parameters: { text: 'key {{ input.key }}' } }\n\
         \x20 - { id: rest, wait: 1ms, depends_on: count }\n\
         \x20 - { id: again, tool: text_stats, parameters: { text: '{{ input.key }}' }, depends_on: rest }\n\
         output: '{{ count.chars }}'\n",
    );
    world.file(
        "segue.yaml",
        "commands:\n  other: { argv: [env], env: { CANARY: '${CANARY:-}', PIN_TOKEN: '${PIN_TOKEN:-}' }, read_only: true }\n",
    );
    let run = |more: &[&str]| {
        let mut command = world.command(SEGUE);
        command.env("CANARY", "canary-7f3a9b").env("PIN_TOKEN", "1234");
        command.args(["run", "c.yaml", "--config", "segue.yaml", "-i", "key=canary-7f3a9b"]);
        crate::support::Done::of(command.args(more).output().unwrap())
    };
    let done = run(&["-v"]).exits(0);
    assert!(done.stdout.contains("17"), "{}", done.stdout);
    assert!(done.stderr.contains("the value of `PIN_TOKEN` is too short"), "{}", done.stderr);
    let seen = done.stdout + &done.stderr + &everything(&world);
    assert!(!seen.contains("canary-7f3a9b"), "{seen}");
    // A process that resumes such a run does not have the value.
    assert_eq!(run(&["-q", "--inject", "crash-after=2"]).code, None);
    let resumed = world.segue(&["resume", "last", "--json"]).exits(1).json();
    assert_eq!(resumed["errors"][0]["code"], "policy-violation", "{resumed}");
}

/// D2: what an author calls sensitive is used and written nowhere, also where it went on to.
#[test]
fn what_is_sensitive_is_used_and_written_nowhere() {
    let world = World::with(
        "name: c\ninput: { type: object, properties: { pin: { type: string } } }\nsteps:\n\
         \x20 - { id: login, tool: echo, parameters: { user: ada, token: 'canary-{{ 1 + 1 }}-x' }, sensitive: [/token] }\n\
         \x20 - { id: use, tool: text_replace, parameters: { text: 'Bearer {{ login.token }}', find: Bearer, replace: '' } }\n\
         output: { length: '{{ use.text | length }}' }\n",
    );
    let done = world.segue(&["run", "c.yaml", "-v", "--json"]).exits(0);
    let view = done.json();
    assert_eq!(view["output"], json!({ "length": "Bearer canary-2-x".len() - "Bearer".len() }));
    assert_eq!(view["steps"][0]["output"], json!({ "user": "ada", "token": "«sensitive»" }));
    let seen = done.stdout + &done.stderr + &everything(&world);
    assert!(!seen.contains("canary-2-x"), "{seen}");
}

/// D2: not in what failed, not in what is asked, and not in what the run was given either.
#[test]
fn what_is_sensitive_is_not_in_errors_questions_and_inputs() {
    let world = World::with(
        "name: c\ninput:\n  type: object\n  properties:\n\
         \x20   key: { type: string, writeOnly: true }\n    pin: { type: integer }\nsteps:\n\
         \x20 - { id: get, tool: echo, parameters: { pin: '{{ input.pin }}' }, sensitive: [/pin] }\n\
         \x20 - { id: f, tool: fail, parameters: { message: 'bad {{ get.pin }} {{ key }}' }, on_failure: { action: continue } }\n\
         \x20 - { id: ask, approve: { message: 'use {{ get.pin }} of {{ key }}?' }, depends_on: f }\n",
    );
    let done =
        world.segue(&["run", "c.yaml", "-v", "--json", "-i", "key=canary-k", "-i", "pin=98765432"]);
    let view = done.json();
    assert_eq!(view["steps"][1]["error"]["message"], "bad «sensitive» «sensitive»");
    assert_eq!(view["waiting_for"][0]["message"], "use «sensitive» of «sensitive»?");
    let seen = done.stdout + &done.stderr + &everything(&world);
    for canary in ["canary-k", "98765432"] {
        assert!(!seen.contains(canary), "{canary}: {seen}");
    }
    // It has to be given again.
    let again = world.segue(&["run", "c.yaml", "--from", "get", "--run", "last"]).exits(2);
    assert!(again.stderr.contains("give it again with `-i key=…`"), "{}", again.stderr);
}

/// What was not written down is missed where it is needed, and nothing is done with its mark.
#[test]
fn a_sensitive_value_is_not_made_up_after_a_crash() {
    let world = World::with(
        "name: c\nsteps:\n\
         \x20 - { id: login, tool: echo, parameters: { token: canary-9 }, sensitive: [/token] }\n\
         \x20 - { id: pause, wait: 1ms, depends_on: login }\n\
         \x20 - { id: use, tool: echo, parameters: { text: 'Bearer {{ login.token }}' }, depends_on: pause }\n",
    );
    assert_eq!(world.segue(&["run", "c.yaml", "-q", "--inject", "crash-after=2"]).code, None);
    let resumed = world.segue(&["resume", "last", "--json"]).exits(1).json();
    assert_eq!(resumed["errors"][0]["code"], "policy-violation");
    assert!(!everything(&world).replace(include_str!("runs.rs"), "").contains("Bearer «"));
}

/// A step whose value was not kept is not done a second time because a later one begins again.
#[test]
fn a_step_with_a_sensitive_value_is_not_silently_done_again() {
    let world = World::with(
        "name: c\nsteps:\n\
         \x20 - { id: save, tool: checkpoint_save, parameters: { content: kept }, sensitive: [/id] }\n\
         \x20 - { id: use, tool: echo, parameters: { id: '{{ save.id }}' } }\n\
         \x20 - { id: aside, tool: echo, parameters: { n: 1 } }\noutput: '{{ aside.n }}'\n",
    );
    world.run(0, &[]);
    let refused = world.segue(&["run", "c.yaml", "--from", "use", "--run", "last"]).exits(2);
    assert!(refused.stderr.contains("the value of `save` is sensitive"), "{}", refused.stderr);
    assert_eq!(checkpoints(&world), 1);
    // Nothing of it is needed there.
    world.run(0, &["--from", "aside", "--run", "last"]);
    assert_eq!(checkpoints(&world), 1);
    world.run(0, &["--from", "save", "--run", "last"]);
    assert_eq!(checkpoints(&world), 2, "it was asked for");
}

#[test]
fn a_run_begins_again_at_a_step_with_edited_input() {
    let world = World::with(
        "name: c\ninput: { type: object, properties: { n: { type: integer }, m: { type: integer, default: 1 } } }\n\
         steps:\n\
         \x20 - { id: save, tool: checkpoint_save, parameters: { content: 'n is {{ input.n }}' } }\n\
         \x20 - { id: aside, tool: echo, parameters: { m: '{{ input.m }}' } }\n\
         \x20 - { id: say, tool: echo, parameters: { id: '{{ save.id }}', m: '{{ input.m }}' } }\n",
    );
    let first = world.run(0, &["-i", "n=7"]);
    let again = world.run(0, &["--from", "say", "--run", "last", "-i", "m=2"]);
    assert_eq!(again["results"]["say"], json!({ "id": first["results"]["save"]["id"], "m": 2 }));
    assert_eq!(again["results"]["aside"], json!({ "m": 1 }), "it has nothing to do with `say`");
    assert_eq!((&again["steps_executed"], checkpoints(&world)), (&json!(1), 1));
    // A step of another run is not rolled back by this one.
    world.segue(&["rollback", again["run_id"].as_str().unwrap()]).exits(0);
    assert_eq!(checkpoints(&world), 1);
    let wrong = world.segue(&["run", "c.yaml", "--from", "sey", "--run", "last"]).exits(2);
    assert!(wrong.stderr.contains("did you mean `say`?"), "{}", wrong.stderr);
    // Steps that are called the same in another composition are others.
    world.file(
        "d.yaml",
        std::fs::read_to_string(world.path("c.yaml")).unwrap().replace("name: c", "name: d"),
    );
    let other = world.segue(&["run", "d.yaml", "--from", "say", "--run", "last"]).exits(2);
    assert!(other.stderr.contains("is a run of `c`, not of `d`"), "{}", other.stderr);
    // Without a file it is what that run executed, whatever the file says by now.
    world.file("c.yaml", "name: c\nsteps: [{ id: say, tool: fail }]\n");
    let run_id = first["run_id"].as_str().unwrap();
    let again = world.json(0, &["run", "--from", "say", "--run", run_id, "-i", "m=3", "--json"]);
    assert_eq!(again["results"]["say"], json!({ "id": first["results"]["save"]["id"], "m": 3 }));
}

/// What runs teach: how long a tool takes and how often it fails is shown, and used by `check`.
#[test]
fn what_runs_teach_is_shown_and_used() {
    let world = World::with(
        "name: c\nsteps:\n\
         \x20 - id: each\n    loop: { over: '{{ range(20) | list }}', as: n, max_concurrency: 20, steps: [{ id: nap, tool: sleep, parameters: { ms: 30 } }] }\n\
         \x20 - { id: broken, tool: fail, depends_on: each }\n",
    );
    world.run(1, &[]);
    let shown = world.json(0, &["tools", "show", "sleep", "--json"]);
    assert_eq!(
        (&shown["observed"]["calls"], &shown["observed"]["failures"]),
        (&json!(20), &json!(0))
    );
    assert!(shown["observed"]["p50_ms"].as_u64().unwrap() >= 30, "{shown}");
    let broken = world.json(0, &["tools", "show", "fail", "--json"]);
    assert_eq!(broken["observed"]["failures"], 1);
    assert!(
        world.segue(&["tools", "show", "sleep"]).stdout.contains("statistics: 20 calls, 0 failed")
    );
    world.file(
        "d.yaml",
        "name: d\nsteps: [{ id: nap, tool: sleep, parameters: { ms: 5 }, timeout: 10ms }]\n",
    );
    let planned = world.json(0, &["plan", "d.yaml", "--json"]);
    assert!(planned["estimated_duration_ms"].as_u64().unwrap() >= 30, "{planned}");
    let checked = world.json(0, &["check", "d.yaml", "--json"]);
    let hint = checked["diagnostics"].as_array().unwrap().iter().find(|d| d["code"] == "practice");
    assert!(hint.unwrap()["message"].as_str().unwrap().contains("times out after 10 ms"));
}

/// What a tool without a schema returned is recorded with its count, and hints at mistakes.
#[test]
fn what_a_tool_returned_is_remembered() {
    let world = World::with(
        "name: c\nsteps:\n\
         \x20 - id: each\n    loop: { over: [1, 2, 3, 4, 5], steps: [{ id: one, tool: told }] }\n",
    );
    let argv = r#"[printf, '{"size": 3, "name": "x"}']"#;
    world.file("segue.yaml", format!("commands:\n  told: {{ argv: {argv}, read_only: true }}\n"));
    let config = ["--config", "segue.yaml"];
    world.segue(&[&["run", "c.yaml", "-q"][..], &config].concat()).exits(0);
    let shown = world.json(0, &[&["tools", "show", "told", "--json"][..], &config].concat());
    let output = &shown["observed"]["output"];
    assert_eq!(output["samples"], 5, "{shown}");
    assert!(output["schema"]["properties"]["size"].is_object(), "{shown}");
    world.file("d.yaml", "name: d\nsteps: [{ id: told, tool: told }]\noutput: '{{ told.sice }}'\n");
    let checked = world.json(0, &[&["check", "d.yaml", "--json"][..], &config].concat());
    let hint = &checked["diagnostics"][0];
    assert_eq!(hint["code"], "practice", "{checked}");
    assert_eq!(hint["message"], "`told` has no `sice`, going by 5 calls of `told`");
}
