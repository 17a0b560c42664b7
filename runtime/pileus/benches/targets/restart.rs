//! How long no Node is initialized while Pileus restarts, with the default leader election: with a successor that
//! starts after its predecessor has ended, and with one that stands by.

use std::time::Duration;

use pileus_dev::kubernetes::Options;
use pileus_dev::nodes;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::pileus::between;
use crate::report::{Samples, figures, note, row};

/// Restarts of each sort.
const RESTARTS: usize = 3;
/// A Node joins so often: the gap is measured no finer.
const PACE: Duration = Duration::from_millis(50);
/// Nodes that may join at most, far more than do in this time.
const NODES: usize = 5_000;
/// How long the predecessor works before it is ended.
const WORK: Duration = Duration::from_secs(2);
/// What a standby has to get itself ready.
const STANDBY: Duration = Duration::from_secs(3);

/// Measures restarts.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let cloud = Cloud::start(NODES).await?;
    let joining = join_on(&cluster);
    let [mut alone, mut with_standby] = [(); 2].map(|()| Samples::default());
    for _ in 0..RESTARTS {
        alone.push(gap(&cluster, &cloud, false).await?);
        with_standby.push(gap(&cluster, &cloud, true).await?);
    }
    joining.abort();
    figures("A restart by SIGTERM, nodes joining all the time");
    row("gap, started when the predecessor has ended", &with_target(&alone, "15.4-19.0 s"));
    row("gap, a successor waits already", &with_target(&with_standby, ""));
    note(&format!(
        "median of {RESTARTS}, from the last node of the one to the first of the other; a node joins each {PACE:?}"
    ));
    Ok(())
}

fn with_target(samples: &Samples, upstream: &str) -> [String; 3] {
    [crate::report::time(samples.median()), "1 s".to_owned(), upstream.to_owned()]
}

/// From the last Node that the predecessor initialises to the first of its successor.
async fn gap(cluster: &Cluster, cloud: &Cloud, has_standby: bool) -> Result<Duration, Failure> {
    let mut predecessor = cluster.pileus(cloud)?;
    predecessor.initialised(1).await?;
    let standby = if has_standby { Some(cluster.pileus(cloud)?) } else { None };
    sleep(if has_standby { STANDBY } else { WORK }).await;
    let last = predecessor.last_before_its_end().await?;
    let mut successor = match standby {
        Some(standby) => standby,
        None => cluster.pileus(cloud)?,
    };
    let first = successor.initialised(1).await?.into_iter().min().unwrap_or(last);
    successor.stop().await?;
    Ok(between(last, first))
}

/// Lets Nodes join one after the other.
fn join_on(cluster: &Cluster) -> JoinHandle<()> {
    let client = cluster.kubernetes.admin();
    tokio::spawn(async move {
        let mut pace = interval(PACE);
        for number in 1..=NODES {
            pace.tick().await;
            // One that isn't registered leaves a gap of one pace, which is in the noise.
            let _ = nodes::register(&client, [nodes::node(&format!("node-{number}"))]).await;
        }
    })
}
