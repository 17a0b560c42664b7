//! A Node as the controllers see it: only what a decision needs.

mod node_ips;
mod object;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;

use ipnet::IpNet;
use jiff::Timestamp;
use pileus_cloud::{Address, AddressKind, NodeReference, ProviderId};

use crate::claims::{Claims, NodeOwner};
use crate::facts::Labels;
use crate::well_known::{
    ANNOTATION_NODE_IP, ANNOTATION_NODE_MANAGER, ANNOTATION_OWNED_LABELS, ANNOTATION_RELEASE_DELETION,
    CONDITION_MACHINE_ABSENT, LABEL_EXCLUDE, LABELS_ZONE, REASON_ROUTE_CREATED, TAINT_AUTOSCALER_DELETES,
    TAINT_UNINITIALIZED,
};
pub use node_ips::NodeIps;
use node_ips::node_ips;
use object::RawAddress;
pub use object::{Node, Taint};

/// The readiness of a Node: the status of its condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The kubelet reports that the Node is ready.
    True,
    /// The kubelet reports that the Node isn't ready.
    False,
    /// The kubelet has been silent for a while, or has never reported.
    Unknown,
}

/// The condition `NetworkUnavailable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUnavailable {
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason, which shows its owner.
    pub reason: String,
}

/// What the controllers know about a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`. A write that depends on these facts has it as a precondition.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// `spec.providerID`.
    pub provider_id: Option<ProviderId>,
    /// The Node that keeps this Node's provider ID where two have it. This isn't in the object: [`crate::nodes`] adds it. Then this
    /// Node takes no part in what concerns the instance: it is no target, gets no routes and isn't initialized.
    pub twin: Option<String>,
    /// Which provider it belongs to, by the claims of the providers. [`crate::nodes`] updates it when those change.
    pub owner: NodeOwner,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.addresses`, without types that Kubernetes doesn't define.
    pub addresses: Vec<Address>,
    /// `status.nodeInfo.systemUUID`, if the kubelet wrote one.
    pub system_uuid: Option<String>,
    /// The addresses that the kubelet's `--node-ip` asks for.
    pub node_ips: NodeIps,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The keys of the labels that Pileus owns, from [`ANNOTATION_OWNED_LABELS`].
    pub owned_labels: BTreeSet<String>,
    /// Whether its own node manager writes what comes from the instance: it has [`ANNOTATION_NODE_MANAGER`].
    pub has_node_manager: bool,
    /// The status of the condition `Ready`.
    pub readiness: Readiness,
    /// Since when the condition `Ready` has its status. `None` where there is no such condition.
    pub readiness_since: Option<Timestamp>,
    /// Whether its deletion is on hold: [`CONDITION_MACHINE_ABSENT`] is true.
    pub is_held: bool,
    /// The UID in [`ANNOTATION_RELEASE_DELETION`].
    pub release_deletion: Option<String>,
    /// `spec.podCIDRs`, without duplicates and invalid CIDRs.
    pub pod_cidrs: Vec<IpNet>,
    /// The condition `NetworkUnavailable`, if it is set.
    pub network_unavailable: Option<NetworkUnavailable>,
}

/// A Node that can't be read, so that no controller can handle it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {name}: {problem}")]
pub struct UnreadableNode {
    /// Its name.
    pub name: String,
    /// What is wrong with the Node.
    pub problem: String,
    /// See [`NodeFacts::pod_cidrs`].
    pub pod_cidrs: Vec<IpNet>,
}

impl NodeFacts {
    /// Reads a Node. `claims` are those of the providers that run.
    ///
    /// # Errors
    /// [`UnreadableNode`] where `spec.providerID` is invalid, so that no provider can be responsible for the Node.
    pub fn read(node: Node, claims: &Claims) -> Result<Self, UnreadableNode> {
        let Node { metadata, spec, status } = node;
        let name = metadata.name.unwrap_or_default();
        let provider_id = match spec.provider_id.as_str() {
            "" => None,
            text => Some(ProviderId::parse(text).map_err(|error| UnreadableNode {
                name: name.clone(),
                problem: error.to_string(),
                pod_cidrs: parse_cidrs(&spec.pod_cidrs),
            })?),
        };
        let labels = Labels::from(metadata.labels.unwrap_or_default());
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
            has_node_manager: annotation(ANNOTATION_NODE_MANAGER).is_some(),
            readiness: match condition("Ready") {
                Some("True") => Readiness::True,
                Some("False") => Readiness::False,
                _ => Readiness::Unknown,
            },
            readiness_since: find("Ready")
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
            is_held: condition(CONDITION_MACHINE_ABSENT) == Some("True"),
            release_deletion: annotation(ANNOTATION_RELEASE_DELETION).cloned(),
            pod_cidrs: parse_cidrs(&spec.pod_cidrs),
            network_unavailable: find("NetworkUnavailable").map(|condition| NetworkUnavailable {
                status: condition.status.clone(),
                reason: condition.reason.clone(),
            }),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            created_at: metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_deleting: metadata.deletion_timestamp.is_some(),
            twin: None,
            owner: claims.owner_of_node(&labels, provider_id.as_ref()),
            taints: spec.taints,
            system_uuid: Some(status.node_info.system_uuid).filter(|uuid| !uuid.is_empty()),
            addresses: status.addresses.into_iter().filter_map(known).collect(),
            labels,
            provider_id,
            name,
        })
    }

    /// Whether the Node belongs to the provider of this name.
    pub fn belongs_to(&self, provider: &str) -> bool {
        matches!(&self.owner, NodeOwner::Provider(owner) if owner == provider)
    }

    /// Whether the Node waits to be initialized.
    pub fn is_uninitialized(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == TAINT_UNINITIALIZED)
    }

    /// Whether the provider has never found an instance for the Node: it waits to be initialized, and has no label that comes from an
    /// instance. With `--wait-for-routes` a Node keeps the taint for a while after its labels are set.
    pub fn never_had_instance(&self) -> bool {
        self.is_uninitialized() && self.owned_labels.is_empty()
    }

    /// Whether the cloud has a route for each of its Pod CIDRs, as the route controller reports in the condition.
    pub fn has_routes(&self) -> bool {
        let condition = self.network_unavailable.as_ref();
        condition
            .is_some_and(|condition| condition.status == "False" && condition.reason == REASON_ROUTE_CREATED)
    }

    /// Whether the Node is excluded from load balancers by label. As with newer versions of upstream (U-29), a value that Go parses
    /// as false includes it. An empty value, or one that isn't a boolean, excludes it.
    pub fn is_excluded(&self) -> bool {
        let value = self.labels.get(LABEL_EXCLUDE);
        value.is_some_and(|value| !matches!(value, "0" | "f" | "F" | "FALSE" | "false" | "False"))
    }

    /// Whether the cluster autoscaler is about to remove the instance.
    pub fn is_leaving(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == TAINT_AUTOSCALER_DELETES)
    }

    /// The zone from its labels.
    pub fn zone(&self) -> Option<&str> {
        LABELS_ZONE.iter().find_map(|key| self.labels.get(key))
    }

    /// The Node as the provider may see it: only with the labels that the provider reads.
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
            system_uuid: self.system_uuid.clone(),
        }
    }

    /// Its labels with these keys, ordered by key. A `*` at the end of a key stands for any text.
    pub fn labels_of(&self, keys: &[String]) -> Vec<(String, String)> {
        self.labels_with(keys).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Whether another version of the Node has the same labels with these keys.
    pub(crate) fn has_labels_of(&self, other: &Self, keys: &[String]) -> bool {
        self.labels_with(keys).eq(other.labels_with(keys))
    }

    fn labels_with<'a>(&'a self, keys: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_meant = |label: &str, key: &String| match key.strip_suffix('*') {
            Some(beginning) => label.starts_with(beginning),
            None => label == key,
        };
        self.labels.iter().filter(move |(label, _)| keys.iter().any(|key| is_meant(label, key)))
    }
}

/// Parses CIDRs into their canonical form, in order and without duplicates.
fn parse_cidrs(texts: &[String]) -> Vec<IpNet> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<NodeFacts, UnreadableNode> {
        NodeFacts::read(serde_json::from_value(json).unwrap(), &crate::model::claims())
    }

    #[test]
    fn only_what_decisions_need_becomes_facts() {
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
                "managedFields": "skipped, regardless of its type",
            },
            "spec": {
                "providerID": "simulated://m-1", "podCIDR": "10.1.0.0/24",
                "podCIDRs": ["10.1.0.0/24", "2001:db8:0::/64", "10.1.0.7/24", "none"],
                "taints": [{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [{"type": "Hostname", "address": "a"}, {"type": "Quantum", "address": "?"}],
                "conditions": [
                    {
                        "type": "Ready", "status": "False", "reason": "KubeletNotReady",
                        "lastTransitionTime": "2026-01-02T03:04:06Z",
                    },
                    {"type": CONDITION_MACHINE_ABSENT, "status": "True"},
                ],
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "nodeInfo": {"machineID": "m", "systemUUID": "4c4c4544-0042", "bootID": "b"},
            },
        }))
        .unwrap();
        assert_eq!(facts.owned_labels, ["a.example/x", "b.example/y"].map(str::to_owned).into());
        assert_eq!(facts.readiness, Readiness::False);
        assert_eq!(facts.readiness_since.unwrap().to_string(), "2026-01-02T03:04:06Z");
        assert_eq!(
            facts.pod_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.1.0.0/24", "2001:db8::/64"]
        );
        assert!(facts.is_held && facts.network_unavailable.is_none());
        assert_eq!(facts.release_deletion.as_deref(), Some("u"));
        assert_eq!(facts.provider_id.as_ref().unwrap().as_str(), "simulated://m-1");
        assert_eq!(facts.addresses, [Address::new(AddressKind::Hostname, "a")]);
        assert!(facts.is_uninitialized() && !facts.is_deleting);
        let reference = facts.reference(&["pool".to_owned(), "missing".to_owned()]);
        assert_eq!(reference.labels, [("pool".to_owned(), "blue".to_owned())]);
        assert_eq!(reference.system_uuid.as_deref(), Some("4c4c4544-0042"));
        assert_eq!(reference.node_ips.len(), 2);
        assert_eq!(reference.created_at.to_string(), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn a_label_is_named_by_its_key_or_by_the_beginning_of_it() {
        let keys = ["a", "b", "example.com/pool", "example.com/zone", "example.community/x"];
        let node = NodeFacts { labels: keys.map(|key| (key, "1")).into(), ..NodeFacts::registered("a") };
        for (named, expected) in [
            (&["b", "a", "b"][..], &["a", "b"][..]),
            (&["missing", "exampl"], &[]),
            (&["example.com/*"], &["example.com/pool", "example.com/zone"]),
            (&["example.com/pool*", "example.com/*", "a"], &["a", "example.com/pool", "example.com/zone"]),
            (&["*"], &keys),
            (&["*/pool"], &[]),
            (&[], &[]),
        ] {
            let named: Vec<_> = named.iter().map(|key| (*key).to_owned()).collect();
            let labels = node.labels_of(&named);
            assert_eq!(labels.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), expected, "{named:?}");
            for key in keys {
                let mut changed = node.clone();
                changed.labels.insert(key, "2");
                assert_eq!(node.has_labels_of(&changed, &named), !expected.contains(&key), "{named:?} {key}");
                changed.labels.remove(key);
                assert_eq!(node.has_labels_of(&changed, &named), !expected.contains(&key), "{named:?} {key}");
            }
        }
    }

    #[test]
    fn a_node_with_only_a_name_is_read() {
        let facts = read(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        assert!(!facts.is_uninitialized() && !facts.is_deleting);
        assert_eq!(facts.provider_id, None);
        assert_eq!((facts.readiness, facts.readiness_since), (Readiness::Unknown, None));
        assert!(!facts.is_held && facts.owned_labels.is_empty() && facts.release_deletion.is_none());
        assert_eq!(facts.system_uuid, None);
    }

    #[test]
    fn readiness_is_the_status_of_the_condition_ready() {
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
    fn a_deletion_timestamp_means_that_the_node_is_being_deleted() {
        let metadata = serde_json::json!({"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"});
        assert!(read(serde_json::json!({"metadata": metadata})).unwrap().is_deleting);
    }

    #[test]
    fn an_invalid_provider_id_makes_the_node_unreadable() {
        let json = serde_json::json!({"metadata": {"name": "a"}, "spec": {"providerID": "m-1"}});
        assert!(read(json).unwrap_err().to_string().starts_with("node a: \"m-1\" is not a provider ID"));
    }
}
