//! The scenarios of upstream's tests of its route controller (R01 to R42 in UPSTREAM.md), without API server and cloud: Nodes
//! as JSON, their facts, the plan, and the patches of conditions.
//!
//! Upstream has a flag `EnableNodeAddresses` of a route. Here the same follows from the next hops that the cloud reports. Without
//! next hops there is nothing to compare; with some, each must be an address of the Node (R13, R14, R21).

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use pileus_cloud::{Address, AddressKind, ListedRoute};
use serde_json::{Value, json};

use super::apply::condition_patch;
use super::elsewhere::Elsewhere;
use super::pending::PendingChanges;
use super::plan::{
    KnownRoute, Plan, PlanInputs, conditions, desired_route, digest, has_condition, is_in_cluster, plan,
};
use crate::facts::node::NodeFacts;
use crate::nodes::PatchTarget;
use crate::scenarios::StoredNode;

const SINGLE: &[&str] = &["10.120.0.0/16"];
const DUAL: &[&str] = &["10.120.0.0/16", "a00:100::/8"];

fn range(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// An initialized Node with these Pod CIDRs and this address.
fn node(name: &str, ranges: &[&str], address: &str) -> StoredNode {
    StoredNode::registered(&json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"taints": null, "podCIDRs": ranges},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }))
}

fn two(dual: bool) -> [StoredNode; 2] {
    if dual {
        [
            node("node-1", &["10.120.0.0/24", "a00:100::/24"], "10.1.1.1"),
            node("node-2", &["10.120.1.0/24", "a00:200::/24"], "10.1.1.2"),
        ]
    } else {
        [node("node-1", &["10.120.0.0/24"], "10.1.1.1"), node("node-2", &["10.120.1.0/24"], "10.1.1.2")]
    }
}

fn there(node: &str, destination: &str, hop: Option<&str>) -> KnownRoute {
    KnownRoute::listed(ListedRoute {
        name: format!("route to {destination}"),
        node: Some(node.to_owned()),
        target: None,
        addresses: hop.map(|hop| Address::new(AddressKind::InternalIp, hop)).into_iter().collect(),
        destination: destination.to_owned(),
        cluster_uid: None,
        is_blackhole: false,
        extra: Vec::new(),
    })
}

fn blackhole(destination: &str) -> KnownRoute {
    let mut route = there("", destination, None).route;
    (route.node, route.is_blackhole) = (None, true);
    KnownRoute::listed(route)
}

/// Makes a pass over these Nodes and routes. Returns the ranges that are deleted and created, and by Node whether its network is
/// available. Asserts that a second pass finds nothing to do.
fn pass(
    nodes: &[StoredNode],
    routes: &[KnownRoute],
    cluster: &[&str],
) -> (Vec<String>, Vec<String>, Vec<(String, bool)>) {
    let facts: Vec<_> = nodes.iter().map(|node| Arc::new(node.facts())).collect();
    let cluster: Vec<_> = cluster.iter().map(|text| range(text)).collect();
    let unreadable_ranges = HashSet::new();
    let planned = |routes: &[KnownRoute]| {
        plan(PlanInputs {
            nodes: &facts,
            unreadable_ranges: &unreadable_ranges,
            provider: crate::model::PROVIDER,
            cluster_uid: None,
            routes,
            cluster_ranges: &cluster,
            nodes_wait: false,
            pending: &PendingChanges::default(),
        })
    };
    let first = planned(routes);
    let mut left = routes.to_vec();
    left.retain(|route| !first.deletes.contains(route));
    left.extend(first.creates.iter().map(|wanted| KnownRoute::created(&desired_route(wanted, &[]))));
    let Plan { deletes, creates, .. } = planned(&left);
    assert!(deletes.is_empty() && creates.is_empty(), "{deletes:?} {creates:?}");
    let conditions = conditions(&first, &left, &Elsewhere::default(), &PendingChanges::default())
        .into_iter()
        .map(|(node, is)| (node.name.clone(), is))
        .collect();
    let deleted = first.deletes.into_iter().map(|known| known.route.destination).collect();
    let created =
        first.creates.iter().map(|wanted| format!("{} {}", wanted.node.name, wanted.range)).collect();
    (deleted, created, conditions)
}

fn both_available() -> Vec<(String, bool)> {
    vec![("node-1".to_owned(), true), ("node-2".to_owned(), true)]
}

#[track_caller]
fn passes(nodes: &[StoredNode], routes: &[KnownRoute], cluster: &[&str], deleted: &[&str], created: &[&str]) {
    let (really_deleted, really_created, conditions) = pass(nodes, routes, cluster);
    assert_eq!(really_deleted, deleted, "deleted");
    assert_eq!(really_created, created, "created");
    assert_eq!(conditions, both_available());
}

#[test]
fn r01_r02_r03_r04_r05_r06_a_route_inside_the_cluster_cidr_belongs_to_the_cluster() {
    for (cluster, destination) in [
        ("10.244.0.0/16", "10.244.0.0/24"),
        ("10.244.0.0/16", "10.244.10.0/24"),
        ("10.244.0.0/16", "10.244.255.0/24"),
        ("10.244.0.0/14", "10.244.0.0/24"),
        ("10.244.0.0/14", "10.247.255.0/24"),
        ("a00:100::/10", "a00:100::/24"),
    ] {
        assert!(is_in_cluster(&[range(cluster).trunc()], range(destination)), "{cluster} {destination}");
    }
}

#[test]
fn r07_r08_r09_r10_r11_r12_a_route_outside_does_not() {
    for (cluster, destination) in [
        ("10.244.0.0/16", "10.224.0.0/24"),
        ("10.244.0.0/16", "10.0.10.0/24"),
        ("10.244.0.0/16", "10.255.255.0/24"),
        ("10.244.0.0/14", "10.248.0.0/24"),
        ("10.244.0.0/14", "10.243.255.0/24"),
        ("a00:100::/10", "b00:100::/24"),
    ] {
        assert!(!is_in_cluster(&[range(cluster).trunc()], range(destination)), "{cluster} {destination}");
    }
}

/// The four routes of both Nodes, with these next hops.
fn four(hops: [Option<&str>; 2]) -> [KnownRoute; 4] {
    [
        there("node-1", "10.120.0.0/24", hops[0]),
        there("node-1", "a00:100::/24", hops[0]),
        there("node-2", "10.120.1.0/24", hops[1]),
        there("node-2", "a00:200::/24", hops[1]),
    ]
}

const FOUR: &[&str] =
    &["node-1 10.120.0.0/24", "node-1 a00:100::/24", "node-2 10.120.1.0/24", "node-2 a00:200::/24"];

/// Upstream replaces such routes, because its cloud claims to report next hops and reports none. Here a cloud that reports none has
/// nothing to compare.
#[test]
fn r13_routes_without_next_hops_are_kept() {
    passes(&two(true), &four([None, None]), DUAL, &[], &[]);
}

#[test]
fn r14_routes_with_old_addresses_are_replaced() {
    let deleted = ["10.120.0.0/24", "a00:100::/24", "10.120.1.0/24", "a00:200::/24"];
    passes(&two(true), &four([Some("10.9.9.1"), Some("10.9.9.2")]), DUAL, &deleted, FOUR);
}

#[test]
fn r15_both_families_of_two_nodes_get_routes() {
    passes(&two(true), &[], DUAL, &[], FOUR);
}

#[test]
fn r16_correct_routes_are_left_alone() {
    passes(&two(true), &four([Some("10.1.1.1"), Some("10.1.1.2")]), DUAL, &[], &[]);
}

#[test]
fn r17_ranges_that_are_swapped_between_nodes_are_corrected() {
    let swapped = [
        there("node-1", "10.120.1.0/24", None),
        there("node-1", "a00:200::/24", None),
        there("node-2", "10.120.0.0/24", None),
        there("node-2", "a00:100::/24", None),
    ];
    let deleted = ["10.120.1.0/24", "a00:200::/24", "10.120.0.0/24", "a00:100::/24"];
    passes(&two(true), &swapped, DUAL, &deleted, FOUR);
}

#[test]
fn r18_missing_routes_are_created() {
    let [first, second, ..] = four([None, None]);
    passes(&two(true), &[first, second], DUAL, &[], &FOUR[2..]);
}

#[test]
fn r19_routes_of_nodes_that_are_gone_are_deleted_in_both_families() {
    let mut routes = four([None, None]).to_vec();
    routes.extend([there("node-3", "10.120.2.0/24", None), there("node-4", "a00:300::/24", None)]);
    passes(&two(true), &routes, DUAL, &["10.120.2.0/24", "a00:300::/24"], &[]);
}

#[test]
fn r20_r22_r23_with_one_family_only_missing_routes_are_created() {
    let right = [there("node-1", "10.120.0.0/24", None), there("node-2", "10.120.1.0/24", None)];
    passes(&two(false), &right, SINGLE, &[], &[]);
    passes(&two(false), &right[..1], SINGLE, &[], &["node-2 10.120.1.0/24"]);
    passes(&two(false), &[], SINGLE, &[], &["node-1 10.120.0.0/24", "node-2 10.120.1.0/24"]);
}

#[test]
fn r21_a_node_whose_address_has_changed_gets_a_new_route() {
    let routes = [
        there("node-1", "10.120.0.0/24", Some("10.9.9.1")),
        there("node-2", "10.120.1.0/24", Some("10.9.9.2")),
    ];
    let created = ["node-1 10.120.0.0/24", "node-2 10.120.1.0/24"];
    passes(&two(false), &routes, SINGLE, &["10.120.0.0/24", "10.120.1.0/24"], &created);
}

#[test]
fn r24_r25_routes_of_nodes_that_are_gone_are_deleted() {
    let right = [there("node-1", "10.120.0.0/24", None), there("node-2", "10.120.1.0/24", None)];
    let stray = [there("node-3", "10.120.2.0/24", None), there("node-4", "10.120.3.0/24", None)];
    let all: Vec<_> = right.iter().chain(&stray).cloned().collect();
    passes(&two(false), &all, SINGLE, &["10.120.2.0/24", "10.120.3.0/24"], &[]);
    let some = [right[0].clone(), stray[0].clone()];
    passes(&two(false), &some, SINGLE, &["10.120.2.0/24"], &["node-2 10.120.1.0/24"]);
}

#[test]
fn r26_a_node_without_pod_cidr_is_left_alone() {
    let nodes = [node("node-1", &["10.120.0.0/24"], "10.1.1.1"), node("node-2", &[], "10.1.1.2")];
    let (deleted, created, conditions) = pass(&nodes, &[], SINGLE);
    assert_eq!((deleted, created), (vec![], vec!["node-1 10.120.0.0/24".to_owned()]));
    assert_eq!(conditions, [("node-1".to_owned(), true)]);
    // A Node that had routes has no network any more.
    let (deleted, _, conditions) = pass(&nodes, &[there("node-2", "10.120.1.0/24", None)], SINGLE);
    assert_eq!(deleted, ["10.120.1.0/24"]);
    assert_eq!(conditions, [("node-1".to_owned(), true), ("node-2".to_owned(), false)]);
}

#[test]
fn r27_r28_a_blackhole_is_deleted_inside_the_cluster_cidr_and_kept_outside() {
    let right = [there("node-1", "10.120.0.0/24", None), there("node-2", "10.120.1.0/24", None)];
    for (destination, deleted) in [("10.120.5.0/24", &["10.120.5.0/24"][..]), ("10.1.2.0/24", &[])] {
        let all: Vec<_> = right.iter().cloned().chain([blackhole(destination)]).collect();
        passes(&two(false), &all, SINGLE, deleted, &[]);
    }
}

/// Upstream creates the route twice, and the second creation fails.
#[test]
fn r29_a_range_that_a_node_names_twice_counts_once() {
    let nodes = [
        node("node-1", &["10.120.0.0/24", "10.120.0.0/24"], "10.1.1.1"),
        node("node-2", &["10.120.1.0/24"], "10.1.1.2"),
    ];
    passes(&nodes, &[], SINGLE, &[], &["node-1 10.120.0.0/24", "node-2 10.120.1.0/24"]);
}

fn matters(change: &Value) -> bool {
    let old = node("node-1", &["10.120.0.0/24"], "10.1.1.1");
    digest(&old.facts(), &[]) != digest(&old.with(change).facts(), &[])
}

#[test]
fn r30_r31_a_change_of_addresses_or_ranges_causes_a_pass() {
    assert!(matters(&json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.1.1.9"}]}})));
    assert!(matters(&json!({"spec": {"podCIDRs": ["10.120.7.0/24"]}})));
}

/// Upstream treats an update without a change as its half-daily resync. Here the audit does that and needs no update.
#[test]
fn r32_r33_a_change_that_does_not_matter_to_routes_causes_none() {
    assert!(!matters(&json!({})));
    assert!(!matters(
        &json!({"metadata": {"resourceVersion": "2"}, "status": {"images": [{"names": ["x"]}]}})
    ));
}

/// The condition of a Node after it was written. `None` where no write is needed.
fn written(before: Option<(&str, &str)>, is_available: bool) -> Option<Value> {
    let condition = before.map(|(status, reason)| {
        json!([{
            "type": "NetworkUnavailable", "status": status, "reason": reason, "message": "before",
            "lastTransitionTime": "2012-01-01T00:00:00Z",
        }])
    });
    let mut node = node("node-1", &["10.120.0.0/24"], "10.1.1.1")
        .with(&json!({"status": {"conditions": condition.unwrap_or(json!([]))}}));
    if has_condition(&node.facts(), is_available) {
        return None;
    }
    let patch = condition_patch(&node.facts(), is_available, "2026-01-02T03:04:05Z".parse().unwrap());
    // A strategic merge patch merges the list by type, so that what it leaves out stays.
    let mut merged = node.0["status"]["conditions"][0].clone();
    let change = &patch["status"]["conditions"][0];
    for (key, value) in change.as_object().unwrap() {
        merged[key] = value.clone();
    }
    let patch = json!({"metadata": patch["metadata"], "status": {"conditions": [merged]}});
    node.patch(PatchTarget::Status, &patch);
    let facts: NodeFacts = node.facts();
    assert!(has_condition(&facts, is_available), "it isn't written again");
    Some(node.0["status"]["conditions"][0].clone())
}

#[test]
fn r34_r35_a_node_without_the_condition_gets_it() {
    for (is_available, status, reason) in [(true, "False", "RouteCreated"), (false, "True", "NoRouteCreated")]
    {
        let condition = written(None, is_available).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!(status), &json!(reason)));
        assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
    }
}

#[test]
fn r36_r41_an_equal_condition_is_not_written_again() {
    assert_eq!(written(Some(("False", "RouteCreated")), true), None);
    assert_eq!(written(Some(("True", "NoRouteCreated")), false), None);
}

/// Our reason replaces the other one. Upstream also writes a transition although the status stays.
#[test]
fn r37_r38_r39_r42_another_owners_reason_is_replaced() {
    for (status, before, is_available, reason) in [
        ("False", "CalicoIsUp", true, "RouteCreated"),
        ("False", "other", true, "RouteCreated"),
        ("True", "other", false, "NoRouteCreated"),
    ] {
        let condition = written(Some((status, before)), is_available).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!(status), &json!(reason)));
        assert_ne!(condition["message"], "before");
        assert_eq!(condition["lastTransitionTime"], "2012-01-01T00:00:00Z");
    }
}

#[test]
fn r40_a_lost_route_makes_the_network_unavailable() {
    let condition = written(Some(("False", "RouteCreated")), false).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("NoRouteCreated")));
    assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
}
