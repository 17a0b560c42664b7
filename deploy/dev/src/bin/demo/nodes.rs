//! The Nodes of the demo. There are no kubelets and there is no kube-controller-manager: the demo registers Nodes,
//! removes their taint `not-ready`, assigns Pod CIDRs, and watches what Pileus makes of them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use pileus_dev::Error;
use pileus_dev::nodes::{Kubelet, UNINITIALIZED, await_node, node, register};
use serde_json::json;
use tokio::time::{Instant, timeout};

/// How long a change to Nodes may take: milliseconds for one, seconds for a hundred, and longer on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// How many Nodes are written concurrently.
const WRITERS: usize = 16;

/// The taint that the API server gives to each new Node, and that kube-controller-manager removes.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A Node that has joined.
pub(crate) struct Joined {
    /// As it registered.
    pub(crate) before: Node,
    /// As it was once it had no taint that keeps Pods away.
    pub(crate) after: Node,
    /// The time from its registration until it was seen without the taint `uninitialized`.
    pub(crate) took: Duration,
}

/// A Node as a kubelet registers it, but without images. A debug build takes long to parse the images of a hundred Nodes,
/// which would distort the times that the demo shows.
pub(crate) fn kubelet(name: &str) -> Kubelet {
    node(name).images(0)
}

/// Registers Nodes at the same time, waits until Pods can be scheduled on them, and returns them in the order of `names`.
pub(crate) async fn join(client: &Client, names: &[String]) -> Result<Vec<Joined>, Error> {
    let begun = Instant::now();
    let watching = await_initialized(client, names, begun);
    let registering = register(client, names.iter().map(|name| kubelet(name)));
    let (took, registered) = tokio::try_join!(watching, registering)?;
    let mut before = by_name(registered);
    let mut after = by_name(remove_not_ready_taint(client, names).await?);
    let joined = names.iter().filter_map(|name| {
        Some(Joined {
            before: before.remove(name)?,
            after: after.remove(name)?,
            took: took.get(name).copied()?,
        })
    });
    Ok(joined.collect())
}

/// Waits until all Nodes of these names are initialized. Returns for each the time since `begun`.
pub(crate) async fn await_initialized(
    client: &Client,
    names: &[String],
    begun: Instant,
) -> Result<BTreeMap<String, Duration>, Error> {
    await_nodes(client, names, begun, "initialized", is_initialized).await
}

/// Waits until all Nodes of these names fulfill a condition. Returns for each the time since `begun`.
pub(crate) async fn await_nodes(
    client: &Client,
    names: &[String],
    begun: Instant,
    wanted: &str,
    condition: impl Fn(&Node) -> bool,
) -> Result<BTreeMap<String, Duration>, Error> {
    let mut done = BTreeMap::new();
    let watching = async {
        let nodes: Api<Node> = Api::all(client.clone());
        let watch = watcher(nodes, watcher::Config::default()).default_backoff().applied_objects();
        let mut watch = pin!(watch);
        while done.len() < names.len() {
            // The watch never ends: it reconnects by itself.
            let Some(Ok(node)) = watch.next().await else { continue };
            if names.contains(&node.name_any()) && condition(&node) {
                done.entry(node.name_any()).or_insert_with(|| begun.elapsed());
            }
        }
    };
    if timeout(SOON, watching).await.is_ok() {
        return Ok(done);
    }
    let waiting: Vec<_> = names.iter().filter(|name| !done.contains_key(*name)).cloned().collect();
    Err(Error::Deadline {
        object: format!("nodes {}", waiting.join(", ")),
        deadline: SOON,
        seen: format!("not {wanted}"),
    })
}

/// The longest of these times.
pub(crate) fn latest(seen: &BTreeMap<String, Duration>) -> Duration {
    seen.values().max().copied().unwrap_or_default()
}

/// Removes the taint `not-ready` that the API server gives to each new Node, and returns the Nodes.
pub(crate) async fn remove_not_ready_taint(client: &Client, names: &[String]) -> Result<Vec<Node>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let remove = |name: &String| {
        let (nodes, name) = (nodes.clone(), name.clone());
        async move {
            let failed = |source| Error::Api {
                action: format!("remove the taint not-ready from node {name}"),
                source: Box::new(source),
            };
            let node = nodes.get(&name).await.map_err(failed)?;
            let spec = node.spec.unwrap_or_default();
            let others = spec.taints.into_iter().flatten().filter(|taint| taint.key != NOT_READY);
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": others.collect::<Vec<_>>()},
            });
            nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)
        }
    };
    stream::iter(names).map(remove).buffer_unordered(WRITERS).try_collect().await
}

/// The resource versions of Nodes by name, which change with every write.
pub(crate) async fn resource_versions(
    client: &Client,
    names: &[String],
) -> Result<BTreeMap<String, String>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut versions = BTreeMap::new();
    for name in names {
        let failed = |source| Error::Api { action: format!("get node {name}"), source: Box::new(source) };
        let node = nodes.get(name).await.map_err(failed)?;
        versions.insert(name.clone(), node.resource_version().unwrap_or_default());
    }
    Ok(versions)
}

/// Lists all Nodes, sorted by name.
pub(crate) async fn list(client: &Client) -> Result<Vec<Node>, Error> {
    let failed = |source| Error::Api { action: "list nodes".to_owned(), source: Box::new(source) };
    let listed = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.map_err(failed)?;
    Ok(listed.items)
}

/// The cloud's ID of a Node's instance: the part of its provider ID after the scheme.
pub(crate) async fn instance_id(client: &Client, name: &str) -> Result<String, Error> {
    let has_id = |node: &Node| provider_id(node).is_some();
    let node = await_node(client, name, has_id, SOON).await?;
    let id = provider_id(&node).unwrap_or_default();
    Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Sets a label of a Node.
pub(crate) async fn set_label(client: &Client, name: &str, key: &str, value: &str) -> Result<(), Error> {
    let failed = |source| Error::Api { action: format!("label node {name}"), source: Box::new(source) };
    let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(failed)
}

/// Assigns a Pod CIDR to a Node, as kube-controller-manager does.
pub(crate) async fn set_pod_cidr(client: &Client, name: &str, range: &str) -> Result<(), Error> {
    let failed =
        |source| Error::Api { action: format!("assign {range} to node {name}"), source: Box::new(source) };
    let patch = Patch::Merge(json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(failed)
}

/// A Node's provider ID.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// A Node's condition of this type.
pub(crate) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a Node no longer waits for its cloud-controller-manager.
pub(crate) fn is_initialized(node: &Node) -> bool {
    !taint_keys(node).any(|key| key == UNINITIALIZED)
}

/// The keys of a Node's taints.
pub(crate) fn taint_keys(node: &Node) -> impl Iterator<Item = &str> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().map(|taint| taint.key.as_str())
}

fn by_name(nodes: Vec<Node>) -> BTreeMap<String, Node> {
    nodes.into_iter().map(|node| (node.name_any(), node)).collect()
}
