//! The node controller: a Node joins, its machine is looked up, and it becomes a full member of the cluster.
//!
//! Work comes from the watch and from timers. While a lookup is under way, what becomes due is gathered, and goes out
//! together in the next one: thousands of Nodes that join at once cost the cloud a few lists. Answers are written by
//! several workers, each of which carries one Node all the way.

mod addresses;
mod apply;
mod initialise;
mod plan;
mod waiting;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use pileus_cloud::{Answer, Instances, Provider, Purpose};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::events::Events;
use crate::facts::node::{Node, NodeFacts};
use crate::health::{Condition, Health};
use crate::metrics::Metrics;
use apply::Nodes;
use initialise::{Done, Next, decide, label};
use waiting::Waiting;

/// Nodes that are written at the same time. The API server takes about a thousand small writes a second from as many
/// writers; more only wait in its queue.
const WRITERS: usize = 16;

/// How long Nodes are gathered after a lookup before the next one goes out. A Node that joins alone is looked up at once;
/// a hundred that join within a second would else cost a list for every two or three, as a lookup is faster than they
/// arrive.
const GATHERING: Duration = Duration::from_millis(100);

/// How long writes that are under way at the end are waited for.
const DRAIN: Duration = Duration::from_secs(25);

/// The node controller.
pub struct Controller {
    provider: Provider,
    instances: Arc<dyn Instances>,
    nodes: Nodes,
    events: Events,
    metrics: Metrics,
    watch: Condition,
    /// From 0 to 1, afresh at each call.
    jitter: fn() -> f64,
}

impl Controller {
    /// Puts the controller together; none where the provider knows no machines. `jitter` gives a number from 0 to 1 at
    /// each call.
    pub fn new(
        client: Client,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        health: &Health,
        jitter: fn() -> f64,
    ) -> Option<Self> {
        let instances = provider.instances.clone()?;
        let watch = health.condition("node-watch", "the API server has not sent the list of nodes yet");
        let nodes = Nodes::new(client, metrics.clone());
        Some(Self { provider, instances, nodes, events, metrics, watch, jitter })
    }

    /// Works until it is told to stop, and then until no write is under way.
    pub async fn run(self, stop: CancellationToken) {
        Loop {
            waiting: Waiting::default(),
            work: JoinSet::new(),
            lookup: JoinSet::new(),
            writers: Arc::new(Semaphore::new(WRITERS)),
            gathers_until: Instant::now(),
            controller: Arc::new(self),
        }
        .run(stop)
        .await;
    }
}

/// The controller's state while it runs.
struct Loop {
    controller: Arc<Controller>,
    waiting: Waiting,
    /// The lookup that is under way, at most one.
    lookup: JoinSet<Vec<(NodeFacts, Result<Answer, pileus_cloud::Error>)>>,
    /// The Nodes that are being written.
    work: JoinSet<(NodeFacts, Done)>,
    writers: Arc<Semaphore>,
    /// No lookup goes out before.
    gathers_until: Instant,
}

impl Loop {
    async fn run(mut self, stop: CancellationToken) {
        let config = watcher::Config::default();
        let mut watch = pin!(watcher(self.controller.nodes.api().clone(), config).default_backoff());
        while !stop.is_cancelled() {
            self.start_lookup();
            let next = self.waiting.next().filter(|_| self.lookup.is_empty());
            let next = next.map(|due| due.max(self.gathers_until));
            tokio::select! {
                () = stop.cancelled() => break,
                event = watch.next() => self.observe(event),
                Some(found) = self.lookup.join_next() => {
                    self.gathers_until = Instant::now() + GATHERING;
                    self.answered(finished(found));
                }
                Some(done) = self.work.join_next() => {
                    let (node, done) = finished(done);
                    self.done(&node, done, (self.controller.jitter)());
                }
                () = until(next) => {}
            }
            self.controller.metrics.nodes_waiting(self.waiting.len());
        }
        self.lookup.abort_all();
        self.writers.close(); // what has not begun to be written is left to the next start
        let drained = tokio::time::timeout(DRAIN, async { while self.work.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(unfinished = self.work.len(), "stopped before all writes were answered");
        }
    }

    /// Takes in what the watch says.
    fn observe(&mut self, event: Option<Result<watcher::Event<Node>, watcher::Error>>) {
        let now = Instant::now();
        match event {
            Some(Ok(watcher::Event::Init)) => self.waiting.list_begins(),
            Some(Ok(watcher::Event::InitApply(node))) => {
                if let Some(facts) = self.controller.take_on(node) {
                    self.waiting.listed(facts);
                }
            }
            Some(Ok(watcher::Event::InitDone)) => {
                self.waiting.list_ends(now);
                self.controller.watch.holds();
            }
            Some(Ok(watcher::Event::Apply(node))) => {
                let name = node.name_any();
                match self.controller.take_on(node) {
                    Some(facts) => self.waiting.changed(facts, now),
                    None => self.waiting.gone(&name),
                }
                self.controller.watch.holds();
            }
            Some(Ok(watcher::Event::Delete(node))) => self.waiting.gone(&node.name_any()),
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(%error, "watch of nodes interrupted; trying again");
                let reason = format!("the watch of nodes is interrupted: {error}");
                if self.waiting.is_synced() {
                    self.controller.watch.is_troubled(reason, now);
                } else {
                    self.controller.watch.fails(reason);
                }
            }
            None => self.controller.watch.fails("the watch of nodes has ended"),
        }
    }

    /// Sends one lookup for all Nodes that are due, unless one is under way.
    fn start_lookup(&mut self) {
        let now = Instant::now();
        if !self.lookup.is_empty() || now < self.gathers_until {
            return;
        }
        let nodes = self.waiting.take(now, self.controller.provider.largest_lookup);
        if nodes.is_empty() {
            return;
        }
        tracing::debug!(nodes = nodes.len(), "looking up machines");
        let instances = Arc::clone(&self.controller.instances);
        let labels = self.controller.provider.node_labels.clone();
        self.lookup.spawn(async move {
            let references: Vec<_> = nodes.iter().map(|node| node.reference(&labels)).collect();
            match instances.lookup(Purpose::Initialise, &references).await {
                Ok(answers) => nodes.into_iter().zip(answers).collect(),
                Err(error) => {
                    tracing::warn!(nodes = nodes.len(), "no machine was looked up: {error}");
                    nodes.into_iter().map(|node| (node, Err(error.clone()))).collect()
                }
            }
        });
    }

    /// Starts the writes that follow from a lookup.
    fn answered(&mut self, found: Vec<(NodeFacts, Result<Answer, pileus_cloud::Error>)>) {
        // The same for all of a lookup, so that those that failed together are looked up together.
        let jitter = (self.controller.jitter)();
        for (looked_up, answer) in found {
            self.controller.metrics.answered(label(&answer));
            // The Node may have changed during the lookup: plan with what is known now. The answer is about a machine
            // that was asked for by provider ID or name, so it is of no use for another Node that bears the name now.
            let same =
                |now: &&NodeFacts| now.uid == looked_up.uid && now.provider_id == looked_up.provider_id;
            let Some(node) = self.waiting.get(&looked_up.name).filter(same).cloned() else {
                self.waiting.settled(&looked_up.name, Instant::now(), None);
                continue;
            };
            match decide(answer) {
                Next::Write(machine) => {
                    let (controller, writers) = (Arc::clone(&self.controller), Arc::clone(&self.writers));
                    self.work.spawn(async move {
                        let Ok(_turn) = writers.acquire_owned().await else { return (node, Done::Settled) };
                        let done = controller.complete(node.clone(), &machine).await;
                        (node, done)
                    });
                }
                Next::Done(done) => self.done(&node, done, jitter),
            }
        }
    }

    /// Notes what became of the work on a Node, and tells whoever should know.
    fn done(&mut self, node: &NodeFacts, done: Done, jitter: f64) {
        let now = Instant::now();
        match done {
            Done::Settled => self.waiting.settled(&node.name, now, None),
            Done::Again(after) => self.waiting.settled(&node.name, now, Some(after)),
            Done::Initialised(node) => {
                self.controller.tell_initialised(&node);
                self.waiting.initialised(*node, now);
            }
            Done::Failed(retry, why) => {
                let failures = self.waiting.failed(&node.name, now, retry, jitter);
                self.controller.tell_failed(node, failures, &why);
            }
        }
    }
}

impl Controller {
    /// The facts of a Node that waits and is this provider's; none for all others.
    fn take_on(&self, node: Node) -> Option<NodeFacts> {
        match NodeFacts::read(node) {
            Ok(facts) if facts.is_deleting || !facts.is_uninitialised() => None,
            Ok(facts) => self.provider.serves(facts.provider_id.as_ref()).then_some(facts),
            Err(unreadable) => {
                tracing::warn!("{unreadable}; it is left alone");
                None
            }
        }
    }
}

/// What a task brought. A panic in one is a defect of ours: it ends the controller, and with it the process, rather
/// than leave a Node that nobody looks at any more.
fn finished<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(cancelled) => unreachable!("no task is cancelled while the loop runs: {cancelled}"),
    })
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
