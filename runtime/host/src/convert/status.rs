//! Converts the status of a load balancer, which ends up in the status of its Service. Kube-proxy and DNS direct traffic by
//! it, so it is checked here against the API server's rules.

use std::net::IpAddr;

use pileus_cloud::{Ingress, IngressPoint, IpMode, PortStatus, Protocol};

use super::MAX_NAME_BYTES;
use crate::bindings::load_balancers;
use crate::sanitize::excerpt;

/// The most ingress points of a Service: two address families in each of a region's zones, and some to spare.
pub(super) const MAX_INGRESSES: usize = 16;

/// The most ports of an ingress point: clouds accept 300 rules at most.
pub(super) const MAX_PORTS: usize = 512;

/// The longest error reason of a port, in bytes, as in the Kubernetes API.
pub(super) const MAX_REASON_BYTES: usize = 316;

pub(super) fn status_from_wit(status: Vec<load_balancers::Ingress>) -> Result<Vec<Ingress>, String> {
    if status.len() > MAX_INGRESSES {
        return Err(format!("{} ingress points; the limit is {MAX_INGRESSES}", status.len()));
    }
    status.into_iter().map(ingress_from_wit).collect()
}

fn ingress_from_wit(ingress: load_balancers::Ingress) -> Result<Ingress, String> {
    let load_balancers::Ingress { point, ip_mode, ports } = ingress;
    if ports.len() > MAX_PORTS {
        return Err(format!("{} ports of one ingress point; the limit is {MAX_PORTS}", ports.len()));
    }
    let (point, ip_mode) = match point {
        load_balancers::IngressPoint::Ip(ip) => {
            let mode = match ip_mode {
                // The API server's default: without it, a stored status would never equal the reported one.
                Some(load_balancers::IpMode::Vip) | None => IpMode::Vip,
                Some(load_balancers::IpMode::Proxy) => IpMode::Proxy,
            };
            (IngressPoint::Ip(checked_address(&ip)?), Some(mode))
        }
        load_balancers::IngressPoint::Hostname(name) => {
            (IngressPoint::Hostname(checked_hostname(&name)?), None)
        }
    };
    let ports = ports.into_iter().map(port_from_wit).collect::<Result<_, _>>()?;
    Ok(Ingress { point, ip_mode, ports })
}

/// Checks an address of a load balancer and returns its canonical form. Each Node sends traffic for this address to the
/// Service's endpoints. So an address that means the Node itself, its link (where metadata services are), or a group of
/// hosts is refused.
fn checked_address(ip: &str) -> Result<String, String> {
    let address: IpAddr = ip.parse().map_err(|_| format!("invalid IP address {:?}", excerpt(ip)))?;
    let address = address.to_canonical();
    let is_link_local_or_broadcast = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_link_local_or_broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
    {
        return Err(format!("{address} can't be the address of a load balancer"));
    }
    Ok(address.to_string())
}

/// Checks a host name and returns it as the API server accepts it: a DNS name in lower case that isn't an IP address.
fn checked_hostname(name: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphanumeric())
            && label.ends_with(|c: char| c.is_ascii_alphanumeric())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) || name.parse::<IpAddr>().is_ok() {
        return Err(format!("invalid host name {:?}", excerpt(name)));
    }
    Ok(name.to_ascii_lowercase())
}

fn port_from_wit(port: load_balancers::PortStatus) -> Result<PortStatus, String> {
    let load_balancers::PortStatus { port, protocol, error } = port;
    if port == 0 {
        return Err("invalid port 0 of an ingress point".to_owned());
    }
    let error = error.filter(|reason| !reason.is_empty());
    let is_reason = |reason: &String| {
        reason.len() <= MAX_REASON_BYTES
            && reason.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
    };
    if let Some(reason) = error.as_ref().filter(|reason| !is_reason(reason)) {
        return Err(format!("port {port}: invalid reason {:?}; expected CamelCase", excerpt(reason)));
    }
    let protocol = match protocol {
        load_balancers::Protocol::Tcp => Protocol::Tcp,
        load_balancers::Protocol::Udp => Protocol::Udp,
        load_balancers::Protocol::Sctp => Protocol::Sctp,
    };
    Ok(PortStatus { port, protocol, error })
}
