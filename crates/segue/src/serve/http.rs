//! The address of the house: who may come in at all.
//!
//! A request brings the token, comes to a name that is ours, and from no web page but those that are
//! allowed. Otherwise a page that somebody looks at could use what runs on their machine.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use segue_core::tool::hex_digest;

use super::hall::Hall;
use super::mcp::{self, Guests};

/// What a house at an address is made of.
pub struct House {
    /// The hall.
    pub hall: Arc<Hall>,
    /// Where it listens.
    pub at: SocketAddr,
    /// What every request must bring; none lets everybody in.
    pub token: Option<String>,
    /// Web pages that may ask, beside our own.
    pub allowed_origins: Vec<String>,
    /// Names that it is reached under, beside those of this machine.
    pub allowed_hosts: Vec<String>,
}

impl House {
    /// Every door behind the token, and a word for whoever looks whether we are there.
    pub fn router(self) -> Router {
        let House { hall, at, token, allowed_origins, allowed_hosts } = self;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        let mut origins: Vec<String> =
            names.iter().map(|name| format!("http://{name}:{}", at.port())).collect();
        origins.extend(allowed_origins);
        let mut hosts: Vec<String> = names.into_iter().chain(["::1".to_owned()]).collect();
        hosts.extend(allowed_hosts);
        if !at.ip().is_unspecified() {
            hosts.push(at.ip().to_string());
        }
        let doors = mcp::router(hall, Guests { hosts, origins });
        let doors = match token {
            None => doors,
            Some(token) => doors.layer(from_fn_with_state(Token::new(&token), with_token)),
        };
        doors.route("/healthz", get(|| async { "ok\n" }))
    }
}

/// The hash of the token: comparing hashes takes as long for a near miss as for any other.
#[derive(Clone)]
struct Token(Arc<str>);

impl Token {
    fn new(token: &str) -> Token {
        Token(hex_digest(token.as_bytes()).into())
    }
}

async fn with_token(State(token): State<Token>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok());
    let given = given
        .and_then(|given| given.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if given.is_some_and(|(_, given)| hex_digest(given.trim().as_bytes()) == *token.0) {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "a token is needed\n")
        .into_response()
}
