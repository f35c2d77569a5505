//! Sign-in of a browser at the OpenID Connect issuer: the authorization code flow with PKCE.
//!
//! The server keeps nothing of a sign-in that has begun: `state`, `nonce` and the PKCE verifier travel in a
//! cookie that only this process can read and write. So strangers who begin and never end fill no table, and
//! no other page can sign a browser in as somebody else. An answer works once, because its code does at the
//! issuer, and the browser forgets the cookie. The tokens are verified like any token of the issuer.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use form_urlencoded::Serializer;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use segue_core::limits::Limits;
use segue_runtime::tools::http::fetch;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::oidc::{DOCUMENT_BYTES_MAX, DOCUMENT_WAIT, Issuer, looks_signed};
use super::session::{CredentialCheck, OpenedSession, SessionCredential, random_id};
use super::token::AuthError;
use crate::config::OidcConfig;

/// The path where a browser begins to sign in.
pub const OIDC: &str = "/api/v1/session/oidc";

/// The path of the issuer's answer.
pub const OIDC_CALLBACK: &str = "/api/v1/session/oidc/callback";

/// How long a browser may be at the issuer.
const LOGIN_MS: u64 = 10 * 60 * 1_000;

/// A sign-in that has begun, as its cookie holds it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PendingLogin {
    issuer: String,
    state: String,
    nonce: String,
    verifier: String,
    redirect_uri: String,
    expires_ms: u64,
}

/// Encrypts sign-ins that have begun, with a key of this process.
pub(super) struct LoginSealer {
    key: LessSafeKey,
    random: SystemRandom,
    /// The name of the cookie. It has the port, because browsers do not separate cookies by port.
    cookie: String,
}

impl LoginSealer {
    pub(super) fn new(port: u16) -> LoginSealer {
        let random = SystemRandom::new();
        let mut key = [0; 32];
        random.fill(&mut key).expect("the system has random numbers");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the key has its length");
        LoginSealer { key: LessSafeKey::new(key), random, cookie: format!("segue_oidc_{port}") }
    }

    fn seal(&self, login: &PendingLogin) -> String {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).expect("the system has random numbers");
        let mut text = serde_json::to_vec(login).unwrap_or_default();
        let sealed = self.key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(self.cookie.as_bytes()),
            &mut text,
        );
        sealed.expect("a sign-in is short");
        BASE64.encode([&nonce[..], &text].concat())
    }

    /// The sign-in of a cookie, if this process sealed it and it has not expired.
    fn open(&self, sealed: &str, now_ms: u64) -> Option<PendingLogin> {
        let bytes = BASE64.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let (nonce, mut text) = (Nonce::try_assume_unique_for_key(nonce).ok()?, text.to_vec());
        let aad = Aad::from(self.cookie.as_bytes());
        let text = self.key.open_in_place(nonce, aad, &mut text).ok()?;
        let login: PendingLogin = serde_json::from_slice(text).ok()?;
        (login.expires_ms > now_ms).then_some(login)
    }

    /// The sign-in with this `state` among the cookies of a request.
    fn find(&self, cookies: &str, state: &str, now_ms: u64) -> Option<PendingLogin> {
        let pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        let ours = pairs.filter(|(name, _)| *name == self.cookie);
        let mut logins = ours.filter_map(|(_, sealed)| self.open(sealed, now_ms));
        logins.find(|login| login.state.as_bytes().ct_eq(state.as_bytes()).into())
    }

    /// The answer comes from another site, so this cookie cannot be `Strict`.
    fn cookie_text(&self, value: &str, seconds: u64, is_secure: bool) -> String {
        let (name, secure) = (&self.cookie, if is_secure { "; Secure" } else { "" });
        format!("{name}={value}; Path={OIDC}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
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
        let state = random_id();
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
        let is_secure = origin.starts_with("https:");
        let login = PendingLogin {
            issuer: issuer.config().issuer.clone(),
            state,
            nonce,
            verifier,
            redirect_uri,
            expires_ms: now_ms.saturating_add(LOGIN_MS),
        };
        let sealer = &self.sessions.logins;
        let cookie = sealer.cookie_text(&sealer.seal(&login), LOGIN_MS / 1_000, is_secure);
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
        let login = self.sessions.logins.find(cookies, state, now_ms).ok_or(AuthError::Code)?;
        let (issuer, client_id) = self.login_issuer()?;
        if issuer.config().issuer != login.issuer {
            return Err(AuthError::Code);
        }
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

    /// The text of `Set-Cookie` that makes a browser forget a sign-in that has ended.
    pub fn forget_login(&self, is_secure: bool) -> String {
        self.sessions.logins.cookie_text("", 0, is_secure)
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

    /// A cookie opens for its own state, in time, at the process and port that made it, and unchanged.
    #[test]
    fn only_the_cookie_of_a_sign_in_ends_it() {
        let sealer = LoginSealer::new(1);
        let login = |state: &str| PendingLogin {
            issuer: "i".to_owned(),
            state: state.to_owned(),
            nonce: "n".to_owned(),
            verifier: "v".to_owned(),
            redirect_uri: "r".to_owned(),
            expires_ms: 100,
        };
        let sealed = sealer.seal(&login("a"));
        assert!(!sealed.contains(&BASE64.encode("\"state\"")), "{sealed}");
        assert_ne!(sealed, sealer.seal(&login("a")));
        let cookies = format!("x=y; segue_oidc_1=junk; segue_oidc_1={sealed}");
        assert_eq!(sealer.find(&cookies, "a", 99), Some(login("a")));
        assert_eq!(sealer.find(&cookies, "b", 99), None);
        assert_eq!(sealer.find(&cookies, "a", 100), None);
        assert_eq!(sealer.find(&format!("segue_oidc_2={sealed}"), "a", 99), None);
        assert_eq!(LoginSealer::new(1).find(&cookies, "a", 99), None);
        let bytes = BASE64.decode(&sealed).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.open(&BASE64.encode(changed), 99), None, "{at}");
        }
        assert_eq!(sealer.open("AAAA", 99), None);
    }
}
