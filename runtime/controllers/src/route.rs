//! The route controller: the cloud's routes follow the Nodes' ranges of Pod addresses.
//!
//! What there should be is compared with what there is, for all Nodes together, whenever a Node has changed in a way that
//! matters, and each half hour against a fresh list, as routes also change behind our back. In between the table is known
//! from the last list and our own changes: a Node that joins costs one write and no read (P-22). A route is deleted only as
//! a list made for that very pass shows it.

mod apply;
mod ledger;
pub(crate) mod metrics;
mod plan;
#[cfg(test)]
mod scenarios;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{Cluster, Error, ErrorKind, Progress, Provider, Retry, Routes};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::events::{Events, Reason};
use crate::facts::node::NodeFacts;
use crate::metrics::Metrics;
use crate::nodes::{Change, Nodes};
use crate::schedule::Delays;
use ledger::{Key, Ledger};
use plan::{Known, Plan, World};

/// How long changes are gathered after a pass before the next one: Nodes that join together get their routes together.
const GATHERING: Duration = Duration::from_millis(100);

/// What an operator says of the cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The ranges of all Pods' addresses, one of each family at most. What lies outside is never touched.
    pub cluster_ranges: Vec<IpNet>,
    /// How often the cloud's table is read although nothing has changed that we know of.
    pub audit_period: Duration,
}

/// The route controller.
pub struct Controller {
    nodes: Nodes,
    routes: Arc<dyn Routes>,
    provider: Provider,
    events: Events,
    metrics: Metrics,
    settings: Settings,
    /// A number from 0 to 1 that spreads what happens together.
    jitter: fn() -> f64,
}

/// What is kept between passes. All of it can be lost: a list brings it back.
struct Memory {
    /// The cloud's table; none before the first list.
    table: Option<Vec<Known>>,
    /// When it is to be listed anew.
    audit: Instant,
    list_failures: u32,
    /// When the last pass began.
    passed: Instant,
    ledger: Ledger,
    /// The Nodes as they were when they last mattered.
    seen: BTreeMap<String, Arc<NodeFacts>>,
}

impl Controller {
    /// Puts the controller together; none where the provider programs no routes.
    pub fn new(
        nodes: Nodes,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        settings: Settings,
        jitter: fn() -> f64,
    ) -> Option<Self> {
        let routes = provider.routes.clone()?;
        Some(Self { nodes, routes, provider, events, metrics, settings, jitter })
    }

    /// Works until it is told to stop. What it has begun at the cloud is finished there, or found by the next list.
    pub async fn run(self, stop: CancellationToken) {
        let mut memory = Memory {
            table: None,
            audit: Instant::now(),
            list_failures: 0,
            passed: Instant::now(),
            ledger: Ledger::default(),
            seen: BTreeMap::new(),
        };
        let mut changes = self.nodes.follow();
        let mut gathers_until = Instant::now();
        // Nothing can be said of routes before all Nodes are known.
        let mut is_due = false;
        loop {
            let wakes = memory.wakes().filter(|_| is_known(&memory));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = changes.recv() => match changed {
                    Some(changed) => is_due |= memory.observe(changed),
                    None => return,
                },
                () = until(if is_due { Some(gathers_until) } else { wakes }) => {
                    is_due = false;
                    self.pass(&mut memory, &stop).await;
                    gathers_until = Instant::now() + GATHERING;
                }
            }
        }
    }

    /// Compares all that there should be with all that there is, and changes what is due.
    async fn pass(&self, memory: &mut Memory, stop: &CancellationToken) {
        self.metrics.route.pass();
        memory.passed = Instant::now();
        let changing = async {
            let plan = self.fresh_enough(memory).await?;
            memory.forget_unwanted(&plan);
            self.report_contested(memory, &plan);
            self.delete(memory, &plan).await;
            self.create(memory, &plan).await;
            Some(plan)
        };
        // What the provider has begun is finished by the gate.
        let Some(Some(plan)) = stop.run_until_cancelled(changing).await else { return };
        self.tell(memory, &plan, stop).await;
    }

    /// A plan from what is known; where that wants to delete something, from a list made for it. None while the cloud's
    /// table isn't known.
    async fn fresh_enough(&self, memory: &mut Memory) -> Option<Plan> {
        let mut is_fresh = false;
        if memory.table.is_none() || memory.audit <= Instant::now() {
            is_fresh = self.list(memory).await;
        }
        let plan = self.plan(memory)?;
        let is_due = |known: &Known| memory.ledger.is_due(&delete_key(known), Instant::now());
        if is_fresh || !plan.deletes.iter().any(is_due) {
            return Some(plan);
        }
        if self.list(memory).await { self.plan(memory) } else { Some(Plan { deletes: Vec::new(), ..plan }) }
    }

    /// Tells a Node that another one has its range.
    fn report_contested(&self, memory: &mut Memory, plan: &Plan) {
        for (wanted, owner) in &plan.contested {
            let (key, now) = (create_key(wanted), Instant::now());
            if memory.ledger.is_due(&key, now) {
                let note = format!(
                    "Could not create route for {}: node {owner} has that range already; each node needs its own",
                    wanted.range
                );
                self.events.about_node(&wanted.node, Reason::FailedToCreateRoute, note);
                // Somebody has to give one of them another.
                memory.ledger.failed(key, now, Retry::Slowly, (self.jitter)());
            }
        }
    }

    fn plan(&self, memory: &Memory) -> Option<Plan> {
        let (nodes, routes) = (self.nodes.all()?, memory.table.as_ref()?);
        let (schemes, cluster_ranges) = (&*self.provider.schemes, &*self.settings.cluster_ranges);
        Some(plan::plan(World { nodes: &nodes, schemes, routes, cluster_ranges }))
    }

    /// Reads the cloud's table. Whether that succeeded; until it does, later passes try again with growing delay.
    async fn list(&self, memory: &mut Memory) -> bool {
        let listed = self.routes.list(&self.settings.cluster).await;
        self.metrics.route.listed(listed.as_ref().err());
        let now = Instant::now();
        match listed {
            Ok(routes) => {
                if memory.list_failures > 0 {
                    tracing::info!(routes = routes.len(), "the cloud's routes are listed again");
                }
                memory.list_failures = 0;
                memory.table = Some(routes.into_iter().map(Known::listed).collect());
                memory.audit = now + self.settings.audit_period.mul_f64(1.0 + (self.jitter)() / 10.0);
                true
            }
            Err(error) => {
                memory.list_failures = memory.list_failures.saturating_add(1);
                let delay =
                    Delays::default().after(error.kind.retry(), memory.list_failures, (self.jitter)());
                memory.audit = now + delay;
                if memory.list_failures.is_power_of_two() {
                    tracing::warn!(
                        failures = memory.list_failures, provider = %self.provider.name,
                        "the cloud's routes are not known, so none is changed: {error}"
                    );
                }
                false
            }
        }
    }
}

impl Memory {
    /// Notes what has changed. Whether it can change routes.
    fn observe(&mut self, changes: Vec<Change>) -> bool {
        let mut concerns = false;
        for change in changes {
            match change {
                Change::Present(node) => {
                    let before = self.seen.get(&node.name).map(|node| &**node);
                    if plan::concerns(before, &node) {
                        concerns = true;
                        self.seen.insert(node.name.clone(), node);
                    }
                }
                Change::Gone(name) => concerns |= self.seen.remove(&name).is_some(),
            }
        }
        concerns
    }

    fn wakes(&self) -> Option<Instant> {
        self.ledger.next_after(self.passed).into_iter().chain([self.audit]).min()
    }

    /// Forgets what was the matter with changes that the plan doesn't want any more.
    fn forget_unwanted(&mut self, plan: &Plan) {
        let deletes: Vec<_> = plan.deletes.iter().map(delete_key).collect();
        let contested = plan.contested.iter().map(|(wanted, _)| wanted);
        let creates: Vec<_> = plan.creates.iter().chain(contested).map(create_key).collect();
        let wanted: BTreeSet<_> = deletes.into_iter().chain(creates).collect();
        self.ledger.retain(|key| matches!(key, Key::Condition(_)) || wanted.contains(key));
    }

    /// Notes what became of a change at the cloud. Whether it is done.
    fn came(&mut self, key: Key, outcome: &Result<Progress, Error>, jitter: f64) -> bool {
        let now = Instant::now();
        match outcome {
            Ok(Progress::Done) => {
                self.ledger.done(&key);
                true
            }
            Ok(Progress::Under { after, resume }) => {
                self.ledger.is_under_way(key, now, *after, resume.clone());
                false
            }
            Err(error) => {
                // The table isn't what we take it for.
                if error.kind == ErrorKind::Conflict {
                    self.audit = now;
                }
                self.ledger.failed(key, now, error.kind.retry(), jitter);
                false
            }
        }
    }
}

/// Whether the Nodes have been heard of, so that there can be something to wake for.
fn is_known(memory: &Memory) -> bool {
    memory.table.is_some() || memory.list_failures > 0
}

fn delete_key(known: &Known) -> Key {
    Key::Delete(known.route.name.clone())
}

fn create_key(wanted: &plan::Wanted) -> Key {
    Key::Create(wanted.range, wanted.node.name.clone())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
