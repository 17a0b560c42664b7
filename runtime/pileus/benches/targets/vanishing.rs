//! A tenth of the machines vanish at once and their Nodes fall silent: how long until the Nodes are gone, and what it
//! costs the cloud. As many at once as may go without the circuit breaker taking it for the cloud's mistake.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{Ready, set_ready};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::{Cluster, DEADLINE, IMAGES};
use crate::report::{figure, figures, note, seconds};

/// How many Nodes there are.
const NODES: usize = 5_000;
/// How many machines vanish.
const VANISHING: usize = 500;
/// A Node that is younger than a minute is not deleted.
pub(crate) const GRACE: Duration = Duration::from_secs(65);

/// Measures it.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let cloud = Cloud::start(NODES).await?;
    cluster.settle(&cloud, |kubelet| kubelet.images(IMAGES)).await?;
    let pileus = cluster.pileus(&cloud)?;
    sleep(GRACE).await;
    cloud.vanish(VANISHING).await?;
    let departures = Departures::watch(&cluster).await?;
    let from = Instant::now();
    let names = (1..=VANISHING).map(|number| format!("node-{number}"));
    set_ready(&cluster.kubernetes.admin(), names, Ready::Unknown).await?;
    let silent = from.elapsed();
    let gone = departures.wait_for(VANISHING).await?;
    let calls = cloud.calls().await?;
    pileus.stop().await?;

    let after = |at: Option<&Instant>| at.map(|at| at.saturating_duration_since(from)).unwrap_or_default();
    figures(&format!("{VANISHING} of {NODES} machines vanish"));
    figure("first node gone", &seconds(after(gone.first())), "", "2.6 s");
    figure("all of them gone", &seconds(after(gone.last())), "15 s", "14.5 s");
    figure("reads of one machine", &calls.gets.to_string(), &VANISHING.to_string(), "500");
    figure("pages of lists", &calls.lists.to_string(), "", "0");
    note(&format!(
        "from the first of the writes that set them to Unknown, which took {}; none was held back",
        seconds(silent)
    ));
    Ok(())
}

/// When Nodes went, from a watch of the bench's own.
pub(crate) struct Departures {
    gone: mpsc::UnboundedReceiver<Instant>,
}

impl Departures {
    /// Begins to watch, and returns once nothing can be missed.
    pub(crate) async fn watch(cluster: &Cluster) -> Result<Self, Failure> {
        // Metadata alone: whole Nodes would take time of the machine that is being measured.
        let nodes = Api::<PartialObjectMeta<Node>>::all(cluster.kubernetes.admin());
        let (departed, gone) = mpsc::unbounded_channel();
        let (synced, is_synced) = oneshot::channel();
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(nodes, watcher::Config::default()).default_backoff());
            let mut synced = Some(synced);
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::InitDone) => {
                        synced.take().map(|synced| synced.send(()));
                    }
                    Ok(watcher::Event::Delete(_)) if departed.send(Instant::now()).is_err() => return,
                    _ => {}
                }
            }
        });
        timeout(DEADLINE, is_synced).await??;
        Ok(Self { gone })
    }

    /// Waits until so many have gone, and says when each did.
    pub(crate) async fn wait_for(mut self, count: usize) -> Result<Vec<Instant>, Failure> {
        let mut times = Vec::new();
        let all = async {
            while times.len() < count
                && let Some(at) = self.gone.recv().await
            {
                times.push(at);
            }
        };
        if timeout(DEADLINE, all).await.is_err() {
            return Err(format!("{} of {count} nodes are gone after {DEADLINE:?}", times.len()).into());
        }
        Ok(times)
    }
}
