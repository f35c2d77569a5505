//! Who may do what, and whose is what: every route × every credential × every surface.

mod four_eyes;
mod inline;

use segue::http::auth::SESSION;
use segue::http::route::Route;
use segue::mcp::builtin::BUILTIN_TOOLS;
use segue::server::routes;
use segue_core::access::Right;
use segue_core::tool::hex_digest;

use super::{one, world};
use crate::served::{Answer, Served, TOKEN};
use crate::support::{Json, World, json};

pub(super) const EXECUTE: &str = "/api/v1/compositions/execute";

/// Calls `sleep`, which the toolset `calm` has not.
const NAP: &str = "\
name: nap
steps: [ { id: a, tool: sleep, parameters: { ms: 1 } } ]
";

/// Calls it through another one.
const LONG_NAP: &str = "\
name: long-nap
steps: [ { id: a, tool: nap } ]
";

/// Principals by name, with their rights and what else is said of them. Their tokens are their names
/// and `-token`.
const PRINCIPALS: &[(&str, &str, &str)] = &[
    ("ada", "read, run, compose, approve, write", ""),
    ("bob", "read, run, compose, approve, write", ""),
    ("looker", "read", ""),
    ("runner", "run", ""),
    ("composer", "compose", ""),
    ("approver", "approve", ""),
    ("keeper", "write", ""),
    ("scraper", "metrics", ""),
    ("root", "admin", ""),
    ("old", "admin", ", expires: '2020-01-01T00:00:00Z'"),
    ("held", "read, run, compose, approve", ", toolset: calm"),
];

fn principals() -> String {
    let mut text = String::from(
        "toolsets: { calm: { allow: [echo, 'composition:*'] } }\nserver:\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n",
    );
    text.extend(PRINCIPALS.iter().map(|(name, rights, more)| entry(name, rights, more)));
    text
}

/// The configuration of a principal whose token is its name and `-token`.
fn entry(name: &str, rights: &str, more: &str) -> String {
    let hash = hex_digest(format!("{name}-token").as_bytes());
    format!("    {name}: {{ token: 'sha256:{hash}', rights: [{rights}]{more} }}\n")
}

fn served() -> (World, Served) {
    let world = world(&principals());
    world.file("lib/nap.yaml", NAP);
    world.file("lib/long-nap.yaml", LONG_NAP);
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

impl Served {
    /// A request with a principal's token, and a JSON body.
    fn send_as(
        &self,
        who: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Json,
    ) -> Answer {
        self.send_by(&format!("{who}-token"), method, path, headers, body)
    }

    fn get_as(&self, who: &str, path: &str) -> Answer {
        self.send_as(who, "GET", path, &[], &json!(null))
    }

    fn post_as(&self, who: &str, path: &str, body: &Json) -> Answer {
        self.send_as(who, "POST", path, &[], body)
    }

    /// The id of a principal's run that waits for an approval.
    fn waiting_run_of(&self, who: &str) -> String {
        let note = json!({ "composition": one("command:note", &json!({ "text": "x" })) });
        self.post_as(who, EXECUTE, &note).is(202)["run_id"].as_str().unwrap().to_owned()
    }

    /// The response of an MCP method to a principal, in the era without `initialize`.
    fn mcp_as(&self, who: &str, method: &str, params: Json) -> Json {
        let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        self.mcp_with(who, &tasks, method, params)
    }

    /// The same to a client with these capabilities.
    fn mcp_with(&self, who: &str, capabilities: &Json, method: &str, mut params: Json) -> Json {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or("").to_owned();
        let task = params["taskId"].as_str().unwrap_or("").to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let bearer = format!("Bearer {who}-token");
        let mut headers = vec![
            ("Authorization", &*bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        let named = if name.is_empty() { &task } else { &name };
        if !named.is_empty() {
            headers.push(("Mcp-Name", named));
        }
        let answer = self.ask("POST", "/mcp", &headers, &message.to_string());
        let body = answer.body.lines().find_map(|line| line.strip_prefix("data: {"));
        let body = body.map_or(answer.body.clone(), |rest| format!("{{{rest}"));
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    fn call_as(&self, who: &str, tool: &str, args: &Json) -> Json {
        self.mcp_as(who, "tools/call", json!({ "name": tool, "arguments": args }))
    }

    fn tools_of(&self, who: &str) -> Vec<String> {
        let listed = self.mcp_as(who, "tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// What a credential is to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Unknown,
    TooLittle,
    SomebodyElse,
    Right,
}

/// Every credential that a route is tried with, and what it is to it.
fn credentials(route: &Route) -> Vec<(Option<String>, Is)> {
    let bearer = |who: &str| Some(format!("Bearer {who}-token"));
    let mut all = vec![
        (None, Is::Unknown),
        (bearer("nobody"), Is::Unknown),
        (bearer("old"), Is::Unknown),
        (Some("Basic ada-token".to_owned()), Is::Unknown),
        (Some("Bearer ada-token, Bearer root-token".to_owned()), Is::Unknown),
        (bearer("root"), Is::Right),
        (Some(format!("Bearer {TOKEN}")), Is::Right),
    ];
    for (who, right) in [
        ("looker", Right::Read),
        ("runner", Right::Run),
        ("composer", Right::Compose),
        ("approver", Right::Approve),
        ("keeper", Right::Write),
        ("scraper", Right::Metrics),
    ] {
        // `read` includes the metrics; no other right includes another.
        let is_enough = matches!(
            (right, route.right),
            (_, Right::Public) | (Right::Read | Right::Metrics, Right::Metrics)
        );
        if is_enough && right == Right::Metrics {
            all.push((bearer(who), Is::Right));
        } else if !is_enough && right != route.right {
            all.push((bearer(who), Is::TooLittle));
        }
    }
    if route.right != Right::Admin {
        all.extend([(bearer("bob"), Is::SomebodyElse), (bearer("ada"), Is::Right)]);
    }
    all
}

/// D3: every route × none, wrong, expired, too few rights, another principal's and right, on a run
/// of Ada's. A route added later is in the table, and so in here.
#[test]
fn every_route_answers_every_credential_as_it_should() {
    let (_world, served) = served();
    let run = served.waiting_run_of("ada");
    let gone = "018f0000-0000-7000-8000-000000000000";
    for route in routes() {
        let is_of_run = route.path.starts_with("/api/v1/runs/{id}") || route.name == "followAll";
        // What changes the run would have each credential meet another one.
        let acts = is_of_run && matches!(route.right, Right::Run | Right::Approve);
        let path_to = |id: &str| {
            let part = |part: &str| if part == "{id}" { id } else { part }.to_owned();
            let path = route.path.split('/').map(part).collect::<Vec<_>>().join("/");
            let path = path.replace("{name}", "all").replace("{path}", "a");
            match route.name {
                "followAll" => format!("{path}?run={id}"),
                "compareRuns" => format!("{path}?with={id}"),
                _ => path,
            }
        };
        // Silence is no answer.
        let body = if route.name == "approveRun" { r#"{"approved":true}"# } else { "" };
        for (credential, is) in credentials(route) {
            let ask = |id: &str| {
                let mut headers = vec![
                    ("Content-Type", "application/json"),
                    ("Prefer", "respond-async"),
                    ("X-Request-Id", "this"),
                ];
                headers.extend(credential.as_deref().map(|it| ("Authorization", it)));
                served.ask(route.verb.as_str(), &path_to(id), &headers, body)
            };
            let what = format!("{} {} with {credential:?}", route.verb.as_str(), route.path);
            if acts && is == Is::Right {
                continue;
            }
            // Events of a run that waits come for ever.
            if route.path.ends_with("/events") && is == Is::Right {
                continue;
            }
            let answer = ask(&run);
            match (is, route.right) {
                // It says how to sign in.
                (Is::Unknown, Right::Public) if route.path == SESSION => {}
                (Is::Unknown, Right::Public) => assert_ne!(answer.status, 401, "{what}"),
                (Is::Unknown, _) => {
                    assert_eq!(answer.status, 401, "{what}");
                    assert!(answer.headers["www-authenticate"].starts_with("Bearer"), "{what}");
                }
                (Is::TooLittle, _) => assert_eq!(answer.status, 403, "{what}: {}", answer.body),
                (Is::SomebodyElse, _) if is_of_run => {
                    assert_eq!(answer.status, 404, "{what}: {}", answer.body);
                    // It is as if there were none.
                    let other = ask(gone);
                    assert_eq!(answer.body.replace(&run, gone), other.body, "{what}");
                    let headers = |answer: &Answer| {
                        let mut headers = answer.headers.clone();
                        // The two may be answered in different seconds.
                        headers.remove("date");
                        headers
                    };
                    assert_eq!(headers(&answer), headers(&other), "{what}");
                }
                (Is::SomebodyElse | Is::Right, _) => {
                    assert!(!matches!(answer.status, 401 | 403), "{what}: {}", answer.body);
                    assert!(!is_of_run || answer.status == 200, "{what}: {}", answer.body);
                }
            }
        }
    }
    // Who tries something over GraphQL is named, too.
    let query = json!({ "query": "mutation { cancelRun(runId: \"x\") { runId } }" });
    served.post_as("looker", "/graphql", &query).is(200);
    let line = served.said("what=\"cancelRun\" path=\"/graphql\"");
    assert!(line.contains("who=\"looker\"") && line.contains("status=403"), "{line}");
    // The run is unchanged.
    assert_eq!(served.get_as("ada", &format!("/api/v1/runs/{run}")).is(200)["status"], "waiting");
}

/// D3, A2: runs, their events, approvals and keys are their principal's; the administrator has all of
/// them, and whose each is is said.
#[test]
fn what_is_theirs_is_theirs() {
    let (_world, served) = served();
    let (of_ada, of_bob) = (served.waiting_run_of("ada"), served.waiting_run_of("bob"));
    let listed = |who: &str| {
        let page = served.get_as(who, "/api/v1/runs").is(200);
        let runs = page["runs"].as_array().unwrap().iter();
        runs.map(|run| (run["run_id"].as_str().unwrap().to_owned(), run["principal"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("ada"), [(of_ada.clone(), json!("ada"))]);
    assert_eq!(listed("bob"), [(of_bob.clone(), json!("bob"))]);
    assert_eq!(listed("looker"), []);
    assert_eq!(listed("root").len(), 2);
    let yes = json!({ "approved": true });
    for (action, body) in [
        ("approve", &yes),
        ("cancel", &json!({})),
        ("resume", &json!({})),
        ("rollback", &json!({})),
    ] {
        let path = format!("/api/v1/runs/{of_ada}/{action}");
        served.post_as("bob", &path, body).is_problem(404, "not-found");
    }
    served.get_as("bob", &format!("/api/v1/runs/{of_ada}/events")).is_problem(404, "not-found");
    let view = served.post_as("ada", &format!("/api/v1/runs/{of_ada}/approve"), &yes).is(200);
    assert_eq!(view["status"], "success", "{view}");
    let view =
        served.post_as("root", &format!("/api/v1/runs/{of_bob}/cancel"), &json!(null)).is(200);
    assert_eq!(view["status"], "cancelled");
    let said = served.said("cancelRun");
    assert!(said.contains("who=\"bob\""), "{said}");
    // The same key of two principals is two keys.
    let keyed = |who: &str| {
        let body = json!({ "composition": one("echo", &json!({ "x": 1 })) });
        let answer = served.send_as(who, "POST", EXECUTE, &[("Idempotency-Key", "k")], &body);
        answer.is(200)["run_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(keyed("ada"), keyed("ada"));
    assert_ne!(keyed("ada"), keyed("bob"));
}

/// D3: the same on MCP: runs, tasks and results of another principal are not visible, tools without
/// the right are neither listed nor called, and a session belongs to its principal.
#[test]
fn mcp_knows_who_calls() {
    let (_world, served) = served();
    let run = served.waiting_run_of("ada");
    let answer = served.call_as("ada", "run_get", &json!({ "run_id": run }));
    assert_eq!(answer["result"]["structuredContent"]["status"], "waiting", "{answer}");
    for tool in ["run_get", "run_cancel"] {
        let answer = served.call_as("bob", tool, &json!({ "run_id": run }));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, format!("there is no run {run}"));
    }
    let uri = format!("segue://runs/{run}/output");
    assert!(served.mcp_as("bob", "resources/read", json!({ "uri": uri }))["error"].is_object());
    assert!(served.mcp_as("ada", "resources/read", json!({ "uri": uri }))["result"].is_object());
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = served.mcp_as("bob", method, json!({ "taskId": run }));
        assert!(answer["error"]["message"].as_str().unwrap().contains("no such task"), "{answer}");
    }
    assert!(served.mcp_as("ada", "tasks/get", json!({ "taskId": run }))["result"].is_object());
    for (who, right) in [("looker", Right::Read), ("ada", Right::Write)] {
        let tools = served.tools_of(who);
        for own in BUILTIN_TOOLS.iter().filter(|own| !own.name.starts_with("plan_")) {
            let may = own.right == Right::Read || right == Right::Write;
            assert_eq!(tools.iter().any(|tool| tool == own.name), may, "{who} {}", own.name);
            if !may {
                let answer = served.call_as(who, own.name, &json!({}));
                let message =
                    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
                let needed = own.right.as_str();
                let said =
                    format!("there is no tool `{}` for `{who}`: it needs `{needed}`", own.name);
                assert_eq!(message, said);
            }
        }
        assert_eq!(tools.iter().any(|tool| tool == "double_it"), right == Right::Write);
    }
    assert!(served.call_as("looker", "double_it", &json!({ "n": 1 }))["error"].is_object());
    served.call_as("ada", "double_it", &json!({ "n": 1 }));
    let said = served.said("path=\"double_it\"");
    for part in ["who=\"looker\"", "what=\"callTool\"", "status=\"refused\""] {
        assert!(said.contains(part), "{said}");
    }
}

/// D3: a tool outside a principal's toolset is not visible to them, on any surface.
#[test]
fn a_tool_of_no_toolset_of_theirs_is_not_there() {
    let (_world, served) = served();
    let told = |who: &str, tool: &str| {
        let query = json!({ "query": format!("{{ tool(id: \"{tool}\") {{ id }} }}") });
        served.post_as(who, "/graphql", &query).is(200)["errors"][0]["message"].clone()
    };
    for tool in ["sleep", "builtin:sleep"] {
        assert!(told("ada", tool).is_null());
        served.get_as("held", &format!("/api/v1/tools/{tool}")).is_problem(404, "not-found");
        assert_eq!(
            told("held", tool),
            told("held", "qqqqq").as_str().unwrap().replace("qqqqq", tool)
        );
    }
    assert!(told("held", "echo").is_null());
}

/// D3: the session of an MCP client of the legacy era is not visible to any other principal.
#[test]
fn a_session_is_hidden_from_other_principals() {
    let (_world, served) = served();
    let send = |who: &str, session: Option<&str>, message: &Json| {
        let bearer = format!("Bearer {who}-token");
        let mut headers = vec![
            ("Authorization", &*bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|id| ("Mcp-Session-Id", id)));
        served.ask("POST", "/mcp", &headers, &message.to_string())
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "raw", "version": "1" } } });
    let answer = send("ada", None, &hello);
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = &*answer.headers["mcp-session-id"];
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(send("ada", Some(session), &begun).status, 202);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(send("ada", Some(session), &list).status, 200);
    assert_eq!(send("bob", Some(session), &list).status, 404);
    assert_eq!(send("root", Some(session), &list).status, 404);
}

/// What a toolset would refuse is not offered, on any surface, and refused when it is asked for anyway.
#[test]
fn what_a_toolset_refuses_is_not_offered() {
    let (_world, served) = served();
    let names = |who: &str| {
        let listed = served.get_as(who, "/api/v1/compositions").is(200);
        let compositions = listed["compositions"].as_array().unwrap().iter();
        compositions.map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("ada"), ["double-it", "long-nap", "nap"]);
    assert_eq!(names("held"), ["double-it"]);
    let tools = served.tools_of("held");
    assert!(tools.iter().any(|tool| tool == "double_it"));
    assert!(!tools.iter().any(|tool| tool.contains("nap")), "{tools:?}");
    for name in ["nap", "long-nap"] {
        served.post_as("held", EXECUTE, &json!({ "name": name })).is_problem(404, "not-found");
        served.post_as("ada", EXECUTE, &json!({ "name": name })).is(200);
    }
    assert!(served.call_as("held", "nap", &json!({}))["error"].is_object());
    let own = json!({ "composition": one("sleep", &json!({ "ms": 1 })) });
    served.post_as("held", EXECUTE, &own).is_problem(422, "tool-not-allowed");
    served.post_as("held", "/api/v1/plans", &own).is_problem(422, "tool-not-allowed");
    let own = json!({ "composition": one("echo", &json!({ "ms": 1 })) });
    served.post_as("held", EXECUTE, &own).is(200);
    // Nor are its tools shown.
    let listed = served.get_as("held", "/api/v1/tools").is(200);
    let ids: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["id"].as_str().unwrap())
        .collect();
    assert!(ids.contains(&"builtin:echo") && !ids.contains(&"builtin:sleep"), "{ids:?}");
    served.get_as("held", "/api/v1/tools/sleep").is_problem(404, "not-found");
    served.get_as("held", "/api/v1/tools/echo").is(200);
    let all = served.get_as("held", "/api/v1/toolsets/all/export?format=openai").is(200);
    assert!(!all.to_string().contains("sleep"), "{all}");
}

/// A principal without a toolset learns why a composition is not served; one with a toolset does not
/// even learn that it is configured.
#[test]
fn a_composition_that_could_not_be_loaded_is_named_to_whom_it_may_be() {
    let world = world(&principals());
    world.file("lib/broken.yaml", "name: broken\nsteps: [{ id: a, tool: ehco }]\n");
    let served = Served::start(&world, "memory", &[]);
    let run = json!({ "name": "broken" });
    let detail = |who: &str| {
        let problem = served.send_as(who, "POST", EXECUTE, &[], &run).is_problem(404, "not-found");
        problem["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail("ada").starts_with("composition `broken` could not be loaded: "));
    assert_eq!(detail("held"), "no composition `broken` is served");
}

/// Others run a template with all their tools, so an author with a toolset stores none that makes compositions
/// as it runs, wherever the step stands.
#[test]
fn a_template_of_an_author_with_a_toolset_has_no_expand() {
    let stocker = entry("stocker", "read, run, compose, write", ", toolset: calm");
    let world = world(&format!("{}{stocker}", principals()));
    let served = Served::start(&world, "memory", &[]);
    let expand = json!({ "id": "more", "expand": "{{ input.plan }}" });
    let inside = json!({ "id": "each", "loop": { "over": [1], "steps": [expand] } });
    let plain = json!({ "id": "say", "tool": "echo", "parameters": { "x": 1 } });
    let store = |who: &str, id: &str, steps: &[&Json]| {
        let template = json!({ "composition": { "name": id, "steps": steps } });
        let path = format!("/api/v1/compositions/templates/{id}");
        served.send_as(who, "PUT", &path, &[], &template)
    };
    for steps in [&[&expand][..], &[&plain, &inside]] {
        let problem = store("stocker", "grows", steps).is_problem(403, "unauthorized");
        assert!(problem["detail"].as_str().unwrap().contains("`expand`"), "{problem}");
        let template = json!({ "id": "grows", "composition": { "name": "grows", "steps": steps } });
        served
            .send_as("stocker", "POST", "/api/v1/compositions/templates", &[], &template)
            .is_problem(403, "unauthorized");
    }
    served.get_as("ada", "/api/v1/compositions/templates/grows").is_problem(404, "not-found");
    store("stocker", "says", &[&plain]).is(201);
    store("ada", "grows", &[&expand]).is(201);
}

/// A run resumes under the toolset that it was started with, also after a restart.
#[test]
fn a_run_stays_within_its_toolset() {
    let world = world(&principals());
    let composition = json!({ "name": "grows", "steps": [
        { "id": "ok", "approve": { "message": "go on?" } },
        { "id": "more", "depends_on": ["ok"], "expand": "{{ input.plan }}" },
    ] });
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    let plan = json!({ "name": "made", "steps": [
        { "id": "s", "tool": "sleep", "parameters": { "ms": 1 } }] });
    let wanted = json!({ "composition": composition, "input": { "plan": plan } });
    let begun = served.post_as("held", EXECUTE, &wanted).is(202);
    let run = begun["run_id"].as_str().unwrap().to_owned();
    drop(served);
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    let path = format!("/api/v1/runs/{run}/approve");
    let yes = json!({ "approved": true });
    served.post_as("bob", &path, &yes).is_problem(404, "not-found");
    let view = served.post_as("held", &path, &yes).is(200);
    assert_eq!(view["status"], "failed", "{view}");
    assert_eq!(view["errors"][0]["code"], "tool-not-allowed", "{view}");
    // What was begun on this machine is the administrator's.
    let id = world.json(
        0,
        &[
            "--config",
            "segue.yaml",
            "--store",
            "sqlite:runs.db",
            "run",
            "double-it",
            "-i",
            "n=1",
            "--json",
        ],
    );
    let path = format!("/api/v1/runs/{}", id["run_id"].as_str().unwrap());
    served.get_as("held", &path).is_problem(404, "not-found");
    served.get_as("root", &path).is(200);
}

/// A token is made up, shown once, and its entry lets its principal in.
#[test]
fn a_token_is_made_for_a_principal() {
    let world = world(&principals());
    let args = ["--config", "segue.yaml", "serve", "token", "ci", "--rights", "read,run"];
    let made =
        world.segue(&[&args[..], &["--expires", "30d", "--toolset", "calm"]].concat()).exits(0);
    let token = made.stderr.split("token: ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(!made.stdout.contains(token));
    let entry = made.stdout.trim();
    assert!(entry.contains("toolset: calm") && entry.contains("rights: [read, run]"), "{entry}");
    world.file("segue.yaml", format!("{}{}    {entry}\n", crate::serve::CONFIG, principals()));
    let served = Served::start(&world, "memory", &[]);
    let bearer = format!("Bearer {token}");
    let status = |path| served.ask("GET", path, &[("Authorization", &bearer)], "").status;
    assert_eq!(status("/api/v1/runs"), 200);
    let json = world.json(0, &[&args[..], &["--json"]].concat());
    let hash = hex_digest(json["token"].as_str().unwrap().as_bytes());
    assert_eq!(json["entry"]["token"], format!("sha256:{hash}"));
    world.segue(&["serve", "token", "Not A Name"]).exits(2);
    world.segue(&["serve", "token", "x", "--rights", "fly"]).exits(2);
    world.segue(&["serve", "token", "x", "--toolset", "nothing"]).exits(2);
}

/// Configuration errors about principals name their line, and give no access.
#[test]
fn mistakes_about_principals_are_said() {
    let hash = hex_digest(b"x");
    for (entry, said) in [
        ("a: { token: secret, rights: [read] }", "`token` is `sha256:`"),
        ("a: { rights: [read] }", "needs a `token`"),
        (&*format!("a: {{ token: 'sha256:{hash}' }}"), "`rights` is required"),
        (&*format!("a: {{ token: 'sha256:{hash}', rights: [fly] }}"), "there is no right `fly`"),
        (
            &*format!("a: {{ token: 'sha256:{hash}', rights: [read], toolset: x }}"),
            "there is no toolset `x`",
        ),
        (
            &*format!("a: {{ token: 'sha256:{hash}', rights: [read], expires: soon }}"),
            "is not a time",
        ),
        (&*format!("A B: {{ token: 'sha256:{hash}', rights: [read] }}"), "a principal's name"),
        (
            &*format!(
                "a: {{ token: 'sha256:{hash}', rights: [read] }}\n    b: {{ token: 'sha256:{hash}', rights: [read] }}"
            ),
            "has the same token",
        ),
        (
            &*format!("a: {{ token: 'sha256:{hash}', rights: [read] }}\n  token: x"),
            "the administrator has the same token",
        ),
    ] {
        let world = World::new();
        world.file("segue.yaml", format!("server:\n  principals:\n    {entry}\n"));
        let done =
            world.segue(&["--config", "segue.yaml", "serve", "--listen", "127.0.0.1:0"]).exits(2);
        assert!(done.stderr.contains(said), "{entry}: {}", done.stderr);
    }
    // So is the token that is kept.
    let world = World::new();
    let entry = format!("a: {{ token: 'sha256:{hash}', rights: [read] }}");
    world.file("segue.yaml", format!("server:\n  principals:\n    {entry}\n"));
    let data = world.folder().with_file_name("home").join("data/segue");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("server-token"), &hash).unwrap();
    let done =
        world.segue(&["--config", "segue.yaml", "serve", "--listen", "127.0.0.1:0"]).exits(2);
    assert!(done.stderr.contains("have the same token"), "{}", done.stderr);
}
