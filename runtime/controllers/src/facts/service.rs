//! A Service as the service controller sees it, and what is wrong with it.
//!
//! All that a provider may see of it is read once, into the very record that the provider gets. What can't be read isn't
//! passed on in parts: a source range that is left out would open or close a load balancer for somebody.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use pileus_cloud::{
    AnnotationType, Ingress, IngressPoint, IpFamily, IpMode, PortStatus, Protocol, Service, ServicePort,
    ServiceRequirements, SessionAffinity, TargetSelection, TrafficPolicy,
};

use crate::well_known::{ANNOTATION_SOURCE_RANGES, FINALIZER_LOAD_BALANCER};

/// What the service controller knows of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// What a provider may see of it. Its targets and endpoints are those of the moment of a call, and so none here.
    pub service: Service,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether its type is LoadBalancer.
    pub is_load_balancer: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// How many ready endpoints it has on which Node, where its policy is Local and the provider asked for them. It isn't
    /// in the object: whoever watches endpoints puts it here, as it puts the namespace's labels into `service`.
    pub local_endpoints: BTreeMap<String, u32>,
    /// What is wrong with it and what would be right, a sentence each. Nothing is asked of the cloud for such a Service
    /// except its deletion.
    pub problems: Vec<String>,
}

impl ServiceFacts {
    /// Reads a Service, and of its annotations those that the terms name.
    pub(crate) fn read(service: core::Service, terms: &ServiceRequirements) -> Self {
        let core::Service { metadata, spec, status } = service;
        let (mut spec, mut problems) = (spec.unwrap_or_default(), Vec::new());
        let all = metadata.annotations.unwrap_or_default();
        let is_load_balancer = spec.type_.as_deref() == Some("LoadBalancer");
        let ports = ports(std::mem::take(&mut spec.ports), &mut problems);
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
            annotations: annotations(all, terms, &mut problems),
            class: spec.load_balancer_class,
            ports,
            requested_ip: spec.load_balancer_ip.filter(|text| !text.is_empty()),
            families: spec.ip_families.iter().flatten().filter_map(|text| family(text)).collect(),
            endpoints: Vec::new(),
            targets: TargetSelection::All,
            status: ingress.into_iter().flatten().flat_map(ways_in).collect(),
        };
        problems.truncate(PROBLEMS);
        Self {
            service,
            resource_version: metadata.resource_version.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_load_balancer,
            finalizers: metadata.finalizers.unwrap_or_default(),
            local_endpoints: BTreeMap::new(),
            problems,
        }
    }

    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.service.namespace, self.service.name)
    }

    /// Whether another look at the same Service is later than this one, as far as resource versions tell (KEP-5504).
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let version = |facts: &Self| facts.resource_version.parse::<u128>().ok();
        version(self).zip(version(other)).is_some_and(|(version, other)| version < other)
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
            problems.push(format!("port {port} is none: expected 1 to 65535"));
            continue;
        };
        let Some(protocol) = protocol_of(protocol.as_deref().unwrap_or("TCP")) else {
            let protocol = protocol.unwrap_or_default();
            problems.push(format!("port {port} has protocol {protocol}: expected TCP, UDP or SCTP"));
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

/// The API server gives every Service of type LoadBalancer with policy Local a port for health checks.
fn policy(spec: &core::ServiceSpec, is_load_balancer: bool, problems: &mut Vec<String>) -> TrafficPolicy {
    if !is_load_balancer || spec.external_traffic_policy.as_deref() != Some("Local") {
        return TrafficPolicy::Cluster;
    }
    match spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default() {
        0 => {
            problems.push(
                "spec.externalTrafficPolicy is Local without spec.healthCheckNodePort: load balancers find the nodes \
                 with endpoints by it"
                    .to_owned(),
            );
            TrafficPolicy::Cluster
        }
        port => TrafficPolicy::Local(port),
    }
}

/// What the API server fills in where a user doesn't say how long.
const STICKY: Duration = Duration::from_hours(3);

fn affinity(spec: &core::ServiceSpec) -> SessionAffinity {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return SessionAffinity::None;
    }
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    SessionAffinity::ClientIp(seconds.map_or(STICKY, Duration::from_secs))
}

/// Upstream's reading (ccm-behaviour 10.5): the field, or where it is empty the annotation, separated by commas; blanks
/// around a range are passed over, what is named twice is one, and none means everybody.
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

/// How much of what is wrong with a Service is told: what fits into an event. A user can write a hundred thousand wrong
/// ranges into one annotation.
const PROBLEMS: usize = 8;

/// Each range once, in its canonical form. `field` is where they stand.
fn ranges(texts: &[&str], field: &str, problems: &mut Vec<String>) -> Vec<IpNet> {
    let (mut ranges, mut seen) = (Vec::new(), HashSet::new());
    for text in texts {
        match text.trim().parse::<IpNet>().map(|range| range.trunc()) {
            Ok(range) if !seen.insert(range) => {}
            Ok(range) => ranges.push(range),
            Err(_) if problems.len() >= PROBLEMS => {}
            Err(_) => problems.push(format!(
                "{field} has {}, which is no address range: expected one such as 192.0.2.0/24 or 2001:db8::/32",
                shown(text)
            )),
        }
    }
    ranges
}

/// Those that the terms name, in the order of their keys, with what is wrong with their values. Booleans are in their
/// normal form, so that a provider compares with one word, and another spelling is no change.
fn annotations(
    all: BTreeMap<String, String>,
    terms: &ServiceRequirements,
    problems: &mut Vec<String>,
) -> Vec<(String, String)> {
    let mut named = Vec::new();
    for (key, mut value) in all {
        let Some((_, kind)) = terms.annotations.iter().find(|(pattern, _)| names(pattern, &key)) else {
            continue;
        };
        let expected = match kind {
            AnnotationType::Boolean => match boolean(&value) {
                Some(is) => {
                    value = is.to_string();
                    None
                }
                None => Some("true or false"),
            },
            AnnotationType::Integer if value.parse::<i64>().is_err() => Some("a whole number"),
            AnnotationType::RangeList if !value.trim().is_empty() => {
                let texts: Vec<&str> = value.split(',').collect();
                ranges(&texts, &format!("annotation {key}"), problems);
                None
            }
            _ => None,
        };
        if let Some(expected) = expected {
            problems.push(format!("annotation {key} has {}: expected {expected}", shown(&value)));
        }
        named.push((key, value));
    }
    named
}

/// A boolean as users of today's controllers write it: what Go's `strconv.ParseBool` reads, as most of them use, and the
/// two words in any case, as Azure's compares.
fn boolean(text: &str) -> Option<bool> {
    let is = |words: [&str; 3]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match text {
        _ if is(["true", "t", "1"]) => Some(true),
        _ if is(["false", "f", "0"]) => Some(false),
        _ => None,
    }
}

/// Whether a pattern, with at most one `*` that stands for at least one character, is one of this key.
fn names(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((before, after)) => {
            key.len() > before.len() + after.len() && key.starts_with(before) && key.ends_with(after)
        }
    }
}

/// How much of a value that makes no sense is shown, in bytes: an address range and more.
const SHOWN: usize = 100;

/// A quarter of a megabyte fits into an annotation, and the reason should fit into an event.
fn shown(text: &str) -> String {
    format!("{:?}", text.get(..text.floor_char_boundary(SHOWN)).unwrap_or_default())
}

/// An entry with both an address and a name is two ways in: no provider can have told it so.
fn ways_in(ingress: core::LoadBalancerIngress) -> impl Iterator<Item = Ingress> {
    let core::LoadBalancerIngress { hostname, ip, ip_mode, ports } = ingress;
    let ports: Vec<_> = ports.into_iter().flatten().filter_map(port_status).collect();
    // What the API server fills in as well, so that nothing looks changed that isn't.
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
impl ServiceFacts {
    /// A Service of type LoadBalancer that a user has just created in the namespace `default`.
    pub(crate) fn balanced(name: &str) -> Self {
        let port = ServicePort {
            name: String::new(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: Some(30080),
            app_protocol: None,
        };
        let service = Service {
            ports: vec![port],
            families: vec![IpFamily::Ipv4],
            ..Service::named("default", name, format!("uid-{name}"))
        };
        Self {
            service,
            resource_version: "1".to_owned(),
            is_deleting: false,
            is_load_balancer: true,
            finalizers: Vec::new(),
            local_endpoints: BTreeMap::new(),
            problems: Vec::new(),
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn terms() -> ServiceRequirements {
        let annotations = [
            ("x/name", AnnotationType::Text),
            ("x/names", AnnotationType::TextList),
            ("x/is", AnnotationType::Boolean),
            ("x/count", AnnotationType::Integer),
            ("x/ranges", AnnotationType::RangeList),
            ("probe_*_path", AnnotationType::Integer),
        ];
        let annotations = annotations.map(|(key, kind)| (key.to_owned(), kind)).to_vec();
        ServiceRequirements { annotations, ..ServiceRequirements::default() }
    }

    fn read(spec: Value, annotations: Value) -> ServiceFacts {
        let mut service = json!({
            "metadata": {"namespace": "default", "name": "web", "uid": "u", "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        for (key, value) in spec.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        ServiceFacts::read(serde_json::from_value(service).unwrap(), &terms())
    }

    /// The source ranges that the field says, and that the annotation says, which must agree.
    fn source_ranges_of(texts: &str) -> (Vec<String>, usize) {
        let field: Vec<_> = texts.split(',').collect();
        let [field, annotation] = [
            read(json!({"loadBalancerSourceRanges": field}), json!({})),
            read(json!({}), json!({ANNOTATION_SOURCE_RANGES: texts})),
        ];
        assert_eq!(field.service.source_ranges, annotation.service.source_ranges, "{texts}");
        assert_eq!(field.problems.len(), annotation.problems.len(), "{texts}");
        (field.service.source_ranges.iter().map(ToString::to_string).collect(), field.problems.len())
    }

    #[test]
    fn h19_what_is_no_source_range_is_a_problem_that_says_what_would_be_right() {
        for texts in ["10.0.0.1/33", "foo.bar", "10.0.0.1/32,*", "10.0.0.1/32,", "10.0.0.1/32, ", "10.0.0.1"]
        {
            assert_eq!(source_ranges_of(texts).1, 1, "{texts}");
        }
        let facts = read(json!({"loadBalancerSourceRanges": ["10.0.0.1"]}), json!({}));
        assert_eq!(
            facts.problems,
            [
                "spec.loadBalancerSourceRanges has \"10.0.0.1\", which is no address range: expected one such as \
              192.0.2.0/24 or 2001:db8::/32"
            ]
        );
        let long = "x".repeat(100_000);
        assert!(read(json!({}), json!({ANNOTATION_SOURCE_RANGES: long})).problems[0].len() < 400);
    }

    #[test]
    fn however_much_is_wrong_what_is_told_of_it_stays_short() {
        let texts = "x,".repeat(100_000);
        for facts in [
            read(json!({}), json!({ANNOTATION_SOURCE_RANGES: texts})),
            read(json!({"ports": vec![json!({"port": -1}); 100]}), json!({"x/ranges": texts, "x/is": "x"})),
        ] {
            assert_eq!(facts.problems.len(), PROBLEMS);
        }
    }

    /// Nobody else than everybody is an empty list, as in the contract; upstream says `0.0.0.0/0`, which leaves out IPv6.
    #[test]
    fn h20_source_ranges_are_read_trimmed_and_once_and_none_means_everybody() {
        for (texts, ranges) in [
            ("192.168.0.1/32", ["192.168.0.1/32"].as_slice()),
            ("192.168.0.1/32,192.168.0.1/32", &["192.168.0.1/32"]),
            ("192.168.0.1/32,192.168.0.2/32", &["192.168.0.1/32", "192.168.0.2/32"]),
            ("  192.168.0.1/32 , 192.168.0.2/32   ", &["192.168.0.1/32", "192.168.0.2/32"]),
            ("10.0.0.7/8,2001:db8:0::1/32", &["10.0.0.0/8", "2001:db8::/32"]),
        ] {
            let ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
            assert_eq!(source_ranges_of(texts), (ranges, 0), "{texts}");
        }
        for annotations in
            [json!({}), json!({ANNOTATION_SOURCE_RANGES: ""}), json!({ANNOTATION_SOURCE_RANGES: " "})]
        {
            let facts = read(json!({"loadBalancerSourceRanges": []}), annotations);
            assert!(facts.service.source_ranges.is_empty() && facts.problems.is_empty());
        }
        let both =
            read(json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}), json!({ANNOTATION_SOURCE_RANGES: "*"}));
        assert_eq!((both.service.source_ranges.len(), both.problems.len()), (1, 0), "the field goes first");
    }

    #[test]
    fn h21_h22_everybody_may_where_a_range_says_so_and_local_is_a_load_balancer_with_that_policy() {
        for range in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "10.0.0.0/8"] {
            assert_eq!(source_ranges_of(range), (vec![range.to_owned()], 0));
        }
        for (kind, policy, port, expected) in [
            ("LoadBalancer", "Local", 32000, TrafficPolicy::Local(32000)),
            ("LoadBalancer", "Cluster", 32000, TrafficPolicy::Cluster),
            ("LoadBalancer", "Cluster", 0, TrafficPolicy::Cluster),
            // A NodePort has nothing that a provider sees.
            ("NodePort", "Local", 32000, TrafficPolicy::Cluster),
            ("ClusterIP", "Local", 0, TrafficPolicy::Cluster),
        ] {
            let spec = json!({"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": port});
            let facts = read(spec, json!({}));
            assert_eq!((facts.service.policy, facts.problems.len()), (expected, 0), "{kind} {policy}");
        }
        let spec = json!({"externalTrafficPolicy": "Local"});
        assert!(read(spec, json!({})).problems[0].contains("healthCheckNodePort"));
    }

    #[test]
    fn all_that_a_provider_may_see_is_read() {
        let service = json!({
            "metadata": {
                "namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7",
                "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x/y"],
                "labels": {"b": "2", "a": "1"}, "annotations": {"x/name": "n", "other": "?"},
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "c", "loadBalancerIP": "192.0.2.7",
                "ipFamilies": ["IPv6", "IPv4"], "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
                "ports": [
                    {"name": "p", "port": 80, "nodePort": 30080, "protocol": "UDP", "appProtocol": "x"},
                    {"port": 81, "nodePort": 0, "targetPort": "http"},
                ],
            },
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "SCTP", "error": "E"}]},
                {"ip": "192.0.2.2", "ipMode": "Proxy"}, {"hostname": "a.example"},
                {"ip": "192.0.2.3", "hostname": "b.example"},
            ]}},
        });
        let facts = ServiceFacts::read(serde_json::from_value(service).unwrap(), &terms());
        let port = |name: &str, protocol, port, node_port, app: Option<&str>| ServicePort {
            name: name.to_owned(),
            protocol,
            port,
            node_port,
            app_protocol: app.map(str::to_owned),
        };
        let ip = |ip: &str, mode, ports| Ingress {
            point: IngressPoint::Ip(ip.to_owned()),
            ip_mode: Some(mode),
            ports,
        };
        let hostname = |name: &str| Ingress {
            point: IngressPoint::Hostname(name.to_owned()),
            ip_mode: None,
            ports: Vec::new(),
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let error = PortStatus { port: 80, protocol: Protocol::Sctp, error: Some("E".to_owned()) };
        let expected = Service {
            labels: vec![pair("a", "1"), pair("b", "2")],
            annotations: vec![pair("x/name", "n")],
            class: Some("c".to_owned()),
            ports: vec![
                port("p", Protocol::Udp, 80, Some(30080), Some("x")),
                port("", Protocol::Tcp, 81, None, None),
            ],
            affinity: SessionAffinity::ClientIp(Duration::from_secs(7)),
            requested_ip: Some("192.0.2.7".to_owned()),
            families: vec![IpFamily::Ipv6, IpFamily::Ipv4],
            status: vec![
                ip("192.0.2.1", IpMode::Vip, vec![error]),
                ip("192.0.2.2", IpMode::Proxy, Vec::new()),
                hostname("a.example"),
                ip("192.0.2.3", IpMode::Vip, Vec::new()),
                hostname("b.example"),
            ],
            uid: "u".to_owned(),
            ..ServiceFacts::balanced("web").service
        };
        assert_eq!(facts.service, expected);
        assert_eq!((facts.key().as_str(), facts.resource_version.as_str()), ("default/web", "7"));
        assert!(
            facts.is_deleting
                && facts.is_load_balancer
                && !facts.has_finalizer()
                && facts.problems.is_empty()
        );
        assert_eq!(
            read(json!({"sessionAffinity": "ClientIP"}), json!({})).service.affinity,
            SessionAffinity::ClientIp(STICKY)
        );
        let other = read(json!({"loadBalancerIP": "", "type": "ClusterIP"}), json!({}));
        assert!(other.service.requested_ip.is_none() && !other.is_load_balancer && !other.is_deleting);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let port = |port: Value| json!({"ports": [port]});
        for (spec, annotations, problem) in [
            (
                json!({"ports": []}),
                json!({}),
                Some("spec.ports is empty: a load balancer needs at least one port"),
            ),
            (port(json!({"port": 0x1_0050})), json!({}), Some("port 65616 is none: expected 1 to 65535")),
            (
                port(json!({"port": 80, "protocol": "QUIC"})),
                json!({}),
                Some("port 80 has protocol QUIC: expected TCP, UDP or SCTP"),
            ),
            (json!({}), json!({"x/is": "yes"}), Some("annotation x/is has \"yes\": expected true or false")),
            (json!({}), json!({"x/is": ""}), Some("annotation x/is has \"\": expected true or false")),
            (
                json!({}),
                json!({"x/is": " true"}),
                Some("annotation x/is has \" true\": expected true or false"),
            ),
            (json!({}), json!({"x/is": "false"}), None),
            (
                json!({}),
                json!({"x/count": "1.5"}),
                Some("annotation x/count has \"1.5\": expected a whole number"),
            ),
            (json!({}), json!({"x/count": "-15"}), None),
            (
                json!({}),
                json!({"x/ranges": "10.0.0.0/8,all"}),
                Some(
                    "annotation x/ranges has \"all\", which is no address range: expected one such as 192.0.2.0/24 or \
                     2001:db8::/32",
                ),
            ),
            (json!({}), json!({"x/ranges": "10.0.0.0/8, 2001:db8::/32"}), None),
            (json!({}), json!({"x/ranges": ""}), None),
            (json!({}), json!({"x/names": "a,,b", "x/name": "\u{1F600}"}), None),
            (
                json!({}),
                json!({"probe_80_path": "x"}),
                Some("annotation probe_80_path has \"x\": expected a whole number"),
            ),
            // Patterns stand for at least one character, and what isn't named isn't read.
            (json!({}), json!({"probe__path": "x", "x/isnt": "yes"}), None),
        ] {
            let problems = read(spec, annotations.clone()).problems;
            assert_eq!(
                problems,
                problem.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(),
                "{annotations}"
            );
        }
    }

    #[test]
    fn a_boolean_reaches_the_provider_as_one_of_two_words() {
        for (words, expected) in [
            (["1", "t", "T", "TRUE", "true", "True", "tRUE"], "true"),
            (["0", "f", "F", "FALSE", "false", "False", "fALSE"], "false"),
        ] {
            for word in words {
                let facts = read(json!({}), json!({"x/is": word, "x/name": word}));
                let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
                // A text stays as it was written.
                let annotations = vec![pair("x/is", expected), pair("x/name", word)];
                assert_eq!((facts.service.annotations, facts.problems), (annotations, Vec::new()), "{word}");
            }
        }
    }

    #[test]
    fn later_looks_are_told_from_earlier_ones_where_versions_are_numbers() {
        let at = |version: &str| ServiceFacts {
            resource_version: version.to_owned(),
            ..ServiceFacts::balanced("a")
        };
        for (version, other, is_older) in
            [("9", "10", true), ("10", "9", false), ("9", "9", false), ("a", "b", false), ("9", "b", false)]
        {
            assert_eq!(at(version).is_older_than(&at(other)), is_older, "{version} {other}");
        }
    }
}
