//! The metrics of credentials. Every label comes from the operator's document or a fixed set.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The metrics of credentials, one set for all gates of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct CredentialMetrics {
    acquisitions: Family<ResultLabels, Counter>,
    expiry: Family<CredentialLabels, Gauge<f64, AtomicU64>>,
}

/// A credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CredentialLabels {
    pub(crate) provider: Arc<str>,
    pub(crate) credential: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    provider: Arc<str>,
    credential: Arc<str>,
    result: &'static str,
}

impl CredentialMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "pileus_gate_credential_acquisitions",
            "Attempts to acquire a credential; for static values, only reads that found a new one or failed",
            metrics.acquisitions.clone(),
        );
        registry.register_with_unit(
            "pileus_gate_credential_expiry",
            "Unix time at which a token expires or expired",
            Unit::Seconds,
            metrics.expiry.clone(),
        );
        metrics
    }

    pub(crate) fn count_attempt(&self, labels: &CredentialLabels, result: &'static str) {
        let CredentialLabels { provider, credential } = labels.clone();
        self.acquisitions.get_or_create(&ResultLabels { provider, credential, result }).inc();
    }

    pub(crate) fn set_expiry(&self, labels: &CredentialLabels, until: SystemTime) {
        let unix = until.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.expiry.get_or_create(labels).set(unix.as_secs_f64().round());
    }
}
