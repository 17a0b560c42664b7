//! The metrics of the controllers. Where upstream has a metric, its name and buckets are upstream's.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::node::missing::Cause;
use crate::provider_metrics::{NoLabels, ProviderFamily};

/// The metric families of the controllers. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    taint_removal_delay: ProviderFamily<NoLabels, Histogram>,
    initial_sync_delay: ProviderFamily<NoLabels, Histogram>,
    waiting: ProviderFamily<NoLabels, Gauge>,
    missing: ProviderFamily<CauseLabels, Gauge>,
    answers: ProviderFamily<AnswerLabels, Counter>,
    refreshes: ProviderFamily<ResultLabels, Counter>,
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
        let upstream = || ProviderFamily::made_by(|| Histogram::new([1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]));
        let metrics = Self {
            taint_removal_delay: upstream(),
            initial_sync_delay: upstream(),
            waiting: ProviderFamily::default(),
            missing: ProviderFamily::default(),
            answers: ProviderFamily::default(),
            refreshes: ProviderFamily::default(),
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
            metrics.taint_removal_delay.family.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "Seconds from a Node's creation to the end of its initialization",
            metrics.initial_sync_delay.family.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_node");
        prefix.register("waiting", "Nodes that wait to be initialized", metrics.waiting.family.clone());
        prefix.register(
            "without_instance",
            "Nodes for which the provider has no instance, by cause",
            metrics.missing.family.clone(),
        );
        prefix.register(
            "lookup_answers",
            "Answers of the cloud about single Nodes",
            metrics.answers.family.clone(),
        );
        prefix.register(
            "refreshes",
            "Comparisons of initialized Nodes with their instances, by result",
            metrics.refreshes.family.clone(),
        );
        prefix.register("writes", "Writes to Nodes, by result", metrics.writes.clone());
        registry.register("pileus_events", "Events, by result", metrics.events.clone());
        registry.register(
            "pileus_api_server_rollbacks",
            "How often a kind was listed again because the API server's store was older than before",
            metrics.rollbacks.clone(),
        );
        registry.register(
            "pileus_cluster_guard",
            "1 while the cluster's UID is compared before anything is deleted from the cloud for a missing object, else 0",
            metrics.guard.clone(),
        );
        metrics
    }

    /// The metrics of the provider of this name, where several providers run: its series have the label `provider`. Events,
    /// writes to Nodes, and what concerns the API server are counted for all providers together.
    #[must_use]
    pub fn of_provider(&self, name: &str) -> Self {
        Self {
            taint_removal_delay: self.taint_removal_delay.of_provider(name),
            initial_sync_delay: self.initial_sync_delay.of_provider(name),
            waiting: self.waiting.of_provider(name),
            missing: self.missing.of_provider(name),
            answers: self.answers.of_provider(name),
            refreshes: self.refreshes.of_provider(name),
            lifecycle: self.lifecycle.of_provider(name),
            route: self.route.of_provider(name),
            service: self.service.of_provider(name),
            ..self.clone()
        }
    }

    /// Sets the gauges to 0, once the controllers of the provider have ended: from then on nothing updates them.
    pub fn reset_gauges(&self) {
        self.set_waiting_nodes(0);
        for cause in Cause::ALL {
            self.set_missing_instances(cause, 0);
        }
        self.lifecycle.reset_gauges();
        self.route.set_missing(0);
        self.service.reset_gauges();
    }

    /// Shows what the node controller counts without labels, before there is anything to count.
    pub(crate) fn show_node(&self) {
        drop((self.taint_removal_delay.metric(), self.initial_sync_delay.metric(), self.waiting.metric()));
    }

    pub(crate) fn observe_initialization(&self, since_creation: Duration) {
        self.taint_removal_delay.metric().observe(since_creation.as_secs_f64());
        self.initial_sync_delay.metric().observe(since_creation.as_secs_f64());
    }

    pub(crate) fn set_waiting_nodes(&self, count: usize) {
        self.waiting.metric().set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_missing_instances(&self, cause: Cause, count: usize) {
        let gauge = self.missing.with(CauseLabels { cause: cause.as_str() });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_answer(&self, answer: &'static str) {
        self.answers.with(AnswerLabels { answer }).inc();
    }

    pub(crate) fn count_refresh(&self, result: &'static str) {
        self.refreshes.with(ResultLabels { result }).inc();
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
