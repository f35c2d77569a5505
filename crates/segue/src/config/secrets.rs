//! What of a configuration is a secret although it is written there: the values of variables and headers
//! whose names say so, and what addresses hold of that kind.

mod arguments;
pub(crate) mod masked;
pub(crate) mod parts;
pub(super) mod quoted;

use std::collections::BTreeMap;

use segue_core::value::Value;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::mcp::{ServerConfig, ServerTransport};

/// Words that make the name of a variable or header one of a secret, alone or as a part of a longer
/// one (`apitoken`).
const SECRET: &[&str] =
    &["token", "secret", "password", "passwd", "passphrase", "auth", "credential", "cookie"];

/// The same, when they stand alone: they are parts of too many other words.
const SECRET_ALONE: &[&str] =
    &["key", "pat", "pass", "pwd", "pw", "jwt", "bearer", "cred", "creds", "sig", "signature"];

/// Whether a variable or header of this name holds a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    // The working directory, and no password.
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

/// The words of a name, however it is written: `API_KEY`, `api-key`, `apiKey`.
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

/// The secrets that a server is given.
pub(super) fn of_server(server: &ServerConfig) -> Vec<String> {
    match &server.reach {
        ServerTransport::Stdio(stdio) => {
            given(texts(&stdio.env), stdio.args.iter().map(String::as_str))
        }
        ServerTransport::Http(http) => given(texts(&http.headers), [&*http.url]),
        ServerTransport::Local(_) => Vec::new(),
    }
}

/// The secrets that a command is given.
pub(super) fn of_command(command: &CommandConfig) -> Vec<String> {
    let literal = command.argv.iter().filter_map(Value::as_str).filter(|word| !is_template(word));
    given(texts(&command.env), literal)
}

/// The secrets that an HTTP operation is given.
pub(super) fn of_operation(operation: &HttpConfig) -> Vec<String> {
    let query = operation.query.iter();
    let query = query.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let mut secrets = given(texts(&operation.headers).chain(query), [&*operation.url]);
    secrets.retain(|secret| !is_template(secret));
    secrets
}

fn texts(named: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    named.iter().map(|(name, value)| (&**name, &**value))
}

/// The secrets among values, by the names of those, and in addresses. Of `Bearer abc` the second word is
/// one too: services tell it without the first.
fn given<'a>(
    named: impl Iterator<Item = (&'a str, &'a str)>,
    texts: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    let mut secrets = Vec::new();
    for (_, value) in named.filter(|(name, _)| is_secret_name(name)) {
        secrets.push(value.to_owned());
        secrets.extend(value.split_once(' ').map(|(_, rest)| rest.trim().to_owned()));
    }
    // What only looks like one may well be wanted in an answer.
    for address in texts.into_iter().filter(|text| text.contains("://")) {
        let named = parts::secret_parts("", address).into_iter().filter(|part| part.name.is_some());
        secrets.extend(named.map(|part| address[part.range].to_owned()));
    }
    secrets
}

/// Whether a text is filled in at each call, and so is no secret of the configuration.
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
