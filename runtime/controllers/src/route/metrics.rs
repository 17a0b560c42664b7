//! The metrics of the route controller.

use pileus_cloud::{Error, RouteProgress};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of the route controller. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    passes: Counter,
    missing: Gauge,
    lists: Family<ListLabels, Counter>,
    changes: Family<ChangeLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    action: &'static str,
    result: &'static str,
}

impl Metrics {
    /// Creates the metric families and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "route_controller_route_sync",
            "Comparisons of the cloud's routes with the Nodes",
            metrics.passes.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_route");
        prefix.register("missing", "Routes that Nodes lack after the last pass", metrics.missing.clone());
        prefix.register("lists", "Lists of the cloud's routes", metrics.lists.clone());
        prefix.register("changes", "Changes of routes, by result", metrics.changes.clone());
        metrics
    }

    pub(super) fn count_pass(&self) {
        self.passes.inc();
    }

    pub(super) fn set_missing(&self, count: usize) {
        self.missing.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_list(&self, error: Option<&Error>) {
        let result = error.map_or("ok", |error| error.kind.as_str());
        self.lists.get_or_create(&ListLabels { result }).inc();
    }

    pub(super) fn count_change(&self, action: &'static str, outcome: &Result<RouteProgress, Error>) {
        let result = match outcome {
            Ok(RouteProgress::Done) => "done",
            Ok(RouteProgress::InProgress { .. }) => "in_progress",
            Ok(RouteProgress::Elsewhere) => "elsewhere",
            Err(error) => error.kind.as_str(),
        };
        self.changes.get_or_create(&ChangeLabels { action, result }).inc();
    }
}
