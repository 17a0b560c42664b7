//! Where clients reach a Service: `status.loadBalancer.ingress`.

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

/// How clients should treat an address (`ipMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpMode {
    /// Packets keep the load balancer's address as their destination.
    Vip,
    /// Packets arrive with a Node's address as their destination.
    Proxy,
}

/// The state of one port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortStatus {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Why the port doesn't work, as a CamelCase reason. None if it works.
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

/// One entry of `status.loadBalancer.ingress`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ingress {
    /// The address or DNS name.
    pub point: IngressPoint,
    /// How clients should treat an IP address. None for DNS names.
    pub ip_mode: Option<IpMode>,
    /// The load balancer's ports.
    pub ports: Vec<PortStatus>,
}
