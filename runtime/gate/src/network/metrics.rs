//! The metrics of connections: only they show a cloud that accepts none, or that closes each after one response. Every
//! label value comes from the operator's document or from a fixed set.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::error::Error;

/// The metrics of connections, one set for all gates of a process.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionMetrics {
    tried: Family<ResultLabels, Counter>,
    durations: Family<ConnectionLabels, Histogram, fn() -> Histogram>,
}

/// The provider and the grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ConnectionLabels {
    pub(crate) provider: Arc<str>,
    pub(crate) grant: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    provider: Arc<str>,
    grant: Arc<str>,
    result: &'static str,
}

impl ConnectionMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From a handshake within a data center to the connect timeout.
        let seconds =
            || Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let durations = Family::new_with_constructor(seconds as fn() -> Histogram);
        let connections = Self { tried: Family::default(), durations };
        registry.register(
            "pileus_gate_connections",
            "Connections opened, or attempted and failed",
            connections.tried.clone(),
        );
        registry.register_with_unit(
            "pileus_gate_connect_duration",
            "Time from the name of a host to an open connection, TLS included",
            Unit::Seconds,
            connections.durations.clone(),
        );
        connections
    }

    /// Counts an attempt to open a connection, which took so long.
    pub(crate) fn tried<T>(&self, labels: &ConnectionLabels, outcome: &Result<T, Error>, took: Duration) {
        let ConnectionLabels { provider, grant } = labels.clone();
        let result = outcome.as_ref().err().map_or("ok", Error::label);
        self.tried.get_or_create(&ResultLabels { provider, grant, result }).inc();
        if outcome.is_ok() {
            self.durations.get_or_create(labels).observe(took.as_secs_f64());
        }
    }
}
