//! The gate's metrics: which families there are, and what is counted beside the records of requests.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{
    cache::{Dropped, Held},
    credentials::Counters,
    dial::Connections,
    limits::{LimitGauges, Urgency},
};

/// The gate's metrics, one set for all gates of a process.
#[derive(Debug, Clone)]
pub struct Metrics(pub(super) Arc<Families>);

#[derive(Debug)]
pub(super) struct Families {
    pub(super) requests: Family<RequestLabels, Counter>,
    pub(super) in_flight: Family<ProviderLabels, Gauge>,
    pub(super) duration: Family<GrantLabels, Histogram, fn() -> Histogram>,
    pub(super) sent: Family<GrantLabels, Counter>,
    pub(super) received: Family<GrantLabels, Counter>,
    pub(super) stripped: Family<GrantLabels, Counter>,
    waiting: Family<UrgencyLabels, Gauge>,
    waits: Family<UrgencyLabels, Histogram, fn() -> Histogram>,
    held_back: Family<RefusalLabels, Counter>,
    closures: Family<LimitLabels, Counter>,
    gauges: LimitGauges,
    cache_entries: Family<ProviderLabels, Gauge>,
    cache_bytes: Family<ProviderLabels, Gauge>,
    cache_dropped: Family<DroppedLabels, Counter>,
    credentials: Counters,
    connections: Connections,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    provider: Arc<str>,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProviderLabels {
    pub(super) provider: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) provider: Arc<str>,
    pub(super) grant: Arc<str>,
    pub(super) effect: &'static str,
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct GrantLabels {
    pub(super) provider: Arc<str>,
    pub(super) grant: Arc<str>,
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

/// From a round trip within a data centre to the longest that a call may take.
fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0])
}

impl Metrics {
    /// Makes the metrics and registers them, with their full names: the registry is expected to add no prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let families = Families {
            requests: Family::default(),
            in_flight: Family::default(),
            duration: Family::new_with_constructor(duration_histogram),
            sent: Family::default(),
            received: Family::default(),
            stripped: Family::default(),
            waiting: Family::default(),
            waits: Family::new_with_constructor(duration_histogram),
            held_back: Family::default(),
            closures: Family::default(),
            gauges: LimitGauges::default(),
            cache_entries: Family::default(),
            cache_bytes: Family::default(),
            cache_dropped: Family::default(),
            credentials: Counters::register(registry),
            connections: Connections::register(registry),
        };
        families.register_limits(registry);
        families.register_cache(registry);
        let Families { requests, in_flight, duration, sent, received, stripped, .. } = &families;
        registry.register("pileus_gate_requests", "Requests of providers to clouds", requests.clone());
        registry.register(
            "pileus_gate_in_flight",
            "Requests that aren't over: they wait for their turn or the cloud, or their answer is still read",
            in_flight.clone(),
        );
        registry.register_with_unit(
            "pileus_gate_answer_duration",
            "Time from a provider's request to the head of its answer",
            Unit::Seconds,
            duration.clone(),
        );
        registry.register_with_unit("pileus_gate_sent", "Bodies of requests sent", Unit::Bytes, sent.clone());
        registry.register_with_unit(
            "pileus_gate_received",
            "Bodies of answers received",
            Unit::Bytes,
            received.clone(),
        );
        registry.register(
            "pileus_gate_stripped_headers",
            "Header lines that were taken out of requests and answers",
            stripped.clone(),
        );
        Self(Arc::new(families))
    }

    /// What is counted of connections.
    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// What is counted of credentials.
    pub(crate) fn credentials(&self) -> &Counters {
        &self.0.credentials
    }

    /// A request of this provider begins to wait, or waits no longer.
    pub(crate) fn waiting(&self, provider: &Arc<str>, urgency: Urgency, change: i64) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.0.waiting.get_or_create(&labels).inc_by(change);
    }

    /// A request waited for so long.
    pub(crate) fn waited(&self, provider: &Arc<str>, urgency: Urgency, time: Duration) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.0.waits.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// A request was answered 429 here.
    pub(crate) fn held_back(&self, provider: &Arc<str>, limit: Arc<str>, reason: &'static str) {
        self.0.held_back.get_or_create(&RefusalLabels { provider: provider.clone(), limit, reason }).inc();
    }

    /// A limit was closed.
    pub(crate) fn closed(&self, provider: &Arc<str>, limit: Arc<str>) {
        self.0.closures.get_or_create(&LimitLabels { provider: provider.clone(), limit }).inc();
    }

    /// What a cache of this provider holds, and what it dropped, has changed from one to the other.
    pub(crate) fn cached(&self, provider: &Arc<str>, before: Held, now: Held) {
        let labels = ProviderLabels { provider: provider.clone() };
        // By the difference: during a change of versions two gates of a provider have a cache each.
        let change = |family: &Family<_, Gauge>, before: usize, now: usize| {
            if before != now {
                let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
                family.get_or_create(&labels).inc_by(signed(now) - signed(before));
            }
        };
        change(&self.0.cache_entries, before.entries, now.entries);
        change(&self.0.cache_bytes, before.bytes, now.bytes);
        for (reason, (before, now)) in
            Dropped::ALL.into_iter().zip(before.dropped.into_iter().zip(now.dropped))
        {
            if before != now {
                let labels = DroppedLabels { provider: provider.clone(), reason: reason.label() };
                self.0.cache_dropped.get_or_create(&labels).inc_by(now - before);
            }
        }
    }

    /// The gauges of all limits.
    pub(crate) fn gauges(&self) -> &LimitGauges {
        &self.0.gauges
    }
}

impl Families {
    fn register_limits(&self, registry: &mut Registry) {
        let Self { waiting, waits, held_back, closures, gauges, .. } = self;
        registry.register("pileus_gate_waiting", "Requests that wait for their turn", waiting.clone());
        registry.register_with_unit(
            "pileus_gate_wait_duration",
            "Time that requests waited for their turn, those that had it at once included",
            Unit::Seconds,
            waits.clone(),
        );
        registry.register(
            "pileus_gate_held_back",
            "Requests that the gate answered 429 itself, by the limit that would have taken longest",
            held_back.clone(),
        );
        registry.register(
            "pileus_gate_limit_closures",
            "Times that a limit was closed because the cloud refused",
            closures.clone(),
        );
        registry.register_collector(Box::new(gauges.clone()));
    }

    fn register_cache(&self, registry: &mut Registry) {
        let Self { cache_entries, cache_bytes, cache_dropped, .. } = self;
        registry.register("pileus_gate_cache_entries", "Answers in the cache", cache_entries.clone());
        registry.register_with_unit(
            "pileus_gate_cache",
            "What the answers in the cache take in memory",
            Unit::Bytes,
            cache_bytes.clone(),
        );
        registry.register(
            "pileus_gate_cache_dropped",
            "Answers that were dropped from the cache",
            cache_dropped.clone(),
        );
    }
}
