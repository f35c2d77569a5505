//! Requests that are refused before execution, and the required form of a request.

use super::{PATH, ask, error};
use crate::rest::served;
use crate::served::TOKEN;
use crate::support::{Json, json};

/// A mutation that would leave a file, with more in it.
fn writing(more: &str) -> String {
    format!(
        "mutation {{ executeComposition(request: {{ composition: {{ name: \"w\", steps: [
            {{ id: \"f\", tool: \"files_write\", parameters: {{ path: \"a.txt\", content: \"x\" }} }}] }} }}) {{ runId }} {more} }}"
    )
}

/// Reliability row 28: each is refused with an error that names the limit, and nothing is executed.
#[test]
fn costly_documents_are_refused_by_name() {
    let (world, served) = served("");
    let deep = format!("{}{}", "a{".repeat(12), "}".repeat(12)).replace("{}", "{a}");
    let each = |n: usize| format!("fragment F{n} on Mutation {{ ...F{} ...F{} }} ", n + 1, n + 1);
    let chain: Vec<String> = (0..30).map(each).collect();
    let chain = chain.concat();
    let chain = format!("{} {chain} fragment F30 on Mutation {{ __typename }}", writing("...F0"));
    let nested = format!("a(x: {}{})", "[".repeat(70), "]".repeat(70));
    for (document, code, named) in [
        (writing(&deep), "limit", "graphql_depth_max"),
        (writing(&"__typename ".repeat(500)), "limit", "graphql_complexity_max"),
        (chain, "limit", "graphql_complexity_max"),
        (writing(&"a: __typename ".repeat(31)), "limit", "graphql_aliases_max"),
        (format!("{{ {} }}", "runs { next } ".repeat(31)), "limit", "graphql_aliases_max"),
        (
            writing(&format!("__typename {}", "@skip(if: false) ".repeat(9))),
            "limit",
            "graphql_directives_max",
        ),
        (writing(&"__typename ".repeat(2_000)), "limit", "graphql_tokens_max"),
        (writing(&format!("#{}\n", "x".repeat(32 * 1024))), "limit", "graphql_document_bytes_max"),
        (writing(&nested), "limit", "value_depth_max"),
        (writing("...A") + "fragment A on Mutation { ...A }", "cycle", "`A`"),
        (writing("") + "query { runs { next } }", "parse", ""),
        (writing("nothing"), "invalid-field", "nothing"),
    ] {
        let error = error(&served, &document, code);
        assert!(error["message"].as_str().unwrap().contains(named), "{named}: {error}");
        assert!(error.get("path").is_none(), "{error}");
    }
    for first in ["0", "-1", "101"] {
        let error = error(&served, &format!("{{ runs(first: {first}) {{ next }} }}"), "limit");
        assert!(error["message"].as_str().unwrap().contains("graphql_page_max"), "{error}");
    }
    assert!(!world.path("a.txt").exists());
    assert_eq!(ask(&served, &writing(""), &json!({})).get("errors"), None);
    assert!(world.path("a.txt").exists(), "what is within its limits is executed");
}

/// Limits are those of the configuration.
#[test]
fn limits_can_be_set() {
    let (_world, served) = served("limits: { graphql_depth_max: 1, graphql_page_max: 2 }\n");
    error(&served, "{ runs { next } }", "limit");
    assert_eq!(ask(&served, "{ __typename }", &json!({}))["data"]["__typename"], "Query");
}

/// Reliability row 23: one operation per request, as JSON that says so, by POST, and not too large.
#[test]
fn a_request_comes_as_json_by_post() {
    let (world, served) = served("");
    let bearer = format!("Bearer {TOKEN}");
    let ask = |method: &str, path: &str, kind: &str, body: &str| {
        let headers = [("Authorization", &*bearer), ("Content-Type", kind)];
        served.ask(method, path, &headers, body)
    };
    let write = json!({ "query": writing("") }).to_string();
    let form: String = form(&writing(""));
    let got = ask("GET", &format!("{PATH}?query={form}"), "application/json", "");
    got.is_problem(405, "invalid-field");
    assert_eq!(got.headers["allow"], "POST");
    for kind in [
        "text/plain",
        "application/graphql",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        ask("POST", PATH, kind, &write).is_problem(415, "invalid-field");
    }
    let batch = format!("[{write},{write}]");
    let problem = ask("POST", PATH, "application/json", &batch).is_problem(422, "invalid-field");
    assert!(problem["detail"].as_str().unwrap().contains("a list"), "{problem}");
    ask("POST", PATH, "application/json", &format!("{write}x")).is_problem(400, "parse");
    ask("POST", PATH, "application/json", "{}").is_problem(422, "invalid-field");
    ask("POST", &format!("{PATH}?query={form}"), "application/json", &write)
        .is_problem(400, "invalid-field");
    let large = json!({ "query": writing(""), "extensions": { "x": "x".repeat(256 * 1024) } });
    let problem =
        ask("POST", PATH, "application/json", &large.to_string()).is_problem(413, "limit");
    assert!(problem["detail"].as_str().unwrap().contains("graphql_body_bytes_max"), "{problem}");
    assert!(!world.path("a.txt").exists());
    // Without the token not even the schema is returned.
    let schema = json!({ "query": "{ __schema { types { name } } }" }).to_string();
    let headers = [("Content-Type", "application/json")];
    served.ask("POST", PATH, &headers, &schema).is_problem(401, "unauthorized");
    assert_eq!(ask("POST", PATH, "application/json", &schema).status, 200);
}

fn form(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    bytes.concat()
}

/// The newer media type says with its status whether anything was executed.
#[test]
fn the_newer_media_type_has_a_status() {
    let (_world, served) = served("");
    let bearer = format!("Bearer {TOKEN}");
    let ask = |query: &str| {
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/graphql-response+json, application/json;q=0.9"),
        ];
        let answer = served.ask("POST", PATH, &headers, &json!({ "query": query }).to_string());
        assert_eq!(answer.headers["content-type"], "application/graphql-response+json");
        let body: Json = answer.json();
        (answer.status, body.get("data").is_some(), body.get("errors").is_some())
    };
    assert_eq!(ask("{ runs { next } }"), (200, true, false));
    assert_eq!(ask("{ run(runId: \"x\") { name } }"), (200, true, true));
    assert_eq!(ask("{ nothing }"), (400, false, true));
    assert_eq!(ask("{"), (400, false, true));
}
