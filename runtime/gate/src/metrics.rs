//! The gate's metrics: the families of all stages, registered together. What each family counts stands with its stage.

use prometheus_client::registry::Registry;

use crate::cache::CacheMetrics;
use crate::credentials::CredentialMetrics;
use crate::limits::LimitMetrics;
use crate::network::ConnectionMetrics;
use crate::record::RequestMetrics;

/// The gate's metrics, one set for all gates of a process. Clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) requests: RequestMetrics,
    pub(crate) cache: CacheMetrics,
    pub(crate) limits: LimitMetrics,
    pub(crate) credentials: CredentialMetrics,
    pub(crate) connections: ConnectionMetrics,
}

impl Metrics {
    /// Makes the metrics and registers them under their full names: the registry must not add a prefix.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            requests: RequestMetrics::register(registry),
            cache: CacheMetrics::register(registry),
            limits: LimitMetrics::register(registry),
            credentials: CredentialMetrics::register(registry),
            connections: ConnectionMetrics::register(registry),
        }
    }
}
