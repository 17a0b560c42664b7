//! Which Nodes take traffic, and which changes of Nodes reach the cloud.

use pileus_cloud::{Cluster, ErrorKind};
use serde_json::{Value, json};

use crate::model::PROVIDER;
use crate::scenarios::StoredNode;
use crate::service::Settings;
use crate::service::harness::{AUDIT, Harness, behind, failure, node, nodes, requirements, service, targets};
use crate::service::reconciler::Reconciler;

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

/// Asserts which load balancers are updated when a Node joins after these Services have settled.
#[track_caller]
fn assert_node_joins(services: &[Value], expected: &[&str]) {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    for service in services {
        harness.store(service.clone());
    }
    harness.settle().take_calls();
    harness.set_nodes(&nodes(&["node1", "node2", "node3"]));
    let expected: Vec<_> =
        expected.iter().map(|name| format!(r#"update {name} ["node1", "node2", "node3"]"#)).collect();
    assert_eq!(harness.settle().take_calls(), expected);
    assert!(harness.settle().take_calls().is_empty());
}

/// Upstream also tests a Service that is null, which can't exist here.
#[test]
fn s09_s10_s11_s12_s13_s14_s15_a_new_node_updates_each_load_balancer_once() {
    let balanced = |name| service(name, json!({}));
    let other = |name, kind| service(name, json!({"spec": {"type": kind}}));
    assert_node_joins(&[], &[]);
    assert_node_joins(&[other("a", "ClusterIP"), other("b", "NodePort")], &[]);
    assert_node_joins(&[balanced("a")], &["a"]);
    assert_node_joins(&["a", "b", "c"].map(balanced), &["a", "b", "c"]);
    assert_node_joins(
        &[balanced("a"), other("b", "ClusterIP"), balanced("c"), other("d", "NodePort")],
        &["a", "c"],
    );
    assert_node_joins(&["a", "b", "c", "d"].map(balanced), &["a", "b", "c", "d"]);
}

/// Two Services with policy Local and one with Cluster, with two Nodes behind them.
fn three() -> Harness {
    let mut harness = Harness::with_nodes(&nodes(&["node1", "node2"]));
    let local = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}});
    for (name, change) in [("a", local.clone()), ("b", local), ("c", json!({}))] {
        harness.store(service(name, change));
    }
    assert_eq!(harness.settle().take_calls().len(), 3);
    harness.take_events();
    harness
}

/// Asserts which targets all three load balancers get after a change of Nodes, or that they get none.
#[track_caller]
fn assert_three_follow(change: &[StoredNode], targets: Option<&[&str]>) {
    let mut harness = three();
    harness.set_nodes(change);
    let expected = targets.map(|targets| ["a", "b", "c"].map(|name| format!("update {name} {targets:?}")));
    assert_eq!(harness.settle().take_calls(), expected.map(Vec::from).unwrap_or_default());
}

#[test]
fn s16_the_same_nodes_change_nothing() {
    assert_three_follow(&nodes(&["node2", "node1"]), None);
}

#[test]
fn s17_a_node_that_joins_updates_all_load_balancers() {
    assert_three_follow(&nodes(&["node1", "node2", "node3"]), Some(&["node1", "node2", "node3"]));
}

/// Each failed update is retried by itself: at once and together with the rest of its load balancer where the cloud refused.
#[test]
fn s18_a_failed_update_is_retried() {
    let mut harness = three();
    harness.plan_outcome("a", failure(ErrorKind::Conflict(None)));
    harness.set_nodes(&nodes(&["node1", "node2", "node3"]));
    let updates = ["a", "b", "c"].map(|name| format!(r#"update {name} ["node1", "node2", "node3"]"#));
    let again = r#"ensure a ["node1", "node2", "node3"]"#.to_owned();
    assert_eq!(harness.settle().take_calls(), [updates.as_slice(), &[again]].concat());
    harness.set_nodes(&nodes(&["node1", "node2", "node3"]));
    assert!(harness.settle().take_calls().is_empty());
    let events = harness.take_events();
    assert!(events.contains(&"UpdateLoadBalancerFailed a".to_owned()), "{events:?}");
    assert!(events.contains(&"UpdatedLoadBalancer b".to_owned()), "{events:?}");
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

fn tainted(key: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})
}

#[test]
fn s19_s21_s25_readiness_and_taints_of_others_change_nothing() {
    for change in [ready("False"), ready("Unknown"), tainted("x/y")] {
        assert_three_follow(&[node("node1", json!({})), node("node2", change)], None);
    }
}

/// Better for the autoscaler's taint and for a deletion: upstream notices those only at its next sync.
#[test]
fn s20_s22_s23_s24_a_node_that_leaves_or_is_excluded_gets_no_traffic() {
    let excluded = json!({"metadata": {"labels": {EXCLUDE: ""}}});
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}});
    for change in [tainted(LEAVING), excluded, deleting] {
        assert_three_follow(&[node("node1", json!({})), node("node2", change)], Some(&["node1"]));
    }
    assert_three_follow(&nodes(&["node1"]), Some(&["node1"]));
}

#[test]
fn s26_s27_s28_nodes_that_join_update_four_load_balancers() {
    let mut harness = Harness::with_nodes(&[]);
    for name in ["a", "b", "c", "d"] {
        harness.store(service(name, json!({})));
    }
    assert_eq!(harness.settle().take_calls().len(), 4);
    for names in [["node1"].as_slice(), &["node1", "node2"], &["node1", "node2", "node3", "node4"]] {
        harness.set_nodes(&nodes(names));
        let expected = ["a", "b", "c", "d"].map(|name| format!("update {name} {names:?}"));
        assert_eq!(harness.settle().take_calls(), expected);
    }
}

/// Nodes are watched, and a failed watch leaves the last state. Before the first one is known no call is made.
#[test]
fn s29_s30_no_call_is_made_before_nodes_are_known() {
    let settings = Settings {
        cluster: Cluster { name: String::new(), uid: None },
        classes: Vec::new(),
        is_default: true,
        marks_services: false,
        audit_period: AUDIT,
        calls: 1,
    };
    let mut harness = Harness::with_nodes(&[]);
    harness.reconciler = Reconciler::new(requirements(), PROVIDER, &settings, harness.now);
    for name in ["a", "b", "c", "d"] {
        harness.store(service(name, json!({})));
    }
    assert!(harness.settle().take_calls().is_empty());
    harness.set_nodes(&nodes(&["node1"]));
    assert_eq!(harness.settle().take_calls().len(), 4);
}

#[test]
fn s31_s32_s33_s107_s108_s109_a_node_with_another_instance_is_another_target() {
    let with = |id: &str| [node("node1", json!({"spec": {"providerID": id}})), node("node2", json!({}))];
    let mut harness = Harness::with_nodes(&with("simulated://1"));
    harness.store(service("a", json!({})));
    harness.store(service("b", json!({})));
    harness.settle().take_calls();
    let both = |nodes: &str| ["a", "b"].map(|name| format!("update {name} [{nodes}]"));
    for (nodes, targets) in [
        (with("simulated://2"), Some(r#""node1", "node2""#)),
        (with("simulated://2"), None),
        // Better (U-19): a Node without an instance, or with one of another cloud, isn't sent.
        (with(""), Some(r#""node2""#)),
        (with("other://2"), None),
        (with("simulated://1"), Some(r#""node1", "node2""#)),
        (nodes(&["node3", "node2"]).try_into().unwrap(), Some(r#""node2", "node3""#)),
    ] {
        harness.set_nodes(&nodes);
        assert_eq!(
            harness.settle().take_calls(),
            targets.map(|targets| both(targets).to_vec()).unwrap_or_default()
        );
    }
}

/// Only upstream's tests use its predicate `Ready`; it doesn't matter here either.
#[test]
fn s77_s78_s79_s80_s81_s82_s83_s84_s85_s86_targets_are_nodes_with_an_instance_that_stay_and_are_not_excluded()
{
    let excluded = |value: &str| json!({"metadata": {"labels": {EXCLUDE: value}}});
    for (change, is_target) in [
        (json!({"spec": {"providerID": null}, "status": {"conditions": null}}), false),
        (json!({}), true),
        // Better (U-19): there is nothing to send traffic to.
        (json!({"spec": {"providerID": null}}), false),
        // Better: the load balancer's health checks know sooner (KEP-3458).
        (ready("False"), true),
        (json!({"metadata": {"labels": {}}}), true),
        (excluded(""), false),
        (excluded("false"), true),
        (excluded("true"), false),
        (excluded("foo"), false),
        (tainted(LEAVING), false),
    ] {
        assert_eq!(behind(&[node("node1", change.clone())]).len(), usize::from(is_target), "{change}");
    }
    for (value, is_target) in
        [("0", true), ("f", true), ("F", true), ("FALSE", true), ("False", true), ("no", false)]
    {
        assert_eq!(behind(&[node("node1", excluded(value))]).len(), usize::from(is_target), "{value}");
    }
}

/// Upstream's list takes any predicate, and its test selects Nodes by their phase, a field that has been unused for years.
/// Here targets are the only selection.
#[test]
fn s87_s88_s89_nodes_of_all_phases_are_targets() {
    let phases = ["Pending", "Running", "Pending", "Running", "Terminated"];
    let nodes: Vec<_> = (0..)
        .zip(phases)
        .map(|(n, phase)| node(&format!("node{n}"), json!({"status": {"phase": phase}})))
        .collect();
    assert_eq!(behind(&nodes), ["node0", "node1", "node2", "node3", "node4"]);
}

/// Asserts whether changes of a Node in this state change the targets.
#[track_caller]
fn assert_matters(state: &Value, changes: &[(Value, Value, bool)]) {
    for (before, after, matters) in changes {
        let [before, after] =
            [before, after].map(|change| targets(&[node("node1", state.clone()).with(change)]));
        assert_eq!(before.digest() != after.digest(), *matters, "{state}: {before:?}, {after:?}");
    }
}

fn id(id: &str) -> Value {
    json!({"spec": {"providerID": id}})
}

fn excluded() -> Value {
    json!({"metadata": {"labels": {EXCLUDE: ""}}})
}

#[test]
fn s90_s91_s92_s93_the_label_matters_and_nothing_changes_by_itself() {
    let none = json!({});
    assert_matters(
        &none,
        &[
            (none.clone(), none.clone(), false),
            (none.clone(), excluded(), true),
            (excluded(), none.clone(), true),
            (excluded(), excluded(), false),
        ],
    );
}

#[test]
fn s94_s95_s96_s97_s98_s99_s100_s101_s102_s103_s104_s105_taints_labels_and_conditions_of_others_do_not_matter()
 {
    let none = json!({});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let pressure = |ready: &str, status: &str| {
        let conditions =
            json!([{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": status}]);
        json!({"status": {"conditions": conditions}})
    };
    let unset = json!({"status": {"conditions": null}});
    let mut changes = Vec::new();
    for (a, b) in [
        (none.clone(), tainted("x/y")),
        (none.clone(), label),
        (ready("False"), none.clone()),
        (ready("False"), unset.clone()),
        (unset.clone(), unset),
        (pressure("False", "False"), pressure("False", "True")),
        (pressure("True", "False"), pressure("True", "True")),
    ] {
        changes.extend([(a.clone(), b.clone(), false), (b, a, false)]);
    }
    assert_matters(&none, &changes);
}

/// Better: upstream notices it only at its next sync.
#[test]
fn s106_a_node_that_is_being_deleted_gets_no_traffic() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}});
    assert_matters(&json!({}), &[(json!({}), deleting, true)]);
}

/// Better: upstream syncs, although no load balancer changes.
#[test]
fn s110_s111_s112_s113_s114_s115_s116_no_other_change_of_a_node_matters_that_the_autoscaler_removes() {
    let none = json!({});
    assert_matters(
        &tainted(LEAVING),
        &[
            (none.clone(), excluded(), false),
            (excluded(), none.clone(), false),
            (id(""), none.clone(), false),
            (none.clone(), id(""), false),
            (none.clone(), id("simulated://2"), false),
            (ready("False"), none.clone(), false),
            (none, ready("False"), false),
        ],
    );
}

/// Better for another instance: upstream syncs, although no load balancer changes.
#[test]
fn s117_s118_s119_s120_s121_s122_s123_no_other_change_of_an_excluded_node_matters() {
    let none = json!({});
    assert_matters(
        &excluded(),
        &[
            (none.clone(), tainted(LEAVING), false),
            (tainted(LEAVING), none.clone(), false),
            (ready("False"), none.clone(), false),
            (none.clone(), ready("False"), false),
            (id(""), none.clone(), false),
            (none.clone(), id(""), false),
            (none, id("simulated://2"), false),
        ],
    );
}

/// Better for the autoscaler's taint, which upstream notices late.
#[test]
fn s124_s125_s126_s127_s128_s129_s130_a_node_that_is_not_ready_is_a_target_like_any_other() {
    let none = json!({});
    assert_matters(
        &ready("False"),
        &[
            (none.clone(), tainted(LEAVING), true),
            (tainted(LEAVING), none.clone(), true),
            (none.clone(), excluded(), true),
            (excluded(), none.clone(), true),
            (id(""), none.clone(), true),
            (none.clone(), id(""), true),
            (none, id("simulated://2"), true),
        ],
    );
}

/// Better for the label: upstream syncs, although there is nothing to send traffic to.
#[test]
fn s131_s132_s133_s134_s135_s136_no_other_change_of_a_node_without_an_instance_matters() {
    let none = json!({});
    assert_matters(
        &id(""),
        &[
            (none.clone(), excluded(), false),
            (excluded(), none.clone(), false),
            (ready("False"), none.clone(), false),
            (none.clone(), ready("False"), false),
            (tainted(LEAVING), none.clone(), false),
            (none, tainted(LEAVING), false),
        ],
    );
}
