//! Routes, by which a cloud carries the traffic of Pods to their Nodes, and the trait by which controllers program them.

use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;

use crate::{Address, Cluster, Error, ProviderId};

/// A route that should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// A name that is unique among the cluster's routes, for clouds where routes have names.
    pub name_hint: String,
    /// The Node that it leads to.
    pub node: String,
    /// The Node's machine.
    pub target: Option<ProviderId>,
    /// The Node's addresses, of which the cloud may need one as the next hop.
    pub addresses: Vec<Address>,
    /// The address range that it carries.
    pub destination: IpNet,
}

/// A route that the cloud has, of this cluster or of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRoute {
    /// The cloud's name for it.
    pub name: String,
    /// The Node that it leads to, where the cloud or its name tells.
    pub node: Option<String>,
    /// The machine that it leads to, where the cloud tells.
    pub target: Option<ProviderId>,
    /// The next hops that the cloud states.
    pub addresses: Vec<Address>,
    /// The address range that it carries, as the cloud writes it. Kept as text: what isn't one is not ours, and a route is
    /// deleted as it was listed.
    pub destination: String,
    /// Whether it leads nowhere, as after its machine was removed.
    pub is_blackhole: bool,
    /// What the provider needs to delete exactly this route.
    pub extra: Vec<(String, String)>,
}

/// One change to the cloud's routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteAction {
    /// Deletes a route as it was listed. Deleting what is gone succeeds.
    Delete(ListedRoute),
    /// Creates a route. Creating what is there already succeeds.
    Create(Route),
}

/// A change, and the note that the provider left for itself when it last answered [`Progress::Under`] for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// What to do.
    pub action: RouteAction,
    /// A hint of up to 4 KiB that may be lost at any time.
    pub resume: Option<String>,
}

/// How far a change has come that hasn't failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is so.
    Done,
    /// The cloud is at it, or it could not begin in time: ask again after this time, with this note.
    Under {
        /// When to ask again.
        after: Duration,
        /// To be given back with the next call about the same thing.
        resume: Option<String>,
    },
}

/// Programs routes.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Lists the routes in the table that the cluster uses, its own and others'. Changes nothing.
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error>;

    /// Makes changes, the deletions first: a range may move from one Node to another.
    ///
    /// # Guarantees
    /// On success the list has exactly one outcome for each change, in the same order; an error of one doesn't touch its
    /// neighbours. Dropping the future doesn't undo what has begun.
    ///
    /// # Errors
    /// The outer error says that no change could be considered at all.
    async fn change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<Result<Progress, Error>>, Error>;
}
