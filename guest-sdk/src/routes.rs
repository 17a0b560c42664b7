//! The capability `routes`: the cloud's routes, which carry the traffic of Pods to their Nodes. A provider lists them, and
//! creates and deletes one at a time. Where one write changes many routes, it takes all changes of a call instead.

use crate::{Address, Error, Extra, InProgress, Provider, deadline, map_removals_first};

/// The cluster that a call is for. A provider stores it on what it creates, where the cloud can: clusters that share an
/// account are told apart by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The name from `--cluster-name`. Many clusters keep the default, so the name doesn't identify a cluster.
    pub name: String,
    /// The UID of the namespace `kube-system`, which is unique. None until it can be read.
    pub uid: Option<String>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Cluster {
    /// The UID, for a cloud where a resource is named after it.
    ///
    /// # Errors
    ///
    /// `unavailable` while the UID is unknown.
    pub fn require_uid(&self) -> Result<&str, Error> {
        let unknown = || {
            Error::unavailable(
                "the cluster's UID isn't known yet, and the resource that Services share is named after it",
            )
        };
        self.uid.as_deref().ok_or_else(unknown)
    }
}

/// A route that should exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// A name that is unique among the cluster's routes, for clouds where routes have names.
    pub name_hint: String,
    /// The Node that the route leads to.
    pub node: String,
    /// The provider ID of the Node's instance.
    pub target: Option<String>,
    /// The Node's addresses. The cloud may need one of them as the next hop.
    pub addresses: Vec<Address>,
    /// The Node labels whose keys the provider named in its description or its settings.
    pub labels: Vec<(String, String)>,
    /// The CIDR whose traffic the route carries, as in `10.244.3.0/24`.
    pub destination: String,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Route {
    /// The provider ID of the Node's instance, for a cloud whose routes lead to instances.
    ///
    /// # Errors
    ///
    /// `invalid` if the Node has no provider ID yet.
    pub fn require_target(&self) -> Result<&str, Error> {
        let unknown = || Error::invalid(format!("node {} has no provider ID yet", self.node));
        self.target.as_deref().ok_or_else(unknown)
    }
}

/// A route that exists in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRoute {
    /// The cloud's name for it.
    pub name: String,
    /// The Node that the route leads to, if the cloud or the route's name says.
    pub node: Option<String>,
    /// The provider ID of the instance that the route leads to, if the cloud says.
    pub target: Option<String>,
    /// The next hops that the cloud reports.
    pub addresses: Vec<Address>,
    /// The CIDR whose traffic the route carries.
    pub destination: String,
    /// The UID of the cluster that the route is labeled with, if any: all of it, or its beginning as in
    /// [`OwnedLoadBalancer`](crate::OwnedLoadBalancer). See [`labels::route_cluster`](crate::labels::route_cluster). A route
    /// of another cluster is left alone.
    pub cluster_uid: Option<String>,
    /// Whether the route leads nowhere, for example because its instance was removed.
    pub blackhole: bool,
    /// What is needed to delete exactly this route, such as an ETag. See [`Extra`].
    pub extra: Extra,
}

/// What to do about one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// Delete it, as it was listed.
    Delete(ListedRoute),
    /// Create it.
    Create(Route),
}

/// An action, and the provider's note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// What to do.
    pub action: RouteAction,
    /// `resume` of the last [`RouteProgress::InProgress`] about the same route. A hint that may be lost at any time.
    pub resume: Option<String>,
    /// See [`Extra`].
    pub extra: Extra,
}

/// How far a change has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteProgress {
    /// The change is complete.
    Done,
    /// The cloud has begun, or the provider could not begin before the soft deadline.
    InProgress(InProgress),
    /// The provider needs no route: the Node's traffic reaches it without one. The host counts the route as present,
    /// and asks again when the Node changes.
    Elsewhere,
}

/// The outcome of a change: how far it has come, or why it failed.
pub type RouteOutcome = Result<RouteProgress, Error>;

impl From<InProgress> for RouteProgress {
    fn from(progress: InProgress) -> Self {
        Self::InProgress(progress)
    }
}

/// A provider that changes routes.
pub trait Routes: Provider {
    /// Lists all routes in the table that the cluster uses, also those of other owners.
    fn list_routes(&self, cluster: &Cluster) -> impl Future<Output = Result<Vec<ListedRoute>, Error>>;

    /// Creates a route. Creating what exists already succeeds.
    fn create_route(
        &self,
        cluster: &Cluster,
        route: &Route,
        resume: Option<&str>,
    ) -> impl Future<Output = RouteOutcome>;

    /// Deletes a route as it was listed. Deleting what is gone succeeds.
    fn delete_route(
        &self,
        cluster: &Cluster,
        route: &ListedRoute,
        resume: Option<&str>,
    ) -> impl Future<Output = RouteOutcome>;

    /// Makes changes: one outcome each, in the same order. Deletions come before creations, because a CIDR may move from
    /// one Node to another. The default is [`change_each_route`]; override it if one write makes many changes.
    fn change_routes(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> impl Future<Output = Result<Vec<RouteOutcome>, Error>> {
        async move { Ok(change_each_route(self, cluster, changes).await) }
    }
}

/// Makes each change by itself, many concurrently: all deletions, and then all creations. Once the soft deadline of the
/// call has passed, it answers `in-progress` for the rest.
pub async fn change_each_route<P: Routes>(
    provider: &P,
    cluster: &Cluster,
    changes: &[RouteChange],
) -> Vec<RouteOutcome> {
    let change = async |change: &RouteChange| {
        let resume = change.resume.as_deref();
        match &change.action {
            _ if deadline::has_passed() => Err(Error::deadline("a route")),
            RouteAction::Delete(route) => provider.delete_route(cluster, route, resume).await,
            RouteAction::Create(route) => provider.create_route(cluster, route, resume).await,
        }
    };
    let is_removal = |change: &RouteChange| matches!(change.action, RouteAction::Delete(_));
    map_removals_first(changes, is_removal, change).await
}

/// Makes the changes one after the other, for a cloud that locks all routes while it changes one: first those that wait for
/// the cloud, then deletions, then creations. Once a change is in progress, it answers `in-progress` for the rest, without a
/// request.
pub async fn change_routes_in_turn<P: Routes>(
    provider: &P,
    cluster: &Cluster,
    changes: &[RouteChange],
) -> Vec<RouteOutcome> {
    let order = |change: &RouteChange| match (&change.resume, &change.action) {
        (Some(_), _) => 0,
        (None, RouteAction::Delete(_)) => 1,
        (None, RouteAction::Create(_)) => 2,
    };
    let mut rows: Vec<_> = changes.iter().enumerate().collect();
    rows.sort_by_key(|(_, change)| order(change));
    let (mut outcomes, mut is_locked) = (Vec::new(), false);
    for (row, change) in rows {
        let outcome = if is_locked {
            Ok(InProgress::soon().into())
        } else {
            change_each_route(provider, cluster, std::slice::from_ref(change)).await.remove(0)
        };
        is_locked |= matches!(outcome, Ok(RouteProgress::InProgress(_)));
        outcomes.push((row, outcome));
    }
    outcomes.sort_by_key(|(row, _)| *row);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}
