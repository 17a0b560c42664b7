//! Load balancers for Services of type LoadBalancer, and the trait by which controllers ask for them.

use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;

use crate::{Address, Cluster, Error, ProviderId};

/// The transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
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

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A Node that may receive traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The Node's name.
    pub node: String,
    /// The Node's UID.
    pub uid: String,
    /// Its machine.
    pub provider_id: ProviderId,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Its zone, where it has one.
    pub zone: Option<String>,
    /// Its labels, but only those that the provider reads.
    pub labels: Vec<(String, String)>,
}

/// The targets of one Service, out of the table of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of the table.
    All,
    /// These rows of the table, from 0, in ascending order.
    Rows(Vec<u32>),
}

/// A port that a Service offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrafficPolicy {
    /// Any Node may take the traffic.
    Cluster,
    /// Only Nodes with an endpoint of the Service may; this port of each Node answers whether it has one.
    Local(u16),
}

/// `spec.sessionAffinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// Each connection on its own.
    None,
    /// The connections of a client address stay together for so long after the last one.
    ClientIp(Duration),
}

/// The number of ready endpoints of a Service on one Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalEndpoints {
    /// The row of the Node in the target table.
    pub row: u32,
    /// How many endpoints.
    pub count: u32,
}

/// How clients should treat an address (`ipMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpMode {
    /// Packets keep the load balancer's address as their destination.
    Vip,
    /// Packets arrive with a Node's address as their destination.
    Proxy,
}

/// One port of a load balancer that is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortStatus {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Why it doesn't work, as a CamelCase reason; none where it works.
    pub error: Option<String>,
}

/// Where a load balancer can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IngressPoint {
    /// An IP address, as the cloud writes it.
    Ip(String),
    /// A DNS name.
    Hostname(String),
}

/// One way in (`status.loadBalancer.ingress`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ingress {
    /// Where.
    pub point: IngressPoint,
    /// How clients should treat an IP address; none for host names.
    pub ip_mode: Option<IpMode>,
    /// Its ports.
    pub ports: Vec<PortStatus>,
}

/// What a Service wants, as facts. See `wit/load-balancers.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Its labels, in the order of their keys.
    pub labels: Vec<(String, String)>,
    /// The labels of its namespace, where the provider asked for them.
    pub namespace_labels: Vec<(String, String)>,
    /// Its annotations, but only those that the provider named, and booleans in their normal form.
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
    pub source_ranges: Vec<IpNet>,
    /// `spec.loadBalancerIP`, where given.
    pub requested_ip: Option<String>,
    /// The families that it wants, the first one first.
    pub families: Vec<Family>,
    /// Its endpoints on each Node, where the policy is [`TrafficPolicy::Local`] and the provider asked for them.
    pub endpoints: Vec<LocalEndpoints>,
    /// Which targets it has.
    pub targets: Selection,
    /// What its status says at present.
    pub status: Vec<Ingress>,
}

impl Service {
    /// A Service that is told apart from others and wants nothing yet.
    pub fn named(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            labels: Vec::new(),
            namespace_labels: Vec::new(),
            annotations: Vec::new(),
            class: None,
            ports: Vec::new(),
            policy: TrafficPolicy::Cluster,
            affinity: Affinity::None,
            source_ranges: Vec::new(),
            requested_ip: None,
            families: Vec::new(),
            endpoints: Vec::new(),
            targets: Selection::All,
            status: Vec::new(),
        }
    }
}

/// A load balancer, or a part of a shared one, that the cloud says was created for a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The UID of the cluster that it bears. One without is only ever reported, never removed.
    pub cluster_uid: Option<String>,
    /// The UID of the Service that it bears.
    pub service_uid: Option<String>,
    /// The Service's namespace and name, for people.
    pub service: Option<(String, String)>,
    /// The cloud's name for it, for people.
    pub name: String,
    /// What the provider needs to find exactly this again.
    pub extra: Vec<(String, String)>,
}

/// What to do for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAction {
    /// See to it that its load balancer is as the Service wants. Changes nothing where it already is.
    Ensure(Service),
    /// Only its targets have changed since the last `Ensure`.
    UpdateTargets(Service),
    /// Remove all that was created for it, the last known one, without targets and endpoints. Removing what is gone succeeds.
    Delete(Service),
    /// Remove what was listed for this cluster and for a Service that is gone. Removing what is gone succeeds.
    RemoveOrphan(Owned),
}

/// A change, and the note that the provider left for itself when it last answered [`ServiceProgress::Under`] for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceChange {
    /// What to do.
    pub action: ServiceAction,
    /// A hint of up to 4 KiB that may be lost at any time.
    pub resume: Option<String>,
}

/// How far a change has come that hasn't failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceProgress {
    /// It is so.
    Done {
        /// The Service's way in, empty after a deletion.
        status: Vec<Ingress>,
        /// Sentences for the user.
        warnings: Vec<String>,
    },
    /// The cloud is at it, or it could not begin in time: ask again after this time, with this note.
    Under {
        /// When to ask again.
        after: Duration,
        /// To be given back with the next call about the same thing.
        resume: Option<String>,
    },
    /// The Service is somebody else's to serve.
    Elsewhere,
}

/// One call of [`LoadBalancers::change`].
#[derive(Debug, Clone, Copy)]
pub struct ServiceCall<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The Nodes that may receive traffic, as they are at this moment.
    pub targets: &'a [Target],
    /// The other Services of the cluster that may have a load balancer and are to keep it, as the provider last heard of
    /// them, where it asked for them. What a shared object holds for one that is neither here nor changed stays as it is.
    pub known: &'a [Service],
    /// What to do.
    pub changes: &'a [ServiceChange],
    /// Whether nobody waits for it: it only looks whether all is still as it was, and lets everything else go first.
    pub is_audit: bool,
}

/// Sees to load balancers.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Makes changes, all that is due together.
    ///
    /// # Guarantees
    /// On success the list has exactly one outcome for each change, in the same order; an error of one doesn't touch its
    /// neighbours. Dropping the future doesn't undo what has begun.
    ///
    /// # Errors
    /// The outer error says that no change could be considered at all.
    async fn change(&self, call: ServiceCall<'_>) -> Result<Vec<Result<ServiceProgress, Error>>, Error>;

    /// Lists what exists in the cloud for Services of this cluster, and of no cluster that can be told, from a complete
    /// read. Changes nothing.
    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<Owned>, Error>;
}

/// The type of an annotation's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationType {
    /// Any text.
    Text,
    /// `true` or `false`, and no other spelling once it is in [`Service::annotations`].
    Boolean,
    /// A whole number.
    Integer,
    /// Texts, separated by commas.
    TextList,
    /// Address ranges, separated by commas.
    RangeList,
}

impl AnnotationType {
    /// The type as the contract writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::TextList => "text-list",
            Self::RangeList => "range-list",
        }
    }
}

/// How a provider wants Services brought to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of its own, and all combinations are allowed"
)]
pub struct ServiceTerms {
    /// The most changes that one call may carry; at least 1.
    pub largest_change: usize,
    /// Whether two calls may run at the same time.
    pub is_side_by_side: bool,
    /// The annotations that it reads, by key or by a pattern with one `*` that stands for at least one character, and the
    /// types of their values. Others never reach it.
    pub annotations: Vec<(String, AnnotationType)>,
    /// Whether it reads [`Service::namespace_labels`].
    pub wants_namespace_labels: bool,
    /// Whether it reads [`Service::endpoints`].
    pub wants_endpoints: bool,
    /// Whether it reads [`ServiceCall::known`].
    pub wants_known: bool,
}

impl Default for ServiceTerms {
    /// Those of a provider that says nothing: one at a time, and no more than the Service itself.
    fn default() -> Self {
        Self {
            largest_change: 1,
            is_side_by_side: false,
            annotations: Vec::new(),
            wants_namespace_labels: false,
            wants_endpoints: false,
            wants_known: false,
        }
    }
}
