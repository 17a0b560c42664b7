//! Why the gate doesn't dial an address.

use std::fmt;
use std::net::IpAddr;

/// Why an address isn't dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockReason {
    /// A cloud's metadata service, which hands out credentials. Only a range of this single address opens it.
    Metadata,
    /// This machine.
    Loopback,
    /// The links of this machine, where clouds put their metadata services. Only a range of this single address opens it.
    LinkLocal,
    /// A private network, which includes those of nodes and Pods.
    Private,
    /// The carriers' shared range, which clouds use inside.
    Shared,
    /// A group of machines.
    Multicast,
    /// All machines of a link.
    Broadcast,
    /// Not the address of any machine; systems take it for this machine.
    Unspecified,
    /// Reserved for examples and measurements.
    Documentation,
    /// A form of IPv6 that tunnels to an IPv4 address.
    Tunnel,
    /// Not assigned to the internet.
    Reserved,
    /// Denied by the host regardless of grants, as the API server's own address is.
    AlwaysDenied,
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "a metadata service",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Private => "private",
            Self::Shared => "in the carriers' shared range",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Unspecified => "unspecified",
            Self::Documentation => "for documentation",
            Self::Tunnel => "a tunnel to an IPv4 address",
            Self::Reserved => "reserved",
            Self::AlwaysDenied => "denied by the host regardless of grants",
        })
    }
}

/// Blocked addresses, as text.
pub(crate) struct Blocked<'a>(pub(crate) &'a [(IpAddr, BlockReason)]);

impl fmt::Display for Blocked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hostile DNS response may hold hundreds of addresses; a reader learns nothing from the ninth.
        for (position, (address, reason)) in self.0.iter().take(8).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{address} is {reason}")?;
            if matches!(reason, BlockReason::Metadata | BlockReason::LinkLocal) {
                f.write_str(", which only a range of that single address opens")?;
            }
        }
        Ok(())
    }
}
