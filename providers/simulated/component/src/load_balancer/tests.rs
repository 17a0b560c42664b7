#![expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]

use std::time::Duration;

use pileus_guest::testing::{Exchange, Host, delete, get, put};
use pileus_guest::{
    ErrorKind, ServiceAction, ServiceChange, ServicePort, ServiceProgress, SessionAffinity, Target,
    TargetSelection, TrafficPolicy,
};
use serde_json::{Value, json};

use super::*;

const ALL: &str = "http://cloud.test/v1/load-balancers";

fn cloud() -> Host {
    Host::new().configuration(json!({"endpoint": "http://cloud.test"}))
}

pub(crate) fn service(uid: &str) -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        ports: vec![ServicePort { port: 80, node_port: Some(30_080), ..ServicePort::default() }],
        families: vec![IpFamily::Ipv4],
        ..Service::default()
    }
}

pub(crate) fn call(actions: Vec<ServiceAction>) -> ServiceCall {
    let target = |number: u32| Target { provider_id: format!("simulated://m-{number}"), ..Target::default() };
    ServiceCall {
        cluster: Cluster { uid: Some("c".to_owned()), ..Cluster::default() },
        targets: [2, 1].map(target).to_vec(),
        changes: actions.into_iter().map(ServiceChange::from).collect(),
        ..ServiceCall::default()
    }
}

pub(crate) fn with_note(mut call: ServiceCall, note: &str) -> ServiceCall {
    for change in &mut call.changes {
        change.resume = Some(note.to_owned());
    }
    call
}

pub(crate) fn labels(uid: &str) -> Value {
    json!({"pileus-cluster": "c", "pileus-service": uid, "pileus-service-namespace": "shop", "pileus-service-name": "web"})
}

pub(crate) fn changed(value: &Value, change: &Value) -> Value {
    let mut value = value.clone();
    value.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    value
}

fn there(uid: &str, change: &Value) -> Value {
    let there = json!({
        "name": uid, "state": "active", "etag": "e1", "addresses": ["198.51.100.7"],
        "hostname": format!("{uid}.lb.example"), "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}],
        "machines": ["m-1", "m-2"], "sourceRanges": [], "families": ["ipv4"], "labels": labels(uid),
    });
    changed(&there, change)
}

fn one(uid: &str) -> String {
    format!("{ALL}/{uid}")
}

fn at(uid: &str, change: &Value) -> Exchange {
    get(one(uid)).json(there(uid, change))
}

fn written(change: &Value) -> Exchange {
    put(one("u")).json(there("u", change))
}

pub(crate) fn in_progress_with(note: &str) -> Outcome {
    const POLL_INTERVAL: Duration = Duration::from_secs(1);
    Ok(ServiceProgress::in_progress_with(POLL_INTERVAL, note))
}

pub(crate) type Outcome = Result<ServiceProgress, ErrorKind>;

fn done() -> Outcome {
    Ok(ServiceProgress::done([Ingress::ip("198.51.100.7")]))
}

pub(crate) fn outcomes(host: &Host, call: &ServiceCall) -> Vec<Outcome> {
    let outcomes = host.change_load_balancers::<Simulated>(call).unwrap();
    outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind)).collect()
}

#[test]
fn a_load_balancer_is_written_only_if_it_differs_from_what_its_service_asks_for() {
    let (none, so) = (get(one("u")).status(404), json!({}));
    let (busy, failed) = (json!({"state": "updating"}), json!({"state": "failed", "error": "late"}));
    let other = json!({"ports": [{"protocol": "udp", "port": 80}]});
    let rows = [
        (
            "new, takes time",
            none.clone(),
            None,
            Some(written(&json!({"state": "creating"}))),
            in_progress_with("balancer"),
        ),
        ("new, at once", none.clone(), None, Some(written(&so)), done()),
        ("new, fails at once", none, None, Some(written(&failed)), Err(ErrorKind::Unavailable(None))),
        ("as it should be", at("u", &so), None, None, done()),
        ("machines in another order", at("u", &json!({"machines": ["m-2", "m-1"]})), None, None, done()),
        ("being created", at("u", &json!({"state": "creating"})), None, None, in_progress_with("balancer")),
        ("being changed", at("u", &busy), Some("balancer"), None, in_progress_with("balancer")),
        ("being deleted", at("u", &json!({"state": "deleting"})), None, None, in_progress_with("balancer")),
        ("other ports", at("u", &other), None, Some(written(&busy)), in_progress_with("balancer")),
        ("other machines", at("u", &json!({"machines": ["m-1"]})), None, Some(written(&so)), done()),
        ("other labels", at("u", &json!({"labels": {}})), None, Some(written(&so)), done()),
        ("another family", at("u", &json!({"families": ["ipv6"]})), None, Some(written(&so)), done()),
        ("failed before", at("u", &failed), None, Some(written(&busy)), in_progress_with("balancer")),
        ("failed meanwhile", at("u", &failed), Some("balancer"), None, Err(ErrorKind::Unavailable(None))),
        ("refused", at("u", &other), None, Some(put(one("u")).status(409)), Err(ErrorKind::Conflict(None))),
    ];
    for (name, found, note, write, expected) in rows {
        let host = write.into_iter().fold(cloud().exchange(found), Host::exchange);
        let call = note.into_iter().fold(call(vec![ServiceAction::Ensure(service("u"))]), with_note);
        assert_eq!(outcomes(&host, &call), [expected], "{name}");
    }
}

#[test]
fn all_that_a_service_asks_for_is_written() {
    let desired = Service {
        ports: vec![
            ServicePort { port: 80, node_port: Some(30_080), ..ServicePort::default() },
            ServicePort { port: 53, protocol: Protocol::Udp, ..ServicePort::default() },
        ],
        policy: TrafficPolicy::Local(31_000),
        affinity: SessionAffinity::ClientIp(Duration::from_mins(10)),
        source_ranges: vec!["192.0.2.0/24".to_owned()],
        requested_ip: Some("198.51.100.9".to_owned()),
        families: vec![IpFamily::Ipv6, IpFamily::Ipv4],
        targets: TargetSelection::Rows(vec![1]),
        ..service("u")
    };
    let host = cloud().exchange(at("u", &json!({}))).exchange(written(&json!({"state": "updating"})));
    outcomes(&host, &call(vec![ServiceAction::UpdateTargets(desired)]));
    let sent: Value = serde_json::from_slice(&host.requests()[1].body).unwrap();
    let expected = json!({
        "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}, {"protocol": "udp", "port": 53, "nodePort": null}],
        "machines": ["m-1"], "sourceRanges": ["192.0.2.0/24"], "families": ["ipv6", "ipv4"],
        "address": "198.51.100.9", "healthCheckPort": 31_000, "stickySeconds": 600, "labels": labels("u"),
    });
    assert_eq!(sent, expected);
}

#[test]
fn requested_values_are_compared_by_meaning() {
    let asks = |text: &str| Service { requested_ip: Some(text.to_owned()), ..service("u") };
    let six = json!({"addresses": ["2001:db8::7"]});
    let host = cloud().exchange(at("u", &six));
    let outcome = outcomes(&host, &call(vec![ServiceAction::Ensure(asks("2001:DB8:0::7"))]));
    assert_eq!(outcome, [Ok(ServiceProgress::done([Ingress::ip("2001:db8::7")]))]);
    let named = Service { annotations: vec![(HOSTNAME.to_owned(), "true".to_owned())], ..service("u") };
    let host = cloud().exchange(at("u", &json!({})));
    let outcome = outcomes(&host, &call(vec![ServiceAction::Ensure(named)]));
    assert_eq!(outcome, [Ok(ServiceProgress::done([Ingress::hostname("u.lb.example")]))]);
}

#[test]
fn an_invalid_service_gets_a_helpful_error_and_writes_nothing() {
    let mut mixed = service("u");
    mixed.ports.push(ServicePort { protocol: Protocol::Sctp, ..ServicePort::default() });
    let nowhere = Service { requested_ip: Some("here".to_owned()), ..service("u") };
    for (wrong, said) in [(mixed, "Service of their own"), (nowhere, "`here` is not an IP address")] {
        let host = cloud();
        let call = call(vec![ServiceAction::Ensure(wrong)]);
        let [Err(error)] = &host.change_load_balancers::<Simulated>(&call).unwrap()[..] else { panic!() };
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(said), "{error}");
    }
}

#[test]
fn a_deletion_continues_until_the_resource_is_gone() {
    let (none, failed) = (get(one("u")).status(404), json!({"state": "failed", "error": "late"}));
    let gone = Ok(ServiceProgress::gone());
    let gave = |status| Some(delete(one("u")).status(status));
    let rows = [
        ("there, takes time", at("u", &json!({})), None, gave(202), in_progress_with("-balancer")),
        ("there, at once", at("u", &json!({})), None, gave(204), gone.clone()),
        ("gone since", at("u", &json!({})), None, gave(404), gone.clone()),
        ("being created", at("u", &json!({"state": "creating"})), None, None, in_progress_with("-balancer")),
        (
            "being deleted",
            at("u", &json!({"state": "deleting"})),
            Some("-balancer"),
            None,
            in_progress_with("-balancer"),
        ),
        ("failed before", at("u", &failed), None, gave(202), in_progress_with("-balancer")),
        ("failed meanwhile", at("u", &failed), Some("-balancer"), None, Err(ErrorKind::Unavailable(None))),
        ("not seen, deleted before", none.clone(), Some("-balancer"), None, gone.clone()),
        (
            "not seen, written before",
            none.clone(),
            Some("balancer"),
            gave(202),
            in_progress_with("-balancer"),
        ),
        ("not seen", none, None, gave(404), gone),
    ];
    for (name, found, note, deletion, expected) in rows {
        let orphan = OwnedLoadBalancer { name: "u".to_owned(), ..OwnedLoadBalancer::default() };
        for action in [ServiceAction::Delete(service("u")), ServiceAction::RemoveOrphan(orphan)] {
            let host = deletion.clone().into_iter().fold(cloud().exchange(found.clone()), Host::exchange);
            let call = note.into_iter().fold(call(vec![action]), with_note);
            assert_eq!(outcomes(&host, &call), std::slice::from_ref(&expected), "{name}");
        }
    }
}

#[test]
fn many_load_balancers_are_looked_up_in_one_list_and_only_differing_ones_written() {
    let mut call = call(["a", "b", "c"].map(|uid| ServiceAction::Ensure(service(uid))).to_vec());
    call.changes.push(ServiceAction::Delete(service("d")).into());
    call.changes.push(ServiceAction::Ensure(service("u")).into());
    let url = format!("{ALL}?limit=1000");
    let first = json!({"loadBalancers": [there("a", &json!({})), there("b", &json!({"state": "creating"}))], "next": "n"});
    let second = json!({"loadBalancers": [there("c", &json!({})), there("d", &json!({}))]});
    let host = cloud()
        .exchange(get(&*url).json(first))
        .exchange(get(format!("{url}&cursor=n")).json(second))
        .exchange(delete(one("d")).status(202))
        .exchange(written(&json!({"state": "creating"})));
    let expected = [
        done(),
        in_progress_with("balancer"),
        done(),
        in_progress_with("-balancer"),
        in_progress_with("balancer"),
    ];
    assert_eq!(outcomes(&host, &call), expected);
    let host = cloud().exchange(get(&*url).status(503));
    assert!(
        host.change_load_balancers::<Simulated>(&call).is_err(),
        "a list that fails says nothing about absence"
    );
}

#[test]
fn resources_labeled_with_this_cluster_or_none_are_owned() {
    let labeled = |name: &str, labels: Value| there(name, &json!({"labels": labels}));
    let all = json!({"loadBalancers": [
        there("a", &json!({})),
        labeled("b", json!({"pileus-cluster": "other", "pileus-service": "b"})),
        labeled("c", json!({"pileus-service": "c"})),
        labeled("d", json!({})),
    ]});
    let host = cloud().exchange(get(format!("{ALL}?limit=1000")).json(all));
    let owned = host.list_owned::<Simulated>(&call(Vec::new()).cluster).unwrap();
    let whole = OwnedLoadBalancer {
        cluster_uid: Some("c".to_owned()),
        service_uid: Some("a".to_owned()),
        service: Some(("shop".to_owned(), "web".to_owned())),
        name: "a".to_owned(),
        ..OwnedLoadBalancer::default()
    };
    let without_cluster = OwnedLoadBalancer {
        service_uid: Some("c".to_owned()),
        name: "c".to_owned(),
        ..OwnedLoadBalancer::default()
    };
    assert_eq!(owned, [whole, without_cluster]);
}
