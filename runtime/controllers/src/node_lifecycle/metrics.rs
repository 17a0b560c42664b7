//! What this controller counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::judge::Plan;
use crate::error::Error;

/// The metric families. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    passes: Counter,
    candidates: Gauge,
    unknown: Gauge,
    held: Gauge,
    breaker_open: Gauge,
    absent_unconfirmed: Counter,
    deletions: Family<Deletion, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deletion {
    result: &'static str,
}

impl Metrics {
    /// Makes the families and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let prefix = registry.sub_registry_with_prefix("pileus_node_lifecycle");
        prefix.register(
            "passes",
            "Looks at all Nodes that are not ready, from the lookup to the last write",
            metrics.passes.clone(),
        );
        prefix.register(
            "candidates",
            "Nodes whose machines were looked up in the last pass",
            metrics.candidates.clone(),
        );
        prefix.register(
            "unknown",
            "Nodes that are not ready and of whose machines the last answer was an error",
            metrics.unknown.clone(),
        );
        prefix.register(
            "held",
            "Nodes whose machines are gone and whose deletion is held",
            metrics.held.clone(),
        );
        prefix.register(
            "breaker_open",
            "1 while so many machines are gone at once that Nodes are held rather than deleted",
            metrics.breaker_open.clone(),
        );
        prefix.register(
            "absent_unconfirmed",
            "Machines that a list lacked and a direct read found",
            metrics.absent_unconfirmed.clone(),
        );
        prefix.register("deletions", "Deletions of Nodes, by what became of them", metrics.deletions.clone());
        metrics
    }

    pub(super) fn asked(&self, candidates: usize) {
        self.candidates.set(i64::try_from(candidates).unwrap_or(i64::MAX));
    }

    pub(super) fn planned(&self, plan: &Plan, contradicted: u64, unknown: usize) {
        self.unknown.set(i64::try_from(unknown).unwrap_or(i64::MAX));
        self.held.set(i64::try_from(plan.held).unwrap_or(i64::MAX));
        self.breaker_open.set(i64::from(plan.verdict.is_open));
        self.absent_unconfirmed.inc_by(contradicted);
    }

    pub(super) fn passed(&self) {
        self.passes.inc();
    }

    pub(super) fn deleted(&self, result: Result<(), &Error>) {
        let result = result.map_or_else(Error::as_str, |()| "ok");
        self.deletions.get_or_create(&Deletion { result }).inc();
    }

    /// What is so at present is another process's to say from now on.
    pub(super) fn leaves(&self) {
        self.candidates.set(0);
        self.unknown.set(0);
        self.held.set(0);
        self.breaker_open.set(0);
    }
}
