//! Converts the status of a load balancer, which ends up in the status of its Service. Kube-proxy and DNS direct traffic by
//! it, so it is checked here against the API server's rules.

use std::net::IpAddr;

use pileus_cloud::{Ingress, IngressPoint, IpMode, PortStatus, Protocol};
use pileus_gate::check_output;

use super::names::host_name;
use crate::bindings::load_balancers;
use crate::sanitize::excerpt;

/// The most ingress points of a Service: two address families in each of a region's zones, and some to spare.
pub(super) const MAX_INGRESSES: usize = 16;

/// The most ports of an ingress point: clouds accept 300 rules at most.
pub(super) const MAX_PORTS: usize = 512;

/// The reason of a port whose own reason is invalid.
pub(super) const UNKNOWN_REASON: &str = "Unknown";

/// The longest error reason of a port, in bytes, as in the Kubernetes API.
pub(super) const MAX_REASON_BYTES: usize = 316;

/// The entries that can be taken, and what was left out, as sentences: one bad entry doesn't keep the others from clients.
///
/// # Errors
/// What was left out, where that is all.
pub(super) fn status_from_wit(
    status: Vec<load_balancers::Ingress>,
) -> Result<(Vec<Ingress>, Vec<String>), Vec<String>> {
    let (given, mut left_out, mut taken) = (status.len(), Vec::new(), Vec::new());
    for ingress in status {
        match ingress_from_wit(ingress, &mut left_out) {
            Ok(_) if taken.len() == MAX_INGRESSES => {}
            Ok(ingress) => taken.push(ingress),
            Err(problem) => left_out.push(problem),
        }
    }
    if given > MAX_INGRESSES {
        left_out.push(format!("{given} ingress points: the limit is {MAX_INGRESSES}"));
    }
    if taken.is_empty() && given > 0 { Err(left_out) } else { Ok((taken, left_out)) }
}

fn ingress_from_wit(ingress: load_balancers::Ingress, left_out: &mut Vec<String>) -> Result<Ingress, String> {
    let load_balancers::Ingress { point, ip_mode, ports } = ingress;
    let (point, ip_mode) = match point {
        load_balancers::IngressPoint::Ip(ip) => {
            let mode = match ip_mode {
                // The API server's default: without it, a stored status would never equal the reported one.
                Some(load_balancers::IpMode::Vip) | None => IpMode::Vip,
                Some(load_balancers::IpMode::Proxy) => IpMode::Proxy,
            };
            (IngressPoint::Ip(checked_address(&ip)?), Some(mode))
        }
        load_balancers::IngressPoint::Hostname(name) => (IngressPoint::Hostname(host_name(&name)?), None),
    };
    if ports.len() > MAX_PORTS {
        left_out.push(format!("{} ports of one ingress point: the limit is {MAX_PORTS}", ports.len()));
    }
    let ports = ports.into_iter().take(MAX_PORTS).filter_map(|port| port_from_wit(port, left_out)).collect();
    Ok(Ingress { point, ip_mode, ports })
}

/// Checks an address of a load balancer and returns its canonical form. Each Node sends traffic for this address to the
/// Service's endpoints. So an address that means the Node itself, its link, a metadata service or a group of hosts is refused.
fn checked_address(ip: &str) -> Result<String, String> {
    let address: IpAddr = ip.parse().map_err(|_| format!("invalid IP address {:?}", excerpt(ip)))?;
    match check_output(address) {
        Ok(address) => Ok(address.to_string()),
        Err(reason) => Err(format!("{address} can't be the address of a load balancer: it is {reason}")),
    }
}

/// A port, without a reason that the API server wouldn't take. That it doesn't work is never left out.
fn port_from_wit(port: load_balancers::PortStatus, left_out: &mut Vec<String>) -> Option<PortStatus> {
    let load_balancers::PortStatus { port, protocol, error } = port;
    if port == 0 {
        left_out.push("invalid port 0 of an ingress point".to_owned());
        return None;
    }
    let is_reason = |reason: &String| {
        reason.len() <= MAX_REASON_BYTES
            && reason.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
    };
    let mut error = error.filter(|reason| !reason.is_empty());
    if let Some(reason) = error.as_mut().filter(|reason| !is_reason(reason)) {
        left_out.push(format!("port {port}: invalid reason {:?}, expected CamelCase", excerpt(reason)));
        UNKNOWN_REASON.clone_into(reason);
    }
    let protocol = match protocol {
        load_balancers::Protocol::Tcp => Protocol::Tcp,
        load_balancers::Protocol::Udp => Protocol::Udp,
        load_balancers::Protocol::Sctp => Protocol::Sctp,
    };
    Some(PortStatus { port, protocol, error })
}
