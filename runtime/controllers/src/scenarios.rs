//! Shared parts of the tests that repeat upstream's test scenarios. A test goes the whole way that needs no API server: a Node
//! as JSON, its facts, the plan, the patches, and the Node as JSON again.
//!
//! The scenarios are listed in UPSTREAM.md. A test begins its name with the ids of its scenarios, as in
//! `n07_null_metadata_leaves_the_node_alone`: N01 to N42 and H01 to H18 are about Nodes, L01 to L28 about their lifecycle, R01 to
//! R42 about routes, S01 to S139 and H19 to H26 about Services. Where Pileus differs from upstream, the test says how.
//! `deploy/dev/check scenarios` reads the names from the built tests: each id must be there once.

use serde_json::{Value, json};

use crate::facts::node::NodeFacts;
use crate::model::claims;
use crate::nodes::PatchTarget;

/// A Node as the API server stores it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredNode(pub(crate) Value);

impl StoredNode {
    /// A Node that a kubelet has just registered with `--cloud-provider=external`, changed by a merge patch.
    pub(crate) fn registered(change: &Value) -> Self {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "node0",
                "uid": "uid-node0",
                "resourceVersion": "1",
                "creationTimestamp": "2012-01-01T00:00:00Z",
            },
            "spec": {
                "taints": [{
                    "key": "node.cloudprovider.kubernetes.io/uninitialized",
                    "value": "true",
                    "effect": "NoSchedule",
                }],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated"}],
            },
        });
        Self(node).with(change)
    }

    /// This Node changed by a merge patch. Empty lists and maps are left out, as the API server does.
    pub(crate) fn with(&self, change: &Value) -> Self {
        let mut node = self.0.clone();
        merge(&mut node, change);
        for (part, list) in [("metadata", "labels"), ("metadata", "annotations"), ("spec", "taints")] {
            let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
            if node[part].get(list).is_some_and(is_empty) {
                node[part].as_object_mut().unwrap().remove(list);
            }
        }
        Self(node)
    }

    /// The facts of this Node.
    pub(crate) fn facts(&self) -> NodeFacts {
        NodeFacts::read(serde_json::from_value(self.0.clone()).unwrap(), &claims()).unwrap()
    }

    /// Applies a merge patch like the API server. The UID and, if given, the resourceVersion must be the Node's. Only the
    /// subresource `status` changes the status, and it changes nothing else.
    pub(crate) fn patch(&mut self, target: PatchTarget, patch: &Value) {
        let metadata = &self.0["metadata"];
        assert_eq!(patch["metadata"]["uid"], metadata["uid"], "a patch without the Node's UID");
        let version = &patch["metadata"]["resourceVersion"];
        assert!(version.is_null() || *version == metadata["resourceVersion"], "a conflict");
        let Self(mut patched) = self.with(patch);
        let (kept, other) = match target {
            PatchTarget::Object => (["metadata", "spec"].as_slice(), ["status"].as_slice()),
            PatchTarget::Status => (["status"].as_slice(), ["metadata", "spec"].as_slice()),
        };
        for other in other {
            assert!(
                patch[other].as_object().is_none_or(|part| part.keys().all(|key| key == "uid")),
                "{other}"
            );
        }
        let id = &self.0["spec"]["providerID"];
        assert!(id.is_null() || *id == patched["spec"]["providerID"], "a provider ID is set once");
        for kept in kept {
            self.0[kept] = patched[kept].take();
        }
        let version: u64 = self.0["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        self.0["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    /// Asserts that this Node equals another one, apart from the resourceVersion.
    #[track_caller]
    pub(crate) fn assert_is(&self, expected: &Self) {
        let bare = |node: &Self| node.with(&json!({"metadata": {"resourceVersion": null}})).0;
        assert_eq!(bare(self), bare(expected));
    }
}

/// Applies a JSON merge patch (RFC 7386).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_sets_replaces_and_removes() {
        for (target, patch, merged) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": ["c"]}), json!({"a": ["c"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": "foo"}), json!({"a": {"b": "c"}}), json!({"a": {"b": "c"}})),
        ] {
            let mut result = target;
            merge(&mut result, &patch);
            assert_eq!(result, merged);
        }
    }
}
