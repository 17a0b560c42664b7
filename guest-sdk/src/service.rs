//! A Service of type LoadBalancer, the Nodes that may receive its traffic, and what the cloud has for it.

mod ingress;

use std::net::IpAddr;
use std::time::Duration;

pub use ingress::{Ingress, IngressPoint, IpMode, PortStatus};
use serde::{Deserialize, Serialize};

use crate::{Address, Error, Extra};

/// The transport protocol of a port. JSON uses the contract's names, such as `tcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The protocol as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// An IP family. JSON uses the contract's names, such as `ipv4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl IpFamily {
    /// The family as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// A Node that may receive traffic. The host decides which Nodes may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The Node's name.
    pub node: String,
    /// The Node's UID.
    pub uid: String,
    /// The provider ID of the Node's instance.
    pub provider_id: String,
    /// The Node's addresses.
    pub addresses: Vec<Address>,
    /// The Node's zone, if it has one.
    pub zone: Option<String>,
    /// The Node labels that the provider named in its [`Description`](crate::Description) or [`Settings`](crate::Settings).
    pub labels: Vec<(String, String)>,
    /// See [`Extra`].
    pub extra: Extra,
}

/// The targets of one Service: a selection from the target table of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetSelection {
    /// All rows of the table.
    #[default]
    All,
    /// These rows of the table, counted from 0, in ascending order.
    Rows(Vec<u32>),
}

/// The targets of one Service, resolved against the table.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    table: &'a [Target],
    selection: &'a TargetSelection,
}

impl<'a> Targets<'a> {
    /// The selected targets of a table. A row that the table doesn't have is ignored.
    pub const fn new(table: &'a [Target], selection: &'a TargetSelection) -> Self {
        Self { table, selection }
    }

    /// All targets of a table.
    pub const fn all(table: &'a [Target]) -> Self {
        Self { table, selection: &TargetSelection::All }
    }

    /// Whether the Service has all targets of the table. All such Services of a call have the same targets.
    pub const fn is_all(self) -> bool {
        matches!(self.selection, TargetSelection::All)
    }

    /// The targets, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = &'a Target> {
        let (all, rows) = match self.selection {
            TargetSelection::All => (self.table, &[][..]),
            TargetSelection::Rows(rows) => (&[][..], &rows[..]),
        };
        all.iter().chain(rows.iter().filter_map(move |row| self.row(*row)))
    }

    /// The target in a row of the table, as [`LocalEndpoints::row`] names it.
    pub fn row(self, row: u32) -> Option<&'a Target> {
        self.table.get(usize::try_from(row).ok()?)
    }
}

/// A port of a Service (`spec.ports`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The port's name. It may be empty if the Service has only one port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: u16,
    /// The port on every Node that leads to the Service. None if `spec.allocateLoadBalancerNodePorts` is false, which only a provider
    /// with [`ServiceFacts::missing_node_ports`](crate::ServiceFacts::missing_node_ports) gets.
    pub node_port: Option<u16>,
    /// `appProtocol`, if the user set it.
    pub app_protocol: Option<String>,
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// Every Node may receive the traffic.
    #[default]
    Cluster,
    /// Only Nodes with an endpoint of the Service may receive traffic. Each Node answers a health check on this port.
    Local(u16),
}

impl TrafficPolicy {
    /// The port of the Nodes' health check, if there is one.
    pub const fn health_check_port(self) -> Option<u16> {
        match self {
            Self::Cluster => None,
            Self::Local(port) => Some(port),
        }
    }
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionAffinity {
    /// Each connection may reach another endpoint.
    #[default]
    None,
    /// Connections from one client address reach the same endpoint, until this time after the last one.
    ClientIp(Duration),
}

impl SessionAffinity {
    /// How long the connections of a client address stay together, if they do.
    pub const fn timeout(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::ClientIp(timeout) => Some(timeout),
        }
    }
}

/// The number of ready endpoints of a Service on one Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEndpoints {
    /// The Node's row in the target table, see [`Targets::row`].
    pub row: u32,
    /// The number of endpoints.
    pub count: u32,
}

/// What a Service asks for. The default asks for nothing, so a test sets only the fields that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`. Label what you create for the Service with it and with the cluster's UID, where the cloud can store
    /// them.
    pub uid: String,
    /// The Service's labels.
    pub labels: Vec<(String, String)>,
    /// The labels of its namespace, if the provider asked for them.
    pub namespace_labels: Vec<(String, String)>,
    /// The annotations that the provider named.
    pub annotations: Vec<(String, String)>,
    /// `spec.loadBalancerClass`, if set.
    pub class: Option<String>,
    /// `metadata.finalizers`, without the host's own. By them some clouds tell which controller serves the Service.
    pub finalizers: Vec<String>,
    /// The Service's ports, at least one.
    pub ports: Vec<ServicePort>,
    /// Which Nodes may receive its traffic.
    pub policy: TrafficPolicy,
    /// Whether the connections of one client stay together.
    pub affinity: SessionAffinity,
    /// The address ranges that may connect. Empty means that every address may connect.
    pub source_ranges: Vec<String>,
    /// `spec.loadBalancerIP`, if set.
    pub requested_ip: Option<String>,
    /// The IP families that the Service asks for, the primary one first.
    pub families: Vec<IpFamily>,
    /// The Service's endpoints on each Node, if the policy is `Local` and the provider asked for them.
    pub endpoints: Vec<LocalEndpoints>,
    /// The Service's targets. The host has applied the annotations of type
    /// [`NodeSelector`](crate::AnnotationType::NodeSelector).
    pub targets: TargetSelection,
    /// The Service's current `status.loadBalancer.ingress`.
    pub status: Vec<Ingress>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Service {
    /// The value of an annotation that the provider named. The host has checked its type: a boolean is `true` or `false`,
    /// regardless of the user's spelling.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Rejects a Service that mixes ports of this protocol with others, for a cloud whose load balancers can't.
    ///
    /// # Errors
    ///
    /// `invalid` if the Service has ports of this protocol and of others.
    pub fn reject_mixed(&self, protocol: Protocol) -> Result<(), Error> {
        let has_protocol = |port: &ServicePort| port.protocol == protocol;
        if self.ports.iter().any(has_protocol) && !self.ports.iter().all(has_protocol) {
            let message = "ports can't share a load balancer with other protocols: put them into a Service of their own";
            return Err(Error::invalid(format!("{} {message}", protocol.as_str())));
        }
        Ok(())
    }

    /// The address that the Service asks for. Parsed, so that it compares with the cloud's addresses by value.
    ///
    /// # Errors
    ///
    /// `invalid` if `loadBalancerIP` is not an IP address.
    pub fn requested_address(&self) -> Result<Option<IpAddr>, Error> {
        let Some(text) = &self.requested_ip else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Error::invalid(format!("loadBalancerIP `{text}` is not an IP address")))
    }
}

/// A load balancer, or a part of a shared one, that the cloud says was created for a Service.
///
/// A UID may be its beginning, where names of the cloud have no place for all of it: at least 24 hexadecimal digits, with or
/// without hyphens, in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedLoadBalancer {
    /// The UID of the cluster that it is labeled with. Without one it is only ever reported, never removed.
    pub cluster_uid: Option<String>,
    /// The UID of the Service that it is labeled with.
    pub service_uid: Option<String>,
    /// The Service's namespace and name, if the cloud stores them, for people.
    pub service: Option<(String, String)>,
    /// The cloud's name for it, for people.
    pub name: String,
    /// What is needed to find exactly this object again, if the UID of the Service isn't enough. See [`Extra`].
    pub extra: Extra,
}

#[cfg(test)]
mod tests {
    use super::Protocol::{Sctp, Tcp, Udp};
    use super::*;

    #[test]
    fn a_protocol_that_cannot_be_mixed_is_rejected_beside_others() {
        let is_accepted = |protocols: &[Protocol]| {
            let port = |protocol: &Protocol| ServicePort { protocol: *protocol, ..ServicePort::default() };
            let service = Service { ports: protocols.iter().map(port).collect(), ..Service::default() };
            service.reject_mixed(Sctp).is_ok()
        };
        let rows = [(&[Sctp, Sctp][..], true), (&[Tcp, Udp], true), (&[Tcp, Sctp], false), (&[], true)];
        for (protocols, expected) in rows {
            assert_eq!(is_accepted(protocols), expected, "{protocols:?}");
        }
    }

    #[test]
    fn protocols_and_families_are_written_as_in_the_contract() {
        let names = (Tcp, Udp, Sctp, IpFamily::Ipv4, IpFamily::Ipv6);
        let json = serde_json::to_string(&names).unwrap();
        assert_eq!(json, r#"["tcp","udp","sctp","ipv4","ipv6"]"#);
        assert_eq!(
            serde_json::from_str::<(Protocol, Protocol, Protocol, IpFamily, IpFamily)>(&json).unwrap(),
            names
        );
    }
}
