//! From the start of the process to the first initialised Node, and what the program weighs.

use std::fs;
use std::time::Duration;

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::{Cluster, program};
use crate::report::{Samples, heading, note, row, size, time};

/// Nodes that wait when Pileus starts.
const NODES: usize = 10;
/// Starts that are measured.
const STARTS: usize = 9;
/// What the design allows until the first.
const TARGET: Duration = Duration::from_millis(300);
/// After this long without work, memory is what it stays at.
const IDLE: Duration = Duration::from_secs(5);

/// Measures starts.
pub(crate) async fn measure(cluster: &Cluster) -> Result<(), Failure> {
    let cloud = Cloud::start(NODES).await?;
    let [mut first, mut all] = [(); 2].map(|()| Samples::default());
    for _ in 0..STARTS {
        cluster.register(NODES).await?;
        let mut pileus = cluster.pileus(&cloud)?;
        let times = pileus.initialised(NODES).await?;
        first.push(times.iter().min().copied().unwrap_or_default());
        all.push(times.iter().max().copied().unwrap_or_default());
        pileus.stop().await?;
        cluster.delete(NODES).await?;
    }
    let idle = cluster.pileus(&cloud)?;
    tokio::time::sleep(IDLE).await;
    let (memory, cpu) = (idle.memory("VmRSS")?, idle.cpu()?);
    idle.stop().await?;

    heading("A start, compiled code on disk", &["min", "median", "max", "target"]);
    row("first node initialised", &[&first.spread()[..], &[time(TARGET)]].concat());
    row(&format!("all {NODES} nodes initialised"), &all.spread());
    note(&format!("{STARTS} starts; the cloud's own 20 ms are in it"));
    let binary = fs::metadata(program())?.len();
    note(&format!(
        "program {}; idle {} resident and {} of processor time after {IDLE:?}",
        size(binary),
        size(memory),
        time(cpu)
    ));
    Ok(())
}
