//! What a release of a provider declares to the controllers.

use std::sync::Arc;

use pileus_cloud::{Instances, LoadBalancers, Provider, Routes, ServiceRequirements};

/// What a release declares to the controllers. Where two releases declare the same, a swap concerns no controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// The schemes of its provider IDs.
    pub schemes: Vec<String>,
    /// The keys of the Node labels that it reads.
    pub node_labels: Vec<String>,
    /// The largest number of Nodes in one lookup. `None` where it looks up no instances.
    pub largest_lookup_batch: Option<usize>,
    /// What it requires of calls about Services. `None` where it has no load balancers.
    pub service_requirements: Option<ServiceRequirements>,
    /// The largest number of route changes in one call. `None` where it has no routes.
    pub largest_route_batch: Option<usize>,
}

impl Declaration {
    /// The provider of this name as controllers see it: it has what is declared, and `calls` makes its calls.
    pub(crate) fn provider<T>(self, name: &str, calls: &Arc<T>) -> Provider
    where
        T: Instances + LoadBalancers + Routes + 'static,
    {
        let Self { largest_lookup_batch, service_requirements, largest_route_batch, .. } = self;
        Provider {
            name: name.to_owned(),
            schemes: self.schemes,
            node_labels: self.node_labels,
            instances: largest_lookup_batch.map(|_| Arc::clone(calls) as _),
            largest_lookup_batch: largest_lookup_batch.unwrap_or(1),
            load_balancers: service_requirements.as_ref().map(|_| Arc::clone(calls) as _),
            service_requirements: service_requirements.unwrap_or_default(),
            routes: largest_route_batch.map(|_| Arc::clone(calls) as _),
            largest_route_batch: largest_route_batch.unwrap_or(1),
        }
    }
}
