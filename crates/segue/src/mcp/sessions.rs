//! Sessions of MCP over HTTP, each of which belongs to one principal.
//!
//! A client with the id of a session could read its messages and answer its questions. So the server
//! remembers the principal that opened each session, and refuses it to others.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lru::LruCache;
use parking_lot::Mutex;
use segue_core::access::Principal;

use crate::http::problem::Problem;

/// The header with the id of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// How many sessions are remembered. The least recently used one is dropped first; its client opens
/// another.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// The owners of sessions, by session id.
pub(super) struct Sessions(Mutex<LruCache<HeaderValue, Arc<str>>>);

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions(Mutex::new(LruCache::new(SESSIONS_MAX)))
    }
}

impl Sessions {
    /// Whether every session in the headers is the principal's.
    fn belong_to(&self, who: &Principal, headers: &HeaderMap) -> bool {
        let mut owners = self.0.lock();
        let mut named = headers.get_all(SESSION).iter();
        named.all(|id| owners.get(id) == Some(&who.name))
    }

    /// Remembers the owner of a session; the first one stays.
    fn record(&self, id: &HeaderValue, who: &Principal) {
        self.0.lock().get_or_insert(id.clone(), || who.name.clone());
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
        sessions.record(&HeaderValue::from_static("idle"), &ada);
        assert!(sessions.belong_to(&ada, &named("s")));
        for number in 1..SESSIONS_MAX.get() {
            sessions.record(&HeaderValue::from(number), &bob);
        }
        assert!(!sessions.belong_to(&ada, &named("idle")), "dropped");
        assert!(sessions.belong_to(&ada, &named("s")), "used later than `idle`");
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX.get());
    }
}
