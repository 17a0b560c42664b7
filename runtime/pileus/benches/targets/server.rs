//! The API server's own time for the writes of a Node that becomes initialized, with a client that does nothing else:
//! the lower bound for all measurements here.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use pileus_dev::kubernetes::User;
use pileus_dev::nodes::UNINITIALIZED;
use serde_json::json;

use crate::Failure;
use crate::cluster::Cluster;

/// As many as Pileus has.
pub(crate) const WRITERS: usize = 16;

/// What the writes of so many Nodes took.
#[derive(Clone, Copy)]
pub(crate) struct Floor {
    /// To create them.
    pub(crate) creating: Duration,
    /// To make the patches of an initialisation.
    pub(crate) patching: Duration,
    /// The processor time of API server and etcd for the patches.
    pub(crate) cpu: Duration,
}

/// Measures that, and leaves no Nodes behind.
pub(crate) async fn measure(cluster: &Cluster, count: usize) -> Result<Floor, Failure> {
    let started = Instant::now();
    let nodes = cluster.register(count).await?;
    let creating = started.elapsed();
    let (before, started) = (cluster.cpu()?, Instant::now());
    // Of the answers only what the next patch needs is read.
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.kubernetes.client(User::Pileus).await?);
    stream::iter(nodes)
        .map(|node| initialise(&api, node))
        .buffer_unordered(WRITERS)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    let floor = Floor { creating, patching: started.elapsed(), cpu: cluster.cpu()?.saturating_sub(before) };
    cluster.are_initialised(count).await?;
    cluster.delete(count).await?;
    Ok(floor)
}

/// The two patches that Pileus makes.
async fn initialise(api: &Api<PartialObjectMeta<Node>>, node: Node) -> Result<(), kube::Error> {
    let (name, uid, params) = (node.name_any(), node.uid(), PatchParams::default());
    let addresses = json!([
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "192.0.2.1"},
        {"type": "Hostname", "address": name},
    ]);
    let patch = json!({"metadata": {"uid": uid}, "status": {"addresses": addresses}});
    let patched = api.patch_status(&name, &params, &Patch::Merge(patch)).await?;
    let mut taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    taints.retain(|taint| taint.key != UNINITIALIZED);
    let labels = json!({
        "node.kubernetes.io/instance-type": "small-2",
        "beta.kubernetes.io/instance-type": "small-2",
        "topology.kubernetes.io/zone": "sim-1a",
        "failure-domain.beta.kubernetes.io/zone": "sim-1a",
        "topology.kubernetes.io/region": "sim-1",
        "failure-domain.beta.kubernetes.io/region": "sim-1",
    });
    let metadata = json!({"uid": uid, "resourceVersion": patched.resource_version(), "labels": labels});
    let spec = json!({"providerID": format!("simulated://{name}"), "taints": taints});
    api.patch(&name, &params, &Patch::Merge(json!({"metadata": metadata, "spec": spec}))).await?;
    Ok(())
}
