//! The metrics of caches.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::cache::slots::{CacheTotals, EvictReason};
use crate::families::ProviderLabels;

/// The metrics of caches, one set for all gates of a process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct CacheMetrics {
    entries: Family<ProviderLabels, Gauge>,
    bytes: Family<ProviderLabels, Gauge>,
    dropped: Family<DroppedLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    provider: Arc<str>,
    reason: &'static str,
}

impl CacheMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self { entries: Family::default(), bytes: Family::default(), dropped: Family::default() };
        let Self { entries, bytes, dropped } = &metrics;
        registry.register("pileus_gate_cache_entries", "Responses in the cache", entries.clone());
        registry.register_with_unit(
            "pileus_gate_cache",
            "Memory that the responses in the cache take",
            Unit::Bytes,
            bytes.clone(),
        );
        registry.register("pileus_gate_cache_dropped", "Responses dropped from the cache", dropped.clone());
        metrics
    }

    /// Counts the difference between what a cache of this provider held, and had dropped, before and now. A gauge is
    /// changed by the difference because two gates of a provider have a cache each during a change of versions.
    pub(super) fn update(&self, provider: &Arc<str>, before: CacheTotals, now: CacheTotals) {
        let labels = ProviderLabels { provider: provider.clone() };
        let change = |family: &Family<_, Gauge>, before: usize, now: usize| {
            if before != now {
                let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
                family.get_or_create(&labels).inc_by(signed(now) - signed(before));
            }
        };
        change(&self.entries, before.entries, now.entries);
        change(&self.bytes, before.bytes, now.bytes);
        for (reason, (before, now)) in
            EvictReason::ALL.into_iter().zip(before.dropped.into_iter().zip(now.dropped))
        {
            if before != now {
                let labels = DroppedLabels { provider: provider.clone(), reason: reason.label() };
                self.dropped.get_or_create(&labels).inc_by(now - before);
            }
        }
    }
}
