//! Turns an action into the patch that performs it.
//!
//! Each patch has the Node's UID, so that it can't change another Node that has taken the name meanwhile.

use pileus_cloud::Address;
use serde_json::{Map, Value, json};

use super::plan::{Action, Completion};
use crate::facts::node::NodeFacts;
use crate::nodes::PatchTarget;
use crate::well_known::{ANNOTATION_NODE_MANAGER, ANNOTATION_OWNED_LABELS};

/// A merge patch of a Node.
#[derive(Debug)]
pub(super) struct PatchRequest {
    /// Its name in the metric.
    pub(super) name: &'static str,
    /// Where it goes.
    pub(super) target: PatchTarget,
    /// Its body.
    pub(super) body: Value,
}

/// The patch that performs an action on the Node with these facts.
pub(super) fn patch_request(node: &NodeFacts, action: &Action) -> PatchRequest {
    match action {
        Action::SetAddresses(addresses) => PatchRequest {
            name: "set_addresses",
            target: PatchTarget::Status,
            body: addresses_patch(node, addresses),
        },
        Action::Complete(completion) => PatchRequest {
            name: "complete",
            target: PatchTarget::Object,
            body: complete_patch(node, completion),
        },
    }
}

/// A merge patch, because it replaces the list. A strategic merge patch would merge by type, which is wrong for a Node with two
/// addresses of one type. It needs no resourceVersion, since it keeps no addresses of other writers.
fn addresses_patch(node: &NodeFacts, addresses: &[Address]) -> Value {
    let list: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": address.kind.as_str(), "address": address.value}))
        .collect();
    json!({"metadata": {"uid": node.uid}, "status": {"addresses": list}})
}

/// A merge patch with the resourceVersion. It replaces the list of taints, and no taint that another client adds meanwhile may
/// get lost. A label that another client sets meanwhile isn't ours either. Null removes a label or an annotation.
fn complete_patch(node: &NodeFacts, completion: &Completion) -> Value {
    let Completion { provider_id, labels, owned_labels, taints, marks_node_manager } = completion;
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(node.uid));
    metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
    metadata.insert("labels".to_owned(), json!(labels));
    let mut annotations = Map::new();
    if let Some(owned) = owned_labels {
        let keys: Vec<_> = owned.iter().map(String::as_str).collect();
        let keys = (!keys.is_empty()).then(|| keys.join(","));
        annotations.insert(ANNOTATION_OWNED_LABELS.to_owned(), json!(keys));
    }
    if *marks_node_manager {
        annotations.insert(ANNOTATION_NODE_MANAGER.to_owned(), json!("true"));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    let mut spec = Map::new();
    if let Some(id) = provider_id {
        spec.insert("providerID".to_owned(), json!(id.as_str()));
    }
    if let Some(taints) = taints {
        spec.insert("taints".to_owned(), json!(taints));
    }
    json!({"metadata": metadata, "spec": spec})
}
