//! What all controllers are built from. Each constructor takes this one record and the controller's own settings, so that
//! the composition root wires every controller in the same way.

use pileus_cloud::Provider;

use crate::cluster_addresses::ClusterAddresses;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::nodes::Nodes;

/// The dependencies of a controller. All of them are handles: clones share what is behind them.
#[derive(Clone)]
pub struct ControllerDeps {
    /// The Nodes of the cluster.
    pub nodes: Nodes,
    /// The addresses of the cluster itself, which no provider may give out.
    pub addresses: ClusterAddresses,
    /// The provider that the controller calls.
    pub provider: Provider,
    /// The sink of the controller's events. Its source is the controller's name.
    pub events: Events,
    /// The metrics of all controllers.
    pub metrics: Metrics,
    /// Returns a number from 0 to 1, a new one at each call. It spreads work that would otherwise happen at once.
    pub jitter: fn() -> f64,
}
