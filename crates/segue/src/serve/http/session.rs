//! Sessions of MCP, each of which is somebody's.
//!
//! Whoever has the id of a session could hear what is said in it and answer what is asked in it. So it is
//! remembered who began each, and to everybody else it is not there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use segue_core::access::Principal;

use crate::serve::rest::problem::Problem;

/// What a session's id is carried in.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Sessions that are remembered; the owner of one that is forgotten begins another.
const SESSIONS_MAX: usize = 10_000;

/// Whose sessions there are.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every session that is named is theirs.
    fn are_of(&self, who: &Principal, headers: &HeaderMap) -> bool {
        let known = self.known();
        let mut named = headers.get_all(SESSION).iter();
        named.all(|id| known.owners.get(id) == Some(&who.name))
    }

    fn begin(&self, id: &HeaderValue, who: &Principal) {
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

/// Lets a request into the session that it names only if that is its caller's.
pub(super) async fn hold(
    State(sessions): State<Arc<Sessions>>,
    request: Request,
    next: Next,
) -> Response {
    let who = request.extensions().get::<Principal>().cloned().unwrap_or_else(Principal::anonymous);
    if !sessions.are_of(&who, request.headers()) {
        return Problem::not_found("there is no such session").into_response();
    }
    let response = next.run(request).await;
    if let Some(id) = response.headers().get(SESSION) {
        sessions.begin(id, &who);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D3: a session is there for whoever began it, and for nobody else, the administrator included:
    /// there is nothing to look after in it.
    #[test]
    fn a_session_is_one_principal_s() {
        let sessions = Sessions::default();
        let [ada, bob] = ["ada", "bob"].map(Principal::administrator);
        let named = |id: &str| HeaderMap::from_iter([(SESSION, id.parse().unwrap())]);
        sessions.begin(&HeaderValue::from_static("s"), &ada);
        sessions.begin(&HeaderValue::from_static("s"), &bob);
        assert!(sessions.are_of(&ada, &named("s")));
        assert!(!sessions.are_of(&bob, &named("s")));
        assert!(!sessions.are_of(&ada, &named("t")));
        assert!(sessions.are_of(&bob, &HeaderMap::new()));
        for number in 0..SESSIONS_MAX {
            sessions.begin(&HeaderValue::from(number), &bob);
        }
        assert!(!sessions.are_of(&ada, &named("s")), "forgotten");
        assert_eq!(sessions.known().owners.len(), SESSIONS_MAX);
    }
}
