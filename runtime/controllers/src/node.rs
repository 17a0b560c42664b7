//! The node controller. It initializes a Node that joins from its cloud instance, and then keeps the Node up to date with the
//! instance: provider ID, addresses, labels, and the removal of the uninitialized taint.
//!
//! There are two kinds of work: initialization, for which users wait, and refreshes. While a lookup of one kind is in flight,
//! the Nodes that become due are gathered for the next one. So thousands of Nodes that join at once cost the cloud
//! a few lists. Several writers then complete one Node each; initializations come first.

mod addresses;
mod apply;
mod completion;
mod decide;
mod labels;
mod local_instances;
pub(crate) mod missing;
mod notices;
mod plan;
mod queue;
mod report;
mod screening;
mod work_kind;
mod worker;

#[cfg(test)]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Instances, Provider};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::cluster_addresses::ClusterAddresses;
use crate::deps::ControllerDeps;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::nodes::{CONCURRENT_WRITES, Confirmations, Nodes};
pub use local_instances::LocalInstances;
use worker::Worker;

/// What the operator has set for the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The time between two sweeps, which compare all initialized Nodes with their instances
    /// (`--node-status-update-frequency`). At least a second.
    pub refresh_period: Duration,
    /// Whether a Node keeps the uninitialized taint until the route controller reports its routes (`--wait-for-routes`).
    pub waits_for_routes: bool,
    /// Whether this process is the node manager of its own Node. Otherwise it leaves Nodes with a node manager alone.
    pub is_node_manager: bool,
}

impl Default for Settings {
    /// Upstream makes one call a Node each 5 minutes, and corrects changes of other clients only then. Here
    /// such changes are corrected at once, so the sweep can be rarer.
    fn default() -> Self {
        Self { refresh_period: Duration::from_mins(30), waits_for_routes: false, is_node_manager: false }
    }
}

/// The node controller.
pub struct Controller {
    nodes: Nodes,
    confirmations: Arc<Confirmations>,
    addresses: ClusterAddresses,
    provider: Provider,
    instances: Arc<dyn Instances>,
    events: Events,
    metrics: Metrics,
    settings: Settings,
    /// See [`ControllerDeps::jitter`].
    jitter: fn() -> f64,
    /// A permit for each write in flight. Nodes get them in turn, so that the second write to a Node follows the first at once only
    /// where no other Node waits. Directly after a write the API server's cache still has the former version, and it makes the
    /// next write twice. No write begins once this is closed.
    permits: Semaphore,
}

impl Controller {
    /// Builds the controller. `None` where the provider can't look up instances.
    pub fn new(deps: ControllerDeps, settings: Settings) -> Option<Self> {
        let ControllerDeps { nodes, addresses, provider, events, metrics, jitter } = deps;
        let instances = provider.instances.clone()?;
        let confirmations = nodes.confirmations(&provider.name);
        confirmations.expect_answers();
        metrics.show_node();
        let permits = Semaphore::new(CONCURRENT_WRITES);
        Some(Self {
            nodes,
            confirmations,
            addresses,
            provider,
            instances,
            events,
            metrics,
            settings,
            jitter,
            permits,
        })
    }

    /// Runs until `stop`, and then until no write is in flight. [`Nodes::watch`] must run at the same time.
    pub async fn run(self, stop: CancellationToken) {
        Worker::new(self).run(stop).await;
    }
}
