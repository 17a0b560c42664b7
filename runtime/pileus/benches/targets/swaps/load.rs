//! The load beside the swaps: 50 Nodes a second that join and are looked up by the node controller, and a Service a
//! second that gets a load balancer. A Node leaves after ten seconds, and its name joins again after ten more: then its
//! machine is read once more by itself, so each of these Nodes is a call of its own besides the lookup of all that wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use kube::{Api, Client};
use pileus_dev::nodes;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::PACE;
use super::log::Line;
use super::pause::Answered;
use crate::Failure;
use crate::cluster::Cluster;
use crate::ingress;
use crate::pileus::between;

/// The machines whose Nodes join and leave: twice as many as join while one stays.
pub(super) const MACHINES: usize = 1_000;
/// How long a Node stays.
const STAYS: Duration = Duration::from_secs(10);
/// A Service is made so often.
const SERVICES: Duration = Duration::from_secs(1);
/// Keeps a Node out of load balancers, which would otherwise be written each time that one joins.
pub(super) const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// What Nodes that have just joined get to be initialized.
const LAST: Duration = Duration::from_secs(10);

/// A Node that joined, and when the API server had it.
pub(super) struct Joined {
    name: String,
    at: Timestamp,
}

/// Load until its end.
pub(super) struct Load {
    stop: CancellationToken,
    nodes: JoinHandle<Result<Vec<Joined>, Failure>>,
    services: JoinHandle<Result<(), Failure>>,
    client: Client,
    first: usize,
}

impl Load {
    /// Begins with the Nodes of the machines from number `first` on, and the Services with these numbers.
    pub(super) fn begin(cluster: &Cluster, first: usize, services: RangeInclusive<usize>) -> Self {
        let (client, stop) = (cluster.kubernetes.admin(), CancellationToken::new());
        let nodes = tokio::spawn(join_and_leave(client.clone(), first, stop.clone()));
        let services = tokio::spawn(make_services(client.clone(), services));
        Self { stop, nodes, services, client, first }
    }

    /// Ends it, and returns the Nodes that joined.
    pub(super) async fn end(self) -> Result<Vec<Joined>, Failure> {
        self.stop.cancel();
        let joined = self.nodes.await??;
        self.services.await??;
        sleep(LAST).await;
        let mut leaving = JoinSet::new();
        for number in self.first..self.first + MACHINES {
            leaving.spawn(leave(self.client.clone(), format!("node-{number}")));
        }
        leaving.join_all().await;
        Ok(joined)
    }
}

async fn join_and_leave(
    client: Client,
    first: usize,
    stop: CancellationToken,
) -> Result<Vec<Joined>, Failure> {
    let name = |turn: usize| format!("node-{}", first + turn % MACHINES);
    let (mut pace, mut joining, mut leaving) = (interval(PACE), JoinSet::new(), JoinSet::new());
    for turn in 0.. {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = pace.tick() => {}
        }
        joining.spawn(join(client.clone(), name(turn)));
        if let Some(turn) = turn.checked_sub(MACHINES / 2) {
            leaving.spawn(leave(client.clone(), name(turn)));
        }
    }
    leaving.join_all().await;
    joining.join_all().await.into_iter().collect()
}

async fn join(client: Client, name: String) -> Result<Joined, Failure> {
    nodes::register(&client, [nodes::node(&name).images(0).label(EXCLUDE, "")]).await?;
    Ok(Joined { name, at: Timestamp::now() })
}

/// A Node that is gone already is fine.
async fn leave(client: Client, name: String) {
    let _gone = Api::<Node>::all(client).delete(&name, &DeleteParams::default()).await;
}

async fn make_services(client: Client, numbers: RangeInclusive<usize>) -> Result<(), Failure> {
    let mut pace = interval(SERVICES);
    for number in numbers {
        pace.tick().await;
        ingress::create_one(client.clone(), number).await?;
    }
    Ok(())
}

/// The Nodes that were initialized, by Pileus' log, and how many were not.
pub(super) fn initialised(begin: Timestamp, joined: &[Joined], lines: &[Line]) -> (Vec<Answered>, usize) {
    let mut times: BTreeMap<&str, VecDeque<Timestamp>> = BTreeMap::new();
    for line in lines {
        if let Some(name) = line.initialised() {
            times.entry(name).or_default().push_back(line.at);
        }
    }
    let mut answered = Vec::new();
    for Joined { name, at: due } in joined {
        // Nodes of the same name come one after another.
        let of_name = times.get_mut(name.as_str());
        let is_ours = |at: &mut Timestamp| between(*due, *at) < STAYS;
        if let Some(at) = of_name.and_then(|times| times.pop_front_if(is_ours)) {
            answered.push(Answered { due: between(begin, *due), at: between(begin, at) });
        }
    }
    let missing = joined.len() - answered.len();
    (answered, missing)
}
