//! What the reconciler wants done, as calls of the provider and of the API server.
//!
//! Each call of the provider is a task of its own: one that panics, computes for long or never answers holds up nothing but
//! what it is about, and that not for ever.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Error as CloudError, ErrorKind, LoadBalancers, OwnedLoadBalancer, Retry, ServiceCall, ServiceProgress,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span, info_span};

use super::Controller;
use super::work::{Call, Key, Listing, ListingReport, Write};
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::schedule::Delays;

/// How long a call is waited for. Longer than one takes that fails and is repeated in parts, as often as that is done (32
/// times, a minute each).
pub(super) const PATIENCE: Duration = Duration::from_mins(45);

/// How many names a line of the log has.
const NAMED: usize = 10;

/// The outcomes of a call, or why there are none.
pub(super) type Outcomes = Result<Vec<Result<ServiceProgress, CloudError>>, CloudError>;

/// Work that has come to its end.
pub(super) enum Finished {
    /// A call.
    Call(Arc<Call>, Outcomes),
    /// A listing.
    Listing(Result<Listing, Retry>),
    /// A read of Services.
    Read(Read),
}

/// What a read of Services has shown, by `namespace/name`.
#[derive(Default)]
pub(super) struct Read {
    /// Those that are there.
    pub(super) found: Vec<Arc<ServiceFacts>>,
    /// The names that none has.
    pub(super) gone: Vec<String>,
    /// Those of which nothing is known: they have to be read again.
    pub(super) failed: BTreeSet<String>,
}

impl Controller {
    /// Makes a call.
    pub(super) async fn call(self: Arc<Self>, call: Call) -> Finished {
        let call = Arc::new(call);
        let (made, cluster) = (Arc::clone(&call), self.settings.cluster.clone());
        let started = Instant::now();
        let (priority, changes) = (call.priority.as_str(), call.changes.len());
        // What the provider and the gate say about this call says so in its span.
        let span = info_span!("reconcile", controller = "service", priority, changes);
        span.in_scope(|| tracing::debug!("changing load balancers"));
        let outcomes = answer(Arc::clone(&self.load_balancers), span, async move |load_balancers| {
            let Call { keys: _, changes, known, targets, is_audit, priority: _ } = &*made;
            let (targets, is_audit) = (targets.table(), *is_audit);
            load_balancers.change(ServiceCall { cluster: &cluster, targets, known, changes, is_audit }).await
        });
        let outcomes = outcomes.await.and_then(|outcomes| aligned(outcomes, changes));
        self.metrics.service.called(&call.changes, &outcomes, started.elapsed());
        say_failures(&call, &outcomes);
        Finished::Call(call, outcomes)
    }

    /// Lists what the cloud has, and then which Services there are, as far as that isn't known: a Service that is made
    /// meanwhile must not be taken for one that is gone.
    pub(super) async fn list(self: Arc<Self>) -> Finished {
        let cluster = self.settings.cluster.clone();
        let list =
            async move |load_balancers: Arc<dyn LoadBalancers>| load_balancers.list_owned(&cluster).await;
        let span = info_span!("reconcile", controller = "service", priority = "list");
        let owned = answer(Arc::clone(&self.load_balancers), span, list).await;
        self.metrics.service.listed(owned.as_ref().err());
        let owned = match owned {
            Ok(owned) => owned,
            Err(error) => {
                tracing::warn!(provider = %self.provider.name, "what the cloud has for services can't be listed: {error}");
                return Finished::Listing(Err(error.kind.retry()));
            }
        };
        let known = self.services.known();
        let is_known =
            |owned: &OwnedLoadBalancer| owned.service_uid.as_ref().is_none_or(|uid| known.contains_key(uid));
        let ours = owned.iter().filter(|owned| owned.cluster_uid == self.settings.cluster.uid);
        if ours.into_iter().all(is_known) {
            return Finished::Listing(Ok(Listing { owned, present: known }));
        }
        match self.present().await {
            Ok(present) => Finished::Listing(Ok(Listing { owned, present })),
            Err(error) => {
                tracing::warn!(
                    "services can't be listed, so that nothing in the cloud is known to have none: {error}"
                );
                Finished::Listing(Err(error.retry()))
            }
        }
    }

    /// Counts what a listing has shown, and logs what is new.
    pub(super) fn report(&self, report: &ListingReport) {
        self.metrics.service.orphans(report);
        if report.orphans > 0 {
            tracing::info!(count = report.orphans, "removing what the cloud has for services that are gone");
        }
        let unattributed = &report.new_unattributed;
        if !unattributed.is_empty() {
            let (count, names) = (unattributed.len(), unattributed.get(..NAMED).unwrap_or(unattributed));
            tracing::warn!(
                count,
                ?names,
                "the cloud has these for services, but not of this cluster, or can't tell of which; they stay"
            );
        }
        let class_conflicts = &report.new_class_conflicts;
        if !class_conflicts.is_empty() {
            let named =
                class_conflicts.iter().take(NAMED).map(|(name, class)| format!("{name} of class {class}"));
            let (count, services) = (class_conflicts.len(), named.collect::<Vec<_>>());
            tracing::warn!(
                count,
                ?services,
                "the cloud has load balancers of this cluster for these services, but their class is not ours; they stay: \
                 name the class in loadBalancerClasses, or delete the service"
            );
        }
    }

    async fn present(&self) -> Result<HashMap<String, String>, Error> {
        self.services.confirm_cluster(self.settings.cluster.uid.as_deref()).await?;
        self.services.present().await
    }

    /// Reads Services, after so many reads that failed.
    pub(super) async fn read(self: Arc<Self>, names: BTreeSet<String>, failed: u32) -> Finished {
        if failed > 0 {
            sleep(Delays::default().after(Retry::WithBackoff, failed, (self.jitter)())).await;
        }
        let mut read = Read::default();
        let mut why = self.services.confirm_cluster(self.settings.cluster.uid.as_deref()).await.err();
        let is_unsure = why.is_some();
        for name in names {
            // Where there is no answer, there is none for the next either.
            if is_unsure || matches!(why, Some(Error::Unavailable(_))) {
                read.failed.insert(name);
                continue;
            }
            match self.services.read(&name).await {
                Ok(Some(facts)) => read.found.push(facts),
                Ok(None) => read.gone.push(name),
                Err(error) => {
                    why = Some(error);
                    read.failed.insert(name);
                }
            }
        }
        if let Some(error) = why {
            let count = read.failed.len();
            tracing::warn!(
                count,
                "services can't be read, although the cloud has something of them: {error}"
            );
        }
        Finished::Read(read)
    }

    /// Writes to a Service. Its UID, and what became of it.
    pub(super) async fn write(
        self: Arc<Self>,
        facts: Arc<ServiceFacts>,
        write: Write,
    ) -> (String, Result<Arc<ServiceFacts>, Error>) {
        let (action, patch) = (write.as_str(), write.patch(&facts));
        let written = self.services.patch(&facts, action, patch, |facts| write.shows(facts)).await;
        (facts.service.uid.clone(), written)
    }
}

/// What a provider answers, asked by a task of its own.
async fn answer<T: Send + 'static, F: Future<Output = Result<T, CloudError>> + Send + 'static>(
    load_balancers: Arc<dyn LoadBalancers>,
    span: Span,
    ask: impl FnOnce(Arc<dyn LoadBalancers>) -> F,
) -> Result<T, CloudError> {
    let task = AbortOnDropHandle::new(tokio::spawn(ask(load_balancers).instrument(span)));
    match timeout(PATIENCE, task).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => {
            Err(CloudError::new(ErrorKind::Broken, format!("the call came to no end: {panic}")))
        }
        Err(_elapsed) => {
            let message =
                format!("the call has not come to its end within {} minutes", PATIENCE.as_secs() / 60);
            Err(CloudError::new(ErrorKind::Unavailable, message))
        }
    }
}

/// As many outcomes as there are changes, or none.
fn aligned<T>(outcomes: Vec<T>, changes: usize) -> Result<Vec<T>, CloudError> {
    if outcomes.len() == changes {
        return Ok(outcomes);
    }
    let message = format!("{} outcomes for {changes} changes", outcomes.len());
    Err(CloudError::new(ErrorKind::Broken, message))
}

/// What is worth telling of Services is told as events, and logged with them, so that here it is for whoever looks closely.
/// Of orphans nobody else tells.
fn say_failures(call: &Call, outcomes: &Outcomes) {
    let failed: Vec<_> = match outcomes {
        Err(error) => call.keys.iter().map(|key| (key, error)).collect(),
        Ok(outcomes) => {
            let outcomes = call.keys.iter().zip(outcomes);
            outcomes.filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?))).collect()
        }
    };
    if let Some((_, error)) = failed.first() {
        let (failed, of, priority) = (failed.len(), call.keys.len(), call.priority.as_str());
        tracing::debug!(failed, of, priority, "load balancers not changed; the first since: {error}");
    }
    let orphan = failed.iter().find_map(|(key, error)| match key {
        Key::Orphan(name) => Some((name, error)),
        Key::Service(_) => None,
    });
    if let Some((name, error)) = orphan {
        tracing::warn!(%name, "what the cloud has for a service that is gone can't be removed: {error}");
    }
}
