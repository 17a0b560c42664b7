//! The capability `routes`: the cloud's routes, which carry the traffic of Pods to their Nodes. An author lists them, and
//! creates and deletes one at a time, or takes all changes of a call where they are one write.

use crate::{Address, Error, Extra, InProgress, Outcome, Outcomes, Provider, deadline, removals_first};

/// The cluster that a call is for. Stored on what is created, where the cloud can: clusters that share an account are
/// told apart by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The name from `--cluster-name`. Many clusters carry the default, so it can't tell them apart.
    pub name: String,
    /// The UID of the namespace kube-system, which no two clusters share; none where it can't be read yet.
    pub uid: Option<String>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Cluster {
    /// The UID, for a cloud where something is named by it.
    ///
    /// # Errors
    ///
    /// `unavailable` while it is unknown.
    pub fn known_uid(&self) -> Result<&str, Error> {
        let unknown = || {
            Error::unavailable("the cluster's UID isn't known yet, by which is named what its Services share")
        };
        self.uid.as_deref().ok_or_else(unknown)
    }
}

/// A route that should exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// A name that is unique among the cluster's routes, for clouds where routes have names.
    pub name_hint: String,
    /// The Node that it leads to.
    pub node: String,
    /// The provider ID of the Node's machine.
    pub target: Option<String>,
    /// The Node's addresses, of which the cloud may need one as the next hop.
    pub addresses: Vec<Address>,
    /// The address range that it carries, as in `10.244.3.0/24`.
    pub destination: String,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Route {
    /// The provider ID of the Node's machine, for a cloud whose routes lead to machines.
    ///
    /// # Errors
    ///
    /// `invalid` where the Node has none yet.
    pub fn machine(&self) -> Result<&str, Error> {
        let unknown = || Error::invalid(format!("node {} has no machine yet", self.node));
        self.target.as_deref().ok_or_else(unknown)
    }
}

/// A route that the cloud has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedRoute {
    /// The cloud's name for it.
    pub name: String,
    /// The Node that it leads to, where the cloud or its name tells.
    pub node: Option<String>,
    /// The provider ID of the machine that it leads to, where the cloud tells.
    pub target: Option<String>,
    /// The next hops that the cloud states.
    pub addresses: Vec<Address>,
    /// The address range that it carries.
    pub destination: String,
    /// Whether it leads nowhere, as after its machine was removed.
    pub blackhole: bool,
    /// What is needed to delete exactly this route, an ETag say. See [`Extra`].
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

/// One change, and the provider's own note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// What to do.
    pub action: RouteAction,
    /// `resume` of the last [`Progress::InProgress`] about it: a hint, which may be lost at any time.
    pub resume: Option<String>,
    /// See [`Extra`].
    pub extra: Extra,
}

/// How far a change has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is so.
    Done,
    /// It has begun, or could not begin before the soft deadline.
    InProgress(InProgress),
}

impl From<InProgress> for Progress {
    fn from(progress: InProgress) -> Self {
        Self::InProgress(progress)
    }
}

/// A provider that programs routes.
pub trait Routes: Provider {
    /// Lists the routes in the table that the cluster uses, its own and others.
    fn list_routes(&self, cluster: &Cluster) -> impl Future<Output = Result<Vec<ListedRoute>, Error>>;

    /// Creates a route. Creating what is there already succeeds.
    fn create_route(
        &self,
        cluster: &Cluster,
        route: &Route,
        resume: Option<&str>,
    ) -> impl Future<Output = Outcome<Progress>>;

    /// Deletes a route as it was listed. Deleting what is gone succeeds.
    fn delete_route(
        &self,
        cluster: &Cluster,
        route: &ListedRoute,
        resume: Option<&str>,
    ) -> impl Future<Output = Outcome<Progress>>;

    /// Makes changes: one outcome each, in the same order, the deletions before the creations, as a range may move from
    /// one Node to another. The default is [`change_one_by_one`]; override it where one write makes many changes.
    fn change_routes(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> impl Future<Output = Result<Outcomes<Progress>, Error>> {
        async move { Ok(change_one_by_one(self, cluster, changes).await) }
    }
}

/// Makes each change by itself, many at the same time: all deletions, and then all creations. Once the soft deadline of
/// the call has passed, what is left is answered as under way.
pub async fn change_one_by_one<P: Routes>(
    provider: &P,
    cluster: &Cluster,
    changes: &[RouteChange],
) -> Outcomes<Progress> {
    let change = async |change: &RouteChange| {
        let resume = change.resume.as_deref();
        match &change.action {
            _ if deadline::has_passed() => Err(Error::deadline("a route")),
            RouteAction::Delete(route) => provider.delete_route(cluster, route, resume).await,
            RouteAction::Create(route) => provider.create_route(cluster, route, resume).await,
        }
    };
    let is_removal = |change: &RouteChange| matches!(change.action, RouteAction::Delete(_));
    removals_first(changes, is_removal, change).await
}
