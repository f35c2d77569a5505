//! Sessions of browsers: the cookie, the CSRF header, and their end.

use crate::rest::{documented, served};
use crate::served::{Answer, Served, TOKEN};
use crate::support::{Json, World, json};

const PATH: &str = "/api/v1/session";
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A browser that is signed in.
struct Browser<'a> {
    served: &'a Served,
    cookie: String,
    csrf: String,
}

impl Browser<'_> {
    /// A request as a browser sends it, with these headers more.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let all = [&[("Cookie", &*self.cookie), JSON], headers].concat();
        self.served.ask(method, path, &all, body)
    }

    /// The same with the CSRF header.
    fn send(&self, method: &str, path: &str, body: &Json) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(method, path, &[("X-Segue-CSRF", &self.csrf)], &body)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }
}

fn sign_in(served: &Served, body: &Json) -> Answer {
    let answer = served.ask("POST", PATH, &[JSON], &body.to_string());
    documented("POST", PATH, &answer);
    answer
}

fn browser<'a>(served: &'a Served, token: &str) -> Browser<'a> {
    let answer = sign_in(served, &json!({ "token": token }));
    let session = answer.is(200);
    let cookie = answer.headers["set-cookie"].split(';').next().unwrap().to_owned();
    Browser { served, cookie, csrf: session["csrf"].as_str().unwrap().to_owned() }
}

fn echo() -> Json {
    json!({ "composition": { "name": "a", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "x": 1 } }] } })
}

/// The cookie stands for the token; no script and no other site can use it.
#[test]
fn a_token_becomes_a_cookie() {
    let (_world, served) = served("");
    let answer = sign_in(&served, &json!({ "token": TOKEN }));
    let session = answer.is(200);
    let cookie = &answer.headers["set-cookie"];
    let port = served.address.rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("segue_session_{port}=")), "{cookie}");
    let end = "; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200";
    assert!(cookie.ends_with(end) && !cookie.contains(TOKEN), "{cookie}");
    assert_eq!(session["principal"], "the token");
    assert_eq!(session["rights"].as_array().unwrap().len(), 7);
    assert_eq!(session["toolset"], json!(null));
    assert_eq!(session["writable"], true);
    assert_eq!(session["sign_in"]["oidc"], json!(null));
    // A proxy encrypts: the browser says so by its origin.
    let origin = format!("https://{}", served.address);
    let answer = served.ask(
        "POST",
        PATH,
        &[JSON, ("Origin", &origin)],
        &json!({ "token": TOKEN }).to_string(),
    );
    assert!(answer.headers["set-cookie"].ends_with("; Secure"), "{answer:?}");
    let ada = browser(&served, TOKEN);
    let seen = ada.send("GET", PATH, &json!(null));
    documented("GET", PATH, &seen);
    assert_eq!(seen.is(200)["csrf"], ada.csrf);
    // A browser sends the cookie to every port of the host: who has only that learns no CSRF value.
    for wrong in ["", "x", &ada.csrf[1..]] {
        let answer = ada.ask("GET", PATH, &[("X-Segue-CSRF", wrong)], "");
        answer.is_problem(401, "unauthorized");
        assert!(!answer.body.contains(&*ada.csrf), "{answer:?}");
    }
    ada.get(PATH).is_problem(401, "unauthorized");
    assert_eq!(ada.get("/api/v1/runs").status, 200);
    // A token takes precedence, so a wrong one is not excused by a cookie.
    assert_eq!(ada.ask("GET", "/api/v1/runs", &[("Authorization", "Bearer x")], "").status, 401);
}

/// Without a session the answer says how to sign in; a token that is not ours opens none.
#[test]
fn a_caller_without_a_session_learns_how_to_sign_in() {
    let (_world, served) = served("");
    let answer = served.ask("GET", PATH, &[], "");
    documented("GET", PATH, &answer);
    assert_eq!(answer.is_problem(401, "unauthorized")["sign_in"], json!({ "oidc": null }));
    for body in [json!({ "token": "x" }), json!({ "code": "x" }), json!({}), json!({ "token": "" })]
    {
        let answer = sign_in(&served, &body);
        answer.is_problem(401, "unauthorized");
        assert!(!answer.headers.contains_key("set-cookie"), "{answer:?}");
    }
    let said = served.said("not let in");
    assert!(said.contains(PATH) && !said.contains("open-sesame"), "{said}");
    let answer = served.ask("GET", "/api/v1/runs", &[("Cookie", "segue_session=x")], "");
    answer.is_problem(401, "unauthorized");
    // A token in the header is an answer, too: there is no CSRF value, because it needs none.
    assert_eq!(served.get(PATH).is(200)["csrf"], json!(null));
}

/// A browser sends the cookie by itself, so everything but reading needs the header that only the page
/// knows, on every surface.
#[test]
fn changes_by_cookie_need_the_csrf_header() {
    let (_world, served) = served("");
    let ada = browser(&served, TOKEN);
    let execute = "/api/v1/compositions/execute";
    let graphql = json!({ "query": "{ __typename }" });
    let mcp = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for (method, path, body) in [
        ("POST", execute, echo()),
        ("POST", "/graphql", graphql.clone()),
        ("POST", "/mcp", mcp.clone()),
        ("DELETE", "/mcp", json!(null)),
        ("POST", "/api/v1/plans", echo()),
        ("DELETE", "/api/v1/compositions/templates/x", json!(null)),
        ("DELETE", PATH, json!(null)),
    ] {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let without = ada.ask(method, path, &[], &text);
        without.is_problem(403, "unauthorized");
        for wrong in ["", "x", &ada.csrf[1..], &format!("{}0", ada.csrf)] {
            let answer = ada.ask(method, path, &[("X-Segue-CSRF", wrong)], &text);
            answer.is_problem(403, "unauthorized");
        }
    }
    assert_eq!(ada.send("POST", execute, &echo()).is(200)["success"], true);
    assert!(ada.send("POST", "/graphql", &graphql).is(200)["errors"].is_null());
    let answer = ada.send("POST", "/mcp", &mcp);
    assert!(!matches!(answer.status, 401 | 403), "{answer:?}");
    // The value of another session does not do.
    let other = Browser { cookie: ada.cookie.clone(), ..browser(&served, TOKEN) };
    other.send("POST", execute, &echo()).is_problem(403, "unauthorized");
    // A page of another origin gets nowhere, with or without it.
    let headers = [("Origin", "http://evil.example"), ("X-Segue-CSRF", &*ada.csrf)];
    ada.ask("POST", execute, &headers, &echo().to_string()).is_problem(403, "unauthorized");
    ada.ask("GET", "/api/v1/runs", &headers[..1], "").is_problem(403, "unauthorized");
    served
        .ask("POST", PATH, &[JSON, headers[0]], &json!({ "token": TOKEN }).to_string())
        .is_problem(403, "unauthorized");
}

/// A principal has its own rights with a cookie, too.
#[test]
fn a_session_has_the_rights_of_its_principal() {
    let world = World::new();
    let config = |principals: &str| {
        format!(
            "toolsets: {{ calm: {{ allow: [echo] }} }}\nserver:\n  token: {TOKEN}\n{principals}"
        )
    };
    let ada = "  principals: { ada: { token: '${ADA}', rights: [read, run], toolset: calm } }\n";
    world.file("segue.yaml", config(ada));
    let token = "0123456789012345678901234567890123456789";
    let env = [("ADA", token)];
    let served = Served::start_with(&world, "memory", &["--watch"], &env);
    let ada = browser(&served, token);
    let session = ada.send("GET", PATH, &json!(null)).is(200);
    assert_eq!(session["principal"], "ada");
    // Who reads may read metrics.
    assert_eq!(session["rights"], json!(["read", "run", "metrics"]));
    assert_eq!((&session["toolset"], &session["writable"]), (&json!("calm"), &json!(false)));
    ada.send("POST", "/api/v1/compositions/execute", &echo()).is_problem(403, "unauthorized");
    // Without its token the session ends at once, also where it is being followed.
    world.file("segue.yaml", config(""));
    served.said("configuration reloaded");
    ada.get("/api/v1/runs").is_problem(401, "unauthorized");
    assert_eq!(browser(&served, TOKEN).get("/api/v1/runs").status, 200);
}

#[test]
fn signing_out_ends_the_session() {
    let (_world, served) = served("");
    let (ada, other) = (browser(&served, TOKEN), browser(&served, TOKEN));
    let answer = ada.send("DELETE", PATH, &json!(null));
    assert_eq!(answer.status, 204);
    assert!(answer.headers["set-cookie"].contains("Max-Age=0"), "{answer:?}");
    ada.get("/api/v1/runs").is_problem(401, "unauthorized");
    assert_eq!(other.get("/api/v1/runs").status, 200);
    assert_eq!(ada.send("DELETE", PATH, &json!(null)).status, 204);
}

/// Sessions, sign-in links and failed attempts are limited.
#[test]
fn sessions_and_attempts_are_limited() {
    let (_world, served) =
        served("limits: { served_sessions_max: 2, served_sign_in_failures_max: 2 }\n");
    let first = browser(&served, TOKEN);
    let others = [browser(&served, TOKEN), browser(&served, TOKEN)];
    first.get("/api/v1/runs").is_problem(401, "unauthorized");
    assert!(others.iter().all(|other| other.get("/api/v1/runs").status == 200));
    for status in [401, 401, 429] {
        assert_eq!(sign_in(&served, &json!({ "token": "x" })).status, status);
    }
    let answer = sign_in(&served, &json!({ "token": "x" }));
    answer.is_problem(429, "limit");
    assert_eq!(answer.headers["retry-after"], "60");
    // Failures of strangers lock nobody out.
    assert_eq!(sign_in(&served, &json!({ "token": TOKEN })).status, 200);
    assert_eq!(served.get("/api/v1/runs").status, 200);
}

#[test]
fn a_session_expires() {
    let (_world, served) = served("limits: { served_session_ms: 1 }\n");
    let ada = browser(&served, TOKEN);
    std::thread::sleep(std::time::Duration::from_millis(5));
    ada.get("/api/v1/runs").is_problem(401, "unauthorized");
}

/// Where no token is needed, there is nothing to sign in to.
#[test]
fn without_a_token_everybody_on_this_machine_is_the_administrator() {
    let world = World::new();
    world.file("segue.yaml", "");
    let served = Served::start(&world, "memory", &["--no-token"]);
    let session = served.ask("GET", PATH, &[], "").is(200);
    assert_eq!((&session["principal"], &session["csrf"]), (&json!("this machine"), &json!(null)));
    let answer = sign_in(&served, &json!({ "token": "x" }));
    assert_eq!(answer.is(200)["principal"], "this machine");
    assert!(!answer.headers.contains_key("set-cookie"));
    let run = served.ask("POST", "/api/v1/compositions/execute", &[JSON], &echo().to_string());
    assert_eq!(run.is(200)["success"], true);
}
