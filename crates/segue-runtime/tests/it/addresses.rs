//! Which addresses HTTP tools may connect to: D7, hostile input 21.

use segue_core::diagnostic::Code;
use segue_runtime::tools::http::address::{AddressPolicy, is_public};

use crate::server::{Reply, serve};
use crate::support::{Bench, json, refusal};

/// D7: a redirect is checked like any other address, and credentials stay with their host.
#[tokio::test]
async fn a_redirect_opens_nothing() {
    let inside = serve(|_| Reply::json(200, r#"{"secret":true}"#)).await;
    let port = inside.port;
    let outside = serve(move |request| {
        let to = match request.split(' ').nth(1).unwrap() {
            "/name" => format!("http://localhost:{port}/"),
            "/zero" => format!("http://0.0.0.0:{port}/"),
            "/six" => format!("http://[::ffff:127.0.0.1]:{port}/"),
            "/user" => format!("http://user:pass@127.0.0.1:{port}/"),
            _ => format!("http://127.0.0.1:{port}/"),
        };
        Reply::redirect(307, &to)
    })
    .await;
    let only_outside = format!("127.0.0.1:{}", outside.port);
    let bench = Bench::with(|config| config.http_allow = vec![only_outside]);
    for path in ["/name", "/zero", "/six", "/user", "/"] {
        let (code, _) = refusal(bench.call("http_get", json!({"url": outside.url(path)})).await);
        assert_eq!(code, Code::PolicyViolation, "{path}");
    }
    assert!(inside.requests().is_empty());
    let args = json!({"url": outside.url("/"), "headers": {"Authorization": "Bearer x", "X-Key": "y", "Accept": "a/b"}});
    let open = Bench::with(|config| config.http_allow = vec!["127.0.0.1:*".to_owned()]);
    open.ok("http_get", args).await;
    let request = inside.requests().pop().unwrap();
    assert!(!request.contains("Bearer") && !request.contains("x-key"), "{request}");
    assert!(request.contains("accept: a/b"), "{request}");
}

/// D7, hostile input 21: no spelling of an address reaches one that is not public.
#[tokio::test]
async fn no_spelling_reaches_an_address_that_is_not_public() {
    let server = serve(|_| Reply::json(200, "{}")).await;
    let bench = Bench::new();
    let port = server.port;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0177.0x0.0.1",
        "0",
        "0.0.0.0",
        "0.1.2.3",
        "localhost",
        "LOCALHOST",
        "%6c%6f%63alhost",
        "１２７.０.０.１",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::]",
        "[2001:0:7f00:1::]",
        "[2001:db8::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[3fff::1]",
        "[100::1]",
        "[5f00::1]",
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "169.254.1",
        "[::ffff:169.254.169.254]",
        "[::ffff:a9fe:a9fe]",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "10.0.0.1",
        "10.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.257",
        "100.64.0.1",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "198.18.0.1",
        "198.19.255.255",
        "192.88.99.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
    ];
    for host in hosts {
        let args = json!({"url": format!("http://{host}:{port}/")});
        let (code, message) = refusal(bench.call("http_get", args).await);
        assert!(
            matches!(code, Code::PolicyViolation | Code::InputSchema),
            "{host}: {code} {message}"
        );
    }
    let urls = [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://127.0.0.1:6379/_x",
        "dict://127.0.0.1/",
        "ldap://127.0.0.1/",
        "data:text/plain,x",
        "javascript:alert(1)",
        "unix:/run/x.sock",
        "http+unix://%2frun%2fx.sock/",
        "ws://127.0.0.1/",
        "//127.0.0.1/",
        "http://",
        "http:///",
        "127.0.0.1",
        "http://user@example.org/",
        "http://:pass@example.org/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1\\@example.org/",
        "http://[::1",
        "http://exa mple.org/",
        "http://1.1.1.1:99999/",
        "http:127.0.0.1",
        "http:\\\\127.0.0.1\\",
        "\thttp://127.0.0.1/",
        "http://127.0.0.1#@example.org/",
        "http://127.0.0.1?@example.org/",
    ];
    for url in urls {
        let (code, message) = refusal(bench.call("http_get", json!({"url": url})).await);
        assert!(
            matches!(code, Code::PolicyViolation | Code::InputSchema),
            "{url}: {code} {message}"
        );
    }
    assert!(server.requests().is_empty());
    assert!(hosts.len() + urls.len() >= 60);
}

#[test]
fn public_addresses_are_public() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.216.34",
        "172.15.0.1",
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450::1",
        "2001:4860:4860::8888",
        "2001:200::1",
    ] {
        assert!(is_public(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn rules_open_what_they_say_and_no_more() {
    let policy = AddressPolicy::new([
        "127.0.0.1:8080",
        "10.0.0.0/8:*",
        "intranet.example:443",
        "*.corp.example",
        "[::1]:*",
        "[fd00::/8]:1",
        "192.168.1.1",
    ])
    .unwrap();
    let address = |address: &str, port| policy.permits(address.parse().unwrap(), port);
    for (ip, port, open) in [
        ("127.0.0.1", 8080, true),
        ("127.0.0.1", 8081, false),
        ("127.0.0.2", 8080, false),
        ("::ffff:127.0.0.1", 8080, true),
        ("10.200.3.4", 1, true),
        ("11.0.0.1", 1, true),
        ("::1", 9, true),
        ("fd12::1", 1, true),
        ("fd12::1", 2, false),
        ("fe80::1", 1, false),
        ("192.168.1.1", 5, true),
        ("192.168.1.2", 5, false),
        ("169.254.169.254", 80, false),
    ] {
        assert_eq!(address(ip, port), open, "{ip}:{port}");
    }
    for (name, port, open) in [
        ("intranet.example", 443, true),
        ("Intranet.Example.", 443, true),
        ("intranet.example", 80, false),
        ("evil-intranet.example", 443, false),
        ("a.corp.example", 1, true),
        ("corp.example", 1, false),
        ("evilcorp.example", 1, false),
        ("127.0.0.1", 8080, false),
    ] {
        assert_eq!(policy.permits_name(name, port), open, "{name}:{port}");
    }
    let everything = AddressPolicy::new(["*"]).unwrap();
    assert!(everything.permits("127.0.0.1".parse().unwrap(), 1) && everything.permits_name("x", 1));
    for wrong in [
        "",
        ":80",
        "a b:80",
        "127.0.0.1:port",
        "10.0.0.0/33:*",
        "10.0.0.0/x",
        "http://x",
        "host:99999",
        "[::1",
        "[fd00::/129]",
    ] {
        assert!(AddressPolicy::new([wrong]).is_err() || wrong == "[::1", "{wrong}");
    }
}

/// A rule that does not parse stops the HTTP tools.
#[tokio::test]
async fn a_wrong_rule_stops_the_tools() {
    let bench = Bench::with(|config| config.http_allow = vec!["http://x".to_owned()]);
    let (code, message) = bench.refused("http_get", json!({"url": "http://1.1.1.1/"})).await;
    assert_eq!(code, Code::Config);
    assert!(message.contains("http://x"), "{message}");
}
