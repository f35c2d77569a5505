//! How long somebody may stay: an answer that goes on ends when whoever asked for it would not be let in
//! any more, or would be somebody else.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use segue_core::access::Principal;
use segue_runtime::driver::now_ms;
use tokio::sync::watch;

use super::token::{Keyring, Refusal};

/// Somebody who was let in, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Who it is.
    pub who: Principal,
    /// When it stops being good, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

impl Pass {
    /// One that does not expire.
    pub(super) fn lasting(who: Principal) -> Pass {
        Pass { who, expires_ms: None }
    }
}

/// Somebody who stays for longer than a moment.
pub(super) struct Stay {
    pub(super) pass: Pass,
    /// What they came with.
    pub(super) credentials: HeaderMap,
    /// Who is let in, now.
    pub(super) keyring: watch::Receiver<Arc<Keyring>>,
}

impl Stay {
    /// What of the headers of a request says who it is.
    pub(super) fn credentials(headers: &HeaderMap) -> HeaderMap {
        let given = headers.get_all(header::AUTHORIZATION).iter();
        given.map(|value| (header::AUTHORIZATION, value.clone())).collect()
    }

    /// Ends an answer that goes on together with the stay.
    pub(super) fn bound(self, response: Response) -> Response {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let goes_on = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if !goes_on {
            return response;
        }
        response.map(|body| {
            let until = Box::pin(self.over());
            Body::from_stream(body.into_data_stream().take_until(until))
        })
    }

    /// Resolves when they may not stay any longer.
    async fn over(mut self) {
        loop {
            let expiry = self.pass.expires_ms;
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
                changed = self.keyring.changed() => if changed.is_err() {
                    // Nobody will be let in differently; what is left ends with the house.
                    return std::future::pending().await;
                },
            }
            let keyring = self.keyring.borrow_and_update().clone();
            match keyring.who(&self.credentials, now_ms()).await {
                Ok(pass) if pass.who == self.pass.who => self.pass = pass,
                // Nobody can tell now, so what was said of them stands.
                Err(Refusal::Undecided(_)) => {}
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

    use super::super::token::Key;
    use super::*;

    fn keyring(token: &str, right: Right, expires_ms: Option<u64>) -> Arc<Keyring> {
        let rights = [right].into_iter().collect();
        let principal = Principal::new("ada", rights);
        let hash = hex_digest(token.as_bytes()).into();
        Arc::new(Keyring::of("root").with([Key { hash, principal, expires_ms }]))
    }

    async fn stay(keyring: &watch::Sender<Arc<Keyring>>) -> Stay {
        let value = HeaderValue::from_static("Bearer ada");
        let credentials = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        let now = keyring.borrow().clone();
        let pass = now.who(&credentials, now_ms()).await.unwrap();
        Stay { pass, credentials, keyring: keyring.subscribe() }
    }

    fn answer(kind: &'static str) -> Response {
        let endless = stream::pending::<Result<&str, std::convert::Infallible>>();
        let mut response = Response::new(Body::from_stream(endless));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    /// A stream ends when its token expires; what is not one is left alone.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_token_expires() {
        let keyring = watch::Sender::new(keyring("ada", Right::Read, Some(now_ms() + 60_000)));
        let begun = tokio::time::Instant::now();
        let response = stay(&keyring).await.bound(answer("text/event-stream"));
        assert!(response.into_body().into_data_stream().next().await.is_none());
        assert!(begun.elapsed() > Duration::from_secs(50));
        let response = stay(&keyring).await.bound(answer("application/json"));
        let mut body = response.into_body().into_data_stream();
        assert!(tokio::time::timeout(Duration::from_mins(10), body.next()).await.is_err());
    }

    /// A stream ends when its token is taken back, or stands for other rights, and only then.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_token_is_taken_back() {
        for (token, right, ends) in
            [("ada", Right::Read, false), ("ada", Right::Run, true), ("eve", Right::Read, true)]
        {
            let sender = watch::Sender::new(keyring("ada", Right::Read, None));
            let stay = stay(&sender).await;
            let over = tokio::spawn(stay.over());
            tokio::task::yield_now().await;
            sender.send_replace(keyring(token, right, None));
            let over = tokio::time::timeout(Duration::from_mins(1), over).await;
            assert_eq!(over.is_ok(), ends, "{token}");
        }
    }
}
