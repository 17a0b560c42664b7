//! The metrics of the lifecycle controller.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::planner::Plan;
use crate::error::Error;
use crate::provider_metrics::{NoLabels, ProviderFamily};

/// The metrics of the lifecycle controller. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    passes: ProviderFamily<NoLabels, Counter>,
    candidates: ProviderFamily<NoLabels, Gauge>,
    unknown: ProviderFamily<NoLabels, Gauge>,
    held: ProviderFamily<NoLabels, Gauge>,
    breaker_open: ProviderFamily<NoLabels, Gauge>,
    absent_unconfirmed: ProviderFamily<NoLabels, Counter>,
    deletions: ProviderFamily<DeletionLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeletionLabels {
    result: &'static str,
}

impl Metrics {
    /// Creates the metric families and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let prefix = registry.sub_registry_with_prefix("pileus_node_lifecycle");
        prefix.register("passes", "Passes of the lifecycle controller", metrics.passes.family.clone());
        prefix.register(
            "candidates",
            "Nodes whose instances were looked up in the last pass",
            metrics.candidates.family.clone(),
        );
        prefix.register(
            "unknown",
            "Nodes that are not ready and whose last lookup failed",
            metrics.unknown.family.clone(),
        );
        prefix.register(
            "held",
            "Nodes whose instances are gone and whose deletion is on hold",
            metrics.held.family.clone(),
        );
        prefix.register(
            "breaker_open",
            "1 while deletions are on hold because too many instances are gone at once",
            metrics.breaker_open.family.clone(),
        );
        prefix.register(
            "absent_unconfirmed",
            "Instances that a list lacked and a direct read found",
            metrics.absent_unconfirmed.family.clone(),
        );
        prefix.register("deletions", "Deletions of Nodes, by result", metrics.deletions.family.clone());
        metrics
    }

    /// The metrics of the provider of this name.
    pub(crate) fn of_provider(&self, name: &str) -> Self {
        Self {
            passes: self.passes.of_provider(name),
            candidates: self.candidates.of_provider(name),
            unknown: self.unknown.of_provider(name),
            held: self.held.of_provider(name),
            breaker_open: self.breaker_open.of_provider(name),
            absent_unconfirmed: self.absent_unconfirmed.of_provider(name),
            deletions: self.deletions.of_provider(name),
        }
    }

    /// Shows what is counted without labels, before there is anything to count.
    pub(super) fn show(&self) {
        drop((self.passes.metric(), self.absent_unconfirmed.metric()));
        self.reset_gauges();
    }

    pub(super) fn set_candidates(&self, candidates: usize) {
        self.candidates.metric().set(i64::try_from(candidates).unwrap_or(i64::MAX));
    }

    pub(super) fn record_plan(&self, plan: &Plan, contradicted: u64, unknown: usize) {
        self.unknown.metric().set(i64::try_from(unknown).unwrap_or(i64::MAX));
        self.held.metric().set(i64::try_from(plan.held).unwrap_or(i64::MAX));
        self.breaker_open.metric().set(i64::from(plan.breaker.is_open));
        self.absent_unconfirmed.metric().inc_by(contradicted);
    }

    pub(super) fn count_pass(&self) {
        self.passes.metric().inc();
    }

    pub(super) fn count_deletion(&self, result: Result<(), &Error>) {
        let result = result.map_or_else(Error::as_str, |()| "ok");
        self.deletions.with(DeletionLabels { result }).inc();
    }

    /// Resets the gauges when the controller ends: from now on another replica reports them.
    pub(crate) fn reset_gauges(&self) {
        self.candidates.metric().set(0);
        self.unknown.metric().set(0);
        self.held.metric().set(0);
        self.breaker_open.metric().set(0);
    }
}
