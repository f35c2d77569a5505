//! A text of a configuration → the parts that are secrets.
//!
//! A name marks a secret (`GITHUB_TOKEN=…`, `Authorization: …`, `?api_key=…`, `{"token": "…"}`), or its
//! look does: a scheme before it, the token prefix of a known service, a password in a URL, or a random
//! run of letters and digits. In doubt a text counts as a secret: a false alarm costs the user a variable
//! to set, a miss leaks the secret.

use std::ops::Range;

use super::is_secret_name;

/// A part of a text that is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretPart {
    /// Its range.
    pub(crate) range: Range<usize>,
    /// Its name in the text, if it has one.
    pub(crate) name: Option<String>,
}

/// Authentication schemes, which stand before a credential.
const SCHEMES: &[&str] = &["bearer", "basic", "token", "apikey", "digest", "bot"];

/// Token prefixes that no ordinary word has.
const BEGINNINGS: &[&str] = &[
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "ya29.",
    "eyJ",
    "tvly-",
    "ntn_",
    "secret_",
    "dop_v1_",
    "figd_",
    "lin_api_",
    "ATATT",
    "whsec_",
];

/// Token prefixes that ordinary words have, too.
const PERHAPS: &[&str] = &["npm_", "hf_", "gsk_", "r8_", "pypi-", "SG.", "fc-"];

/// The length from which letters and digits in a row count as random.
const RANDOM_CHARS_MIN: usize = 20;

/// The secret parts of a text, which is the value of `name`.
pub(crate) fn secret_parts(name: &str, text: &str) -> Vec<SecretPart> {
    if text.trim().is_empty() || is_plain(name, text) {
        return Vec::new();
    }
    if is_secret_name(name) {
        return vec![SecretPart { range: after_scheme(text)..text.len(), name: None }];
    }
    if let Some((label, at)) = label(name, text) {
        if is_secret_name(label) && !is_plain(label, &text[at..]) {
            let at = at + after_scheme(&text[at..]);
            let part = SecretPart { range: at..text.len(), name: Some(label.to_owned()) };
            return if at < text.len() { vec![part] } else { Vec::new() };
        }
        if text[..at].ends_with('=') {
            let inner = secret_parts(label, &text[at..]).into_iter();
            return inner.map(|part| shifted(part, at, label)).collect();
        }
    }
    unlabelled_parts(text)
}

/// The secret parts of a text without a name.
pub(super) fn unlabelled_parts(text: &str) -> Vec<SecretPart> {
    let mut parts = Vec::new();
    parts.extend(password(text));
    WordScanner { text, is_address: text.contains("://") }.scan(&mut parts);
    parts
}

/// Whether a text ends with the name of a secret, so that the following text is one.
pub(crate) fn ends_with_name(text: &str) -> bool {
    let text = text.trim_end_matches(['"', '\'', '\\', ' ']);
    let Some(text) = text.strip_suffix(['=', ':']) else { return false };
    let text = text.trim_end_matches(['"', '\'', '\\', ' ']);
    is_secret_name(text.rsplit(|c: char| !is_word(c)).next().unwrap_or(""))
}

fn shifted(part: SecretPart, by: usize, label: &str) -> SecretPart {
    let range = part.range.start + by..part.range.end + by;
    SecretPart { range, name: part.name.or_else(|| Some(label.to_owned())) }
}

/// Whether a value with a secret's name is a setting: a switch, or a number of model tokens.
pub(super) fn is_plain(name: &str, text: &str) -> bool {
    let is_count = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    matches!(text, "true" | "false") || (is_count && name.to_lowercase().contains("tokens"))
}

/// The length of a scheme such as `Bearer `, which stays visible.
fn after_scheme(text: &str) -> usize {
    let start = text.len() - text.trim_start().len();
    match text[start..].split_once(' ') {
        Some((word, rest)) if is_scheme(word) => text.len() - rest.trim_start().len(),
        _ => start,
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.contains(&&*word.to_lowercase())
}

/// The name in a text such as `NAME=value` or `Name: value`, and where the value begins.
fn label<'a>(name: &str, text: &'a str) -> Option<(&'a str, usize)> {
    let end = text.find(|c: char| !is_word(c))?;
    let (label, rest) = text.split_at(end);
    // `-eNAME=value` of container tools is one word.
    let short =
        label.strip_prefix("-e").filter(|name| name.starts_with(|c: char| c.is_uppercase()));
    let label = short.unwrap_or_else(|| label.trim_start_matches('-'));
    if label.is_empty() {
        return None;
    }
    let is_header = matches!(name.trim_start_matches('-'), "header" | "headers" | "H");
    let is_label = match rest.strip_prefix(':') {
        Some(value) => value.starts_with(' ') || (is_header && !value.starts_with("//")),
        None => rest.starts_with('='),
    };
    is_label.then_some((label, end + 1))
}

/// The password of a URL.
fn password(text: &str) -> Option<SecretPart> {
    let start = text.find("://")? + 3;
    let rest = &text[start..];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let login = match authority.rfind('@') {
        Some(end) => &authority[..end],
        // A password with an unescaped `/`.
        None if authority.split_once(':').is_some_and(|(_, port)| !is_port(port)) => {
            &rest[..rest.rfind('@')?]
        }
        None => return None,
    };
    let at = start + login.find(':')? + 1;
    let range = at..start + login.len();
    (!range.is_empty()).then(|| SecretPart { range, name: Some("password".to_owned()) })
}

/// Whether a character is part of a word.
fn is_word(character: char) -> bool {
    character.is_alphanumeric() || "_-.+%~".contains(character)
}

/// Scans a text word by word.
struct WordScanner<'a> {
    text: &'a str,
    is_address: bool,
}

impl WordScanner<'_> {
    fn scan(&self, parts: &mut Vec<SecretPart>) {
        let mut at = 0;
        while let Some(start) = self.text[at..].find(is_word).map(|start| at + start) {
            let rest = &self.text[start..];
            let end = start + rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let is_known =
                |parts: &[SecretPart]| parts.iter().any(|part| part.range.contains(&start));
            at = end;
            if is_known(parts) {
                continue;
            }
            if let Some(part) = self.named(start, end).or_else(|| self.looks(start, end)) {
                at = part.range.end;
                parts.push(part);
            }
        }
        parts.sort_by_key(|part| part.range.start);
    }

    /// The secret that follows a name or a scheme.
    fn named(&self, start: usize, end: usize) -> Option<SecretPart> {
        let (word, after) = (&self.text[start..end], &self.text[end..]);
        if word.eq_ignore_ascii_case("bearer") || word == "Basic" {
            let value = after.strip_prefix(' ')?.trim_start();
            return self.value(value, None);
        }
        let quotes = ['"', '\'', '\\'];
        let after = after.trim_start_matches(quotes);
        let value = after.strip_prefix(['=', ':']).filter(|value| !value.starts_with("//"))?;
        if !is_secret_name(word) || is_plain(word, value) {
            return None;
        }
        let bare = value.trim_start_matches(quotes).trim_start().trim_start_matches(quotes);
        // The version of an image or a package follows a colon, too.
        if after.starts_with(':') && bare.len() == value.len() {
            return None;
        }
        self.value(&bare[after_scheme(bare)..], Some(word))
    }

    /// The value at the start of `rest`.
    fn value(&self, rest: &str, name: Option<&str>) -> Option<SecretPart> {
        // In a list of settings, blanks are part of the values.
        let is_list = self.text.contains(';');
        let is_end = |c: char| (c.is_whitespace() && !is_list) || "&;,\"'#\\}".contains(c);
        let start = self.text.len() - rest.len();
        let end = start + rest.find(is_end).unwrap_or(rest.len());
        (start < end).then(|| SecretPart { range: start..end, name: name.map(ToOwned::to_owned) })
    }

    /// A word that looks like a token.
    fn looks(&self, start: usize, end: usize) -> Option<SecretPart> {
        let word = &self.text[start..end];
        let padding = self.text[end..].len() - self.text[end..].trim_start_matches('=').len();
        let after = &self.text[end + padding..];
        // The name before a value.
        if padding > 0 && after.starts_with(is_word) {
            return None;
        }
        let is_token = begins_like_token(word)
            || (!self.is_path() && !self.is_pin(start, word) && is_random(word))
            || (self.is_address && is_uuid(word));
        is_token.then_some(SecretPart { range: start..end + padding, name: None })
    }

    /// Whether the text is a path or names a package.
    fn is_path(&self) -> bool {
        let is_drive = self.text.get(1..3).is_some_and(|text| text == ":\\" || text == ":/");
        is_drive || self.text.starts_with(['/', '.', '~', '@']) || self.text.starts_with("file:")
    }

    /// Whether a word is the hash that pins a commit or an image.
    fn is_pin(&self, start: usize, word: &str) -> bool {
        self.text[..start].ends_with(['@', '#', ':'])
            && matches!(word.len(), 40 | 64)
            && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

fn begins_like_token(word: &str) -> bool {
    let rest = |beginnings: &[&str]| {
        beginnings.iter().find_map(|start| word.strip_prefix(start)).filter(|rest| !rest.is_empty())
    };
    let is_odd = |rest: &str| rest.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    rest(BEGINNINGS).is_some() || rest(PERHAPS).is_some_and(is_odd)
}

/// Whether a word is a random run of letters and digits.
fn is_random(word: &str) -> bool {
    word.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= RANDOM_CHARS_MIN && digits >= 2 && run.len() - digits >= 2
    })
}

fn is_uuid(word: &str) -> bool {
    uuid::Uuid::try_parse(word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{ends_with_name, secret_parts};

    /// The text with every secret as `*`.
    fn shown(name: &str, text: &str) -> String {
        let mut out = text.to_owned();
        for part in secret_parts(name, text).iter().rev() {
            out.replace_range(part.range.clone(), "*");
        }
        out
    }

    #[test]
    fn secrets_are_seen_wherever_they_stand() {
        for (name, text, without) in [
            ("argument-1", "GITHUB_TOKEN=ghp_realone", "GITHUB_TOKEN=*"),
            ("argument-1", "-eFOO_KEY=abc123", "-eFOO_KEY=*"),
            ("argument-1", "--env=FOO_KEY=a&b;c d", "--env=FOO_KEY=*"),
            ("argument-1", "SECRET=abc", "SECRET=*"),
            ("--header", "Authorization: Bearer eyJhbGciOi.abc.def", "Authorization: Bearer *"),
            ("--header", "X-API-KEY:zzz999", "X-API-KEY:*"),
            ("argument-1", "--header=X-API-KEY:zzz999", "--header=X-API-KEY:*"),
            ("argument-1", "--header=X-Org: me", "--header=X-Org: me"),
            (
                "url",
                "https://x/mcp/?tavilyApiKey=tvly-dev-1&mode=a",
                "https://x/mcp/?tavilyApiKey=*&mode=a",
            ),
            (
                "url",
                "https://x/mcp?p=x&api_key=550e8400-e29b-41d4-a716-446655440000",
                "https://x/mcp?p=x&api_key=*",
            ),
            ("url", "https://x/s/MzQ1NjY3ODkwYWJjZGVmZ2hpamtsbW5vcA==/mcp", "https://x/s/*/mcp"),
            ("url", "https://x/550e8400-e29b-41d4-a716-446655440000/mcp", "https://x/*/mcp"),
            ("url", "https://u:pw@x.example/mcp", "https://u:*@x.example/mcp"),
            ("DATABASE_URL", "postgres://u:hunt/er@2@db/x", "postgres://u:*@db/x"),
            (
                "NOTION",
                r#"{"Authorization":"Bearer ntn_1","Version":"1"}"#,
                r#"{"Authorization":"Bearer *","Version":"1"}"#,
            ),
            ("NOTION", r#"{"token": "abc", "n": 1}"#, r#"{"token": "*", "n": 1}"#),
            ("PASSPHRASE", "pp", "*"),
            ("Authorization", "Bearer abc", "Bearer *"),
            ("OTHER", "sk-proj-abcdef", "*"),
            ("DSN", "Server=x;Password=a b;Port=1", "Server=x;Password=*;Port=1"),
            ("argument-1", "deadbeefdeadbeefdeadbeefdeadbeef0011", "*"),
        ] {
            assert_eq!(shown(name, text), without, "{name}");
        }
    }

    #[test]
    fn what_is_none_stays() {
        for (name, text) in [
            ("args", "@modelcontextprotocol/server-filesystem@2026.8.31"),
            ("args", "git+https://github.com/a/b@0123456789abcdef0123456789abcdef01234567"),
            ("args", "ghcr.io/x/token-server:1.2"),
            ("args", "auth-server:latest"),
            ("args", "/nix/store/0c1i2z9ya7q8w6e5r4t3y2u1i0o9p8a7-x/bin/x"),
            ("args", "--max-tokens=4096"),
            ("MAX_TOKENS", "4096"),
            ("USE_AUTH", "true"),
            ("url", "http://127.0.0.1:9000/mcp@v1"),
            ("url", "https://mcp.example.org/2025-11-25/streamable-http"),
            ("args", "--region=eu-central-1"),
            ("args", "C:\\Users\\0123456789abcdefghij0123\\x"),
            ("MODE", "fast"),
        ] {
            assert_eq!(shown(name, text), text, "{name}");
        }
        assert!(ends_with_name(r#"{"token": ""#) && ends_with_name("SECRET="));
        assert!(!ends_with_name("--region=") && !ends_with_name("token"));
    }
}
