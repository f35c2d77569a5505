//! The address of the house: who may come in, and how.
//!
//! ```text
//! listen.rs, crowd.rs, stream.rs    connections: how many, how slow, and how they end
//! door.rs, token.rs,                each request: to whom, from where, with which token, how large
//!   oidc.rs, ring_keys.rs
//! pass.rs                           how long they may stay
//! asked.rs                          what it is called, and what is said of it afterwards
//! session.rs                        sessions of MCP, each of which is somebody's
//! ```
//!
//! Behind it are the doors of the protocols, which need to know nothing of this.

mod asked;
mod crowd;
mod door;
mod listen;
mod oidc;
mod pass;
mod ring_keys;
mod session;
mod stream;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use segue_core::access::{Principal, Right};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::audit::Knocks;
use super::hall::Hall;
use super::keys;
use super::mcp::{self, Guests};
use super::rest::routes::ROUTES;
use super::rest::{self, Rest};
use door::{Door, Origin};
use listen::Host;
use session::Sessions;

pub use listen::{bind, tls};
pub use oidc::{Issuer, METADATA, Resource};
pub use pass::Pass;
pub use token::{Key, Keyring, TOKEN_CHARS_MIN, TOO_SHORT, is_hash, made_up};

/// How often what nobody needs any more is forgotten.
const TIDY_EVERY: Duration = Duration::from_hours(1);

/// What a house at an address is made of.
pub struct House {
    /// The hall.
    pub hall: Arc<Hall>,
    /// Where it listens.
    pub at: SocketAddr,
    /// Who is let in, now.
    pub keyring: watch::Receiver<Arc<Keyring>>,
    /// Web pages that may ask, beside our own.
    pub allowed_origins: Vec<String>,
    /// Names that it is reached under, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// What connections are encrypted with.
    pub tls: Option<TlsAcceptor>,
}

impl House {
    /// Answers whoever comes, until it is time to leave: then what is asked is still answered.
    pub async fn serve(self, listener: TcpListener, leaving: watch::Receiver<bool>) {
        let (hall, tls, limits) = (self.hall.clone(), self.tls.clone(), self.hall.limits());
        let router = self.router(leaving.clone());
        let metrics = hall.observing().metrics.clone();
        let host = Host { router, tls, limits, leaving, metrics };
        tokio::select! {
            () = host.serve(listener) => {}
            () = tidy(&hall) => {}
        }
    }

    /// Every door behind the guards.
    pub fn router(self, leaving: watch::Receiver<bool>) -> Router {
        let (hosts, origins) = self.names();
        let is_encrypted = self.tls.is_some();
        let House { hall, keyring, .. } = self;
        let open = ROUTES.iter().filter(|route| route.right == Right::Public);
        let door = Door {
            keyring: keyring.clone(),
            is_encrypted,
            hosts: hosts.clone(),
            origins: origins.iter().filter_map(|origin| Origin::parse(origin)).collect(),
            open: open.map(|route| route.path).collect(),
            hall: hall.clone(),
            metrics: hall.observing().metrics.clone(),
            knocks: Knocks::default(),
        };
        let mcp = mcp::router(hall.clone(), Guests { hosts, origins });
        let resource = Resource { keyring, is_encrypted };
        let rest = Rest::new(hall, resource, leaving);
        let sessions = Arc::new(Sessions::default());
        mcp.layer(from_fn_with_state(sessions, session::hold))
            .layer(from_fn(with_right))
            .merge(rest.router())
            .fallback(rest::not_found)
            .layer(from_fn_with_state(Arc::new(door), door::enter))
    }

    /// Names that it is reached under, and the web pages that may ask.
    fn names(&self) -> (Vec<String>, Vec<String>) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let own = names.iter().map(|name| format!("{scheme}://{name}:{}", self.at.port()));
        let origins = own.chain(self.allowed_origins.iter().cloned()).collect();
        let mut hosts: Vec<String> = names.into_iter().chain(["::1".to_owned()]).collect();
        hosts.extend(self.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()));
        match self.at.ip() {
            ip if ip.is_unspecified() => {}
            ip if ip.is_ipv6() => hosts.push(format!("[{ip}]")),
            ip => hosts.push(ip.to_string()),
        }
        (hosts, origins)
    }
}

/// Holds a request of another door against its row of the table.
async fn with_right(request: Request, next: Next) -> Response {
    let who = request.extensions().get::<Principal>().cloned().unwrap_or_else(Principal::anonymous);
    let route = match rest::row(request.uri().path(), request.method()) {
        Err(problem) => return problem.into_response(),
        Ok(route) => route,
    };
    let mut response = match rest::allow(route, &who) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    response.extensions_mut().insert(rest::Answered(route));
    response
}

async fn tidy(hall: &Hall) {
    loop {
        // What could not be forgotten now is forgotten next time.
        let _ = keys::forget(hall).await;
        tokio::time::sleep(TIDY_EVERY).await;
    }
}
