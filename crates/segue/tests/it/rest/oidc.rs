//! Tokens of an issuer, with an issuer that is there: discovery, keys, and tokens that it signed.

mod browser;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};

use super::{one, world};
use crate::served::{Answer, Served};
use crate::support::{Json, World, json};

const AUDIENCE: &str = "https://segue.example.org";

/// An issuer at an address of its own.
struct Issuer {
    address: String,
    /// What it publishes as its keys.
    keys: Arc<Mutex<Json>>,
    /// How often its keys were asked for.
    asked: Arc<AtomicUsize>,
    /// What it answers at its token endpoint, and the last form that it got there.
    tokens: Arc<Mutex<(Json, String)>>,
    random: SystemRandom,
    key: EcdsaKeyPair,
}

impl Issuer {
    fn start() -> Issuer {
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
                .unwrap();
        let keys = Arc::new(Mutex::new(json!({ "keys": [ec_key("one", &key)] })));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let tokens: Arc<Mutex<(Json, String)>> = Arc::default();
        let (served, counted, own) = (keys.clone(), asked.clone(), address.clone());
        let exchanged = tokens.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let asked = read_request(&mut stream);
                let body = if asked.starts_with("GET /.well-known/openid-configuration ") {
                    json!({ "issuer": own, "jwks_uri": format!("{own}/keys"),
                        "authorization_endpoint": format!("{own}/authorize"),
                        "token_endpoint": format!("{own}/token") })
                } else if asked.starts_with("POST /token ") {
                    let mut exchanged = exchanged.lock().unwrap();
                    asked.split("\r\n\r\n").nth(1).unwrap().clone_into(&mut exchanged.1);
                    exchanged.0.clone()
                } else {
                    counted.fetch_add(1, Ordering::SeqCst);
                    served.lock().unwrap().clone()
                };
                let body = body.to_string();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Issuer { address, keys, asked, tokens, random, key }
    }

    /// A token that says this, signed as its header says.
    fn token(&self, header: &Json, claims: &Json) -> String {
        self.signed_with(&self.key, header, claims)
    }

    fn signed_with(&self, key: &EcdsaKeyPair, header: &Json, claims: &Json) -> String {
        let message = unsigned(header, claims);
        let signature = key.sign(&self.random, message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64.encode(signature))
    }

    /// What a good token says, with this in place of something.
    fn claims(&self, changed: &Json) -> Json {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": self.address, "aud": AUDIENCE, "sub": "ada", "exp": now + 600, "scope": "segue:read segue:run",
        });
        for (name, value) in changed.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        claims
    }
}

/// A request with its body.
fn read_request(stream: &mut std::net::TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap_or(0);
        text += &String::from_utf8_lossy(&buffer[..length]);
        let lower = text.to_lowercase();
        let expected = lower
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if length == 0 || body.is_some_and(|body| body >= expected.unwrap_or(0)) {
            return text;
        }
    }
}

fn unsigned(header: &Json, claims: &Json) -> String {
    format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()))
}

fn ec_key(id: &str, key: &EcdsaKeyPair) -> Json {
    let point = key.public_key().as_ref();
    json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256",
        "x": BASE64.encode(&point[1..33]), "y": BASE64.encode(&point[33..65]) })
}

fn served(issuer: &Issuer) -> (World, Served) {
    let world = world(&format!(
        "toolsets: {{ calm: {{ allow: [echo] }}, wild: {{ allow: [sleep] }} }}\nserver:\n  token: open-sesame-open-sesame-open-sesame\n  oidc:\n    issuer: {}\n    \
         audience: {AUDIENCE}\n    scopes:\n      segue:read: {{ rights: [read] }}\n      segue:run: {{ rights: [run, compose] }}\n      \
         segue:calm: {{ rights: [read, run, compose], toolset: calm }}\n      \
         segue:wild: {{ rights: [run], toolset: wild }}\n",
        issuer.address
    ));
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

fn ask(served: &Served, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    served.ask(method, path, &headers, body)
}

const HEADER: &str = r#"{"alg":"ES256","kid":"one","typ":"JWT"}"#;

fn header() -> Json {
    serde_json::from_str(HEADER).unwrap()
}

/// A good token has the rights of its scopes, and what its subject begins is its own.
#[test]
fn a_token_of_the_issuer_lets_in() {
    let issuer = Issuer::start();
    let (_world, served) = served(&issuer);
    let ada = issuer.token(&header(), &issuer.claims(&json!({})));
    assert_eq!(ask(&served, &ada, "GET", "/api/v1/runs", "").status, 200);
    let echo = json!({ "composition": one("echo", &json!({ "x": 1 })) }).to_string();
    let begun = ask(&served, &ada, "POST", "/api/v1/compositions/execute", &echo).is(200);
    let run = format!("/api/v1/runs/{}", begun["run_id"].as_str().unwrap());
    assert_eq!(ask(&served, &ada, "GET", &run, "").status, 200);
    assert_eq!(served.get("/api/v1/runs").is(200)["runs"][0]["principal"], "oidc:ada");
    // Another subject sees nothing of it; a list of scopes, and an audience among others, is
    // accepted.
    let changed =
        json!({ "sub": "bob", "scope": null, "scp": ["segue:read"], "aud": ["x", AUDIENCE] });
    let bob = issuer.token(&header(), &issuer.claims(&changed));
    assert_eq!(ask(&served, &bob, "GET", &run, "").status, 404);
    assert_eq!(ask(&served, &bob, "GET", "/api/v1/runs", "").status, 200);
    let answer = ask(&served, &bob, "POST", "/api/v1/compositions/execute", &echo);
    assert_eq!(answer.status, 403);
    assert!(answer.headers["www-authenticate"].contains("insufficient_scope"), "{answer:?}");
    // The toolset of a scope holds.
    let held = issuer.token(&header(), &issuer.claims(&json!({ "scope": "segue:calm" })));
    let nap = json!({ "composition": one("sleep", &json!({ "ms": 1 })) }).to_string();
    ask(&served, &held, "POST", "/api/v1/compositions/execute", &nap)
        .is_problem(422, "tool-not-allowed");
    ask(&served, &held, "POST", "/api/v1/compositions/execute", &echo).is(200);
    // A scope without one does not widen it.
    let wider =
        issuer.token(&header(), &issuer.claims(&json!({ "scope": "segue:run segue:calm" })));
    ask(&served, &wider, "POST", "/api/v1/compositions/execute", &nap)
        .is_problem(422, "tool-not-allowed");
    ask(&served, &wider, "POST", "/api/v1/compositions/execute", &echo).is(200);
    // All of this took one look at the keys.
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    // The administrator's token is still the administrator's.
    assert_eq!(served.get("/readyz").status, 200);
}

/// Tokens that are not good are refused, each for its reason.
#[test]
fn other_tokens_are_refused() {
    let issuer = Issuer::start();
    let (_world, served) = served(&issuer);
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let other = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
        .unwrap();
    let good = issuer.claims(&json!({}));
    let with = |changed: Json| issuer.token(&header(), &issuer.claims(&changed));
    // The public key as the secret that something is signed with.
    let public = issuer.key.public_key().as_ref().to_vec();
    let confused = |header: Json| {
        let message = unsigned(&header, &good);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public);
        format!("{message}.{}", BASE64.encode(ring::hmac::sign(&key, message.as_bytes())))
    };
    let mut altered = issuer.token(&header(), &good);
    let middle = altered.find('.').unwrap() + 5;
    altered
        .replace_range(middle..=middle, if altered[middle..].starts_with('A') { "B" } else { "A" });
    for (token, why) in [
        (with(json!({ "exp": 1_000_000_000 })), "it has expired"),
        (with(json!({ "exp": null })), "does not say everything"),
        (with(json!({ "nbf": 4_000_000_000_u64 })), "not good yet"),
        (with(json!({ "aud": "https://other.example.org" })), "audience does not match"),
        (with(json!({ "aud": null })), "does not say everything"),
        (with(json!({ "iss": "https://evil.example.org" })), "issuer does not match"),
        (with(json!({ "sub": "a\nb" })), "its subject is no name"),
        (issuer.signed_with(&other, &header(), &good), "its signature is not that of its key"),
        (confused(json!({ "alg": "HS256", "kid": "one" })), "not signed in the way"),
        (confused(json!({ "alg": "ES256", "kid": "one" })), "its signature"),
        (issuer.token(&json!({ "alg": "RS256", "kid": "one" }), &good), "not signed in the way"),
        (issuer.token(&json!({ "alg": "EdDSA", "kid": "one" }), &good), "not signed in the way"),
        (
            format!("{}.", unsigned(&json!({ "alg": "none", "kid": "one" }), &good)),
            "it cannot be read",
        ),
        (format!("{}.", unsigned(&header(), &good)), "its signature"),
        (issuer.token(&json!({ "alg": "ES256", "kid": "two" }), &good), "its key is unknown"),
        ("a.b.c".to_owned(), "it cannot be read"),
        (altered, "it"),
    ] {
        let answer = ask(&served, &token, "GET", "/api/v1/runs", "");
        let problem = answer.is_problem(401, "unauthorized");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{why}: {problem}");
        assert!(
            answer.headers["www-authenticate"].contains("error=\"invalid_token\""),
            "{answer:?}"
        );
    }
    // Without a known scope the subject is authenticated and has no rights.
    let nothing = with(json!({ "scope": "openid email" }));
    assert_eq!(ask(&served, &nothing, "GET", "/api/v1/runs", "").status, 403);
    let clash = with(json!({ "scope": "segue:calm segue:wild" }));
    let answer = ask(&served, &clash, "GET", "/api/v1/runs", "");
    let problem = answer.is_problem(403, "unauthorized");
    assert!(problem["detail"].as_str().unwrap().contains("different toolsets"), "{problem}");
    assert!(answer.headers["www-authenticate"].contains("insufficient_scope"), "{answer:?}");
    // Unknown keys make Segue query the issuer at most once more.
    assert!(issuer.asked.load(Ordering::SeqCst) <= 2);
}

/// A key that is new is found, one of another kind is for that kind only, and shared secrets are no keys.
#[test]
fn keys_are_what_they_are_for() {
    let issuer = Issuer::start();
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&issuer.random).unwrap();
    let edward = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let okp = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "ed",
        "x": BASE64.encode(edward.public_key().as_ref()) });
    let shared = json!({ "kty": "oct", "kid": "oct", "alg": "HS256", "k": BASE64.encode([7; 32]) });
    let unknown = json!({ "kty": "XYZ", "kid": "x" });
    let encrypts = {
        let mut key = ec_key("enc", &issuer.key);
        key["use"] = json!("enc");
        key
    };
    *issuer.keys.lock().unwrap() =
        json!({ "keys": [unknown, shared, okp, encrypts, ec_key("one", &issuer.key)] });
    let (_world, served) = served(&issuer);
    let good = issuer.claims(&json!({}));
    let message = unsigned(&json!({ "alg": "EdDSA", "kid": "ed" }), &good);
    let token = format!("{message}.{}", BASE64.encode(edward.sign(message.as_bytes())));
    assert_eq!(ask(&served, &token, "GET", "/api/v1/runs", "").status, 200);
    assert_eq!(
        ask(&served, &issuer.token(&header(), &good), "GET", "/api/v1/runs", "").status,
        200
    );
    let enc = issuer.token(&json!({ "alg": "ES256", "kid": "enc" }), &good);
    assert_eq!(ask(&served, &enc, "GET", "/api/v1/runs", "").status, 401);
    let message = unsigned(&json!({ "alg": "HS256", "kid": "oct" }), &good);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 32]);
    let token = format!("{message}.{}", BASE64.encode(ring::hmac::sign(&key, message.as_bytes())));
    assert_eq!(ask(&served, &token, "GET", "/api/v1/runs", "").status, 401);
    // Several keys, and none is named.
    let token = issuer.token(&json!({ "alg": "ES256" }), &good);
    assert_eq!(ask(&served, &token, "GET", "/api/v1/runs", "").status, 401);
}

/// RFC 9728: a client without a token learns where to get one.
#[test]
fn who_has_no_token_is_told_where_to_get_one() {
    let issuer = Issuer::start();
    let (_world, with) = served(&issuer);
    for (path, of) in [("/mcp", "/mcp"), ("/api/v1/runs", "")] {
        let answer = with.ask("GET", path, &[], "");
        assert_eq!(answer.status, 401);
        let challenge = &answer.headers["www-authenticate"];
        let at = format!("http://{}/.well-known/oauth-protected-resource{of}", with.address);
        assert!(challenge.contains(&format!("resource_metadata=\"{at}\"")), "{challenge}");
        assert!(!challenge.contains("error="), "{challenge}");
        let path = at.split(&*with.address).nth(1).unwrap();
        let known = with.ask("GET", path, &[], "").is(200);
        assert_eq!(known["resource"], format!("http://{}{of}", with.address));
        assert_eq!(known["authorization_servers"], json!([issuer.address]));
        assert_eq!(
            known["scopes_supported"],
            json!(["segue:calm", "segue:read", "segue:run", "segue:wild"])
        );
    }
    let (_world, without) = super::served("");
    let answer = without.ask("GET", "/.well-known/oauth-protected-resource", &[], "");
    answer.is_problem(404, "not-found");
    assert!(!without.ask("GET", "/mcp", &[], "").headers["www-authenticate"].contains("metadata"));
}

/// When the issuer is unreachable, its tokens give no access, and the error does not blame the
/// client.
#[test]
fn an_issuer_that_is_not_there_decides_nothing() {
    let issuer = Issuer::start();
    *issuer.keys.lock().unwrap() = json!("nonsense");
    let (_world, served) = served(&issuer);
    let token = issuer.token(&header(), &issuer.claims(&json!({})));
    let answer = ask(&served, &token, "GET", "/api/v1/runs", "");
    answer.is_problem(503, "unreachable");
    assert_eq!(answer.headers["retry-after"], "5");
    assert_eq!(served.get("/readyz").status, 200);
}
