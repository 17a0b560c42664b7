//! The time from the start of the process to the first initialized Node, and the size of the program.

use std::fs;
use std::time::Duration;

use pileus_dev::kubernetes::Options;

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::pileus::{Pileus, between, program};
use crate::report::{Samples, figure, figures, heading, note, row, size, time};

/// Nodes that wait when Pileus starts.
const NODES: usize = 10;
/// Starts that are measured, of each sort.
const STARTS: usize = 9;
/// What the design allows until the first.
const TARGET: Duration = Duration::from_millis(300);
/// After this long without work, memory is what it stays at.
const SETTLING: Duration = Duration::from_secs(5);
/// How long processor time is counted while there is nothing to do.
const IDLE: Duration = Duration::from_secs(10);

/// Measures starts.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let cloud = Cloud::start(NODES).await?;
    heading("A start, compiled code on disk", &["min", "median", "max", "target"]);
    let sorts = [("without leader election", vec!["--leader-elect=false"]), ("a lease that is free", vec![])];
    for (sort, flags) in sorts {
        let (first, all) = starts(&cluster, &cloud, &flags).await?;
        row(&format!("first node, {sort}"), &[&first.spread()[..], &[time(TARGET)]].concat());
        row(&format!("all {NODES} nodes, {sort}"), &all.spread());
    }
    note(&format!(
        "{STARTS} starts each; the cloud's own 20 ms are in it; upstream took 450 ms, of either sort"
    ));
    idle(&cluster, &cloud).await
}

/// First and last Node of each start.
async fn starts(cluster: &Cluster, cloud: &Cloud, flags: &[&str]) -> Result<(Samples, Samples), Failure> {
    let [mut first, mut all] = [(); 2].map(|()| Samples::default());
    for _ in 0..STARTS {
        cluster.register(NODES).await?;
        let mut pileus = Pileus::start(cluster.command(cloud)?.args(flags))?;
        let times = pileus.initialised(NODES).await?;
        let took = times.iter().map(|at| between(pileus.started(), *at));
        first.push(took.clone().min().unwrap_or_default());
        all.push(took.max().unwrap_or_default());
        pileus.stop().await?;
        cluster.delete(NODES).await?;
    }
    Ok((first, all))
}

/// What the program weighs, and takes without any work.
async fn idle(cluster: &Cluster, cloud: &Cloud) -> Result<(), Failure> {
    let pileus = cluster.pileus(cloud)?;
    tokio::time::sleep(SETTLING).await;
    let (memory, starting) = (pileus.memory("VmRSS")?, pileus.cpu()?);
    tokio::time::sleep(IDLE).await;
    let cpu = pileus.cpu()?.saturating_sub(starting);
    pileus.stop().await?;
    figures("The program, without nodes");
    figure("size of the file", &size(fs::metadata(program())?.len()), "40 MB", "74 MB");
    figure("memory", &size(memory), "40 MiB", "63 MiB");
    figure("processor time to start", &time(starting), "", "300 ms");
    figure(&format!("processor time in {IDLE:?} after"), &time(cpu), "", "");
    Ok(())
}
