//! Where clients reach a load balancer. It becomes the status of its Service.

use super::Protocol;

/// How clients should treat an address (`ipMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpMode {
    /// Packets keep the load balancer's address as their destination.
    Vip,
    /// Packets arrive with a Node's address as their destination.
    Proxy,
}

/// The state of one port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Why the port doesn't work, as a CamelCase reason. None if it works.
    pub error: Option<String>,
}

/// Where a load balancer can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngressPoint {
    /// An IP address.
    Ip(String),
    /// A DNS name.
    Hostname(String),
}

/// One entry of `status.loadBalancer.ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The address or DNS name.
    pub point: IngressPoint,
    /// How clients should treat an IP address. None for DNS names.
    pub ip_mode: Option<IpMode>,
    /// The load balancer's ports.
    pub ports: Vec<PortStatus>,
}

impl Ingress {
    /// An IP address that packets keep as their destination.
    pub fn ip(address: impl Into<String>) -> Self {
        Self { point: IngressPoint::Ip(address.into()), ip_mode: Some(IpMode::Vip), ports: Vec::new() }
    }

    /// A DNS name.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self { point: IngressPoint::Hostname(name.into()), ip_mode: None, ports: Vec::new() }
    }
}
