//! The node manager of one machine: what it needs while nothing happens, since each machine of a cluster runs one.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use pileus_dev::nodes;
use tokio::time::sleep;

use super::{Bench, WINDOW};
use crate::Failure;
use crate::cluster::IMAGES;
use crate::pileus::Pileus;
use crate::quiet::SETTLING;
use crate::report::{figure, figures, seconds, size, time};

/// What the design allows a node manager in memory.
const MEMORY: u64 = 15 << 20;
/// How often it asks the metadata service.
const PERIOD: Duration = Duration::from_secs(10);

/// Measures the node manager of a machine whose Node joins.
pub(super) async fn measure(bench: &Bench) -> Result<(), Failure> {
    let name = bench.cloud.names.first().ok_or("no machine")?;
    bench.cloud.describe(name).await?;
    let client = bench.cluster.kubernetes.admin();
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    nodes::register(&client, [nodes::node(name).images(IMAGES)]).await?;
    let mut command =
        bench.cluster.command_of_node_manager(name, &bench.cloud.document_of_node_managers()?)?;
    command.args(["--node-status-update-frequency", &format!("{}s", PERIOD.as_secs())]);
    let mut pileus = Pileus::start(&command)?;
    let started = pileus.started();
    let joined = pileus.initialised(1).await?.into_iter().max().unwrap_or(started);
    sleep(SETTLING).await;
    bench.cloud.forget_requests().await?;
    let before = pileus.cpu()?;
    sleep(WINDOW).await;
    let (cpu, requests) = (pileus.cpu()?.saturating_sub(before), bench.cloud.requests().await?);
    let memory = ["VmRSS", "RssAnon", "VmHWM"].map(|field| pileus.memory(field));
    pileus.stop().await?;
    let [resident, own, peak] = memory;
    let described = requests.of_metadata_service();
    figures(&format!("Azure: a node manager for {WINDOW:?}, a refresh each {PERIOD:?}"));
    figure("its node initialised, from the start", &seconds(crate::pileus::between(started, joined)), "", "");
    figure("requests to the metadata service", &described.to_string(), "", "");
    figure("requests to the cloud", &(requests.all() - described).to_string(), "0", "");
    figure("processor time", &time(cpu), "", "");
    figure("memory, resident", &size(resident?), &size(MEMORY), "");
    figure("of it not in the program's file", &size(own?), "", "");
    figure("memory, at most", &size(peak?), "", "");
    Ok(())
}
