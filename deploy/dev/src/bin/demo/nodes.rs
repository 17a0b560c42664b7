//! The demo's part of a cluster: it registers Nodes as kubelets do, lifts the taint `not-ready` as
//! kube-controller-manager does for Nodes whose kubelet is ready, and sees what becomes of them.

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

/// A Node is initialised in some milliseconds, a hundred in some seconds; a busy machine may need longer.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// How many Nodes are written side by side.
const WRITERS: usize = 16;

/// What the API server gives to every new Node, and kube-controller-manager lifts.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A Node that has joined.
pub(crate) struct Joined {
    /// As it registered.
    pub(crate) before: Node,
    /// As it is once no taint keeps pods away.
    pub(crate) after: Node,
    /// From its registration until its taint `uninitialized` was seen to be gone.
    pub(crate) took: Duration,
}

/// A Node as it registers, but without its images: a debug build takes a while to read those of a hundred, and would see
/// late what it is to measure.
pub(crate) fn kubelet(name: &str) -> Kubelet {
    node(name).images(0)
}

/// Registers Nodes, all at once, and waits until they take pods. In the order of the names.
pub(crate) async fn join(client: &Client, names: &[String]) -> Result<Vec<Joined>, Error> {
    let begun = Instant::now();
    let watching = initialised(client, names, begun);
    let registering = register(client, names.iter().map(|name| kubelet(name)));
    let (took, registered) = tokio::try_join!(watching, registering)?;
    let mut before = by_name(registered);
    let mut after = by_name(lift_not_ready(client, names).await?);
    let joined = names.iter().filter_map(|name| {
        Some(Joined {
            before: before.remove(name)?,
            after: after.remove(name)?,
            took: took.get(name).copied()?,
        })
    });
    Ok(joined.collect())
}

/// Waits until all Nodes of these names are initialised: when that was seen of each, counted from `begun`.
pub(crate) async fn initialised(
    client: &Client,
    names: &[String],
    begun: Instant,
) -> Result<BTreeMap<String, Duration>, Error> {
    until(client, names, begun, "initialised", is_initialised).await
}

/// Waits until all Nodes of these names are as wanted: when that was seen of each, counted from `begun`.
pub(crate) async fn until(
    client: &Client,
    names: &[String],
    begun: Instant,
    wanted: &str,
    is_so: impl Fn(&Node) -> bool,
) -> Result<BTreeMap<String, Duration>, Error> {
    let mut done = BTreeMap::new();
    let watching = async {
        let nodes: Api<Node> = Api::all(client.clone());
        let watch = watcher(nodes, watcher::Config::default()).default_backoff().applied_objects();
        let mut watch = pin!(watch);
        while done.len() < names.len() {
            // An interrupted watch goes on by itself; none ends.
            let Some(Ok(node)) = watch.next().await else { continue };
            if names.contains(&node.name_any()) && is_so(&node) {
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

/// When the last of them was as wanted.
pub(crate) fn latest(seen: &BTreeMap<String, Duration>) -> Duration {
    seen.values().max().copied().unwrap_or_default()
}

/// Lifts the taint `not-ready`, which the API server gives to every new Node; the Nodes as they are then.
pub(crate) async fn lift_not_ready(client: &Client, names: &[String]) -> Result<Vec<Node>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let lift = |name: &String| {
        let (nodes, name) = (nodes.clone(), name.clone());
        async move {
            let failed = |source| Error::Api {
                action: format!("taint not-ready of node {name} not lifted"),
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
    stream::iter(names).map(lift).buffer_unordered(WRITERS).try_collect().await
}

/// What changes with every write to a Node, by name.
pub(crate) async fn versions(client: &Client, names: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut versions = BTreeMap::new();
    for name in names {
        let failed = |source| Error::Api { action: format!("node {name}"), source: Box::new(source) };
        let node = nodes.get(name).await.map_err(failed)?;
        versions.insert(name.clone(), node.resource_version().unwrap_or_default());
    }
    Ok(versions)
}

/// All Nodes, by name.
pub(crate) async fn all(client: &Client) -> Result<Vec<Node>, Error> {
    let failed = |source| Error::Api { action: "nodes not listed".to_owned(), source: Box::new(source) };
    let listed = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.map_err(failed)?;
    Ok(listed.items)
}

/// The cloud's ID of a Node's machine, which is what comes after the scheme in its provider ID.
pub(crate) async fn machine(client: &Client, name: &str) -> Result<String, Error> {
    let has_id = |node: &Node| provider_id(node).is_some();
    let node = await_node(client, name, has_id, SOON).await?;
    let id = provider_id(&node).unwrap_or_default();
    Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Gives a Node a label, or another value for one.
pub(crate) async fn label(client: &Client, name: &str, key: &str, value: &str) -> Result<(), Error> {
    let failed =
        |source| Error::Api { action: format!("node {name} not labelled"), source: Box::new(source) };
    let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(failed)
}

/// Gives a Node its range of Pod addresses, as kube-controller-manager does.
pub(crate) async fn give_range(client: &Client, name: &str, range: &str) -> Result<(), Error> {
    let failed =
        |source| Error::Api { action: format!("node {name} not given {range}"), source: Box::new(source) };
    let patch = Patch::Merge(json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(failed)
}

/// A Node's provider ID.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// A Node's condition of that type.
pub(crate) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a Node waits no more for its cloud-controller-manager.
pub(crate) fn is_initialised(node: &Node) -> bool {
    !taints(node).any(|key| key == UNINITIALIZED)
}

/// The keys of a Node's taints.
pub(crate) fn taints(node: &Node) -> impl Iterator<Item = &str> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().map(|taint| taint.key.as_str())
}

fn by_name(nodes: Vec<Node>) -> BTreeMap<String, Node> {
    nodes.into_iter().map(|node| (node.name_any(), node)).collect()
}
