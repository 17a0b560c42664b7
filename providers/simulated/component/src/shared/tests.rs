#![expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]

use pileus_guest::testing::{Exchange, Host, SentRequest, delete, get, put};
use pileus_guest::{
    Cluster, ErrorKind, OwnedLoadBalancer, Protocol, ServiceAction, ServicePort, ServiceProgress,
    TargetSelection,
};
use serde_json::{Value, json};

use super::*;
use crate::load_balancer::tests::{
    Outcome, call, changed, in_progress_with as in_progress, labels, outcomes, service, with_note,
};

/// Notes of changes that wait.
const FRONTEND: &str = "balancer";
const REMOVED: &str = "-balancer";
const DELETED: &str = "-address";

const SHARED: &str = "http://cloud.test/v1/shared-load-balancers/c";
const ADDRESSES: &str = "http://cloud.test/v1/addresses";

fn cloud() -> Host {
    Host::new().configuration(json!({"endpoint": "http://cloud.test", "loadBalancers": "shared"}))
}

fn value(uid: &str, change: &Value) -> Value {
    let number = uid.bytes().map(u32::from).sum::<u32>();
    let value = format!("198.51.100.{number}");
    let there = json!({"name": uid, "state": "active", "etag": "e1", "family": "ipv4", "value": value, "labels": labels(uid)});
    changed(&there, change)
}

fn address(uid: &str, change: &Value) -> Exchange {
    get(format!("{ADDRESSES}/{uid}")).json(value(uid, change))
}

fn no_address(uid: &str) -> Exchange {
    get(format!("{ADDRESSES}/{uid}")).status(404)
}

fn addresses(uids: &[&str]) -> Exchange {
    let all: Vec<_> = uids.iter().map(|uid| value(uid, &json!({}))).collect();
    get(format!("{ADDRESSES}?limit=1000")).json(json!({"addresses": all}))
}

fn frontend(uid: &str) -> Value {
    json!({"name": uid, "address": uid, "ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}], "sourceRanges": [], "healthCheckPort": null, "stickySeconds": null, "labels": labels(uid)})
}

fn shown(uids: &[&str], change: &Value) -> Value {
    let frontends: Vec<_> = uids.iter().map(|uid| frontend(uid)).collect();
    let there = json!({"name": "c", "state": "active", "etag": "e1", "machines": ["m-1", "m-2"], "frontends": frontends});
    changed(&there, change)
}

fn read(uids: &[&str], change: &Value) -> Exchange {
    get(SHARED).json(shown(uids, change)).header("etag", "\"e1\"")
}

fn written(uids: &[&str], change: &Value) -> Exchange {
    put(SHARED).json(shown(uids, change)).header("etag", "\"e2\"")
}

fn ensure(uids: &[&str]) -> ServiceCall {
    call(uids.iter().map(|uid| ServiceAction::Ensure(service(uid))).collect())
}

fn remove(uids: &[&str]) -> ServiceCall {
    call(uids.iter().map(|uid| ServiceAction::Delete(service(uid))).collect())
}

fn done(uid: &str) -> Outcome {
    let Value::String(address) = &value(uid, &json!({}))["value"] else { panic!() };
    Ok(ServiceProgress::done([Ingress::ip(&**address)]))
}

fn body(sent: &SentRequest) -> Value {
    serde_json::from_slice(&sent.body).unwrap()
}

#[test]
fn an_address_is_created_before_its_frontend() {
    let busy = json!({"state": "creating"});
    let made = put(format!("{ADDRESSES}/a")).json(value("a", &busy));
    let host = cloud().exchange(no_address("a")).exchange(made);
    assert_eq!(outcomes(&host, &ensure(&["a"])), [in_progress(ADDRESS)]);
    assert_eq!(body(&host.requests()[1]), json!({"family": "ipv4", "value": null, "labels": labels("a")}));
    let host = cloud().exchange(address("a", &busy));
    assert_eq!(outcomes(&host, &ensure(&["a"])), [in_progress(ADDRESS)]);
    let at_once = put(format!("{ADDRESSES}/a")).json(value("a", &json!({})));
    let host = cloud().exchange(no_address("a")).exchange(at_once);
    let host =
        host.exchange(get(SHARED).status(404)).exchange(written(&["a"], &json!({"state": "creating"})));
    assert_eq!(outcomes(&host, &ensure(&["a"])), [in_progress(FRONTEND)]);
}

#[test]
fn the_frontends_of_a_call_are_one_write() {
    let uids = ["a", "b", "c", "d"];
    let host = cloud()
        .exchange(read(&["x"], &json!({})))
        .exchange(addresses(&["a", "b", "c", "d", "x"]))
        .exchange(written(&["x", "a", "b", "c", "d"], &json!({"state": "updating"})));
    assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(|_| in_progress(FRONTEND)));
    let write = &host.requests()[2];
    assert_eq!(write.header("if-match"), Some("\"e1\""));
    let frontends = ["x", "a", "b", "c", "d"].map(frontend);
    assert_eq!(body(write), json!({"machines": ["m-1", "m-2"], "frontends": frontends}));
    let host = cloud()
        .exchange(get(SHARED).status(404))
        .exchange(addresses(&uids))
        .exchange(written(&uids, &json!({})));
    assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(done));
    assert_eq!(host.requests()[2].header("if-none-match"), Some("*"));
}

#[test]
fn nothing_is_written_if_all_matches_and_little_is_read_during_a_write() {
    let uids = ["a", "b", "c", "d"];
    let host = cloud().exchange(read(&uids, &json!({}))).exchange(addresses(&uids));
    assert_eq!(outcomes(&host, &ensure(&uids)), uids.map(done));
    let host = cloud().exchange(read(&uids, &json!({"state": "updating"})));
    assert_eq!(outcomes(&host, &with_note(ensure(&uids), FRONTEND)), uids.map(|_| in_progress(FRONTEND)));
}

#[test]
fn a_node_that_joins_causes_one_write_for_all_services() {
    let uids = ["a", "b", "c", "d"];
    let host = cloud()
        .exchange(read(&uids, &json!({"machines": ["m-1"]})))
        .exchange(addresses(&uids))
        .exchange(written(&uids, &json!({})));
    let actions = uids.map(|uid| ServiceAction::UpdateTargets(service(uid)));
    assert_eq!(outcomes(&host, &call(actions.to_vec())), uids.map(done));
    assert_eq!(body(&host.requests()[2])["machines"], json!(["m-1", "m-2"]));
}

#[test]
fn a_service_with_some_of_the_nodes_removes_none_from_the_others() {
    let host = cloud().exchange(read(&["a"], &json!({}))).exchange(address("a", &json!({})));
    let few = Service { targets: TargetSelection::Rows(vec![0]), ..service("a") };
    assert_eq!(outcomes(&host, &call(vec![ServiceAction::UpdateTargets(few)])), [done("a")]);
}

#[test]
fn where_somebody_else_was_faster_their_frontends_are_kept() {
    let host = cloud()
        .exchange(read(&[], &json!({})))
        .exchange(address("a", &json!({})))
        .exchange(put(SHARED).status(412))
        .exchange(read(&["b"], &json!({})))
        .exchange(written(&["b", "a"], &json!({})));
    assert_eq!(outcomes(&host, &ensure(&["a"])), [done("a")]);
    assert_eq!(body(&host.requests()[4])["frontends"], json!([frontend("b"), frontend("a")]));
}

#[test]
fn an_invalid_service_does_not_affect_the_others() {
    let mut mixed = service("b");
    mixed.ports.push(ServicePort { protocol: Protocol::Sctp, ..ServicePort::default() });
    let call = call(vec![ServiceAction::Ensure(service("a")), ServiceAction::Ensure(mixed)]);
    let host = cloud()
        .exchange(get(SHARED).status(404))
        .exchange(address("a", &json!({})))
        .exchange(written(&["a"], &json!({})));
    assert_eq!(outcomes(&host, &call), [done("a"), Err(ErrorKind::Invalid)]);
}

#[test]
fn a_service_that_the_cloud_rejects_does_not_affect_the_others() {
    let host = cloud()
        .exchange(read(&["x"], &json!({})).times(3))
        .exchange(address("a", &json!({})))
        .exchange(address("b", &json!({})))
        .exchange(put(SHARED).status(400).times(2))
        .exchange(written(&["x", "b"], &json!({"state": "updating"})));
    assert_eq!(outcomes(&host, &ensure(&["a", "b"])), [Err(ErrorKind::Invalid), in_progress(FRONTEND)]);
    let last = host.requests().pop().unwrap();
    assert_eq!(body(&last)["frontends"], json!([frontend("x"), frontend("b")]));
}

#[test]
fn an_unreadable_address_and_its_frontend_stay_unchanged() {
    let host = cloud()
        .exchange(read(&["a", "b", "c"], &json!({})))
        .exchange(get(format!("{ADDRESSES}/a")).status(503))
        .exchange(get(format!("{ADDRESSES}/b")).status(403))
        .exchange(address("c", &json!({})));
    let expected = [Err(ErrorKind::Unavailable(None)), Err(ErrorKind::Denied), done("c")];
    assert_eq!(outcomes(&host, &ensure(&["a", "b", "c"])), expected);
}

#[test]
fn a_frontend_is_removed_before_its_address() {
    let host = cloud()
        .exchange(read(&["a", "b"], &json!({})))
        .exchange(address("a", &json!({})))
        .exchange(written(&["b"], &json!({"state": "updating"})));
    assert_eq!(outcomes(&host, &remove(&["a"])), [in_progress(REMOVED)]);
    assert_eq!(body(&host.requests()[2])["frontends"], json!([frontend("b")]));
    let there = || address("a", &json!({}));
    let host = cloud().exchange(read(&["b"], &json!({"state": "updating"}))).exchange(there());
    assert_eq!(outcomes(&host, &remove(&["a"])), [in_progress(REMOVED)], "the write may yet fail");
    let orphan = OwnedLoadBalancer { name: "a".to_owned(), ..OwnedLoadBalancer::default() };
    for action in [ServiceAction::Delete(service("a")), ServiceAction::RemoveOrphan(orphan)] {
        let deleted = delete(format!("{ADDRESSES}/a")).status(202);
        let host = cloud().exchange(read(&["b"], &json!({}))).exchange(there()).exchange(deleted);
        assert_eq!(outcomes(&host, &call(vec![action])), [in_progress(DELETED)]);
    }
    let host = cloud().exchange(read(&["b"], &json!({}))).exchange(no_address("a"));
    assert_eq!(outcomes(&host, &with_note(remove(&["a"]), DELETED)), [Ok(ServiceProgress::gone())]);
}

#[test]
fn an_address_being_deleted_does_not_wait_for_writes_for_others() {
    let busy = json!({"state": "updating"});
    let deleting = address("a", &json!({"state": "deleting"}));
    for (found, expected) in
        [(deleting, in_progress(DELETED)), (no_address("a"), Ok(ServiceProgress::gone()))]
    {
        let host = cloud().exchange(read(&["b"], &busy)).exchange(found);
        assert_eq!(outcomes(&host, &with_note(remove(&["a"]), DELETED)), [expected]);
    }
}

#[test]
fn the_shared_load_balancer_is_deleted_with_its_last_frontend() {
    let deleting = shown(&["a"], &json!({"state": "deleting"}));
    let host = cloud()
        .exchange(read(&["a"], &json!({})))
        .exchange(address("a", &json!({})))
        .exchange(delete(SHARED).status(202).json(deleting).header("etag", "\"e2\""));
    assert_eq!(outcomes(&host, &remove(&["a"])), [in_progress(REMOVED)]);
    assert_eq!(host.requests()[2].header("if-match"), Some("\"e1\""));
    let host = cloud()
        .exchange(read(&["a"], &json!({})))
        .exchange(address("a", &json!({})))
        .exchange(delete(SHARED).status(204))
        .exchange(get(SHARED).status(404))
        .exchange(delete(format!("{ADDRESSES}/a")).status(204));
    assert_eq!(outcomes(&host, &remove(&["a"])), [Ok(ServiceProgress::gone())]);
}

#[test]
fn a_write_that_fails_late_is_reported_to_waiting_changes_and_retried() {
    let failed = json!({"state": "failed", "error": "late"});
    let there = || address("a", &json!({}));
    for change in [ensure(&["a"]), remove(&["b"])] {
        let is_removal = change.changes[0].is_removal();
        let (address, note) =
            if is_removal { (address("b", &json!({})), REMOVED) } else { (there(), FRONTEND) };
        let host = cloud().exchange(read(&["a"], &failed).times(2)).exchange(address.clone());
        let result = outcomes(&host, &with_note(change.clone(), note));
        assert_eq!(result, [Err(ErrorKind::Unavailable(None))]);
        let again = written(&["a"], &json!({"state": "updating"}));
        let host = cloud().exchange(read(&["a"], &failed)).exchange(address).exchange(again);
        assert_eq!(outcomes(&host, &change), [in_progress(note)]);
    }
    let host = cloud().exchange(address("a", &failed));
    assert_eq!(outcomes(&host, &with_note(ensure(&["a"]), ADDRESS)), [Err(ErrorKind::Unavailable(None))]);
    let again = put(format!("{ADDRESSES}/a")).json(value("a", &json!({"state": "updating"})));
    let host = cloud().exchange(address("a", &failed)).exchange(again);
    assert_eq!(outcomes(&host, &ensure(&["a"])), [in_progress(ADDRESS)]);
}

#[test]
fn another_requested_address_is_sent_to_the_cloud_which_may_refuse_it() {
    let asks = Service { requested_ip: Some("203.0.113.1".to_owned()), ..service("a") };
    let refused = put(format!("{ADDRESSES}/a")).status(409);
    let host = cloud().exchange(address("a", &json!({}))).exchange(refused);
    let result = outcomes(&host, &call(vec![ServiceAction::Ensure(asks)]));
    assert_eq!(result, [Err(ErrorKind::Conflict(None))]);
    assert_eq!(body(&host.requests()[1])["value"], "203.0.113.1");
}

#[test]
fn what_a_shared_load_balancer_lacks_is_a_warning() {
    let wants = Service {
        families: vec![IpFamily::Ipv4, IpFamily::Ipv6],
        annotations: vec![(HOSTNAME.to_owned(), "true".to_owned())],
        ..service("a")
    };
    let host = cloud().exchange(read(&["a"], &json!({}))).exchange(address("a", &json!({})));
    let result = outcomes(&host, &call(vec![ServiceAction::Ensure(wants)]));
    let [Ok(ServiceProgress::Done(report))] = &result[..] else { panic!("{result:?}") };
    assert_eq!(report.notices.len(), 2, "{report:?}");
}

#[test]
fn addresses_show_what_is_owned_and_without_a_cluster_uid_nothing_is_created() {
    let host = cloud().exchange(addresses(&["a"]));
    assert_eq!(host.list_owned::<Simulated>(&ensure(&[]).cluster).unwrap()[0].name, "a");
    let nameless = ServiceCall { cluster: Cluster::default(), ..ensure(&["a"]) };
    assert_eq!(
        cloud().change_load_balancers::<Simulated>(&nameless).unwrap_err().kind,
        ErrorKind::Unavailable(None)
    );
}
