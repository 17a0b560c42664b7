//! The metrics of this controller. Upstream counts only changes of targets, under names that are kept here; all other
//! changes are counted under names of ours.

use std::time::Duration;

use pileus_cloud::{Error, ErrorKind, ServiceAction, ServiceChange, ServiceProgress};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::apply::Outcomes;
use super::work::{ListingReport, Summary};
use crate::provider_metrics::{NoLabels, ProviderFamily};

/// The metric families. Clones share their values.
#[derive(Clone)]
pub(crate) struct Metrics {
    target_updates: ProviderFamily<NoLabels, Counter>,
    target_errors: ProviderFamily<NoLabels, Counter>,
    target_calls: ProviderFamily<NoLabels, Histogram>,
    target_latency: ProviderFamily<NoLabels, Histogram>,
    services: ProviderFamily<StateLabel, Gauge>,
    orphans: ProviderFamily<OwnerLabel, Gauge>,
    lists: ProviderFamily<ResultLabel, Counter>,
    changes: ProviderFamily<ActionLabels, Counter>,
    writes: ProviderFamily<ActionLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OwnerLabel {
    owner: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    result: &'static str,
}

impl Metrics {
    /// Makes the families and registers them.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // 1 s to 16,384 s, as upstream.
        let upstream =
            || ProviderFamily::made_by(|| Histogram::new((0..15).map(|power| f64::from(1_u32 << power))));
        let metrics = Self {
            target_updates: ProviderFamily::default(),
            target_errors: ProviderFamily::default(),
            target_calls: upstream(),
            target_latency: upstream(),
            services: ProviderFamily::default(),
            orphans: ProviderFamily::default(),
            lists: ProviderFamily::default(),
            changes: ProviderFamily::default(),
            writes: ProviderFamily::default(),
        };
        let prefix = registry.sub_registry_with_prefix("service_controller");
        prefix.register(
            "loadbalancer_sync",
            "Updates of only the Nodes behind a load balancer",
            metrics.target_updates.family.clone(),
        );
        prefix.register(
            "nodesync_error",
            "Updates of only the Nodes behind a load balancer that failed",
            metrics.target_errors.family.clone(),
        );
        prefix.register(
            "nodesync_latency_seconds",
            "Duration of provider calls that update the Nodes behind load balancers",
            metrics.target_calls.family.clone(),
        );
        prefix.register(
            "update_loadbalancer_host_latency_seconds",
            "Duration of the provider call for each load balancer whose Nodes it updates",
            metrics.target_latency.family.clone(),
        );
        let prefix = registry.sub_registry_with_prefix("pileus_service");
        prefix.register(
            "load_balancers",
            "Services by the state of their load balancers",
            metrics.services.family.clone(),
        );
        prefix.register(
            "orphans",
            "Load balancers without a matching Service at the last listing, by whether they are ours to remove",
            metrics.orphans.family.clone(),
        );
        prefix.register(
            "lists",
            "Listings of the load balancers of this cluster, by result",
            metrics.lists.family.clone(),
        );
        prefix.register(
            "changes",
            "Changes of load balancers, by action and result",
            metrics.changes.family.clone(),
        );
        prefix.register("writes", "Writes to Services, by action and result", metrics.writes.family.clone());
        metrics
    }

    /// The metrics of the provider of this name.
    pub(crate) fn of_provider(&self, name: &str) -> Self {
        Self {
            target_updates: self.target_updates.of_provider(name),
            target_errors: self.target_errors.of_provider(name),
            target_calls: self.target_calls.of_provider(name),
            target_latency: self.target_latency.of_provider(name),
            services: self.services.of_provider(name),
            orphans: self.orphans.of_provider(name),
            lists: self.lists.of_provider(name),
            changes: self.changes.of_provider(name),
            writes: self.writes.of_provider(name),
        }
    }

    /// Shows what is counted without labels, before there is anything to count.
    pub(super) fn show(&self) {
        drop((self.target_updates.metric(), self.target_errors.metric()));
        drop((self.target_calls.metric(), self.target_latency.metric()));
    }

    /// Sets the gauges to 0.
    pub(crate) fn reset_gauges(&self) {
        self.set_summary(Summary::default());
        self.set_orphans(&ListingReport::default());
    }

    /// Sets the gauges of Services.
    pub(super) fn set_summary(&self, summary: Summary) {
        let Summary { wanted, settled, leaving } = summary;
        let waiting = wanted.saturating_sub(settled);
        for (state, count) in [("settled", settled), ("waiting", waiting), ("leaving", leaving)] {
            self.services.with(StateLabel { state }).set(number(count));
        }
    }

    /// Sets the gauges of objects without a matching Service.
    pub(super) fn set_orphans(&self, report: &ListingReport) {
        for (owner, count) in
            [("ours", report.orphans), ("unknown", report.unattributed + report.class_conflicts)]
        {
            self.orphans.with(OwnerLabel { owner }).set(number(count));
        }
    }

    /// Counts a listing.
    pub(super) fn count_list(&self, error: Option<&Error>) {
        let result = error.map_or("ok", |error| error.kind.as_str());
        self.lists.with(ResultLabel { result }).inc();
    }

    /// Counts the changes of a call.
    pub(super) fn count_call(&self, changes: &[ServiceChange], outcomes: &Outcomes, took: Duration) {
        for (index, ServiceChange { action, .. }) in changes.iter().enumerate() {
            let outcome = outcomes.as_ref().map(|outcomes| outcomes.get(index).map(Result::as_ref));
            let result = match outcome {
                Ok(Some(Ok(ServiceProgress::Done { .. }))) => "done",
                Ok(Some(Ok(ServiceProgress::InProgress { .. }))) => "in_progress",
                Ok(Some(Ok(ServiceProgress::Elsewhere))) => "elsewhere",
                Ok(Some(Err(error))) | Err(error) => error.kind.as_str(),
                Ok(None) => ErrorKind::Broken.as_str(),
            };
            self.changes.with(ActionLabels { action: name(action), result }).inc();
            if matches!(action, ServiceAction::UpdateTargets(_)) {
                let has_failed = !matches!(outcome, Ok(Some(Ok(_))));
                self.target_updates.metric().inc();
                self.target_errors.metric().inc_by(u64::from(has_failed));
                self.target_latency.metric().observe(took.as_secs_f64());
            }
        }
        if changes.iter().any(|change| matches!(change.action, ServiceAction::UpdateTargets(_))) {
            self.target_calls.metric().observe(took.as_secs_f64());
        }
    }

    /// Counts a write to a Service.
    pub(crate) fn count_write(&self, action: &'static str, result: &'static str) {
        self.writes.with(ActionLabels { action, result }).inc();
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

const fn name(action: &ServiceAction) -> &'static str {
    match action {
        ServiceAction::Ensure(_) => "ensure",
        ServiceAction::UpdateTargets(_) => "update_targets",
        ServiceAction::Delete(_) => "delete",
        ServiceAction::RemoveOrphan(_) => "remove_orphan",
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::Service;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn service() -> Service {
        Service::named("", "", "")
    }

    #[test]
    fn upstreams_metrics_count_only_target_updates() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let change = |action| ServiceChange { action, resume: None };
        let changes = [
            change(ServiceAction::UpdateTargets(service())),
            change(ServiceAction::UpdateTargets(service())),
            change(ServiceAction::Ensure(service())),
        ];
        let error = Error::new(ErrorKind::Conflict(None), "");
        let outcomes = Ok(vec![Ok(ServiceProgress::Elsewhere), Err(error.clone()), Err(error)]);
        metrics.count_call(&changes, &outcomes, Duration::from_secs(3));
        let whole = Err(Error::new(ErrorKind::Unavailable(None), ""));
        metrics.count_call(&changes[2..], &whole, Duration::from_secs(3));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "service_controller_loadbalancer_sync_total 2",
            "service_controller_nodesync_error_total 1",
            "service_controller_nodesync_latency_seconds_count 1",
            "service_controller_nodesync_latency_seconds_bucket{le=\"4.0\"} 1",
            "service_controller_nodesync_latency_seconds_bucket{le=\"16384.0\"} 1",
            "service_controller_update_loadbalancer_host_latency_seconds_count 2",
            "pileus_service_changes_total{action=\"update_targets\",result=\"elsewhere\"} 1",
            "pileus_service_changes_total{action=\"ensure\",result=\"conflict\"} 1",
            "pileus_service_changes_total{action=\"ensure\",result=\"unavailable\"} 1",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }
}
