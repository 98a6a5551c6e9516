//! Names of hosts in requests of HTTP and in settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum length of an accepted name, bytes. DNS has the same maximum.
const NAME_BYTES_MAX: usize = 253;

/// A host as requests name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName {
    name: Name,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Address(IpAddr),
    /// A name in lower case.
    Text(String),
}

impl HostName {
    /// Reads `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`.
    pub(crate) fn parse(text: &str) -> Option<HostName> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inner, rest) = rest.split_once(']')?;
                let address: Ipv6Addr = inner.parse().ok()?;
                let port = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':')?),
                };
                (Name::Address(IpAddr::V6(address).to_canonical()), port)
            }
            None => {
                let (name, port) = match text.split_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (text, None),
                };
                (Name::parse(name)?, port)
            }
        };
        let port = match port {
            None => None,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            Some(_) => return None,
        };
        Some(HostName { name, port })
    }

    /// Returns whether this host is the address `local` or a name of it.
    pub(crate) fn is_of(&self, local: IpAddr) -> bool {
        self.name.is_of(local)
    }

    /// Returns whether this host of a request matches `known`, a host of the settings.
    pub(crate) fn is_meant_by(&self, known: &HostName) -> bool {
        self.name == known.name && (known.port.is_none() || self.port == known.port)
    }
}

impl Name {
    fn parse(text: &str) -> Option<Name> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Name::Address(address.into()));
        }
        let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        (fits && text.bytes().all(sound)).then(|| Name::Text(text.to_ascii_lowercase()))
    }

    fn is_of(&self, local: IpAddr) -> bool {
        match self {
            Name::Address(address) => {
                *address == local || (address.is_loopback() && local.is_loopback())
            }
            Name::Text(text) => text == "localhost" && local.is_loopback(),
        }
    }
}
