//! What the reconciler wants done, as values, and what it reports.

use std::collections::HashMap;
use std::sync::Arc;

use pileus_cloud::{Ingress, OwnedLoadBalancer, Service, ServiceChange};

use super::targets::Targets;
use super::work_queue::Priority;
use crate::events::Reason;
use crate::facts::service::ServiceFacts;

/// The object of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// The Service of this UID.
    Service(String),
    /// Something in the cloud whose Service is gone: the cloud's name for it.
    Orphan(String),
}

/// A piece of work. Until its result is reported to the reconciler, no other work on the same object begins.
#[derive(Debug)]
pub(super) enum Work {
    /// Write to a Service, then call [`super::reconciler::Reconciler::on_write_result`].
    Write {
        /// The Service as it was when the write was decided on.
        facts: Arc<ServiceFacts>,
        /// What to write.
        write: Write,
    },
    /// Call the provider, then call [`super::reconciler::Reconciler::on_call_result`].
    Call(Call),
    /// List what the cloud has for Services, then call [`super::reconciler::Reconciler::on_list_result`].
    ListOwned,
}

/// A write to a Service's status resource, which takes changes of finalizers and annotations as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// Add the finalizer, with this mark of the provider: see `scope.rs`.
    AddFinalizer(Option<String>),
    /// Replace the ingress list of the status.
    SetStatus(Vec<Ingress>),
    /// Set these annotations, or remove those with `None`. All others stay.
    SetAnnotations(Vec<(String, Option<String>)>),
    /// Remove the finalizer with the mark, and the ingress list of the status, in one write.
    Finish,
    /// Remove the finalizer with the mark. The status stays, since another controller may have written it.
    Release,
}

/// One call of `change`.
#[derive(Debug)]
pub(super) struct Call {
    /// The objects of the changes, in the same order.
    pub(super) keys: Vec<Key>,
    /// See [`pileus_cloud::ServiceCall::changes`].
    pub(super) changes: Vec<ServiceChange>,
    /// See [`pileus_cloud::ServiceCall::known`].
    pub(super) known: Vec<Service>,
    /// The targets of this call.
    pub(super) targets: Arc<Targets>,
    /// See [`pileus_cloud::ServiceCall::is_audit`].
    pub(super) is_audit: bool,
    /// The priority that it was taken from the queue with.
    pub(super) priority: Priority,
}

/// What the cloud has for Services, and which Services exist.
#[derive(Debug)]
pub(super) struct Listing {
    /// The provider's answer to `list-owned`.
    pub(super) owned: Vec<OwnedLoadBalancer>,
    /// The cluster's Services of all types, by UID, as `namespace/name`: from a read of the API server that began after that
    /// answer.
    pub(super) present: HashMap<String, String>,
}

/// What a listing has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListingReport {
    /// Services, as `namespace/name`, for which the cloud has something although this process doesn't know them. They have
    /// to be read and observed, whichever type they have.
    pub(super) unknown: Vec<String>,
    /// How many objects have our cluster's UID and the UID of a Service that is gone. They are being removed.
    pub(super) orphans: usize,
    /// How many objects name no cluster or no Service of this cluster for certain. They stay.
    pub(super) unattributed: usize,
    /// Those of them that no earlier listing had, by the cloud's names.
    pub(super) new_unattributed: Vec<String>,
    /// How many objects have our cluster's UID and that of a live Service that belongs to another provider or controller. They
    /// stay as long as that is so.
    pub(super) class_conflicts: usize,
    /// Those of these Services that no earlier listing named, as `namespace/name`, and whose they are, in words.
    pub(super) new_class_conflicts: Vec<(String, String)>,
}

/// An event about a Service that waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingEvent {
    /// The Service.
    pub(super) facts: Arc<ServiceFacts>,
    /// The event's reason.
    pub(super) reason: Reason,
    /// The event's text.
    pub(super) note: String,
}

/// How many Services are in which state, for the gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// Services that want a load balancer of ours.
    pub(super) wanted: usize,
    /// Those of them that have it as they want it, as far as is known.
    pub(super) settled: usize,
    /// Services whose load balancer is to be deleted.
    pub(super) leaving: usize,
}
