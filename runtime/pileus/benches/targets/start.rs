//! The time from the start of the process to the first initialized Node, with a component in a file and from the store,
//! while its registry is away or never answers; and the size of the program.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use pileus_dev::kubernetes::Options;

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::image::{self, Image};
use crate::pileus::{Pileus, between, program};
use crate::report::{Samples, figure, figures, heading, note, row, size, time};

/// Without leader election.
const ALONE: &str = "--leader-elect=false";
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
    let sorts = [("without leader election", vec![ALONE]), ("a lease that is free", vec![])];
    for (sort, flags) in sorts {
        let mut command = cluster.command(&cloud)?;
        starts(&cluster, sort, command.args(flags)).await?;
    }
    note(&format!(
        "{STARTS} starts each; the cloud's own 20 ms are in it; upstream took 450 ms, of either sort"
    ));
    from_store(&cluster, &cloud).await?;
    idle(&cluster, &cloud).await
}

/// Starts with a component of the store.
async fn from_store(cluster: &Cluster, cloud: &Cloud) -> Result<(), Failure> {
    let mut image = Image::start()?;
    image.push(0).await?;
    let document = image.document(cloud, 0)?;
    image::define(cluster).await?;
    image::apply(cluster, &document).await?;
    let [mut of_file, mut of_resource] = [cluster.command_with(&document)?, cluster.command_of_resources()];
    for command in [&mut of_file, &mut of_resource] {
        let pileus = Pileus::start(command.arg(ALONE))?;
        pileus.says("\"starting controllers\"").await?;
        pileus.stop().await?;
    }
    heading("A start from the store", &["min", "median", "max", "target"]);
    image.stop();
    starts(cluster, "a file, registry refuses", &of_file).await?;
    starts(cluster, "a resource, registry refuses", &of_resource).await?;
    // It accepts connections, and never answers.
    let _silent = TcpListener::bind(image.host())?;
    starts(cluster, "a file, registry is silent", &of_file).await?;
    starts(cluster, "a resource, registry is silent", &of_resource).await?;
    note("without leader election");
    Ok(())
}

/// Prints first and last Node of some starts.
async fn starts(cluster: &Cluster, sort: &str, command: &Command) -> Result<(), Failure> {
    let [mut first, mut all] = [(); 2].map(|()| Samples::default());
    for _ in 0..STARTS {
        cluster.register(NODES).await?;
        let mut pileus = Pileus::start(command)?;
        let times = pileus.initialised(NODES).await?;
        let took = times.iter().map(|at| between(pileus.started(), *at));
        first.push(took.clone().min().unwrap_or_default());
        all.push(took.max().unwrap_or_default());
        pileus.stop().await?;
        cluster.delete(NODES).await?;
    }
    row(&format!("first node, {sort}"), &[&first.spread()[..], &[time(TARGET)]].concat());
    row(&format!("all {NODES} nodes, {sort}"), &all.spread());
    Ok(())
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
