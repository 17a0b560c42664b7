//! A route for each of 5,000 Nodes, with a cloud that limits writes; and the cost of a restart with all routes settled.

use std::time::Duration;

use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::Kubelet;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::{Cluster, DEADLINE, IMAGES};
use crate::report::{figure, figures, note, seconds, size};

/// How many Nodes there are.
const NODES: usize = 5_000;
/// Within which all ranges are that [`with_range`] gives.
pub(crate) const RANGES: &str = "--cluster-cidr=10.128.0.0/9";
/// What those let through at best: 2,000 at once, and 100 a second of the other 3,000.
const ALLOWED: Duration = Duration::from_secs(30);
/// A bucket that is empty at the start fills by so many a second, until all have gone: what a leader that doesn't know
/// what its predecessor spent takes.
const EMPTY_AT_FIRST: Duration = Duration::from_secs(50);
/// How long a restart is watched for unnecessary writes.
const WATCHED: Duration = Duration::from_secs(15);

/// Measures routes.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let mut cloud = Cloud::start(NODES).await?;
    cluster.settle(&cloud, |kubelet| with_range(kubelet.images(IMAGES))).await?;
    // Ten times what Azure lets a principal do.
    let quota = |burst, per_second| json!({"burst": burst, "perSecond": per_second});
    cloud.limit_to(&json!({"read": quota(2_500, 250), "write": quota(2_000, 100)})).await?;
    cloud.forget_calls().await?;
    let mut command = cluster.command(&cloud)?;
    command.arg(RANGES);
    let pileus = crate::pileus::Pileus::start(&command)?;
    let from = Instant::now();
    while cloud.routes().await? < NODES {
        if from.elapsed() > DEADLINE {
            return Err(format!("{} of {NODES} routes are there", cloud.routes().await?).into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let took = from.elapsed();
    let (calls, peak) = (cloud.calls().await?, pileus.memory("VmHWM")?);
    pileus.stop().await?;

    cloud.forget_calls().await?;
    let pileus = crate::pileus::Pileus::start(&command)?;
    pileus.says("starting controllers").await?;
    sleep(WATCHED).await;
    let again = cloud.calls().await?;
    pileus.stop().await?;

    figures(&format!("Routes for {NODES} nodes, writes 2,000 + 100/s"));
    figure(
        "all there, from the start of the process",
        &seconds(took),
        &seconds(EMPTY_AT_FIRST.mul_f64(1.1)),
        "",
    );
    figure("writes", &calls.creates.to_string(), &NODES.to_string(), "");
    figure("pages of lists", &calls.lists.to_string(), "", "");
    figure("of all these refused with 429", &calls.throttled.to_string(), "0", "");
    figure("peak memory", &size(peak), &size(100 << 20), "");
    figure("writes after a restart", &again.creates.to_string(), "0", "");
    note(&format!(
        "a full bucket would allow {}; a new process takes it for empty, which allows {}",
        seconds(ALLOWED),
        seconds(EMPTY_AT_FIRST)
    ));
    Ok(())
}

/// As its machine's number says: 10.128.0.0/24 and on.
pub(crate) fn with_range(kubelet: Kubelet) -> Kubelet {
    let number: u32 = kubelet.name().trim_start_matches("node-").parse().unwrap_or_default();
    let range = format!("10.{}.{}.0/24", 128 + number / 256, number % 256);
    kubelet.pod_cidrs(&[range])
}
