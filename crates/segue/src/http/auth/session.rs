//! Sessions of browsers: a cookie in place of a token.
//!
//! The cookie holds a random id, and the server keeps only its hash. A session refers to the token that
//! opened it, so that it ends with the token: each request looks the token up again. A browser sends the
//! cookie by itself, so a request that may change something also needs a header that only the page knows.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use segue_core::limits::Limits;
use segue_core::tool::hex_digest;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::oidc_login::LoginSealer;
use super::stream_auth::Authenticated;
use super::token::{AuthError, Authenticator};
use crate::api::session::SignIn;
use crate::config::OidcConfig;

/// The header that a request with a cookie needs unless it only reads.
pub(super) const CSRF: &str = "x-segue-csrf";

/// The time in which failed sign-ins are counted.
const FAILURES_MS: u64 = 60_000;

/// How many codes of sign-in links may be open.
const CODES_MAX: usize = 64;

/// What a session stands for.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum SessionCredential {
    /// The token with this hash.
    Token(Arc<str>),
    /// A token that the issuer signed: its principal, while the issuer is configured as it was then.
    Signed(Authenticated, OidcConfig),
}

impl SessionCredential {
    /// The principal of this credential, if it is still accepted.
    fn authenticate(
        &self,
        authenticator: &Authenticator,
        now_ms: u64,
    ) -> Result<Authenticated, AuthError> {
        match self {
            SessionCredential::Token(hash) => authenticator.known_hash(hash, now_ms),
            SessionCredential::Signed(authenticated, config) => {
                let is_same = authenticator.issuer().is_some_and(|now| now.config() == config);
                let is_over = authenticated.expires_ms.is_some_and(|end| end <= now_ms);
                if is_same && !is_over { Ok(authenticated.clone()) } else { Err(AuthError::Ended) }
            }
        }
    }
}

/// A session as the server keeps it.
struct StoredSession {
    credential: SessionCredential,
    /// The name of the principal. Each token of an issuer is another credential of the same one.
    owner: Arc<str>,
    csrf: Arc<str>,
    opened_ms: u64,
    expires_ms: u64,
}

#[derive(Default)]
struct SessionTable {
    /// By the hash of the cookie.
    sessions: HashMap<Arc<str>, StoredSession>,
    /// When each code of a sign-in link expires, by the hash of the code.
    codes: HashMap<String, u64>,
    /// Failed sign-ins since a moment.
    failures: (u64, u32),
}

/// The sessions of this server, and the codes of its sign-in links.
pub struct BrowserSessions {
    table: Mutex<SessionTable>,
    /// Counts the sessions that were ended before they expired.
    ended: watch::Sender<u64>,
    cookie: String,
    /// Encrypts the sign-ins of browsers that are at the issuer.
    pub(super) logins: LoginSealer,
}

/// The session of a request.
#[derive(Clone, Debug)]
pub struct ActiveSession {
    /// The value that the CSRF header must have.
    pub csrf: Arc<str>,
    /// The hash of the cookie.
    key: Arc<str>,
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The principal, and until when.
    pub authenticated: Authenticated,
    /// The session, if the request has a cookie and no token.
    pub session: Option<ActiveSession>,
}

/// A session that was just opened.
pub struct OpenedSession {
    /// The caller from now on.
    pub identity: Identity,
    /// The cookie to set; none where no token is needed.
    pub cookie: Option<String>,
}

impl BrowserSessions {
    /// The sessions of a server at this port. Browsers do not separate cookies by port, so the port is part of
    /// the cookie's name: otherwise two servers on one machine would end each other's sessions.
    pub fn new(port: u16) -> BrowserSessions {
        let (cookie, logins) = (format!("segue_session_{port}"), LoginSealer::new(port));
        BrowserSessions { table: Mutex::default(), ended: watch::Sender::default(), cookie, logins }
    }

    /// A new code for a sign-in link. It stands for the administrator and works once.
    pub fn new_code(&self, limits: &Limits, now_ms: u64) -> String {
        let code = random_id();
        let codes = &mut self.table.lock().codes;
        codes.retain(|_, expires_ms| *expires_ms > now_ms);
        if codes.len() >= CODES_MAX {
            codes.clear();
        }
        codes.insert(hex_digest(code.as_bytes()), now_ms.saturating_add(limits.served_code_ms));
        code
    }

    /// Whether a code is open. It is not any more after that.
    fn redeem(&self, code: &str, now_ms: u64) -> bool {
        let expires_ms = self.table.lock().codes.remove(&hex_digest(code.as_bytes()));
        expires_ms.is_some_and(|expires_ms| expires_ms > now_ms)
    }

    /// Opens a session of `owner`. When there are too many, the oldest of the principal with the most
    /// sessions ends.
    fn open(
        &self,
        credential: SessionCredential,
        Authenticated { who, expires_ms }: &Authenticated,
        limits: &Limits,
        now_ms: u64,
    ) -> (String, ActiveSession) {
        let (id, csrf): (String, Arc<str>) = (random_id(), random_id().into());
        let key: Arc<str> = hex_digest(id.as_bytes()).into();
        let session = StoredSession {
            credential,
            owner: who.name.clone(),
            csrf: csrf.clone(),
            opened_ms: now_ms,
            expires_ms: expires_ms.unwrap_or(u64::MAX),
        };
        let sessions = &mut self.table.lock().sessions;
        sessions.retain(|_, session| session.expires_ms > now_ms);
        while sessions.len() >= limits.served_sessions_max.max(1) {
            let same = |one: &StoredSession| {
                sessions.values().filter(|other| other.owner == one.owner).count()
            };
            let oldest =
                sessions.iter().max_by_key(|(_, one)| (same(one), u64::MAX - one.opened_ms));
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            sessions.remove(&oldest);
            self.ended.send_modify(|count| *count += 1);
        }
        sessions.insert(key.clone(), session);
        (id, ActiveSession { csrf, key })
    }

    /// Ends a session.
    pub fn end(&self, session: &ActiveSession) {
        if self.table.lock().sessions.remove(&session.key).is_some() {
            self.ended.send_modify(|count| *count += 1);
        }
    }

    /// The session of a request, or nothing if it has no cookie of ours.
    fn find(
        &self,
        headers: &HeaderMap,
        authenticator: &Authenticator,
        now_ms: u64,
    ) -> Result<Option<Identity>, AuthError> {
        let ids = self.cookies(headers);
        if ids.is_empty() {
            return Ok(None);
        }
        let mut table = self.table.lock();
        for id in ids {
            let key: Arc<str> = hex_digest(id.as_bytes()).into();
            let Some(stored) = table.sessions.get(&key) else { continue };
            let is_current = stored.expires_ms > now_ms;
            let found = stored.credential.authenticate(authenticator, now_ms);
            let Some(Authenticated { who, expires_ms }) = found.ok().filter(|_| is_current) else {
                table.sessions.remove(&key);
                continue;
            };
            let expires_ms = expires_ms.map_or(stored.expires_ms, |at| at.min(stored.expires_ms));
            let authenticated = Authenticated { who, expires_ms: Some(expires_ms) };
            let session = Some(ActiveSession { csrf: stored.csrf.clone(), key });
            return Ok(Some(Identity { authenticated, session }));
        }
        Err(AuthError::Ended)
    }

    /// The values of our cookie.
    fn cookies<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a str> {
        let given = headers.get_all(header::COOKIE).iter();
        let given = given.filter_map(|value| value.to_str().ok());
        let pairs = given.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
        let ours = pairs.filter(|(name, _)| name.trim() == self.cookie);
        ours.map(|(_, value)| value.trim()).collect()
    }

    /// The text of `Set-Cookie` for a session.
    fn set_cookie(&self, id: &str, left_ms: u64, is_secure: bool) -> String {
        self.cookie_text(id, left_ms / 1_000, is_secure)
    }

    /// The text of `Set-Cookie` that makes a browser forget the cookie.
    pub fn forget_cookie(&self, is_secure: bool) -> String {
        self.cookie_text("", 0, is_secure)
    }

    fn cookie_text(&self, value: &str, seconds: u64, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        let name = &self.cookie;
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
    }

    /// Counts a failed sign-in. After too many in a minute, the answer no longer says why. A valid
    /// credential is never refused: otherwise failures of strangers would lock everybody out.
    fn count_failure(&self, error: AuthError, limits: &Limits, now_ms: u64) -> AuthError {
        let failures = &mut self.table.lock().failures;
        if now_ms.saturating_sub(failures.0) >= FAILURES_MS {
            *failures = (now_ms, 0);
        }
        failures.1 = failures.1.saturating_add(1);
        if failures.1 > limits.served_sign_in_failures_max { AuthError::TooOften } else { error }
    }
}

/// A random text of 244 bits.
pub(super) fn random_id() -> String {
    let part = || uuid::Uuid::new_v4().simple().to_string();
    format!("{}{}", part(), part())
}

/// Finds the caller of a request by its token or its cookie.
#[derive(Clone)]
pub struct CredentialCheck {
    /// Which tokens are accepted, now.
    pub authenticator: watch::Receiver<Arc<Authenticator>>,
    /// The sessions.
    pub sessions: Arc<BrowserSessions>,
}

impl CredentialCheck {
    /// Which tokens are accepted, now.
    pub(super) fn accepted(&self) -> Arc<Authenticator> {
        self.authenticator.borrow().clone()
    }

    /// The caller of these headers at this moment. A token takes precedence over a cookie.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        now_ms: u64,
    ) -> Result<Identity, AuthError> {
        let authenticator = self.accepted();
        if !authenticator.is_open()
            && !headers.contains_key(header::AUTHORIZATION)
            && let Some(identity) = self.sessions.find(headers, &authenticator, now_ms)?
        {
            return Ok(identity);
        }
        let authenticated = authenticator.authenticate(headers, now_ms).await?;
        Ok(Identity { authenticated, session: None })
    }

    /// Opens a session for a token or for the code of a sign-in link.
    pub async fn sign_in(
        &self,
        given: &SignIn,
        limits: &Limits,
        now_ms: u64,
        is_secure: bool,
    ) -> Result<OpenedSession, AuthError> {
        let authenticator = self.accepted();
        if authenticator.is_open() {
            let authenticated = authenticator.authenticate(&HeaderMap::new(), now_ms).await?;
            let identity = Identity { authenticated, session: None };
            return Ok(OpenedSession { identity, cookie: None });
        }
        let credential = match (&given.token, &given.code) {
            (Some(token), _) => authenticator.credential(token.trim(), now_ms).await,
            (None, Some(code)) if self.sessions.redeem(code, now_ms) => {
                let hash = authenticator.administrator_hash().ok_or(AuthError::Unknown);
                hash.map(|hash| SessionCredential::Token(hash.clone()))
            }
            (None, Some(_)) => Err(AuthError::Code),
            (None, None) => Err(AuthError::Absent),
        };
        let opened = credential.and_then(|credential| {
            self.open(credential, &authenticator, limits, now_ms, is_secure)
        });
        match opened {
            // An issuer that cannot be reached is no failure of the caller.
            Ok(_) | Err(AuthError::Unavailable(_)) => opened,
            Err(error) => Err(self.sessions.count_failure(error, limits, now_ms)),
        }
    }

    /// Opens a session for a credential that was just checked.
    pub(super) fn open(
        &self,
        credential: SessionCredential,
        authenticator: &Authenticator,
        limits: &Limits,
        now_ms: u64,
        is_secure: bool,
    ) -> Result<OpenedSession, AuthError> {
        let Authenticated { who, expires_ms } = credential.authenticate(authenticator, now_ms)?;
        // A session ends with its token.
        let end = now_ms.saturating_add(limits.served_session_ms);
        let end = expires_ms.map_or(end, |at| at.min(end));
        let authenticated = Authenticated { who, expires_ms: Some(end) };
        let (id, session) = self.sessions.open(credential, &authenticated, limits, now_ms);
        let cookie = self.sessions.set_cookie(&id, end.saturating_sub(now_ms), is_secure);
        let cookie = Some(cookie);
        let identity = Identity { authenticated, session: Some(session) };
        Ok(OpenedSession { identity, cookie })
    }

    /// Resolves when tokens or sessions change; never, when they cannot change any more.
    pub(super) async fn changed(&mut self, ended: &mut watch::Receiver<u64>) {
        tokio::select! {
            changed = self.authenticator.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            _ = ended.changed() => {}
        }
    }

    /// Tells when sessions end before they expire.
    pub(super) fn ended_sessions(&self) -> watch::Receiver<u64> {
        self.sessions.ended.subscribe()
    }
}

/// Whether a request of a session has the right CSRF header, or needs none.
pub(super) fn has_csrf(session: &ActiveSession, method: &Method, headers: &HeaderMap) -> bool {
    if matches!(*method, Method::GET | Method::HEAD) {
        return true;
    }
    knows_csrf(session, headers)
}

/// Whether a request has the CSRF header of its session.
pub(super) fn knows_csrf(session: &ActiveSession, headers: &HeaderMap) -> bool {
    let given = headers.get(CSRF).map_or(&b""[..], HeaderValue::as_bytes);
    given.ct_eq(session.csrf.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use segue_core::access::{Principal, Rights};

    use super::*;

    fn check(token: &str) -> (watch::Sender<Arc<Authenticator>>, CredentialCheck) {
        let sender = watch::Sender::new(Arc::new(Authenticator::of(token)));
        let sessions = Arc::new(BrowserSessions::new(1));
        let check = CredentialCheck { authenticator: sender.subscribe(), sessions };
        (sender, check)
    }

    fn with_code(code: &str) -> SignIn {
        SignIn { token: None, code: Some(code.into()) }
    }

    /// A sign-in link works once, and not after its time; its session ends with the administrator's token.
    #[tokio::test]
    async fn a_code_works_once_and_in_time() {
        let (sender, check) = check("root");
        let limits = Limits { served_code_ms: 100, ..Limits::default() };
        let code = check.sessions.new_code(&limits, 1_000);
        let sign_in = |code: String, now| {
            let (check, limits) = (check.clone(), limits.clone());
            async move { check.sign_in(&with_code(&code), &limits, now, false).await.map(|o| o.cookie) }
        };
        let cookie = sign_in(code.clone(), 1_099).await.unwrap().unwrap();
        assert_eq!(sign_in(code, 1_099).await, Err(AuthError::Code));
        let late = check.sessions.new_code(&limits, 1_000);
        assert_eq!(sign_in(late, 1_100).await, Err(AuthError::Code));
        let cookie = cookie.split(';').next().unwrap().parse().unwrap();
        let headers = HeaderMap::from_iter([(header::COOKIE, cookie)]);
        let who = check.authenticate(&headers, 2_000).await.unwrap();
        assert_eq!(who.authenticated.expires_ms, Some(1_099 + limits.served_session_ms));
        sender.send_replace(Arc::new(Authenticator::of("another")));
        assert_eq!(check.authenticate(&headers, 2_000).await.unwrap_err(), AuthError::Ended);
        // It stays ended when the token comes back.
        sender.send_replace(Arc::new(Authenticator::of("root")));
        assert_eq!(check.authenticate(&headers, 2_000).await.unwrap_err(), AuthError::Ended);
    }

    /// A principal that opens many sessions ends its own, and not those of others, although each of its
    /// tokens is another one. A session whose token has expired does not count.
    #[test]
    fn too_many_sessions_end_those_of_who_has_the_most() {
        let sessions = BrowserSessions::new(1);
        let limits = Limits { served_sessions_max: 3, ..Limits::default() };
        let open_until = |who: &str, now: u64, expires_ms| {
            let who = Principal::new(who, Rights::NONE);
            let authenticated = Authenticated { who, expires_ms: Some(expires_ms) };
            let credential = SessionCredential::Token(now.to_string().into());
            sessions.open(credential, &authenticated, &limits, now).1.key
        };
        let open = |who: &str, now| open_until(who, now, 100);
        open_until("bob", 0, 2);
        open_until("bob", 0, 2);
        let ada = open("ada", 1);
        let eve: Vec<_> = (2..6).map(|now| open("eve", now)).collect();
        let table = sessions.table.lock();
        assert!(table.sessions.contains_key(&ada));
        let left: Vec<bool> = eve.iter().map(|key| table.sessions.contains_key(key)).collect();
        assert_eq!(left, [false, false, true, true]);
    }
}
