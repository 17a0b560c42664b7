//! What the controllers count. Upstream's names where upstream has them, with upstream's buckets.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The metric families of the controllers. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    waiting: Gauge,
    answers: Family<Answered, Counter>,
    refreshes: Family<Refreshed, Counter>,
    writes: Family<Write, Counter>,
    events: Family<Event, Counter>,
    pub(crate) lifecycle: crate::node_lifecycle::metrics::Metrics,
    pub(crate) route: crate::route::metrics::Metrics,
    pub(crate) service: crate::service::metrics::Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refreshed {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    action: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    result: &'static str,
}

impl Metrics {
    /// Makes the families and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let upstream = || Histogram::new([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
        let metrics = Self {
            taint_removal_delay: upstream(),
            initial_sync_delay: upstream(),
            waiting: Gauge::default(),
            answers: Family::default(),
            refreshes: Family::default(),
            writes: Family::default(),
            events: Family::default(),
            lifecycle: crate::node_lifecycle::metrics::Metrics::register(registry),
            route: crate::route::metrics::Metrics::register(registry),
            service: crate::service::metrics::Metrics::register(registry),
        };
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Seconds from a Node's creation to the removal of its uninitialized taint",
            metrics.taint_removal_delay.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds from a Node's creation to the end of its initialisation",
            metrics.initial_sync_delay.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_node");
        prefix.register("waiting", "Nodes that are not initialised yet", metrics.waiting.clone());
        prefix.register(
            "lookup_answers",
            "What the cloud answered about single Nodes",
            metrics.answers.clone(),
        );
        prefix.register(
            "refreshes",
            "Comparisons of initialised Nodes with their machines, by what became of them",
            metrics.refreshes.clone(),
        );
        prefix.register("writes", "Writes to Nodes, by what became of them", metrics.writes.clone());
        registry.register("pileus_events", "Events, by what became of them", metrics.events.clone());
        metrics
    }

    pub(crate) fn node_initialised(&self, since_creation: Duration) {
        self.taint_removal_delay.observe(since_creation.as_secs_f64());
        self.initial_sync_delay.observe(since_creation.as_secs_f64());
    }

    pub(crate) fn nodes_waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn answered(&self, answer: &'static str) {
        self.answers.get_or_create(&Answered { answer }).inc();
    }

    pub(crate) fn node_refreshed(&self, result: &'static str) {
        self.refreshes.get_or_create(&Refreshed { result }).inc();
    }

    pub(crate) fn wrote(&self, action: &'static str, result: &'static str) {
        self.writes.get_or_create(&Write { action, result }).inc();
    }

    pub(crate) fn event(&self, result: &'static str) {
        self.events.get_or_create(&Event { result }).inc();
    }
}
