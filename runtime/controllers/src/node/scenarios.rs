//! The scenarios of upstream's tests of its node controller and of its choice of addresses (N01 to N42 and H01 to H18 in
//! UPSTREAM.md).
//!
//! Upstream calls a cloud through one of two interfaces, V1 or V2. Here there is one lookup, and the differences between the
//! two became different answers.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::AddressKind::{self, ExternalIp, Hostname, InternalDns, InternalIp};
use pileus_cloud::{
    Address, Answer, Error, ErrorKind, Instance, InstanceState, Provider, ProviderId, Stance,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Settings;
use super::apply::patch_request;
use super::decide::{NextStep, SyncResult, decide, retry};
use super::plan::{Action, Goal, Plan, plan, release};
use super::queue::{NextLookup, NodeQueue};
use super::work_kind::WorkKind;
use crate::model;
use crate::nodes::{Change, PatchTarget};
use crate::scenarios::StoredNode;
use crate::well_known::TAINT_UNINITIALIZED;

type Addresses = &'static [(AddressKind, &'static str)];

const V4: (AddressKind, &str) = (InternalIp, "10.0.0.1");
const V6: (AddressKind, &str) = (InternalIp, "2001:db8::1");
const EXTERNAL_V4: (AddressKind, &str) = (ExternalIp, "203.0.113.1");
const EXTERNAL_V6: (AddressKind, &str) = (ExternalIp, "2001:db8::f");
/// The host name that the kubelet gives.
const NODE0: (AddressKind, &str) = (Hostname, "node0");

/// What the cloud of most scenarios lists.
const ADDRESSES: Addresses = &[V4, EXTERNAL_V4];

/// The expected result of the work on a Node.
enum Expected {
    /// The taint is removed, and this merge patch is the only other change.
    Initialized(Value),
    /// This merge patch is the only change.
    Changed(Value),
    /// The Node is released: the taint is removed, and this merge patch is the only other change.
    Released(Value),
    /// The Node is unchanged.
    Unchanged,
    /// The Node is unchanged, and is looked up again after this time.
    Pending(Duration),
    /// The Node is unchanged, and the reported failure contains this text.
    Failed(&'static str),
}
use Expected::{Changed, Failed, Initialized, Released, Unchanged};

/// Makes a test of each scenario: the Node and the cloud's answer => the expected result.
macro_rules! scenarios {
    ($($(#[doc = $why:literal])* $name:ident: $given:expr, $answer:expr => $expected:expr;)*) => {$(
        $(#[doc = $why])*
        #[test]
        fn $name() {
            assert_result(&$given, $answer, $expected);
        }
    )*};
}

#[track_caller]
fn assert_result(given: &StoredNode, answer: Result<Answer, Error>, expected: Expected) {
    let (after, result) = sync(given, answer);
    let untainted = |change: &Value| given.with(&json!({"spec": {"taints": null}})).with(change);
    match (&result, expected) {
        (SyncResult::Initialized, Initialized(change))
        | (SyncResult::Released { is_new: true }, Released(change)) => after.assert_is(&untainted(&change)),
        (SyncResult::Changed, Changed(change)) => after.assert_is(&given.with(&change)),
        (SyncResult::Unchanged | SyncResult::Released { is_new: false }, Unchanged) => {
            assert_eq!(after, *given);
        }
        (SyncResult::Pending(after_this), Expected::Pending(expected)) => {
            assert_eq!((&after, *after_this), (given, expected));
        }
        (SyncResult::Failed(_, why), Failed(words)) => {
            assert!(why.contains(words), "{why}");
            assert_eq!(after, *given);
        }
        _ => panic!("{result:?} of {after:?}"),
    }
}

/// The Node and the result after all writes that follow from the answer.
fn sync(given: &StoredNode, answer: Result<Answer, Error>) -> (StoredNode, SyncResult) {
    let goal = match decide(&given.facts(), answer) {
        NextStep::Write(goal) => goal,
        NextStep::Finish(result) => return (given.clone(), result),
    };
    let mut node = given.clone();
    for writes in 0..3 {
        let facts = node.facts();
        let plan = match &goal {
            Goal::Instance(instance) => plan(&facts, instance),
            Goal::Released => release(&facts),
        };
        let action = match plan {
            Plan::Nothing if goal == Goal::Released => {
                return (node, SyncResult::Released { is_new: writes > 0 });
            }
            Plan::Nothing if writes == 0 => return (node, SyncResult::Unchanged),
            Plan::Nothing if given.facts().is_uninitialized() => return (node, SyncResult::Initialized),
            Plan::Nothing => return (node, SyncResult::Changed),
            Plan::Blocked(why) => return (node, SyncResult::Failed(retry(&facts, &why), why.to_string())),
            Plan::Write(action) => action,
        };
        let request = patch_request(&facts, &action);
        node.patch(request.target, &request.body);
    }
    panic!("the writes never end");
}

fn tainted(change: &Value) -> StoredNode {
    StoredNode::registered(change)
}

/// An initialized Node of the instance `fake://12345` with [`ADDRESSES`].
fn initialized(change: &Value) -> StoredNode {
    let complete = json!({
        "spec": {"providerID": "fake://12345", "taints": null},
        "status": {"addresses": list(ADDRESSES)},
    });
    StoredNode::registered(&complete).with(change)
}

fn list(addresses: Addresses) -> Value {
    let address = |(kind, value): &(AddressKind, &str)| json!({"type": kind.as_str(), "address": value});
    addresses.iter().map(address).collect()
}

fn with_addresses(addresses: Addresses) -> Value {
    json!({"status": {"addresses": list(addresses)}})
}

/// A Node with this `--node-ip`, and with a provider ID.
fn node_ip(text: &str) -> Value {
    json!({
        "metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": text}},
        "spec": {"providerID": "fake://12345"},
        "status": {"addresses": list(&[NODE0])},
    })
}

fn instance(addresses: Addresses) -> Instance {
    Instance {
        provider_id: ProviderId::parse("fake://12345").unwrap(),
        instance_type: None,
        zone: None,
        region: None,
        addresses: addresses.iter().map(|(kind, value)| Address::new(*kind, *value)).collect(),
        labels: Vec::new(),
        state: InstanceState::Running,
        left_out: Vec::new(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "beside the errors of other scenarios")]
fn found(instance: Instance) -> Result<Answer, Error> {
    Ok(Answer::Found(instance))
}

fn found_at(addresses: Addresses) -> Result<Answer, Error> {
    found(instance(addresses))
}

fn in_zone(instance: Instance) -> Instance {
    Instance { zone: Some("us-west-1a".to_owned()), region: Some("us-west".to_owned()), ..instance }
}

fn with_labels(instance: Instance, labels: &[(&str, &str)]) -> Instance {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Instance { labels, ..instance }
}

/// The labels of [`in_zone`].
fn topology() -> Value {
    json!({
        "topology.kubernetes.io/zone": "us-west-1a",
        "failure-domain.beta.kubernetes.io/zone": "us-west-1a",
        "topology.kubernetes.io/region": "us-west",
        "failure-domain.beta.kubernetes.io/region": "us-west",
    })
}

fn with_more(labels: Value, more: Value) -> Value {
    let (Value::Object(mut labels), Value::Object(more)) = (labels, more) else {
        panic!("labels are objects")
    };
    labels.extend(more);
    Value::Object(labels)
}

fn other_taint() -> Value {
    json!({"key": "ImproveCoverageTaint", "value": "true", "effect": "NoSchedule"})
}

fn uninitialized_taint() -> Value {
    json!({"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"})
}

fn labels_of_a_user(change: Value) -> Value {
    let all = [
        ("topology.kubernetes.io/zone", "zone"),
        ("failure-domain.beta.kubernetes.io/zone", "zone"),
        ("topology.kubernetes.io/region", "region"),
        ("failure-domain.beta.kubernetes.io/region", "region"),
        ("node.kubernetes.io/instance-type", "type"),
        ("beta.kubernetes.io/instance-type", "type"),
    ];
    let all: Value = all
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({"metadata": {"labels": with_more(all, change)}})
}

const HOSTED: Addresses = &[(Hostname, "node0.cloud"), V4, EXTERNAL_V4];
const AND_HOST_NAME: Addresses = &[V4, EXTERNAL_V4, NODE0];

// Test_syncNode.
scenarios! {
    n01_a_host_name_of_the_cloud_replaces_the_kubelets:
        tainted(&with_addresses(&[NODE0])), found_at(HOSTED) =>
        Initialized(json!({"spec": {"providerID": "fake://12345"}, "status": {"addresses": list(HOSTED)}}));

    n02_the_kubelets_host_name_comes_after_the_clouds_addresses:
        tainted(&with_addresses(&[NODE0])), found_at(ADDRESSES) =>
        Initialized(json!({"spec": {"providerID": "fake://12345"}, "status": {"addresses": list(AND_HOST_NAME)}}));

    n03_a_node_without_addresses_gets_the_clouds:
        tainted(&json!({})), found_at(HOSTED) =>
        Initialized(json!({"spec": {"providerID": "fake://12345"}, "status": {"addresses": list(HOSTED)}}));

    /// Upstream never changes it (U-26).
    n04_a_node_that_came_without_the_taint_gets_what_it_lacks:
        tainted(&json!({"spec": {"taints": null}})), found(in_zone(instance(ADDRESSES))) =>
        Changed(json!({
            "metadata": {"labels": topology()},
            "spec": {"providerID": "fake://12345"},
            "status": {"addresses": list(ADDRESSES)},
        }));

    n05_zone_and_region_become_labels_and_conditions_stay:
        tainted(&with_addresses(&[NODE0])),
        found(Instance { provider_id: ProviderId::parse("aws://12345").unwrap(), ..in_zone(instance(HOSTED)) }) =>
        Initialized(json!({
            "metadata": {"labels": topology()},
            "spec": {"providerID": "aws://12345"},
            "status": {
                "addresses": list(HOSTED),
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated"}],
            },
        }));

    n06_other_taints_stay:
        tainted(&json!({"spec": {"taints": [other_taint(), uninitialized_taint()]}})), found_at(ADDRESSES) =>
        Initialized(json!({
            "spec": {"providerID": "fake://12345", "taints": [other_taint()]},
            "status": {"addresses": list(ADDRESSES)},
        }));

    /// Null metadata is `unmanaged` in the contract.
    n07_null_metadata_leaves_the_node_alone:
        tainted(&json!({})), Ok(Answer::Unmanaged(Stance::LeftAlone)) => Unchanged;

    /// Empty metadata is `unmanaged(released)` in the contract. The annotation with a `--node-ip` and other taints stay.
    empty_metadata_takes_the_taint_off:
        tainted(&node_ip("abc")).with(&json!({"spec": {"taints": [uninitialized_taint(), other_taint()]}})),
        Ok(Answer::Unmanaged(Stance::Released)) => Released(json!({"spec": {"taints": [other_taint()]}}));

    empty_metadata_leaves_an_initialized_node_alone:
        initialized(&json!({})), Ok(Answer::Unmanaged(Stance::Released)) => Unchanged;

    empty_metadata_leaves_a_node_alone_that_is_being_deleted:
        tainted(&json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})),
        Ok(Answer::Unmanaged(Stance::Released)) => Unchanged;

    n08_a_node_ip_that_the_cloud_lists_is_kept:
        tainted(&node_ip("10.0.0.1")), found_at(ADDRESSES) =>
        Initialized(with_addresses(AND_HOST_NAME));

    n09_an_invalid_node_ip_is_rejected:
        tainted(&node_ip("abc")), found_at(ADDRESSES) => Failed("\"abc\" is not an IP address");

    n10_a_node_ip_that_the_cloud_does_not_list_is_rejected:
        tainted(&node_ip("10.0.0.9")), found_at(ADDRESSES) => Failed("asks for 10.0.0.9");

    /// V1 reads the parts of an instance one by one and never asks whether it exists. Here one answer has everything, and an
    /// absent instance gives the Node nothing. The lifecycle controller confirms whether it is really gone.
    n11_a_node_whose_instance_is_absent_waits:
        tainted(&json!({"spec": {"providerID": "fake://12345"}})), Ok(Answer::Absent) =>
        Failed("the cloud has no instance with the provider ID fake://12345");

    /// Upstream removes the taint of a Node that can't be reached (U-06).
    n12_a_node_without_any_address_waits:
        tainted(&json!({})), found_at(&[]) => Failed("no IP address yet");

    /// The cloud's notation of the ID doesn't matter, and neither would an empty one.
    n13_the_nodes_own_provider_id_is_kept:
        tainted(&json!({"spec": {"providerID": "fake://other"}})), found_at(ADDRESSES) =>
        Initialized(with_addresses(ADDRESSES));

    n14_a_node_without_the_taint_that_lacks_nothing_is_left_alone:
        initialized(&json!({})), found_at(ADDRESSES) => Unchanged;

    n15_zone_and_region_become_labels_under_both_keys:
        tainted(&json!({})), found(in_zone(instance(ADDRESSES))) =>
        Initialized(json!({
            "metadata": {"labels": topology()},
            "spec": {"providerID": "fake://12345"},
            "status": {"addresses": list(ADDRESSES)},
        }));

    n16_other_taints_stay_regardless_of_their_position:
        tainted(&json!({"spec": {"taints": [uninitialized_taint(), other_taint()]}})), found_at(ADDRESSES) =>
        Initialized(json!({
            "spec": {"providerID": "fake://12345", "taints": [other_taint()]},
            "status": {"addresses": list(ADDRESSES)},
        }));

    n17_a_node_ip_that_the_cloud_lists_is_kept_and_replaces_nothing_else:
        tainted(&node_ip("10.0.0.1")), found_at(&[(InternalIp, "10.0.0.2"), V4, EXTERNAL_V4]) =>
        Initialized(with_addresses(AND_HOST_NAME));

    /// The annotation records that Pileus owns them, so that they can follow the cloud (U-08).
    n18_more_labels_of_the_cloud_are_added:
        tainted(&json!({})),
        found(with_labels(in_zone(instance(ADDRESSES)), &[
            ("topology.k8s.cp/zone-id", "az1"),
            ("my.custom.label/foo", "bar"),
        ])) =>
        Initialized(json!({
            "metadata": {
                "labels": with_more(topology(), json!({
                    "topology.k8s.cp/zone-id": "az1",
                    "my.custom.label/foo": "bar",
                })),
                "annotations": {"pileus.dev/owned-labels": "my.custom.label/foo,topology.k8s.cp/zone-id"},
            },
            "spec": {"providerID": "fake://12345"},
            "status": {"addresses": list(ADDRESSES)},
        }));

    n19_more_labels_take_no_reserved_key_and_replace_nothing:
        tainted(&json!({"metadata": {"labels": {"existing": "old", "equal": "same"}}})),
        found(with_labels(in_zone(instance(ADDRESSES)), &[
            ("topology.kubernetes.io/zone", "other"),
            ("kubernetes.io/x", "y"),
            ("sub.k8s.io/x", "y"),
            ("k8s.io/x", "y"),
            ("existing", "new"),
            ("equal", "same"),
            ("app.k8snio/bar", "x"),
            ("k8snio/bar", "x"),
        ])) =>
        Initialized(json!({
            "metadata": {
                "labels": with_more(topology(), json!({"app.k8snio/bar": "x", "k8snio/bar": "x"})),
                "annotations": {"pileus.dev/owned-labels": "app.k8snio/bar,equal,k8snio/bar"},
            },
            "spec": {"providerID": "fake://12345"},
            "status": {"addresses": list(ADDRESSES)},
        }));

    /// Upstream doesn't check here whether the instance exists. The closest case here is an instance that is stopped.
    n20_a_node_is_initialized_regardless_of_the_state_of_its_instance:
        tainted(&json!({"spec": {"providerID": "fake://12345"}})),
        found(Instance { state: InstanceState::Stopped, ..instance(ADDRESSES) }) =>
        Initialized(with_addresses(ADDRESSES));

    /// The contract has no instance without an ID: the host turns such an answer into this error.
    n21_no_provider_id_anywhere_is_an_error:
        tainted(&json!({})), Err(Error::new(ErrorKind::Broken, "the provider gave no provider ID")) =>
        Failed("no provider ID");

    n22_an_error_of_the_cloud_leaves_the_node_alone:
        tainted(&json!({})), Err(Error::new(ErrorKind::Unavailable(None), "the cloud does not answer")) =>
        Failed("does not answer");
}

// Test_reconcileNodeLabels.
scenarios! {
    n23_the_old_keys_of_labels_are_copied_to_the_current_ones:
        initialized(&labels_of_a_user(json!({
            "topology.kubernetes.io/zone": null,
            "topology.kubernetes.io/region": null,
            "node.kubernetes.io/instance-type": null,
        }))),
        found_at(ADDRESSES) =>
        Changed(labels_of_a_user(json!({})));

    n24_equal_labels_stay:
        initialized(&labels_of_a_user(json!({}))), found_at(ADDRESSES) => Unchanged;

    n25_the_old_key_holds_where_they_differ:
        initialized(&labels_of_a_user(json!({
            "topology.kubernetes.io/zone": "changed",
            "topology.kubernetes.io/region": "changed",
            "node.kubernetes.io/instance-type": "changed",
        }))),
        found_at(ADDRESSES) =>
        Changed(labels_of_a_user(json!({})));
}

// TestNodeAddressesChangeDetected.
scenarios! {
    n26_the_same_addresses_are_no_change:
        initialized(&with_addresses(HOSTED)), found_at(HOSTED) => Unchanged;

    n27_another_external_address_is_a_change:
        initialized(&with_addresses(&[V4, (ExternalIp, "203.0.113.2")])), found_at(ADDRESSES) =>
        Changed(with_addresses(ADDRESSES));

    /// Not where the cloud names none, as the kubelet's is kept then.
    n28_a_host_name_that_the_cloud_does_not_name_any_more_is_a_change:
        initialized(&with_addresses(&[(Hostname, "node0.cloud"), V4, EXTERNAL_V4, (Hostname, "old")])),
        found_at(HOSTED) =>
        Changed(with_addresses(HOSTED));

    n29_a_new_host_name_is_a_change:
        initialized(&json!({})), found_at(HOSTED) => Changed(with_addresses(HOSTED));

    n30_the_same_addresses_for_other_ends_are_a_change:
        initialized(&with_addresses(&[(ExternalIp, "10.0.0.1"), (InternalIp, "203.0.113.1")])), found_at(ADDRESSES) =>
        Changed(with_addresses(ADDRESSES));
}

/// Upstream's status loop skips Nodes with the taint. Here they need another kind of work.
#[test]
fn n31_a_node_with_the_taint_is_not_refreshed() {
    let (mut queue, now) = queue(&[tainted(&json!({"spec": {"providerID": "fake://12345"}}))]);
    assert_eq!(queue.next_due(WorkKind::Refresh), None);
    assert_eq!(queue.take(WorkKind::Initialize, now, 9).len(), 1);
    assert_eq!(queue.next_due(WorkKind::Refresh), None);
}

/// Upstream writes no addresses before it has removed the taint. Here addresses come first, so that no Pod starts with wrong
/// ones (U-05).
#[test]
fn n32_a_node_has_its_addresses_before_it_loses_the_taint() {
    let mut node = tainted(&json!({}));
    let Plan::Write(action @ Action::SetAddresses(_)) = plan(&node.facts(), &instance(ADDRESSES)) else {
        panic!("addresses come first");
    };
    let request = patch_request(&node.facts(), &action);
    assert_eq!(request.target, PatchTarget::Status);
    node.patch(request.target, &request.body);
    node.assert_is(&tainted(&with_addresses(ADDRESSES)));
}

// TestGetInstanceMetadata.
scenarios! {
    n33_an_empty_value_of_the_cloud_becomes_no_label:
        tainted(&json!({})), found(Instance { instance_type: Some(String::new()), ..instance(ADDRESSES) }) =>
        Initialized(json!({"spec": {"providerID": "fake://12345"}, "status": {"addresses": list(ADDRESSES)}}));

    /// V1 continues without an ID where the cloud can't find one by name. Here a provider that can't tell yet answers
    /// `pending`.
    n34_a_pending_node_is_looked_up_again:
        tainted(&json!({})), Ok(Answer::Pending(Duration::from_secs(5))) => Expected::Pending(Duration::from_secs(5));

    n35_a_provider_id_that_the_kubelet_gave_needs_none_of_the_cloud:
        tainted(&json!({"spec": {"providerID": "fake://asdasd"}})), found_at(HOSTED) =>
        Initialized(with_addresses(HOSTED));

    n36_provider_id_and_addresses_are_the_clouds:
        tainted(&json!({})), found_at(HOSTED) =>
        Initialized(json!({"spec": {"providerID": "fake://12345"}, "status": {"addresses": list(HOSTED)}}));

    /// As N21. Upstream returns the rest of the metadata, too, but then doesn't use it.
    n37_no_provider_id_is_an_error_even_with_other_metadata:
        tainted(&with_addresses(ADDRESSES)), Err(Error::new(ErrorKind::Broken, "the provider gave no provider ID")) =>
        Failed("no provider ID");

    n38_a_node_with_its_own_provider_id_gets_type_and_addresses:
        tainted(&json!({"spec": {"providerID": "fake://asdasd"}})),
        found(Instance { instance_type: Some("t1.micro".to_owned()), ..instance(HOSTED) }) =>
        Initialized(json!({
            "metadata": {"labels": {
                "node.kubernetes.io/instance-type": "t1.micro",
                "beta.kubernetes.io/instance-type": "t1.micro",
            }},
            "status": {"addresses": list(HOSTED)},
        }));
}

fn queue(nodes: &[StoredNode]) -> (NodeQueue, Instant) {
    let provider = Provider { largest_lookup_batch: 5000, ..model::provider("fake") };
    let now = Instant::now();
    let mut queue = NodeQueue::new(provider, &Settings::default());
    queue.observe(nodes.iter().map(|node| Change::Present(Arc::new(node.facts()))).collect(), now);
    (queue, now)
}

/// TestUpdateNodeStatus: upstream makes one call a Node with 1, 5, 10 and 30 workers. Here one call has all Nodes.
#[test]
fn n39_n40_n41_n42_one_lookup_serves_100_nodes_regardless_of_the_writers() {
    let named = |n: u32| initialized(&json!({"metadata": {"name": format!("node{n}")}}));
    let (mut queue, now) = queue(&(0..100).map(named).collect::<Vec<_>>());
    let sweep = queue.take(WorkKind::Refresh, now, 5000);
    assert_eq!(sweep.len(), 100);
    assert_eq!(queue.next_due(WorkKind::Refresh), None);
    for node in &sweep {
        queue.finish(WorkKind::Refresh, node, NextLookup::AtSweep, now, 0.0);
    }
    let next = now + Duration::from_mins(30);
    assert_eq!(queue.next_due(WorkKind::Refresh), Some(next));
    assert_eq!(queue.take(WorkKind::Refresh, next, 5000).len(), 100, "all Nodes together again");
}

/// Makes a test of each choice: present addresses, `--node-ip`, the cloud's addresses => the desired addresses.
macro_rules! addresses {
    ($($name:ident: $present:expr, $node_ip:expr, $cloud:expr => $expected:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_addresses($present, $node_ip, $cloud, $expected);
        }
    )*};
}

#[track_caller]
fn assert_addresses(
    present: Addresses,
    node_ip: Option<&str>,
    cloud: Addresses,
    expected: Result<Addresses, &'static str>,
) {
    let annotation = json!({"alpha.kubernetes.io/provided-node-ip": node_ip});
    let given = json!({"metadata": {"annotations": annotation}, "status": {"addresses": list(present)}});
    let expected = match expected {
        Ok(addresses) => Initialized(json!({
            "spec": {"providerID": "fake://12345"},
            "status": {"addresses": list(addresses)},
        })),
        Err(words) => Failed(words),
    };
    assert_result(&tainted(&given), found_at(cloud), expected);
}

const HOST: Addresses = &[NODE0];

// Upstream's helpers that add to a list of addresses, and that choose by `--node-ip`.
addresses! {
    h01_no_addresses_at_all_block_the_node: &[], None, &[] => Err("no IP address yet");
    h02_new_addresses_are_added: &[], None, ADDRESSES => Ok(ADDRESSES);
    h03_an_address_that_is_listed_twice_is_added_once: &[], None,
        &[V4, EXTERNAL_V4, V4] => Ok(ADDRESSES);
    h04_a_present_address_is_not_added_again: &[V4], None, ADDRESSES => Ok(ADDRESSES);
    h05_the_only_internal_address_can_be_the_node_ip: HOST, Some("10.0.0.1"), ADDRESSES => Ok(AND_HOST_NAME);
    h06_an_external_node_ip_comes_first: HOST, Some("203.0.113.1"), ADDRESSES =>
        Ok(&[EXTERNAL_V4, V4, NODE0]);
    h07_an_address_of_two_types_is_the_only_one_of_both: HOST, Some("10.0.0.1"),
        &[V4, (InternalIp, "10.0.0.2"), (ExternalIp, "10.0.0.1"), EXTERNAL_V4] =>
        Ok(&[V4, (ExternalIp, "10.0.0.1"), NODE0]);
    h08_names_are_unchanged: HOST, Some("10.0.0.1"),
        &[V4, (InternalDns, "node0.internal"), (InternalDns, "node0.other")] =>
        Ok(&[V4, (InternalDns, "node0.internal"), (InternalDns, "node0.other"), NODE0]);
    h09_of_several_internal_addresses_one_is_chosen: HOST, Some("10.0.0.3"),
        &[V4, (InternalIp, "10.0.0.2"), (InternalIp, "10.0.0.3"), EXTERNAL_V4] =>
        Ok(&[(InternalIp, "10.0.0.3"), EXTERNAL_V4, NODE0]);
    h10_a_node_ip_that_is_not_listed_is_rejected: HOST, Some("10.0.0.4"), ADDRESSES => Err("asks for 10.0.0.4");
    h11_the_notation_of_ipv6_does_not_matter_and_the_other_family_is_dropped: HOST, Some("2001:db8:0:0::1"),
        &[V4, (InternalIp, "2001:db8::0:1")] =>
        Ok(&[(InternalIp, "2001:db8::0:1"), NODE0]);
    h12_a_pair_is_rejected_where_the_cloud_has_one_family: HOST, Some("10.0.0.1,2001:db8::1"), ADDRESSES =>
        Err("asks for 2001:db8::1");
    h13_a_pair_stays_in_its_order: HOST, Some("10.0.0.1,2001:db8::1"),
        &[V4, V6] =>
        Ok(&[V4, V6, NODE0]);
    h14_the_order_of_the_pair_wins: HOST, Some("10.0.0.1,2001:db8::1"),
        &[V6, V4] =>
        Ok(&[V4, V6, NODE0]);
    h15_internal_addresses_beside_the_pair_are_dropped: HOST, Some("10.0.0.1,2001:db8::1"),
        &[(InternalIp, "10.0.0.2"), (InternalIp, "2001:db8::2"), V4, V6] =>
        Ok(&[V4, V6, NODE0]);
    h16_an_external_address_follows_the_pair: HOST, Some("10.0.0.1,2001:db8::1"),
        &[EXTERNAL_V4, V4, V6] =>
        Ok(&[V4, V6, EXTERNAL_V4, NODE0]);
    h17_two_external_addresses_follow_the_pair: HOST, Some("2001:db8::1,10.0.0.1"),
        &[V4, V6, EXTERNAL_V4, EXTERNAL_V6] =>
        Ok(&[V6, V4, EXTERNAL_V4, EXTERNAL_V6, NODE0]);
    h18_a_pair_of_an_external_and_an_internal_address_is_all_of_both: HOST, Some("203.0.113.1,2001:db8::1"),
        &[V4, V6, EXTERNAL_V4, EXTERNAL_V6] =>
        Ok(&[EXTERNAL_V4, V6, NODE0]);
}
