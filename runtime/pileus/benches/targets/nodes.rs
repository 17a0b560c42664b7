//! Many Nodes that wait when Pileus starts, against what the API server itself takes for the same writes.

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
use crate::cloud::Cloud;
use crate::cluster::{Cluster, cpu};
use crate::report::{Samples, heading, note, row, seconds, size};

/// As many as Pileus has.
const WRITERS: usize = 16;

/// What one run used and took.
struct Run {
    /// When each Node was initialised.
    times: Samples,
    /// Processor time of API server and etcd meanwhile.
    server_cpu: Duration,
}

/// Measures that many Nodes.
pub(crate) async fn measure(cluster: &Cluster, count: usize) -> Result<(), Failure> {
    let nodes = cluster.register(count).await?;
    let before = server_cpu(cluster)?;
    let times = write(cluster, nodes).await?;
    let plain = Run { times, server_cpu: server_cpu(cluster)?.saturating_sub(before) };
    all(cluster, count).await?;
    cluster.delete(count).await?;

    cluster.register(count).await?;
    let cloud = Cloud::start(count).await?;
    let before = server_cpu(cluster)?;
    let mut pileus = cluster.pileus(&cloud)?;
    let mut times = Samples::default();
    times.extend(pileus.initialised(count).await?);
    let ours = Run { times, server_cpu: server_cpu(cluster)?.saturating_sub(before) };
    let (processor, memory) = (pileus.cpu()?, pileus.memory("VmHWM")?);
    let calls = cloud.calls().await?;
    all(cluster, count).await?;
    pileus.stop().await?;
    cluster.delete(count).await?;

    heading(&format!("{count} nodes wait when Pileus starts"), &["first", "half", "all", "server CPU"]);
    line(&format!("the same patches by a plain client ({WRITERS})"), &plain);
    line("Pileus, from the start of the process", &ours);
    let [took, floor] = [&ours, &plain].map(|run| run.times.percentile(100).as_secs_f64());
    note(&format!("{:.2} times the API server's own time; target 1.5", took / floor));
    note(&format!("{calls} calls to the cloud; target {} (two sweeps)", 2 * cloud.sweep()));
    note(&format!("Pileus: {} of processor time, at most {} resident", seconds(processor), size(memory)));
    Ok(())
}

fn line(label: &str, run: &Run) {
    let [first, half, all] = [0, 50, 100].map(|percent| seconds(run.times.percentile(percent)));
    row(label, &[first, half, all, seconds(run.server_cpu)]);
}

/// Makes the two patches of a Node that Pileus makes, for all of them, with a client that does nothing else.
async fn write(cluster: &Cluster, nodes: Vec<Node>) -> Result<Samples, Failure> {
    // Of the answers only what the next patch needs is read.
    let api: Api<PartialObjectMeta<Node>> = Api::all(cluster.kubernetes.client(User::Pileus).await?);
    let started = Instant::now();
    let mut written = stream::iter(nodes)
        .map(|node| {
            let api = api.clone();
            async move { initialise(&api, node).await.map(|()| started.elapsed()) }
        })
        .buffer_unordered(WRITERS);
    let mut times = Samples::default();
    while let Some(time) = written.try_next().await? {
        times.push(time);
    }
    Ok(times)
}

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

/// By the API server's word, whatever a log says.
async fn all(cluster: &Cluster, count: usize) -> Result<(), Failure> {
    match cluster.initialised().await? {
        found if found == count => Ok(()),
        found => Err(format!("{found} of {count} nodes are initialised").into()),
    }
}

/// The processor time of etcd and the API server so far.
fn server_cpu(cluster: &Cluster) -> Result<Duration, Failure> {
    let (etcd, api_server) = cluster.kubernetes.process_ids();
    [Some(etcd), api_server].into_iter().flatten().map(cpu).sum()
}
