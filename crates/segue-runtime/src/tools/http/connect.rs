//! Connections to permitted addresses, and to nothing else (D7).
//!
//! Literal addresses are checked before anything is sent; names are checked by the resolver of the
//! client that connects. The checked address is therefore the one connected to, even if DNS changes
//! a moment later.
//!
//! Not here: which addresses are permitted ([`super::address`]), requests ([`super::client`]).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};
use segue_core::diagnostic::Code;

use super::address::AddressPolicy;
use crate::tools::ToolError;

/// The connect timeout, at most.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Makes clients that connect only where a policy permits.
pub(super) struct Connector {
    policy: Arc<AddressPolicy>,
    lookup: DnsLookup,
}

/// Resolves a name to addresses.
pub(super) type DnsLookup = fn(String) -> DnsLookupFuture;

pub(super) type DnsLookupFuture =
    Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;

impl Connector {
    pub(super) fn new(policy: AddressPolicy) -> Connector {
        Connector { policy: Arc::new(policy), lookup: system_lookup }
    }

    /// The same with another resolver.
    #[cfg(test)]
    pub(super) fn with_lookup(self, lookup: DnsLookup) -> Connector {
        Connector { lookup, ..self }
    }

    /// Refuses an address that the policy does not permit, as far as this is known before DNS.
    /// Returns the port.
    pub(super) fn check(&self, url: &Url) -> Result<u16, ToolError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(forbidden(format!("`{}` is neither http nor https", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(forbidden("the address holds a user name or password; use a header"));
        }
        let port = url.port_or_known_default().unwrap_or(0);
        let address = match url.host() {
            Some(url_host) => literal(&url_host.to_string()),
            None => return Err(forbidden("the address has no host")),
        };
        match address {
            Some(address) if !self.policy.permits(address, port) => {
                Err(forbidden(ForbiddenAddress { host: address.to_string(), port }))
            }
            _ => Ok(port),
        }
    }

    /// A client for one exchange. Its resolver checks addresses for the port of the request.
    pub(super) async fn client(
        &self,
        url: &Url,
        port: u16,
        time: Duration,
    ) -> Result<Client, ToolError> {
        let tls = if url.scheme() == "https" {
            // The first use reads files for some milliseconds.
            tokio::task::spawn_blocking(|| trusting().clone())
                .await
                .map_err(|error| ToolError::refused(Code::Internal, error.to_string()))?
        } else {
            trusting_nobody().clone()
        };
        let resolver = Resolver { policy: self.policy.clone(), lookup: self.lookup, port };
        Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(resolver)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(time.min(CONNECT_MAX))
            .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ToolError::refused(Code::Internal, error.to_string()))
    }
}

/// A connection that the policy does not permit.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "`{host}` does not lead to a public address; to open it, allow `{host}:{port}` in the configuration (`builtins.http.allow`)"
)]
pub(super) struct ForbiddenAddress {
    host: String,
    port: u16,
}

/// Resolves names, and keeps only the permitted addresses.
struct Resolver {
    policy: Arc<AddressPolicy>,
    lookup: DnsLookup,
    port: u16,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup, port) = (self.policy.clone(), self.lookup, self.port);
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let mut found = lookup(name.clone()).await?;
            if !policy.permits_name(&name, port) {
                found.retain(|address| policy.permits(*address, port));
                if found.is_empty() {
                    return Err(ForbiddenAddress { host: name, port }.into());
                }
            }
            let found = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(found.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

fn system_lookup(name: String) -> DnsLookupFuture {
    Box::pin(async move {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    })
}

/// The address that a host literally is.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Trusts the root certificates of this system, or Mozilla's compiled-in ones where it has none: a
/// bare container works without set-up, and a company's own roots apply where they are installed.
pub(in crate::tools) fn trusting() -> &'static ClientConfig {
    static TRUSTING: OnceLock<ClientConfig> = OnceLock::new();
    TRUSTING.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        tls(roots)
    })
}

/// For plain http, which checks no certificates: loading the roots would take milliseconds.
pub(in crate::tools) fn trusting_nobody() -> &'static ClientConfig {
    static TRUSTING_NOBODY: OnceLock<ClientConfig> = OnceLock::new();
    TRUSTING_NOBODY.get_or_init(|| tls(RootCertStore::empty()))
}

fn tls(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows every version of TLS that rustls offers by default")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The failure for an address that the policy does not permit.
pub(super) fn forbidden(why: impl fmt::Display) -> ToolError {
    ToolError::refused(Code::PolicyViolation, why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each exchange makes a client, so that has to be cheap.
    #[tokio::test]
    async fn a_client_is_cheap_to_make() {
        let connector = Connector::new(AddressPolicy::default());
        let url = Url::parse("http://example.org/").unwrap();
        connector.client(&url, 80, CONNECT_MAX).await.unwrap();
        let start = std::time::Instant::now();
        for _ in 0..50 {
            connector.client(&url, 80, CONNECT_MAX).await.unwrap();
        }
        let each = start.elapsed() / 50;
        println!("client: {each:?}");
        assert!(each < Duration::from_millis(10), "{each:?}");
    }
}
