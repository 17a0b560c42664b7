//! The service controller: Services of type LoadBalancer get their addresses from the cloud, and keep them.
//!
//! What is to be done for which Service is decided by the roster, which has neither clock nor network. Here is what it gets
//! them from: Services and Nodes are followed, what it wants done is done, several things side by side, and what became of
//! each is told to it. Nothing here can't be lost: the API server and the cloud have it all.

mod apply;
mod batch;
mod lanes;
pub(crate) mod metrics;
mod orphans;
mod patches;
mod plan;
mod record;
mod roster;
mod targets;
mod telling;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use pileus_cloud::{Cluster, LoadBalancers, Provider};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::events::Events;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
use crate::nodes::{DRAIN, Nodes, WRITERS};
use crate::services::{Change, Services};
use apply::Ended;
use roster::Roster;
use targets::Targets;
use work::{Report, Work, Write};

/// How often the table of targets is made anew at most, while Nodes keep changing: it takes a few milliseconds where there
/// are thousands.
const TABLE: Duration = Duration::from_millis(100);

/// What an operator says of the cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The load balancer classes that are ours besides no class.
    pub classes: Vec<String>,
    /// How often all load balancers are looked at although nothing has changed that we know of.
    pub audit_period: Duration,
    /// How many calls for users may run side by side, where the provider allows that.
    pub calls: usize,
}

/// The service controller.
pub struct Controller {
    nodes: Nodes,
    services: Services,
    load_balancers: Arc<dyn LoadBalancers>,
    provider: Provider,
    events: Events,
    metrics: Metrics,
    settings: Settings,
    /// A number from 0 to 1 that spreads what happens together.
    jitter: fn() -> f64,
}

/// What is under way.
#[derive(Default)]
struct UnderWay {
    /// Calls and reads, which may be given up at any time: the gate finishes what the cloud has begun.
    calls: FuturesUnordered<BoxFuture<'static, Ended>>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    /// The writes that wait for others to end.
    waiting: VecDeque<(Arc<ServiceFacts>, Write)>,
}

/// The UID of a Service that was written to, and what became of it.
type Written = (String, Result<Arc<ServiceFacts>, Error>);

impl Controller {
    /// Puts the controller together; none where the provider has no load balancers.
    pub fn new(
        nodes: Nodes,
        services: Services,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        settings: Settings,
        jitter: fn() -> f64,
    ) -> Option<Self> {
        let load_balancers = provider.load_balancers.clone()?;
        Some(Self { nodes, services, load_balancers, provider, events, metrics, settings, jitter })
    }

    /// The same for a cluster whose UID is known.
    #[must_use]
    pub fn of_cluster(mut self, uid: Option<String>) -> Self {
        self.settings.cluster.uid = uid;
        self
    }

    /// Works until it is told to stop. Then nothing begins, and writes to Services that have begun are awaited. What has
    /// begun at the cloud is finished there, and found when it is next asked for.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut under_way = UnderWay::default();
        stop.run_until_cancelled(this.work(&mut under_way)).await;
        let UnderWay { calls, writes, waiting: _ } = under_way;
        drop(calls);
        if tokio::time::timeout(DRAIN, writes.collect::<Vec<_>>()).await.is_err() {
            tracing::warn!("stopped before all writes to services were answered");
        }
    }

    /// Works until there is nobody left to tell what changes.
    async fn work(self: &Arc<Self>, under_way: &mut UnderWay) {
        let terms = self.provider.service_terms.clone();
        let mut roster = Roster::new(terms, &self.settings, Instant::now());
        let (mut services, mut nodes) = (self.services.follow(), self.nodes.follow());
        // Nothing can be said of load balancers before all Services and all Nodes are known.
        let Some(all) = services.next().await else { return };
        observe(&mut roster, all);
        if nodes.recv().await.is_none() {
            return;
        }
        let mut table_is_due = Some(Instant::now());
        let mut made = Instant::now();
        loop {
            if table_is_due.is_some_and(|due| due <= Instant::now()) {
                (table_is_due, made) = (None, Instant::now());
                roster.target(Arc::new(self.targets()), made);
            }
            self.begin(&mut roster, under_way);
            let wakes = roster.wakes().into_iter().chain(table_is_due).min();
            tokio::select! {
                biased;
                changes = services.next() => match changes {
                    Some(changes) => observe(&mut roster, changes),
                    None => return,
                },
                changes = nodes.recv() => match changes {
                    Some(_) => table_is_due = table_is_due.or(Some(made + TABLE)),
                    None => return,
                },
                Some((uid, written)) = under_way.writes.next() => {
                    roster.wrote(&uid, written.as_ref(), Instant::now(), (self.jitter)());
                }
                Some(ended) = under_way.calls.next() => self.ended(&mut roster, ended, under_way),
                () = until(wakes) => {}
            }
        }
    }

    /// Begins what the roster wants done, and tells what it has to tell.
    fn begin(self: &Arc<Self>, roster: &mut Roster, under_way: &mut UnderWay) {
        for work in roster.next(Instant::now(), (self.jitter)()) {
            match work {
                Work::Write { facts, write } => under_way.waiting.push_back((facts, write)),
                Work::Call(call) => under_way.calls.push(Box::pin(Arc::clone(self).call(call))),
                Work::ListOwned => under_way.calls.push(Box::pin(Arc::clone(self).list())),
            }
        }
        while under_way.writes.len() < WRITERS
            && let Some((facts, write)) = under_way.waiting.pop_front()
        {
            under_way.writes.push(Box::pin(Arc::clone(self).write(facts, write)));
        }
        for telling in roster.tellings() {
            self.events.about_service(&telling.facts, telling.reason, telling.note);
        }
        self.metrics.service.census(roster.census());
    }

    fn ended(self: &Arc<Self>, roster: &mut Roster, ended: Ended, under_way: &UnderWay) {
        let now = Instant::now();
        match ended {
            Ended::Call(call, outcomes) => roster.came(&call, outcomes, now, (self.jitter)()),
            Ended::Listing(listing) => {
                let is_listed = listing.is_ok();
                let report = roster.listed(listing.as_ref().map_err(|retry| *retry), now, (self.jitter)());
                if is_listed {
                    self.report(&report);
                }
                if !report.unknown.is_empty() {
                    under_way.calls.push(Box::pin(Arc::clone(self).read(report.unknown)));
                }
            }
            Ended::Read => {}
        }
    }

    fn report(&self, report: &Report) {
        self.metrics.service.orphans(report);
        if report.orphans > 0 {
            tracing::info!(count = report.orphans, "removing what the cloud has for services that are gone");
        }
        for name in &report.new_strangers {
            tracing::warn!(%name, "the cloud has this for a service, but of which cluster or service can't be told; it stays");
        }
    }

    fn targets(&self) -> Targets {
        Targets::of(&self.nodes.all().unwrap_or_default(), &self.provider.schemes)
    }
}

fn observe(roster: &mut Roster, changes: Vec<Change>) {
    let now = Instant::now();
    for change in changes {
        match change {
            Change::Present(facts) => roster.present(&facts, now),
            Change::Gone(name) => roster.gone(&name, now),
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
