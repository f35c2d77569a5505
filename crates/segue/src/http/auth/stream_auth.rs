//! Authentication of streams: a stream ends when its token expires, is revoked, or gets other rights.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use segue_core::access::Principal;
use segue_runtime::driver::now_ms;
use tokio::sync::watch;

use super::session::CredentialCheck;
use super::token::AuthError;

/// A principal that was authenticated, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The principal.
    pub who: Principal,
    /// When its token expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl Authenticated {
    /// Without an expiry.
    pub(super) fn lasting(who: Principal) -> Authenticated {
        Authenticated { who, expires_ms: None }
    }
}

/// The authentication of a response that may be a stream.
pub(super) struct StreamAuth {
    pub(super) authenticated: Authenticated,
    /// The credentials of the request.
    pub(super) credentials: HeaderMap,
    /// Which tokens and cookies are accepted, now.
    pub(super) check: CredentialCheck,
    /// Tells when sessions end.
    pub(super) ended: watch::Receiver<u64>,
}

impl StreamAuth {
    /// The headers of a request that hold its credentials.
    pub(super) fn credentials(headers: &HeaderMap) -> HeaderMap {
        let given = |name: HeaderName| {
            headers.get_all(&name).iter().map(move |value| (name.clone(), value.clone()))
        };
        given(header::AUTHORIZATION).chain(given(header::COOKIE)).collect()
    }

    /// Ends a stream when its token is no longer valid.
    pub(super) fn limit(self, response: Response) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let goes_on = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !goes_on {
            return response;
        }
        response.map(|body| {
            let until = Box::pin(self.revoked());
            Body::from_stream(body.into_data_stream().take_until(until))
        })
    }

    /// Resolves when the token is no longer valid.
    async fn revoked(mut self) {
        loop {
            let expiry = self.authenticated.expires_ms;
            let expired = async {
                match expiry {
                    Some(at) => {
                        let left = Duration::from_millis(at.saturating_sub(now_ms()));
                        tokio::time::sleep(left).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => return,
                () = self.check.changed(&mut self.ended) => {}
            }
            let now = self.check.authenticate(&self.credentials, now_ms()).await;
            match now.map(|identity| identity.authenticated) {
                Ok(now) if now.who == self.authenticated.who => self.authenticated = now,
                // The token cannot be verified now, so the last result stands.
                Err(AuthError::Unavailable(_)) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures_util::stream;
    use segue_core::access::Right;
    use segue_core::limits::Limits;
    use segue_core::tool::hex_digest;

    use std::sync::Arc;

    use super::super::session::BrowserSessions;
    use super::super::token::Authenticator;
    use super::*;
    use crate::api::session::SignIn;
    use crate::config::tokens::PrincipalToken;

    fn authenticator(token: &str, right: Right, expires_ms: Option<u64>) -> Arc<Authenticator> {
        let rights = [right].into_iter().collect();
        let principal = Principal::new("ada", rights);
        let hash = hex_digest(token.as_bytes()).into();
        Arc::new(Authenticator::of("root").with([PrincipalToken { hash, principal, expires_ms }]))
    }

    async fn stream_auth(authenticator: &watch::Sender<Arc<Authenticator>>) -> StreamAuth {
        let value = HeaderValue::from_static("Bearer ada");
        let credentials = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let sessions = Arc::new(BrowserSessions::new(0));
        let check = CredentialCheck { authenticator: authenticator.subscribe(), sessions };
        let identity = check.authenticate(&credentials, now_ms()).await.unwrap();
        let ended = check.ended_sessions();
        StreamAuth { authenticated: identity.authenticated, credentials, check, ended }
    }

    fn answer(kind: &'static str) -> Response {
        let endless = stream::pending::<Result<&str, std::convert::Infallible>>();
        let mut response = Response::new(Body::from_stream(endless));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// A stream ends when its token expires; another response is left alone.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_token_expires() {
        let authenticator =
            watch::Sender::new(authenticator("ada", Right::Read, Some(now_ms() + 60_000)));
        let begun = tokio::time::Instant::now();
        let response = stream_auth(&authenticator).await.limit(answer("text/event-stream"));
        assert!(response.into_body().into_data_stream().next().await.is_none());
        assert!(begun.elapsed() > Duration::from_secs(50));
        let response = stream_auth(&authenticator).await.limit(answer("application/json"));
        let mut body = response.into_body().into_data_stream();
        assert!(tokio::time::timeout(Duration::from_mins(10), body.next()).await.is_err());
    }

    /// A stream ends when its token is revoked, or gets other rights, and only then.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_token_is_revoked() {
        for (token, right, ends) in
            [("ada", Right::Read, false), ("ada", Right::Run, true), ("eve", Right::Read, true)]
        {
            let sender = watch::Sender::new(authenticator("ada", Right::Read, None));
            let stream_auth = stream_auth(&sender).await;
            let over = tokio::spawn(stream_auth.revoked());
            tokio::task::yield_now().await;
            sender.send_replace(authenticator(token, right, None));
            let over = tokio::time::timeout(Duration::from_mins(1), over).await;
            assert_eq!(over.is_ok(), ends, "{token}");
        }
    }

    /// A stream of a browser ends when the browser signs out, and not when another one does.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_session_does() {
        let sender = watch::Sender::new(authenticator("ada", Right::Read, None));
        let sessions = Arc::new(BrowserSessions::new(1));
        let check = CredentialCheck { authenticator: sender.subscribe(), sessions };
        let sign_in = SignIn { token: Some("ada".into()), code: None };
        let limits = Limits::default();
        let one = check.sign_in(&sign_in, &limits, now_ms(), false).await.unwrap();
        let other = check.sign_in(&sign_in, &limits, now_ms(), false).await.unwrap();
        let cookie = one.cookie.unwrap().split(';').next().unwrap().parse().unwrap();
        let credentials = HeaderMap::from_iter([(header::COOKIE, cookie)]);
        let (authenticated, ended) = (one.identity.authenticated, check.ended_sessions());
        let stream = StreamAuth { authenticated, credentials, check: check.clone(), ended };
        let mut over = Box::pin(stream.revoked());
        check.sessions.end(&other.identity.session.unwrap());
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut over).await.is_err());
        check.sessions.end(&one.identity.session.unwrap());
        assert!(tokio::time::timeout(Duration::from_mins(1), &mut over).await.is_ok());
    }
}
