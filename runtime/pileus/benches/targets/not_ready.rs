//! 1,000 Nodes that are not ready although their instances run, as before a network plugin is installed: the cost of
//! looking them up, and the time until a deleted instance is noticed.

use std::time::Duration;

use pileus_dev::kubernetes::Options;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::{Cluster, IMAGES};
use crate::report::{figure, figures, note, time};
use crate::vanishing::{Departures, GRACE};

/// How many Nodes.
const NODES: usize = 1_000;
/// How long their machines are watched.
const WINDOW: Duration = Duration::from_mins(1);

/// Measures it.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let cloud = Cloud::start(NODES).await?;
    cluster.settle(&cloud, |kubelet| kubelet.images(IMAGES).not_ready()).await?;
    let pileus = cluster.pileus(&cloud)?;
    sleep(GRACE).await;

    cloud.forget_calls().await?;
    let cpu = pileus.cpu()?;
    sleep(WINDOW).await;
    let calls = cloud.calls().await?;
    let cpu = pileus.cpu()?.saturating_sub(cpu);

    let departures = Departures::watch(&cluster).await?;
    let from = Instant::now();
    cloud.vanish(1).await?;
    let gone = departures.wait_for(1).await?;
    let confirming = cloud.calls().await?;
    pileus.stop().await?;

    let hours = WINDOW.as_secs_f64() / 3_600.0;
    #[expect(clippy::cast_precision_loss, reason = "calls are below 2^52")]
    let hourly = calls.all as f64 / hours;
    figures(&format!("{NODES} nodes not ready, their machines run"));
    figure("reads of the cloud an hour", &format!("{hourly:.0}"), "500", "155900");
    figure(&format!("processor time in {WINDOW:?}"), &time(cpu), "", "");
    let noticed = gone.last().map(|at| at.saturating_duration_since(from)).unwrap_or_default();
    figure("from a machine's end to its node's", &time(noticed), "15 s", "");
    note(&format!(
        "until then {} pages of lists and {} reads of one machine",
        confirming.lists, confirming.gets
    ));
    Ok(())
}
