//! A Node as the controllers see it.
//!
//! Of an object of 12 kB and more, most of it the list of its images, only what a decision needs is read and kept.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pileus_cloud::{Address, AddressKind, NodeReference, ProviderId};
use serde::{Deserialize, Deserializer, Serialize};

use crate::well_known::{
    ANNOTATION_NODE_IP, ANNOTATION_OWNED_LABELS, ANNOTATION_RELEASE_DELETION, CONDITION_MACHINE_ABSENT,
    LABEL_EXCLUDE, LABELS_ZONE, REASON_ROUTE_CREATED, TAINT_AUTOSCALER_DELETES, TAINT_UNINITIALIZED,
};

/// A Node of which only those fields are deserialised that become facts.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// What of a Node's metadata becomes facts, or is asked for by a watch.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// Passes `managedFields` over, which would become a tree of some hundred values a Node.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let Metadata { name, uid, resource_version, creation_timestamp, deletion_timestamp, labels, annotations } =
        Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        uid,
        resource_version,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
        ..ObjectMeta::default()
    })
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Spec {
    #[serde(rename = "providerID", default)]
    provider_id: String,
    #[serde(rename = "podCIDRs", default)]
    pod_cidrs: Vec<String>,
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<RawAddress>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Clone, Deserialize)]
struct RawAddress {
    r#type: String,
    address: String,
}

/// A taint, as it stands in `spec.taints`. Complete: the list is written back as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its effect.
    pub effect: String,
    /// When a taint with the effect `NoExecute` was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl kube::Resource for Node {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        core::Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        core::Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        core::Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        core::Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the annotation for `--node-ip` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIps {
    /// These addresses: none, one, or one of each family.
    Given(Vec<IpAddr>),
    /// It can't be understood, and why.
    Malformed(String),
}

/// Whether the kubelet says that the Node is ready: the status of its condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It is.
    True,
    /// It isn't.
    False,
    /// The kubelet hasn't been heard of for a while, or has never said it.
    Unknown,
}

/// What the condition `NetworkUnavailable` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUnavailable {
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason, which tells who wrote it.
    pub reason: String,
}

/// What the controllers know of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`: a write that depends on these facts carries it.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// `spec.providerID`.
    pub provider_id: Option<ProviderId>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.addresses`. Types that Kubernetes doesn't define are left out.
    pub addresses: Vec<Address>,
    /// What the kubelet's `--node-ip` asks for.
    pub node_ips: NodeIps,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The keys of those labels that are ours to change, as [`ANNOTATION_OWNED_LABELS`] says.
    pub owned_labels: BTreeSet<String>,
    /// The status of the condition `Ready`.
    pub readiness: Readiness,
    /// Whether its deletion is held: [`CONDITION_MACHINE_ABSENT`] is true.
    pub is_held: bool,
    /// The UID that [`ANNOTATION_RELEASE_DELETION`] names.
    pub release_deletion: Option<String>,
    /// `spec.podCIDRs`, without what is named twice, and without what is no address range.
    pub pod_cidrs: Vec<IpNet>,
    /// The condition `NetworkUnavailable`, where somebody has set it.
    pub network_unavailable: Option<NetworkUnavailable>,
}

/// A Node that can't be worked on: the problem is the Node's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {name}: {problem}")]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub problem: String,
    /// See [`NodeFacts::pod_cidrs`].
    pub pod_cidrs: Vec<IpNet>,
}

impl NodeFacts {
    /// Reads a Node.
    ///
    /// # Errors
    /// [`Unreadable`] where `spec.providerID` is none: such a Node is nobody's.
    pub fn read(node: Node) -> Result<Self, Unreadable> {
        let Node { metadata, spec, status } = node;
        let name = metadata.name.unwrap_or_default();
        let provider_id = match spec.provider_id.as_str() {
            "" => None,
            text => Some(ProviderId::parse(text).map_err(|error| Unreadable {
                name: name.clone(),
                problem: error.to_string(),
                pod_cidrs: ranges(&spec.pod_cidrs),
            })?),
        };
        let annotation = |key| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let owned = annotation(ANNOTATION_OWNED_LABELS).map_or("", String::as_str).split(',');
        let find = |kind| status.conditions.iter().find(|condition| condition.r#type == kind);
        let condition = |kind| find(kind).map(|condition| condition.status.as_str());
        let known =
            |RawAddress { r#type, address }| Some(Address::new(AddressKind::parse(&r#type)?, address));
        Ok(Self {
            node_ips: annotation(ANNOTATION_NODE_IP)
                .map_or(NodeIps::Given(Vec::new()), |text| node_ips(text)),
            owned_labels: owned.map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect(),
            readiness: match condition("Ready") {
                Some("True") => Readiness::True,
                Some("False") => Readiness::False,
                _ => Readiness::Unknown,
            },
            is_held: condition(CONDITION_MACHINE_ABSENT) == Some("True"),
            release_deletion: annotation(ANNOTATION_RELEASE_DELETION).cloned(),
            pod_cidrs: ranges(&spec.pod_cidrs),
            network_unavailable: find("NetworkUnavailable").map(|condition| NetworkUnavailable {
                status: condition.status.clone(),
                reason: condition.reason.clone(),
            }),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            created_at: metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_deleting: metadata.deletion_timestamp.is_some(),
            taints: spec.taints,
            addresses: status.addresses.into_iter().filter_map(known).collect(),
            labels: metadata.labels.unwrap_or_default(),
            provider_id,
            name,
        })
    }

    /// Whether it waits to be initialised.
    pub fn is_uninitialised(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == TAINT_UNINITIALIZED)
    }

    /// Whether the cloud has a route for each of its ranges of Pod addresses, as the route controller tells it.
    pub fn has_routes(&self) -> bool {
        let told = self.network_unavailable.as_ref();
        told.is_some_and(|told| told.status == "False" && told.reason == REASON_ROUTE_CREATED)
    }

    /// Whether it is labelled out of load balancers. As upstream since 1.33 (P-29), a value that Go reads as false labels it
    /// in again, and an empty one or one that is no boolean labels it out.
    pub fn is_excluded(&self) -> bool {
        let value = self.labels.get(LABEL_EXCLUDE);
        value.is_some_and(|value| !matches!(&**value, "0" | "f" | "F" | "FALSE" | "false" | "False"))
    }

    /// Whether the cluster autoscaler is about to take its machine away.
    pub fn is_leaving(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == TAINT_AUTOSCALER_DELETES)
    }

    /// Its zone, where it is labelled with one.
    pub fn zone(&self) -> Option<&str> {
        LABELS_ZONE.iter().find_map(|key| self.labels.get(*key)).map(String::as_str)
    }

    /// The Node as a provider may see it: with those labels whose keys it named.
    pub fn reference(&self, label_keys: &[String]) -> NodeReference {
        NodeReference {
            name: self.name.clone(),
            uid: self.uid.clone(),
            provider_id: self.provider_id.clone(),
            created_at: self.created_at,
            addresses: self.addresses.clone(),
            node_ips: match &self.node_ips {
                NodeIps::Given(addresses) => addresses.clone(),
                NodeIps::Malformed(_) => Vec::new(),
            },
            labels: self.labels_of(label_keys),
        }
    }

    /// Those of its labels that have one of these keys.
    pub fn labels_of(&self, keys: &[String]) -> Vec<(String, String)> {
        let label = |key: &String| Some((key.clone(), self.labels.get(key)?.clone()));
        keys.iter().filter_map(label).collect()
    }
}

/// Address ranges in their canonical form, each once, in their order.
fn ranges(texts: &[String]) -> Vec<IpNet> {
    let mut ranges: Vec<IpNet> = Vec::new();
    for text in texts {
        if let Ok(range) = text.parse::<IpNet>().map(|range| range.trunc())
            && !ranges.contains(&range)
        {
            ranges.push(range);
        }
    }
    ranges
}

/// How much of an annotation that makes no sense is shown, in bytes: two addresses and more.
const SHOWN: usize = 100;

/// Upstream's reading (ccm-behaviour 2.4): separated by a comma, nothing trimmed, at most one of each family, and a
/// pair has no unspecified address. IPv6 may be written in any form.
fn node_ips(text: &str) -> NodeIps {
    // A quarter of a megabyte fits into an annotation, and the reason should fit into an event.
    let shown = text.get(..text.floor_char_boundary(SHOWN)).unwrap_or_default();
    let malformed = |problem: &str| NodeIps::Malformed(format!("{ANNOTATION_NODE_IP}={shown:?}: {problem}"));
    let mut addresses = Vec::new();
    for part in text.split(',') {
        let Ok(address) = part.parse::<IpAddr>() else {
            let part = part.get(..part.floor_char_boundary(SHOWN)).unwrap_or_default();
            return malformed(&format!("{part:?} is not an IP address"));
        };
        addresses.push(address);
    }
    match addresses.as_slice() {
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            malformed("a pair can't hold an unspecified address")
        }
        [first, second] if first.is_ipv4() == second.is_ipv4() => {
            malformed("two addresses must be of different families")
        }
        [_] | [_, _] => NodeIps::Given(addresses),
        _ => malformed("more than two addresses"),
    }
}

#[cfg(test)]
impl NodeFacts {
    /// A Node that a kubelet has just registered: tainted, without anything from a cloud, not ready.
    pub(crate) fn registered(name: &str) -> Self {
        let taint = Taint {
            key: TAINT_UNINITIALIZED.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        Self {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            resource_version: "1".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            is_deleting: false,
            provider_id: None,
            taints: vec![taint],
            addresses: vec![Address::new(AddressKind::Hostname, name)],
            node_ips: NodeIps::Given(Vec::new()),
            labels: BTreeMap::new(),
            owned_labels: BTreeSet::new(),
            readiness: Readiness::Unknown,
            is_held: false,
            release_deletion: None,
            pod_cidrs: Vec::new(),
            network_unavailable: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<NodeFacts, Unreadable> {
        NodeFacts::read(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn only_what_decisions_need_is_read() {
        let facts = read(serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"kubernetes.io/os": "linux", "pool": "blue"},
                "annotations": {
                    ANNOTATION_NODE_IP: "10.0.0.1,2001:db8:0::1",
                    ANNOTATION_OWNED_LABELS: "b.example/y, a.example/x,",
                    ANNOTATION_RELEASE_DELETION: "u",
                },
                "managedFields": "passed over, whatever it is",
            },
            "spec": {
                "providerID": "simulated://m-1", "podCIDR": "10.1.0.0/24",
                "podCIDRs": ["10.1.0.0/24", "2001:db8:0::/64", "10.1.0.7/24", "none"],
                "taints": [{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [{"type": "Hostname", "address": "a"}, {"type": "Quantum", "address": "?"}],
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "KubeletNotReady"},
                    {"type": CONDITION_MACHINE_ABSENT, "status": "True"},
                ],
                "images": [{"names": ["x"], "sizeBytes": 1}],
            },
        }))
        .unwrap();
        assert_eq!(facts.owned_labels, ["a.example/x", "b.example/y"].map(str::to_owned).into());
        assert_eq!(facts.readiness, Readiness::False);
        assert_eq!(
            facts.pod_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.1.0.0/24", "2001:db8::/64"]
        );
        assert!(facts.is_held && facts.network_unavailable.is_none());
        assert_eq!(facts.release_deletion.as_deref(), Some("u"));
        assert_eq!(facts.provider_id.as_ref().unwrap().as_str(), "simulated://m-1");
        assert_eq!(facts.addresses, [Address::new(AddressKind::Hostname, "a")]);
        assert!(facts.is_uninitialised() && !facts.is_deleting);
        let reference = facts.reference(&["pool".to_owned(), "missing".to_owned()]);
        assert_eq!(reference.labels, [("pool".to_owned(), "blue".to_owned())]);
        assert_eq!(reference.node_ips.len(), 2);
        assert_eq!(reference.created_at.to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn it_is_asked_for_and_named_as_kubernetes_own_type_is() {
        use kube::Resource;
        assert_eq!(Node::url_path(&(), None), core::Node::url_path(&(), None));
        let json = serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let [ours, theirs] = [json.clone(), json];
        let ours: Node = serde_json::from_value(ours).unwrap();
        let theirs: core::Node = serde_json::from_value(theirs).unwrap();
        assert_eq!(ours.object_ref(&()), theirs.object_ref(&()));
    }

    #[test]
    fn a_node_that_is_barely_there_is_read_too() {
        let facts = read(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        assert!(!facts.is_uninitialised() && !facts.is_deleting);
        assert_eq!(facts.provider_id, None);
        assert_eq!(facts.readiness, Readiness::Unknown);
        assert!(!facts.is_held && facts.owned_labels.is_empty() && facts.release_deletion.is_none());
    }

    #[test]
    fn readiness_is_what_the_condition_of_that_name_says() {
        for (status, readiness) in [
            ("True", Readiness::True),
            ("False", Readiness::False),
            ("Unknown", Readiness::Unknown),
            ("true", Readiness::Unknown),
        ] {
            let conditions = serde_json::json!([
                {"type": "NetworkUnavailable", "status": "True"},
                {"type": "Ready", "status": status},
                {"type": "DiskPressure", "status": "False"},
            ]);
            let json = serde_json::json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
            assert_eq!(read(json).unwrap().readiness, readiness, "{status}");
        }
    }

    #[test]
    fn a_node_that_is_being_deleted_says_so() {
        let metadata = serde_json::json!({"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"});
        assert!(read(serde_json::json!({"metadata": metadata})).unwrap().is_deleting);
    }

    #[test]
    fn a_provider_id_that_is_none_makes_the_node_unreadable() {
        let json = serde_json::json!({"metadata": {"name": "a"}, "spec": {"providerID": "m-1"}});
        assert!(read(json).unwrap_err().to_string().starts_with("node a: \"m-1\" is not a provider ID"));
    }

    #[test]
    fn node_ips_are_read_as_upstream_reads_them() {
        for (text, problem) in [
            ("", "not an IP"),
            ("10.0.0.1, 2001:db8::1", "not an IP"),
            ("node-1", "not an IP"),
            ("10.0.0.1,10.0.0.2", "different families"),
            ("10.0.0.1,::", "unspecified"),
            ("10.0.0.1,2001:db8::1,10.0.0.3", "more than two"),
        ] {
            let NodeIps::Malformed(why) = node_ips(text) else { panic!("{text:?} was accepted") };
            assert!(why.contains(problem), "{text:?}: {why}");
        }
        for text in ["10.0.0.1,".repeat(20_000) + "::1", "ü".repeat(100_000)] {
            let NodeIps::Malformed(why) = node_ips(&text) else { panic!("{text:?} was accepted") };
            assert!(why.len() < 500 && why.contains("address"), "{} bytes", why.len());
        }
        for text in ["10.0.0.1", "2001:db8::1", "0.0.0.0", "2001:db8::1,10.0.0.1"] {
            assert!(matches!(node_ips(text), NodeIps::Given(_)), "{text:?}");
        }
    }
}
