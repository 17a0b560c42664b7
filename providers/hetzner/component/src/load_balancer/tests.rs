use std::time::Duration;

use pileus_guest::http::NumericId;
use pileus_guest::testing::{Exchange, Host, delete, get, post, put};
use pileus_guest::{
    Address, AddressKind, ErrorKind, Protocol, Service, ServiceAction, ServiceChange, ServicePort,
    ServiceProgress, TrafficPolicy,
};

use serde_json::json;

use super::*;
use crate::configuration::Defaults;

const API: &str = "http://cloud.test/v1";
const ALL: &str = "http://cloud.test/v1/load_balancers";
const WEB: &str = "6e3fa2cc-0001-4c4e-a3b5-0d3cf1b5c2d1";
const NAME: &str = "a6e3fa2cc00014c4ea3b50d3cf1b5c2d";

fn cloud(more: &Value) -> Host {
    let document = json!({"endpoint": API, "network": 7, "loadBalancers": {"location": "fsn1"}});
    Host::new().configuration(with(&document, more))
}

/// A value with some fields replaced, at any depth.
fn with(value: &Value, change: &Value) -> Value {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            let mut fields = fields.clone();
            for (name, change) in changes {
                let changed = with(fields.get(name).unwrap_or(&Value::Null), change);
                fields.insert(name.clone(), changed);
            }
            Value::Object(fields)
        }
        (_, change) => change.clone(),
    }
}

fn service(annotations: &[(&str, &str)]) -> Service {
    let annotation =
        |(name, value): &(&str, &str)| (format!("load-balancer.hetzner.cloud/{name}"), (*value).to_owned());
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: WEB.to_owned(),
        annotations: annotations.iter().map(annotation).collect(),
        ports: vec![port(80, 30_080)],
        ..Service::default()
    }
}

fn port(port: u16, node_port: u16) -> ServicePort {
    ServicePort { port, node_port: Some(node_port), ..ServicePort::default() }
}

/// Two cloud servers and a dedicated one.
fn targets() -> Vec<pileus_guest::Target> {
    let target = |id: &str, ip: &str| pileus_guest::Target {
        provider_id: id.to_owned(),
        addresses: vec![
            Address::new(AddressKind::ExternalIp, format!("203.0.113.{ip}")),
            Address::new(AddressKind::InternalIp, format!("10.0.1.{ip}")),
        ],
        ..pileus_guest::Target::default()
    };
    vec![target("hcloud://1", "1"), target("hcloud://2", "2"), target("hrobot://3", "3")]
}

fn call(actions: Vec<ServiceAction>) -> ServiceCall {
    ServiceCall {
        cluster: Cluster { uid: Some("c".to_owned()), ..Cluster::default() },
        targets: targets(),
        changes: actions.into_iter().map(ServiceChange::from).collect(),
        ..ServiceCall::default()
    }
}

fn ensure(annotations: &[(&str, &str)]) -> ServiceCall {
    call(vec![ServiceAction::Ensure(service(annotations))])
}

fn tcp_check() -> Value {
    json!({"protocol": "tcp", "port": 30_080, "interval": 15, "timeout": 10, "retries": 3, "http": null})
}

/// A load balancer as hcloud-cloud-controller-manager leaves it, with what the cloud adds.
fn inherited(change: &Value) -> Value {
    let server = |id: u64| json!({"type": "server", "server": {"id": id}, "use_private_ip": false, "health_status": []});
    let there = json!({
        "id": 42, "name": NAME, "labels": {UID: WEB}, "protection": {"delete": false},
        "load_balancer_type": {"name": "lb11", "max_targets": 25}, "algorithm": {"type": "round_robin"},
        "public_net": {
            "enabled": true,
            "ipv4": {"ip": "198.51.100.7", "dns_ptr": "static.example"}, "ipv6": {"ip": "2001:db8::1", "dns_ptr": null},
        },
        "private_net": [{"network": 7, "ip": "10.0.0.5"}],
        "services": [{
            "protocol": "tcp", "listen_port": 80, "destination_port": 30_080, "proxyprotocol": false, "http": null,
            "health_check": tcp_check(),
        }],
        "targets": [server(1), server(2), {"type": "ip", "ip": {"ip": "203.0.113.3"}}],
    });
    with(&there, change)
}

fn http_service(change: &Value) -> Value {
    let http = json!({
        "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [], "redirect_http": false,
        "sticky_sessions": false, "timeout_idle": 50,
    });
    let service = json!({
        "protocol": "http", "listen_port": 80, "destination_port": 30_080, "proxyprotocol": false, "http": http,
        "health_check": tcp_check(),
    });
    json!({"services": [with(&service, change)]})
}

fn by_label(found: &[Value]) -> Exchange {
    let url = format!("{ALL}?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D%3D{WEB}");
    get(url).json(json!({"load_balancers": found, "meta": {"pagination": {"next_page": null}}}))
}

fn by_name(name: &str, found: &[Value]) -> Exchange {
    let url = format!("{ALL}?per_page=50&name={name}");
    get(url).json(json!({"load_balancers": found, "meta": {"pagination": {"next_page": null}}}))
}

fn action(name: &str, status: &str) -> Exchange {
    post(format!("{ALL}/42/actions/{name}")).status(201).json(begun(status))
}

fn begun(status: &str) -> Value {
    let error = (status == "error").then(|| json!({"code": "action_failed", "message": "late"}));
    json!({"action": {"id": 9, "status": status, "error": error}})
}

fn refused(exchange: Exchange, status: u16, code: &str) -> Exchange {
    exchange.status(status).json(json!({"error": {"code": code, "message": "no", "details": {}}}))
}

type Outcome = Result<ServiceProgress, ErrorKind>;

fn outcome(host: &Host, call: &ServiceCall) -> Outcome {
    let [outcome] = host.change_load_balancers::<Hetzner>(call).unwrap().try_into().unwrap();
    outcome.map_err(|error| error.kind)
}

fn body(host: &Host) -> Value {
    serde_json::from_slice(&host.requests().last().unwrap().body).unwrap()
}

fn ips(ips: &[&str]) -> Vec<Ingress> {
    ips.iter().map(|ip| Ingress::ip(*ip)).collect()
}

const INGRESS: [&str; 3] = ["198.51.100.7", "2001:db8::1", "10.0.0.5"];

fn spec<'a>(defaults: &'a Defaults, call: &'a ServiceCall) -> Result<Spec<'a>, Error> {
    Spec::new(defaults, call, call.changes[0].service().unwrap(), Some(NumericId(7)))
}

/// The changes of a load balancer for a Service, without the labels that come with them.
fn changes(found: &Value, call: &ServiceCall) -> Vec<(&'static str, Value)> {
    let (found, defaults) =
        (serde_json::from_value::<LoadBalancer>(found.clone()).unwrap(), Defaults::default());
    let changes = found.changes(&spec(&defaults, call).unwrap()).into_iter();
    let action = |change| match change {
        Change::Action(name, body) => Some((name, body)),
        Change::Update(_) => None,
    };
    changes.filter_map(action).collect()
}

#[test]
fn each_annotation_changes_what_it_says() {
    let check = |change: Value| json!({"health_check": change});
    let listener = |change: &Value| {
        let body = json!({
            "listen_port": 80, "destination_port": 30_080, "protocol": "tcp", "proxyprotocol": false,
            "health_check": {"protocol": "tcp", "port": 30_080},
        });
        Some(("update_service", with(&body, change)))
    };
    let http = |change: Value| {
        let http = with(&json!({"sticky_sessions": false}), &change);
        listener(&json!({"protocol": "http", "http": http}))
    };
    let act = |name: &'static str, body: Value| Some((name, body));
    let none: &[(&str, &str)] = &[];
    let rows = [
        (none, None),
        (
            &[("algorithm-type", "least_connections")],
            act("change_algorithm", json!({"type": "least_connections"})),
        ),
        (&[("algorithm-type", "Round_Robin")], None),
        (&[("type", "lb21")], act("change_type", json!({"load_balancer_type": "lb21"}))),
        (&[("type", "lb11")], None),
        (&[("location", "hel1"), ("network-zone", "us-east")], None),
        (
            &[("ipv4-rdns", "web.example")],
            act("change_dns_ptr", json!({"ip": "198.51.100.7", "dns_ptr": "web.example"})),
        ),
        (&[("ipv4-rdns", "static.example")], None),
        (
            &[("ipv6-rdns", "web.example")],
            act("change_dns_ptr", json!({"ip": "2001:db8::1", "dns_ptr": "web.example"})),
        ),
        (&[("disable-public-network", "true")], act("disable_public_interface", json!({}))),
        (&[("disable-public-network", "false")], None),
        (&[("private-ipv4", "10.0.0.5")], None),
        (
            &[("hostname", "web.example"), ("ipv6-disabled", "true"), ("disable-private-ingress", "true")],
            None,
        ),
        (&[("uses-proxyprotocol", "true")], listener(&json!({"proxyprotocol": true}))),
        (&[("protocol", "tcp")], None),
        (&[("protocol", "HTTP")], http(json!({}))),
        (&[("protocol", "http"), ("http-sticky-sessions", "true")], http(json!({"sticky_sessions": true}))),
        (&[("protocol", "http"), ("http-cookie-name", "x")], http(json!({"cookie_name": "x"}))),
        (&[("protocol", "http"), ("http-cookie-lifetime", "5m")], http(json!({"cookie_lifetime": 300}))),
        (&[("protocol", "http"), ("http-timeout-idle", "60")], http(json!({"timeout_idle": 60}))),
        (
            &[("protocol", "https"), ("http-redirect-http", "true")],
            listener(
                &json!({"protocol": "https", "http": {"sticky_sessions": false, "redirect_http": true}}),
            ),
        ),
        (&[("health-check-interval", "15s")], None),
        (&[("health-check-interval", "20s")], listener(&check(json!({"interval": 20})))),
        (&[("health-check-timeout", "5")], listener(&check(json!({"timeout": 5})))),
        (&[("health-check-retries", "5")], listener(&check(json!({"retries": 5})))),
        (&[("health-check-port", "8080")], listener(&check(json!({"port": 8080})))),
        (&[("health-check-protocol", "http")], listener(&check(json!({"protocol": "http"})))),
        (
            &[("health-check-protocol", "https")],
            listener(&check(json!({"protocol": "http", "http": {"tls": true}}))),
        ),
        (
            &[
                ("health-check-protocol", "http"),
                ("health-check-http-domain", "web.example"),
                ("health-check-http-path", "/up"),
                ("health-check-http-validate-certificate", "true"),
                ("http-status-codes", "2??, 401"),
            ],
            listener(&check(json!({"protocol": "http", "http": {
                "domain": "web.example", "path": "/up", "tls": true, "status_codes": ["2??", "401"],
            }}))),
        ),
        (&[("health-check-http-path", "/up")], None),
        (&[("id", "7"), ("ipv4", "192.0.2.1"), ("ipv6", "::")], None),
    ];
    for (annotations, expected) in rows {
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(changes(&inherited(&json!({})), &ensure(annotations)), expected, "{annotations:?}");
    }
}

#[test]
fn the_network_changes_before_the_rest() {
    let detached = inherited(&json!({"private_net": [], "services": []}));
    let attach = |change: Value| vec![("attach_to_network", with(&json!({"network": 7}), &change))];
    assert_eq!(changes(&detached, &ensure(&[])), attach(json!({})));
    let place = [("private-ipv4", "10.0.1.9"), ("private-subnet-ip-range", "10.0.1.0/24")];
    let at = json!({"ip": "10.0.1.9", "ip_range": "10.0.1.0/24"});
    assert_eq!(changes(&detached, &ensure(&place)), attach(at.clone()));
    let moved = [vec![("detach_from_network", json!({"network": 7}))], attach(at)].concat();
    assert_eq!(changes(&inherited(&json!({})), &ensure(&place)), moved);
    let other = inherited(&json!({"private_net": [{"network": 8, "ip": "10.0.0.5"}]}));
    let moved = [vec![("detach_from_network", json!({"network": 8}))], attach(json!({}))].concat();
    assert_eq!(changes(&other, &ensure(&[])), moved);
}

#[test]
fn services_follow_the_ports() {
    let mut call = call(vec![ServiceAction::Ensure(Service {
        ports: vec![
            port(443, 30_443),
            ServicePort {
                port: 53,
                protocol: Protocol::Udp,
                node_port: Some(30_053),
                ..ServicePort::default()
            },
        ],
        ..service(&[])
    })]);
    let added = json!({
        "listen_port": 443, "destination_port": 30_443, "protocol": "tcp", "proxyprotocol": false,
        "health_check": {"protocol": "tcp", "port": 30_443},
    });
    let expected = vec![("delete_service", json!({"listen_port": 80})), ("add_service", added)];
    assert_eq!(changes(&inherited(&json!({})), &call), expected);
    let ServiceAction::Ensure(service) = &mut call.changes[0].action else { unreachable!() };
    service.ports[0].node_port = None;
    let defaults = Defaults::default();
    assert_eq!(spec(&defaults, &call).err().unwrap().kind, ErrorKind::Invalid);
}

#[test]
fn a_local_policy_asks_the_nodes_for_their_endpoints() {
    let local = |annotations: &[(&str, &str)]| {
        call(vec![ServiceAction::Ensure(Service {
            policy: TrafficPolicy::Local(31_000),
            ..service(annotations)
        })])
    };
    // What the former controller wrote finds the endpoints, too.
    assert_eq!(changes(&inherited(&json!({})), &local(&[])), []);
    let check = |found: &Value, annotations: &[(&str, &str)]| {
        let [(_, body)] = changes(found, &local(annotations)).try_into().unwrap();
        body["health_check"].clone()
    };
    let asks = json!({"protocol": "http", "port": 31_000, "http": {"path": "/healthz"}});
    let none = inherited(&json!({"services": []}));
    assert_eq!(check(&none, &[]), asks);
    assert_eq!(check(&none, &[("health-check-interval", "5s")]), with(&asks, &json!({"interval": 5})));
    assert_eq!(check(&none, &[("health-check-protocol", "tcp")]), json!({"protocol": "tcp", "port": 30_080}));
    let proxy = [("uses-proxyprotocol", "true")];
    assert_eq!(
        check(&none, &proxy),
        json!({"protocol": "tcp", "port": 30_080}),
        "Nodes don't know that protocol"
    );
}

#[test]
fn targets_follow_the_nodes() {
    let server =
        |id: u64, private: bool| json!({"type": "server", "server": {"id": id}, "use_private_ip": private});
    let bare = |id: u64| json!({"type": "server", "server": {"id": id}});
    let ip = |ip: &str| json!({"type": "ip", "ip": {"ip": ip}});
    let selector = json!({"type": "label_selector", "label_selector": {"selector": "a=b"}, "use_private_ip": false, "targets": []});
    let few = |max: usize, targets: &[Value]| {
        inherited(&json!({"load_balancer_type": {"max_targets": max}, "targets": targets}))
    };
    let (add, remove) = (|body: Value| ("add_target", body), |body: Value| ("remove_target", body));
    let private = [("use-private-ip", "true")];
    let rows = [
        (
            "none yet",
            few(25, &[]),
            &[][..],
            vec![add(server(1, false)), add(server(2, false)), add(ip("203.0.113.3"))],
        ),
        (
            "one is gone",
            few(25, &[server(9, false), server(1, false), server(2, false), ip("203.0.113.3")]),
            &[],
            vec![remove(bare(9))],
        ),
        ("no room", few(2, &[server(1, false)]), &[], vec![add(server(2, false))]),
        (
            "room is freed",
            few(2, &[server(1, false), server(9, false)]),
            &[],
            vec![remove(bare(9)), add(server(2, false))],
        ),
        (
            "those of an operator stay",
            few(4, &[selector, server(1, false), server(2, false), ip("203.0.113.3")]),
            &[],
            vec![],
        ),
        (
            "one after the other moves to its other address",
            few(25, &[server(1, false), server(2, true), ip("203.0.113.3")]),
            &private,
            vec![remove(bare(1)), add(server(1, true)), remove(ip("203.0.113.3")), add(ip("10.0.1.3"))],
        ),
    ];
    for (name, found, annotations, expected) in rows {
        assert_eq!(changes(&found, &ensure(annotations)), expected, "{name}");
    }
}

/// What differs from the controller's own, the Service's annotations, and the ingress.
type TakenOver<'a> = (Value, &'a [(&'a str, &'a str)], Vec<Ingress>);

#[test]
fn what_the_former_controller_made_is_served_without_a_write() {
    let rows: [TakenOver<'_>; 5] = [
        (json!({}), &[], ips(&INGRESS)),
        (json!({"public_net": {"enabled": false}}), &[], ips(&INGRESS[2..])),
        (json!({}), &[("ipv6-disabled", "true"), ("disable-private-ingress", "true")], ips(&INGRESS[..1])),
        (json!({}), &[("hostname", "web.example")], vec![Ingress::hostname("web.example")]),
        (json!({"labels": {"by": "hand"}, "load_balancer_type": {"name": "lb31"}}), &[], ips(&INGRESS)),
    ];
    for (change, annotations, expected) in rows {
        let host = cloud(&json!({})).exchange(by_label(&[inherited(&change)]));
        assert_eq!(
            outcome(&host, &ensure(annotations)),
            Ok(ServiceProgress::done(expected)),
            "{annotations:?}"
        );
    }
    // The PROXY protocol shows in the status.
    let found = inherited(
        &json!({"services": [with(&inherited(&json!({}))["services"][0], &json!({"proxyprotocol": true}))]}),
    );
    let host = cloud(&json!({"loadBalancers": {"usesProxyProtocol": true}})).exchange(by_label(&[found]));
    let Ok(ServiceProgress::Done(report)) = outcome(&host, &ensure(&[])) else { panic!() };
    assert!(report.status.iter().all(|ingress| ingress.ip_mode == Some(IpMode::Proxy)), "{report:?}");
}

#[test]
fn our_labels_come_with_the_first_change() {
    let host = cloud(&json!({}))
        .exchange(by_label(&[inherited(&json!({}))]))
        .exchange(put(format!("{ALL}/42")).json(json!({"load_balancer": inherited(&json!({}))})))
        .exchange(action("change_algorithm", "running"));
    let call = ensure(&[("algorithm-type", "least_connections")]);
    let Ok(ServiceProgress::InProgress(progress, report)) = outcome(&host, &call) else { panic!() };
    assert_eq!(progress.resume.as_deref(), Some("balancer http://cloud.test/v1/actions/9"));
    assert_eq!(report.status, ips(&INGRESS), "the ingress works meanwhile");
    let labels = json!({
        UID: WEB, "pileus-cluster": "c", "pileus-service-namespace": "shop", "pileus-service-name": "web",
    });
    let sent: Value = serde_json::from_slice(&host.requests()[1].body).unwrap();
    assert_eq!(sent, json!({"name": NAME, "labels": labels}));
}

#[test]
fn a_load_balancer_of_the_right_name_is_taken_over_unless_a_service_has_it() {
    let named = |change: &Value| by_name("shop", &[inherited(&with(&json!({"name": "shop"}), change))]);
    let call = ensure(&[("name", "shop")]);
    let free = serde_json::from_value::<Value>(json!({"name": "shop"})).unwrap();
    let mut found = inherited(&free);
    found["labels"] = json!({"team": "a"});
    let host = cloud(&json!({}))
        .exchange(by_label(&[]))
        .exchange(by_name("shop", std::slice::from_ref(&found)))
        .exchange(put(format!("{ALL}/42")).json(json!({"load_balancer": found})))
        .exchange(get(format!("{ALL}/42")).json(json!({"load_balancer": inherited(&free)})));
    assert_eq!(outcome(&host, &call), Ok(ServiceProgress::done(ips(&INGRESS))));
    let sent: Value = serde_json::from_slice(&host.requests()[2].body).unwrap();
    assert_eq!((&sent["labels"]["team"], &sent["labels"][UID]), (&json!("a"), &json!(WEB)));
    // One that has a Service isn't taken away from it. The cloud then refuses a second one of the name.
    let host = cloud(&json!({}))
        .exchange(by_label(&[]))
        .exchange(named(&json!({"labels": {UID: "other"}})))
        .exchange(refused(post(ALL), 409, "uniqueness_error"));
    assert_eq!(outcome(&host, &call), Err(ErrorKind::Invalid));
}

#[test]
fn a_load_balancer_is_created_with_all_that_the_cloud_takes_at_once() {
    let created = |annotations: &[(&str, &str)], more: &Value| {
        let created = post(ALL).status(201).json(begun("running"));
        let host = cloud(more).exchange(by_label(&[])).exchange(by_name(NAME, &[])).exchange(created);
        let Ok(ServiceProgress::InProgress(progress, _)) = outcome(&host, &ensure(annotations)) else {
            panic!()
        };
        assert_eq!(progress.resume.as_deref(), Some("balancer http://cloud.test/v1/actions/9"));
        body(&host)
    };
    let server = |id: u64| json!({"type": "server", "server": {"id": id}, "use_private_ip": false});
    let labels = json!({
        UID: WEB, "pileus-cluster": "c", "pileus-service-namespace": "shop", "pileus-service-name": "web",
    });
    let service = json!({
        "listen_port": 80, "destination_port": 30_080, "protocol": "tcp", "proxyprotocol": false,
        "health_check": {"protocol": "tcp", "port": 30_080},
    });
    let expected = json!({
        "name": NAME, "labels": labels, "load_balancer_type": "lb11", "location": "fsn1", "network": 7,
        "services": [service], "targets": [server(1), server(2), {"type": "ip", "ip": {"ip": "203.0.113.3"}}],
    });
    assert_eq!(created(&[], &json!({})), expected);
    let chosen =
        [("location", ""), ("network-zone", "us-east"), ("type", "lb21"), ("disable-public-network", "true")];
    let mut body = created(&chosen, &json!({"loadBalancers": {"algorithmType": "least_connections"}}));
    let place = json!({
        "network_zone": "us-east", "load_balancer_type": "lb21", "public_interface": false,
        "algorithm": {"type": "least_connections"},
    });
    body.as_object_mut()
        .unwrap()
        .retain(|name, _| !["name", "labels", "services", "targets", "network"].contains(&&**name));
    assert_eq!(body, place);
    let later = created(&[("private-ipv4", "10.0.1.9"), ("disable-public-network", "true")], &json!({}));
    let names = |name: &str| later.get(name).is_some();
    assert_eq!(["network", "targets", "public_interface"].map(names), [false; 3], "{later}");
    let host = Host::new()
        .configuration(json!({"endpoint": API}))
        .exchange(by_label(&[]))
        .exchange(by_name(NAME, &[]));
    assert_eq!(outcome(&host, &ensure(&[])), Err(ErrorKind::Invalid), "without a place");
}

#[test]
fn actions_follow_one_another_as_far_as_each_ends_at_once() {
    let options = [("algorithm-type", "least_connections"), ("type", "lb21")];
    let ours = json!({"labels": {
        "pileus-cluster": "c", "pileus-service-namespace": "shop", "pileus-service-name": "web",
    }});
    let changed = json!({"algorithm": {"type": "least_connections"}, "load_balancer_type": {"name": "lb21"}});
    let found = || by_label(&[inherited(&ours)]);
    let read = |change: &Value| get(format!("{ALL}/42")).json(json!({"load_balancer": inherited(change)}));
    let soon = |note: &str| Ok(ServiceProgress::in_progress_with(Duration::from_secs(1), note));
    let rows: [(&str, Vec<Exchange>, Outcome); 6] = [
        (
            "all at once",
            vec![
                found(),
                action("change_algorithm", "success"),
                action("change_type", "success"),
                read(&with(&ours, &changed)),
            ],
            Ok(ServiceProgress::done(ips(&INGRESS))),
        ),
        (
            "removed meanwhile",
            vec![
                found(),
                action("change_algorithm", "success"),
                action("change_type", "success"),
                refused(get(format!("{ALL}/42")), 404, "not_found"),
            ],
            soon("balancer"),
        ),
        ("locked", vec![found(), refused(action("change_algorithm", ""), 423, "locked")], soon("balancer")),
        (
            "changed",
            vec![found(), refused(action("change_algorithm", ""), 409, "conflict")],
            Err(ErrorKind::Conflict(None)),
        ),
        (
            "throttled",
            vec![
                found(),
                refused(action("change_algorithm", ""), 429, "rate_limit_exceeded")
                    .header("retry-after", "7"),
            ],
            Err(ErrorKind::Throttled(Some(Duration::from_secs(7)))),
        ),
        (
            "fails at once",
            vec![found(), action("change_algorithm", "error")],
            Err(ErrorKind::Unavailable(None)),
        ),
    ];
    for (name, exchanges, expected) in rows {
        let host = exchanges.into_iter().fold(cloud(&json!({})), Host::exchange);
        let outcome = outcome(&host, &ensure(&options)).map(|progress| match progress {
            ServiceProgress::InProgress(progress, _) => progress.into(),
            progress => progress,
        });
        assert_eq!(outcome, expected, "{name}");
    }
}

#[test]
fn a_note_costs_one_poll_and_the_reason_of_a_failure_is_told() {
    let mut call = ensure(&[]);
    call.changes[0].resume = Some(format!("balancer {API}/actions/9"));
    let poll = |status: &str| get(format!("{API}/actions/9")).json(begun(status));
    let rows = [
        ("running", poll("running"), None, true),
        ("ended", poll("success"), Some(by_label(&[inherited(&json!({}))])), true),
        ("forgotten", refused(poll(""), 404, "not_found"), Some(by_label(&[inherited(&json!({}))])), true),
        ("failed", poll("error"), None, false),
    ];
    for (name, poll, read, is_ok) in rows {
        let host = read.into_iter().fold(cloud(&json!({})).exchange(poll), Host::exchange);
        let outcomes = host.change_load_balancers::<Hetzner>(&call).unwrap();
        assert_eq!(outcomes[0].is_ok(), is_ok, "{name}: {outcomes:?}");
        let message = outcomes[0].as_ref().err().map(|error| error.message.as_str()).unwrap_or_default();
        assert_eq!(message.contains("action_failed: late"), !is_ok, "{name}: {message}");
    }
}

#[test]
fn notices_tell_what_is_left_out() {
    let found =
        json!({"load_balancer_type": {"max_targets": 1}, "targets": [inherited(&json!({}))["targets"][0]]});
    let udp = ServicePort { protocol: Protocol::Udp, ..port(53, 30_053) };
    let service = Service { ports: vec![port(80, 30_080), udp], ..service(&[]) };
    let host = cloud(&json!({})).exchange(by_label(&[inherited(&found)]));
    let Ok(ServiceProgress::Done(report)) = outcome(&host, &call(vec![ServiceAction::Ensure(service)]))
    else {
        panic!()
    };
    let notices: Vec<_> =
        report.notices.iter().map(|it| (&*it.reason, it.is_warning, &*it.message)).collect();
    let targets = "1 of 3 nodes receive traffic: load balancer type lb11 has 1 targets at most";
    let udp = "ports of protocol UDP are left out: load balancers of this cloud lack it";
    assert_eq!(notices, [("MaxTargetsReached", true, targets), ("UnsupportedProtocolConfigured", true, udp)]);
}

#[test]
fn certificates_are_found_or_managed() {
    let https = |more: &[(&'static str, &'static str)]| ensure(&[&[("protocol", "https")], more].concat());
    let list = |query: &str, found: Value| {
        get(format!("{API}/certificates?per_page=50&{query}")).json(json!({"certificates": found}))
    };
    let by_uid = format!("label_selector=hcloud-ccm%2Fservice-uid%3D%3D{WEB}");
    let managed =
        [("certificate-type", "managed"), ("http-managed-certificate-domains", "a.example,b.example")];
    let new =
        post(format!("{API}/certificates")).status(201).json(json!({"certificate": {"id": 6}, "action": {}}));
    let rows = [
        (
            https(&[("http-certificates", "5,shop")]),
            vec![list("name=shop", json!([{"id": 6}]))],
            json!([5, 6]),
        ),
        (https(&managed), vec![list(&by_uid, json!([{"id": 6}]))], json!([6])),
        (https(&managed), vec![list(&by_uid, json!([])), new], json!([6])),
    ];
    for (call, exchanges, certificates) in rows {
        let found =
            inherited(&http_service(&json!({"protocol": "https", "http": {"certificates": certificates}})));
        let host = exchanges.into_iter().fold(cloud(&json!({})), Host::exchange).exchange(by_label(&[found]));
        assert_eq!(outcome(&host, &call), Ok(ServiceProgress::done(ips(&INGRESS))));
        if host.requests().len() == 3 {
            let sent: Value = serde_json::from_slice(&host.requests()[1].body).unwrap();
            let name = format!("ccm-managed-certificate-{WEB}");
            let domains = ["a.example", "b.example"];
            assert_eq!(
                sent,
                json!({"name": name, "type": "managed", "domain_names": domains, "labels": {UID: WEB}})
            );
        }
    }
    let host = cloud(&json!({})).exchange(list("name=shop", json!([])));
    assert_eq!(outcome(&host, &https(&[("http-certificates", "shop")])), Err(ErrorKind::Invalid));
    assert_eq!(outcome(&cloud(&json!({})), &https(&managed[..1])), Err(ErrorKind::Invalid));
}

#[test]
fn an_annotation_that_goes_leaves_its_default() {
    let found = inherited(&http_service(&json!({"http": {"sticky_sessions": true}})));
    let [(name, body)] = changes(&found, &ensure(&[("protocol", "http")])).try_into().unwrap();
    assert_eq!((name, &body["http"]), ("update_service", &json!({"sticky_sessions": false})));
    // What no annotation has a default for stays as it was.
    let found = inherited(&http_service(&json!({"http": {"timeout_idle": 60}})));
    assert_eq!(changes(&found, &ensure(&[("protocol", "http")])), []);
}

#[test]
fn a_deleted_service_takes_its_load_balancer_along_unless_that_is_protected() {
    let one = || delete(format!("{ALL}/42"));
    let gone = || Ok(ServiceProgress::gone());
    let rows = [
        ("deleted", Some(json!({})), Some(one().status(204)), gone()),
        ("gone", None, None, gone()),
        ("gone meanwhile", Some(json!({})), Some(refused(one(), 404, "not_found")), gone()),
        ("protected", Some(json!({"protection": {"delete": true}})), None, gone()),
        (
            "locked",
            Some(json!({})),
            Some(refused(one(), 423, "locked")),
            Ok(ServiceProgress::in_progress_with(Duration::from_secs(1), "-balancer")),
        ),
        ("denied", Some(json!({})), Some(refused(one(), 403, "forbidden")), Err(ErrorKind::Denied)),
    ];
    for (name, found, deletion, expected) in rows {
        let found: Vec<_> = found.iter().map(inherited).collect();
        let host = deletion.into_iter().fold(cloud(&json!({})).exchange(by_label(&found)), Host::exchange);
        let action = ServiceAction::Delete(service(&[]));
        assert_eq!(outcome(&host, &call(vec![action])), expected, "{name}");
    }
}

#[test]
fn what_has_no_cluster_is_only_reported_and_what_is_protected_stays() {
    let labeled = |id: u64, labels: Value| {
        let mut balancer = inherited(&json!({"id": id, "name": format!("lb-{id}")}));
        balancer["labels"] = labels;
        balancer
    };
    let all = [
        labeled(1, json!({UID: "a"})),
        labeled(
            2,
            json!({UID: "b", "pileus-cluster": "c", "pileus-service-namespace": "shop", "pileus-service-name": "web"}),
        ),
        labeled(3, json!({UID: "d", "pileus-cluster": "other"})),
        labeled(4, json!({})),
        with(&labeled(5, json!({UID: "e", "pileus-cluster": "c"})), &json!({"protection": {"delete": true}})),
    ];
    let host =
        cloud(&json!({})).exchange(get(format!("{ALL}?per_page=50")).json(json!({"load_balancers": all})));
    let cluster = Cluster { uid: Some("c".to_owned()), ..Cluster::default() };
    let owned = host.list_owned::<Hetzner>(&cluster).unwrap();
    let seen: Vec<_> =
        owned.iter().map(|it| (&*it.name, it.cluster_uid.as_deref(), it.service_uid.as_deref())).collect();
    assert_eq!(seen, [("lb-1", None, Some("a")), ("lb-2", Some("c"), Some("b"))]);
    let orphan = owned.into_iter().next_back().unwrap();
    let url = format!("{ALL}?per_page=50&label_selector=hcloud-ccm%2Fservice-uid%3D%3Db");
    let host = cloud(&json!({}))
        .exchange(get(url).json(json!({"load_balancers": [all[1]]})))
        .exchange(delete(format!("{ALL}/2")).status(204));
    assert_eq!(outcome(&host, &call(vec![ServiceAction::RemoveOrphan(orphan)])), Ok(ServiceProgress::gone()));
}

#[test]
fn a_private_address_needs_a_network() {
    let host = Host::new().configuration(json!({"endpoint": API}));
    assert_eq!(outcome(&host, &ensure(&[("use-private-ip", "true")])), Err(ErrorKind::Invalid));
    let host = cloud(&json!({"network": "nodes"}))
        .exchange(
            get(format!("{API}/networks?per_page=50&name=nodes")).json(json!({"networks": [{"id": 7}]})),
        )
        .exchange(by_label(&[inherited(&json!({}))]));
    assert_eq!(outcome(&host, &ensure(&[])), Ok(ServiceProgress::done(ips(&INGRESS))));
}
