//! What upstream's tests say, as tests of ours, on as much of the real way as there is without an API server: a Node as
//! JSON, its facts, the plan, the patches, and the Node as JSON again.
//!
//! Each test of a scenario begins its name with the ids that it stands for, as in
//! `n07_null_metadata_leaves_the_node_alone`: N01 to N42 and H01 to H18 for nodes, L01 to L28 for their lifecycle,
//! R01 to R42 for routes, S01 to S139 and H19 to H26 for Services (ccm-behaviour 10). What a scenario has become here, where
//! it isn't what upstream does, is said beside it. `deploy/dev/check scenarios` reads the names from the built tests: each id must be there, once.

use serde_json::{Value, json};

use crate::facts::node::NodeFacts;
use crate::nodes::Part;

/// A Node in the API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stored(pub(crate) Value);

impl Stored {
    /// One that a kubelet has just registered with `--cloud-provider=external`, changed by a merge patch.
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

    /// It, changed by a merge patch. What is empty then is left out, as the API server does.
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

    /// Its facts.
    pub(crate) fn facts(&self) -> NodeFacts {
        NodeFacts::read(serde_json::from_value(self.0.clone()).unwrap()).unwrap()
    }

    /// Takes a merge patch as the API server does: if the UID and, where given, the resourceVersion are the Node's; the
    /// status only on its own way, and all else only on the other.
    pub(crate) fn patch(&mut self, part: Part, patch: &Value) {
        let metadata = &self.0["metadata"];
        assert_eq!(patch["metadata"]["uid"], metadata["uid"], "a patch without the Node's UID");
        let version = &patch["metadata"]["resourceVersion"];
        assert!(version.is_null() || *version == metadata["resourceVersion"], "a conflict");
        let Self(mut patched) = self.with(patch);
        let (kept, other) = match part {
            Part::Whole => (["metadata", "spec"].as_slice(), ["status"].as_slice()),
            Part::Status => (["status"].as_slice(), ["metadata", "spec"].as_slice()),
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

    /// Whether it is as another one, whatever their resourceVersions.
    #[track_caller]
    pub(crate) fn assert_is(&self, expected: &Self) {
        let bare = |node: &Self| node.with(&json!({"metadata": {"resourceVersion": null}})).0;
        assert_eq!(bare(self), bare(expected));
    }
}

/// RFC 7386.
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
