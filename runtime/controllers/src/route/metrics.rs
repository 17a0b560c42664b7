//! The metrics of the route controller.

use pileus_cloud::{Error, RouteProgress};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::provider_metrics::{NoLabels, ProviderFamily};

/// The metrics of the route controller. Clones share their values.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    passes: ProviderFamily<NoLabels, Counter>,
    missing: ProviderFamily<NoLabels, Gauge>,
    lists: ProviderFamily<ListLabels, Counter>,
    changes: ProviderFamily<ChangeLabels, Counter>,
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
            metrics.passes.family.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_route");
        prefix.register(
            "missing",
            "Routes that Nodes lack after the last pass",
            metrics.missing.family.clone(),
        );
        prefix.register("lists", "Lists of the cloud's routes", metrics.lists.family.clone());
        prefix.register("changes", "Changes of routes, by result", metrics.changes.family.clone());
        metrics
    }

    /// The metrics of the provider of this name.
    pub(crate) fn of_provider(&self, name: &str) -> Self {
        Self {
            passes: self.passes.of_provider(name),
            missing: self.missing.of_provider(name),
            lists: self.lists.of_provider(name),
            changes: self.changes.of_provider(name),
        }
    }

    /// Shows what is counted without labels, before there is anything to count.
    pub(super) fn show(&self) {
        drop((self.passes.metric(), self.missing.metric()));
    }

    pub(super) fn count_pass(&self) {
        self.passes.metric().inc();
    }

    pub(crate) fn set_missing(&self, count: usize) {
        self.missing.metric().set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_list(&self, error: Option<&Error>) {
        let result = error.map_or("ok", |error| error.kind.as_str());
        self.lists.with(ListLabels { result }).inc();
    }

    pub(super) fn count_change(&self, action: &'static str, outcome: &Result<RouteProgress, Error>) {
        let result = match outcome {
            Ok(RouteProgress::Done) => "done",
            Ok(RouteProgress::InProgress { .. }) => "in_progress",
            Ok(RouteProgress::Elsewhere) => "elsewhere",
            Err(error) => error.kind.as_str(),
        };
        self.changes.with(ChangeLabels { action, result }).inc();
    }
}
