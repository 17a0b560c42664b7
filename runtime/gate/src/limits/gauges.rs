//! The gauges of limits. They are computed at each scrape, since tokens and pauses change with time alone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::limits::limit::{LimitState, LimitsState, Rate};
use crate::limits::shared::LimiterShared;

/// The limits of all gates of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitGauges(Arc<Mutex<Vec<Weak<LimiterShared>>>>);

/// The name of a gauge, its help, and how it is read from a limit.
type OfLimit = (&'static str, &'static str, fn(&LimitState) -> Option<f64>);

const OF_LIMITS: [OfLimit; 4] = [
    (
        "pileus_gate_limit_rate",
        "Requests per second that a limit lets through, as learned from the cloud; of several buckets the slowest",
        |limit| Some(limit.rate.per_second),
    ),
    (
        "pileus_gate_limit_declared_rate",
        "Requests per second that the provider declares for a limit",
        |limit| limit.declared.map(per_second),
    ),
    (
        "pileus_gate_limit_configured_rate",
        "Requests per second that the operator allows for a limit",
        |limit| limit.configured.map(per_second),
    ),
    (
        "pileus_gate_limit_tokens",
        "Requests that a limit would let through at once; of several buckets the emptiest",
        |limit| Some(limit.tokens),
    ),
];

impl LimitGauges {
    /// Shows these limits as long as they exist.
    pub(super) fn add(&self, limits: &Arc<LimiterShared>) {
        let (mut all, limits) =
            (self.0.lock().unwrap_or_else(PoisonError::into_inner), Arc::downgrade(limits));
        all.retain(|other| other.strong_count() > 0 && !Weak::ptr_eq(other, &limits));
        all.push(limits);
    }

    /// The state of each provider's limits: those that came in force last.
    fn states(&self) -> Vec<(Arc<str>, LimitsState)> {
        let all: Vec<_> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().rev().filter_map(Weak::upgrade).collect()
        };
        let mut states: Vec<(Arc<str>, LimitsState)> = Vec::new();
        for limits in all {
            if states.iter().all(|(provider, _)| *provider != limits.provider) {
                states.push((limits.provider.clone(), limits.state()));
            }
        }
        states
    }
}

impl Collector for LimitGauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let states = self.states();
        for (name, help, read) in OF_LIMITS {
            of_limits(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?, &states, read)?;
        }
        let help = "Remaining pause of a limit after a refusal of the cloud; of several buckets the longest";
        let (name, unit) = ("pileus_gate_limit_closed", Some(&Unit::Seconds));
        let paused_for = |limit: &LimitState| Some(limit.paused_for.map_or(0.0, |time| time.as_secs_f64()));
        of_limits(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?, &states, paused_for)?;

        let (name, help) = (
            "pileus_gate_closed_resources",
            "Resources that are paused on their own after a refusal of the cloud",
        );
        let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        of_providers(gauge, &states, |state| state.paused_resources)?;
        let help = "Memory of the requests that wait for a limit";
        let (name, unit) = ("pileus_gate_waiting", Some(&Unit::Bytes));
        let gauge = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        of_providers(gauge, &states, |state| state.waiting_bytes)
    }
}

fn per_second(rate: Rate) -> f64 {
    rate.per_second
}

fn of_limits(
    mut gauge: MetricEncoder,
    states: &[(Arc<str>, LimitsState)],
    read: impl Fn(&LimitState) -> Option<f64>,
) -> fmt::Result {
    for (provider, limit) in
        states.iter().flat_map(|(provider, state)| state.limits.iter().map(move |limit| (provider, limit)))
    {
        if let Some(value) = read(limit) {
            let labels = [("provider", &**provider), ("limit", &*limit.key)];
            ConstGauge::new(value).encode(gauge.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn of_providers(
    mut gauge: MetricEncoder,
    states: &[(Arc<str>, LimitsState)],
    read: impl Fn(&LimitsState) -> usize,
) -> fmt::Result {
    for (provider, state) in states {
        let labels = [("provider", &**provider)];
        let value = i64::try_from(read(state)).unwrap_or(i64::MAX);
        ConstGauge::new(value).encode(gauge.encode_family(&labels)?)?;
    }
    Ok(())
}
