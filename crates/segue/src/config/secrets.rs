//! Secrets that are written in a configuration: values of variables and headers with telling names, and
//! credentials in URLs.

mod arguments;
pub(crate) mod masked;
pub(crate) mod parts;
pub(super) mod quoted;

use std::collections::BTreeMap;

use segue_core::value::Value;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::mcp::{ServerConfig, ServerTransport};

/// Words that mark the name of a secret, also inside a longer word (`apitoken`).
const SECRET: &[&str] =
    &["token", "secret", "password", "passwd", "passphrase", "auth", "credential", "cookie"];

/// Words that mark it only as a whole: they are parts of too many other words.
const SECRET_ALONE: &[&str] =
    &["key", "pat", "pass", "pwd", "pw", "jwt", "bearer", "cred", "creds", "sig", "signature"];

/// Whether a variable or header of this name holds a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    // The working directory, not a password.
    if name == "PWD" {
        return false;
    }
    words(name).iter().any(|word| {
        let is_author = word.starts_with("author") && !word.starts_with("authori");
        SECRET_ALONE.contains(&&**word)
            || word.ends_with("apikey")
            || (!is_author && SECRET.iter().any(|secret| word.contains(secret)))
    })
}

/// The words of a name such as `API_KEY`, `api-key` or `apiKey`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        let begins = !character.is_ascii_alphanumeric() || (was_lower && character.is_uppercase());
        if begins {
            words.push(String::new());
        }
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
        was_lower = character.is_lowercase();
    }
    words
}

/// The secrets of an MCP server.
pub(super) fn of_server(server: &ServerConfig) -> Vec<String> {
    match &server.reach {
        ServerTransport::Stdio(stdio) => {
            secret_values(texts(&stdio.env), stdio.args.iter().map(String::as_str))
        }
        ServerTransport::Http(http) => secret_values(texts(&http.headers), [&*http.url]),
        ServerTransport::Local(_) => Vec::new(),
    }
}

/// The secrets of a command.
pub(super) fn of_command(command: &CommandConfig) -> Vec<String> {
    let literal = command.argv.iter().filter_map(Value::as_str).filter(|word| !is_template(word));
    secret_values(texts(&command.env), literal)
}

/// The secrets of an HTTP operation.
pub(super) fn of_operation(operation: &HttpConfig) -> Vec<String> {
    let query = operation.query.iter();
    let query = query.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let mut secrets = secret_values(texts(&operation.headers).chain(query), [&*operation.url]);
    secrets.retain(|secret| !is_template(secret));
    secrets
}

fn texts(named: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    named.iter().map(|(name, value)| (&**name, &**value))
}

/// The values whose names mark secrets, and named credentials in URLs. Of `Bearer abc`, `abc` alone is a
/// secret, too: services print it without the scheme.
fn secret_values<'a>(
    named: impl Iterator<Item = (&'a str, &'a str)>,
    texts: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut secrets = Vec::new();
    for (_, value) in named.filter(|(name, _)| is_secret_name(name)) {
        secrets.push(value.to_owned());
        secrets.extend(value.split_once(' ').map(|(_, rest)| rest.trim().to_owned()));
    }
    // Only named parts: a text that merely looks like a secret may belong in the output of a tool.
    for address in texts.into_iter().filter(|text| text.contains("://")) {
        let named = parts::secret_parts("", address).into_iter().filter(|part| part.name.is_some());
        secrets.extend(named.map(|part| address[part.range].to_owned()));
    }
    secrets
}

/// Whether a text is a template, which each call fills in, so that it is no secret.
fn is_template(text: &str) -> bool {
    text.contains("{{")
}

#[cfg(test)]
mod tests {
    use segue_runtime::tools::mcp::{McpHttpConfig, ServerConfig, ServerTransport};

    use super::{is_secret_name, of_server};

    #[test]
    fn names_tell_what_is_secret() {
        for name in [
            "GITHUB_TOKEN",
            "X-API-Key",
            "tavilyApiKey",
            "accessKey",
            "--password",
            "PASSPHRASE",
            "SMTP_PASS",
            "DB_PWD",
            "Authorization",
            "apitoken",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PWD", "PATH", "GIT_AUTHOR_NAME", "KEYBOARD", "bypass", "MODE", "HOME", "url"]
        {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn what_an_address_holds_is_a_secret_too() {
        let url =
            "https://u:hunter22@x.example/mcp?api_key=literal-secret&mode=read-only".to_owned();
        let reach = ServerTransport::Http(McpHttpConfig { url, headers: [].into() });
        let server = ServerConfig { name: "x".into(), reach, identity: "".into(), timeout: None };
        assert_eq!(of_server(&server), ["hunter22", "literal-secret"]);
    }
}
