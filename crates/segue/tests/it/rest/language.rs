//! The language service over REST: what editors are told about a text, and to whom.

use segue_core::tool::hex_digest;

use super::world;
use crate::served::Served;
use crate::support::{Json, World, json};

/// A text with characters of one, two and four bytes before what is asked for.
const TEXT: &str = "\
name: size   # größe 😀😀
steps:
  - { id: a, tool: echo, parameters: { x: '😀' }, output_key: first }
  - { id: b, tool: echo, parameters: { y: '{{ first.x }}' } }
";

fn served() -> (World, Served) {
    super::served("")
}

/// The UTF-16 offset of a part of a text.
fn at(text: &str, part: &str) -> usize {
    let byte = text.find(part).unwrap_or_else(|| panic!("`{part}`"));
    text[..byte].encode_utf16().count()
}

/// A text after the edits of an answer, applied as an editor in a browser does.
fn applied(text: &str, answer: &Json) -> String {
    let units: Vec<u16> = text.encode_utf16().collect();
    let (mut out, mut from) = (Vec::new(), 0);
    for edit in answer["edits"].as_array().unwrap() {
        let place = |name: &str| usize::try_from(edit[name].as_u64().unwrap()).unwrap();
        out.extend(&units[from..place("start")]);
        out.extend(edit["text"].as_str().unwrap().encode_utf16());
        from = place("end");
    }
    out.extend(&units[from..]);
    String::from_utf16(&out).unwrap()
}

impl Served {
    fn language(&self, route: &str, body: &Json) -> Json {
        self.post(&format!("/api/v1/language/{route}"), body).is(200)
    }
}

/// An analysis has findings, steps, places and the plan, at UTF-16 offsets.
#[test]
fn a_text_is_analysed() {
    let (_world, served) = served();
    let found = served.language("analyze", &json!({ "text": TEXT, "name": "lib/x.yaml" }));
    assert_eq!(found["hash"], hex_digest(TEXT.as_bytes()));
    assert_eq!((&found["valid"], &found["findings"]), (&json!(true), &json!([])), "{found}");
    assert_eq!(found["plan"]["name"], "size");
    let ids: Vec<_> = found["steps"].as_array().unwrap().iter().map(|step| &step["id"]).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(found["steps"][1]["needs"], json!(["a"]));
    let spans = &found["spans"];
    assert_eq!((&spans[1]["step"], &spans[1]["line"]), (&json!("b"), &json!(4)));
    assert_eq!(spans[1]["start"], at(TEXT, "{ id: b"), "{spans}");
    let names = found["tokens"].as_array().unwrap().iter().filter(|it| it["kind"] == "name");
    let names: Vec<&Json> = names.map(|token| &token["start"]).collect();
    assert_eq!(names, [&json!(at(TEXT, "first.x"))]);

    let wrong = TEXT.replace("tool: echo, parameters: { y", "tool: ecko, parameters: { y");
    let found = served.language("analyze", &json!({ "text": wrong, "name": "lib/x.yaml" }));
    assert_eq!((&found["valid"], &found["plan"]), (&json!(false), &json!(null)));
    let finding = &found["findings"][0];
    assert_eq!(
        (&finding["code"], &finding["file"]),
        (&json!("unknown-tool"), &json!("lib/x.yaml"))
    );
    assert_eq!(
        (&finding["start"], &finding["end"]),
        (&json!(at(&wrong, "ecko")), &json!(at(&wrong, "ecko") + 4))
    );
    assert_eq!(found["steps"].as_array().unwrap().len(), 2);
    let (start, end) = (&finding["start"], &finding["end"]);
    let fixes = served.language("actions", &json!({ "text": wrong, "start": start, "end": end }));
    let fix = &fixes["actions"][0];
    assert_eq!(applied(&wrong, fix), TEXT, "{fix}");
    // One that does not parse keeps what can be read.
    let cut = &TEXT[..TEXT.find("' } }\n").unwrap()];
    let found = served.language("analyze", &json!({ "text": cut }));
    assert_eq!(found["valid"], false);
    assert!(!found["findings"].as_array().unwrap().is_empty(), "{found}");
    assert_eq!(found["steps"][0]["id"], "a", "{found}");
    served.language("analyze", &json!({ "text": "" }));
}

/// Completion, hover, references, rename and edits count in UTF-16, too.
#[test]
fn positions_are_those_of_a_browser() {
    let (_world, served) = served();
    let inside = at(TEXT, "first.x") + 2;
    let found = served.language("complete", &json!({ "text": TEXT, "at": inside }));
    let items = found["items"].as_array().unwrap();
    let first =
        items.iter().find(|item| item["label"] == "first").unwrap_or_else(|| panic!("{found}"));
    assert_eq!((&first["kind"], &first["start"]), (&json!("name"), &json!(inside - 2)), "{found}");
    let tool = at(TEXT, "echo") + 2;
    let found = served.language("complete", &json!({ "text": TEXT, "at": tool }));
    let echo =
        found["items"].as_array().unwrap().iter().find(|item| item["label"] == "builtin:echo");
    let echo = echo.unwrap_or_else(|| panic!("{found}"));
    assert_eq!((&echo["kind"], &echo["start"]), (&json!("tool"), &json!(at(TEXT, "echo"))));

    let found = served.language("hover", &json!({ "text": TEXT, "at": tool }));
    assert_eq!(found["start"], at(TEXT, "echo"), "{found}");
    let nothing = served.language("hover", &json!({ "text": "# a comment", "at": 3 }));
    assert_eq!(nothing, json!(null));

    let key = at(TEXT, "first }");
    let found = served.language("references", &json!({ "text": TEXT, "at": key }));
    assert_eq!(found["definition"]["start"], key, "{found}");
    let starts: Vec<&Json> =
        found["references"].as_array().unwrap().iter().map(|it| &it["start"]).collect();
    assert_eq!(starts, [&json!(key), &json!(at(TEXT, "first.x"))]);
    let renamed = served.language("rename", &json!({ "text": TEXT, "at": key, "to": "second" }));
    assert_eq!(applied(TEXT, &renamed), TEXT.replace("first", "second"));
    let wrong = json!({ "text": TEXT, "at": key, "to": "no name" });
    served.post("/api/v1/language/rename", &wrong).is_problem(422, "invalid-field");

    let edit = json!({ "kind": "set_field", "step": "b", "field": "/parameters/y", "value": 7 });
    let edited = served.language("edit", &json!({ "text": TEXT, "edit": edit }));
    assert_eq!(applied(TEXT, &edited), TEXT.replace("'{{ first.x }}'", "7"));
    let edit = json!({ "kind": "remove_step", "step": "c" });
    let problem = served.post("/api/v1/language/edit", &json!({ "text": TEXT, "edit": edit }));
    assert!(matches!(problem.status, 422), "{problem:?}");
    for edit in [json!({ "kind": "unknown" }), json!({ "kind": "remove_step" }), json!(3)] {
        let body = json!({ "text": TEXT, "edit": edit });
        served.post("/api/v1/language/edit", &body).is_problem(422, "invalid-field");
    }
}

/// A position anywhere, in any text, is answered.
#[test]
fn every_position_is_answered() {
    let (_world, served) = served();
    for at in [0, 1, 9, 10_000, u64::from(u32::MAX)] {
        for text in ["", "😀", TEXT, "a: [", "{\"steps\": [{"] {
            for route in ["complete", "hover", "references"] {
                served.language(route, &json!({ "text": text, "at": at }));
            }
            served.language("actions", &json!({ "text": text, "start": at, "end": 0 }));
        }
    }
    let body = json!({ "text": "", "at": u64::from(u32::MAX) + 1 });
    served.post("/api/v1/language/complete", &body).is_problem(422, "invalid-field");
    let body = json!({ "text": "", "at": -1 });
    served.post("/api/v1/language/complete", &body).is_problem(422, "invalid-field");
}

/// What runs returned is proposed and shown only to a principal that may read the run, and without secrets.
#[test]
fn values_come_from_runs_of_the_caller() {
    let principal = |name: &str, more: &str| {
        let hash = hex_digest(format!("{name}-token").as_bytes());
        format!("    {name}: {{ token: 'sha256:{hash}', rights: [read, run, compose]{more} }}\n")
    };
    let head = "server:\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n";
    let toolsets = "toolsets: { calm: { allow: [echo] } }\n";
    let (ada, bob) = (principal("ada", ""), principal("bob", ", toolset: calm"));
    let world = world(&format!("{toolsets}{head}{ada}{bob}"));
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let shape = "commands:\n  shape: { argv: [echo, '{\"deep\": 1}'], read_only: true }\n";
    world.file("segue.yaml", config.replace("commands:\n", shape));
    let served = Served::start(&world, "memory", &[]);
    let send = |who: &str, path: &str, body: &Json| {
        served.send_by(&format!("{who}-token"), "POST", path, &[], body)
    };
    let text = "name: t\nsteps:\n  - { id: a, tool: 'command:shape' }\n  \
                - { id: b, tool: echo, parameters: { y: '{{ a. }}' } }\n";
    let ran = text.replace("a. }}", "a }}");
    let body = json!({ "composition": ran });
    let run = send("ada", "/api/v1/compositions/execute", &body).is(200)["run_id"].clone();
    let body = json!({ "text": text, "at": at(text, "a. }}") + 2, "run": run });
    let found = send("ada", "/api/v1/language/complete", &body).is(200);
    let labels: Vec<&Json> =
        found["items"].as_array().unwrap().iter().map(|item| &item["label"]).collect();
    assert!(labels.contains(&&json!("deep")), "{found}");
    for route in ["complete", "hover"] {
        let path = format!("/api/v1/language/{route}");
        send("bob", &path, &body).is_problem(404, "not-found");
    }
    // A tool outside of the toolset is neither proposed, nor explained, nor named as a near one.
    let nap = "name: t\nsteps: [ { id: a, tool: sleep, parameters: { ms: 1 } } ]\n";
    let body = json!({ "text": nap, "at": at(nap, "sleep") + 1 });
    assert!(send("ada", "/api/v1/language/complete", &body).body.contains("builtin:sleep"));
    assert!(!send("bob", "/api/v1/language/complete", &body).body.contains("builtin:sleep"));
    let hover = send("bob", "/api/v1/language/hover", &body).is(200);
    assert!(!hover.to_string().contains("milliseconds"), "{hover}");
    assert!(send("ada", "/api/v1/language/hover", &body).is(200)["contents"].is_string());
    let near = json!({ "text": nap.replace("sleep", "sleeep") });
    assert!(send("ada", "/api/v1/language/analyze", &near).body.contains("did you mean `sleep`"));
    assert!(!send("bob", "/api/v1/language/analyze", &near).body.contains("`sleep`"));
}

/// The arguments of a step are rendered with the data of a run, each with its type or why it has no value;
/// nothing is called, and what is sensitive is left out.
#[test]
fn arguments_are_previewed() {
    let (world, served) = served();
    let text = "\
name: shown
input:
  type: object
  required: [list, key]
  properties: { list: { type: array, items: { type: integer } }, key: { type: string, writeOnly: true } }
steps:
  - { id: a, tool: echo, parameters: { big: 'x', list: '{{ input.list }}' } }
  - { id: b, tool: echo, parameters: { n: '{{ a.list[1] + 1 }}', none: '{{ a.list[9] }}', key: '{{ input.key }}', plain: 7 } }
  - id: each
    loop:
      over: '{{ a.list }}'
      steps:
        - { id: inner, tool: echo, parameters: { item: '{{ item }}', at: '{{ loop.index }}', of: '{{ loop.length }}' } }
        - { id: after, tool: echo, parameters: { got: '{{ inner.item }}' } }
  - { id: note, tool: 'command:note', parameters: { text: 'called {{ b.n }}' } }
";
    let input = json!({ "list": [10, 20, 30], "key": "s3cret-value" });
    // The run does without the parameter that has no value: it waits at `note`.
    let runs = text.replace(", none: '{{ a.list[9] }}'", "");
    let body = json!({ "composition": runs, "input": input });
    let ran = served.post("/api/v1/compositions/execute", &body).is(202);
    let run = &ran["run_id"];
    let preview = |more: Json| {
        let mut body = json!({ "text": text, "run": run });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.language("preview", &body)["fields"].clone()
    };
    let fields = preview(json!({ "step": "b" }));
    let field = |name: &str| {
        fields.as_array().unwrap().iter().find(|it| it["field"] == name).unwrap().clone()
    };
    assert_eq!(field("/n")["value"], 21, "{fields}");
    assert_eq!(
        (&field("/plain")["value"], &field("/plain")["type"]),
        (&json!(7), &json!("integer"))
    );
    assert!(field("/none")["error"].is_string() && field("/none")["value"].is_null(), "{fields}");
    assert_eq!(field("/key")["type"], "string", "{fields}");
    assert!(!fields.to_string().contains("s3cret-value"), "{fields}");
    assert_eq!(preview(json!({ "step": "b", "field": "/n" })).as_array().unwrap().len(), 1);

    let values = |fields: &Json| {
        let fields = fields.as_array().unwrap().iter();
        fields.map(|it| it["value"].clone()).collect::<Vec<_>>()
    };
    let first = preview(json!({ "step": "inner" }));
    assert_eq!(values(&first), [json!(10), json!(0), json!(3)], "{first}");
    let third = preview(json!({ "step": "inner", "item": 2 }));
    assert_eq!(values(&third), [json!(30), json!(2), json!(3)], "{third}");
    assert_eq!(values(&preview(json!({ "step": "after", "item": 1 }))), [json!(20)]);
    let beyond = preview(json!({ "step": "inner", "item": 3 }));
    assert!(beyond[0]["error"].is_string(), "{beyond}");

    // A template that is not in the text, at the place of a step, and of the output.
    let template = json!({ "step": "after", "template": { "sum": "{{ inner.item + item }}" } });
    assert_eq!(values(&preview(template)), [json!({ "sum": 20 })]);
    let template = json!({ "template": "{{ b.n }} of {{ run.name }}" });
    assert_eq!(values(&preview(template)), [json!("21 of shown")]);
    for wrong in ["{{ nobody.x }}", "{{ a. }}", "{{ a.list | no_filter }}", "{{ 1 / 0 }}"] {
        let shown = preview(json!({ "step": "b", "template": wrong }));
        assert!(shown[0]["error"].is_string(), "{wrong}: {shown}");
    }
    let large = json!({ "step": "b", "template": "{{ range(100000) }}" });
    let shown = preview(large);
    assert!(shown.to_string().len() < 200_000, "{}", shown.to_string().len());

    // Without a run there is only what needs none.
    let body = json!({ "text": text, "step": "b" });
    let fields = served.language("preview", &body)["fields"].clone();
    assert!(fields.as_array().unwrap().iter().any(|it| it["value"] == 7), "{fields}");
    assert!(fields.as_array().unwrap().iter().any(|it| it["error"].is_string()), "{fields}");
    let path = "/api/v1/language/preview";
    served.post(path, &json!({ "text": text, "step": "bb" })).is_problem(422, "not-found");
    served.post(path, &json!({ "text": text })).is_problem(422, "invalid-field");
    served.post(path, &json!({ "text": "a: [", "step": "b" }));
    served
        .post(path, &json!({ "text": text, "step": "b", "run": "none" }))
        .is_problem(404, "not-found");
    assert!(!world.path("notes.txt").exists(), "nothing was called");
}

/// Two versions differ in their steps, and in what the composition asks of its callers.
#[test]
fn two_versions_are_compared() {
    let (_world, served) = served();
    let input = "input: { type: object, required: [n], properties: { n: { type: integer } } }\n";
    let after = TEXT.replace("steps:", &format!("{input}steps:")).replace("{ y: ", "{ z: ");
    let body = json!({ "before": TEXT, "after": after });
    let found = served.language("compare", &body);
    assert_eq!(found["steps"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&found["steps"][0]["step"], &found["steps"][0]["change"]),
        (&json!("b"), &json!("changed"))
    );
    let breaking = found["interface"].as_array().unwrap().iter().any(|it| it["breaking"] == true);
    assert!(breaking, "{found}");
    let same = served.language("compare", &json!({ "before": TEXT, "after": TEXT }));
    assert_eq!((&same["steps"], &same["interface"]), (&json!([]), &json!([])));
}

/// An output becomes a mock of a test file: a new one, or beside the mocks that are there.
#[test]
fn an_output_is_pinned() {
    let (_world, served) = served();
    let pin = |test_text: Option<&str>, step: &str| {
        let mut body = json!({ "composition": "size", "step": step, "output": { "x": "größe" } });
        if let Some(text) = test_text {
            body["test_text"] = json!(text);
        }
        applied(test_text.unwrap_or(""), &served.language("pin", &body))
    };
    let first = pin(None, "a");
    assert!(first.contains("größe"), "{first}");
    let commented = format!("# a remark\n{first}");
    let second = pin(Some(&commented), "b");
    assert!(second.starts_with("# a remark\n"), "{second}");
    assert_eq!(second.matches("größe").count(), 2, "{second}");
    served
        .post("/api/v1/language/pin", &json!({ "composition": "size", "step": "a" }))
        .is_problem(422, "invalid-field");
}

/// A text over the limit of documents is refused.
#[test]
fn large_texts_are_refused() {
    let (_world, served) = super::served("limits: { document_bytes_max: 2000 }\n");
    let text = "#".repeat(2001);
    served.post("/api/v1/language/analyze", &json!({ "text": text })).is_problem(413, "limit");
}
