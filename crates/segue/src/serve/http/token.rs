//! Who comes with which token.
//!
//! The administrator's is made up at the first start, shown once, and kept as a hash only, so that
//! whoever reads the folder cannot use it. A configured one takes its place. The tokens of others are
//! hashes in the configuration. Tokens that an issuer has signed are looked at in [`super::oidc`].

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use segue_core::access::{Principal, THIS_MACHINE, TOKEN_BEARER, is_unexpired};
use segue_core::tool::hex_digest;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

pub use crate::config::tokens::{PrincipalToken as Key, TOKEN_CHARS_MIN, TOO_SHORT, is_hash};

use super::oidc::{Issuer, looks_signed};
use super::pass::Pass;

/// The file in the data folder that holds the hash.
const FILE: &str = "server-token";

impl Key {
    /// A token of the administrator.
    fn of_administrator(hash: impl Into<Arc<str>>) -> Key {
        let principal = Principal::administrator(TOKEN_BEARER);
        Key { hash: hash.into(), principal, expires_ms: None }
    }
}

/// Who is let in.
#[derive(Clone)]
pub struct Keyring {
    /// Whether whoever comes is let in; for this machine only.
    is_open: bool,
    keys: Vec<Key>,
    /// Who else says who somebody is.
    issuer: Option<Arc<Issuer>>,
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no token.
    Absent,
    /// Nobody comes with this one.
    Unknown,
    /// It was good once.
    Expired,
    /// An issuer's token is not what it should be.
    Unfit(String),
    /// It is a good token, and what it stands for comes to nothing here.
    Insufficient(String),
    /// The issuer's keys cannot be had now, so nobody can tell.
    Undecided(String),
}

impl Keyring {
    /// Whoever comes; for this machine only.
    pub fn everybody() -> Keyring {
        Keyring { is_open: true, keys: Vec::new(), issuer: None }
    }

    /// Whoever brings this token.
    pub fn of(token: &str) -> Keyring {
        Keyring::of_hash(hex_digest(token.as_bytes()))
    }

    fn of_hash(hash: impl Into<Arc<str>>) -> Keyring {
        Keyring { is_open: false, keys: vec![Key::of_administrator(hash)], issuer: None }
    }

    /// Whoever brings the token whose hash is kept in a folder. Where there is none, or another is
    /// wanted, one is made up, which is told here and never again.
    pub fn kept(folder: &Path, is_new: bool) -> std::io::Result<(Keyring, Option<String>)> {
        let file = folder.join(FILE);
        if !is_new
            && let Ok(text) = std::fs::read_to_string(&file)
            && is_hash(text.trim())
        {
            return Ok((Keyring::of_hash(text.trim()), None));
        }
        let token = made_up();
        std::fs::create_dir_all(folder)?;
        let beside = folder.join(format!("{FILE}.{}.new", std::process::id()));
        std::fs::write(&beside, format!("{}\n", hex_digest(token.as_bytes())))?;
        std::fs::rename(&beside, &file)?;
        Ok((Keyring::of(&token), Some(token)))
    }

    /// Whoever brings a token that is made up for this time only.
    pub fn for_this_time() -> (Keyring, String) {
        let token = made_up();
        (Keyring::of(&token), token)
    }

    /// These, too.
    #[must_use]
    pub fn with(mut self, keys: impl IntoIterator<Item = Key>) -> Keyring {
        self.keys.extend(keys);
        self
    }

    /// Two that would come with the same token, so that nobody could tell which of them came.
    pub fn clash(&self) -> Option<(&Principal, &Principal)> {
        self.keys.iter().enumerate().find_map(|(at, key)| {
            let before = self.keys[..at].iter().find(|before| before.hash == key.hash)?;
            Some((&before.principal, &key.principal))
        })
    }

    /// Whoever an issuer speaks for, too.
    #[must_use]
    pub fn with_issuer(mut self, issuer: Option<Arc<Issuer>>) -> Keyring {
        self.issuer = issuer;
        self
    }

    /// Who else says who somebody is.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.issuer.as_ref()
    }

    /// Who comes with these headers at this moment.
    pub async fn who(&self, headers: &HeaderMap, now_ms: u64) -> Result<Pass, Refusal> {
        if self.is_open {
            return Ok(Pass::lasting(Principal::administrator(THIS_MACHINE)));
        }
        let token = bearer(headers)?;
        match &self.issuer {
            Some(issuer) if looks_signed(token) => issuer.who(token).await,
            _ => self.known(token, now_ms),
        }
    }

    /// Who comes with a token of ours. Every key is looked at, whichever fits, so that how long it takes
    /// says nothing.
    fn known(&self, token: &str, now_ms: u64) -> Result<Pass, Refusal> {
        let given = hex_digest(token.as_bytes());
        let mut found = u32::MAX;
        for (at, key) in (0u32..).zip(&self.keys) {
            let is_this: Choice = given.as_bytes().ct_eq(key.hash.as_bytes());
            found.conditional_assign(&at, is_this);
        }
        let key = usize::try_from(found).ok().and_then(|at| self.keys.get(at));
        let key = key.ok_or(Refusal::Unknown)?;
        if is_unexpired(key.expires_ms, now_ms) {
            Ok(Pass { who: key.principal.clone(), expires_ms: key.expires_ms })
        } else {
            Err(Refusal::Expired)
        }
    }
}

/// The one token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, more) = (given.next().ok_or(Refusal::Absent)?, given.next());
    let (scheme, token) = first
        .to_str()
        .ok()
        .filter(|_| more.is_none())
        .and_then(|text| text.split_once(' '))
        .ok_or(Refusal::Unknown)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refusal::Unknown) }
}

/// A new token: 244 random bits.
pub fn made_up() -> String {
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

    fn comes(keyring: &Keyring, token: &str) -> bool {
        keyring.known(bearer(&headers(token)).unwrap(), 0).is_ok()
    }

    #[test]
    fn a_token_is_told_once_and_kept_as_a_hash() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, told) = Keyring::kept(folder.path(), false).unwrap();
        let token = told.unwrap();
        assert!(comes(&first, &token));
        let kept = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(!kept.contains(&token[6..20]));
        let (again, told) = Keyring::kept(folder.path(), false).unwrap();
        assert!(told.is_none() && comes(&again, &token));
        // Whoever lost it asks for another one, and the old one is worth nothing.
        let (another, told) = Keyring::kept(folder.path(), true).unwrap();
        assert!(!comes(&another, &token));
        assert!(comes(&another, &told.unwrap()));
    }

    #[test]
    fn a_near_miss_and_a_damaged_file_let_nobody_in() {
        let keyring = Keyring::of("open-sesame");
        for wrong in ["open-sesam", "open-sesame2", "", "OPEN-SESAME"] {
            assert!(!comes(&keyring, wrong), "{wrong}");
        }
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join(FILE), "").unwrap();
        let (keyring, told) = Keyring::kept(folder.path(), false).unwrap();
        assert!(told.is_some() && !comes(&keyring, ""));
    }

    /// D3: each token is one principal's, until it expires; two tokens at once are none.
    #[test]
    fn each_token_is_one_principal_s() {
        let key = |name: &str, expires_ms| Key {
            hash: hex_digest(name.as_bytes()).into(),
            principal: Principal::new(name, [Right::Read].into_iter().collect()),
            expires_ms,
        };
        let keyring = Keyring::of("root").with([key("ada", None), key("bob", Some(1_000))]);
        let who = |token, now| keyring.known(token, now);
        assert_eq!(&*who("ada", 5_000).unwrap().who.name, "ada");
        let bob = who("bob", 999).unwrap();
        assert_eq!((&*bob.who.name, bob.expires_ms), ("bob", Some(1_000)));
        assert_eq!(who("bob", 1_000), Err(Refusal::Expired));
        assert_eq!(who("eve", 0), Err(Refusal::Unknown));
        assert_eq!(who("root", 0).unwrap().who.rights, Rights::ALL);
        let mut two = headers("ada");
        two.append(header::AUTHORIZATION, "Bearer root".parse().unwrap());
        assert_eq!(bearer(&two), Err(Refusal::Unknown));
        assert_eq!(bearer(&HeaderMap::new()), Err(Refusal::Absent));
    }
}
