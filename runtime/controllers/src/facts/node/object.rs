//! The Node object of the API server, reduced to the fields that become facts.
//!
//! A Node has 12 kB and more, most of it the list of its images. To skip what no decision needs saves time and memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};

/// A Node with only the fields that become facts. All other fields are skipped while it is deserialized.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

/// The metadata that becomes facts or that a watch needs.
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

/// Skips `managedFields`, which would become a tree of some hundred values for each Node.
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
pub(super) struct Spec {
    #[serde(rename = "providerID", default)]
    pub(super) provider_id: String,
    #[serde(rename = "podCIDRs", default)]
    pub(super) pod_cidrs: Vec<String>,
    #[serde(default)]
    pub(super) taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) addresses: Vec<RawAddress>,
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
    #[serde(rename = "nodeInfo", default)]
    pub(super) node_info: NodeInfo,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct NodeInfo {
    #[serde(rename = "systemUUID", default)]
    pub(super) system_uuid: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(rename = "lastTransitionTime")]
    pub(super) last_transition_time: Option<Time>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RawAddress {
    pub(super) r#type: String,
    pub(super) address: String,
}

/// A taint in `spec.taints`. It has all fields, because the list is written back as a whole.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_path_and_reference_are_those_of_the_full_type() {
        use kube::Resource;
        assert_eq!(Node::url_path(&(), None), core::Node::url_path(&(), None));
        let json = serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let [ours, theirs] = [json.clone(), json];
        let ours: Node = serde_json::from_value(ours).unwrap();
        let theirs: core::Node = serde_json::from_value(theirs).unwrap();
        assert_eq!(ours.object_ref(&()), theirs.object_ref(&()));
    }
}
