//! Does what the reconciler wants done: calls of the provider and of the API server, and events.
//!
//! Each call of the provider is a task of its own. One that panics, computes for long or never answers delays only the
//! Services that it is about, and those not forever.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Error as CloudError, ErrorKind, LoadBalancers, OwnedLoadBalancer, Provider, Retry, ServiceCall,
    ServiceProgress,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span, info_span};

use super::Controller;
use super::orphans::is_of_cluster;
use super::screening::screened;
use super::targets::Targets;
use super::work::{Call, Key, Listing, ListingReport, PendingEvent, Write};
use crate::answers::aligned;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::nodes;
use crate::schedule::Backoff;
use crate::services::UidIndex;

/// How long the first targets wait for the cloud to confirm the instances of the Nodes. With a cloud that doesn't answer, all
/// Nodes of the first list count after that.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The most names in one log line.
const MAX_NAMES: usize = 10;

/// The outcome of each change of a call, or an error for all of them.
pub(super) type Outcomes = Result<Vec<Result<ServiceProgress, CloudError>>, CloudError>;

/// The result of a write to a Service: its UID, and the Service as it is since then.
pub(super) type WriteResult = (String, Result<Arc<ServiceFacts>, Error>);

/// A call or a read that has ended.
pub(super) enum Finished {
    /// A call.
    Call(Arc<Call>, Outcomes),
    /// A list of what the cloud has, or how to retry it.
    List(Result<Listing, Retry>),
    /// A read of Services.
    Read(Read),
}

/// What a read of Services has shown, by `namespace/name`.
#[derive(Default)]
pub(super) struct Read {
    /// The Services that exist.
    pub(super) found: Vec<Arc<ServiceFacts>>,
    /// The names without a Service.
    pub(super) gone: Vec<String>,
    /// The names that couldn't be read, and have to be read again.
    pub(super) failed: BTreeSet<String>,
}

impl Controller {
    /// Waits until the cloud has said which Nodes have an instance, as far as it answers in time.
    pub(super) async fn await_confirmations(&self) {
        let confirmations = self.nodes.confirmations(&self.provider.name);
        if timeout(CONFIRMATION_TIMEOUT, confirmations.first_answers()).await.is_err() {
            tracing::warn!(
                "the instances of some nodes are not confirmed yet; load balancers keep these nodes"
            );
        }
    }

    /// The provider's targets among the Nodes as they are now; none where the Nodes aren't known.
    pub(super) fn targets(&self) -> Option<Arc<Targets>> {
        let Provider { name, node_labels, .. } = &self.provider;
        let nodes = self.nodes.all(name)?;
        let unconfirmed = self.nodes.confirmations(name).unusable(nodes.iter().map(|node| &**node));
        Some(Arc::new(Targets::of_confirmed(&nodes, unconfirmed, name, node_labels)))
    }

    /// Whether a change of a Node changes these targets.
    pub(super) fn is_change(&self, targets: Option<&Targets>, change: &nodes::Change) -> bool {
        let Provider { name, node_labels, .. } = &self.provider;
        targets.is_none_or(|targets| targets.are_changed_by(change, name, node_labels))
    }

    /// Calls the provider to change load balancers.
    pub(super) async fn call(self: Arc<Self>, call: Call) -> Finished {
        let call = Arc::new(call);
        let (made, cluster) = (Arc::clone(&call), self.settings.cluster.clone());
        let started = Instant::now();
        let (priority, changes) = (call.priority.as_str(), call.changes.len());
        // What the provider and the gate log about this call is in this span.
        let span = info_span!("reconcile", controller = "service", priority, changes);
        span.in_scope(|| tracing::debug!("changing load balancers"));
        let limit = self.provider.service_requirements.longest_call;
        let outcomes = answer(Arc::clone(&self.load_balancers), limit, span, async move |load_balancers| {
            let Call { keys: _, changes, known, targets, is_audit, priority: _ } = &*made;
            let (targets, is_audit) = (targets.table(), *is_audit);
            load_balancers.change(ServiceCall { cluster: &cluster, targets, known, changes, is_audit }).await
        });
        let outcomes = aligned(outcomes.await, changes).map(|outcomes| self.screen(outcomes));
        self.metrics.service.count_call(&call.changes, &outcomes, started.elapsed());
        log_failures(&call, &outcomes);
        Finished::Call(call, outcomes)
    }

    /// Leaves out what a provider must not report for a Service.
    fn screen(
        &self,
        outcomes: Vec<Result<ServiceProgress, CloudError>>,
    ) -> Vec<Result<ServiceProgress, CloudError>> {
        let owner = |ip| self.addresses.owner(ip);
        let requirements = &self.provider.service_requirements;
        outcomes.into_iter().map(|outcome| outcome.and_then(|it| screened(it, requirements, owner))).collect()
    }

    /// Lists what the cloud has, and then the cluster's Services where the list names one that isn't known. In that order: a
    /// Service that is created meanwhile must not count as gone.
    pub(super) async fn list(self: Arc<Self>) -> Finished {
        let cluster = self.settings.cluster.clone();
        let list =
            async move |load_balancers: Arc<dyn LoadBalancers>| load_balancers.list_owned(&cluster).await;
        let span = info_span!("reconcile", controller = "service", priority = "list");
        let limit = self.provider.service_requirements.longest_call;
        let owned = answer(Arc::clone(&self.load_balancers), limit, span, list).await;
        self.metrics.service.count_list(owned.as_ref().err());
        let owned = match owned {
            Ok(owned) => owned,
            Err(error) => {
                tracing::warn!(provider = %self.provider.name, %error, "load balancers not listed, will retry");
                return Finished::List(Err(error.kind.retry()));
            }
        };
        let known = self.services.known();
        let uids: UidIndex<'_> = known.keys().map(String::as_str).collect();
        let is_known = |owned: &OwnedLoadBalancer| {
            owned.service_uid.as_ref().is_none_or(|mark| uids.meant_by(mark).next().is_some())
        };
        let cluster = self.settings.cluster.uid.as_deref();
        if owned.iter().filter(|owned| is_of_cluster(owned, cluster)).all(is_known) {
            return Finished::List(Ok(Listing { owned, present: known }));
        }
        match self.present().await {
            Ok(present) => Finished::List(Ok(Listing { owned, present })),
            Err(error) => {
                tracing::warn!(%error, "services not listed, no orphan removed, will retry");
                Finished::List(Err(error.retry()))
            }
        }
    }

    /// Sends events, and logs one line for all failures among them: with the cloud unavailable, all of a thousand load
    /// balancers fail.
    pub(super) fn send_events(&self, events: Vec<PendingEvent>) {
        let (mut failed, mut first) = (0_usize, None);
        for PendingEvent { facts, reason, note } in events {
            tracing::debug!(service = %facts.key(), ?reason, note, "event");
            if reason.is_failure() {
                failed += 1;
                first.get_or_insert_with(|| (facts.key(), note.clone()));
            }
            self.events.record_for_service(&facts, reason, note);
        }
        if let Some((service, note)) = first {
            tracing::warn!(failed, first = %service, note, "load balancers not reconciled, will retry");
        }
    }

    /// Counts what a list has shown, and logs what is new.
    pub(super) fn report(&self, report: &ListingReport) {
        self.metrics.service.set_orphans(report);
        if report.orphans > 0 {
            tracing::info!(count = report.orphans, "removing load balancers of services that are gone");
        }
        let unattributed = &report.new_unattributed;
        if !unattributed.is_empty() {
            let (count, names) = (unattributed.len(), unattributed.get(..MAX_NAMES).unwrap_or(unattributed));
            tracing::warn!(
                count,
                ?names,
                "load balancers kept that name no service of this cluster: if they are unused, delete them in the cloud"
            );
        }
        let conflicts = &report.new_class_conflicts;
        if !conflicts.is_empty() {
            let named = conflicts.iter().take(MAX_NAMES);
            let services = named.map(|(name, owner)| format!("{name} ({owner})")).collect::<Vec<_>>();
            tracing::warn!(
                count = conflicts.len(),
                ?services,
                "load balancers of this cluster kept whose services belong to another provider or controller by now: delete them in \
                 the cloud, add the class to loadBalancerClasses, or delete the service"
            );
        }
    }

    async fn present(&self) -> Result<HashMap<String, String>, Error> {
        self.services.confirm_cluster(self.settings.cluster.uid.as_deref()).await?;
        self.services.present().await
    }

    /// Reads Services by name, after a delay that grows with the reads that have failed in a row.
    pub(super) async fn read(self: Arc<Self>, names: BTreeSet<String>, failed: u32) -> Finished {
        if failed > 0 {
            sleep(Backoff::default().delay(Retry::WithBackoff, failed, (self.jitter)())).await;
        }
        let mut read = Read::default();
        let mut error = self.services.confirm_cluster(self.settings.cluster.uid.as_deref()).await.err();
        let is_unconfirmed = error.is_some();
        for name in names {
            // With the API server unavailable, the next read would fail as well.
            if is_unconfirmed || matches!(error, Some(Error::Unavailable(_))) {
                read.failed.insert(name);
                continue;
            }
            match self.services.read(&name).await {
                Ok(Some(facts)) => read.found.push(facts),
                Ok(None) => read.gone.push(name),
                Err(problem) => {
                    error = Some(problem);
                    read.failed.insert(name);
                }
            }
        }
        if let Some(error) = error {
            let count = read.failed.len();
            tracing::warn!(count, %error, "services with load balancers not read, will retry");
        }
        Finished::Read(read)
    }

    /// Writes to a Service.
    pub(super) async fn write(self: Arc<Self>, facts: Arc<ServiceFacts>, write: Write) -> WriteResult {
        let (action, patch) = (write.as_str(), write.patch(&facts));
        let written = self.services.patch(&facts, action, patch, |facts| write.shows(facts)).await;
        (facts.service.uid.clone(), written)
    }
}

/// The answer of a provider that is called in a task of its own.
async fn answer<T: Send + 'static, F: Future<Output = Result<T, CloudError>> + Send + 'static>(
    load_balancers: Arc<dyn LoadBalancers>,
    limit: Duration,
    span: Span,
    call: impl FnOnce(Arc<dyn LoadBalancers>) -> F,
) -> Result<T, CloudError> {
    let task = AbortOnDropHandle::new(tokio::spawn(call(load_balancers).instrument(span)));
    match timeout(limit, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(CloudError::new(ErrorKind::Broken, format!("the call was aborted: {panic}"))),
        Err(_elapsed) => {
            let message = format!("the call did not end within {} s", limit.as_secs());
            Err(CloudError::new(ErrorKind::Unavailable(None), message))
        }
    }
}

/// Logs the failures of a call for debugging: those of Services are events, and logged with those. Orphans have no object to
/// record an event on, so theirs are warnings.
fn log_failures(call: &Call, outcomes: &Outcomes) {
    let failed: Vec<_> = match outcomes {
        Err(error) => call.keys.iter().map(|key| (key, error)).collect(),
        Ok(outcomes) => {
            let outcomes = call.keys.iter().zip(outcomes);
            outcomes.filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?))).collect()
        }
    };
    if let Some((_, error)) = failed.first() {
        let (failed, of, priority) = (failed.len(), call.keys.len(), call.priority.as_str());
        tracing::debug!(failed, of, priority, first_error = %error, "load balancers not changed");
    }
    let orphan = failed.iter().find_map(|(key, error)| match key {
        Key::Orphan(name) => Some((name, error)),
        Key::Service(_) => None,
    });
    if let Some((name, error)) = orphan {
        tracing::warn!(%name, %error, "load balancer of a service that is gone not removed, will retry");
    }
}
