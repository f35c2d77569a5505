//! Runs that wait for a person, answered through a host that comes later.

use super::host::{Host, error, text, value};
use super::{ATOMIC, NOTE, forms, notes, world};
use crate::support::{Json, World, json, until};

const ASK: &str = "\
name: ask
steps:
  - { id: before, tool: echo, parameters: { n: 1 } }
  - id: who
    depends_on: [before]
    approve:
      message: Who is it for?
      schema: { type: object, required: [name], properties: { name: { type: string } } }
output: { name: '{{ who.data.name }}', by: '{{ who.by }}' }
";

/// A run that could not ask a person, in a Segue that has ended since.
fn left_waiting(world: &World) -> String {
    let mut host = Host::legacy(world, &json!({}));
    let waiting = host.call("ask", json!({}));
    assert!(error(&waiting).contains("segue approve"), "{}", text(&waiting));
    waiting["_meta"]["segue/runId"].as_str().unwrap().to_owned()
}

fn output(result: &Json) -> Json {
    let run = value(result);
    assert_eq!(run["status"], "success", "{run}");
    run["output"].clone()
}

/// Another Segue asks again through its host what a run waits for, in both eras.
#[test]
fn a_run_that_waits_is_answered_through_the_next_host() {
    let world = world("", &[("ask", ASK)]);
    let expected = json!({ "name": "Ada", "by": "the user of raw" });
    let yes = json!({ "action": "accept", "content": { "name": "Ada" } });

    let run_id = left_waiting(&world);
    let mut host = Host::legacy(&world, &forms());
    let resume = json!({ "name": "run_resume", "arguments": { "run_id": run_id } });
    let id = host.begin("tools/call", resume.clone());
    let asked = host.request("elicitation/create");
    assert!(asked["params"]["message"].as_str().unwrap().contains("Who is it for?"), "{asked}");
    host.reply(&asked, yes.clone());
    assert_eq!(output(&host.answer(id)["result"]), expected);
    // A finished run stays as it ended, and asks no more.
    assert_eq!(output(&host.call("run_resume", resume["arguments"].clone())), expected);
    assert_eq!(host.unread("elicitation/create"), 0);
    drop(host);

    let run_id = left_waiting(&world);
    let mut host = Host::modern(&world, &forms());
    let first = host.call("run_resume", json!({ "run_id": run_id }));
    assert_eq!(first["resultType"], "input_required", "{first}");
    assert!(first["inputRequests"]["who"]["params"]["requestedSchema"].is_object(), "{first}");
    let again = |state: &Json| {
        json!({ "name": "run_resume", "arguments": { "run_id": run_id },
            "inputResponses": { "who": yes }, "requestState": state })
    };
    assert_eq!(host.ask("tools/call", again(&json!("made up")))["error"]["code"], -32602);
    let done = host.ask("tools/call", again(&first["requestState"]))["result"].clone();
    assert_eq!(output(&done), expected);
    let run = json!({ "run_id": run_id, "steps": true });
    let run = value(&host.call("run_get", run));
    assert_eq!(run["steps"][0]["attempts"], 1, "what was done is not done again");
}

/// The same through a task: it says what it waits for, and takes the answer, although it was begun in
/// another Segue.
#[test]
fn a_task_that_waits_is_answered_after_a_restart() {
    let world = world("", &[("ask", ASK)]);
    let run_id = left_waiting(&world);
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} } });
    let mut host = Host::modern(&world, &tasks);
    // At first it goes on, as every run does that was interrupted, to where it waits.
    let mut task = json!({ "status": "working" });
    while task["status"] == "working" {
        task = host.ask("tasks/get", json!({ "taskId": run_id }))["result"].clone();
    }
    assert_eq!(task["status"], "input_required", "{task}");
    let answer = |name: Json| {
        let who = json!({ "action": "accept", "content": { "name": name } });
        json!({ "taskId": run_id, "inputResponses": { "who": who } })
    };
    assert_eq!(host.ask("tasks/update", answer(json!(3)))["error"]["code"], -32602);
    assert!(host.ask("tasks/update", answer(json!("Ada"))).get("result").is_some());
    let run = json!({ "run_id": run_id, "wait_ms": 30_000 });
    while value(&host.call("run_get", run.clone()))["status"] != "success" {}
    let done = host.ask("tasks/get", json!({ "taskId": run_id }))["result"].clone();
    assert_eq!(value(&done["result"])["name"], "Ada", "{done}");
}

/// Who cannot ask a person is not taken for one.
#[test]
fn a_host_that_cannot_ask_resumes_nothing_that_waits() {
    let world = world("", &[("ask", ASK)]);
    let run_id = left_waiting(&world);
    let mut host = Host::legacy(&world, &json!({}));
    let waiting = host.call("run_resume", json!({ "run_id": run_id }));
    assert!(error(&waiting).contains("segue approve"), "{}", text(&waiting));
    assert_eq!(value(&host.call("run_get", json!({ "run_id": run_id })))["status"], "waiting");
    assert!(error(&host.call("run_resume", json!({ "run_id": "nothing" }))).contains("no run"));
}

/// A model that writes arguments cannot approve what it asks for: no tool of ours takes a yes.
#[test]
fn a_model_cannot_approve_its_own_calls() {
    let world = world("", &[("note", NOTE)]);
    let mut host = Host::legacy(&world, &json!({}));
    let listed = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    for tool in listed.as_array().unwrap() {
        let schema = tool["inputSchema"].to_string();
        assert!(!schema.contains("approve") && !schema.contains("consent"), "{tool}");
    }
    for (options, why) in [
        (json!({ "approved": true }), "`options.approved` is not for callers of a tool"),
        (json!({ "consented": true }), "do not fit"),
    ] {
        let note = json!({ "name": "note", "input": { "text": "x" }, "options": options });
        let refused = host.call("composition_execute", note);
        assert!(error(&refused).contains(why), "{}", text(&refused));
    }
    let denied =
        host.call("composition_execute", json!({ "name": "note", "input": { "text": "x" } }));
    assert!(error(&denied).contains("denied"), "{}", text(&denied));
    assert_eq!(notes(&world), 0);
}

/// A2: a question times out although no process drives the run, also in the next Segue.
#[test]
fn a_question_without_an_answer_times_out() {
    let text = "\
name: ask
steps: [{ id: ask, approve: { message: Sure?, timeout: 1s, on_timeout: approve } }]
output: gone on
";
    let world = world("", &[("ask", text)]);
    let is_over = |host: &mut Host, run_id: &str| {
        let run = value(&host.call("run_get", json!({ "run_id": run_id }))).clone();
        (run["status"] != "waiting").then(|| assert_eq!(run["output"], "gone on", "{run}"))
    };
    let left = left_waiting(&world);
    let mut host = Host::legacy(&world, &json!({}));
    until(|| is_over(&mut host, &left));
    let waiting = host.call("ask", json!({}));
    let run_id = waiting["_meta"]["segue/runId"].as_str().unwrap().to_owned();
    until(|| is_over(&mut host, &run_id));
}

/// An answer that does not fit the form decides nothing: the person is asked again and told why, in
/// each way of asking.
#[test]
fn an_answer_that_does_not_fit_is_asked_for_again() {
    let world = world("", &[("ask", ASK)]);
    let answer = |name: Json| json!({ "action": "accept", "content": { "name": name } });
    let is_told_why = |question: &Json| {
        let message = question["params"]["message"].as_str().unwrap();
        message.contains("does not fit") && message.contains("Who is it for?")
    };

    let mut host = Host::legacy(&world, &forms());
    let call = json!({ "name": "ask", "arguments": {} });
    let id = host.begin("tools/call", call.clone());
    let asked = host.request("elicitation/create");
    host.reply(&asked, answer(json!(5)));
    let asked = host.request("elicitation/create");
    assert!(is_told_why(&asked), "{asked}");
    host.reply(&asked, answer(json!("Ada")));
    assert_eq!(value(&host.answer(id)["result"])["name"], "Ada");
    // Not for ever: then it waits for another host.
    let id = host.begin("tools/call", call);
    for _ in 0..3 {
        let asked = host.request("elicitation/create");
        host.reply(&asked, answer(json!(5)));
    }
    assert!(error(&host.answer(id)["result"]).contains("segue approve"));

    let mut host = Host::modern(&world, &forms());
    let first = host.call("ask", json!({}));
    let mut again = |name: Json, state: &Json| {
        let call = json!({ "name": "ask", "arguments": {},
            "inputResponses": { "who": answer(name) }, "requestState": state });
        host.ask("tools/call", call)["result"].clone()
    };
    let second = again(json!(5), &first["requestState"]);
    assert!(is_told_why(&second["inputRequests"]["who"]), "{second}");
    assert_eq!(value(&again(json!("Ada"), &second["requestState"]))["name"], "Ada");
}

/// The same for a task.
#[test]
fn a_task_refuses_an_answer_that_does_not_fit() {
    let slowly = ASK.replace("echo, parameters: { n: 1 }", "sleep, parameters: { ms: 300 }");
    let world = world("limits: { served_wait_ms: 50 }\n", &[("ask", &slowly)]);
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} } });
    let mut host = Host::modern(&world, &tasks);
    let id = host.call("ask", json!({}))["taskId"].clone();
    let task = |host: &mut Host| host.ask("tasks/get", json!({ "taskId": id }))["result"].clone();
    while task(&mut host)["status"] == "working" {}
    for (name, code) in [(json!(5), json!(-32602)), (json!("Ada"), Json::Null)] {
        let who = json!({ "action": "accept", "content": { "name": name } });
        let update = json!({ "taskId": id, "inputResponses": { "who": who } });
        assert_eq!(task(&mut host)["status"], "input_required");
        assert_eq!(host.ask("tasks/update", update)["error"]["code"], code);
    }
    while task(&mut host)["status"] == "working" {}
    assert_eq!(value(&task(&mut host)["result"])["name"], "Ada");
}

/// A host that declares elicitation and then fails gets the message that no person could be asked.
#[test]
fn a_host_that_fails_to_ask_is_told_so() {
    let world = world("", &[("both", ATOMIC)]);
    let mut host = Host::legacy(&world, &forms());
    let id = host.begin("tools/call", json!({ "name": "both", "arguments": { "text": "x" } }));
    let asked = host.request("elicitation/create");
    let refusal = json!({ "code": -32601, "message": "no" });
    host.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refusal }));
    let answer = host.answer(id);
    assert!(error(&answer["result"]).contains("no person could be asked"), "{answer}");
    assert_eq!(notes(&world), 0);
}
