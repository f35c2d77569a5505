//! A browser signs in at the issuer: the code flow with PKCE.

use std::collections::BTreeMap;

use base64::Engine as _;
use ring::digest::{SHA256, digest};

use super::{AUDIENCE, BASE64, Issuer, header, world};
use crate::served::{Answer, Served};
use crate::support::{Json, World, json};

const CLIENT: &str = "segue-page";
const SECRET: &str = "a secret of the client, long enough";
const CALLBACK: &str = "/api/v1/session/oidc/callback";

fn served(issuer: &Issuer, client: &str) -> (World, Served) {
    let world = world(&format!(
        "server:\n  token: open-sesame-open-sesame-open-sesame\n  oidc:\n    issuer: {}\n    audience: {AUDIENCE}\n    \
         scopes: {{ 'segue:read': {{ rights: [read] }}, 'segue:run': {{ rights: [run] }} }}\n{client}",
        issuer.address
    ));
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

fn query(text: &str) -> BTreeMap<String, String> {
    let text = text.split_once('?').map_or(text, |(_, query)| query);
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// A browser that was sent to the issuer.
struct Login {
    query: BTreeMap<String, String>,
    cookie: String,
}

fn begin(served: &Served, issuer: &Issuer) -> Login {
    let answer = served.ask("GET", "/api/v1/session/oidc", &[], "");
    assert_eq!(answer.status, 303, "{answer:?}");
    let location = &answer.headers["location"];
    assert!(location.starts_with(&format!("{}/authorize?", issuer.address)), "{location}");
    let cookie = &answer.headers["set-cookie"];
    assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    Login { query: query(location), cookie }
}

impl Login {
    /// The tokens that the issuer gives for it, with these claims in place of some.
    fn tokens(&self, issuer: &Issuer, id: &Json, access: &Json) -> Json {
        let mut claims = issuer.claims(&json!({ "aud": CLIENT, "nonce": self.query["nonce"] }));
        for (name, value) in id.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let id = issuer.token(&header(), &claims);
        let access = issuer.token(&header(), &issuer.claims(access));
        json!({ "token_type": "Bearer", "id_token": id, "access_token": access })
    }

    fn finish(&self, served: &Served, cookie: &str) -> Answer {
        let path = format!("{CALLBACK}?code=abc&state={}&session_state=x", self.query["state"]);
        let answer = served.ask("GET", &path, &[("Cookie", cookie)], "");
        assert_eq!(answer.status, 303, "{answer:?}");
        answer
    }
}

#[test]
fn a_browser_signs_in_at_the_issuer() {
    let issuer = Issuer::start();
    let (_world, served) =
        served(&issuer, &format!("    client_id: {CLIENT}\n    client_secret: {SECRET}\n"));
    let ways = served.ask("GET", "/api/v1/session", &[], "").is_problem(401, "unauthorized");
    assert_eq!(ways["sign_in"]["oidc"], "/api/v1/session/oidc");
    let login = begin(&served, &issuer);
    let asked = |name: &str| &*login.query[name];
    assert_eq!((asked("response_type"), asked("client_id")), ("code", CLIENT));
    assert_eq!(asked("scope"), "openid segue:read segue:run");
    assert_eq!(asked("redirect_uri"), format!("http://{}{CALLBACK}", served.address));
    assert_eq!(asked("code_challenge_method"), "S256");
    issuer.tokens.lock().unwrap().0 = login.tokens(&issuer, &json!({}), &json!({}));
    let answer = login.finish(&served, &login.cookie);
    let csrf = answer.headers["location"].strip_prefix("/sign-in#csrf=").unwrap();
    let cookie = &answer.headers["set-cookie"];
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    // The session ends with the token, which is good for ten minutes.
    let seconds: u64 = cookie.rsplit_once("Max-Age=").unwrap().1.parse().unwrap();
    assert!((300..=660).contains(&seconds), "{cookie}");
    let form = query(&issuer.tokens.lock().unwrap().1);
    assert_eq!((&*form["grant_type"], &*form["code"]), ("authorization_code", "abc"));
    assert_eq!((&*form["redirect_uri"], &*form["client_secret"]), (asked("redirect_uri"), SECRET));
    let challenge = BASE64.encode(digest(&SHA256, form["code_verifier"].as_bytes()));
    assert_eq!(challenge, asked("code_challenge"));
    let cookie = cookie.split(';').next().unwrap();
    let headers = [("Cookie", cookie), ("X-Segue-CSRF", csrf)];
    let session = served.ask("GET", "/api/v1/session", &headers, "").is(200);
    assert_eq!(session["principal"], "oidc:ada");
    assert_eq!(session["rights"], json!(["read", "run", "metrics"]));
    assert_eq!(session["csrf"], csrf);
    assert_eq!(served.ask("GET", "/api/v1/runs", &[("Cookie", cookie)], "").status, 200);
    // The browser forgets the sign-in; the issuer takes the code only once.
    issuer.tokens.lock().unwrap().0 = json!({ "error": "invalid_grant" });
    assert!(login.finish(&served, &login.cookie).headers["location"].starts_with("/sign-in?"));
}

/// Another browser, another sign-in, another audience or another subject opens no session.
#[test]
fn answers_that_are_not_of_this_sign_in_are_refused() {
    let issuer = Issuer::start();
    let (_world, served) = served(&issuer, &format!("    client_id: {CLIENT}\n"));
    let good = json!({});
    for (id, access, has_cookie) in [
        (&good, &good, false),
        (&json!({ "nonce": "x" }), &good, true),
        (&json!({ "aud": AUDIENCE }), &good, true),
        (&json!({ "sub": "eve" }), &good, true),
        (&json!({ "iss": "http://127.0.0.1:1" }), &good, true),
        (&good, &json!({ "aud": "another" }), true),
        (&good, &json!({ "exp": 1 }), true),
    ] {
        let login = begin(&served, &issuer);
        issuer.tokens.lock().unwrap().0 = login.tokens(&issuer, id, access);
        let name = login.cookie.split('=').next().unwrap();
        let cookie = if has_cookie { login.cookie.clone() } else { format!("{name}=x") };
        let answer = login.finish(&served, &cookie);
        let location = &answer.headers["location"];
        assert!(location.starts_with("/sign-in?problem="), "{id} {access}: {location}");
        assert!(!answer.headers.contains_key("set-cookie"), "{answer:?}");
    }
    // The cookie of another sign-in, of the same browser or another, does not fit.
    let (one, other) = (begin(&served, &issuer), begin(&served, &issuer));
    issuer.tokens.lock().unwrap().0 = one.tokens(&issuer, &good, &good);
    assert!(one.finish(&served, &other.cookie).headers["location"].starts_with("/sign-in?"));
    let login = begin(&served, &issuer);
    issuer.tokens.lock().unwrap().0 = json!({ "error": "invalid_grant" });
    assert!(login.finish(&served, &login.cookie).headers["location"].starts_with("/sign-in?"));
    let refused = format!("{CALLBACK}?error=access_denied&state=x");
    let answer = served.ask("GET", &refused, &[], "");
    assert_eq!(answer.headers["location"], "/sign-in?problem=refused");
}

/// Strangers who begin to sign in and never end keep nobody out, and their answers do not fill the log.
#[test]
fn strangers_at_the_issuer_keep_nobody_out() {
    let issuer = Issuer::start();
    let (_world, served) = served(&issuer, &format!("    client_id: {CLIENT}\n"));
    for number in 0..300 {
        assert_eq!(served.ask("GET", "/api/v1/session/oidc", &[], "").status, 303, "{number}");
    }
    let begun = std::time::Instant::now();
    for _ in 0..200 {
        served.ask("GET", &format!("{CALLBACK}?code=x&state=x"), &[], "");
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
    served.said("not let in");
    let lines = served.lines().iter().filter(|line| line.contains("not let in")).count();
    assert!((1..=seconds + 2).contains(&lines), "{lines} lines in {seconds} s");
    let login = begin(&served, &issuer);
    issuer.tokens.lock().unwrap().0 = login.tokens(&issuer, &json!({}), &json!({}));
    let location = login.finish(&served, &login.cookie).headers["location"].clone();
    assert!(location.starts_with("/sign-in#csrf="), "{location}");
}

/// Without a client id the issuer is for programs only.
#[test]
fn without_a_client_id_browsers_cannot_sign_in_at_the_issuer() {
    let issuer = Issuer::start();
    let (_world, served) = served(&issuer, "");
    served.ask("GET", "/api/v1/session/oidc", &[], "").is_problem(404, "not-found");
    let ways = served.ask("GET", "/api/v1/session", &[], "").is_problem(401, "unauthorized");
    assert_eq!(ways["sign_in"]["oidc"], json!(null));
}
