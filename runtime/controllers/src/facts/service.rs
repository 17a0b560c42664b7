//! A Service as the service controller sees it, with the problems that make it invalid.
//!
//! All that a provider may see is read once, into the record that the provider gets. An invalid Service isn't passed on in
//! parts: without one of its source ranges a load balancer would be open to other clients than the user wants.

mod annotations;
mod feasibility;
mod node_selector;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use pileus_cloud::{
    Ingress, IngressPoint, IpFamily, IpMode, PortStatus, Protocol, Service, ServicePort, ServiceRequirements,
    SessionAffinity, TargetSelection, TrafficPolicy,
};

use crate::well_known::{ANNOTATION_PROVIDER, ANNOTATION_SOURCE_RANGES, FINALIZER_LOAD_BALANCER};
pub use annotations::is_valid_annotation;
use annotations::{annotations, node_selector, unread_annotations, written_annotations};
use feasibility::{compare_families, require_node_ports};
pub use node_selector::NodeSelector;

/// What the service controller knows of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// What a provider may see. Targets and endpoints are added for each call, and so say nothing here.
    pub service: Service,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// How often the API server's store had gone back to an older state when it was read. Versions compare only where this is
    /// the same.
    pub rollbacks: u32,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether its type is LoadBalancer.
    pub is_load_balancer: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// The value of [`ANNOTATION_PROVIDER`].
    pub mark: Option<String>,
    /// Which Nodes its annotations choose.
    pub node_selector: NodeSelector,
    /// Its annotations that the provider sets. What is in them is no change by a user.
    pub written_annotations: BTreeMap<String, String>,
    /// How many ready endpoints it has on each Node, where its policy is Local and the provider reads endpoints. This isn't
    /// in the object: [`crate::services`] adds it, as it adds the namespace's labels to `service`.
    pub local_endpoints: BTreeMap<String, u32>,
    /// Its problems, a sentence each that says what to do. For an invalid Service the cloud is asked for nothing but its
    /// deletion.
    pub problems: Vec<String>,
    /// What of it has no effect, a sentence each. The load balancer is made all the same.
    pub warnings: Vec<String>,
}

impl ServiceFacts {
    /// Reads a Service, with the annotations that `requirements` names.
    pub(crate) fn read(service: core::Service, requirements: &ServiceRequirements) -> Self {
        let core::Service { metadata, spec, status } = service;
        let (mut spec, mut problems) = (spec.unwrap_or_default(), Vec::new());
        let all = metadata.annotations.unwrap_or_default();
        let is_load_balancer = spec.type_.as_deref() == Some("LoadBalancer");
        let mut warnings = Vec::new();
        if is_load_balancer {
            unread_annotations(&all, requirements, &mut warnings);
        }
        let ports = ports(std::mem::take(&mut spec.ports), &mut problems);
        if is_load_balancer && !requirements.takes_missing_node_ports {
            require_node_ports(&ports, &mut problems);
        }
        let written_annotations = written_annotations(&all, requirements);
        let mark = all.get(ANNOTATION_PROVIDER).cloned();
        let finalizers = metadata.finalizers.unwrap_or_default();
        let ingress = status.and_then(|status| status.load_balancer).and_then(|status| status.ingress);
        let service = Service {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default().into_iter().collect(),
            namespace_labels: Vec::new(),
            policy: policy(&spec, is_load_balancer, &mut problems),
            affinity: affinity(&spec),
            source_ranges: source_ranges(&spec, &all, &mut problems),
            annotations: annotations(all, requirements, &mut problems),
            class: spec.load_balancer_class,
            finalizers: finalizers.iter().filter(|name| *name != FINALIZER_LOAD_BALANCER).cloned().collect(),
            ports,
            requested_ip: spec
                .load_balancer_ip
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
            families: spec.ip_families.iter().flatten().filter_map(|text| family(text)).collect(),
            endpoints: Vec::new(),
            targets: TargetSelection::All,
            status: ingress.into_iter().flatten().flat_map(ingress_entries).collect(),
        };
        let node_selector = node_selector(&service.annotations, requirements, &mut problems);
        if is_load_balancer {
            compare_families(&service, &mut problems, &mut warnings);
        }
        problems.truncate(MAX_PROBLEMS);
        Self {
            service,
            resource_version: metadata.resource_version.unwrap_or_default(),
            rollbacks: 0,
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_load_balancer,
            finalizers,
            mark,
            node_selector,
            written_annotations,
            local_endpoints: BTreeMap::new(),
            problems,
            warnings,
        }
    }

    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.service.namespace, self.service.name)
    }

    /// Whether this state of a Service is older than another one, as far as resource versions say (KEP-5504).
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let version = |facts: &Self| Some((facts.rollbacks, facts.resource_version.parse::<u128>().ok()?));
        version(self).zip(version(other)).is_some_and(|(version, other)| version < other)
    }

    /// The name of the provider that made its load balancer, where the Service says so.
    pub(crate) fn marked_by(&self) -> Option<&str> {
        self.mark.as_deref().filter(|_| self.has_finalizer())
    }

    /// Whose it is, for a message: the provider that it names, or its class.
    pub(crate) fn owner_in_words(&self) -> String {
        match (self.marked_by(), &self.service.class) {
            (Some(provider), _) => format!("provider {provider}"),
            (None, Some(class)) => format!("class {class}"),
            (None, None) => "no class".to_owned(),
        }
    }

    /// Whether it has the finalizer that keeps it until its load balancer is gone.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER_LOAD_BALANCER)
    }
}

fn ports(ports: Option<Vec<core::ServicePort>>, problems: &mut Vec<String>) -> Vec<ServicePort> {
    let mut read = Vec::new();
    for port in ports.into_iter().flatten() {
        let core::ServicePort { app_protocol, name, node_port, port, protocol, target_port: _ } = port;
        let Ok(number) = u16::try_from(port) else {
            problems.push(format!("invalid port {port}: use 1 to 65535"));
            continue;
        };
        let Some(protocol) = protocol_of(protocol.as_deref().unwrap_or("TCP")) else {
            let protocol = protocol.unwrap_or_default();
            problems.push(format!("port {port} has an invalid protocol {protocol}: use TCP, UDP or SCTP"));
            continue;
        };
        read.push(ServicePort {
            name: name.unwrap_or_default(),
            protocol,
            port: number,
            node_port: node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
            app_protocol,
        });
    }
    if read.is_empty() && problems.is_empty() {
        problems.push("spec.ports is empty: a load balancer needs at least one port".to_owned());
    }
    read
}

fn protocol_of(text: &str) -> Option<Protocol> {
    [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|protocol| protocol.as_str() == text)
}

fn family(text: &str) -> Option<IpFamily> {
    match text {
        "IPv4" => Some(IpFamily::Ipv4),
        "IPv6" => Some(IpFamily::Ipv6),
        _ => None,
    }
}

/// The traffic policy. The API server allocates a health check port for each Service of type LoadBalancer with policy Local.
fn policy(spec: &core::ServiceSpec, is_load_balancer: bool, problems: &mut Vec<String>) -> TrafficPolicy {
    if !is_load_balancer || spec.external_traffic_policy.as_deref() != Some("Local") {
        return TrafficPolicy::Cluster;
    }
    match spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default() {
        0 => {
            problems.push(
                "spec.externalTrafficPolicy is Local without spec.healthCheckNodePort, by which load balancers find \
                 the nodes with endpoints: set it, or use the policy Cluster"
                    .to_owned(),
            );
            TrafficPolicy::Cluster
        }
        port => TrafficPolicy::Local(port),
    }
}

/// The API server's default timeout.
const AFFINITY_TIMEOUT: Duration = Duration::from_hours(3);

fn affinity(spec: &core::ServiceSpec) -> SessionAffinity {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return SessionAffinity::None;
    }
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    SessionAffinity::ClientIp(seconds.map_or(AFFINITY_TIMEOUT, Duration::from_secs))
}

/// As upstream: the field, or where that is empty the annotation, separated by commas. Blanks around a range and repeated
/// ranges are ignored. Without ranges all clients are allowed.
fn source_ranges(
    spec: &core::ServiceSpec,
    annotations: &BTreeMap<String, String>,
    problems: &mut Vec<String>,
) -> Vec<IpNet> {
    let texts: Vec<&str> = spec.load_balancer_source_ranges.iter().flatten().map(String::as_str).collect();
    if !texts.is_empty() {
        return ranges(&texts, "spec.loadBalancerSourceRanges", problems);
    }
    let text = annotations.get(ANNOTATION_SOURCE_RANGES).map_or("", |text| text.trim());
    let texts: Vec<&str> = text.split(',').filter(|_| !text.is_empty()).collect();
    ranges(&texts, &format!("annotation {ANNOTATION_SOURCE_RANGES}"), problems)
}

/// The most problems of one Service, so that they fit into an event: an annotation can hold a hundred thousand invalid
/// ranges.
const MAX_PROBLEMS: usize = 8;

/// Each range once, in its canonical form. `field` says where they come from.
fn ranges(texts: &[&str], field: &str, problems: &mut Vec<String>) -> Vec<IpNet> {
    let (mut ranges, mut seen) = (Vec::new(), HashSet::new());
    for text in texts {
        match text.trim().parse::<IpNet>().map(|range| range.trunc()) {
            Ok(range) if !seen.insert(range) => {}
            Ok(range) => ranges.push(range),
            Err(_) if problems.len() >= MAX_PROBLEMS => {}
            Err(_) => problems.push(format!(
                "{field} has an invalid CIDR {}: use one such as 192.0.2.0/24 or 2001:db8::/32",
                shown(text)
            )),
        }
    }
    ranges
}

/// How much of an invalid value a message shows, in bytes: more than a CIDR has.
const MAX_SHOWN: usize = 100;

/// A value for a message. An annotation may hold a quarter of a megabyte, and a message has to fit into an event.
fn shown(text: &str) -> String {
    format!("{:?}", text.get(..text.floor_char_boundary(MAX_SHOWN)).unwrap_or_default())
}

/// An entry of the status. One with both an address and a host name, which no provider reports, becomes two.
fn ingress_entries(ingress: core::LoadBalancerIngress) -> impl Iterator<Item = Ingress> {
    let core::LoadBalancerIngress { hostname, ip, ip_mode, ports } = ingress;
    let ports: Vec<_> = ports.into_iter().flatten().filter_map(port_status).collect();
    // The API server's default, so that an entry without it is no difference.
    let mode = if ip_mode.as_deref() == Some("Proxy") { IpMode::Proxy } else { IpMode::Vip };
    let ip = ip.filter(|text| !text.is_empty()).map(|ip| (IngressPoint::Ip(ip), Some(mode)));
    let hostname = hostname.filter(|text| !text.is_empty()).map(|name| (IngressPoint::Hostname(name), None));
    ip.into_iter().chain(hostname).map(move |(point, ip_mode)| Ingress {
        point,
        ip_mode,
        ports: ports.clone(),
    })
}

fn port_status(status: core::PortStatus) -> Option<PortStatus> {
    let core::PortStatus { error, port, protocol } = status;
    Some(PortStatus { port: u16::try_from(port).ok()?, protocol: protocol_of(&protocol)?, error })
}

#[cfg(test)]
mod tests;
