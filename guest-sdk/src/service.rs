//! A Service of type LoadBalancer as the facts that a provider needs, the Nodes that may take its traffic, and what the
//! cloud has for it.

mod ingress;

use std::net::IpAddr;
use std::time::Duration;

pub use ingress::{Ingress, IngressPoint, IpMode, PortStatus};
use serde::{Deserialize, Serialize};

use crate::{Address, Error, Extra};

/// The transport protocol of a port. In JSON it is written as in the contract, `tcp` for one.
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

/// An IP family. In JSON it is written as in the contract, `ipv4` for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// A Node that may receive traffic. Which Nodes may is the host's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The Node's name.
    pub node: String,
    /// The Node's UID.
    pub uid: String,
    /// Its machine.
    pub provider_id: String,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Its zone, where it has one.
    pub zone: Option<String>,
    /// Its labels, but only those that the provider named in its [`Description`](crate::Description).
    pub labels: Vec<(String, String)>,
    /// See [`Extra`].
    pub extra: Extra,
}

/// The targets of one Service, out of the table of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All of the table.
    #[default]
    All,
    /// These rows of the table, from 0, in ascending order.
    Rows(Vec<u32>),
}

/// The targets of one Service.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    table: &'a [Target],
    selection: &'a Selection,
}

impl<'a> Targets<'a> {
    /// Those of a table that are selected. A row that the table doesn't have is none.
    pub const fn new(table: &'a [Target], selection: &'a Selection) -> Self {
        Self { table, selection }
    }

    /// All of a table.
    pub const fn all(table: &'a [Target]) -> Self {
        Self { table, selection: &Selection::All }
    }

    /// Whether they are all of the table, and so the same for every Service of the call that has all.
    pub const fn is_all(self) -> bool {
        matches!(self.selection, Selection::All)
    }

    /// The targets, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = &'a Target> {
        let (all, rows) = match self.selection {
            Selection::All => (self.table, &[][..]),
            Selection::Rows(rows) => (&[][..], &rows[..]),
        };
        all.iter().chain(rows.iter().filter_map(move |row| self.row(*row)))
    }

    /// The target in a row of the table, as [`LocalEndpoints::row`] names it.
    pub fn row(self, row: u32) -> Option<&'a Target> {
        self.table.get(usize::try_from(row).ok()?)
    }
}

/// A port that a Service offers (`spec.ports`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// Its name, which may be empty where there is one port only.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: u16,
    /// The port of every Node that leads to the Service; none where `spec.allocateLoadBalancerNodePorts` is off.
    pub node_port: Option<u16>,
    /// `appProtocol`, where the user gave one.
    pub app_protocol: Option<String>,
}

/// `spec.externalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// Any Node may take the traffic.
    #[default]
    Cluster,
    /// Only Nodes with an endpoint of the Service may; this port of each Node answers whether it has one.
    Local(u16),
}

impl TrafficPolicy {
    /// The port of each Node that answers whether it may take the traffic, where one does.
    pub const fn health_check_port(self) -> Option<u16> {
        match self {
            Self::Cluster => None,
            Self::Local(port) => Some(port),
        }
    }
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Each connection on its own.
    #[default]
    None,
    /// The connections of a client address stay together for so long after the last one.
    ClientIp(Duration),
}

impl Affinity {
    /// How long the connections of a client address stay together, where they do.
    pub const fn time(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::ClientIp(time) => Some(time),
        }
    }
}

/// The number of ready endpoints of a Service on one Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEndpoints {
    /// The row of the Node in the table of targets, see [`Targets::row`].
    pub row: u32,
    /// How many endpoints.
    pub count: u32,
}

/// What a Service wants, as facts. The default wants nothing: a test names what it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`. What is created for it in the cloud bears this, and the cluster's UID, where the cloud can store
    /// them.
    pub uid: String,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// The labels of its namespace, where the provider asked for them.
    pub namespace_labels: Vec<(String, String)>,
    /// Its annotations, but only those that the provider named.
    pub annotations: Vec<(String, String)>,
    /// `spec.loadBalancerClass`, where given.
    pub class: Option<String>,
    /// Its ports, at least one.
    pub ports: Vec<ServicePort>,
    /// Which Nodes may take its traffic.
    pub policy: TrafficPolicy,
    /// Whether a client's connections stay together.
    pub affinity: Affinity,
    /// The address ranges that may connect. Empty where everybody may.
    pub source_ranges: Vec<String>,
    /// `spec.loadBalancerIP`, where given.
    pub requested_ip: Option<String>,
    /// The families that it wants, the first one first.
    pub families: Vec<Family>,
    /// Its endpoints on each Node, where the policy is `Local` and the provider asked for them.
    pub endpoints: Vec<LocalEndpoints>,
    /// Which targets it has.
    pub targets: Selection,
    /// What its status says at present.
    pub status: Vec<Ingress>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Service {
    /// The value of an annotation that the provider named. The host has checked that it is of the type that was declared,
    /// and a boolean is `true` or `false`, however the user spelled it.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Sees to it that ports of a protocol have the Service to themselves, for a cloud that doesn't carry others beside it.
    ///
    /// # Errors
    ///
    /// `invalid` where the Service has ports of this protocol and of others.
    pub fn has_alone(&self, protocol: Protocol) -> Result<(), Error> {
        let is_it = |port: &ServicePort| port.protocol == protocol;
        if self.ports.iter().any(is_it) && !self.ports.iter().all(is_it) {
            let message = "is carried by itself alone: give it a Service of its own, apart from other ports";
            return Err(Error::invalid(format!("{} {message}", protocol.as_str())));
        }
        Ok(())
    }

    /// The address that it asks for, to be compared with those that the cloud has for what it means.
    ///
    /// # Errors
    ///
    /// `invalid` where what it asks for is no IP address.
    pub fn requested_address(&self) -> Result<Option<IpAddr>, Error> {
        let Some(text) = &self.requested_ip else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Error::invalid(format!("loadBalancerIP `{text}` is no IP address")))
    }
}

/// A load balancer, or a part of a shared one, that the cloud says was created for a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// The UID of the cluster that it bears. One without is only ever reported, never removed.
    pub cluster_uid: Option<String>,
    /// The UID of the Service that it bears.
    pub service_uid: Option<String>,
    /// The Service's namespace and name, where the cloud stores them, for people.
    pub service: Option<(String, String)>,
    /// The cloud's name for it, for people, and what [`ServiceChange::name`](crate::ServiceChange::name) says where it is to
    /// be removed.
    pub name: String,
    /// What is needed to find exactly this again. See [`Extra`].
    pub extra: Extra,
}

#[cfg(test)]
mod tests {
    use super::Protocol::{Sctp, Tcp, Udp};
    use super::*;

    #[test]
    fn a_protocol_that_is_carried_alone_is_refused_beside_others() {
        let has_alone = |protocols: &[Protocol]| {
            let port = |protocol: &Protocol| ServicePort { protocol: *protocol, ..ServicePort::default() };
            let service = Service { ports: protocols.iter().map(port).collect(), ..Service::default() };
            service.has_alone(Sctp).is_ok()
        };
        let rows = [(&[Sctp, Sctp][..], true), (&[Tcp, Udp], true), (&[Tcp, Sctp], false), (&[], true)];
        for (protocols, expected) in rows {
            assert_eq!(has_alone(protocols), expected, "{protocols:?}");
        }
    }

    #[test]
    fn protocols_and_families_are_written_as_in_the_contract() {
        let words = (Tcp, Udp, Sctp, Family::Ipv4, Family::Ipv6);
        let json = serde_json::to_string(&words).unwrap();
        assert_eq!(json, r#"["tcp","udp","sctp","ipv4","ipv6"]"#);
        assert_eq!(
            serde_json::from_str::<(Protocol, Protocol, Protocol, Family, Family)>(&json).unwrap(),
            words
        );
    }
}
