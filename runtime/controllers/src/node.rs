//! The node controller: a Node joins, its machine is looked up, and it becomes a full member of the cluster; from then on
//! it follows its machine.
//!
//! Work comes from the Nodes and from timers, in two lanes: initialisation, for which somebody waits, and refreshes. While
//! a lookup of a lane is under way, what becomes due in it is gathered, and goes out together in the next one: thousands
//! of Nodes that join at once cost the cloud a few lists. Answers are written by several workers, each of which carries
//! one Node all the way; initialisations come first.

mod addresses;
mod apply;
mod completion;
mod decide;
mod labels;
mod plan;
mod roster;
mod turns;

#[cfg(test)]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Instances, Provider};
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use turns::Turns;

/// What an operator may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The time between two sweeps, in which all initialised Nodes are compared with their machines
    /// (`--node-status-update-frequency`). What is less than a second is taken for one.
    pub refresh_period: Duration,
    /// Whether a Node keeps the taint that holds Pods off until the route controller has told that it has its routes
    /// (`--wait-for-routes`).
    pub waits_for_routes: bool,
}

impl Default for Settings {
    /// Upstream's frequency of 5 minutes is for one call a Node, and repairs what nothing else does; here, what others
    /// change is put right at once.
    fn default() -> Self {
        Self { refresh_period: Duration::from_mins(30), waits_for_routes: false }
    }
}

/// The node controller.
pub struct Controller {
    nodes: Nodes,
    provider: Provider,
    instances: Arc<dyn Instances>,
    events: Events,
    metrics: Metrics,
    settings: Settings,
    /// From 0 to 1, afresh at each call.
    jitter: fn() -> f64,
}

impl Controller {
    /// Puts the controller together; none where the provider knows no machines. `jitter` gives a number from 0 to 1 at
    /// each call.
    pub fn new(
        nodes: Nodes,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        settings: Settings,
        jitter: fn() -> f64,
    ) -> Option<Self> {
        let instances = provider.instances.clone()?;
        Some(Self { nodes, provider, instances, events, metrics, settings, jitter })
    }

    /// Works until it is told to stop, and then until no write is under way. [`Nodes::watch`] must run meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        Turns::new(self).run(stop).await;
    }
}
