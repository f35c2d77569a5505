//! Authentication, request sizes and timeouts.

use std::io::{Read as _, Write as _};

use segue::http::auth::{OIDC, OIDC_CALLBACK, SESSION};
use segue::http::route::{Handler, Route, Verb};
use segue::server::routes;
use segue_core::access::Right;

use super::{served, world};
use crate::served::{Served, TOKEN};
use crate::support::{World, json};

fn path_of(route: &Route) -> String {
    let part = |part: &str| if part.starts_with('{') { "x" } else { part }.to_owned();
    route.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// Every route × every credential × names and pages that are ours and foreign.
#[test]
fn no_route_is_open_to_who_may_not() {
    let (_world, served) = served("");
    let (ours, page) = (served.address.clone(), format!("http://{}", served.address));
    let right = format!("Bearer {TOKEN}");
    let credentials = [
        None,
        Some("Bearer open-sesam"),
        Some("Basic open-sesame-open-sesame-open-sesame"),
        Some("Bearer "),
        Some(&right),
    ];
    for route in routes() {
        for credential in credentials {
            let may = credential == Some(&*right) || route.right == Right::Public;
            for (host, is_ours) in
                [(&*ours, true), ("evil.example", false), ("localhost.evil", false)]
            {
                for origin in [None, Some(&*page), Some("http://evil.example"), Some("null")] {
                    let mut headers = vec![("Host", host)];
                    headers.extend(credential.map(|c| ("Authorization", c)));
                    headers.extend(origin.map(|origin| ("Origin", origin)));
                    let is_known = origin.is_none_or(|origin| origin == page);
                    let status = ask(&served, route, &headers);
                    let what = format!("{} {} {headers:?}", route.verb.as_str(), route.path);
                    match (is_ours && is_known, may) {
                        (false, _) => assert_eq!(status, 403, "{what}"),
                        // The route answers everybody: with the session, or with the way to one.
                        _ if route.path == SESSION => {}
                        (true, false) => assert_eq!(status, 401, "{what}"),
                        (true, true) => assert!(!matches!(status, 401 | 403), "{what}: {status}"),
                    }
                }
            }
        }
    }
}

fn ask(served: &Served, route: &Route, headers: &[(&str, &str)]) -> u16 {
    // What MCP says by itself never ends; it is asked without the header that it wants.
    // What tells of everything never ends either, unless it is asked for a run that does not exist.
    let path = path_of(route);
    let path = if route.path == "/api/v1/events" { path + "?run=none" } else { path };
    served.ask(route.verb.as_str(), &path, headers, "").status
}

/// The table has what the contract lists, nothing changes by a `GET`, and nothing is open that could
/// tell of this installation.
#[test]
fn the_table_is_what_was_agreed() {
    let has = |verb: Verb, path: &str| routes().iter().any(|r| r.verb == verb && r.path == path);
    for path in
        ["compositions", "compositions/templates", "compositions/templates/{id}", "runs", "tools"]
    {
        assert!(has(Verb::Get, &format!("/api/v1/{path}")), "{path}");
    }
    for path in ["compositions/execute", "compositions/validate", "plans", "runs/{id}/cancel"] {
        assert!(has(Verb::Post, &format!("/api/v1/{path}")), "{path}");
    }
    let open: Vec<&str> =
        routes().iter().filter(|r| r.right == Right::Public).map(|r| r.path).collect();
    let known = "/.well-known/oauth-protected-resource";
    let of_mcp = format!("{known}/mcp");
    let sessions = [SESSION, SESSION, SESSION, OIDC, OIDC_CALLBACK];
    let page = ["/", "/assets/{file}"];
    let of_server = [known, &of_mcp, "/healthz", "/docs", "/docs/style.css"];
    assert_eq!(open, [&of_server[..], &sessions, &page].concat());
    for route in routes() {
        let changes = matches!(route.right, Right::Run | Right::Write);
        let is_mcp = matches!(route.handler, Handler::External);
        assert!(route.verb != Verb::Get || !changes || is_mcp, "{}", route.path);
        assert!(
            !route.about.is_empty() && (is_mcp || !route.responses.is_empty()),
            "{}",
            route.path
        );
    }
}

/// An allowed origin gets a positive preflight answer; another one does not, and learns nothing.
#[test]
fn allowed_pages_may_ask_and_read() {
    let page = "https://app.example.org";
    let (_world, served) = served(&format!(
        "server: {{ token: open-sesame-open-sesame-open-sesame, allowed_origins: ['{page}:443'] }}\n"
    ));
    let preflight = |origin: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        served.ask("OPTIONS", "/api/v1/compositions/execute", &headers, "")
    };
    let answer = preflight(page);
    assert_eq!((answer.status, &*answer.headers["access-control-allow-origin"]), (204, page));
    assert!(answer.headers["access-control-allow-headers"].contains("authorization"));
    let answer = preflight("https://evil.example.org");
    assert_eq!(answer.status, 403);
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Origin", page), ("Authorization", &bearer)];
    let answer = served.ask("GET", "/readyz", &headers, "");
    assert_eq!((answer.status, &*answer.headers["access-control-allow-origin"]), (200, page));
    // It opens nothing: without the token there is still no answer.
    assert_eq!(served.ask("GET", "/readyz", &headers[..1], "").status, 401);
    assert_eq!(served.ask("OPTIONS", "/readyz", &[], "").status, 401);
}

/// Without the token not even the names of things are learnt; with it, what is wrong is said.
#[test]
fn what_is_not_there_is_a_problem() {
    let (_world, served) = served("");
    assert_eq!(served.ask("GET", "/api/v1/nothing", &[], "").status, 401);
    served.get("/api/v1/nothing").is_problem(404, "not-found");
    let answer = served.send("PATCH", "/api/v1/compositions/templates", &[], &json!({}));
    let problem = answer.is_problem(405, "invalid-field");
    assert_eq!(answer.headers["allow"], "GET, POST, HEAD");
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(detail, "`PATCH` is not for this path; it takes GET, POST, HEAD");
    let problem = served.get("/api/v1/runs?stauts=failed").is_problem(400, "invalid-field");
    assert_eq!(problem["help"], "did you mean `status`?");
    served.get("/api/v1/runs?status=good").is_problem(400, "invalid-field");
    served.get("/api/v1/runs?limit=0").is_problem(400, "invalid-field");
    served.get("/api/v1/runs?limit=1&limit=2").is_problem(400, "invalid-field");
    served.get("/api/v1/runs?cursor=x").is_problem(400, "invalid-field");
}

/// A body is plain JSON of its shape, and not too much of it.
#[test]
fn bodies_are_plain_json_of_their_shape() {
    let (_world, served) = served("limits: { served_body_bytes_max: 1000 }\n");
    let bearer = format!("Bearer {TOKEN}");
    let ask = |headers: &[(&str, &str)], body: &str| {
        let all = [&[("Authorization", &*bearer)], headers].concat();
        served.ask("POST", "/api/v1/compositions/validate", &all, body)
    };
    let is_json = ("Content-Type", "application/json");
    ask(&[], "{}").is_problem(415, "invalid-field");
    ask(&[("Content-Type", "text/plain")], "{}").is_problem(415, "invalid-field");
    ask(&[("Content-Type", "application/json; charset=utf-8")], "{\"x\":1}")
        .is_problem(422, "invalid-field");
    ask(&[is_json, ("Content-Encoding", "gzip")], "{}").is_problem(415, "invalid-field");
    ask(&[is_json], "{\"name\":").is_problem(400, "parse");
    ask(&[is_json], "{\"name\":1,\"name\":2}").is_problem(400, "parse");
    ask(&[is_json], "[]").is_problem(422, "invalid-field");
    ask(&[is_json], &format!("{}1{}", "[".repeat(90), "]".repeat(90))).is_problem(400, "parse");
    let answer = ask(&[is_json], &format!("{{\"name\":\"{}\"}}", "x".repeat(1_000)));
    answer.is_problem(413, "limit");
    assert_eq!(answer.headers["connection"], "close");
    // A body of unknown length is counted as it comes.
    let chunk = format!("200\r\n{}\r\n", "x".repeat(512));
    let chunks = ("Transfer-Encoding", "chunked");
    let mut stream = served.connect();
    let head = served.request(
        "POST",
        "/api/v1/compositions/validate",
        &[("Authorization", &bearer), is_json, chunks],
        "",
    );
    let _ = stream.write_all((head + &chunk + &chunk + &chunk).as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // A client that sends all of a large body before it reads gets the response, not a reset.
    let large = "x".repeat(20 * 1024 * 1024);
    let headers = [("Authorization", &*bearer), is_json];
    let request = served.request("POST", "/api/v1/compositions/validate", &headers, &large);
    let mut stream = served.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

/// Who is slow loses the connection, and not the others: half a header, half a body, nothing at all.
#[test]
fn slow_clients_are_given_up() {
    let (_world, served) = served("limits: { served_header_ms: 300, served_body_ms: 300 }\n");
    let until_closed = |sent: &str| {
        let mut stream = served.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    until_closed("GET /healthz HTTP/1.1\r\nHost: loc");
    until_closed("");
    let keep = [("Connection", "keep-alive")];
    let answer = until_closed(&served.request("GET", "/healthz", &keep, ""));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    let half = served.request("POST", "/api/v1/plans", &headers, "{\"name\":\"double-it\"}");
    let answer = until_closed(&half[..half.len() - 5]);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(served.get("/readyz").status, 200);
}

/// When every place is taken, the one who has been silent for longest gives way.
#[test]
fn silent_connections_give_way() {
    let (_world, served) = served("limits: { served_connections_max: 3 }\n");
    let mut silent: Vec<_> = (0..3).map(|_| served.connect()).collect();
    assert_eq!(served.ask("GET", "/healthz", &[], "").status, 200);
    let mut nothing = String::new();
    let _ = silent[0].read_to_string(&mut nothing);
    assert_eq!(nothing, "");
    let keep = [("Connection", "keep-alive")];
    let request = served.request("GET", "/healthz", &keep, "");
    silent[2].write_all(request.as_bytes()).unwrap();
    let mut some = [0; 12];
    silent[2].read_exact(&mut some).unwrap();
    assert_eq!(&some, b"HTTP/1.1 200");
}

/// Headers have a bound, too.
#[test]
fn large_headers_are_refused() {
    let (_world, served) = served("");
    let large = "x".repeat(40_000);
    assert_eq!(served.ask("GET", "/healthz", &[("X-Large", &large)], "").status, 431);
}

/// A token is made up at the first start, told once, and good for every start after it.
#[test]
fn a_token_is_told_once_and_lasts() {
    let world = world("server: {}\n");
    // A start that fails generates no token: the operator would never see it.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let mut failing = world.command(crate::support::SEGUE);
    failing.args(["--config", "segue.yaml", "--store", "memory", "serve", "--listen", &at]);
    assert_eq!(failing.output().unwrap().status.code(), Some(2));
    let first = Served::start(&world, "memory", &[]);
    let said = first.said("token: ");
    let token = said.split(' ').nth(1).unwrap().to_owned();
    let bearer = format!("Bearer {token}");
    let with =
        |served: &Served| served.ask("GET", "/readyz", &[("Authorization", &bearer)], "").status;
    assert_eq!(with(&first), 200);
    drop(first);
    let second = Served::start(&world, "memory", &[]);
    assert_eq!(with(&second), 200);
    assert!(!second.has_said("token: segue_"));
    drop(second);
    let third = Served::start(&world, "memory", &["--new-token"]);
    assert_eq!(with(&third), 401);
    third.said("token: ");
    drop(third);
    // One that is configured is not made up.
    world.file("segue.yaml", "server: { token: open-sesame-open-sesame-open-sesame }\n");
    let serve = ["--config", "segue.yaml", "serve", "--new-token", "--listen", "localhost:0"];
    let done = world.segue(&serve).exits(2);
    assert!(done.stderr.contains("the configuration sets `server.token`"), "{}", done.stderr);
    let named = world.segue(&["serve", "--listen", "example.org:1"]).exits(2);
    assert!(named.stderr.contains("`example.org:1` is not an address"), "{}", named.stderr);
}

/// Over TLS with a certificate of our own, and not without.
#[test]
fn connections_can_be_encrypted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let world = world(&format!(
        "server: {{ token: open-sesame-open-sesame-open-sesame, tls: {{ cert: '{folder}/cert.pem', key: '{folder}/key.pem' }} }}\n"
    ));
    let mut command = world.command(crate::support::SEGUE);
    command.args([
        "--config",
        "segue.yaml",
        "--store",
        "memory",
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]);
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let address = line.split("https://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let curl = |args: &[&str]| {
        let mut curl = world.command("curl");
        let output = curl
            .args(["-s", "-H", "Authorization: Bearer open-sesame-open-sesame-open-sesame"])
            .args(args)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let port = address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}/readyz");
    let answer = curl(&["--cacert", &format!("{folder}/cert.pem"), &url]);
    assert!(answer.contains("\"ready\":true"), "{answer}");
    assert_eq!(curl(&[&url]), "", "a certificate that nobody knows is refused");
    assert_eq!(curl(&[&format!("http://localhost:{port}/readyz")]), "");
    let _ = child.kill();
    let _ = child.wait();
}

/// D7: a weak token gives no access, because the server does not start with it; the message says
/// how to make a better one, and so does `doctor`.
#[test]
fn a_token_that_could_be_guessed_is_refused() {
    for token in ["x", &"x".repeat(31)] {
        let world = World::new();
        world.file("segue.yaml", format!("server: {{ token: {token} }}\n"));
        let args = ["--config", "segue.yaml", "serve", "--listen", "127.0.0.1:0"];
        let said = world.segue(&args).exits(2).stderr;
        assert!(said.contains("32 characters") && said.contains("openssl rand -hex 32"), "{said}");
        let said = world.segue(&["--config", "segue.yaml", "doctor"]).exits(2).stdout;
        assert!(said.contains("32 characters"), "{said}");
    }
    let world = World::new();
    world.file("segue.yaml", "server:\n  principals:\n    a: { token: '${A}', rights: [read] }\n");
    let mut serve = world.command(crate::support::SEGUE);
    serve.args(["--config", "segue.yaml", "serve", "--listen", "127.0.0.1:0"]).env("A", "short");
    let said = crate::support::Done::of(serve.output().unwrap()).exits(2).stderr;
    assert!(said.contains("32 characters"), "{said}");
}

/// D7: a server that listens beyond this machine without encryption warns once, as text and as a
/// log line, and so does `doctor`; a server on loopback does not.
#[test]
fn listening_beyond_this_machine_without_encryption_is_said() {
    let world = world("");
    let said = |listen: &str, more: &[&str]| {
        let mut serve = world.command(crate::support::SEGUE);
        serve.args(["--config", "segue.yaml", "--store", "memory", "serve", "--listen", listen]);
        let mut child = serve.args(more).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let lines = std::io::BufReader::new(child.stderr.take().unwrap());
        let lines = std::io::BufRead::lines(lines).map_while(Result::ok);
        // It is said before where it listens.
        let pid = i32::try_from(child.id()).unwrap();
        let mut all = String::new();
        for line in lines {
            all += &line;
            all.push('\n');
            if line.contains("listening at") {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            }
        }
        child.wait().unwrap();
        all
    };
    for more in [&[][..], &["--log-format", "json"]] {
        let open = said("0.0.0.0:0", more);
        assert_eq!(open.matches("without TLS").count(), 1, "{open}");
        assert!(open.contains("server.tls"), "{open}");
        assert!(!said("127.0.0.1:0", more).contains("without TLS"));
    }
    assert!(said("0.0.0.0:0", &["--log-format", "json"]).contains(r#""level":"WARN""#));
    let doctor = |config: &str| {
        world.file("segue.yaml", config);
        world.segue(&["--config", "segue.yaml", "doctor"]).exits(0).stdout
    };
    assert!(doctor("server: { listen: '0.0.0.0:7433' }\n").contains("without TLS"));
    assert!(!doctor("server: { listen: '127.0.0.1:7433' }\n").contains("without TLS"));
}
