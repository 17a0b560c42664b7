//! A provider, as controllers use it: its name and its capabilities.

use std::sync::Arc;

use crate::{Instances, LoadBalancers, Routes, ServiceRequirements};

/// A loaded provider. A capability that it lacks is `None`. This is decided at load, so no later call can fail because
/// a capability is unsupported.
#[derive(Clone)]
pub struct Provider {
    /// The provider's name, as logs and metrics show it.
    pub name: String,
    /// The schemes of its provider IDs.
    pub schemes: Vec<String>,
    /// The keys of the Node labels that it reads. A `*` at the end stands for any text.
    pub node_labels: Vec<String>,
    /// The largest number of Nodes in one lookup; at least 1.
    pub largest_lookup_batch: usize,
    /// Looks up instances.
    pub instances: Option<Arc<dyn Instances>>,
    /// What it requires of calls about Services.
    pub service_requirements: ServiceRequirements,
    /// Changes and lists load balancers.
    pub load_balancers: Option<Arc<dyn LoadBalancers>>,
    /// The largest number of route changes in one call; at least 1.
    pub largest_route_batch: usize,
    /// Changes and lists routes.
    pub routes: Option<Arc<dyn Routes>>,
}
