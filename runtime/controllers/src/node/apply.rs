//! An action as the request that carries it out.
//!
//! Each write names the Node's UID, so that it can't hit another Node that has taken the name meanwhile.

use pileus_cloud::Address;
use serde_json::{Map, Value, json};

use super::plan::{Action, Completion};
use crate::facts::node::NodeFacts;
use crate::nodes::Part;
use crate::well_known::ANNOTATION_OWNED_LABELS;

/// A merge patch of a Node.
#[derive(Debug)]
pub(super) struct Write {
    /// What the metric calls it.
    pub(super) name: &'static str,
    /// Where it goes.
    pub(super) part: Part,
    /// Its body.
    pub(super) body: Value,
}

/// The request for an action on the Node that these facts are of.
pub(super) fn write(node: &NodeFacts, action: &Action) -> Write {
    match action {
        Action::SetAddresses(addresses) => {
            Write { name: "set_addresses", part: Part::Status, body: addresses_patch(node, addresses) }
        }
        Action::Complete(completion) => {
            Write { name: "complete", part: Part::Whole, body: complete_patch(node, completion) }
        }
    }
}

/// A merge patch, which replaces the list: a strategic one would merge it by type, which is wrong for a Node with two
/// addresses of one type. It needs no resourceVersion, as nobody else's addresses are kept in it.
fn addresses_patch(node: &NodeFacts, addresses: &[Address]) -> Value {
    let list: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": address.kind.as_str(), "address": address.value}))
        .collect();
    json!({"metadata": {"uid": node.uid}, "status": {"addresses": list}})
}

/// With the resourceVersion: the list of taints holds those of others, of which none that is added meanwhile must get
/// lost, and a label that somebody sets meanwhile is not ours. Null removes a label or an annotation.
fn complete_patch(node: &NodeFacts, completion: &Completion) -> Value {
    let Completion { provider_id, labels, owned_labels, taints } = completion;
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), json!(node.uid));
    metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
    metadata.insert("labels".to_owned(), json!(labels));
    if let Some(owned) = owned_labels {
        let keys: Vec<_> = owned.iter().map(String::as_str).collect();
        let keys = (!keys.is_empty()).then(|| keys.join(","));
        metadata.insert("annotations".to_owned(), json!({ANNOTATION_OWNED_LABELS: keys}));
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
