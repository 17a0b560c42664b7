//! What a release of a provider declares to the controllers.

use pileus_cloud::ServiceRequirements;

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
