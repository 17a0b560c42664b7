//! The watches that bring the Services of all providers.

use std::sync::Arc;

use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::endpoints::Slices;
use super::namespaces::Namespaces;
use super::store::ServiceStore;
use crate::informer::{StoreHistory, Watch};
use crate::metrics::Metrics;

/// The watches of Services and of what is around them, which all providers share. Clones share them, too. Nothing is watched that
/// no provider needs.
#[derive(Clone)]
pub struct ServiceWatches {
    pub(super) client: Client,
    pub(super) services: Arc<Watch<ServiceStore>>,
    pub(super) namespaces: Arc<Watch<Namespaces>>,
    pub(super) slices: Arc<Watch<Slices>>,
}

impl ServiceWatches {
    /// Watches that begin with [`ServiceWatches::run`].
    pub fn new(client: Client, metrics: &Metrics, history: &StoreHistory) -> Self {
        let (services, namespaces) = (Api::all(client.clone()), Api::all(client.clone()));
        let slices = Api::all(client.clone());
        Self {
            client,
            services: Arc::new(Watch::new("services", services, metrics, history)),
            namespaces: Arc::new(Watch::new("namespaces", namespaces, metrics, history)),
            slices: Arc::new(Watch::new("endpoint slices", slices, metrics, history)),
        }
    }

    /// Watches the API server until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(self.services.run(&stop), self.namespaces.run(&stop), self.slices.run(&stop));
    }
}
