//! The service controller: Services of type LoadBalancer get a load balancer in the cloud, and keep it as they want it.
//!
//! The reconciler decides; it has neither clock nor network. This module brings it Services and Nodes, does the work that it asks
//! for, several pieces concurrently, and reports each result. Nothing here must survive a restart.
//!
//! One Service from the watch to the cloud:
//!
//! | step | where |
//! |---|---|
//! | the watch brings a Service | `services.rs`, `services/changes.rs` |
//! | the store keeps it if it matters, as facts | `services/store.rs`, `facts/service.rs` |
//! | the reconciler observes it | `reconciler.rs` (`observe`), `record.rs` |
//! | what it asks for, of which provider, and whose its load balancer is | `scope.rs`, `ownership.rs` |
//! | the next step, and why | `plan.rs`: here the finalizer is decided on, before anything is made |
//! | writes to the Service: finalizer, status, annotations | `patches.rs`, `write_backoff.rs` |
//! | calls wait by urgency, and go together | `work_queue.rs`, `batch.rs` |
//! | the provider is called, and what of its answer is taken | `apply.rs`, `screening.rs` |
//! | the outcome changes what the cloud is believed to have | `reconciler/outcomes.rs`, `cloud_state.rs`, `recent_intents.rs` |
//! | a target that the cloud refuses is left out | `refusals.rs` |
//! | a failure is backed off, an operation in progress polled | `attempt.rs` |
//! | users get events | `event_log.rs` |
//!
//! Beside that, `orphans.rs` handles what the cloud lists for Services that are gone, `targets.rs` the Nodes, and
//! `preview.rs` shows all of this without doing it.
//!
//! The states of one Service; each arrow is a step of `plan.rs`:
//!
//! ```text
//!              AddFinalizer           Ensure                SetStatus
//!  Observed ─────────────────▶ Guarded ───────▶ Confirmed ────────────▶ Settled ──┐ Nodes changed: UpdateTargets
//!     │                           ▲                                     │  ▲ │    │ audit due:     Ensure (audit)
//!     │ invalid: ReportInvalid    │ spec changed, or the cloud differs  │  └─┼────┘
//!     ▼                           └─────────────────────────────────────┘    │
//!  Waiting for a change                                                      │ deleted, or of another type or class
//!                                                                            ▼
//!  Forgotten ◀────────── Released ◀───────────────────── Cloud empty ◀─── Leaving
//!               Forget               Finish or Release              Delete
//! ```
//!
//! A failed step is retried with backoff, and an operation in progress is polled, both in the same state. The ingress that
//! works while it is in progress is written between two polls. A stripped finalizer or a replaced status is written again in
//! any state before `Leaving`.

mod apply;
mod attempt;
mod batch;
mod cloud_state;
mod event_log;
#[cfg(test)]
mod harness;
pub(crate) mod metrics;
#[cfg(test)]
mod model;
mod orphans;
mod ownership;
mod patches;
mod plan;
pub mod preview;
mod recent_intents;
mod reconciler;
mod record;
mod refusals;
#[cfg(test)]
mod scenarios;
mod scope;
mod screening;
mod targets;
#[cfg(test)]
mod tests;
mod work;
mod work_queue;
mod write_backoff;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use pileus_cloud::{Cluster, LoadBalancers, Provider};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster_addresses::ClusterAddresses;
use crate::deps::ControllerDeps;
use crate::events::Events;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
use crate::nodes::{CONCURRENT_WRITES, DRAIN_TIMEOUT, Nodes};
use crate::services::{Change, Services};
use crate::timer::sleep_until;
use apply::{Finished, Read, WriteResult};
use reconciler::Reconciler;
use targets::Targets;
use work::{Work, Write};

/// How often the targets are computed at most while Nodes keep changing. With thousands of Nodes that takes milliseconds.
const TARGETS_INTERVAL: Duration = Duration::from_millis(100);

/// What the operator configures.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The load balancer classes that are served.
    pub classes: Vec<String>,
    /// Whether Services without a class are served.
    pub is_default: bool,
    /// Whether Services are marked with the provider's name, as is needed where several providers may run: see `scope.rs`.
    pub marks_services: bool,
    /// How often all load balancers are audited, without a known change.
    pub audit_period: Duration,
    /// How many calls for users may run concurrently, where the provider allows that.
    pub calls: usize,
}

/// The service controller.
pub struct Controller {
    nodes: Nodes,
    addresses: ClusterAddresses,
    services: Services,
    load_balancers: Arc<dyn LoadBalancers>,
    provider: Provider,
    events: Events,
    metrics: Metrics,
    settings: Settings,
    /// A number from 0 to 1 that spreads what would happen at the same moment.
    jitter: fn() -> f64,
}

/// The work in flight.
#[derive(Default)]
struct InFlight {
    /// Calls and reads. They may be dropped at any time: the gate finishes what the cloud has begun.
    calls: FuturesUnordered<BoxFuture<'static, Finished>>,
    writes: FuturesUnordered<BoxFuture<'static, WriteResult>>,
    /// The writes that wait for others to end.
    waiting: VecDeque<(Arc<ServiceFacts>, Write)>,
    /// The Services, as `namespace/name`, that have to be read: the cloud's list names them, or the watch reports one as
    /// gone whose load balancer may exist.
    unread: BTreeSet<String>,
    is_reading: bool,
    /// How many reads have failed in a row.
    failed_reads: u32,
}

impl Controller {
    /// Puts the controller together; none where the provider has no load balancers.
    pub fn new(deps: ControllerDeps, services: Services, settings: Settings) -> Option<Self> {
        let ControllerDeps { nodes, addresses, provider, events, metrics, jitter } = deps;
        let load_balancers = provider.load_balancers.clone()?;
        metrics.service.show();
        Some(Self { nodes, addresses, services, load_balancers, provider, events, metrics, settings, jitter })
    }

    /// The same for a cluster whose UID is known.
    #[must_use]
    pub fn of_cluster(mut self, uid: Option<String>) -> Self {
        self.settings.cluster.uid = uid;
        self
    }

    /// Runs until `stop` is cancelled. Then no work begins, and writes to Services that are in flight are awaited. The cloud
    /// finishes what it has begun, and the next leader finds that.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut in_flight = InFlight::default();
        stop.run_until_cancelled(this.reconcile(&mut in_flight)).await;
        let InFlight { calls, writes, .. } = in_flight;
        drop(calls);
        if tokio::time::timeout(DRAIN_TIMEOUT, writes.collect::<Vec<_>>()).await.is_err() {
            tracing::warn!("stopped before all writes to services were answered");
        }
    }

    /// Reconciles until the watch of Services or Nodes ends.
    async fn reconcile(self: &Arc<Self>, in_flight: &mut InFlight) {
        let requirements = self.provider.service_requirements.clone();
        let mut reconciler =
            Reconciler::new(requirements, &self.provider.name, &self.settings, Instant::now());
        let (mut services, mut nodes) = (self.services.follow(), self.nodes.subscribe());
        // No load balancer is touched before all Services and all Nodes are known.
        let Some(all) = services.next().await else { return };
        observe(&mut reconciler, all, in_flight);
        if nodes.recv().await.is_none() {
            return;
        }
        let mut confirmed = self.nodes.confirmations(&self.provider.name).subscribe();
        self.await_confirmations().await;
        let mut targets = None::<Arc<Targets>>;
        let (mut computed_at, mut targets_due) = (Instant::now(), Some(Instant::now()));
        loop {
            if targets_due.is_some_and(|due| due <= Instant::now()) {
                (targets_due, computed_at) = (None, Instant::now());
                if let Some(known) = self.targets() {
                    reconciler.observe_targets(Arc::clone(&known), computed_at);
                    targets = Some(known);
                }
            }
            self.start_work(&mut reconciler, in_flight);
            let wake = reconciler.next_wake().into_iter().chain(targets_due).min();
            tokio::select! {
                biased;
                changes = services.next() => match changes {
                    Some(changes) => observe(&mut reconciler, changes, in_flight),
                    None => return,
                },
                changes = nodes.recv() => match changes {
                    Some(changes) => {
                        let matters = |change| self.is_change(targets.as_deref(), change);
                        if targets_due.is_none() && changes.iter().any(matters) {
                            targets_due = Some(computed_at + TARGETS_INTERVAL);
                        }
                    }
                    None => return,
                },
                Ok(()) = confirmed.changed() => {
                    targets_due.get_or_insert(computed_at + TARGETS_INTERVAL);
                }
                Some((uid, written)) = in_flight.writes.next() => {
                    reconciler.on_write_result(&uid, written.as_ref(), Instant::now(), (self.jitter)());
                }
                Some(finished) = in_flight.calls.next() => self.on_finished(&mut reconciler, finished, in_flight),
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Begins the work that is due, and sends the events.
    fn start_work(self: &Arc<Self>, reconciler: &mut Reconciler, in_flight: &mut InFlight) {
        for work in reconciler.next(Instant::now(), (self.jitter)()) {
            match work {
                Work::Write { facts, write } => in_flight.waiting.push_back((facts, write)),
                Work::Call(call) => in_flight.calls.push(Box::pin(Arc::clone(self).call(call))),
                Work::ListOwned => in_flight.calls.push(Box::pin(Arc::clone(self).list())),
            }
        }
        while in_flight.writes.len() < CONCURRENT_WRITES
            && let Some((facts, write)) = in_flight.waiting.pop_front()
        {
            in_flight.writes.push(Box::pin(Arc::clone(self).write(facts, write)));
        }
        if !in_flight.is_reading && !in_flight.unread.is_empty() {
            in_flight.is_reading = true;
            let (names, failed) = (std::mem::take(&mut in_flight.unread), in_flight.failed_reads);
            in_flight.calls.push(Box::pin(Arc::clone(self).read(names, failed)));
        }
        self.send_events(reconciler.take_events());
        self.metrics.service.set_summary(reconciler.summary());
    }

    fn on_finished(&self, reconciler: &mut Reconciler, finished: Finished, in_flight: &mut InFlight) {
        let now = Instant::now();
        match finished {
            Finished::Call(call, outcomes) => {
                reconciler.on_call_result(&call, outcomes, now, (self.jitter)());
            }
            Finished::List(listing) => {
                let has_succeeded = listing.is_ok();
                let listing = listing.as_ref().map_err(|retry| *retry);
                let report = reconciler.on_list_result(listing, now, (self.jitter)());
                if has_succeeded {
                    self.report(&report);
                }
                in_flight.unread.extend(report.unknown);
            }
            Finished::Read(Read { found, gone, failed }) => {
                in_flight.is_reading = false;
                in_flight.failed_reads = if failed.is_empty() { 0 } else { in_flight.failed_reads + 1 };
                in_flight.unread.extend(failed);
                // The watch may have brought something newer of the same name by now, and that counts.
                let uid = |name: &str| self.services.kept(name).map(|facts| facts.service.uid.clone());
                for facts in
                    found.iter().filter(|facts| uid(&facts.key()).as_ref() == Some(&facts.service.uid))
                {
                    reconciler.observe(facts, now);
                }
                for name in gone.iter().filter(|name| uid(name).is_none()) {
                    reconciler.observe_gone(name, now);
                }
            }
        }
    }
}

/// Records what the watch brings. A Service that vanishes without having been released is read first: the watch alone is no
/// reason to delete a load balancer.
fn observe(reconciler: &mut Reconciler, changes: Vec<Change>, in_flight: &mut InFlight) {
    let now = Instant::now();
    for change in changes {
        match change {
            Change::Present(facts) => reconciler.observe(&facts, now),
            Change::Gone(name) if reconciler.may_have_load_balancer(&name) => {
                in_flight.unread.insert(name);
            }
            Change::Gone(name) => reconciler.observe_gone(&name, now),
        }
    }
}
