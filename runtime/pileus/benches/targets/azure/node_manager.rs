//! The node manager of one machine: what it needs while nothing happens, since each machine of a cluster runs one.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use pileus_dev::nodes;
use tokio::time::sleep;

use super::Bench;
use crate::Failure;
use crate::cluster::IMAGES;
use crate::pileus::Pileus;
use crate::report::{figure, figures, seconds, size, time};

/// What the design allows a node manager in memory.
const MEMORY: u64 = 15 << 20;
/// How long it is watched: it asks the metadata service this often by default.
const WINDOW: Duration = Duration::from_mins(5);
/// How long it runs before: by then it has given back the code of its start.
const SETTLING: Duration = Duration::from_secs(70);
/// How often its memory is read.
const SAMPLES: Duration = Duration::from_secs(1);
/// A kubelet probes it every so many samples.
const PROBES: u32 = 10;

/// Measures the node manager of a machine whose Node joins.
pub(super) async fn measure(bench: &Bench) -> Result<(), Failure> {
    let name = bench.cloud.names.first().ok_or("no machine")?;
    bench.cloud.describe(name).await?;
    let client = bench.cluster.kubernetes.admin();
    Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    nodes::register(&client, [nodes::node(name).images(IMAGES)]).await?;
    let command = bench.cluster.command_of_node_manager(name, &bench.cloud.document_of_node_managers()?)?;
    let mut pileus = Pileus::start(&command)?;
    let started = pileus.started();
    let joined = pileus.initialised(1).await?.into_iter().max().unwrap_or(started);
    sleep(SETTLING).await;
    bench.cloud.forget_requests().await?;
    let before = pileus.cpu()?;
    let mut resident = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < WINDOW {
        if resident.len() % PROBES as usize == 0 {
            pileus.probe().await?;
        }
        sleep(SAMPLES).await;
        resident.push(pileus.memory("VmRSS")?);
    }
    let (cpu, requests) = (pileus.cpu()?.saturating_sub(before), bench.cloud.requests().await?);
    let (own, peak) = (pileus.memory("RssAnon")?, pileus.memory("VmHWM")?);
    pileus.stop().await?;
    resident.sort_unstable();
    let median = resident.get(resident.len() / 2).copied().unwrap_or_default();
    let most = resident.last().copied().unwrap_or_default();
    let described = requests.of_metadata_service();
    figures(&format!("Azure: a node manager for {WINDOW:?}, probed each {:?}", SAMPLES * PROBES));
    figure("its node initialised, from the start", &seconds(crate::pileus::between(started, joined)), "", "");
    figure("requests to the metadata service", &described.to_string(), "", "");
    figure("requests to the cloud", &(requests.all() - described).to_string(), "0", "");
    figure("processor time", &time(cpu), "", "");
    figure("memory, resident, median of each second", &size(median), &size(MEMORY), "");
    figure("of it not in files", &size(own), "", "");
    figure("memory, most of these minutes", &size(most), "", "");
    figure("memory, at most since its start", &size(peak), "", "");
    Ok(())
}
