//! The service controller: Services of type LoadBalancer get a load balancer in the cloud, and keep it as they want it.
//!
//! The reconciler decides; it has neither clock nor network. This module brings it Services and Nodes, does the work that it
//! asks for, several pieces concurrently, and reports each result. Nothing here must survive a restart: the API server and
//! the cloud have all state.
//!
//! One Service from the watch to the cloud:
//!
//! | step | where |
//! |---|---|
//! | the watch brings a Service | [`crate::services`], `objects` |
//! | the store keeps it if it matters, as facts | `services/store.rs`, [`crate::facts::service`] |
//! | the reconciler observes it | `reconciler.rs` ([`Reconciler::observe`]), `record.rs` |
//! | what it asks for, and whose its load balancer is | `ownership.rs` |
//! | the next step, and why | `plan.rs`: here the finalizer is decided on, before anything is made |
//! | writes to the Service: finalizer and status | `patches.rs`, `write_backoff.rs` |
//! | calls wait by urgency, and go together | `work_queue.rs`, `batch.rs` |
//! | the provider is called | `apply.rs` |
//! | the outcome changes what the cloud is believed to have | `reconciler/outcomes.rs`, `cloud_state.rs`, `recent_intents.rs` |
//! | a failure is backed off, an operation in progress polled | `attempt.rs` |
//! | users get events | `event_log.rs` |
//!
//! Beside that, `orphans.rs` handles what the cloud lists for Services that are gone, `targets.rs` the Nodes, and `preview.rs`
//! shows all of this without doing it.
//!
//! The states of one Service that wants a load balancer, and then not any more; each arrow is a step of `plan.rs`:
//!
//! ```text
//!            AddFinalizer           Ensure                SetStatus            spec changed: Ensure
//!  Observed ─────────────▶ Guarded ─────────▶ Confirmed ───────────▶ Settled ◀──────────────────────┐
//!     │                      ▲                    ▲                   │ │ │ Nodes changed: UpdateTargets
//!     │ invalid:             │ finalizer          │ status            │ │ │ audit period: Ensure (audit)
//!     │ ReportInvalid        │ stripped           │ replaced          │ │ └─────────────────────────┘
//!     ▼                      └────────────────────┴───────────────────┘ │ deleted, another type, or another class
//!  Waits for a change                                                   ▼
//!                  forgotten ◀───────────── Released ◀────────── Cloud empty ◀────────── Leaving
//!                              Forget                 Finish or               Delete
//!                                                     Release
//! ```

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
#[cfg(test)]
mod scenarios;
mod targets;
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

use crate::events::Events;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
use crate::nodes::{DRAIN, Nodes, WRITERS};
use crate::services::{Change, Services};
use apply::{Finished, Read, WriteResult};
use reconciler::Reconciler;
use targets::Targets;
use work::{PendingEvent, Work, Write};

/// How often the targets are computed at most while Nodes keep changing. With thousands of Nodes that takes milliseconds.
const TARGETS_INTERVAL: Duration = Duration::from_millis(100);

/// What the operator configures.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The load balancer classes that are ours, besides no class.
    pub classes: Vec<String>,
    /// How often all load balancers are audited, without a known change.
    pub audit_period: Duration,
    /// How many calls for users may run concurrently, where the provider allows that.
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
    /// The Services, as `namespace/name`, that have to be read: the cloud's list names them, or the watch reports one as gone
    /// whose load balancer may exist.
    unread: BTreeSet<String>,
    is_reading: bool,
    /// How many reads have failed in a row.
    failed_reads: u32,
}

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

    /// Runs until `stop` is cancelled. Then no work begins, and writes to Services that are in flight are awaited. The cloud
    /// finishes what it has begun, and the next leader finds that.
    pub async fn run(self, stop: CancellationToken) {
        let this = Arc::new(self);
        let mut in_flight = InFlight::default();
        stop.run_until_cancelled(this.reconcile(&mut in_flight)).await;
        let InFlight { calls, writes, .. } = in_flight;
        drop(calls);
        if tokio::time::timeout(DRAIN, writes.collect::<Vec<_>>()).await.is_err() {
            tracing::warn!("stopped before all writes to services were answered");
        }
    }

    /// Reconciles until the watch of Services or Nodes ends.
    async fn reconcile(self: &Arc<Self>, in_flight: &mut InFlight) {
        let terms = self.provider.service_requirements.clone();
        let mut reconciler = Reconciler::new(terms, &self.settings, Instant::now());
        let (mut services, mut nodes) = (self.services.follow(), self.nodes.follow());
        // No load balancer is touched before all Services and all Nodes are known.
        let Some(all) = services.next().await else { return };
        observe(&mut reconciler, all, in_flight);
        if nodes.recv().await.is_none() {
            return;
        }
        let (mut targets, mut computed_at) = (Arc::new(self.targets()), Instant::now());
        reconciler.observe_targets(Arc::clone(&targets), computed_at);
        let mut targets_due = None;
        loop {
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
                        let Provider { schemes, node_labels, .. } = &self.provider;
                        let matters = |change| targets.are_changed_by(change, schemes, node_labels);
                        if targets_due.is_none() && changes.iter().any(matters) {
                            targets_due = Some(computed_at + TARGETS_INTERVAL);
                        }
                    }
                    None => return,
                },
                Some((uid, written)) = in_flight.writes.next() => {
                    reconciler.on_write_result(&uid, written.as_ref(), Instant::now(), (self.jitter)());
                }
                Some(finished) = in_flight.calls.next() => self.on_finished(&mut reconciler, finished, in_flight),
                () = sleep_until(wake) => {}
            }
            if targets_due.is_some_and(|due| due <= Instant::now()) {
                (targets_due, targets, computed_at) = (None, Arc::new(self.targets()), Instant::now());
                reconciler.observe_targets(Arc::clone(&targets), computed_at);
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
        while in_flight.writes.len() < WRITERS
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

    /// Sends events, and logs one line for all failures among them: with the cloud unavailable, all of a thousand load
    /// balancers fail.
    fn send_events(&self, events: Vec<PendingEvent>) {
        let (mut failed, mut first) = (0_usize, None);
        for PendingEvent { facts, reason, note } in events {
            tracing::debug!(service = %facts.key(), ?reason, note, "event");
            if reason.is_failure() {
                failed += 1;
                first.get_or_insert_with(|| (facts.key(), note.clone()));
            }
            self.events.about_service(&facts, reason, note);
        }
        if let Some((service, note)) = first {
            tracing::warn!(failed, first = %service, note, "load balancers not reconciled, will retry");
        }
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

    fn targets(&self) -> Targets {
        let Provider { schemes, node_labels, .. } = &self.provider;
        Targets::of(&self.nodes.all().unwrap_or_default(), schemes, node_labels)
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

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use pileus_cloud::{
        Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, OwnedLoadBalancer, ServiceAction,
        ServiceCall, ServiceChange, ServiceProgress, ServiceRequirements,
    };
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;
    use crate::api_server::ApiServer;
    use crate::health::Health;
    use crate::model::Random;
    use crate::scenarios::Stored;

    /// How long a call takes that nothing was said about.
    const LATENCY: Duration = Duration::from_millis(20);
    const AUDIT: Duration = Duration::from_mins(30);
    const SECOND: Duration = Duration::from_secs(1);

    /// What becomes of a call that is about a Service.
    #[derive(Clone)]
    enum Fate {
        Takes(Duration),
        Under(&'static str),
        Fails(ErrorKind),
        /// It is done, and the answer gets lost.
        Loses,
        FailsWhole,
        SaysNothing,
        Panics,
        NeverAnswers,
    }

    /// A cloud, and what is to become of the next calls by the Service's name.
    #[derive(Clone, Default)]
    struct Cloud(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        /// The Nodes behind each load balancer, by the Service's UID.
        behind: BTreeMap<String, Vec<String>>,
        /// What was asked for, one string a call.
        calls: Vec<String>,
        fates: BTreeMap<String, Vec<Fate>>,
        /// The UIDs that calls under way are about.
        busy: Vec<String>,
        most_calls: usize,
        calls_now: usize,
        /// What is made in the API server while a list is under way.
        made_while_listed: Option<(ApiServer, Value)>,
    }

    impl Cloud {
        fn state(&self) -> std::sync::MutexGuard<'_, State> {
            self.0.lock().unwrap()
        }

        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut self.state().calls)
        }

        /// The next calls about this Service end so, the first one first.
        fn plans(&self, name: &str, fates: &[Fate]) {
            self.state().fates.insert(name.to_owned(), fates.iter().rev().cloned().collect());
        }

        fn behind(&self, name: &str) -> Option<Vec<String>> {
            self.state().behind.get(&format!("uid-{name}")).cloned()
        }

        fn one(&self, change: &ServiceChange, nodes: &[String]) -> ServiceProgress {
            let mut state = self.state();
            let status = match &change.action {
                ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                    state.behind.insert(service.uid.clone(), nodes.to_vec());
                    vec![ingress()]
                }
                ServiceAction::Delete(service) => {
                    state.behind.remove(&service.uid);
                    Vec::new()
                }
                ServiceAction::RemoveOrphan(owned) => {
                    state.behind.remove(owned.service_uid.as_ref().unwrap());
                    Vec::new()
                }
            };
            ServiceProgress::Done { status, warnings: Vec::new() }
        }
    }

    fn ingress() -> Ingress {
        let point = IngressPoint::Ip("192.0.2.1".to_owned());
        Ingress { point, ip_mode: Some(IpMode::Vip), ports: Vec::new() }
    }

    fn said(change: &ServiceChange) -> (String, String) {
        let (verb, name, uid) = match &change.action {
            ServiceAction::Ensure(service) => ("ensure", &service.name, &service.uid),
            ServiceAction::UpdateTargets(service) => ("update", &service.name, &service.uid),
            ServiceAction::Delete(service) => ("delete", &service.name, &service.uid),
            ServiceAction::RemoveOrphan(owned) => {
                ("remove", &owned.name, owned.service_uid.as_ref().unwrap())
            }
        };
        let note = change.resume.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
        (format!("{verb} {name}{note}"), uid.clone())
    }

    #[async_trait]
    impl LoadBalancers for Cloud {
        async fn change(
            &self,
            call: ServiceCall<'_>,
        ) -> Result<Vec<Result<ServiceProgress, CloudError>>, CloudError> {
            let nodes: Vec<_> = call.targets.iter().map(|target| target.node.clone()).collect();
            let (lines, uids): (Vec<_>, Vec<_>) = call.changes.iter().map(said).unzip();
            let names: Vec<_> = lines.iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
            let fates: Vec<_> = {
                let mut state = self.state();
                let audit = if call.is_audit { "audit: " } else { "" };
                state.calls.push(format!("{audit}{}", lines.join(", ")));
                assert!(uids.iter().all(|uid| !state.busy.contains(uid)), "{uids:?} are worked on twice");
                state.busy.extend(uids.iter().cloned());
                state.calls_now += 1;
                state.most_calls = state.most_calls.max(state.calls_now);
                names.iter().map(|name| state.fates.get_mut(name).and_then(Vec::pop)).collect()
            };
            let takes = fates.iter().flatten().map(|fate| match fate {
                Fate::Takes(time) => *time,
                Fate::NeverAnswers => Duration::MAX,
                _ => LATENCY,
            });
            let takes = takes.max().unwrap_or(LATENCY);
            // What was decided on is what is written, however long that takes.
            let idle = Idle(self.clone(), uids);
            tokio::time::sleep(takes).await;
            drop(idle);
            let outcome = |(change, fate): (&ServiceChange, &Option<Fate>)| match fate {
                Some(Fate::Panics) => panic!("the host is broken"),
                Some(Fate::FailsWhole) => Err(Err(CloudError::new(ErrorKind::Unavailable, "all down"))),
                Some(Fate::Loses) => {
                    self.one(change, &nodes);
                    Ok(Err(CloudError::new(ErrorKind::Unavailable, "no answer")))
                }
                Some(Fate::SaysNothing) => Err(Ok(Vec::new())),
                Some(Fate::Fails(kind)) => Ok(Err(CloudError::new(*kind, "it is locked"))),
                Some(Fate::Under(note)) => Ok(Ok(ServiceProgress::InProgress {
                    after: SECOND * 5,
                    resume: Some((*note).to_owned()),
                })),
                _ => Ok(Ok(self.one(change, &nodes))),
            };
            call.changes.iter().zip(&fates).map(outcome).collect::<Result<Vec<_>, _>>().or_else(|whole| whole)
        }

        async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, CloudError> {
            tokio::time::sleep(LATENCY).await;
            let mut state = self.state();
            state.calls.push("list".to_owned());
            if let Some((api, service)) = state.made_while_listed.take() {
                api.store("services", service);
            }
            let owned = |uid: &String| OwnedLoadBalancer {
                cluster_uid: cluster.uid.clone(),
                service_uid: Some(uid.clone()),
                service: None,
                name: format!("lb-{uid}"),
                extra: Vec::new(),
            };
            Ok(state.behind.keys().map(owned).collect())
        }
    }

    /// A call has ended, however it did.
    struct Idle(Cloud, Vec<String>);

    impl Drop for Idle {
        fn drop(&mut self) {
            let mut state = self.0.state();
            state.calls_now -= 1;
            state.busy.retain(|uid| !self.1.contains(uid));
        }
    }

    struct World {
        api: ApiServer,
        cloud: Cloud,
        stop: CancellationToken,
    }

    impl World {
        /// A cluster with a Node.
        fn new() -> Self {
            let world =
                Self { api: ApiServer::new(), cloud: Cloud::default(), stop: CancellationToken::new() };
            world.join("a");
            world.is_cluster("cluster");
            world
        }

        fn start(&self) -> tokio::task::JoinHandle<()> {
            let terms = ServiceRequirements {
                largest_batch: 1000,
                allows_concurrent_calls: true,
                wants_namespace_labels: true,
                ..ServiceRequirements::default()
            };
            let (metrics, health) = (Metrics::register(&mut Registry::default()), Health::default());
            let nodes = Nodes::new(self.api.client(), metrics.clone(), &health);
            let services = Services::new(self.api.client(), metrics.clone(), &health, &terms);
            let (events, _) = Events::start(self.api.client(), "service-controller", "test", metrics.clone());
            let provider = Provider {
                name: "test".to_owned(),
                schemes: vec!["fake".to_owned()],
                node_labels: Vec::new(),
                largest_lookup_batch: 1,
                instances: None,
                service_requirements: terms,
                load_balancers: Some(Arc::new(self.cloud.clone())),
                largest_route_batch: 1,
                routes: None,
            };
            let settings = Settings {
                cluster: Cluster { name: "test".to_owned(), uid: Some("cluster".to_owned()) },
                classes: Vec::new(),
                audit_period: AUDIT,
                calls: 4,
            };
            let (of_nodes, of_services) = (nodes.clone(), services.clone());
            let (stop, stopped) = (self.stop.clone(), self.stop.clone());
            tokio::spawn(async move { of_nodes.watch(stop).await });
            tokio::spawn(async move { of_services.watch(stopped).await });
            let controller =
                Controller::new(nodes, services, provider, events, metrics, settings, || 0.0).unwrap();
            tokio::spawn(controller.run(self.stop.clone()))
        }

        fn join(&self, name: &str) {
            let node = json!({
                "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"taints": null, "providerID": format!("fake://{name}")},
            });
            self.api.put(&Stored::registered(&node));
        }

        fn is_cluster(&self, uid: &str) {
            self.api.store("namespaces", json!({"metadata": {"name": "kube-system", "uid": uid}}));
        }

        fn make(&self, name: &str) {
            self.api.store("services", service(name));
        }

        /// What was asked of the cloud until then.
        async fn after(&self, time: Duration) -> Vec<String> {
            tokio::time::sleep(time).await;
            self.cloud.calls()
        }

        fn address(&self, name: &str) -> Option<String> {
            let service = self.api.service(&format!("shop/{name}"))?;
            service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
        }
    }

    /// What users, a cloud and an API server do by chance, with leaders that are killed and others that are stopped.
    #[tokio::test(start_paused = true)]
    async fn whatever_happens_in_the_end_the_cloud_has_what_the_cluster_asks_for() {
        for seed in 0..8 {
            let mut world = World::new();
            let mut running = world.start();
            let mut random = Random(seed);
            for step in 0..60 {
                if random.percent(8) {
                    if random.percent(50) {
                        running.abort();
                    }
                    world.stop.cancel();
                    drop(running.await);
                    world.stop = CancellationToken::new();
                    running = world.start();
                }
                world.by_chance(&mut random, step);
                tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
            }
            world.cloud.state().fates.clear();
            // Longer than anything is put off, and shorter than until an audit.
            tokio::time::sleep(AUDIT / 3).await;
            world.assert_is_as_asked_for(seed);
            world.api.writes();
            tokio::time::sleep(AUDIT * 2).await;
            assert_eq!(world.api.writes(), Vec::<String>::new(), "seed {seed}");
            world.stop.cancel();
        }
    }

    impl World {
        fn by_chance(&self, random: &mut Random, step: u64) {
            let name = format!("s{}", random.below(4));
            let key = format!("shop/{name}");
            let Some(there) = self.api.service(&key) else {
                let mut service = service(&name);
                service["metadata"]["uid"] = json!(format!("uid-{step}"));
                self.api.store("services", service);
                return;
            };
            let turned = if there["spec"]["type"] == "ClusterIP" { "LoadBalancer" } else { "ClusterIP" };
            let change = |change| self.api.change("services", &key, &change);
            let node = format!("n{}", random.below(3));
            match random.below(10) {
                0 | 1 => self.api.delete("services", &key),
                2 => change(json!({"spec": {"ports": [{"port": 100 + step, "nodePort": 30080}]}})),
                3 => change(json!({"spec": {"type": turned}})),
                4 => {
                    change(json!({"metadata": {"finalizers": null}}));
                    if !there["metadata"]["deletionTimestamp"].is_null() {
                        self.api.delete("services", &key);
                    }
                }
                5 => change(json!({"status": null})),
                6 => self.join(&node),
                7 => self.api.refuse(&[409, 500, 503, 429][..usize::try_from(random.below(4)).unwrap()]),
                _ => {
                    let takes = Duration::from_millis(random.below(20_000));
                    let all = [
                        Fate::Takes(takes),
                        Fate::Under("note"),
                        Fate::Fails(ErrorKind::Conflict),
                        Fate::Fails(ErrorKind::Throttled(Some(SECOND))),
                        Fate::Loses,
                        Fate::FailsWhole,
                    ];
                    let fates = (0..3).filter_map(|_| random.pick(&all).cloned());
                    self.cloud.plans(&name, &fates.collect::<Vec<_>>());
                }
            }
        }

        fn assert_is_as_asked_for(&self, seed: u64) {
            let nodes: Vec<_> =
                ["a", "n0", "n1", "n2"].into_iter().filter(|name| self.api.has_node(name)).collect();
            let mut wanted = BTreeMap::new();
            for name in (0..4).map(|number| format!("s{number}")) {
                let Some(service) = self.api.service(&format!("shop/{name}")) else { continue };
                let metadata = &service["metadata"];
                assert!(metadata["deletionTimestamp"].is_null(), "seed {seed}: {name} can't go");
                let is_wanted = service["spec"]["type"] == "LoadBalancer";
                let finalizers = metadata["finalizers"].as_array().map_or(0, Vec::len);
                assert_eq!(finalizers, usize::from(is_wanted), "seed {seed}: {name}");
                assert_eq!(self.address(&name).is_some(), is_wanted, "seed {seed}: {name}");
                if is_wanted {
                    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
                    wanted.insert(metadata["uid"].as_str().unwrap().to_owned(), nodes);
                }
            }
            assert_eq!(self.cloud.state().behind, wanted, "seed {seed}");
        }
    }

    fn service(name: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        })
    }

    const ADDRESS: Option<&str> = Some("192.0.2.1");

    #[tokio::test(start_paused = true)]
    async fn a_service_gets_its_address_and_leaves_nothing_behind() {
        let world = World::new();
        world.start();
        assert_eq!(world.after(SECOND * 2).await, ["list"]);
        world.make("web");
        assert_eq!(world.after(SECOND * 2).await, ["ensure web"]);
        assert_eq!(world.address("web").as_deref(), ADDRESS);
        assert_eq!(world.api.writes(), ["PATCH shop/web/status"; 2], "the finalizer and the status");
        assert_eq!(world.api.events(), ["EnsuringLoadBalancer web", "EnsuredLoadBalancer web"]);
        // Until the audit, which finds all as it was.
        assert_eq!(world.after(AUDIT.saturating_sub(SECOND * 10)).await, Vec::<String>::new());
        assert_eq!(world.after(SECOND * 20).await, ["list", "audit: ensure web"]);
        assert_eq!(world.api.lists().iter().filter(|of| **of == "services").count(), 1, "at the start");
        world.api.delete("services", "shop/web");
        assert_eq!(world.after(SECOND * 2).await, ["delete web"]);
        assert_eq!(world.api.service("shop/web"), None);
        assert_eq!(world.api.writes(), ["PATCH shop/web/status"]);
        assert_eq!(world.api.events(), ["DeletingLoadBalancer web", "DeletedLoadBalancer web"]);
        assert_eq!(world.cloud.behind("web"), None);
        assert_eq!(world.after(AUDIT * 2).await, ["list", "list"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_holds_up_no_other_service() {
        let world = World::new();
        world.start();
        world.cloud.plans("slow", &[Fate::Takes(SECOND * 60)]);
        world.make("slow");
        world.after(SECOND * 2).await;
        for name in ["one", "two"] {
            world.make(name);
            assert_eq!(world.after(SECOND * 2).await, [format!("ensure {name}")]);
            assert_eq!(world.address(name).as_deref(), ADDRESS);
        }
        assert_eq!((world.address("slow"), world.cloud.state().most_calls), (None, 2));
        world.after(SECOND * 60).await;
        assert_eq!(world.address("slow").as_deref(), ADDRESS);
    }

    /// Upstream's S47: its slow pass over all Services goes on with the Nodes of its beginning.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_were_taken_for_a_call_never_replace_newer_ones() {
        let world = World::new();
        world.start();
        world.make("web");
        world.make("db");
        world.after(SECOND * 3).await;
        world.cloud.plans("web", &[Fate::Takes(SECOND * 30)]);
        world.join("b");
        assert_eq!(world.after(SECOND * 5).await, ["update db, update web"]);
        world.join("c");
        let change = json!({"spec": {"ports": [{"port": 443, "nodePort": 30443}]}});
        world.api.change("services", "shop/db", &change);
        world.after(SECOND * 60).await;
        for name in ["web", "db"] {
            assert_eq!(world.cloud.behind(name).unwrap(), ["a", "b", "c"], "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_somebody_wipes_is_written_again_without_a_call() {
        let world = World::new();
        world.start();
        world.make("web");
        world.after(SECOND * 10).await;
        world.api.change("services", "shop/web", &json!({"status": null}));
        assert_eq!(world.after(SECOND * 10).await, Vec::<String>::new());
        assert_eq!(world.address("web").as_deref(), ADDRESS);
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_becomes_of_a_call_the_service_is_tried_again_and_others_are_served() {
        for (name, fate, within) in [
            ("it fails as a whole", Fate::FailsWhole, SECOND * 10),
            ("it has no outcome for the change", Fate::SaysNothing, SECOND * 120),
            ("it panics", Fate::Panics, SECOND * 120),
            ("it never answers", Fate::NeverAnswers, apply::CALL_TIMEOUT + SECOND * 120),
            ("its change fails", Fate::Fails(ErrorKind::Unavailable), SECOND * 10),
        ] {
            let world = World::new();
            world.start();
            world.cloud.plans("web", &[fate]);
            world.make("web");
            world.after(SECOND / 2).await;
            assert_eq!(world.address("web"), None, "{name}");
            world.make("db");
            world.after(SECOND * 2).await;
            assert_eq!(world.address("db").as_deref(), ADDRESS, "{name}");
            world.after(within).await;
            assert_eq!(world.address("web").as_deref(), ADDRESS, "{name}");
            assert!(world.api.events().contains(&"SyncLoadBalancerFailed web".to_owned()), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_asked_after_with_its_note() {
        let world = World::new();
        world.start();
        world.cloud.plans("web", &[Fate::Under("operation 7"), Fate::Under("operation 8")]);
        world.make("web");
        assert_eq!(world.after(SECOND * 4).await, ["list", "ensure web"]);
        assert_eq!(world.api.events(), ["EnsuringLoadBalancer web", "LoadBalancerPending web"]);
        assert_eq!(world.after(SECOND * 4).await, ["ensure web operation 7"]);
        assert_eq!(world.address("web"), None);
        assert_eq!(world.after(SECOND * 5).await, ["ensure web operation 8"]);
        assert_eq!(world.address("web").as_deref(), ADDRESS);
        assert_eq!(world.api.events(), ["EnsuredLoadBalancer web"], "that it is pending is told once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_cloud_has_for_no_service_goes_and_a_young_service_is_not_taken_for_gone() {
        let world = World::new();
        world.cloud.state().behind.insert("uid-gone".to_owned(), Vec::new());
        world.cloud.state().behind.insert("uid-young".to_owned(), Vec::new());
        world.cloud.state().made_while_listed = Some((world.api.clone(), service("young")));
        world.start();
        assert_eq!(world.after(SECOND * 10).await, ["list", "ensure young", "remove lb-uid-gone"]);
        assert_eq!(world.cloud.state().behind.keys().collect::<Vec<_>>(), ["uid-young"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_turned_while_nobody_looked_is_cleaned_up() {
        let world = World::new();
        let mut turned = service("web");
        turned["spec"]["type"] = json!("ClusterIP");
        world.api.store("services", turned);
        world.cloud.state().behind.insert("uid-web".to_owned(), Vec::new());
        world.start();
        assert_eq!(world.after(SECOND * 10).await, ["list", "delete web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_loses_its_finalizer_before_its_deletion_began_is_cleaned_up() {
        let world = World::new();
        let mut turned = service("web");
        turned["spec"]["type"] = json!("ClusterIP");
        turned["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
        world.api.store("services", turned);
        world.cloud.state().behind.insert("uid-web".to_owned(), Vec::new());
        world.start();
        // It is known by now, and the list isn't there yet.
        tokio::time::sleep(LATENCY).await;
        world.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
        assert_eq!(world.after(SECOND * 10).await, ["list", "delete web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_went_without_its_finalizer_leaves_nothing_behind() {
        let world = World::new();
        world.start();
        world.make("web");
        world.after(SECOND * 10).await;
        world.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
        world.api.delete("services", "shop/web");
        assert_eq!(world.after(SECOND * 10).await, ["delete web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_word_of_the_watch_alone_takes_no_load_balancer_away() {
        let world = World::new();
        world.start();
        world.make("web");
        world.after(SECOND * 10).await;
        world.api.tell_gone("services", "shop/web");
        assert_eq!(world.after(SECOND * 10).await, Vec::<String>::new());
        world.api.delete("services", "shop/web");
        assert_eq!(world.after(SECOND * 10).await, ["delete web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_cluster_is_another_one_nothing_is_taken_for_gone() {
        let world = World::new();
        world.start();
        world.make("web");
        world.after(SECOND * 10).await;
        world.is_cluster("other");
        world.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
        world.api.delete("services", "shop/web");
        let asked = world.after(AUDIT * 2).await;
        assert!(asked.iter().all(|call| ["list", "audit: ensure web"].contains(&&**call)), "{asked:?}");
        assert!(world.cloud.behind("web").is_some());
        world.is_cluster("cluster");
        assert!(world.after(SECOND * 100).await.contains(&"delete web".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_can_not_be_read_is_read_again() {
        let world = World::new();
        let mut turned = service("web");
        turned["spec"]["type"] = json!("ClusterIP");
        world.api.store("services", turned);
        world.cloud.state().behind.insert("uid-web".to_owned(), Vec::new());
        world.api.fail_reads("services", 3);
        world.start();
        assert_eq!(world.after(SECOND / 2).await, ["list"]);
        assert_eq!(world.after(SECOND * 10).await, ["delete web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_fail_are_made_again() {
        let world = World::new();
        world.start();
        world.api.refuse(&[403, 503, 409, 429]);
        world.make("web");
        world.after(SECOND * 20).await;
        assert_eq!(world.address("web").as_deref(), ADDRESS);
        world.api.refuse(&[500]);
        world.api.delete("services", "shop/web");
        world.after(SECOND * 20).await;
        assert_eq!(world.api.service("shop/web"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_policy_that_undoes_what_is_written_makes_no_storm() {
        for policy in [json!({"status": null}), json!({"metadata": {"finalizers": null}})] {
            let world = World::new();
            world.api.enforce(policy.clone());
            world.make("web");
            world.start();
            world.after(SECOND * 600).await;
            let writes = world.api.writes().len();
            assert!((5..=12).contains(&writes), "{policy}: {writes}");
            assert!(world.api.events().contains(&"SyncLoadBalancerFailed web".to_owned()), "{policy}");
            assert!(world.api.notes().iter().any(|note| note.contains("look for an admission policy")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_its_namespace_is_one_of_the_service() {
        let world = World::new();
        let namespace = |tier| json!({"metadata": {"name": "shop", "uid": "shop", "labels": {"tier": tier}}});
        world.api.store("namespaces", namespace("gold"));
        world.make("web");
        world.start();
        world.after(SECOND * 10).await;
        world.api.store("namespaces", namespace("tin"));
        assert_eq!(world.after(SECOND * 2).await, ["ensure web"]);
        world.api.store("namespaces", json!({"metadata": {"name": "other", "uid": "other"}}));
        assert_eq!(world.after(SECOND * 2).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_begins_nothing_and_awaits_the_writes_that_have_begun() {
        let world = World::new();
        let running = world.start();
        world.after(SECOND * 2).await;
        for number in 0..20 {
            world.make(&format!("s{number:02}"));
        }
        // A write takes 5 ms.
        world.after(Duration::from_millis(2)).await;
        world.stop.cancel();
        running.await.unwrap();
        assert_eq!(world.api.writes().len(), WRITERS);
        assert_eq!(world.after(SECOND * 10).await, Vec::<String>::new());
    }
}
