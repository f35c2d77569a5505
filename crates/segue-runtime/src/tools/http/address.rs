//! Which addresses an HTTP tool may connect to (D7).
//!
//! By default only public addresses. Everything else (this machine, the local network, cloud
//! metadata, tunnels back inside) needs a rule of the operator. The check applies to the address
//! that is actually connected to, not to its spelling or to an earlier DNS answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The operator's rules, which open addresses beyond the public internet.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    rules: Vec<Rule>,
}

/// `HOST:PORT`, where the host is a name, `*.name`, an address, a network or `*`, and the port a
/// number or `*`. IPv6 stands in brackets: `[::1]:8080`, `[fd00::/8]:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    host: Host,
    /// `None` means any port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    Name(String),
    /// Every name with this ending, which begins with a dot.
    Suffix(String),
    Network {
        base: IpAddr,
        bits: u8,
    },
}

impl AddressPolicy {
    /// A policy from the operator's rules; the error names the wrong one.
    pub fn new<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<AddressPolicy, String> {
        let rules: Result<Vec<Rule>, String> = rules.into_iter().map(str::parse).collect();
        Ok(AddressPolicy { rules: rules? })
    }

    /// A policy that opens one configured host and port.
    pub(crate) fn for_origin(host: &str, port: u16) -> AddressPolicy {
        let host = parse_host(host).unwrap_or_else(|_| Host::Name(plain(host)));
        AddressPolicy { rules: vec![Rule { host, port: Some(port) }] }
    }

    /// Whether a rule opens a name, whichever address it resolves to.
    pub fn permits_name(&self, name: &str, port: u16) -> bool {
        let name = plain(name);
        self.rules.iter().any(|rule| {
            rule.port.is_none_or(|open| open == port)
                && match &rule.host {
                    Host::Any => true,
                    Host::Name(open) => *open == name,
                    Host::Suffix(suffix) => name.ends_with(suffix.as_str()),
                    Host::Network { .. } => false,
                }
        })
    }

    /// Whether a connection to this address is permitted.
    pub fn permits(&self, address: IpAddr, port: u16) -> bool {
        is_public(address)
            || self.rules.iter().any(|rule| {
                rule.port.is_none_or(|open| open == port)
                    && match &rule.host {
                        Host::Any => true,
                        Host::Network { base, bits } => is_within(address, *base, *bits),
                        Host::Name(_) | Host::Suffix(_) => false,
                    }
            })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (text, "*"),
        };
        let port = match port {
            "*" => None,
            number => Some(number.parse().map_err(|_| wrong(text, "the port is not a number"))?),
        };
        Ok(Rule { host: parse_host(host).map_err(|why| wrong(text, why))?, port })
    }
}

fn wrong(rule: &str, why: &str) -> String {
    format!("`{rule}` is not a host rule: {why}; write `HOST:PORT`, such as `127.0.0.1:*`")
}

fn parse_host(host: &str) -> Result<Host, &'static str> {
    if host == "*" {
        return Ok(Host::Any);
    }
    let bare = host.strip_prefix('[').map_or(host, |inner| inner.trim_end_matches(']'));
    let (base, bits) = match bare.split_once('/') {
        Some((base, bits)) => (base, Some(bits)),
        None => (bare, None),
    };
    if let Ok(base) = base.parse::<IpAddr>() {
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits =
            bits.map_or(Ok(width), str::parse::<u8>).map_err(|_| "the mask is not a number")?;
        return if bits > width {
            Err("the mask is too long")
        } else {
            Ok(Host::Network { base, bits })
        };
    }
    let (suffix, name) = match host.strip_prefix("*.") {
        Some(name) => (true, plain(name)),
        None => (false, plain(host)),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_name) {
        return Err("the host is neither a name nor an address");
    }
    Ok(if suffix { Host::Suffix(format!(".{name}")) } else { Host::Name(name) })
}

/// A host name in lower case, without a trailing dot.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_within(address: IpAddr, base: IpAddr, bits: u8) -> bool {
    // Canonical: an IPv4 address wrapped in IPv6 is the same machine.
    match (address.to_canonical(), base.to_canonical()) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            let bits = u32::from(if bits > 32 { bits - 96 } else { bits });
            u32::from(address).checked_shr(32 - bits).unwrap_or(0)
                == u32::from(base).checked_shr(32 - bits).unwrap_or(0)
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            let shift = 128 - u32::from(bits);
            u128::from(address).checked_shr(shift).unwrap_or(0)
                == u128::from(base).checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

/// Whether an address is on the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !in_table(u32::from(address), V4_SPECIAL),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// IPv4 networks outside the public internet (IANA's special-purpose registry), and one public
/// address that leads into a cloud.
const V4_SPECIAL: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),            // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's host agent
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, cloud metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, broadcast
];

fn in_table(address: u32, table: &[(Ipv4Addr, u32)]) -> bool {
    table.iter().any(|(base, bits)| address >> (32 - bits) == u32::from(*base) >> (32 - bits))
}

/// Of IPv6 only 2000::/3 is public: loopback, link-local, unique local, multicast and every wrapped
/// IPv4 (`::ffff:0:0/96`, `64:ff9b::/96`) lie outside of it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let handed_out = first & 0xe000 == 0x2000;
    let special = match first {
        // Protocol assignments (Teredo and ORCHID among them) and documentation.
        0x2001 => second < 0x0200 || second == 0x0db8,
        // 6to4: wrapped IPv4.
        0x2002 => true,
        // Documentation.
        0x3fff => second < 0x1000,
        _ => false,
    };
    handed_out && !special
}
