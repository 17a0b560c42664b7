//! The service controller: Services of type LoadBalancer get their addresses from the cloud, and keep them.

mod lanes;
mod roster;
mod targets;
mod work;

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Cluster, LoadBalancers, Provider};
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::services::Services;

/// What an operator says of the cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The load balancer classes that are ours besides no class.
    pub classes: Vec<String>,
    /// How often all load balancers are looked at although nothing has changed that we know of.
    pub audit_period: Duration,
    /// How many calls for users may run side by side, where the provider allows that.
    pub calls: usize,
}

/// The service controller.
pub struct Controller {
    _nodes: Nodes,
    _services: Services,
    _load_balancers: Arc<dyn LoadBalancers>,
    _provider: Provider,
    _events: Events,
    _metrics: Metrics,
    settings: Settings,
    _jitter: fn() -> f64,
}

impl Controller {
    /// Puts the controller together; none where the provider has no load balancers.
    pub fn new(
        nodes: Nodes,
        services: Services,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        settings: Settings,
        jitter: fn() -> f64,
    ) -> Option<Self> {
        let load_balancers = provider.load_balancers.clone()?;
        Some(Self {
            _nodes: nodes,
            _services: services,
            _load_balancers: load_balancers,
            _provider: provider,
            _events: events,
            _metrics: metrics,
            settings,
            _jitter: jitter,
        })
    }

    /// The same for a cluster whose UID is known.
    #[must_use]
    pub fn of_cluster(mut self, uid: Option<String>) -> Self {
        self.settings.cluster.uid = uid;
        self
    }

    /// Works until it is told to stop.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
