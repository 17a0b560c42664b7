//! Addresses of an instance, as Kubernetes describes them.

use std::fmt;

/// What an address is for: `NodeAddressType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    /// A host name as the instance reports it.
    Hostname,
    /// An IP address that is reachable inside the cluster's network.
    InternalIp,
    /// An IP address that is reachable from outside.
    ExternalIp,
    /// A DNS name that resolves inside the cluster's network.
    InternalDns,
    /// A DNS name that resolves outside.
    ExternalDns,
}

impl AddressKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Hostname, Self::InternalIp, Self::ExternalIp, Self::InternalDns, Self::ExternalDns];

    /// The kind as Kubernetes writes it in `status.addresses[].type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }

    /// Parses what Kubernetes writes. `None` for a type that Kubernetes doesn't define.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One address of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// What the address is for.
    pub kind: AddressKind,
    /// The IP address or name, as the cloud or the kubelet wrote it.
    pub value: String,
}

impl Address {
    /// An address of a kind.
    pub fn new(kind: AddressKind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_parses_from_its_own_text() {
        for kind in AddressKind::ALL {
            assert_eq!(AddressKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(AddressKind::parse("internalip"), None);
    }
}
