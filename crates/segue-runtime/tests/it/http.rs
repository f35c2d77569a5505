//! The HTTP tools over real sockets: hostile input 3, and the decision that follows from each
//! failure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::value::Value;
use segue_runtime::tools::http::{HttpConfig, tool};
use segue_runtime::tools::{Tool, ToolError, ToolRequest};

use crate::server::{Reply, Server, serve};
use crate::support::{Bench, Json, call, call_of, json, refusal};

fn local() -> Bench {
    Bench::with(|config| config.http_allow = vec!["127.0.0.1:*".to_owned()])
}

async fn get(bench: &Bench, server: &Server, path: &str) -> Result<Json, ToolError> {
    bench.call("http_get", json!({"url": server.url(path)})).await
}

#[tokio::test]
async fn a_request_says_what_it_was_told_to() {
    let server = serve(|_| Reply::json(201, r#"{"id": 9007199254740993}"#)).await;
    let bench = local();
    let answer = bench
        .ok("http_request", json!({
            "method": "post", "url": server.url("/items?a=1"), "query": {"b": ["x y", 2], "c": null, "d": true},
            "headers": {"X-Test": "yes"}, "body": {"name": "ä"}}))
        .await;
    assert_eq!(answer["status"], 201);
    assert_eq!(answer["body"], json!({"id": 9_007_199_254_740_993_i64}));
    assert_eq!(answer["headers"]["content-type"], "application/json");
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /items?a=1&b=x+y&b=2&d=true HTTP/1.1\r\n"), "{request}");
    for line in [
        "x-test: yes",
        "content-type: application/json",
        "idempotency-key: run-1/step/do",
        "accept-encoding: identity",
        "user-agent: segue/",
    ] {
        assert!(request.contains(line), "{line}: {request}");
    }
    assert!(request.ends_with(r#"{"name":"ä"}"#), "{request}");
    bench.ok("http_get", json!({"url": server.url("/")})).await;
    assert!(!server.requests()[1].contains("idempotency-key"));
}

#[tokio::test]
async fn a_body_is_what_its_type_says() {
    let server = serve(|request| {
        let kind = |kind: &str, body: &str| Reply::new(200, &format!("Content-Type: {kind}\r\n"), body);
        match request.split(' ').nth(1).unwrap() {
            "/text" => kind("text/plain", "{\"a\":1}"),
            "/problem" => kind("application/problem+json; charset=utf-8", "{\"a\":1}"),
            "/empty" => kind("application/json", ""),
            "/none" => Reply::new(200, "", "plain"),
            "/wrong" => kind("application/json", "{nope"),
            "/twice" => kind("application/json", r#"{"a":1,"a":2}"#),
            "/gzip" => Reply::new(200, "Content-Encoding: gzip\r\n", "x"),
            "/latin" => Reply::Bytes(b"HTTP/1.1 200 X\r\nContent-Type: text/html; charset=ISO-8859-1\r\nContent-Length: 1\r\n\r\n\xe4".to_vec()),
            _ => Reply::Bytes(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n\xff\xfe".to_vec()),
        }
    })
    .await;
    let bench = local();
    for (path, body) in [
        ("/text", json!("{\"a\":1}")),
        ("/problem", json!({"a": 1})),
        ("/empty", Json::Null),
        ("/none", json!("plain")),
        ("/latin", json!("ä")),
    ] {
        assert_eq!(get(&bench, &server, path).await.unwrap()["body"], body, "{path}");
    }
    for (path, word) in
        [("/wrong", "JSON"), ("/twice", "JSON"), ("/gzip", "compressed"), ("/binary", "not text")]
    {
        let (_, message) = refusal(get(&bench, &server, path).await);
        assert!(message.contains(word), "{path}: {message}");
    }
}

/// What each status means for the next attempt.
#[tokio::test]
async fn a_failure_leads_to_the_right_decision() {
    let server = serve(|request| {
        let status: u16 = request.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap();
        let wait = if request.contains("wait") { "Retry-After: 7\r\n" } else { "" };
        Reply::new(status, wait, &"because ".repeat(1_000))
    })
    .await;
    let bench = local();
    let decide = async |method: &str, path: &str| {
        let args = json!({"method": method, "url": server.url(path)});
        match bench.call("http_request", args).await.unwrap_err() {
            ToolError::Refused { code: Code::ToolError, message, retryable } => {
                let told = message.contains("because") || message.contains("304");
                assert!(told && message.len() < 3_000, "{message}");
                if retryable { "again" } else { "never" }
            }
            ToolError::Unreachable { retry_after: Some(Duration { .. }), .. } => "later",
            ToolError::NoAnswer { .. } => "doubt",
            other => panic!("{other:?}"),
        }
    };
    for (status, get, post) in [
        (304, "never", "never"),
        (400, "never", "never"),
        (401, "never", "never"),
        (404, "never", "never"),
        (409, "never", "never"),
        (408, "again", "again"),
        (425, "again", "again"),
        (429, "again", "again"),
        (500, "again", "again"),
        (502, "again", "doubt"),
        (503, "again", "again"),
        (504, "again", "doubt"),
    ] {
        assert_eq!(decide("GET", &format!("/{status}")).await, get, "{status}");
        assert_eq!(decide("POST", &format!("/{status}")).await, post, "{status}");
    }
    assert_eq!(decide("POST", "/429/wait").await, "later");
    assert_eq!(decide("GET", "/503/wait").await, "later");
    assert_eq!(decide("GET", "/404/wait").await, "never");
    match bench.call("http_get", json!({"url": server.url("/429/wait")})).await {
        Err(ToolError::Unreachable { retry_after, .. }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
        other => panic!("{other:?}"),
    }
}

/// A request that was not sent is certain; one without an answer is in doubt, unless it only reads.
#[tokio::test]
async fn lost_answers_are_told_from_lost_requests() {
    let server = serve(|request| match request.split(' ').nth(1).unwrap() {
        "/slow" => Reply::Hang(Vec::new()),
        "/half" => Reply::Hang(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nabc".to_vec()),
        "/cut" => Reply::Bytes(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nabc".to_vec()),
        _ => Reply::Bytes(Vec::new()),
    })
    .await;
    let bench = local();
    for path in ["/slow", "/half", "/cut", "/gone"] {
        let args =
            |method: &str| json!({"method": method, "url": server.url(path), "timeout_ms": 150});
        let start = Instant::now();
        let post = bench.call("http_request", args("POST")).await;
        assert!(matches!(post, Err(ToolError::NoAnswer { .. })), "{path}: {post:?}");
        match bench.call("http_request", args("GET")).await {
            Err(ToolError::Refused { code, retryable: true, .. }) => {
                assert!(matches!(code, Code::Timeout | Code::Unreachable), "{path}: {code}");
            }
            other => panic!("{path}: {other:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = json!({"method": "POST", "url": format!("http://127.0.0.1:{free}/")});
    let refused = bench.call("http_request", args).await;
    assert!(matches!(refused, Err(ToolError::Unreachable { .. })), "{refused:?}");
    let args = json!({"url": "http://no-such-host.invalid/"});
    let unknown = bench.call("http_get", args).await;
    assert!(matches!(unknown, Err(ToolError::Unreachable { .. })), "{unknown:?}");
}

/// Hostile input 3: an answer is counted while it arrives, whatever its declared length.
#[tokio::test]
async fn a_large_answer_is_cut_off() {
    let server = serve(|request| {
        if request.starts_with("GET /honest ") {
            return Reply::new(200, "", &"x".repeat(20_000));
        }
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000)).repeat(10);
        let head = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
        Reply::Hang(format!("{head}{chunk}").into_bytes())
    })
    .await;
    let bench = Bench::with(|config| {
        config.http_allow = vec!["127.0.0.1:*".to_owned()];
        config.limits.value_bytes_max = 10_000;
    });
    for path in ["/honest", "/endless"] {
        assert_eq!(refusal(get(&bench, &server, path).await).0, Code::Limit, "{path}");
    }
}

#[tokio::test]
async fn redirects_are_followed_within_reason() {
    let server = serve(|request| match request.split(' ').nth(1).unwrap() {
        "/302" => Reply::redirect(302, "/end"),
        "/303" => Reply::redirect(303, "end?x=1#part"),
        "/307" => Reply::redirect(307, "/end"),
        "/loop" => Reply::redirect(302, "/loop"),
        "/nowhere" => Reply::redirect(302, "http://"),
        "/file" => Reply::redirect(302, "file:///etc/passwd"),
        _ => Reply::json(200, "{}"),
    })
    .await;
    let bench = local();
    let post = |path: &str| {
        bench.call(
            "http_request",
            json!({"method": "POST", "url": server.url(path), "body": "text"}),
        )
    };
    for (path, then) in [("/302", "GET /end "), ("/303", "GET /end?x=1 "), ("/307", "POST /end ")] {
        post(path).await.unwrap();
        let last = server.requests().pop().unwrap();
        assert!(last.starts_with(then), "{last}");
        assert_eq!(last.ends_with("text"), then.starts_with("POST"), "{last}");
    }
    assert!(refusal(post("/loop").await).1.contains("more than 5 times"));
    assert!(refusal(post("/nowhere").await).1.contains("invalid address"));
    assert_eq!(refusal(post("/file").await).0, Code::PolicyViolation);
}

#[tokio::test]
async fn headers_cannot_break_out() {
    let server = serve(|_| Reply::json(200, "{}")).await;
    let bench = local();
    for (name, value) in [
        ("X\r\nHost", "a"),
        ("X", "a\r\nHost: evil"),
        ("X", "a\nb"),
        ("X", "a\0"),
        ("Host", "evil"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("X Y", "a"),
        ("", "a"),
        ("Connection", "upgrade"),
    ] {
        let args = json!({"url": server.url("/"), "headers": {name: value}});
        refusal(bench.call("http_get", args).await);
    }
    for method in ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nX: y", ""] {
        refusal(
            bench.call("http_request", json!({"url": server.url("/"), "method": method})).await,
        );
    }
    assert!(server.requests().is_empty());
}

fn operation(config: &HttpConfig) -> Tool {
    tool("op", config, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The configured host needs no further permission; arguments stay in their placeholders.
#[tokio::test]
async fn an_operation_fills_its_request() {
    let server = serve(|_| Reply::json(200, r#"["done"]"#)).await;
    let headers = BTreeMap::from([
        ("Authorization".to_owned(), "Bearer t0ken".to_owned()),
        ("X-Trace".to_owned(), "{{ args.trace }}".to_owned()),
    ]);
    let query: BTreeMap<String, Value> =
        [("q", "{{ args.q }}"), ("page", "{{ args.page }}"), ("tag", "{{ args.tags }}")]
            .map(|(name, text)| (name.to_owned(), Value::from(text)))
            .into();
    let tool = operation(&HttpConfig {
        method: "put".to_owned(),
        url: server.url("/users/{{ args.id }}/items?v=1&x={{ args.x }}"),
        headers,
        query,
        body: Some(json!({"name": "{{ args.name }}", "n": "{{ args.n }}"}).into()),
        ..HttpConfig::default()
    });
    let args = json!({"id": "a/b?c#d e%2f", "x": "1&y=2", "q": "&=", "tags": ["a", "b"], "name": "N", "n": 3});
    assert_eq!(call(&tool, args).await.unwrap(), json!(["done"]));
    let request = server.requests().pop().unwrap();
    let line =
        "PUT /users/a%2Fb%3Fc%23d%20e%252f/items?v=1&x=1%26y%3D2&q=%26%3D&tag=a&tag=b HTTP/1.1";
    assert_eq!(request.lines().next(), Some(line));
    assert!(
        request.contains("authorization: Bearer t0ken") && !request.contains("x-trace"),
        "{request}"
    );
    assert!(request.ends_with(r#"{"name":"N","n":3}"#), "{request}");
    assert!(tool.spec.is_repeatable() && tool.spec.needs_confirmation());
}

/// The request carries the trace context, unless the operator overrides it.
#[tokio::test]
async fn an_operation_carries_the_trace_on() {
    let server = serve(|_| Reply::json(200, "1")).await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let own = BTreeMap::from([("traceparent".to_owned(), "mine".to_owned())]);
    for (headers, sent) in [(BTreeMap::new(), traceparent), (own, "mine")] {
        let config = HttpConfig { url: server.url("/"), headers, ..HttpConfig::default() };
        let tool = operation(&config);
        let given =
            ToolRequest { traceparent: Some(traceparent.into()), ..call_of(&tool, json!({})) };
        tool.runner.call(given).await.unwrap();
        let request = server.requests().pop().unwrap();
        assert!(request.contains(&format!("traceparent: {sent}\r\n")), "{request}");
    }
    call(&operation(&HttpConfig { url: server.url("/"), ..HttpConfig::default() }), json!({}))
        .await
        .unwrap();
    assert!(!server.requests().pop().unwrap().contains("traceparent"));
}

#[tokio::test]
async fn a_path_value_stays_a_path_value() {
    let server = serve(|_| Reply::json(200, "{}")).await;
    let tool =
        operation(&HttpConfig { url: server.url("/users/{{ args.id }}"), ..HttpConfig::default() });
    for id in [json!(""), json!(".."), json!("."), Json::Null, json!([1]), json!({})] {
        let (code, _) = refusal(call(&tool, json!({"id": id})).await);
        assert_eq!(code, Code::InputSchema, "{id}");
    }
    assert_eq!(refusal(call(&tool, json!({})).await).0, Code::UnresolvedReference);
    assert!(server.requests().is_empty());
    for (id, path) in [
        (json!("../admin"), "/users/..%2Fadmin"),
        (json!("%2e%2e"), "/users/%252e%252e"),
        (json!("...."), "/users/...."),
        (json!(7), "/users/7"),
        (json!("@evil.example/"), "/users/%40evil.example%2F"),
        (json!("a\r\nb"), "/users/a%0D%0Ab"),
        (json!("..\\x"), "/users/..%5Cx"),
    ] {
        call(&tool, json!({"id": id})).await.unwrap();
        let request = server.requests().pop().unwrap();
        assert!(request.starts_with(&format!("GET {path} HTTP/1.1")), "{request}");
    }
}

#[tokio::test]
async fn an_operation_gives_json_or_text_and_opens_only_its_own_host() {
    let other = serve(|_| Reply::new(200, "", "other")).await;
    let to = other.url("/");
    let server = serve(move |request| {
        if request.contains("/away") {
            Reply::redirect(302, &to)
        } else {
            Reply::new(200, "", "plain")
        }
    })
    .await;
    let of = |path: &str| operation(&HttpConfig { url: server.url(path), ..HttpConfig::default() });
    assert_eq!(call(&of(""), json!({})).await.unwrap(), json!("plain"));
    assert_eq!(
        call(&of("?a={{ args.a | default('x y') }}"), json!({})).await.unwrap(),
        json!("plain")
    );
    assert!(server.requests()[1].starts_with("GET /?a=x%20y "), "{:?}", server.requests());
    assert_eq!(refusal(call(&of("/away"), json!({})).await).0, Code::PolicyViolation);
    assert!(other.requests().is_empty());
    assert!(of("").spec.is_repeatable() && !of("").spec.needs_confirmation());
}

/// D2: the message of a failed operation names the host, and no secret.
#[tokio::test]
async fn messages_hold_no_secrets() {
    let server = serve(|_| Reply::new(403, "", "no")).await;
    let tool = operation(&HttpConfig {
        url: server.url("/bots3cret/x?token=s3cret"),
        headers: BTreeMap::from([("X-Key".to_owned(), "s3cret\u{7f}".to_owned())]),
        ..HttpConfig::default()
    });
    let (_, message) = refusal(call(&tool, json!({})).await);
    assert!(!message.contains("s3cret"), "{message}");
    let tool = operation(&HttpConfig {
        url: server.url("/bots3cret/x?token=s3cret"),
        ..HttpConfig::default()
    });
    let (_, message) = refusal(call(&tool, json!({})).await);
    assert!(!message.contains("s3cret") && message.contains("403"), "{message}");
}

#[test]
fn wrong_operations_are_refused_when_they_are_read() {
    for url in [
        "",
        "{{ args.url }}",
        "http://{{ args.host }}/x",
        "http://host{{ args.x }}/y",
        "http://host:{{ args.port }}/",
        "https://host{{ args.x }}",
        "ftp://host/x",
        "http://user:pass@host/",
        "http:///x",
        "/path",
        "http://host/{{ secrets.x }}",
        "http://host/{{ args.",
        "{{ args.s }}://host/",
    ] {
        let config = HttpConfig { url: url.to_owned(), ..HttpConfig::default() };
        assert!(tool("x", &config, &Limits::default()).is_err(), "{url}");
    }
}
