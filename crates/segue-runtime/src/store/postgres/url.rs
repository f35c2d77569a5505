//! `postgres://user:password@host:port/database?sslmode=…` → how to connect.
//!
//! The password is never shown: neither [`PostgresUrl`] nor any error has it.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::session::CONNECT_MAX;

/// The address of a database, with the password and how to encrypt.
#[derive(Clone)]
pub struct PostgresUrl {
    pub(super) config: Config,
    pub(super) encryption: Encryption,
    /// The address without the password.
    shown: String,
}

/// Whether a connection is encrypted, and what proves the server's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    /// Not encrypted.
    None,
    /// Encrypted; the server may be any.
    Unverified,
    /// Encrypted, and the certificate is the server's, by these certificates or those of the system.
    Verified(Option<PathBuf>),
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl PartialEq for PostgresUrl {
    fn eq(&self, other: &PostgresUrl) -> bool {
        (&self.config, &self.encryption) == (&other.config, &other.encryption)
    }
}

impl Eq for PostgresUrl {}

/// The parts of an address, as written.
#[derive(Default)]
struct Parts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    hosts: Vec<&'a str>,
    database: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl PostgresUrl {
    /// Reads an address. An error names what is wrong, and nothing that may be secret.
    pub fn parse(text: &str) -> Result<PostgresUrl, String> {
        let parts = split(text)?;
        let mut url = PostgresUrl {
            config: Config::new(),
            encryption: Encryption::None,
            shown: without_password(text),
        };
        url.config.application_name("segue").connect_timeout(CONNECT_MAX);
        // Behind a failed primary there may be a standby under the same name.
        url.config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if let Some(user) = parts.user {
            url.config.user(decoded(user, "user")?);
        }
        if let Some(password) = parts.password {
            url.config.password(decoded(password, "password")?);
        }
        if !parts.database.is_empty() {
            url.config.dbname(decoded(parts.database, "database")?);
        }
        let mut is_local = true;
        for host in &parts.hosts {
            is_local &= url.add_host(host)?;
        }
        let mut mode = None;
        let mut certificates = None;
        for (name, value) in parts.parameters {
            let value = decoded(value, name)?;
            match name {
                "host" => is_local &= url.add_host_name(&value),
                "port" => drop(url.config.port(port(&value)?)),
                "sslmode" => mode = Some(value),
                "sslrootcert" => certificates = Some(PathBuf::from(value)),
                other => {
                    let known = "`host`, `port`, `sslmode` and `sslrootcert`";
                    return Err(format!("unknown parameter `{other}`; known are {known}"));
                }
            }
        }
        if url.config.get_hosts().is_empty() {
            return Err("the address has no host".to_owned());
        }
        url.encryption = encryption(mode.as_deref(), certificates, is_local)?;
        let is_encrypted = url.encryption != Encryption::None;
        url.config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        Ok(url)
    }

    /// The password, so that a caller can remove it from what it prints.
    pub fn password(&self) -> Option<&str> {
        self.config.get_password().and_then(|password| std::str::from_utf8(password).ok())
    }

    /// Adds `host` or `host:port`; returns whether it is this machine.
    fn add_host(&mut self, text: &str) -> Result<bool, String> {
        let (host, number) = match text.rsplit_once(':') {
            // The colons of an IPv6 address are inside brackets.
            Some((host, number)) if !number.ends_with(']') => (host, port(number)?),
            _ => (text, 5_432),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_local = self.add_host_name(&decoded(host, "host")?);
        self.config.port(number);
        Ok(is_local)
    }

    fn add_host_name(&mut self, host: &str) -> bool {
        self.config.host(host);
        host.starts_with('/') || matches!(host, "localhost" | "127.0.0.1" | "::1")
    }
}

/// A password may have any character except `%`: the last `@` ends it.
fn split(text: &str) -> Result<Parts<'_>, String> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|start| text.strip_prefix(start));
    let rest = rest.ok_or("the address does not begin with `postgres://`")?;
    let mut parts = Parts::default();
    let rest = match rest.rsplit_once('@') {
        Some((credentials, rest)) => {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            parts.user = Some(user).filter(|user| !user.is_empty());
            parts.password = password.filter(|password| !password.is_empty());
            rest
        }
        None => rest,
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    parts.hosts = hosts.split(',').filter(|host| !host.is_empty()).collect();
    parts.database = database;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        parts.parameters.push(pair.split_once('=').ok_or("a parameter has no `=`")?);
    }
    Ok(parts)
}

fn without_password(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    let start = before.find("://").map_or(0, |at| at + 3);
    let user = before[start..].split(':').next().unwrap_or_default();
    format!("{}{user}@{host}", &before[..start])
}

fn decoded(text: &str, what: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("the {what} is not UTF-8"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "the port is not a number".to_owned())
}

fn encryption(
    mode: Option<&str>,
    certificates: Option<PathBuf>,
    is_local: bool,
) -> Result<Encryption, String> {
    let found = match mode {
        Some("disable") => Encryption::None,
        Some("require") => Encryption::Unverified,
        Some("verify-full") => return Ok(Encryption::Verified(certificates)),
        Some(_) => {
            let known = "`disable`, `require` or `verify-full`";
            return Err(format!("`sslmode` must be {known}"));
        }
        // What leaves the machine is encrypted unless the address says otherwise.
        None if is_local && certificates.is_none() => Encryption::None,
        None => return Ok(Encryption::Verified(certificates)),
    };
    if certificates.is_some() {
        return Err("`sslrootcert` needs `sslmode=verify-full`".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, shown, encryption) in [
            ("postgres://segue@db/segue", "postgres://segue@db/segue", Encryption::Verified(None)),
            (
                "postgres://segue:p@w/?:x@db:99/s?sslmode=require",
                "postgres://segue@db:99/s?sslmode=require",
                Encryption::Unverified,
            ),
            ("postgresql://u:geheim@localhost/d", "postgresql://u@localhost/d", Encryption::None),
            ("postgres:///d?host=/run/pg", "postgres:///d?host=/run/pg", Encryption::None),
            (
                "postgres://a,b:5433/d?sslmode=verify-full&sslrootcert=/ca.pem",
                "postgres://a,b:5433/d?sslmode=verify-full&sslrootcert=/ca.pem",
                Encryption::Verified(Some("/ca.pem".into())),
            ),
        ] {
            let url = PostgresUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (shown, shown));
            assert_eq!(url.encryption, encryption, "{text}");
        }
        let url = PostgresUrl::parse("postgres://segue:p@w/?:%25@db:99/s").unwrap();
        assert_eq!(url.password(), Some("p@w/?:%"));
        assert_eq!((url.config.get_dbname(), url.config.get_ports()), (Some("s"), &[99][..]));
    }

    /// D2: no error repeats a password.
    #[test]
    fn wrong_addresses_are_refused() {
        for (text, message) in [
            ("mysql://u:geheim@db/x", "does not begin"),
            ("postgres://u:geheim@/x", "no host"),
            ("postgres://u:geheim@db:x/x", "the port is not a number"),
            ("postgres://u:geheim@db/x?sslmode=prefer", "`sslmode` must be"),
            (
                "postgres://u:geheim@db/x?sslmode=require&sslrootcert=a",
                "needs `sslmode=verify-full`",
            ),
            ("postgres://u:geheim@db/x?pool=3", "unknown parameter `pool`"),
            ("postgres://u:geheim@db/x?pool", "no `=`"),
            ("postgres://u:%ff@db/x", "not UTF-8"),
        ] {
            let error = PostgresUrl::parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
