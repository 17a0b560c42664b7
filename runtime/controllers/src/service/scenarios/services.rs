//! One Service: its finalizer, its load balancer, its status and its events.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Error as CloudError, ErrorKind, IpMode, ServiceProgress};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api_server::patch_service;
use crate::error::Error;
use crate::nodes::PatchTarget;
use crate::scenarios::merge;
use crate::service::harness::{
    AUDIT, FINALIZER, Harness, facts, failure, ingress, node, nodes, service, targets,
};
use crate::service::plan::{PlanContext, Step, plan};
use crate::service::record::Record;
use crate::service::scope::ServiceScope;
use crate::service::work::{Summary, Work, Write};

/// Asserts which calls and how many patches follow from the first observation of a Service, with two Nodes.
#[track_caller]
fn assert_seen(change: Value, calls: &[&str], patches: usize) {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.store(service("a", change));
    harness.settle();
    assert_eq!(
        (harness.take_calls(), harness.patches),
        (calls.iter().map(|call| (*call).to_owned()).collect(), patches)
    );
    // And then no more.
    assert_eq!((harness.settle().take_calls(), harness.patches), (Vec::new(), patches));
}

const ENSURE: &str = r#"ensure a ["node1", "node2"]"#;

#[test]
fn s01_a_service_of_type_cluster_ip_is_ignored() {
    assert_seen(json!({"spec": {"type": "ClusterIP"}}), &[], 0);
}

#[test]
fn s02_s03_s04_s34_s74_a_load_balancer_of_each_protocol_gets_its_finalizer_its_address_and_its_status() {
    for protocol in ["UDP", "TCP", "SCTP"] {
        assert_seen(json!({"spec": {"ports": [{"protocol": protocol, "port": 80}]}}), &[ENSURE], 2);
    }
}

#[test]
fn s05_a_service_of_another_class_is_left_alone() {
    assert_seen(json!({"spec": {"loadBalancerClass": "foreign"}}), &[], 0);
    // Better (U-13): regardless of its finalizer, and also while it is being deleted.
    let metadata = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-02T03:04:05Z"});
    assert_seen(json!({"spec": {"loadBalancerClass": "foreign"}, "metadata": metadata}), &[], 0);
}

/// One patch here, two with upstream.
#[test]
fn s06_s07_s72_s76_a_service_that_changed_its_type_or_is_deleted_is_deleted_in_the_cloud_and_released() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    for change in [
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
    ] {
        let mut left =
            service("a", json!({"metadata": {"finalizers": ["x/y", FINALIZER]}, "status": status}));
        merge(&mut left, &change);
        let mut harness = Harness::with_nodes(&nodes(&["node1"]));
        harness.store(left);
        assert_eq!(harness.settle().take_calls(), ["delete uid-a"], "{change}");
        assert_eq!(harness.patches, 1);
        assert_eq!(harness.get("a")["metadata"]["finalizers"], json!(["x/y"]));
        assert_eq!(facts(&harness.get("a")).service.status, []);
        assert_eq!(harness.take_events(), ["DeletingLoadBalancer a", "DeletedLoadBalancer a"]);
        assert!(harness.settle().take_calls().is_empty());
    }
}

#[test]
fn s08_s69_a_service_with_the_finalizer_gets_only_its_status() {
    assert_seen(json!({"metadata": {"finalizers": [FINALIZER]}}), &[ENSURE], 1);
}

/// Asserts which calls follow from a change of a settled Service.
#[track_caller]
fn assert_changed(before: Value, after: Value, expected: &[&str]) {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.store(service("a", before));
    assert_eq!(harness.settle().take_calls().len(), 1);
    harness.change("a", after.clone());
    let expected: Vec<_> = expected.iter().map(|call| (*call).to_owned()).collect();
    assert_eq!(harness.settle().take_calls(), expected, "{after}");
    assert!(harness.settle().take_calls().is_empty());
}

#[test]
fn s35_s48_s49_s53_s54_s58_s59_s61_s62_a_change_that_a_provider_sees_causes_a_call() {
    let spec = |change: Value| json!({"spec": change});
    let port = |change: Value| {
        let mut port = json!({"protocol": "TCP", "port": 80, "nodePort": 30080});
        merge(&mut port, &change);
        json!({"spec": {"ports": [port]}})
    };
    let local = |port: u16| json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": port}});
    for (before, after) in [
        (spec(json!({"loadBalancerIP": "192.0.2.1"})), spec(json!({"loadBalancerIP": "192.0.2.2"}))),
        (port(json!({})), port(json!({"port": 81}))),
        (json!({}), local(32000)),
        (local(32000), local(32001)),
        (spec(json!({"ipFamilies": ["IPv4"]})), spec(json!({"ipFamilies": ["IPv4", "IPv6"]}))),
        (spec(json!({"ipFamilies": ["IPv4", "IPv6"]})), spec(json!({"ipFamilies": ["IPv4"]}))),
        (port(json!({})), port(json!({"appProtocol": "http"}))),
        (port(json!({"appProtocol": "http"})), port(json!({"appProtocol": "tcp"}))),
        // Better: upstream ignores labels.
        (json!({}), json!({"metadata": {"labels": {"a": "b"}}})),
    ] {
        assert_changed(before, after, &[ENSURE]);
    }
    assert_changed(json!({}), spec(json!({"type": "ClusterIP"})), &["delete uid-a"]);
}

/// Better for target ports and external addresses, which no provider sees: upstream ensures the load balancer again.
#[test]
fn s50_s51_s55_s56_s57_s60_a_change_that_no_provider_sees_causes_no_call() {
    let with = |target: Value| {
        let port = json!({"protocol": "TCP", "port": 80, "targetPort": target, "appProtocol": "http"});
        json!({"spec": {"ports": [port], "externalIPs": ["192.0.2.1"], "ipFamilies": ["IPv4", "IPv6"]}})
    };
    for after in [
        json!({"spec": {"externalIPs": ["192.0.2.1", "192.0.2.2"]}}),
        json!({"spec": {"externalIPs": ["192.0.2.9"]}}),
        with(json!(21)),
        with(json!("http")),
        with(json!(20)),
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}),
    ] {
        assert_changed(with(json!(20)), after, &[]);
    }
}

#[test]
fn s52_a_service_with_another_uid_is_served_after_the_former_is_deleted() {
    assert_changed(json!({}), json!({"metadata": {"uid": "other"}}), &["delete uid-a", ENSURE]);
}

/// Our patch names no resourceVersion and so can't conflict, but the API server may refuse it.
#[test]
fn s36_a_failed_write_of_the_status_is_reported_and_retried() {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.store(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    harness.write_errors.push_back(Error::Conflict);
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    assert!(
        harness.notes.iter().any(|note| note.contains("failed to update load balancer status")),
        "{:?}",
        harness.notes
    );
    assert!(harness.take_events().contains(&"SyncLoadBalancerFailed a".to_owned()));
    assert_eq!(facts(&harness.get("a")).service.status.len(), 1);
}

#[test]
fn s37_a_service_that_is_gone_when_its_status_is_written_is_no_failure() {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.store(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    harness.write_errors.push_back(Error::Gone);
    // Better: what was made for it is deleted.
    assert_eq!(harness.settle().take_calls(), [ENSURE, "delete uid-a"]);
    assert!(!harness.take_events().iter().any(|event| event.contains("Failed")));
}

/// Upstream parses keys; here a Service is known by its facts.
#[test]
fn s38_s39_s40_s42_a_service_that_is_gone_is_deleted_in_the_cloud_and_unknown_names_cause_no_call() {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    for name in ["one/two/three", "default/a"] {
        harness.reconciler.observe_gone(name, harness.now);
        assert!(harness.settle().take_calls().is_empty());
    }
    harness.store(service("a", json!({})));
    assert_eq!(harness.settle().take_calls(), [ENSURE]);
    harness.reconciler.observe_gone("default/a", harness.now);
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert_eq!(harness.reconciler.summary(), Summary::default());
}

#[test]
fn s41_a_failed_deletion_is_reported_and_retried() {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.store(service("a", json!({})));
    harness.settle().take_calls();
    harness.take_events();
    harness.plan_outcome("a", failure(ErrorKind::Denied));
    harness.reconciler.observe_gone("default/a", harness.now);
    assert_eq!(harness.settle().take_calls(), ["delete uid-a"]);
    assert_eq!(harness.take_events(), ["DeletingLoadBalancer a", "DeleteLoadBalancerFailed a"]);
    assert_eq!(harness.notes.last().unwrap(), "Error deleting load balancer: it is locked");
    assert_eq!(harness.run_until_quiet(Duration::from_secs(70)).take_calls(), ["delete uid-a"]);
    assert_eq!(harness.take_events(), ["DeletedLoadBalancer a"]);
}

#[test]
fn s43_s44_s45_s46_a_service_with_the_finalizer_is_cleaned_up_if_it_wants_no_load_balancer() {
    let step = |change: Value| {
        let facts = Arc::new(facts(&service("a", change)));
        let record = Record::new(&facts, &ServiceScope::of(&[]), false, Instant::now());
        plan(&record, PlanContext { scope: &ServiceScope::of(&[]), targets: Some(0), is_name_taken: false })
    };
    let finalizers = json!({"finalizers": [FINALIZER]});
    assert_eq!(step(json!({"spec": {"type": "NodePort"}})), Step::Forget);
    assert_eq!(step(json!({"spec": {"type": "NodePort"}, "metadata": finalizers})), Step::Delete);
    assert_eq!(step(json!({"metadata": finalizers})), Step::Ensure { is_audit: false });
    let going = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-02T03:04:05Z"});
    assert_eq!(step(json!({"metadata": going})), Step::Delete);
}

/// A Node joins while an update of two load balancers is in flight. The next calls have the targets of then (U-20).
#[test]
fn s47_no_stale_nodes_are_sent_after_fresh_ones() {
    let mut harness = Harness::with_nodes(&nodes(&["node1"]));
    harness.store(service("a", json!({})));
    harness.store(service("b", json!({})));
    harness.settle().take_calls();
    harness.set_nodes(&nodes(&["node1", "node2"]));
    harness.now += Duration::from_secs(1);
    let [Work::Call(slow)] = &harness.reconciler.next(harness.now, 0.0)[..] else {
        panic!("one call is due")
    };
    harness.set_nodes(&nodes(&["node1", "node2", "node3"]));
    harness.change("b", json!({"spec": {"ports": [{"protocol": "TCP", "port": 81}]}}));
    assert!(harness.settle().take_calls().is_empty(), "both are in the call in flight");
    let done = ServiceProgress::done(vec![ingress()]);
    harness.reconciler.on_call_result(slow, Ok(vec![Ok(done.clone()), Ok(done)]), harness.now, 0.0);
    let [ensure, update] = [("ensure", "b"), ("update", "a")]
        .map(|(verb, name)| format!(r#"{verb} {name} ["node1", "node2", "node3"]"#));
    assert_eq!(harness.settle().take_calls(), [ensure, update]);
}

#[test]
fn s63_s64_s65_s66_s67_s68_each_service_is_known_once_until_it_is_gone() {
    let mut harness = Harness::with_nodes(&[]);
    let wanted = |harness: &Harness| harness.reconciler.summary().wanted;
    harness.store(service("a", json!({})));
    harness.store(service("a", json!({})));
    assert_eq!(wanted(&harness), 1);
    harness.settle();
    harness.reconciler.observe_gone("default/a", harness.now);
    harness.settle();
    assert_eq!(wanted(&harness), 0);
    harness.store(service("b", json!({})));
    assert_eq!(wanted(&harness), 1);
    harness.store(service("c", json!({})));
    assert_eq!(wanted(&harness), 2);
    assert_eq!(harness.reconciler.summary().settled, 0);
    harness.settle();
    assert_eq!(harness.reconciler.summary(), Summary { wanted: 2, settled: 2, leaving: 0 });
}

#[test]
fn s70_s71_s73_s75_an_unchanged_finalizer_or_status_is_not_written() {
    // The finalizer and the status are written once each.
    assert_seen(json!({"metadata": {"finalizers": ["x/y"]}}), &[ENSURE], 2);
    // There is nothing to remove.
    assert_seen(json!({"spec": {"type": "ClusterIP"}, "metadata": {"finalizers": ["x/y"]}}), &[], 0);
    let settled = |ip: &str| {
        let status = json!({"loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"}]}});
        json!({"metadata": {"finalizers": [FINALIZER]}, "status": status})
    };
    assert_seen(settled("192.0.2.1"), &[ENSURE], 0);
    assert_seen(settled("192.0.2.9"), &[ENSURE], 1);
    // Without an ingress from the cloud no status is written.
    let mut harness = Harness::with_nodes(&[]);
    harness.plan_outcome("a", Ok(ServiceProgress::done(Vec::new())));
    harness.store(service("a", json!({"metadata": {"finalizers": [FINALIZER]}})));
    assert_eq!((harness.settle().take_calls().len(), harness.patches), (1, 0));
}

/// How long after a first call with this outcome the next one begins.
fn again(outcome: Result<ServiceProgress, CloudError>) -> Option<Duration> {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.plan_outcome("a", outcome);
    harness.store(service("a", json!({})));
    assert_eq!(harness.run_until_quiet(Duration::from_millis(100)).take_calls(), [ENSURE]);
    let failed = harness.now;
    while harness.calls.is_empty() {
        harness.now = harness.reconciler.next_wake().filter(|at| *at < failed + AUDIT / 2)?;
        for work in harness.reconciler.next(harness.now, 0.0) {
            harness.perform(work);
        }
    }
    Some(harness.now - failed)
}

#[test]
fn s137_a_settled_load_balancer_is_not_touched_before_an_audit() {
    assert_eq!(again(Ok(ServiceProgress::done(vec![ingress()]))), None);
    assert_eq!(again(Ok(ServiceProgress::Elsewhere)), None);
}

/// Each call waits a tenth of a second for more changes.
#[test]
fn s138_a_failure_is_retried_with_growing_delays() {
    assert_eq!(again(failure(ErrorKind::Unavailable(None))), Some(Duration::from_millis(600)));
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    for _ in 0..4 {
        harness.plan_outcome("a", failure(ErrorKind::Unavailable(None)));
    }
    harness.store(service("a", json!({})));
    let begun = harness.now;
    assert_eq!(harness.run_until_quiet(Duration::from_secs(5)).take_calls(), [ENSURE; 5]);
    // 0.5 + 1 + 2 + 4 s, and five times a tenth.
    assert_eq!(harness.now - begun, Duration::from_secs(8));
    // The first, the second and the fourth failure.
    assert_eq!(
        harness.take_events().iter().filter(|event| event.starts_with("SyncLoadBalancerFailed")).count(),
        3
    );
}

#[test]
fn s139_an_operation_in_progress_is_polled_after_the_time_that_the_cloud_asks_for_and_is_no_failure() {
    let after = Duration::from_secs(42);
    let in_progress = || Ok(ServiceProgress::in_progress(after, Some("note".to_owned())));
    assert_eq!(again(in_progress()), Some(after));
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    harness.plan_outcome("a", in_progress());
    harness.plan_outcome("a", in_progress());
    harness.store(service("a", json!({})));
    assert_eq!(harness.run_until_quiet(after).take_calls(), [ENSURE; 3]);
    // Reported once an operation (U-15).
    assert_eq!(
        harness.take_events(),
        ["EnsuringLoadBalancer a", "LoadBalancerPending a", "EnsuredLoadBalancer a"]
    );
    // The same for a deletion (U-15).
    harness.plan_outcome("a", in_progress());
    harness.change("a", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}));
    assert_eq!(harness.run_until_quiet(after).take_calls(), ["delete uid-a"; 2]);
    assert_eq!(
        harness.take_events(),
        ["DeletingLoadBalancer a", "LoadBalancerPending a", "DeletedLoadBalancer a"]
    );
}

#[test]
fn h23_the_finalizer_is_found_among_others() {
    for (finalizers, has_it) in [
        (json!(null), false),
        (json!(["x/y"]), false),
        (json!([FINALIZER]), true),
        (json!(["x/y", FINALIZER, "z"]), true),
    ] {
        let service = service("a", json!({"metadata": {"finalizers": finalizers}}));
        assert_eq!(facts(&service).has_finalizer(), has_it, "{service}");
    }
}

#[test]
fn h24_a_patch_keeps_concurrent_changes_of_others() {
    let before = service("a", json!({"metadata": {"finalizers": ["x/y"]}}));
    let patch = Write::AddFinalizer(None).patch(&facts(&before));
    assert!(patch.get("spec").is_none(), "{patch}");
    assert_eq!(patch["metadata"]["$setElementOrder/finalizers"], json!(["x/y", FINALIZER]));
    let change = json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["x/y", "z"]}, "spec": {"type": "ClusterIP"}});
    let mut stored = service("a", change.clone());
    patch_service(&mut stored, PatchTarget::Status, &patch);
    let mut expected = service("a", change);
    expected["metadata"]["finalizers"] = json!(["x/y", "z", FINALIZER]);
    assert_eq!(stored, expected);
}

/// Taints are compared by their key here, and only the node controllers write them.
#[test]
fn h25_h26_a_status_is_compared_as_a_whole() {
    let ingress = |ip: &str, mode: &str, protocol: &str| json!({"ip": ip, "ipMode": mode, "ports": [{"port": 80, "protocol": protocol}]});
    let read = |ingress: Value| {
        let status = json!({"loadBalancer": {"ingress": ingress}});
        facts(&service("a", json!({"status": status}))).service.status
    };
    let first = || json!([ingress("192.0.2.1", "VIP", "TCP")]);
    let one_sided = json!([{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]}]);
    for (a, b, is_same) in [
        (json!([]), json!(null), true),
        (first(), first(), true),
        // The API server's default, so that an entry without it is the same status.
        (first(), one_sided, true),
        (first(), json!([ingress("192.0.2.2", "VIP", "TCP")]), false),
        (first(), json!([ingress("192.0.2.1", "Proxy", "TCP")]), false),
        (first(), json!([ingress("192.0.2.1", "VIP", "UDP")]), false),
        (first(), json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]), false),
        (first(), json!([ingress("192.0.2.1", "VIP", "TCP"), {"hostname": "a.example"}]), false),
    ] {
        assert_eq!(read(a.clone()) == read(b.clone()), is_same, "{a} {b}");
    }
    let known = Arc::new(facts(&service("a", json!({"status": {"loadBalancer": {"ingress": first()}}}))));
    let record = Record::new(&known, &ServiceScope::of(&[]), false, Instant::now());
    let mut proxy = known.service.status.clone();
    assert!(!record.is_new_status(&proxy));
    proxy[0].ip_mode = Some(IpMode::Proxy);
    assert!(record.is_new_status(&proxy));
    assert_eq!(
        targets(&[node("a", json!({"spec": {"taints": [{"key": "x/y", "effect": "NoSchedule"}]}}))])
            .table()
            .len(),
        1
    );
}
