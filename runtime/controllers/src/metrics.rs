//! The metrics of the controllers. Where upstream has a metric, its name and buckets are upstream's.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::node::missing::Cause;

/// The metric families of the controllers. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    waiting: Gauge,
    missing: Family<CauseLabels, Gauge>,
    answers: Family<AnswerLabels, Counter>,
    refreshes: Family<ResultLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
    events: Family<ResultLabels, Counter>,
    rollbacks: Family<KindLabels, Counter>,
    /// Whether the cluster's UID is compared before anything is deleted from the cloud for a missing object.
    guard: Gauge,
    pub(crate) lifecycle: crate::node_lifecycle::metrics::Metrics,
    pub(crate) route: crate::route::metrics::Metrics,
    pub(crate) service: crate::service::metrics::Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    action: &'static str,
    result: &'static str,
}

impl Metrics {
    /// Creates the metric families and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let upstream = || Histogram::new([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
        let metrics = Self {
            taint_removal_delay: upstream(),
            initial_sync_delay: upstream(),
            waiting: Gauge::default(),
            missing: Family::default(),
            answers: Family::default(),
            refreshes: Family::default(),
            writes: Family::default(),
            events: Family::default(),
            rollbacks: Family::default(),
            guard: Gauge::default(),
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
            "Seconds from a Node's creation to the end of its initialization",
            metrics.initial_sync_delay.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_node");
        prefix.register("waiting", "Nodes that wait to be initialized", metrics.waiting.clone());
        prefix.register(
            "without_instance",
            "Nodes for which the provider has no instance, by cause",
            metrics.missing.clone(),
        );
        prefix.register("lookup_answers", "Answers of the cloud about single Nodes", metrics.answers.clone());
        prefix.register(
            "refreshes",
            "Comparisons of initialized Nodes with their instances, by result",
            metrics.refreshes.clone(),
        );
        prefix.register("writes", "Writes to Nodes, by result", metrics.writes.clone());
        registry.register("pileus_events", "Events, by result", metrics.events.clone());
        registry.register(
            "pileus_api_server_rollbacks",
            "How often the API server's store was found to be older than before, by the watched kind",
            metrics.rollbacks.clone(),
        );
        registry.register(
            "pileus_cluster_guard",
            "1 while the cluster's UID is compared before anything is deleted from the cloud for a missing object, else 0",
            metrics.guard.clone(),
        );
        metrics
    }

    pub(crate) fn observe_initialization(&self, since_creation: Duration) {
        self.taint_removal_delay.observe(since_creation.as_secs_f64());
        self.initial_sync_delay.observe(since_creation.as_secs_f64());
    }

    pub(crate) fn set_waiting_nodes(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_missing_instances(&self, cause: Cause, count: usize) {
        let gauge = self.missing.get_or_create(&CauseLabels { cause: cause.as_str() });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_answer(&self, answer: &'static str) {
        self.answers.get_or_create(&AnswerLabels { answer }).inc();
    }

    pub(crate) fn count_refresh(&self, result: &'static str) {
        self.refreshes.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn count_write(&self, action: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { action, result }).inc();
    }

    pub(crate) fn count_rollback(&self, kind: &'static str) {
        self.rollbacks.get_or_create(&KindLabels { kind }).inc();
    }

    /// Whether the cluster's UID is known.
    pub fn set_cluster_guard(&self, is_known: bool) {
        self.guard.set(i64::from(is_known));
    }

    pub(crate) fn count_event(&self, result: &'static str) {
        self.events.get_or_create(&ResultLabels { result }).inc();
    }
}
