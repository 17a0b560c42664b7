//! Routes that carry the traffic of Pods to their Nodes, and the trait through which controllers change and list them.

use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;

use crate::{Address, Cluster, Error, ProviderId};

/// A route that should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// A name that is unique among the cluster's routes, for clouds where routes have names.
    pub name_hint: String,
    /// The Node that the route leads to.
    pub node: String,
    /// The provider ID of the Node's instance.
    pub target: Option<ProviderId>,
    /// The Node's addresses. The cloud may need one of them as the next hop.
    pub addresses: Vec<Address>,
    /// The Node labels whose keys the provider named.
    pub labels: Vec<(String, String)>,
    /// The CIDR whose traffic the route carries.
    pub destination: IpNet,
}

/// A route that exists in the cloud, of this cluster or of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRoute {
    /// The cloud's name for it.
    pub name: String,
    /// The Node that the route leads to, if the cloud or the route's name says.
    pub node: Option<String>,
    /// The provider ID of the instance that the route leads to, if the cloud says.
    pub target: Option<ProviderId>,
    /// The next hops that the cloud reports.
    pub addresses: Vec<Address>,
    /// The CIDR whose traffic the route carries, as the cloud writes it. Kept as text for two reasons: a route whose
    /// destination is not a CIDR isn't ours, and a route is deleted exactly as it was listed.
    pub destination: String,
    /// The UID of the cluster that the route is labeled with, or its beginning. A route of another cluster is left alone.
    pub cluster_uid: Option<String>,
    /// Whether the route leads nowhere, for example because its instance was removed.
    pub is_blackhole: bool,
    /// What the provider needs to delete exactly this route.
    pub extra: Vec<(String, String)>,
}

/// One change to the cloud's routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// Delete a route as it was listed. Deleting what is gone succeeds.
    Delete(ListedRoute),
    /// Create a route. Creating what exists already succeeds.
    Create(Route),
}

/// An action, and the provider's note from its last [`RouteProgress::InProgress`] about the same route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// What to do.
    pub action: RouteAction,
    /// A hint of up to 4 KiB that may be lost at any time.
    pub resume: Option<String>,
}

/// How far a change has come, unless it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteProgress {
    /// The change is complete.
    Done,
    /// The cloud has begun, or the provider could not begin before its deadline. Ask again later, with the same note.
    InProgress {
        /// When to ask again.
        after: Duration,
        /// The note for the next call about the same route.
        resume: Option<String>,
    },
    /// The Node's traffic reaches it without a route of this provider. The route counts as present until the Node changes.
    Elsewhere,
}

/// Changes and lists routes.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Lists all routes in the table that the cluster uses, also those of other owners. Changes nothing.
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error>;

    /// Makes changes. Deletions come first, because a CIDR may move from one Node to another.
    ///
    /// # Guarantees
    /// On success the list has exactly one outcome for each change, in the same order. A change that fails doesn't affect
    /// the others. Dropping the future doesn't undo what has begun.
    ///
    /// # Errors
    /// The outer error says that the provider could not consider any change.
    async fn change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<Result<RouteProgress, Error>>, Error>;
}
