//! Authentication of streams: a stream ends when its token expires, is revoked, or gets other rights.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use segue_core::access::Principal;
use segue_runtime::driver::now_ms;
use tokio::sync::watch;

use super::token::{AuthError, Authenticator};

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
    /// Which tokens are accepted, now.
    pub(super) authenticator: watch::Receiver<Arc<Authenticator>>,
}

impl StreamAuth {
    /// The headers of a request that hold its credentials.
    pub(super) fn credentials(headers: &HeaderMap) -> HeaderMap {
        let given = headers.get_all(header::AUTHORIZATION).iter();
        given.map(|value| (header::AUTHORIZATION, value.clone())).collect()
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
                changed = self.authenticator.changed() => if changed.is_err() {
                    // The tokens will not change any more; the stream ends with the server.
                    return std::future::pending().await;
                },
            }
            let authenticator = self.authenticator.borrow_and_update().clone();
            match authenticator.authenticate(&self.credentials, now_ms()).await {
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
    use segue_core::tool::hex_digest;

    use super::*;
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
        let now = authenticator.borrow().clone();
        let authenticated = now.authenticate(&credentials, now_ms()).await.unwrap();
        StreamAuth { authenticated, credentials, authenticator: authenticator.subscribe() }
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
}
