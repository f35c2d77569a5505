//! Tokens and the principals that they stand for.
//!
//! The administrator's token is generated at the first start, shown once, and stored as a hash only, so
//! that the data folder does not give it away. A configured one replaces it. The tokens of other
//! principals are hashes in the configuration. [`super::oidc`] verifies tokens that an issuer has signed.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use segue_core::access::{Principal, THIS_MACHINE, TOKEN_BEARER, is_unexpired};
use segue_core::tool::hex_digest;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::oidc::{Issuer, looks_signed};
use super::session::SessionCredential;
use super::stream_auth::Authenticated;
use crate::config::tokens::{PrincipalToken, is_hash};

/// The file in the data folder that holds the hash.
const FILE: &str = "server-token";

/// A token of the administrator.
fn administrator(hash: impl Into<Arc<str>>) -> PrincipalToken {
    let principal = Principal::administrator(TOKEN_BEARER);
    PrincipalToken { hash: hash.into(), principal, expires_ms: None }
}

/// Finds the principal of a request by its token.
#[derive(Clone)]
pub struct Authenticator {
    /// Whether no token is needed; for this machine only.
    is_open: bool,
    tokens: Vec<PrincipalToken>,
    /// The issuer of signed tokens.
    issuer: Option<Arc<Issuer>>,
}

/// Why a credential is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request has no token.
    #[error("sign in with a token or with a sign-in link")]
    Absent,
    /// The token is of no principal.
    #[error("this token is unknown")]
    Unknown,
    /// The token has expired.
    #[error("this token has expired")]
    Expired,
    /// The token of an issuer is invalid.
    #[error("this token cannot be used: {0}")]
    Invalid(String),
    /// The token is valid, and its scopes give no right here.
    #[error("this token has no right here: {0}")]
    Insufficient(String),
    /// The keys of the issuer cannot be fetched now, so the token cannot be verified.
    #[error("{0}")]
    Unavailable(String),
    /// The session has ended: it expired, was signed out, or its token is no longer accepted.
    #[error("this session has ended: sign in again")]
    Ended,
    /// The code of a sign-in link is unknown, was used, or has expired.
    #[error("this sign-in link was used before or has expired")]
    Code,
    /// Too many sign-ins failed.
    #[error("too many sign-ins failed; try again in a minute")]
    TooOften,
}

impl Authenticator {
    /// Accepts every request; for this machine only.
    pub fn everybody() -> Authenticator {
        Authenticator { is_open: true, tokens: Vec::new(), issuer: None }
    }

    /// Accepts this token as the administrator's.
    pub fn of(token: &str) -> Authenticator {
        Authenticator::of_hash(hex_digest(token.as_bytes()))
    }

    fn of_hash(hash: impl Into<Arc<str>>) -> Authenticator {
        Authenticator { is_open: false, tokens: vec![administrator(hash)], issuer: None }
    }

    /// Accepts the token whose hash is stored in a folder. Where there is none, or `is_new`, it generates
    /// one, which is returned here and never again.
    pub fn stored(folder: &Path, is_new: bool) -> std::io::Result<(Authenticator, Option<String>)> {
        let file = folder.join(FILE);
        if !is_new
            && let Ok(text) = std::fs::read_to_string(&file)
            && is_hash(text.trim())
        {
            return Ok((Authenticator::of_hash(text.trim()), None));
        }
        let token = random_token();
        std::fs::create_dir_all(folder)?;
        let beside = folder.join(format!("{FILE}.{}.new", std::process::id()));
        std::fs::write(&beside, format!("{}\n", hex_digest(token.as_bytes())))?;
        std::fs::rename(&beside, &file)?;
        Ok((Authenticator::of(&token), Some(token)))
    }

    /// Accepts a token that is generated for this process only.
    pub fn for_this_process() -> (Authenticator, String) {
        let token = random_token();
        (Authenticator::of(&token), token)
    }

    /// Accepts these tokens, too.
    #[must_use]
    pub fn with(mut self, tokens: impl IntoIterator<Item = PrincipalToken>) -> Authenticator {
        self.tokens.extend(tokens);
        self
    }

    /// Two principals with the same token, which could not be told apart.
    pub fn clash(&self) -> Option<(&Principal, &Principal)> {
        self.tokens.iter().enumerate().find_map(|(at, key)| {
            let before = self.tokens[..at].iter().find(|before| before.hash == key.hash)?;
            Some((&before.principal, &key.principal))
        })
    }

    /// Accepts the tokens of an issuer, too.
    #[must_use]
    pub fn with_issuer(mut self, issuer: Option<Arc<Issuer>>) -> Authenticator {
        self.issuer = issuer;
        self
    }

    /// The issuer of signed tokens.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    /// The principal of these headers at this moment.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        now_ms: u64,
    ) -> Result<Authenticated, AuthError> {
        if self.is_open {
            return Ok(Authenticated::lasting(Principal::administrator(THIS_MACHINE)));
        }
        let token = bearer(headers)?;
        match &self.issuer {
            Some(issuer) if looks_signed(token) => issuer.authenticate(token).await,
            _ => self.known(token, now_ms),
        }
    }

    /// Whether no token is needed.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The hash of the administrator's token.
    pub(super) fn administrator_hash(&self) -> Option<&Arc<str>> {
        self.tokens.first().map(|token| &token.hash)
    }

    /// What a session stands for that this token opens.
    pub(super) async fn credential(
        &self,
        token: &str,
        now_ms: u64,
    ) -> Result<SessionCredential, AuthError> {
        match &self.issuer {
            Some(issuer) if looks_signed(token) => {
                let authenticated = issuer.authenticate(token).await?;
                Ok(SessionCredential::Signed(authenticated, issuer.config().clone()))
            }
            _ => {
                self.known(token, now_ms)?;
                Ok(SessionCredential::Token(hex_digest(token.as_bytes()).into()))
            }
        }
    }

    /// The principal of a token of ours.
    fn known(&self, token: &str, now_ms: u64) -> Result<Authenticated, AuthError> {
        self.known_hash(&hex_digest(token.as_bytes()), now_ms)
    }

    /// The principal of the token with this hash. Every hash is compared, whichever fits, so that the time
    /// it takes reveals nothing.
    pub(super) fn known_hash(&self, given: &str, now_ms: u64) -> Result<Authenticated, AuthError> {
        let mut found = u32::MAX;
        for (at, key) in (0u32..).zip(&self.tokens) {
            let is_this: Choice = given.as_bytes().ct_eq(key.hash.as_bytes());
            found.conditional_assign(&at, is_this);
        }
        let key = usize::try_from(found).ok().and_then(|at| self.tokens.get(at));
        let key = key.ok_or(AuthError::Unknown)?;
        if is_unexpired(key.expires_ms, now_ms) {
            Ok(Authenticated { who: key.principal.clone(), expires_ms: key.expires_ms })
        } else {
            Err(AuthError::Expired)
        }
    }
}

/// The token of a request, which may have only one.
fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, more) = (given.next().ok_or(AuthError::Absent)?, given.next());
    let (scheme, token) = first
        .to_str()
        .ok()
        .filter(|_| more.is_none())
        .and_then(|text| text.split_once(' '))
        .ok_or(AuthError::Unknown)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(AuthError::Unknown) }
}

/// A new token: 244 random bits.
pub fn random_token() -> String {
    let part = || uuid::Uuid::new_v4().simple().to_string();
    format!("segue_{}{}", part(), part())
}

#[cfg(test)]
mod tests {
    use segue_core::access::{Right, Rights};

    use super::*;

    fn headers(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    fn accepts(authenticator: &Authenticator, token: &str) -> bool {
        authenticator.known(bearer(&headers(token)).unwrap(), 0).is_ok()
    }

    #[test]
    fn a_token_is_shown_once_and_stored_as_a_hash() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, shown) = Authenticator::stored(folder.path(), false).unwrap();
        let token = shown.unwrap();
        assert!(accepts(&first, &token));
        let stored = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(!stored.contains(&token[6..20]));
        let (again, shown) = Authenticator::stored(folder.path(), false).unwrap();
        assert!(shown.is_none() && accepts(&again, &token));
        // A new token revokes the old one.
        let (another, shown) = Authenticator::stored(folder.path(), true).unwrap();
        assert!(!accepts(&another, &token));
        assert!(accepts(&another, &shown.unwrap()));
    }

    #[test]
    fn a_near_miss_and_a_damaged_file_are_refused() {
        let authenticator = Authenticator::of("open-sesame");
        for wrong in ["open-sesam", "open-sesame2", "", "OPEN-SESAME"] {
            assert!(!accepts(&authenticator, wrong), "{wrong}");
        }
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join(FILE), "").unwrap();
        let (authenticator, shown) = Authenticator::stored(folder.path(), false).unwrap();
        assert!(shown.is_some() && !accepts(&authenticator, ""));
    }

    /// D3: each token is one principal's, until it expires; two tokens at once are none.
    #[test]
    fn each_token_is_one_principal_s() {
        let key = |name: &str, expires_ms| PrincipalToken {
            hash: hex_digest(name.as_bytes()).into(),
            principal: Principal::new(name, [Right::Read].into_iter().collect()),
            expires_ms,
        };
        let authenticator =
            Authenticator::of("root").with([key("ada", None), key("bob", Some(1_000))]);
        let who = |token, now| authenticator.known(token, now);
        assert_eq!(&*who("ada", 5_000).unwrap().who.name, "ada");
        let bob = who("bob", 999).unwrap();
        assert_eq!((&*bob.who.name, bob.expires_ms), ("bob", Some(1_000)));
        assert_eq!(who("bob", 1_000), Err(AuthError::Expired));
        assert_eq!(who("eve", 0), Err(AuthError::Unknown));
        assert_eq!(who("root", 0).unwrap().who.rights, Rights::ALL);
        let mut two = headers("ada");
        two.append(header::AUTHORIZATION, "Bearer root".parse().unwrap());
        assert_eq!(bearer(&two), Err(AuthError::Unknown));
        assert_eq!(bearer(&HeaderMap::new()), Err(AuthError::Absent));
    }
}
