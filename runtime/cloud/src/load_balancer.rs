//! Load balancers of Services, and the trait through which controllers change and list them.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Address, Cluster, Error, Ingress, Notice, ProviderId, Service};

/// A Node that may receive traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The Node's name.
    pub node: String,
    /// The Node's UID.
    pub uid: String,
    /// The provider ID of the Node's instance.
    pub provider_id: ProviderId,
    /// The Node's addresses.
    pub addresses: Vec<Address>,
    /// The Node's zone, if it has one.
    pub zone: Option<String>,
    /// The Node labels that the provider reads.
    pub labels: Vec<(String, String)>,
}

/// A load balancer, or a part of a shared one, that the cloud says was created for a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedLoadBalancer {
    /// The UID of the cluster that it is labeled with, or its beginning. Without one it is only ever reported, never
    /// removed.
    pub cluster_uid: Option<String>,
    /// The UID of the Service that it is labeled with, or its beginning.
    pub service_uid: Option<String>,
    /// The Service's namespace and name, for people.
    pub service: Option<(String, String)>,
    /// The cloud's name for it, for people.
    pub name: String,
    /// What the provider needs to find exactly this object again.
    pub extra: Vec<(String, String)>,
}

/// What to do for one Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAction {
    /// Make the load balancer match the Service. Changes nothing if it already does.
    Ensure(Service),
    /// Update the targets: nothing else has changed since the last `Ensure`.
    UpdateTargets(Service),
    /// Remove everything that was created for the Service. Carries the last known Service, without targets and
    /// endpoints. Removing what is gone succeeds.
    Delete(Service),
    /// Remove an object that was listed for this cluster and for a Service that is gone. Removing what is gone succeeds.
    RemoveOrphan(OwnedLoadBalancer),
}

impl ServiceAction {
    /// Whether nothing is to be left in the cloud.
    pub fn is_removal(&self) -> bool {
        matches!(self, Self::Delete(_) | Self::RemoveOrphan(_))
    }
}

/// An action, and the provider's note from its last [`ServiceProgress::InProgress`] about the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceChange {
    /// What to do.
    pub action: ServiceAction,
    /// A hint of up to 4 KiB that may be lost at any time.
    pub resume: Option<String>,
}

/// How far a change has come, unless it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceProgress {
    /// The change is complete.
    Done {
        /// The Service's ingress. Empty after a deletion.
        status: Vec<Ingress>,
        /// What to tell the Service's user.
        notices: Vec<Notice>,
        /// Annotations to set on the Service, or to remove with `None`.
        annotations: Vec<(String, Option<String>)>,
    },
    /// The cloud has begun, or the provider could not begin before its deadline. Ask again later, with the same note.
    InProgress {
        /// When to ask again.
        after: Duration,
        /// The note for the next call about the same object.
        resume: Option<String>,
        /// The ingress that works already. `None` leaves the Service's status as it is.
        status: Option<Vec<Ingress>>,
        /// What to tell the Service's user, each once.
        notices: Vec<Notice>,
        /// As in [`ServiceProgress::Done`].
        annotations: Vec<(String, Option<String>)>,
    },
    /// Another controller serves the Service.
    Elsewhere,
}

impl ServiceProgress {
    /// A complete change without notices or annotations.
    pub fn done(status: Vec<Ingress>) -> Self {
        Self::Done { status, notices: Vec::new(), annotations: Vec::new() }
    }

    /// A change that goes on, with nothing to tell yet.
    pub fn in_progress(after: Duration, resume: Option<String>) -> Self {
        Self::InProgress { after, resume, status: None, notices: Vec::new(), annotations: Vec::new() }
    }
}

/// One call of [`LoadBalancers::change`].
#[derive(Debug, Clone, Copy)]
pub struct ServiceCall<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The Nodes that may receive traffic at present.
    pub targets: &'a [Target],
    /// The other Services of the cluster that may have a load balancer and keep it, as the provider last received them,
    /// if it asked for them. What a shared object holds for a Service that is neither known nor changed stays as it is.
    pub known: &'a [Service],
    /// What to do.
    pub changes: &'a [ServiceChange],
    /// Whether the call only checks that everything is still as it was. No user waits for it, so all other calls go
    /// first.
    pub is_audit: bool,
}

/// Changes and lists load balancers.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Makes changes, all that are due in one call.
    ///
    /// # Guarantees
    /// On success the list has exactly one outcome for each change, in the same order. A change that fails doesn't
    /// affect the others. Dropping the future doesn't undo what has begun.
    ///
    /// # Errors
    /// The outer error says that the provider could not consider any change.
    async fn change(&self, call: ServiceCall<'_>) -> Result<Vec<Result<ServiceProgress, Error>>, Error>;

    /// Lists what the cloud has for Services of this cluster, and for Services whose cluster can't be told. The list
    /// comes from a complete read. Changes nothing.
    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error>;
}
