//! A provider as controllers hold it: what it is called, whose Nodes are its own, and what it can do.

use std::sync::Arc;

use crate::{Instances, LoadBalancers, ProviderId, Routes, ServiceTerms};

/// A loaded provider. A capability that it lacks is `None`, decided once at load, so that "not supported" is no error
/// that could come up later.
#[derive(Clone)]
pub struct Provider {
    /// Its name, as logs and metrics show it.
    pub name: String,
    /// The provider ID schemes that are its own.
    pub schemes: Vec<String>,
    /// The keys of the Node labels that it reads.
    pub node_labels: Vec<String>,
    /// The most Nodes that one lookup may carry; at least 1.
    pub largest_lookup: usize,
    /// How to look up machines.
    pub instances: Option<Arc<dyn Instances>>,
    /// How it wants Services brought to it.
    pub service_terms: ServiceTerms,
    /// How to see to load balancers.
    pub load_balancers: Option<Arc<dyn LoadBalancers>>,
    /// The most changes of routes that one call may carry; at least 1.
    pub largest_route_change: usize,
    /// How to program routes.
    pub routes: Option<Arc<dyn Routes>>,
}

impl Provider {
    /// Whether a Node with this provider ID, or with none yet, is this provider's to serve.
    pub fn serves(&self, provider_id: Option<&ProviderId>) -> bool {
        provider_id.is_none_or(|id| self.schemes.iter().any(|scheme| scheme == id.scheme()))
    }
}
