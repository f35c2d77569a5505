//! What of a configuration is a secret although it is written there: the values of variables and headers
//! whose names say so.

use segue_runtime::tools::mcp::{Reach, ServerConfig};

/// Words in the name of a variable or header whose value is a secret.
const SECRET: &[&str] =
    &["key", "token", "secret", "password", "passwd", "auth", "credential", "cookie", "pat"];

/// Whether a variable or header of this name holds a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().any(|word| {
        SECRET.iter().any(|secret| word == *secret || (secret.len() > 3 && word.contains(secret)))
    }) || name.ends_with("apikey")
}

/// The secrets that a server is given. Of `Bearer abc` the second word is one too: servers tell it
/// without the first.
pub(super) fn of_server(server: &ServerConfig) -> impl Iterator<Item = String> {
    let given = match &server.reach {
        Reach::Stdio(stdio) => Some(&stdio.env),
        Reach::Http(http) => Some(&http.headers),
        Reach::Local(_) => None,
    };
    let given = given.into_iter().flatten().filter(|(name, _)| is_secret_name(name));
    given.flat_map(|(_, value)| {
        let credential = value.split_once(' ').map(|(_, rest)| rest.trim().to_owned());
        std::iter::once(value.clone()).chain(credential)
    })
}
