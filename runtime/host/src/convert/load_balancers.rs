//! Converts load balancers between the contract's types and `pileus-cloud`'s types.

use pileus_cloud::{
    Error, ErrorKind, Ingress, IngressPoint, IpFamily, IpMode, LocalEndpoints, Notice, OwnedLoadBalancer,
    PortStatus, Protocol, Service, ServiceAction, ServiceChange, ServicePort, ServiceProgress,
    SessionAffinity, Target, TargetSelection, TrafficPolicy,
};

use super::status::status_from_wit;
use super::{MAX_ITEMS, MAX_NAME_BYTES, MAX_TEXT_BYTES, address_to_wit, error_from_wit, kept_note, wait};
use crate::bindings::{load_balancers, types};
use crate::sanitize::{excerpt, is_control, sanitize_message};

/// The most notices of a change that are kept. Each becomes an event.
const MAX_NOTICES: usize = 8;

/// The longest reason of an event, in bytes. The API server takes 128.
const MAX_EVENT_REASON_BYTES: usize = 64;

/// The reason of a Warning whose own is invalid.
const WARNING: &str = "LoadBalancerWarning";

/// The reason of a Normal notice whose own is invalid.
const NOTICE: &str = "LoadBalancerNotice";

/// The most sentences about what was left out of a status.
const MAX_LEFT_OUT: usize = 4;

pub(crate) fn target_to_wit(target: &Target) -> load_balancers::Target {
    let Target { node, uid, provider_id, addresses, zone, labels } = target;
    load_balancers::Target {
        node: node.clone(),
        uid: uid.clone(),
        provider_id: provider_id.to_string(),
        addresses: addresses.iter().map(address_to_wit).collect(),
        zone: zone.clone(),
        labels: labels.clone(),
        extra: Vec::new(),
    }
}

pub(crate) fn service_change_to_wit(change: &ServiceChange) -> load_balancers::ServiceChange {
    let ServiceChange { action, resume } = change;
    let action = match action {
        ServiceAction::Ensure(service) => load_balancers::Action::Ensure(service_to_wit(service)),
        ServiceAction::UpdateTargets(service) => {
            load_balancers::Action::UpdateTargets(service_to_wit(service))
        }
        ServiceAction::Delete(service) => load_balancers::Action::Delete(service_to_wit(service)),
        ServiceAction::RemoveOrphan(owned) => load_balancers::Action::RemoveOrphan(owned_to_wit(owned)),
    };
    load_balancers::ServiceChange { action, resume: resume.clone(), extra: Vec::new() }
}

pub(crate) fn service_to_wit(service: &Service) -> load_balancers::Service {
    let Service {
        namespace,
        name,
        uid,
        labels,
        namespace_labels,
        annotations,
        class,
        finalizers,
        ports,
        policy,
        affinity,
        source_ranges,
        requested_ip,
        families,
        endpoints,
        targets,
        status,
    } = service;
    load_balancers::Service {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
        labels: labels.clone(),
        namespace_labels: namespace_labels.clone(),
        annotations: annotations.clone(),
        class: class.clone(),
        finalizers: finalizers.clone(),
        ports: ports.iter().map(port_to_wit).collect(),
        policy: match policy {
            TrafficPolicy::Cluster => load_balancers::TrafficPolicy::Cluster,
            TrafficPolicy::Local(port) => load_balancers::TrafficPolicy::Local(*port),
        },
        affinity: match affinity {
            SessionAffinity::None => load_balancers::Affinity::None,
            SessionAffinity::ClientIp(time) => {
                load_balancers::Affinity::ClientIp(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
        },
        source_ranges: source_ranges.iter().map(ToString::to_string).collect(),
        requested_ip: requested_ip.clone(),
        families: families.iter().copied().map(family_to_wit).collect(),
        endpoints: endpoints.iter().copied().map(endpoints_to_wit).collect(),
        targets: match targets {
            TargetSelection::All => load_balancers::Selection::All,
            TargetSelection::Rows(rows) => load_balancers::Selection::Rows(rows.clone()),
        },
        status: status.iter().map(ingress_to_wit).collect(),
        extra: Vec::new(),
    }
}

fn port_to_wit(port: &ServicePort) -> load_balancers::ServicePort {
    let ServicePort { name, protocol, port, node_port, app_protocol } = port;
    load_balancers::ServicePort {
        name: name.clone(),
        protocol: protocol_to_wit(*protocol),
        port: *port,
        node_port: *node_port,
        app_protocol: app_protocol.clone(),
    }
}

const fn protocol_to_wit(protocol: Protocol) -> load_balancers::Protocol {
    match protocol {
        Protocol::Tcp => load_balancers::Protocol::Tcp,
        Protocol::Udp => load_balancers::Protocol::Udp,
        Protocol::Sctp => load_balancers::Protocol::Sctp,
    }
}

const fn family_to_wit(family: IpFamily) -> load_balancers::Family {
    match family {
        IpFamily::Ipv4 => load_balancers::Family::Ipv4,
        IpFamily::Ipv6 => load_balancers::Family::Ipv6,
    }
}

const fn endpoints_to_wit(endpoints: LocalEndpoints) -> load_balancers::LocalEndpoints {
    let LocalEndpoints { row, count } = endpoints;
    load_balancers::LocalEndpoints { row, count }
}

fn ingress_to_wit(ingress: &Ingress) -> load_balancers::Ingress {
    let Ingress { point, ip_mode, ports } = ingress;
    let port = |PortStatus { port, protocol, error }: &PortStatus| load_balancers::PortStatus {
        port: *port,
        protocol: protocol_to_wit(*protocol),
        error: error.clone(),
    };
    load_balancers::Ingress {
        point: match point {
            IngressPoint::Ip(ip) => load_balancers::IngressPoint::Ip(ip.clone()),
            IngressPoint::Hostname(name) => load_balancers::IngressPoint::Hostname(name.clone()),
        },
        ip_mode: ip_mode.map(|mode| match mode {
            IpMode::Vip => load_balancers::IpMode::Vip,
            IpMode::Proxy => load_balancers::IpMode::Proxy,
        }),
        ports: ports.iter().map(port).collect(),
    }
}

fn owned_to_wit(owned: &OwnedLoadBalancer) -> load_balancers::Owned {
    let OwnedLoadBalancer { cluster_uid, service_uid, service, name, extra } = owned;
    load_balancers::Owned {
        cluster_uid: cluster_uid.clone(),
        service_uid: service_uid.clone(),
        service: service.clone(),
        name: name.clone(),
        extra: extra.clone(),
    }
}

/// Converts a load balancer that the cloud has for a Service. One that is invalid doesn't spoil the list: it is reported as one
/// whose cluster can't be told, which is never removed.
pub(crate) fn owned_from_wit(owned: load_balancers::Owned) -> OwnedLoadBalancer {
    if let Some(problem) = problem(&owned) {
        let name = format!("{} ({problem})", excerpt(&owned.name));
        return OwnedLoadBalancer {
            cluster_uid: None,
            service_uid: None,
            service: None,
            name,
            extra: Vec::new(),
        };
    }
    let load_balancers::Owned { cluster_uid, service_uid, service, name, extra } = owned;
    let optional = |uid: Option<String>| uid.filter(|uid| !uid.is_empty());
    OwnedLoadBalancer {
        cluster_uid: optional(cluster_uid),
        service_uid: optional(service_uid),
        service,
        name,
        extra,
    }
}

fn problem(owned: &load_balancers::Owned) -> Option<String> {
    let load_balancers::Owned { cluster_uid, service_uid, service, name, extra } = owned;
    let service = service.iter().flat_map(|(namespace, name)| [namespace, name]);
    let shown = [name].into_iter().chain(cluster_uid).chain(service_uid).chain(service);
    let notes = extra.iter().flat_map(|(key, value)| [key, value]);
    if shown.clone().any(|text| text.contains(is_control)) {
        return Some("a name or a UID contains a control character".to_owned());
    }
    if let Some(long) = shown.chain(notes).map(String::len).find(|length| *length > MAX_TEXT_BYTES) {
        return Some(format!("a text of {long} bytes; the limit is {MAX_TEXT_BYTES}"));
    }
    (extra.len() > MAX_ITEMS).then(|| format!("{} notes; the limit is {MAX_ITEMS}", extra.len()))
}

/// Converts the outcome of a change. `service` names the Service in errors.
pub(crate) fn service_outcome_from_wit(
    service: &str,
    outcome: load_balancers::Outcome,
) -> Result<ServiceProgress, Error> {
    match outcome {
        load_balancers::Outcome::Done(done) => done_from_wit(service, done),
        load_balancers::Outcome::InProgress(progress) => Ok(under_way_from_wit(progress)),
        load_balancers::Outcome::Elsewhere => Ok(ServiceProgress::Elsewhere),
        load_balancers::Outcome::Failed(error) => Err(error_from_wit(error)),
    }
}

/// A change that is done stays done where a part of its status or notices can't be taken.
///
/// # Errors
/// [`ErrorKind::Broken`] where nothing of the status is left: a Service without an address doesn't work.
fn done_from_wit(service: &str, done: load_balancers::Done) -> Result<ServiceProgress, Error> {
    let load_balancers::Done { status, notices, annotations, extra: _ } = done;
    let (status, left_out) = status_from_wit(status)
        .map_err(|left_out| Error::new(ErrorKind::Broken, format!("{service}: {}", shown(&left_out))))?;
    Ok(ServiceProgress::Done {
        status,
        notices: notices_from_wit(&left_out, notices),
        annotations: annotations_from_wit(annotations),
    })
}

/// A change that is under way goes on where nothing of its status can be taken: the next answer may be better.
fn under_way_from_wit(progress: load_balancers::UnderWay) -> ServiceProgress {
    let load_balancers::UnderWay { after, resume, status, notices, annotations, extra: _ } = progress;
    let (status, left_out) = match status.map(status_from_wit) {
        None => (None, Vec::new()),
        Some(Ok((status, left_out))) => (Some(status), left_out),
        Some(Err(left_out)) => (None, left_out),
    };
    ServiceProgress::InProgress {
        after: wait(after),
        resume: kept_note(resume),
        status,
        notices: notices_from_wit(&left_out, notices),
        annotations: annotations_from_wit(annotations),
    }
}

/// The provider's notices, after one about what was left out of the status.
fn notices_from_wit(left_out: &[String], notices: Vec<types::Notice>) -> Vec<Notice> {
    let own = (!left_out.is_empty()).then(|| Notice {
        reason: WARNING.to_owned(),
        message: format!("left out of the status that the provider reports: {}", shown(left_out)),
        is_warning: true,
    });
    own.into_iter().chain(notices.into_iter().take(MAX_NOTICES).map(notice_from_wit)).collect()
}

fn notice_from_wit(notice: types::Notice) -> Notice {
    let types::Notice { reason, message, is_warning } = notice;
    let is_camel_case = reason.starts_with(|c: char| c.is_ascii_uppercase())
        && reason.len() <= MAX_EVENT_REASON_BYTES
        && reason.chars().all(|c| c.is_ascii_alphanumeric());
    let other = if is_warning { WARNING } else { NOTICE };
    let reason = if is_camel_case { reason } else { other.to_owned() };
    Notice { reason, message: sanitize_message(&message), is_warning }
}

/// The annotations to set. What the API server wouldn't take is dropped: it would refuse all of them.
fn annotations_from_wit(annotations: Vec<(String, Option<String>)>) -> Vec<(String, Option<String>)> {
    let fits = |(key, value): &(String, Option<String>)| {
        key.len() <= MAX_NAME_BYTES + 64
            && !key.contains(is_control)
            && value.as_ref().is_none_or(|value| value.len() <= MAX_TEXT_BYTES && !value.contains(is_control))
    };
    annotations.into_iter().filter(fits).take(MAX_ITEMS).collect()
}

/// The first sentences about what was left out, and how many there are.
fn shown(left_out: &[String]) -> String {
    let first = left_out.iter().take(MAX_LEFT_OUT).map(String::as_str).collect::<Vec<_>>().join("; ");
    match left_out.len().saturating_sub(MAX_LEFT_OUT) {
        0 => first,
        others => format!("{first}; {others} more"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::{Address, AddressKind, ProviderId};

    use super::super::status::{MAX_INGRESSES, MAX_PORTS, MAX_REASON_BYTES, UNKNOWN_REASON};
    use super::super::{MAX_NAME_BYTES, MAX_RESUME_BYTES};
    use super::*;
    use crate::bindings::types;
    use crate::sanitize::MAX_MESSAGE_BYTES;

    fn service() -> Service {
        let ingress = Ingress {
            point: IngressPoint::Ip("198.51.100.7".to_owned()),
            ip_mode: Some(IpMode::Proxy),
            ports: vec![PortStatus { port: 80, protocol: Protocol::Udp, error: Some("NoQuota".to_owned()) }],
        };
        Service {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
            labels: vec![("a".to_owned(), "b".to_owned())],
            namespace_labels: vec![("c".to_owned(), "d".to_owned())],
            annotations: vec![("e".to_owned(), "f".to_owned())],
            class: Some("example.com/lb".to_owned()),
            finalizers: vec!["example.com/other".to_owned()],
            ports: vec![ServicePort {
                name: "http".to_owned(),
                protocol: Protocol::Sctp,
                port: 80,
                node_port: Some(30080),
                app_protocol: Some("h2c".to_owned()),
            }],
            policy: TrafficPolicy::Local(31000),
            affinity: SessionAffinity::ClientIp(Duration::from_hours(3)),
            source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
            requested_ip: Some("198.51.100.9".to_owned()),
            families: vec![IpFamily::Ipv6, IpFamily::Ipv4],
            endpoints: vec![LocalEndpoints { row: 3, count: 2 }],
            targets: TargetSelection::Rows(vec![3]),
            status: vec![ingress],
        }
    }

    fn by_ip(ip: &str) -> load_balancers::Ingress {
        load_balancers::Ingress {
            point: load_balancers::IngressPoint::Ip(ip.to_owned()),
            ip_mode: None,
            ports: Vec::new(),
        }
    }

    fn by_name(name: &str) -> load_balancers::Ingress {
        let point = load_balancers::IngressPoint::Hostname(name.to_owned());
        load_balancers::Ingress { point, ip_mode: Some(load_balancers::IpMode::Vip), ports: Vec::new() }
    }

    fn with_port(port: u16, error: &str) -> load_balancers::Ingress {
        let protocol = load_balancers::Protocol::Tcp;
        let port = load_balancers::PortStatus { port, protocol, error: Some(error.to_owned()) };
        load_balancers::Ingress { ports: vec![port], ..by_ip("198.51.100.7") }
    }

    fn done(status: Vec<load_balancers::Ingress>) -> load_balancers::Outcome {
        load_balancers::Outcome::Done(load_balancers::Done {
            status,
            notices: Vec::new(),
            annotations: Vec::new(),
            extra: Vec::new(),
        })
    }

    fn status(status: Vec<load_balancers::Ingress>) -> Result<Vec<Ingress>, Error> {
        match service_outcome_from_wit("service default/web", done(status))? {
            ServiceProgress::Done { status, .. } => Ok(status),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_service_is_converted_completely() {
        let converted = format!("{:?}", service_to_wit(&service()));
        for part in [
            "namespace: \"default\"",
            "name: \"web\"",
            "uid: \"u-1\"",
            "(\"a\", \"b\")",
            "(\"c\", \"d\")",
            "(\"e\", \"f\")",
            "class: Some(\"example.com/lb\")",
            "finalizers: [\"example.com/other\"]",
            "name: \"http\"",
            "node-port: Some(30080)",
            "app-protocol: Some(\"h2c\")",
            "TrafficPolicy::Local(31000)",
            "Affinity::ClientIp(10800000)",
            "source-ranges: [\"10.0.0.0/8\"]",
            "requested-ip: Some(\"198.51.100.9\")",
            "families: [Family::Ipv6, Family::Ipv4]",
            "LocalEndpoints { row: 3, count: 2 }",
            "Selection::Rows([3])",
            "IngressPoint::Ip(\"198.51.100.7\")",
            "ip-mode: Some(IpMode::Proxy)",
            "error: Some(\"NoQuota\")",
        ] {
            assert!(converted.contains(part), "{part} is missing: {converted}");
        }
        for protocol in ["protocol: Protocol::Sctp", "protocol: Protocol::Udp"] {
            assert_eq!(converted.matches(protocol).count(), 1, "{protocol}");
        }
    }

    #[test]
    fn each_action_is_converted_with_its_note() {
        let owned = || OwnedLoadBalancer {
            cluster_uid: Some("c".to_owned()),
            service_uid: Some("s".to_owned()),
            service: Some(("default".to_owned(), "web".to_owned())),
            name: "lb-1".to_owned(),
            extra: vec![("etag".to_owned(), "7".to_owned())],
        };
        for (action, expected) in [
            (ServiceAction::Ensure(service()), "Action::Ensure"),
            (ServiceAction::UpdateTargets(service()), "Action::UpdateTargets"),
            (ServiceAction::Delete(service()), "Action::Delete"),
            (ServiceAction::RemoveOrphan(owned()), "Action::RemoveOrphan"),
        ] {
            let change = ServiceChange { action, resume: Some("here".to_owned()) };
            let load_balancers::ServiceChange { action, resume, extra: _ } = service_change_to_wit(&change);
            assert!(format!("{action:?}").starts_with(expected), "{action:?}");
            assert_eq!(resume.as_deref(), Some("here"));
        }
        assert_eq!(owned_from_wit(owned_to_wit(&owned())), owned(), "as it was listed");
    }

    #[test]
    fn a_target_is_converted_completely() {
        let target = Target {
            node: "a".to_owned(),
            uid: "u".to_owned(),
            provider_id: ProviderId::parse("sim://m-1").unwrap(),
            addresses: vec![Address::new(AddressKind::ExternalDns, "a.example")],
            zone: Some("z".to_owned()),
            labels: vec![("pool".to_owned(), "a".to_owned())],
        };
        let converted = target_to_wit(&target);
        assert_eq!(converted.labels, target.labels);
        assert_eq!(
            (converted.node, converted.uid, converted.provider_id),
            ("a".into(), "u".into(), "sim://m-1".into())
        );
        assert_eq!(
            (converted.addresses[0].value.as_str(), converted.zone.as_deref()),
            ("a.example", Some("z"))
        );
    }

    #[test]
    fn an_ingress_point_is_one_that_the_api_server_accepts_in_the_form_that_it_stores() {
        for (given, taken) in [
            (by_ip("198.51.100.7"), Some("198.51.100.7")),
            (by_ip("2001:DB8:0:0::1"), Some("2001:db8::1")),
            (by_ip("::ffff:198.51.100.7"), Some("198.51.100.7")),
            (by_ip("10.0.0.7"), Some("10.0.0.7")),
            (by_ip(""), None),
            (by_ip("lb.example"), None),
            (by_ip("198.51.100.007"), None),
            (by_ip("198.51.100.7/32"), None),
            (by_ip("0.0.0.0"), None),
            (by_ip("::"), None),
            (by_ip("127.0.0.1"), None),
            (by_ip("::1"), None),
            (by_ip("169.254.169.254"), None),
            (by_ip("::ffff:169.254.169.254"), None),
            (by_ip("fe80::1"), None),
            (by_ip("224.0.0.1"), None),
            (by_ip("255.255.255.255"), None),
            (by_name("LB-1.Example.com"), Some("lb-1.example.com")),
            (by_name(""), None),
            (by_name("198.51.100.7"), None),
            (by_name("a..b"), None),
            (by_name("a.example."), None),
            (by_name("-a.example"), None),
            (by_name("a_b.example"), None),
            (by_name("a\u{202e}b"), None),
            (by_name(&"a".repeat(MAX_NAME_BYTES + 1)), None),
            (with_port(80, ""), Some("198.51.100.7")),
            (with_port(80, "example.com/NoQuota"), Some("198.51.100.7")),
            (by_ip("168.63.129.16"), None),
            (by_ip("64:ff9b::a9fe:a9fe"), None),
            (by_ip("2002:7f00:1::1"), None),
            (by_ip("fd00:ec2::254"), None),
            (by_name("kubernetes.default.svc"), None),
            (by_name("127.1"), None),
            (by_name("localhost"), None),
            (by_name(&format!("{}.example", "a".repeat(64))), None),
        ] {
            let shown = format!("{given:?}");
            let read = status(vec![given]).map(|mut status| status.remove(0).point);
            let point = read.clone().ok().map(|point| match point {
                IngressPoint::Ip(text) | IngressPoint::Hostname(text) => text,
            });
            assert_eq!(point.as_deref(), taken, "{shown}");
            if let Err(error) = read {
                assert_eq!(error.kind, ErrorKind::Broken, "{shown}");
                assert!(error.message.starts_with("service default/web: "), "{error}");
                assert!(!error.message.contains(is_control), "{error}");
            }
        }
    }

    #[test]
    fn an_address_has_the_api_servers_default_ip_mode_and_a_host_name_has_none() {
        let proxied =
            load_balancers::Ingress { ip_mode: Some(load_balancers::IpMode::Proxy), ..by_ip("10.0.0.7") };
        let read = status(vec![by_ip("10.0.0.7"), proxied, by_name("a.example")]).unwrap();
        let modes: Vec<_> = read.iter().map(|ingress| ingress.ip_mode).collect();
        assert_eq!(modes, [Some(IpMode::Vip), Some(IpMode::Proxy), None]);
        let port = status(vec![with_port(80, "")]).unwrap().remove(0).ports.remove(0);
        assert_eq!(port, PortStatus { port: 80, protocol: Protocol::Tcp, error: None });
    }

    #[test]
    fn one_bad_entry_port_or_reason_is_left_out_with_a_warning_and_the_others_stay() {
        let good = || by_ip("198.51.100.7");
        let with_ports = |count| load_balancers::Ingress {
            ports: vec![with_port(1, "").ports.remove(0); count],
            ..good()
        };
        for (given, points, ports, warning) in [
            (vec![good()], 1, 0, None),
            (vec![good(); MAX_INGRESSES], MAX_INGRESSES, 0, None),
            (vec![with_ports(MAX_PORTS)], 1, MAX_PORTS, None),
            (vec![by_ip("127.0.0.1"), good()], 1, 0, Some("127.0.0.1 can't be")),
            (vec![good(), by_name("a..b")], 1, 0, Some("invalid host name \"a..b\"")),
            (vec![good(); MAX_INGRESSES + 1], MAX_INGRESSES, 0, Some("17 ingress points: the limit is 16")),
            (vec![with_ports(MAX_PORTS + 1)], 1, MAX_PORTS, Some("513 ports of one ingress point")),
            (vec![with_port(0, "")], 1, 0, Some("invalid port 0")),
            (vec![with_port(80, "no quota")], 1, 1, Some("port 80: invalid reason \"no quota\"")),
            (vec![with_port(80, &"N".repeat(MAX_REASON_BYTES + 1))], 1, 1, Some("port 80: invalid reason")),
        ] {
            let shown = format!("{given:.200?}");
            let read = service_outcome_from_wit("service a/b", done(given)).unwrap();
            let ServiceProgress::Done { status, notices, .. } = read else { panic!("{read:?}") };
            assert_eq!((status.len(), status[0].ports.len()), (points, ports), "{shown}");
            assert_eq!(notices.len(), usize::from(warning.is_some()), "{shown}");
            assert!(notices.iter().all(|it| it.message.contains(warning.unwrap_or_default())), "{notices:?}");
            assert!(notices.iter().all(|it| it.message.len() <= MAX_MESSAGE_BYTES), "{notices:?}");
        }
        let broken = status(vec![with_port(80, "no quota")]).unwrap().remove(0).ports.remove(0);
        assert_eq!(broken.error.as_deref(), Some(UNKNOWN_REASON), "it never looks as if it works");
        let all_bad = status(vec![by_ip("127.0.0.1"), by_name("localhost")]).unwrap_err();
        assert_eq!(all_bad.kind, ErrorKind::Broken);
        assert!(all_bad.message.contains("127.0.0.1") && all_bad.message.contains("localhost"), "{all_bad}");
    }

    #[test]
    fn a_change_that_is_done_stays_done_however_many_notices_it_has() {
        let message = format!("one\ntwo{}", "w".repeat(2 * MAX_MESSAGE_BYTES));
        let notice = |reason: &str| types::Notice {
            reason: reason.to_owned(),
            message: message.clone(),
            is_warning: true,
        };
        let reasons = ["PoolUpdated", "no camel", "", "lower", "A\u{202e}B"];
        let given: Vec<_> = reasons.iter().cycle().take(MAX_NOTICES + 1).map(|it| notice(it)).collect();
        let fact = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        let annotations = vec![fact("example.com/id", "7"), fact("example.com/\n", "7"), fact("a", &message)];
        let done =
            load_balancers::Done { status: Vec::new(), notices: given, annotations, extra: Vec::new() };
        let outcome = service_outcome_from_wit("service default/web", load_balancers::Outcome::Done(done));
        let Ok(ServiceProgress::Done { notices, annotations, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(notices.len(), MAX_NOTICES);
        assert!(
            notices
                .iter()
                .all(|it| it.message.starts_with("one two") && it.message.len() <= MAX_MESSAGE_BYTES)
        );
        let reasons: Vec<_> = notices.iter().take(5).map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["PoolUpdated", WARNING, WARNING, WARNING, WARNING]);
        assert_eq!(annotations, [fact("example.com/id", "7")]);
    }

    #[test]
    fn a_change_in_progress_tells_the_ingress_that_works() {
        let under_way = |status| load_balancers::UnderWay {
            after: 5000,
            resume: Some("n".repeat(MAX_RESUME_BYTES + 1)),
            status,
            notices: Vec::new(),
            annotations: Vec::new(),
            extra: Vec::new(),
        };
        for (status, taken, notes) in [
            (None, None, 0),
            (Some(vec![by_ip("198.51.100.7")]), Some(1), 0),
            (Some(vec![by_ip("198.51.100.7"), by_ip("127.0.0.1")]), Some(1), 1),
            (Some(vec![by_ip("127.0.0.1")]), None, 1),
        ] {
            let outcome = load_balancers::Outcome::InProgress(under_way(status));
            let outcome = service_outcome_from_wit("service default/web", outcome).unwrap();
            let ServiceProgress::InProgress { after, resume, status, notices, .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!((after, resume), (Duration::from_secs(5), None));
            assert_eq!((status.map(|it| it.len()), notices.len()), (taken, notes));
        }
    }
}
