//! The token: who comes with it, and what they may do.
//!
//! One is made up at the first start, shown once, and kept as a hash only, so that whoever reads the
//! folder cannot use it. A configured one takes its place.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use segue_core::tool::hex_digest;
use subtle::ConstantTimeEq as _;

/// The file in the data folder that holds the hash.
const FILE: &str = "server-token";

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing is needed: what is shown is the same everywhere.
    Anybody,
    /// Look at compositions, tools, templates and runs.
    Look,
    /// Begin runs and act on them.
    Run,
    /// Change what is kept: templates.
    Change,
    /// Look after the server.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: &'static [Right] =
        &[Right::Anybody, Right::Look, Right::Run, Right::Change, Right::Admin];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Anybody => "anybody",
            Right::Look => "look",
            Right::Run => "run",
            Right::Change => "change",
            Right::Admin => "admin",
        }
    }
}

/// Somebody who came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Whose word it is, in journals and in what is said of requests.
    pub name: Arc<str>,
    /// What they may do.
    pub rights: &'static [Right],
}

impl Principal {
    /// Whether they may do this.
    pub fn may(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    /// Somebody of whom nothing is known.
    pub fn stranger() -> Principal {
        Principal { name: "anybody".into(), rights: &[Right::Anybody] }
    }
}

/// Who is let in.
#[derive(Clone)]
pub enum Keyring {
    /// Whoever comes; for this machine only.
    Everybody,
    /// Whoever brings the token of this hash.
    Token(Arc<str>),
}

impl Keyring {
    /// Whoever brings this token.
    pub fn of(token: &str) -> Keyring {
        Keyring::Token(hex_digest(token.as_bytes()).into())
    }

    /// Whoever brings the token whose hash is kept in a folder. Where there is none, or another is
    /// wanted, one is made up, which is told here and never again.
    pub fn kept(folder: &Path, is_new: bool) -> std::io::Result<(Keyring, Option<String>)> {
        let file = folder.join(FILE);
        let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_new
            && let Ok(text) = std::fs::read_to_string(&file)
            && is_hash(text.trim())
        {
            return Ok((Keyring::Token(text.trim().into()), None));
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

    /// Who comes with these headers, if they are let in.
    pub fn who(&self, headers: &HeaderMap) -> Option<Principal> {
        let known = Principal { name: "the token".into(), rights: Right::ALL };
        let hash = match self {
            Keyring::Everybody => {
                return Some(Principal { name: "this machine".into(), ..known });
            }
            Keyring::Token(hash) => hash,
        };
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, given) = given.split_once(' ')?;
        let given = hex_digest(given.trim().as_bytes());
        let is_same: bool = given.as_bytes().ct_eq(hash.as_bytes()).into();
        (scheme.eq_ignore_ascii_case("bearer") && is_same).then_some(known)
    }
}

/// 244 random bits.
fn made_up() -> String {
    let part = || uuid::Uuid::new_v4().simple().to_string();
    format!("segue_{}{}", part(), part())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[test]
    fn a_token_is_told_once_and_kept_as_a_hash() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, told) = Keyring::kept(folder.path(), false).unwrap();
        let token = told.unwrap();
        assert!(first.who(&bearer(&token)).is_some());
        let kept = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(!kept.contains(&token[6..20]));
        let (again, told) = Keyring::kept(folder.path(), false).unwrap();
        assert!(told.is_none() && again.who(&bearer(&token)).is_some());
        // Whoever lost it asks for another one, and the old one is worth nothing.
        let (another, told) = Keyring::kept(folder.path(), true).unwrap();
        assert!(another.who(&bearer(&token)).is_none());
        assert!(another.who(&bearer(&told.unwrap())).is_some());
    }

    #[test]
    fn a_near_miss_and_a_damaged_file_let_nobody_in() {
        let keyring = Keyring::of("open-sesame");
        for wrong in ["open-sesam", "open-sesame2", "", "OPEN-SESAME"] {
            assert!(keyring.who(&bearer(wrong)).is_none(), "{wrong}");
        }
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join(FILE), "").unwrap();
        let (keyring, told) = Keyring::kept(folder.path(), false).unwrap();
        assert!(told.is_some() && keyring.who(&bearer("")).is_none());
    }
}
