//! Sign-in of a browser at the OpenID Connect issuer: the authorization code flow with PKCE.
//!
//! `state` is random and works once. A cookie binds it to the browser that began, so that no other page can
//! sign a browser in as another user. The tokens of the answer are verified like any token of the issuer.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use form_urlencoded::Serializer;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use segue_core::limits::Limits;
use segue_core::tool::hex_digest;
use segue_runtime::tools::http::fetch;
use serde::Deserialize;

use super::oidc::{DOCUMENT_BYTES_MAX, DOCUMENT_WAIT, Issuer, looks_signed};
use super::session::{CredentialCheck, OpenedSession, SessionCredential, random_id};
use super::token::AuthError;
use crate::config::OidcConfig;

/// The path where a browser begins to sign in.
pub const OIDC: &str = "/api/v1/session/oidc";

/// The path of the issuer's answer.
pub const OIDC_CALLBACK: &str = "/api/v1/session/oidc/callback";

/// How many browsers may be at the issuer at once, and how long.
const LOGINS_MAX: usize = 256;
const LOGIN_MS: u64 = 10 * 60 * 1_000;

/// The cookie that binds `state` to a browser.
const COOKIE: &str = "segue_oidc";

/// The sign-ins that have begun, by the hash of their `state`.
#[derive(Default)]
pub(super) struct PendingLogins(Mutex<HashMap<String, PendingLogin>>);

struct PendingLogin {
    /// The hash of the cookie.
    binding: String,
    nonce: String,
    verifier: String,
    redirect_uri: String,
    expires_ms: u64,
}

impl PendingLogins {
    fn add(&self, state: &str, login: PendingLogin, now_ms: u64) -> Result<(), AuthError> {
        let mut logins = self.0.lock();
        logins.retain(|_, login| login.expires_ms > now_ms);
        if logins.len() >= LOGINS_MAX {
            return Err(AuthError::TooOften);
        }
        logins.insert(hex_digest(state.as_bytes()), login);
        Ok(())
    }

    fn take(&self, state: &str, binding: &str, now_ms: u64) -> Option<PendingLogin> {
        let login = self.0.lock().remove(&hex_digest(state.as_bytes()))?;
        let is_bound = login.binding == hex_digest(binding.as_bytes());
        (is_bound && login.expires_ms > now_ms).then_some(login)
    }
}

/// Where a browser goes to sign in.
pub struct LoginRedirect {
    /// The address at the issuer.
    pub location: String,
    /// The cookie that binds the sign-in to the browser.
    pub cookie: String,
}

/// The answer of the issuer's token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    #[serde(default)]
    access_token: String,
}

impl CredentialCheck {
    /// Begins a sign-in of a browser that reached this server at `origin`.
    pub async fn begin_login(&self, origin: &str, now_ms: u64) -> Result<LoginRedirect, AuthError> {
        let (issuer, client_id) = self.login_issuer()?;
        let endpoint = issuer.endpoints().await.map_err(AuthError::Unavailable)?.authorization;
        let (state, binding) = (random_id(), random_id());
        let (nonce, verifier) = (random_id(), random_id());
        let redirect_uri = format!("{origin}{OIDC_CALLBACK}");
        let challenge = BASE64.encode(digest(&SHA256, verifier.as_bytes()));
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &client_id)
            .append_pair("redirect_uri", &redirect_uri)
            .append_pair("scope", &wanted_scopes(issuer.config()))
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let login = PendingLogin {
            binding: hex_digest(binding.as_bytes()),
            nonce,
            verifier,
            redirect_uri,
            expires_ms: now_ms.saturating_add(LOGIN_MS),
        };
        self.sessions.logins.add(&state, login, now_ms)?;
        let secure = if origin.starts_with("https:") { "; Secure" } else { "" };
        let seconds = LOGIN_MS / 1_000;
        // The answer comes from another site, so this cookie cannot be `Strict`.
        let cookie = format!(
            "{COOKIE}={binding}; Path={OIDC}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
        );
        Ok(LoginRedirect { location: format!("{endpoint}{separator}{query}"), cookie })
    }

    /// Ends a sign-in: exchanges the code of the issuer's answer for tokens, verifies them, and opens a session.
    pub async fn finish_login(
        &self,
        (code, state): (&str, &str),
        cookies: &str,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<OpenedSession, AuthError> {
        let pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        let binding = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value).next();
        let login = self.sessions.logins.take(state, binding.unwrap_or(""), now_ms);
        let login = login.ok_or(AuthError::Code)?;
        let (issuer, client_id) = self.login_issuer()?;
        let endpoint = issuer.endpoints().await.map_err(AuthError::Unavailable)?.token;
        let config = issuer.config();
        let form = token_form(code, &login, &client_id, config);
        let answer =
            fetch::post_form(&endpoint, &config.issuer, form, DOCUMENT_BYTES_MAX, DOCUMENT_WAIT);
        let answer = answer.await.map_err(AuthError::Unavailable)?;
        let refused = || AuthError::Invalid("the issuer's answer has no tokens".to_owned());
        let answer: TokenAnswer = serde_json::from_slice(&answer).map_err(|_| refused())?;
        let subject = issuer.verify_id_token(&answer.id_token, &client_id, &login.nonce).await?;
        // An access token that only the issuer can read says nothing about rights.
        let is_readable = looks_signed(&answer.access_token);
        let token = if is_readable { &answer.access_token } else { &answer.id_token };
        let authenticated = issuer.authenticate(token).await?;
        if *authenticated.who.name != *format!("oidc:{subject}") {
            return Err(AuthError::Invalid("its subject is another one".to_owned()));
        }
        let credential = SessionCredential::Signed(authenticated, config.clone());
        let is_secure = login.redirect_uri.starts_with("https:");
        self.open(credential, &self.accepted(), limits, now_ms, is_secure)
    }

    /// The issuer at which browsers sign in, and our id there.
    fn login_issuer(&self) -> Result<(Arc<Issuer>, String), AuthError> {
        let issuer = self.accepted().issuer().cloned();
        let found = issuer.and_then(|it| Some((it.clone(), it.config().client_id.clone()?)));
        let none = "no issuer is configured for browsers (`server.oidc.client_id`)";
        found.ok_or_else(|| AuthError::Invalid(none.to_owned()))
    }
}

/// The form that exchanges a code for tokens.
fn token_form(code: &str, login: &PendingLogin, client_id: &str, config: &OidcConfig) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &login.redirect_uri)
        .append_pair("client_id", client_id)
        .append_pair("code_verifier", &login.verifier);
    if let Some(secret) = &config.client_secret {
        form.append_pair("client_secret", secret);
    }
    form.finish()
}

/// The scopes to ask for: all that give rights here.
fn wanted_scopes(config: &OidcConfig) -> String {
    let scopes = config.scopes.keys().map(|scope| &**scope).filter(|scope| *scope != "openid");
    ["openid"].into_iter().chain(scopes).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(binding: &str, expires_ms: u64) -> PendingLogin {
        PendingLogin {
            binding: hex_digest(binding.as_bytes()),
            nonce: String::new(),
            verifier: String::new(),
            redirect_uri: String::new(),
            expires_ms,
        }
    }

    /// A state works once, in the browser that began, and in time.
    #[test]
    fn a_state_works_once_in_its_browser_and_in_time() {
        let logins = PendingLogins::default();
        for (state, binding, expires_ms) in
            [("a", "x", 100), ("b", "x", 100), ("c", "x", 10), ("d", "x", 100)]
        {
            assert!(logins.add(state, login(binding, expires_ms), 0).is_ok());
        }
        assert!(logins.take("a", "x", 50).is_some());
        assert!(logins.take("a", "x", 50).is_none());
        assert!(logins.take("b", "y", 50).is_none());
        assert!(logins.take("c", "x", 50).is_none());
        assert!(logins.take("z", "x", 50).is_none());
        for number in 1..LOGINS_MAX {
            assert!(logins.add(&number.to_string(), login("x", 100), 0).is_ok());
        }
        assert_eq!(logins.add("more", login("x", 100), 0), Err(AuthError::TooOften));
        assert!(logins.add("later", login("x", 300), 200).is_ok());
    }
}
