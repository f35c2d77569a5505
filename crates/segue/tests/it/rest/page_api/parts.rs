//! A run in pieces: preview, values, steps, plan, text.

use std::time::{Duration, Instant};

use super::super::{one, served};
use super::{EXECUTE, run_as, served_to_two};
use crate::served::TOKEN;
use crate::support::{by_id, json, step};

/// A loop of more iterations than a preview shows, a third of which fails.
const LOOP: &str = "\
name: many
input: { type: object }
steps:
  - id: each
    loop:
      over: '{{ range(300) }}'
      on_item_failure: continue
      steps:
        - { id: pick, tool: echo, parameters: { n: '{{ item }}' } }
        - id: odd
          when: '{{ item % 3 == 0 }}'
          tool: fail
          parameters: { message: 'no thirds' }
          depends_on: [pick]
";

/// Of a large run a preview is small, says what it leaves out, and the rest is read in parts.
#[test]
fn a_large_output_is_read_in_parts() {
    let (_world, served) = served("limits: { served_body_bytes_max: 67108864 }\n");
    let text = "ä".repeat(1_000_000);
    let items: Vec<_> = (0..250).map(|n| json!({ "n": n })).collect();
    let given = json!({ "text": text, "items": items, "small": 1 });
    let run_id = run_as(&served, TOKEN, &one("echo", &given));
    let run = format!("/api/v1/runs/{run_id}");
    let began = Instant::now();
    let answer = served.get(&format!("{run}?preview=true"));
    let preview = answer.is(200);
    assert!(answer.body.len() < 300_000, "{}", answer.body.len());
    println!("preview: {} bytes in {:?}", answer.body.len(), began.elapsed());
    let shown = &preview["output"]["a"];
    assert_eq!(shown["small"], 1);
    let cut = &shown["text"]["$cut"];
    assert_eq!((&cut["kind"], &cut["length"]), (&json!("string"), &json!(1_000_000)));
    assert_eq!(cut["preview"].as_str().unwrap().chars().count(), 200);
    assert_eq!(shown["items"]["$cut"]["preview"].as_array().unwrap().len(), 100);
    assert_eq!(preview["steps"][0]["output"]["small"], 1);
    assert_eq!((&preview["interrupted"], &preview["input"]), (&json!(false), &json!({})));
    // Whole, as before.
    assert_eq!(served.get(&run).is(200)["output"]["a"], given);
    let value = format!("{run}/value?pointer=/a/items&offset=240");
    let page = served.get(&value).is(200);
    assert_eq!((&page["kind"], &page["length"]), (&json!("array"), &json!(250)));
    assert_eq!(page["value"].as_array().unwrap()[9], json!({ "n": 249 }));
    assert_eq!(page["next"], json!(null));
    let first = served.get(&format!("{run}/value?step=a&part=input&pointer=/items")).is(200);
    assert_eq!(first["next"], 100);
    let characters = format!("{run}/value?pointer=/a/text&offset=999999&limit=5");
    assert_eq!(served.get(&characters).is(200)["value"], "ä");
    let whole = served.get(&format!("{run}/value?pointer=/a/text&download=true"));
    assert_eq!(whole.is(200), text);
    assert!(whole.headers["content-disposition"].starts_with("attachment"), "{whole:?}");
    served.get(&format!("{run}/value?pointer=/nowhere")).is_problem(404, "not-found");
    served.get(&format!("{run}/value?step=nowhere")).is_problem(404, "not-found");
    served.get(&format!("{run}/value?part=x")).is_problem(400, "invalid-field");
}

/// The steps of a loop are read a page at a time, with their failures in groups.
#[test]
fn a_long_loop_is_read_in_pages() {
    let (_world, served) = served("");
    let run_id = run_as(&served, TOKEN, &json!(LOOP));
    let run = format!("/api/v1/runs/{run_id}");
    let preview = served.get(&format!("{run}?preview=true")).is(200);
    let ids: Vec<&str> =
        preview["steps"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"each[99]/pick") && !ids.contains(&"each[100]/pick"), "{ids:?}");
    assert_eq!(preview["steps_left_out"], 400);
    let top = served.get(&format!("{run}/steps")).is(200);
    assert_eq!((&top["total"], &top["steps"][0]["id"]), (&json!(1), &json!("each")));
    let page = served.get(&format!("{run}/steps?parent=each&offset=598&limit=10")).is(200);
    assert_eq!((&page["total"], page["steps"].as_array().unwrap().len()), (&json!(600), 2));
    assert_eq!(page["steps"][0]["id"], "each[299]/pick");
    assert_eq!(page["counts"], json!({ "success": 300, "failed": 100, "skipped": 200 }));
    let failed = served.get(&format!("{run}/steps?parent=each&status=failed&limit=1")).is(200);
    assert_eq!((&failed["total"], &failed["steps"][0]["id"]), (&json!(100), &json!("each[0]/odd")));
    let groups = failed["failed_groups"].as_array().unwrap();
    assert_eq!((groups.len(), &groups[0]["count"]), (1, &json!(100)), "{groups:?}");
    assert_eq!(groups[0]["first"], "each[0]/odd");
    served.get(&format!("{run}/steps?parent=none")).is_problem(404, "not-found");
    let one = served.get(&format!("{run}/steps/each%5B3%5D%2Fodd")).is(200);
    assert_eq!(one["step"]["status"], "failed");
    assert_eq!(one["template"], json!({ "message": "no thirds" }), "{one}");
}

/// A step has its arguments as written, its place, its attempts with pauses, and who decided.
#[test]
fn a_step_has_everything_that_is_known_of_it() {
    let (_world, served) = served("");
    let text = "\
name: known
steps:
  - { id: flaky, tool: fail, parameters: { times: 1 }, retry: { max: 1, backoff: { initial: 20ms, jitter: false } } }
  - id: ask
    approve: { message: 'go on?' }
    depends_on: [flaky]
  - id: write
    tool: files_write
    parameters: { path: x.txt, content: '{{ flaky | tojson }}' }
    depends_on: [ask]
";
    let run_id = run_as(&served, TOKEN, &json!(text));
    let run = format!("/api/v1/runs/{run_id}");
    served.post(&format!("{run}/approve"), &json!({ "approved": true })).is(200);
    let flaky = served.get(&format!("{run}/steps/flaky")).is(200);
    let attempts = flaky["attempts"].as_array().unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "done"], "{flaky}");
    assert!(attempts[0]["pause_ms"].as_u64().unwrap() >= 20, "{flaky}");
    assert_eq!((&flaky["source"]["line"], &flaky["source"]["column"]), (&json!(3), &json!(5)));
    assert_eq!(flaky["source"]["file"], json!(null));
    let ask = served.get(&format!("{run}/steps/ask")).is(200);
    assert_eq!(ask["decisions"][0]["by"], "the token", "{ask}");
    let write = served.get(&format!("{run}/steps/write")).is(200);
    assert_eq!(write["template"]["content"], "{{ flaky | tojson }}");
    assert_eq!(write["rollback"]["events"], json!([]));
    served.post(&format!("{run}/rollback"), &json!(null)).is(200);
    let write = served.get(&format!("{run}/steps/write")).is(200);
    let events = write["rollback"]["events"].as_array().unwrap();
    assert_eq!(events.last().unwrap()["what"], "rolled_back", "{write}");
    served.get(&format!("{run}/steps/none")).is_problem(404, "not-found");
    let plan = served.get(&format!("{run}/plan")).is(200);
    assert_eq!(by_id(&plan["steps"], "write")["needs"], json!(["flaky", "ask"]), "{plan}");
    let source = served.get(&format!("{run}/source")).is(200);
    assert_eq!((&source["text"], &source["format"]), (&json!(text), &json!("yaml")));
    let places: Vec<_> = source["spans"].as_array().unwrap().iter().map(|s| &s["line"]).collect();
    assert_eq!(places, [3, 4, 7]);
    assert_eq!(source["current"], false);
    assert!(step(&served.get(&run).is(200), "flaky")["error"].is_null());
}

/// The pieces of a run are as hidden from others as the run, and its secrets stay hidden.
#[test]
fn pieces_are_hidden_from_others() {
    let (_world, served) = served_to_two("memory");
    let hidden = json!({ "name": "secret", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "key": "hush-hush", "x": 1 },
          "sensitive": ["/key"] }] });
    let run_id = run_as(&served, "ada-token", &hidden);
    let pieces = [
        "",
        "?preview=true",
        "/value",
        "/value?step=a&download=true",
        "/steps",
        "/steps/a",
        "/plan",
        "/source",
        "/events",
    ];
    for piece in pieces {
        let path = format!("/api/v1/runs/{run_id}{piece}");
        let by = |token| served.send_by(token, "GET", &path, &[], &json!(null));
        by("bob-token").is_problem(404, "not-found");
        let own = by("ada-token");
        assert_eq!(own.status, 200, "{own:?}");
        let says_it = own.body.contains("hush-hush");
        // What the author wrote is the text, the plan and the arguments as written.
        assert_eq!(says_it, matches!(piece, "/source" | "/steps/a"), "{piece}: {}", own.body);
    }
}

/// A page reads many pieces of a large run: the run is read from the store once for all of them.
#[test]
fn pieces_of_a_large_run_are_quick() {
    let (_world, served) = served("");
    let many = LOOP.replace("range(300)", "range(3000)");
    let request = json!({ "composition": many, "options": { "max_concurrency": 16 } });
    let run_id = served.post(EXECUTE, &request).is(200)["run_id"].as_str().unwrap().to_owned();
    let run = format!("/api/v1/runs/{run_id}");
    served.get(&format!("{run}?preview=true")).is(200);
    let began = Instant::now();
    for n in 0..20 {
        served.get(&format!("{run}/steps?parent=each&offset={}", n * 100)).is(200);
    }
    let each = began.elapsed() / 20;
    println!("a page of steps of 6,000: {each:?}");
    assert!(each < Duration::from_millis(500), "{each:?}");
}
