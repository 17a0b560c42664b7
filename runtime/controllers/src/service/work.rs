//! What the reconciler wants to be done, as values, and what it tells.

use std::collections::HashMap;
use std::sync::Arc;

use pileus_cloud::{Ingress, OwnedLoadBalancer, Service, ServiceChange};

use super::targets::Targets;
use super::work_queue::Priority;
use crate::events::Reason;
use crate::facts::service::ServiceFacts;

/// Something that is worked on, told apart from others of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// The Service of this UID.
    Service(String),
    /// Something in the cloud of a Service that is gone: the cloud's name for it.
    Orphan(String),
}

/// A piece of work. What it is about is busy until the reconciler is told what became of it.
#[derive(Debug)]
pub(super) enum Work {
    /// Write to a Service: then [`super::reconciler::Reconciler::on_write_result`].
    Write {
        /// The Service as the write was decided on.
        facts: Arc<ServiceFacts>,
        /// What to write.
        write: Write,
    },
    /// Call the provider: then [`super::reconciler::Reconciler::on_call_result`].
    Call(Call),
    /// List what the cloud has for Services: then [`super::reconciler::Reconciler::on_list_result`].
    ListOwned,
}

/// A write to a Service's status resource, by which the finalizer can be changed as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// Add the finalizer.
    AddFinalizer,
    /// Replace the ways in.
    Status(Vec<Ingress>),
    /// Remove the finalizer and all ways in, in one write.
    Finish,
    /// Remove the finalizer, and leave the ways in to whose they are by now.
    Release,
}

/// One call of `change`.
#[derive(Debug)]
pub(super) struct Call {
    /// What the changes are about, one key each, in their order.
    pub(super) keys: Vec<Key>,
    /// See [`pileus_cloud::ServiceCall::changes`].
    pub(super) changes: Vec<ServiceChange>,
    /// See [`pileus_cloud::ServiceCall::known`].
    pub(super) known: Vec<Service>,
    /// The targets of this call.
    pub(super) targets: Arc<Targets>,
    /// See [`pileus_cloud::ServiceCall::is_audit`].
    pub(super) is_audit: bool,
    /// Among what it was.
    pub(super) priority: Priority,
}

/// What the cloud has for Services, and which Services there are.
#[derive(Debug)]
pub(super) struct Listing {
    /// What `list-owned` answered.
    pub(super) owned: Vec<OwnedLoadBalancer>,
    /// The Services of the cluster of all types, by UID, as `namespace/name`: from a read of the API server that began
    /// after that answer.
    pub(super) present: HashMap<String, String>,
}

/// What a listing has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListingReport {
    /// Services, as `namespace/name`, of which the cloud has something although nothing is known of them here: they have to
    /// be read and observed, whatever they look like.
    pub(super) unknown: Vec<String>,
    /// What bears our cluster's UID and a UID that no Service has any more. It is being removed.
    pub(super) orphans: usize,
    /// What can't be told to be ours or somebody else's, by the cloud's names. It stays.
    pub(super) unattributed: usize,
    /// Those of them that no earlier listing had.
    pub(super) new_unattributed: Vec<String>,
    /// What bears our cluster's UID and that of a live Service of a class that isn't ours. It stays as long as that is so.
    pub(super) class_conflicts: usize,
    /// Those of these Services that no earlier listing told of, as `namespace/name`, and their classes.
    pub(super) new_class_conflicts: Vec<(String, String)>,
}

/// Something to tell about a Service, as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingEvent {
    /// The Service.
    pub(super) facts: Arc<ServiceFacts>,
    /// Why.
    pub(super) reason: Reason,
    /// What.
    pub(super) note: String,
}

/// What has become of Services, for the shell's gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Services that want a load balancer of ours.
    pub(super) wanted: usize,
    /// Those of them that have it as they want it, as far as is known.
    pub(super) settled: usize,
    /// Services whose load balancer is to be deleted.
    pub(super) leaving: usize,
}
