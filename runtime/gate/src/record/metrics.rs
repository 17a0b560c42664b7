//! The metrics of requests. Every label value comes from the operator's document or from a fixed set, so neither a
//! provider nor a cloud can create series.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::families::{ProviderLabels, duration_histogram};

/// The metrics of requests, one set for all gates of a process. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct RequestMetrics {
    pub(super) requests: Family<RequestLabels, Counter>,
    pub(super) in_flight: Family<ProviderLabels, Gauge>,
    pub(super) duration: Family<GrantLabels, Histogram, fn() -> Histogram>,
    pub(super) sent: Family<GrantLabels, Counter>,
    pub(super) received: Family<GrantLabels, Counter>,
    pub(super) stripped: Family<GrantLabels, Counter>,
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

impl RequestMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            in_flight: Family::default(),
            duration: Family::new_with_constructor(duration_histogram),
            sent: Family::default(),
            received: Family::default(),
            stripped: Family::default(),
        };
        let Self { requests, in_flight, duration, sent, received, stripped } = &metrics;
        registry.register("pileus_gate_requests", "Requests of providers to clouds", requests.clone());
        registry.register(
            "pileus_gate_in_flight",
            "Requests that have not ended: they wait for a limit or for the cloud, or their response is being read",
            in_flight.clone(),
        );
        registry.register_with_unit(
            "pileus_gate_answer_duration",
            "Time from a provider's request to the head of its response",
            Unit::Seconds,
            duration.clone(),
        );
        registry.register_with_unit("pileus_gate_sent", "Request bodies sent", Unit::Bytes, sent.clone());
        registry.register_with_unit(
            "pileus_gate_received",
            "Response bodies received",
            Unit::Bytes,
            received.clone(),
        );
        registry.register(
            "pileus_gate_stripped_headers",
            "Header lines removed from requests and responses",
            stripped.clone(),
        );
        metrics
    }
}
