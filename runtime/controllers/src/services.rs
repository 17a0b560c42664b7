//! The Services that want a load balancer, or had one: watched once, kept as facts, and written through one door.

use kube::Client;
use pileus_cloud::ServiceTerms;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::metrics::Metrics;

/// The Services. Clones share them.
#[derive(Clone)]
pub struct Services {}

impl Services {
    /// None yet: [`Services::watch`] brings them. The provider's terms say what of them it reads.
    pub fn new(_client: Client, _metrics: Metrics, _health: &Health, _terms: &ServiceTerms) -> Self {
        Self {}
    }

    /// Keeps up with the API server until it is told to stop.
    pub async fn watch(&self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
