//! The page: which paths give it, and with which headers.

use std::io::{Read as _, Write as _};

use flate2::read::GzDecoder;

use crate::rest::served;
use crate::served::{Answer, Served, TOKEN};
use crate::support::World;

const HTML: (&str, &str) = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");

const POLICY: &str = "base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// An answer whose body may be any bytes: its head, and them.
fn ask_bytes(served: &Served, path: &str, headers: &[(&str, &str)]) -> (Answer, Vec<u8>) {
    let mut stream = served.connect();
    stream.write_all(served.request("GET", path, headers, "").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    (Answer::parse(&head), bytes.split_off(end))
}

/// A server with a page of this folder.
fn with_files(files: &[(&str, &str)]) -> (World, Served) {
    let world = World::new();
    world.file("segue.yaml", format!("server: {{ token: {TOKEN} }}\n"));
    for (name, text) in files {
        world.file(&format!("ui/{name}"), text);
    }
    let served = Served::start_with(&world, "memory", &[], &[("SEGUE_UI_DIR", "ui")]);
    (world, served)
}

/// The page needs no token, also at the paths of its own routes; a program that asks for these paths,
/// and a browser below a route of ours, get no page.
#[test]
fn browsers_get_the_page_at_every_path_of_its_own() {
    let (_world, served) = served("");
    for path in ["/", "/?a=b", "/runs/x", "/sign-in", "/compositions/a/b?step=c"] {
        let answer = served.ask("GET", path, &[HTML], "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(answer.headers["cache-control"], "no-cache");
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.ends_with(POLICY) && !policy.contains("unsafe"), "{policy}");
        assert!(answer.body.contains("<title>"), "{path}");
    }
    assert_eq!(served.ask("GET", "/", &[], "").status, 200);
    assert_eq!(served.ask("GET", "/runs/x", &[("Accept", "*/*")], "").status, 401);
    assert_eq!(served.ask("POST", "/runs/x", &[HTML], "").status, 401);
    for path in ["/api/v1/nothing", "/api/v1/runs", "/graphql", "/mcp", "/readyz", "/docs/nothing"]
    {
        assert_eq!(served.ask("GET", path, &[HTML], "").status, 401, "{path}");
    }
    assert_eq!(served.ask("GET", "/assets/nothing.js", &[HTML], "").status, 404);
    served.ask("POST", "/", &[], "").is_problem(405, "invalid-field");
}

/// A page of another origin, or for another host name, gets nothing; an allowed one may not read it.
#[test]
fn other_origins_do_not_get_the_page() {
    let allowed = "https://app.example.org";
    let (_world, served) =
        served(&format!("server: {{ token: {TOKEN}, allowed_origins: ['{allowed}'] }}\n"));
    for headers in [("Origin", "http://evil.example"), ("Origin", "null"), ("Host", "evil.example")]
    {
        served.ask("GET", "/", &[HTML, headers], "").is_problem(403, "unauthorized");
    }
    let answer = served.ask("GET", "/", &[HTML, ("Origin", allowed)], "");
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("access-control-allow-origin"), "{answer:?}");
    assert_eq!(answer.headers["cross-origin-resource-policy"], "same-origin");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

/// The nonce of a style is another one in each response, and the one that the policy names.
#[test]
fn each_response_has_a_nonce_of_its_own() {
    let (_world, served) =
        with_files(&[("index.html", r#"<meta name="csp-nonce" content="__CSP_NONCE__">"#)]);
    let nonce = || {
        let answer = served.ask("GET", "/", &[HTML, ("Accept-Encoding", "gzip")], "");
        let nonce = answer.body.split("content=\"").nth(1).unwrap()[..32].to_owned();
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.contains(&format!("style-src 'self' 'nonce-{nonce}';")), "{policy}");
        assert!(policy.contains("script-src 'self';"), "{policy}");
        nonce
    };
    assert_ne!(nonce(), nonce());
}

/// Files have their type, are kept for ever, and are sent once; nothing outside of the folder is.
#[test]
fn files_of_the_page_are_kept_by_browsers() {
    let (world, served) = with_files(&[("index.html", "<p>"), ("assets/a-1.js", "let a")]);
    world.file("secret.js", "s");
    let answer = served.ask("GET", "/assets/a-1.js", &[], "");
    assert_eq!((answer.status, &*answer.body), (200, "let a"));
    assert_eq!(answer.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(answer.headers["cache-control"], "public, max-age=31536000, immutable");
    let tag = ("If-None-Match", &*answer.headers["etag"]);
    let again = served.ask("GET", "/assets/a-1.js", &[tag], "");
    assert_eq!((again.status, &*again.body), (304, ""));
    assert_eq!(served.ask("GET", "/assets/a-1.js", &[("If-None-Match", "\"x\"")], "").status, 200);
    for path in ["/assets/..%2f..%2fsecret.js", "/assets/../../secret.js", "/assets/.env"] {
        let answer = served.ask("GET", path, &[], "");
        assert!(matches!(answer.status, 401 | 404), "{path}: {answer:?}");
    }
}

/// The embedded page is sent as it is committed, and inflated for a client that does not accept gzip.
#[test]
#[cfg(feature = "ui")]
fn the_embedded_page_is_inflated_only_where_needed() {
    let (_world, served) = served("");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
    let mut files = crate::support::files_below(std::path::Path::new(page), &["gz"]);
    files.retain(|file| !file.ends_with("index.html.gz"));
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().trim_end_matches(".gz").to_owned();
        let path = format!("/assets/{name}");
        let gzip = ("Accept-Encoding", "gzip, br");
        let (answer, bytes) = ask_bytes(&served, &path, &[gzip]);
        assert_eq!(answer.headers["content-encoding"], "gzip");
        assert_eq!(answer.headers["vary"], "accept-encoding");
        assert!(bytes == std::fs::read(&file).unwrap(), "{name}");
        let (answer, plain) = ask_bytes(&served, &path, &[]);
        assert!(!answer.headers.contains_key("content-encoding"));
        let mut inflated = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut inflated).unwrap();
        assert!(plain == inflated, "{name}");
    }
    let (answer, index) = ask_bytes(&served, "/", &[]);
    assert_eq!(answer.status, 200);
    assert!(index.starts_with(b"<!doctype html>"), "{answer:?}");
}
