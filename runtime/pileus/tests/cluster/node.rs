//! Questions of the tests about a Node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use pileus_dev::nodes::{UNINITIALIZED, await_node};
use serde_json::json;

use crate::SOON;
use crate::world::World;

/// Waits until a Node is initialized, and returns it.
pub(crate) async fn initialised(world: &World, name: &str) -> Node {
    await_node(&world.client, name, |node| !is_uninitialised(node), SOON).await.unwrap()
}

/// What a cloud-controller-manager makes of a Node, without what is different in each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) provider_id: Option<String>,
    pub(crate) addresses: Vec<(String, String)>,
    pub(crate) taints: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

pub(crate) fn outcome(node: &Node) -> Outcome {
    Outcome {
        provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
        addresses: addresses(node),
        taints: taints(node),
        labels: node.labels().clone(),
        annotations: node.annotations().clone(),
    }
}

/// The outcomes of Nodes, by name.
pub(crate) fn outcomes(nodes: &[Node]) -> BTreeMap<String, Outcome> {
    nodes.iter().map(|node| (node.name_any(), outcome(node))).collect()
}

/// Whether it waits to be initialised.
pub(crate) fn is_uninitialised(node: &Node) -> bool {
    taints(node).iter().any(|key| key == UNINITIALIZED)
}

/// Whether it has the cloud's addresses, of which an external one is always among, and still waits.
pub(crate) fn is_half_written(node: &Node) -> bool {
    is_uninitialised(node) && addresses(node).iter().any(|(kind, _)| kind == "ExternalIP")
}

/// Sets the status of a Node's condition `Ready`, as its kubelet does, or the controller that misses the kubelet.
pub(crate) async fn set_ready(client: &Client, name: &str, status: &str) {
    let condition = json!({"type": "Ready", "status": status, "reason": "ByTheTest"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let nodes = Api::<Node>::all(client.clone());
    nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The keys of its taints.
pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(|taint| taint.key.clone()).collect()
}

/// Its addresses, as type and address.
pub(crate) fn addresses(node: &Node) -> Vec<(String, String)> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.map(|address| (address.type_.clone(), address.address.clone())).collect()
}
