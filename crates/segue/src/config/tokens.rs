//! Tokens of principals, which the configuration holds as hashes.

use std::sync::Arc;

use segue_core::access::Principal;

/// A token, by its hash, and the principal that it stands for.
#[derive(Clone, Debug)]
pub struct PrincipalToken {
    /// SHA-256 in lower-case hex.
    pub hash: Arc<str>,
    /// The principal.
    pub principal: Principal,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Whether a text is a SHA-256 in hex.
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The shortest token that is accepted: a shorter one could be guessed.
pub const TOKEN_CHARS_MIN: usize = 32;

/// The message about a token that is too short, and its help.
pub const TOO_SHORT: (&str, &str) = (
    "the token is too short: 32 characters are the least",
    "`openssl rand -hex 32` makes one; without `server.token`, `segue serve` makes one up and shows it once",
);
