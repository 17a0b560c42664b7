//! What a Service asks for that can't work.

use std::net::IpAddr;

use ipnet::IpNet;
use pileus_cloud::{IpFamily, Service, ServicePort};

/// Refuses ports without node ports. A cloud that forwards to the Nodes would use the Service's own port there, which may be
/// that of another program on the Node.
pub(super) fn require_node_ports(ports: &[ServicePort], problems: &mut Vec<String>) {
    let missing = ports.iter().filter(|port| port.node_port.is_none()).map(|port| port.port.to_string());
    let missing: Vec<_> = missing.take(MAX_SHOWN_PORTS).collect();
    if !missing.is_empty() {
        problems.push(format!(
            "port {} has no node port, which this cloud's load balancers forward to: remove \
             spec.allocateLoadBalancerNodePorts, or set nodePort",
            missing.join(", ")
        ));
    }
}

/// The most ports that a message names.
const MAX_SHOWN_PORTS: usize = 10;

/// Compares the addresses of a Service with its IP families. Without a source range of its only family no client could connect,
/// and some clouds let every client connect where the list of a family is empty.
pub(super) fn compare_families(service: &Service, problems: &mut Vec<String>, warnings: &mut Vec<String>) {
    let Service { families, source_ranges, requested_ip, .. } = service;
    let name = |family: &IpFamily| if *family == IpFamily::Ipv4 { "IPv4" } else { "IPv6" };
    let of_range = |range: &IpNet| family_of(range.addr());
    let is_closed = |family: &&IpFamily| !source_ranges.iter().any(|range| of_range(range) == **family);
    let closed: Vec<_> = families.iter().filter(is_closed).map(name).collect();
    if !source_ranges.is_empty() && problems.is_empty() && !closed.is_empty() {
        let closed_families = closed.join(" and ");
        if closed.len() == families.len() {
            problems.push(format!(
                "the source ranges have no {closed_families} range, so that no client could connect to the {closed_families} \
                 load balancer: add one, or change spec.ipFamilies"
            ));
        } else {
            warnings.push(format!(
                "the source ranges have no {closed_families} range, so that no client can connect by {closed_families}"
            ));
        }
    }
    let ip = requested_ip.as_ref().and_then(|text| text.parse().ok()).map(family_of);
    if let Some(family) = ip.filter(|family| !families.is_empty() && !families.contains(family)) {
        let family = name(&family);
        problems.push(format!(
            "spec.loadBalancerIP is an {family} address, but spec.ipFamilies lacks {family}: change one of them"
        ));
    }
}

fn family_of(ip: IpAddr) -> IpFamily {
    if ip.is_ipv4() { IpFamily::Ipv4 } else { IpFamily::Ipv6 }
}
