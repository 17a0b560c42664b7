//! The metrics of the lifecycle controller.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::planner::Plan;
use crate::error::Error;

/// The metrics of the lifecycle controller. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    passes: Counter,
    candidates: Gauge,
    unknown: Gauge,
    held: Gauge,
    breaker_open: Gauge,
    absent_unconfirmed: Counter,
    deletions: Family<DeletionLabels, Counter>,
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
        prefix.register("passes", "Passes of the lifecycle controller", metrics.passes.clone());
        prefix.register(
            "candidates",
            "Nodes whose instances were looked up in the last pass",
            metrics.candidates.clone(),
        );
        prefix.register(
            "unknown",
            "Nodes that are not ready and whose last lookup failed",
            metrics.unknown.clone(),
        );
        prefix.register(
            "held",
            "Nodes whose instances are gone and whose deletion is on hold",
            metrics.held.clone(),
        );
        prefix.register(
            "breaker_open",
            "1 while deletions are on hold because too many instances are gone at once",
            metrics.breaker_open.clone(),
        );
        prefix.register(
            "absent_unconfirmed",
            "Instances that a list lacked and a direct read found",
            metrics.absent_unconfirmed.clone(),
        );
        prefix.register("deletions", "Deletions of Nodes, by result", metrics.deletions.clone());
        metrics
    }

    pub(super) fn set_candidates(&self, candidates: usize) {
        self.candidates.set(i64::try_from(candidates).unwrap_or(i64::MAX));
    }

    pub(super) fn record_plan(&self, plan: &Plan, contradicted: u64, unknown: usize) {
        self.unknown.set(i64::try_from(unknown).unwrap_or(i64::MAX));
        self.held.set(i64::try_from(plan.held).unwrap_or(i64::MAX));
        self.breaker_open.set(i64::from(plan.breaker.is_open));
        self.absent_unconfirmed.inc_by(contradicted);
    }

    pub(super) fn count_pass(&self) {
        self.passes.inc();
    }

    pub(super) fn count_deletion(&self, result: Result<(), &Error>) {
        let result = result.map_or_else(Error::as_str, |()| "ok");
        self.deletions.get_or_create(&DeletionLabels { result }).inc();
    }

    /// Resets the gauges when the controller ends: from now on another replica reports them.
    pub(super) fn reset_gauges(&self) {
        self.candidates.set(0);
        self.unknown.set(0);
        self.held.set(0);
        self.breaker_open.set(0);
    }
}
