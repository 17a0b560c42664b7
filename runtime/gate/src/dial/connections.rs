//! What metrics say of connections: a cloud that takes none, or that gives up each after one answer, is seen here and
//! nowhere else. Every label is from the operator's document or from a fixed set.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::error::Error;

/// The metrics of connections, one set for all gates of a process.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    tried: Family<ResultLabels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
}

/// Under which grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) provider: Arc<str>,
    pub(crate) grant: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    provider: Arc<str>,
    grant: Arc<str>,
    result: &'static str,
}

impl Connections {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // From a handshake within a data centre to the longest that is waited for.
        let seconds =
            || Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let durations = Family::new_with_constructor(seconds as fn() -> Histogram);
        let connections = Self { tried: Family::default(), durations };
        registry.register(
            "pileus_gate_connections",
            "Connections that were opened, or were to be and failed",
            connections.tried.clone(),
        );
        registry.register_with_unit(
            "pileus_gate_connect_duration",
            "Time from the name of a host to a connection, TLS included; of those that were opened",
            Unit::Seconds,
            connections.durations.clone(),
        );
        connections
    }

    /// One was opened in this time, or wasn't.
    pub(crate) fn tried<T>(&self, labels: &Labels, outcome: &Result<T, Error>, took: Duration) {
        let Labels { provider, grant } = labels.clone();
        let result = outcome.as_ref().err().map_or("ok", Error::label);
        self.tried.get_or_create(&ResultLabels { provider, grant, result }).inc();
        if outcome.is_ok() {
            self.durations.get_or_create(labels).observe(took.as_secs_f64());
        }
    }
}
