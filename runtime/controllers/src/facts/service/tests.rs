#![expect(clippy::needless_pass_by_value, reason = "tables of JSON read better without ampersands")]

use serde_json::{Value, json};

use super::*;
use pileus_cloud::AnnotationType;

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
            rollbacks: 0,
            resource_version: "1".to_owned(),
            is_deleting: false,
            is_load_balancer: true,
            finalizers: Vec::new(),
            mark: None,
            node_selector: NodeSelector::default(),
            written_annotations: BTreeMap::new(),
            local_endpoints: BTreeMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

fn requirements() -> ServiceRequirements {
    let annotations = [
        ("x/name", AnnotationType::Text),
        ("x/names", AnnotationType::TextList),
        ("x/is", AnnotationType::Boolean),
        ("x/count", AnnotationType::Integer),
        ("x/ranges", AnnotationType::RangeList),
        ("probe_*_path", AnnotationType::Integer),
        ("x/nodes", AnnotationType::NodeSelector),
        ("x/written", AnnotationType::Text),
    ];
    let annotations = annotations.map(|(key, kind)| (key.to_owned(), kind)).to_vec();
    // The provider sets the last one without reading it.
    let written_annotations = ["x/written", "metallb.io/written"].map(str::to_owned).to_vec();
    ServiceRequirements { annotations, written_annotations, ..ServiceRequirements::default() }
}

fn read(spec: Value, annotations: Value) -> ServiceFacts {
    let mut service = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "u", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    ServiceFacts::read(serde_json::from_value(service).unwrap(), &requirements())
}

/// The source ranges by the field and by the annotation, which must agree.
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
fn h19_an_invalid_source_range_is_a_problem_that_says_what_to_use() {
    for texts in ["10.0.0.1/33", "foo.bar", "10.0.0.1/32,*", "10.0.0.1/32,", "10.0.0.1/32, ", "10.0.0.1"] {
        assert_eq!(source_ranges_of(texts).1, 1, "{texts}");
    }
    let facts = read(json!({"loadBalancerSourceRanges": ["10.0.0.1"]}), json!({}));
    assert_eq!(
        facts.problems,
        [
            "spec.loadBalancerSourceRanges has an invalid CIDR \"10.0.0.1\": use one such as 192.0.2.0/24 or 2001:db8::/32"
        ]
    );
    let long = "x".repeat(100_000);
    assert!(read(json!({}), json!({ANNOTATION_SOURCE_RANGES: long})).problems[0].len() < 400);
}

#[test]
fn problems_stay_short_however_many_there_are() {
    let texts = "x,".repeat(100_000);
    for facts in [
        read(json!({}), json!({ANNOTATION_SOURCE_RANGES: texts})),
        read(json!({"ports": vec![json!({"port": -1}); 100]}), json!({"x/ranges": texts, "x/is": "x"})),
    ] {
        assert_eq!(facts.problems.len(), MAX_PROBLEMS);
    }
}

/// No restriction is an empty list, as in the contract. Upstream has `0.0.0.0/0`, which lacks IPv6.
#[test]
fn h20_source_ranges_are_trimmed_and_unique_and_no_range_allows_all_clients() {
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
fn h21_h22_a_range_may_allow_all_clients_and_only_load_balancers_have_the_policy_local() {
    for range in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "10.0.0.0/8"] {
        assert_eq!(source_ranges_of(range), (vec![range.to_owned()], 0));
    }
    for (kind, policy, port, expected) in [
        ("LoadBalancer", "Local", 32000, TrafficPolicy::Local(32000)),
        ("LoadBalancer", "Cluster", 32000, TrafficPolicy::Cluster),
        ("LoadBalancer", "Cluster", 0, TrafficPolicy::Cluster),
        // A provider sees nothing of a NodePort.
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
fn every_field_that_a_provider_may_see_is_read() {
    let service = json!({
        "metadata": {
            "namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["x/y"],
            "labels": {"b": "2", "a": "1"}, "annotations": {"x/name": "n", "other": "?"},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "c", "loadBalancerIP": " 192.0.2.7\n",
            "ipFamilies": ["IPv6", "IPv4"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}},
            "ports": [
                {"name": "p", "port": 80, "nodePort": 30080, "protocol": "UDP", "appProtocol": "x"},
                {"port": 81, "nodePort": 30081, "targetPort": "http"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "SCTP", "error": "E"}]},
            {"ip": "192.0.2.2", "ipMode": "Proxy"}, {"hostname": "a.example"},
            {"ip": "192.0.2.3", "hostname": "b.example"},
        ]}},
    });
    let facts = ServiceFacts::read(serde_json::from_value(service).unwrap(), &requirements());
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
        finalizers: vec!["x/y".to_owned()],
        ports: vec![
            port("p", Protocol::Udp, 80, Some(30080), Some("x")),
            port("", Protocol::Tcp, 81, Some(30081), None),
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
        facts.is_deleting && facts.is_load_balancer && !facts.has_finalizer() && facts.problems.is_empty()
    );
    assert_eq!(
        read(json!({"sessionAffinity": "ClientIP"}), json!({})).service.affinity,
        SessionAffinity::ClientIp(AFFINITY_TIMEOUT)
    );
    let other = read(json!({"loadBalancerIP": "", "type": "ClusterIP"}), json!({}));
    assert!(other.service.requested_ip.is_none() && !other.is_load_balancer && !other.is_deleting);
}

#[test]
fn each_problem_says_what_to_use_instead() {
    let port = |port: Value| json!({"ports": [port]});
    for (spec, annotations, problem) in [
        (
            json!({"ports": []}),
            json!({}),
            Some("spec.ports is empty: a load balancer needs at least one port"),
        ),
        (port(json!({"port": 0x1_0050})), json!({}), Some("invalid port 65616: use 1 to 65535")),
        (
            port(json!({"port": 80, "protocol": "QUIC", "nodePort": 30080})),
            json!({}),
            Some("port 80 has an invalid protocol QUIC: use TCP, UDP or SCTP"),
        ),
        (
            json!({}),
            json!({"x/is": "yes"}),
            Some("annotation x/is has an invalid value \"yes\": use true or false"),
        ),
        (
            json!({}),
            json!({"x/is": ""}),
            Some("annotation x/is has an invalid value \"\": use true or false"),
        ),
        (
            json!({}),
            json!({"x/is": " true"}),
            Some("annotation x/is has an invalid value \" true\": use true or false"),
        ),
        (json!({}), json!({"x/is": "false"}), None),
        (
            json!({}),
            json!({"x/count": "1.5"}),
            Some("annotation x/count has an invalid value \"1.5\": use a whole number"),
        ),
        (json!({}), json!({"x/count": "-15"}), None),
        (
            json!({}),
            json!({"x/ranges": "10.0.0.0/8,all"}),
            Some(
                "annotation x/ranges has an invalid CIDR \"all\": use one such as 192.0.2.0/24 or 2001:db8::/32",
            ),
        ),
        (json!({}), json!({"x/ranges": "10.0.0.0/8, 2001:db8::/32"}), None),
        (json!({}), json!({"x/ranges": ""}), None),
        (json!({}), json!({"x/names": "a,,b", "x/name": "\u{1F600}"}), None),
        (
            json!({}),
            json!({"probe_80_path": "x"}),
            Some("annotation probe_80_path has an invalid value \"x\": use a whole number"),
        ),
        // A `*` stands for at least one character, and an annotation that isn't named isn't read.
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
fn a_boolean_reaches_the_provider_in_canonical_form() {
    for (words, expected) in [
        (["1", "t", "T", "TRUE", "true", "True", "tRUE"], "true"),
        (["0", "f", "F", "FALSE", "false", "False", "fALSE"], "false"),
    ] {
        for word in words {
            let facts = read(json!({}), json!({"x/is": word, "x/name": word}));
            let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            // A text stays as it is.
            let annotations = vec![pair("x/is", expected), pair("x/name", word)];
            assert_eq!((facts.service.annotations, facts.problems), (annotations, Vec::new()), "{word}");
        }
    }
}

#[test]
fn an_older_state_is_recognized_where_versions_are_numbers() {
    let at =
        |version: &str| ServiceFacts { resource_version: version.to_owned(), ..ServiceFacts::balanced("a") };
    for (version, other, is_older) in
        [("9", "10", true), ("10", "9", false), ("9", "9", false), ("a", "b", false), ("9", "b", false)]
    {
        assert_eq!(at(version).is_older_than(&at(other)), is_older, "{version} {other}");
    }
}

#[test]
fn a_service_without_node_ports_is_refused_unless_the_provider_takes_it() {
    for (ports, missing) in [
        (json!([{"port": 80}]), Some("80")),
        (json!([{"port": 80, "nodePort": 0}]), Some("80")),
        (json!([{"port": 80, "nodePort": 30080}, {"port": 443}]), Some("443")),
        (json!([{"port": 80}, {"port": 443}]), Some("80, 443")),
        (json!([{"port": 80, "nodePort": 30080}]), None),
    ] {
        for (kind, takes_them) in [("LoadBalancer", false), ("LoadBalancer", true), ("ClusterIP", false)] {
            let service = json!({
                "metadata": {"name": "web"},
                "spec": {"type": kind, "ports": ports, "allocateLoadBalancerNodePorts": false},
            });
            let requirements = ServiceRequirements { takes_missing_node_ports: takes_them, ..requirements() };
            let facts = ServiceFacts::read(serde_json::from_value(service).unwrap(), &requirements);
            match missing.filter(|_| kind == "LoadBalancer" && !takes_them) {
                Some(missing) => {
                    let expected = format!("port {missing} has no node port");
                    assert!(facts.problems.len() == 1 && facts.problems[0].starts_with(&expected), "{ports}");
                }
                None => assert_eq!(facts.problems, Vec::<String>::new(), "{ports} {kind}"),
            }
        }
    }
}

#[test]
fn a_family_that_no_client_may_use_is_refused_or_told() {
    // The families, the ranges, the requested address, and whether that is a problem or a warning about which family.
    for (families, ranges, ip, problem, warning) in [
        (&["IPv4"][..], &["2001:db8::/32"][..], "", Some("no IPv4 range"), None),
        (&["IPv6"], &["10.0.0.0/8", "192.0.2.0/24"], "", Some("no IPv6 range"), None),
        (&["IPv4"], &["2001:db8::/32", " 10.0.0.0/8 "], "", None, None),
        (&["IPv4", "IPv6"], &["10.0.0.0/8"], "", None, Some("by IPv6")),
        (&["IPv6", "IPv4"], &["2001:db8::/32"], "", None, Some("by IPv4")),
        (&["IPv4", "IPv6"], &["10.0.0.0/8", "::/0"], "", None, None),
        (&["IPv4", "IPv6"], &[], "", None, None),
        (&[], &["10.0.0.0/8"], "", None, None),
        (&["IPv4"], &[], "2001:db8::1", Some("is an IPv6 address"), None),
        (&["IPv6"], &[], " 192.0.2.1 ", Some("is an IPv4 address"), None),
        (&["IPv4", "IPv6"], &[], "2001:db8::1", None, None),
        (&["IPv4"], &[], "a name", None, None),
    ] {
        for by_annotation in [false, true] {
            let mut spec = json!({"ipFamilies": families, "loadBalancerIP": ip});
            let mut annotations = json!({});
            if by_annotation {
                annotations = json!({ANNOTATION_SOURCE_RANGES: ranges.join(",")});
            } else {
                spec["loadBalancerSourceRanges"] = json!(ranges);
            }
            let facts = read(spec, annotations);
            let case = format!("{families:?} {ranges:?} {ip}: {:?} {:?}", facts.problems, facts.warnings);
            for (found, expected) in [(&facts.problems, problem), (&facts.warnings, warning)] {
                assert_eq!(found.len(), usize::from(expected.is_some()), "{case}");
                assert!(expected.is_none_or(|text| found[0].contains(text)), "{case}");
            }
        }
    }
}

#[test]
fn a_requested_address_is_trimmed() {
    for (text, expected) in
        [(" 192.0.2.7", Some("192.0.2.7")), ("192.0.2.7\n", Some("192.0.2.7")), ("  ", None)]
    {
        let facts = read(json!({"loadBalancerIP": text}), json!({}));
        assert_eq!(facts.service.requested_ip.as_deref(), expected, "{text:?}");
    }
}

#[test]
fn an_annotation_without_effect_is_told_with_the_nearest_that_has_one() {
    let annotations =
        ["example.com/internal", "example.com/address-name", "example.com/port_*_open", "plain"];
    let annotations = annotations.map(|key| (key.to_owned(), AnnotationType::Text)).to_vec();
    let declared = ServiceRequirements { annotations, ..ServiceRequirements::default() };
    let none = ServiceRequirements::default();
    for (key, requirements, nearest) in [
        ("example.com/internal", &declared, None),
        ("example.com/port_80_open", &declared, None),
        ("example.com/intrenal", &declared, Some("example.com/internal")),
        ("example.com/address-nam", &declared, Some("example.com/address-name")),
        ("example.com/quite-another", &declared, Some("example.com/")),
        ("exmaple.com/internal", &declared, Some("example.com/internal")),
        ("plian", &declared, Some("plain")),
        ("service.beta.kubernetes.io/azure-load-balancer-internal", &declared, Some("example.com/internal")),
        ("service.beta.kubernetes.io/aws-load-balancer-scheme", &declared, Some("example.com/")),
        ("service.beta.kubernetes.io/do-loadbalancer-name", &none, Some("reads no annotations")),
        ("service.beta.kubernetes.io/oci-load-balancer-internal", &none, Some("reads no annotations")),
        ("networking.gke.io/load-balancer-type", &declared, Some("example.com/")),
        ("cloud.google.com/load-balancer-type", &declared, Some("example.com/")),
        ("load-balancer.hetzner.cloud/use-private-ip", &declared, Some("example.com/")),
        ("kubectl.kubernetes.io/last-applied-configuration", &declared, None),
        ("meta.helm.sh/release-name", &declared, None),
        ("argocd.argoproj.io/sync-wave", &declared, None),
        ("external-dns.alpha.kubernetes.io/hostname", &declared, None),
        ("service.kubernetes.io/topology-mode", &declared, None),
        (ANNOTATION_SOURCE_RANGES, &declared, None),
        ("prometheus.io/scrape", &declared, None),
    ] {
        for kind in ["LoadBalancer", "ClusterIP"] {
            let service = json!({
                "metadata": {"name": "web", "annotations": {key: "10.0.0.0/8"}},
                "spec": {"type": kind, "ports": [{"port": 80, "nodePort": 30080}]},
            });
            let facts = ServiceFacts::read(serde_json::from_value(service).unwrap(), requirements);
            let expected = nearest.filter(|_| kind == "LoadBalancer");
            assert_eq!(facts.warnings.len(), usize::from(expected.is_some()), "{key}: {:?}", facts.warnings);
            let is_named = |text: &str| facts.warnings[0].contains(key) && facts.warnings[0].contains(text);
            assert!(expected.is_none_or(is_named), "{key}: {:?}", facts.warnings);
        }
    }
    let many: BTreeMap<_, _> =
        (0..2000).map(|number| (format!("example.com/{number}{}", "x".repeat(50)), String::new())).collect();
    let mut warnings = Vec::new();
    unread_annotations(&many, &declared, &mut warnings);
    assert_eq!(warnings.len(), 8);
}

#[test]
fn annotations_that_the_provider_sets_are_kept_apart_and_are_no_misspelled_ones() {
    let all = json!({"x/written": "7", "metallb.io/written": "8", "x/name": "n", "metallb.io/other": "?"});
    let facts = read(json!({}), all);
    let written = [("metallb.io/written", "8"), ("x/written", "7")];
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    assert_eq!(facts.written_annotations.into_iter().collect::<Vec<_>>(), written.map(pair));
    assert_eq!(facts.service.annotations, [("x/name", "n"), ("x/written", "7")].map(pair));
    assert_eq!(facts.warnings.len(), 1, "{:?}", facts.warnings);
    assert!(facts.warnings[0].contains("metallb.io/other"), "{:?}", facts.warnings);
}
