//! `server.principals` and `server.oidc`: accepted tokens beside that of the administrator.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::access::{Grant, Principal, Right, Rights, STDIO};
use segue_core::document::{Node, NodeKind};
use segue_core::tool::hex_digest;
use segue_core::view::parse_rfc3339;

use super::OidcConfig;
use super::read::ConfigReader;
use super::tokens::{PrincipalToken, TOKEN_CHARS_MIN, TOO_SHORT, is_hash};

const PRINCIPAL: &[&str] = &["token", "rights", "toolset", "expires"];

const OIDC: &[&str] = &["issuer", "audience", "scopes", "client_id", "client_secret"];

/// The maximum length of a principal's name.
const NAME_CHARS_MAX: usize = 64;

/// The prefix of a hash.
const SHA256: &str = "sha256:";

impl ConfigReader<'_> {
    /// The principals. `token` is that of the administrator, which no principal may share.
    pub(super) fn principals(&mut self, node: &Node, token: Option<&str>) -> Vec<PrincipalToken> {
        let administrator = token.map(|token| hex_digest(token.as_bytes()));
        if !matches!(node.kind, NodeKind::Object(_)) {
            let found = node.kind_name();
            self.error(node.span, format!("`principals` must be an object, found {found}"));
        }
        let mut keys: Vec<PrincipalToken> = Vec::new();
        for member in node.members() {
            if !is_name(&member.key) {
                let message = "a principal's name has lower-case letters, digits, `-`, `_` and `.`";
                self.error(member.key_span, message);
            } else if *member.key == *STDIO {
                let message = "`stdio` is reserved for the host that starts `segue mcp`";
                self.error(member.key_span, message);
            }
            let Some(key) = self.principal(&member.key, &member.value) else { continue };
            if let Some(other) = keys.iter().find(|other| other.hash == key.hash) {
                let message = format!("`{}` has the same token", other.principal.name);
                self.error(member.value.span, message);
            }
            if administrator.as_deref() == Some(&*key.hash) {
                self.error(member.value.span, "the administrator has the same token");
            }
            keys.push(key);
        }
        keys
    }

    fn principal(&mut self, name: &Arc<str>, node: &Node) -> Option<PrincipalToken> {
        if !self.keys(node, PRINCIPAL, "a principal") {
            return None;
        }
        let hash = match node.get("token") {
            Some(token) => self.token_hash(token),
            None => {
                let message =
                    format!("`{name}` needs a `token`: `segue serve token {name}` generates one");
                self.error(node.span, message);
                None
            }
        };
        let expires_ms = node.get("expires").and_then(|expires| {
            let text = self.text(expires, "`expires`")?;
            let time = parse_rfc3339(&text);
            if time.is_none() {
                let message =
                    format!("`{text}` is not a time; write one such as `2027-01-31T12:00:00Z`");
                self.error(expires.span, message);
            }
            time
        });
        let Grant { rights, toolset } = self.grant(node)?;
        let principal = Principal { toolset, ..Principal::new(name.clone(), rights) };
        Some(PrincipalToken { hash: hash?, principal, expires_ms })
    }

    /// The hash of a token. A plain token is refused: every reader of the file could use it.
    fn token_hash(&mut self, node: &Node) -> Option<Arc<str>> {
        let text = self.text(node, "`token`")?;
        let is_from_env = node.as_str().is_some_and(|written| written.contains("${"));
        match text.strip_prefix(SHA256) {
            Some(hash) if is_hash(hash) => Some(hash.into()),
            None if is_from_env && text.chars().count() < TOKEN_CHARS_MIN => {
                self.error(
                    node.span,
                    format!("{}; {}", TOO_SHORT.0, "`segue serve token` generates one"),
                );
                None
            }
            None if is_from_env => Some(hex_digest(text.as_bytes()).into()),
            _ => {
                let message = "`token` is `sha256:` and the hash that `segue serve token` prints, or \
                               comes from the environment: `${VARIABLE}`";
                self.error(node.span, message);
                None
            }
        }
    }

    /// `rights` and `toolset`.
    fn grant(&mut self, node: &Node) -> Option<Grant> {
        let known = || Right::GRANTABLE.iter().map(|right| right.as_str());
        let words = node.get("rights").map_or_else(Vec::new, |n| self.name_list(n, "`rights`"));
        let mut rights = Vec::new();
        for word in &words {
            match Right::parse(word) {
                Some(right) => rights.push(right),
                None => {
                    let known = known().collect::<Vec<_>>().join("`, `");
                    let span = node.get("rights").map_or(node.span, |n| n.span);
                    self.error(
                        span,
                        format!("there is no right `{word}`; the rights are `{known}`"),
                    );
                }
            }
        }
        let toolset = node.get("toolset").and_then(|toolset| {
            let name: Arc<str> = self.text(toolset, "`toolset`")?.into();
            self.toolset_refs.push((name.clone(), toolset.span));
            Some(name)
        });
        if words.is_empty() {
            let known = known().collect::<Vec<_>>().join("`, `");
            self.error(node.span, format!("`rights` is required: some of `{known}`"));
            return None;
        }
        let rights: Rights = rights.into_iter().collect();
        Some(Grant { rights, toolset })
    }

    pub(super) fn oidc(&mut self, node: &Node) -> Option<OidcConfig> {
        if !self.keys(node, OIDC, "`oidc`") {
            return None;
        }
        let issuer = node.get("issuer").and_then(|issuer| self.text(issuer, "`issuer`"));
        let audience = node.get("audience").map_or_else(Vec::new, |n| self.texts(n, "`audience`"));
        let mut scopes = BTreeMap::new();
        for member in node.get("scopes").map_or(&[][..], Node::members) {
            if self.keys(&member.value, &["rights", "toolset"], "a scope")
                && let Some(grant) = self.grant(&member.value)
            {
                scopes.insert(member.key.clone(), grant);
            }
        }
        let mut client = |name: &str| {
            let given = node.get(name)?;
            let text = self.text(given, &format!("`{name}`"))?;
            if text.trim().is_empty() {
                self.error(given.span, format!("`{name}` is empty"));
            }
            Some(text)
        };
        let (client_id, client_secret) = (client("client_id"), client("client_secret"));
        if client_secret.is_some() && client_id.is_none() {
            self.error(node.span, "`client_secret` needs a `client_id`");
        }
        let Some(issuer) = issuer else {
            self.error(node.span, "`oidc` needs an `issuer`");
            return None;
        };
        if !is_secure(&issuer) {
            let message =
                "`issuer` must begin with `https://`; `http://` is allowed on this machine only";
            self.error(node.span, message);
        }
        if audience.is_empty() || audience.iter().any(String::is_empty) {
            let message = "`oidc` needs an `audience`: without it, tokens for other services would be accepted";
            self.error(node.span, message);
        }
        if scopes.is_empty() {
            self.error(node.span, "`oidc` needs `scopes`, each with its `rights`");
        }
        Some(OidcConfig { issuer, audience, scopes, client_id, client_secret })
    }
}

/// Whether a connection to this URL is encrypted or stays on this machine.
pub(crate) fn is_secure(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => authority.split(':').next().unwrap_or(""),
    };
    let is_plain = !authority.is_empty() && !authority.contains('@') && !host.is_empty();
    let is_here = matches!(host, "127.0.0.1" | "localhost" | "::1");
    is_plain && (scheme == "https" || (scheme == "http" && is_here))
}

/// Lower-case letters, digits, `-`, `_` and `.`: our own names have blanks.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_trusted_without_encryption() {
        for secure in [
            "https://id.example.org",
            "https://id.example.org:8443/a",
            "http://127.0.0.1:9/x",
            "http://[::1]:9",
            "http://localhost",
        ] {
            assert!(is_secure(secure), "{secure}");
        }
        for not in [
            "http://id.example.org",
            "http://127.0.0.1.evil.example",
            "http://127.0.0.1@evil.example",
            "https://a@b",
            "https://",
            "file:///etc/passwd",
            "ftp://localhost",
            "id.example.org",
        ] {
            assert!(!is_secure(not), "{not}");
        }
    }
}
