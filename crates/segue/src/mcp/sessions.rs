//! Sessions of MCP over HTTP, each of which belongs to one principal.
//!
//! A client with the id of a session could read its messages and answer its questions. So the server
//! remembers the principal that opened each session, and refuses it to others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use parking_lot::{Mutex, MutexGuard};
use segue_core::access::Principal;

use crate::http::problem::Problem;

/// The header with the id of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// How many sessions are remembered; the client of a forgotten one opens another.
const SESSIONS_MAX: usize = 10_000;

/// The owners of sessions.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Known>);

#[derive(Default)]
struct Known {
    owners: HashMap<HeaderValue, Arc<str>>,
    /// The oldest first.
    order: VecDeque<HeaderValue>,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// Whether every session in the headers is the principal's.
    fn belong_to(&self, who: &Principal, headers: &HeaderMap) -> bool {
        let known = self.known();
        let mut named = headers.get_all(SESSION).iter();
        named.all(|id| known.owners.get(id) == Some(&who.name))
    }

    fn record(&self, id: &HeaderValue, who: &Principal) {
        let mut known = self.known();
        if known.owners.contains_key(id) {
            return;
        }
        if known.order.len() >= SESSIONS_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.owners.remove(&oldest);
        }
        known.owners.insert(id.clone(), who.name.clone());
        known.order.push_back(id.clone());
    }
}

/// Refuses a request to the session of another principal.
pub(super) async fn check_owner(
    State(sessions): State<Arc<Sessions>>,
    request: Request,
    next: Next,
) -> Response {
    let who = request.extensions().get::<Principal>().cloned().unwrap_or_else(Principal::anonymous);
    if !sessions.belong_to(&who, request.headers()) {
        return Problem::not_found("there is no such session").into_response();
    }
    let response = next.run(request).await;
    if let Some(id) = response.headers().get(SESSION) {
        sessions.record(id, &who);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D3: a session belongs to the principal that opened it, and to no other, the administrator included.
    #[test]
    fn a_session_is_one_principal_s() {
        let sessions = Sessions::default();
        let [ada, bob] = ["ada", "bob"].map(Principal::administrator);
        let named = |id: &str| HeaderMap::from_iter([(SESSION, id.parse().unwrap())]);
        sessions.record(&HeaderValue::from_static("s"), &ada);
        sessions.record(&HeaderValue::from_static("s"), &bob);
        assert!(sessions.belong_to(&ada, &named("s")));
        assert!(!sessions.belong_to(&bob, &named("s")));
        assert!(!sessions.belong_to(&ada, &named("t")));
        assert!(sessions.belong_to(&bob, &HeaderMap::new()));
        for number in 0..SESSIONS_MAX {
            sessions.record(&HeaderValue::from(number), &bob);
        }
        assert!(!sessions.belong_to(&ada, &named("s")), "forgotten");
        assert_eq!(sessions.known().owners.len(), SESSIONS_MAX);
    }
}
