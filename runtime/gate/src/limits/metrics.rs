//! The metrics of limits. What the limits hold at a moment is read by `gauges` when it is scraped.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::families::duration_histogram;
use crate::limits::gauges::LimitGauges;
use crate::limits::urgency::Urgency;

/// The metrics of limits, one set for all gates of a process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct LimitMetrics {
    waiting: Family<UrgencyLabels, Gauge>,
    waits: Family<UrgencyLabels, Histogram, fn() -> Histogram>,
    held_back: Family<RefusalLabels, Counter>,
    closures: Family<LimitLabels, Counter>,
    gauges: LimitGauges,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UrgencyLabels {
    provider: Arc<str>,
    urgency: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    provider: Arc<str>,
    limit: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    provider: Arc<str>,
    limit: Arc<str>,
    reason: &'static str,
}

impl LimitMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            waiting: Family::default(),
            waits: Family::new_with_constructor(duration_histogram),
            held_back: Family::default(),
            closures: Family::default(),
            gauges: LimitGauges::default(),
        };
        let Self { waiting, waits, held_back, closures, gauges } = &metrics;
        registry.register("pileus_gate_waiting", "Requests that wait for a limit", waiting.clone());
        registry.register_with_unit(
            "pileus_gate_wait_duration",
            "Time that requests waited for a limit, including those that did not have to wait",
            Unit::Seconds,
            waits.clone(),
        );
        registry.register(
            "pileus_gate_held_back",
            "Requests that the gate answered with 429, by the limit that would have taken longest",
            held_back.clone(),
        );
        registry.register(
            "pileus_gate_limit_closures",
            "Times that a limit was paused because the cloud throttled",
            closures.clone(),
        );
        registry.register_collector(Box::new(gauges.clone()));
        metrics
    }

    /// A request of this provider begins to wait (1), or waits no longer (-1).
    pub(super) fn waiting(&self, provider: &Arc<str>, urgency: Urgency, change: i64) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.waiting.get_or_create(&labels).inc_by(change);
    }

    /// Counts how long a request waited.
    pub(super) fn waited(&self, provider: &Arc<str>, urgency: Urgency, time: Duration) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.waits.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// Counts a request that the gate answered with 429.
    pub(super) fn held_back(&self, provider: &Arc<str>, limit: Arc<str>, reason: &'static str) {
        self.held_back.get_or_create(&RefusalLabels { provider: provider.clone(), limit, reason }).inc();
    }

    /// Counts that a limit was paused.
    pub(super) fn closed(&self, provider: &Arc<str>, limit: Arc<str>) {
        self.closures.get_or_create(&LimitLabels { provider: provider.clone(), limit }).inc();
    }

    /// The gauges of all limits.
    pub(super) fn gauges(&self) -> &LimitGauges {
        &self.gauges
    }
}
