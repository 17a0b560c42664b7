//! A Service of type LoadBalancer, as a provider sees it.

use std::time::Duration;

use ipnet::IpNet;

use crate::{Ingress, Protocol};

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The targets of one Service: a selection from the target table of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSelection {
    /// All rows of the table.
    All,
    /// These rows of the table, counted from 0, in ascending order.
    Rows(Vec<u32>),
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The port's name. It may be empty if the Service has only one port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: u16,
    /// The port on every Node that leads to the Service. None if `spec.allocateLoadBalancerNodePorts` is false.
    pub node_port: Option<u16>,
    /// `appProtocol`, if the user set it.
    pub app_protocol: Option<String>,
}

/// `spec.externalTrafficPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// Every Node may receive the traffic.
    Cluster,
    /// Only Nodes with an endpoint of the Service may receive traffic. Each Node answers a health check on this port.
    Local(u16),
}

/// `spec.sessionAffinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionAffinity {
    /// Each connection may reach another endpoint.
    None,
    /// Connections from one client address reach the same endpoint, until this time after the last one.
    ClientIp(Duration),
}

/// The number of ready endpoints of a Service on one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalEndpoints {
    /// The Node's row in the target table.
    pub row: u32,
    /// The number of endpoints.
    pub count: u32,
}

/// What a Service asks for. `wit/load-balancers.wit` describes the same facts for providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The Service's labels, sorted by key.
    pub labels: Vec<(String, String)>,
    /// The labels of its namespace, if the provider asked for them.
    pub namespace_labels: Vec<(String, String)>,
    /// The annotations that the provider reads. Booleans are `true` or `false`.
    pub annotations: Vec<(String, String)>,
    /// `spec.loadBalancerClass`, if set.
    pub class: Option<String>,
    /// `metadata.finalizers`, without the controller's own.
    pub finalizers: Vec<String>,
    /// The Service's ports, at least one.
    pub ports: Vec<ServicePort>,
    /// Which Nodes may receive its traffic.
    pub policy: TrafficPolicy,
    /// Whether the connections of one client stay together.
    pub affinity: SessionAffinity,
    /// The address ranges that may connect. Empty means that every address may connect.
    pub source_ranges: Vec<IpNet>,
    /// `spec.loadBalancerIP`, if set.
    pub requested_ip: Option<String>,
    /// The IP families that the Service asks for, the primary one first.
    pub families: Vec<IpFamily>,
    /// The Service's endpoints on each Node, if the policy is [`TrafficPolicy::Local`] and the provider asked for them.
    pub endpoints: Vec<LocalEndpoints>,
    /// The Service's targets, chosen by its annotations of type [`AnnotationType::NodeSelector`](crate::AnnotationType).
    pub targets: TargetSelection,
    /// The Service's current `status.loadBalancer.ingress`.
    pub status: Vec<Ingress>,
}

impl Service {
    /// A Service with an identity and nothing else.
    pub fn named(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            labels: Vec::new(),
            namespace_labels: Vec::new(),
            annotations: Vec::new(),
            class: None,
            finalizers: Vec::new(),
            ports: Vec::new(),
            policy: TrafficPolicy::Cluster,
            affinity: SessionAffinity::None,
            source_ranges: Vec::new(),
            requested_ip: None,
            families: Vec::new(),
            endpoints: Vec::new(),
            targets: TargetSelection::All,
            status: Vec::new(),
        }
    }
}
