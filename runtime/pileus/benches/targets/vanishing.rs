//! A tenth of the instances disappear at once and their Nodes fall silent: the time until the Nodes are deleted, and
//! the load on the cloud, first without quotas and then with them. These are too few Nodes to open the circuit breaker.

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
/// What the design allows from the first Node that falls silent to the last that is gone.
const UNLIMITED: Duration = Duration::from_secs(15);
/// And where each is confirmed by a read of its own from a quota of 250 and 25 a second: (500 - 250) / 25 more.
const LIMITED: Duration = Duration::from_secs(25);
/// A Node that is younger than a minute is not deleted.
pub(crate) const GRACE: Duration = Duration::from_secs(65);

/// Measures both.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let mut cloud = Cloud::start(NODES).await?;
    cluster.settle(&cloud, |kubelet| kubelet.images(IMAGES)).await?;
    let pileus = cluster.pileus(&cloud)?;
    sleep(GRACE).await;
    let unlimited = Beside { title: "", all: UNLIMITED, upstream: ["2.6 s", "14.5 s", "500", "0"] };
    vanish(&cluster, &cloud, 1, &unlimited).await?;
    // Another start, so that the provider knows of the quotas, and as long again for them to be there in full.
    pileus.stop().await?;
    cloud.limit().await?;
    let pileus = cluster.pileus(&cloud)?;
    sleep(GRACE).await;
    let limited = Beside { title: ", quotas", all: LIMITED, upstream: ["4.5 s", "16.3 s", "500", ""] };
    vanish(&cluster, &cloud, VANISHING + 1, &limited).await?;
    pileus.stop().await
}

/// What the figures are compared with.
struct Beside {
    title: &'static str,
    /// The target for all Nodes.
    all: Duration,
    /// What upstream took: first and all Nodes, reads, 429s; empty where it wasn't measured.
    upstream: [&'static str; 4],
}

/// Lets machines vanish, from the number `first` on, and prints the results for their Nodes.
async fn vanish(cluster: &Cluster, cloud: &Cloud, first: usize, beside: &Beside) -> Result<(), Failure> {
    let names = (first..first + VANISHING).map(|number| format!("node-{number}"));
    cloud.vanish(VANISHING).await?;
    let departures = Departures::watch(cluster).await?;
    let from = Instant::now();
    set_ready(&cluster.kubernetes.admin(), names, Ready::Unknown).await?;
    let silent = from.elapsed();
    let gone = departures.wait_for(VANISHING).await?;
    let calls = cloud.calls().await?;

    let after = |at: Option<&Instant>| at.map(|at| at.saturating_duration_since(from)).unwrap_or_default();
    let Beside { title, all, upstream: [first_gone, all_gone, reads, throttled] } = beside;
    figures(&format!("{VANISHING} of {NODES} machines vanish{title}"));
    figure("first node gone", &seconds(after(gone.first())), "", first_gone);
    figure("all of them gone", &seconds(after(gone.last())), &seconds(*all), all_gone);
    figure("reads of one machine", &calls.gets.to_string(), &VANISHING.to_string(), reads);
    figure("pages of lists", &calls.lists.to_string(), "", "0");
    figure("of all these refused with 429", &calls.throttled.to_string(), "0", throttled);
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
