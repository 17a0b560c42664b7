//! The route controller: the cloud's routes follow the Nodes' ranges of Pod addresses.
//!
//! What there should be is compared with what there is, for all Nodes together, whenever a Node has changed in a way that
//! matters, and each half hour against a fresh list, as routes also change behind our back. In between the table is known
//! from the last list and our own changes: a Node that joins costs one write and no read (P-22). A route is deleted only as
//! a list made for that very pass shows it, and while the cluster is the one of the start.

mod apply;
mod ledger;
pub(crate) mod metrics;
pub mod outlook;
mod plan;
#[cfg(test)]
mod scenarios;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{Cluster, Error, ErrorKind, Provider, Retry, RouteProgress, Routes};
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
    /// Whether Nodes wait for their routes before they are initialised.
    pub nodes_wait: bool,
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
    /// What each Node's routes followed from when it was last seen, by its name.
    seen: BTreeMap<String, u64>,
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

    /// The same for a cluster whose UID is known.
    #[must_use]
    pub fn of_cluster(mut self, uid: Option<String>) -> Self {
        self.settings.cluster.uid = uid;
        self
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
            let wakes = memory.wakes().filter(|_| is_known(&memory)).map(|at| at.max(gathers_until));
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
            let (plan, is_fresh) = self.fresh_enough(memory).await?;
            memory.forget_unwanted(&plan);
            self.report_contested(memory, &plan);
            let taken = self.delete(memory, &plan, is_fresh).await;
            self.create(memory, &plan, &taken).await;
            Some(plan)
        };
        // What the provider has begun is finished by the gate.
        let Some(Some(plan)) = stop.run_until_cancelled(changing).await else { return };
        self.tell(memory, plan, stop).await;
    }

    /// A plan from what is known; where that wants to delete something, from a list made for it, if that can be had. And
    /// whether it is from such a list. None while the cloud's table isn't known.
    async fn fresh_enough(&self, memory: &mut Memory) -> Option<(Plan, bool)> {
        let mut is_fresh = false;
        if memory.audit <= Instant::now() {
            is_fresh = self.list(memory).await;
        }
        let plan = self.plan(memory)?;
        let is_due = |known: &Known| memory.ledger.is_due(&delete_key(known), Instant::now());
        // A list that fails has its own time, whatever Nodes do meanwhile.
        if is_fresh || memory.list_failures > 0 || !plan.deletes.iter().any(is_due) {
            return Some((plan, is_fresh));
        }
        is_fresh = self.list(memory).await;
        Some((self.plan(memory)?, is_fresh))
    }

    /// Tells a Node that another one has its range.
    fn report_contested(&self, memory: &mut Memory, plan: &Plan) {
        for (wanted, owner) in &plan.contested {
            let (key, now) = (contested_key(wanted), Instant::now());
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
        let left_alone = &self.nodes.unreadable_ranges();
        let nodes_wait = self.settings.nodes_wait;
        Some(plan::plan(World { nodes: &nodes, left_alone, schemes, routes, cluster_ranges, nodes_wait }))
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
                        "the cloud's routes can't be listed, so none is deleted: {error}"
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
                    let digest = plan::digest(&node);
                    concerns |= self.seen.insert(node.name.clone(), digest) != Some(digest);
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
        let deletes = plan.deletes.iter().map(delete_key);
        let creates = plan.creates.iter().map(create_key);
        let contested = plan.contested.iter().map(|(wanted, _)| contested_key(wanted));
        let wanted: BTreeSet<_> = deletes.chain(creates).chain(contested).collect();
        let nodes: HashSet<&str> = plan.networks.iter().map(|(node, _)| &*node.uid).collect();
        self.ledger.retain(|key| match key {
            Key::Condition(uid) => nodes.contains(&**uid),
            Key::Delete(_) | Key::Create(..) | Key::Contested(..) => wanted.contains(key),
        });
    }

    /// Notes what became of a change at the cloud. Whether it is done.
    fn came(&mut self, key: Key, outcome: &Result<RouteProgress, Error>, jitter: f64) -> bool {
        let now = Instant::now();
        match outcome {
            Ok(RouteProgress::Done) => {
                self.ledger.done(&key);
                true
            }
            Ok(RouteProgress::InProgress { after, resume }) => {
                self.ledger.is_under_way(key, now, *after, resume.clone());
                false
            }
            Err(error) => {
                let failures = self.ledger.failed(key, now, error.kind.retry(), jitter);
                // The table isn't what we take it for. Where another look doesn't help, it is looked at ever less often.
                if error.kind == ErrorKind::Conflict && failures.is_power_of_two() {
                    self.audit = now;
                }
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
    let plan::Wanted { node, range } = wanted;
    Key::Create(*range, node.uid.clone(), node.provider_id.clone())
}

fn contested_key(wanted: &plan::Wanted) -> Key {
    Key::Contested(wanted.range, wanted.node.uid.clone())
}

fn condition_key(node: &NodeFacts) -> Key {
    Key::Condition(node.uid.clone())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use pileus_cloud::{ListedRoute, Route, RouteAction, RouteChange};
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::api_server::ApiServer;
    use crate::health::Health;
    use crate::scenarios::Stored;

    /// How long a call takes.
    const LATENCY: Duration = Duration::from_millis(20);
    const AUDIT: Duration = Duration::from_mins(30);

    /// A cloud's table, and what becomes of changes to a range before they succeed.
    #[derive(Clone, Default)]
    struct Cloud(Arc<Mutex<Table>>);

    #[derive(Default)]
    struct Table {
        routes: Vec<ListedRoute>,
        calls: Vec<String>,
        outcomes: BTreeMap<String, VecDeque<Result<RouteProgress, Error>>>,
        lists: VecDeque<Error>,
        /// How many calls of changes fail as a whole.
        failing: usize,
    }

    impl Cloud {
        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().calls)
        }

        fn has(&self, node: &str, destination: &str) {
            self.0.lock().unwrap().routes.push(there(node, destination));
        }

        fn answers(&self, destination: &str, outcomes: Vec<Result<RouteProgress, Error>>) {
            self.0.lock().unwrap().outcomes.insert(destination.to_owned(), outcomes.into());
        }
    }

    fn there(node: &str, destination: &str) -> ListedRoute {
        ListedRoute {
            name: format!("to {destination}"),
            node: Some(node.to_owned()),
            target: None,
            addresses: Vec::new(),
            destination: destination.to_owned(),
            is_blackhole: false,
            extra: vec![("etag".to_owned(), "1".to_owned())],
        }
    }

    #[async_trait]
    impl Routes for Cloud {
        async fn list(&self, _: &Cluster) -> Result<Vec<ListedRoute>, Error> {
            tokio::time::sleep(LATENCY).await;
            let mut table = self.0.lock().unwrap();
            table.calls.push("list".to_owned());
            table.lists.pop_front().map_or_else(|| Ok(table.routes.clone()), Err)
        }

        async fn change(
            &self,
            _: &Cluster,
            changes: &[RouteChange],
        ) -> Result<Vec<Result<RouteProgress, Error>>, Error> {
            tokio::time::sleep(LATENCY).await;
            let mut table = self.0.lock().unwrap();
            if table.failing > 0 {
                table.failing -= 1;
                table.calls.push(format!("none of {}", changes.len()));
                return Err(Error::new(ErrorKind::Unavailable, "down"));
            }
            let mut one = |RouteChange { action, resume }: &RouteChange| {
                let (verb, destination) = match action {
                    RouteAction::Delete(route) => ("delete", route.destination.clone()),
                    RouteAction::Create(route) => ("create", route.destination.to_string()),
                };
                let note = resume.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
                table.calls.push(format!("{verb} {destination}{note}"));
                let planned = table.outcomes.get_mut(&destination).and_then(VecDeque::pop_front);
                if let Some(outcome) = planned {
                    return outcome;
                }
                match action {
                    RouteAction::Delete(route) => table.routes.retain(|there| there != route),
                    RouteAction::Create(Route { node, destination, .. }) => {
                        table.routes.push(there(node, &destination.to_string()));
                    }
                }
                Ok(RouteProgress::Done)
            };
            Ok(changes.iter().map(&mut one).collect())
        }
    }

    struct World {
        api: ApiServer,
        cloud: Cloud,
        stop: CancellationToken,
        nodes_wait: bool,
    }

    impl World {
        /// A controller that runs, and these Nodes with their ranges.
        fn new(nodes: &[(&str, &str)]) -> Self {
            let (api, cloud, stop) = (ApiServer::new(), Cloud::default(), CancellationToken::new());
            let world = Self { api, cloud, stop, nodes_wait: false };
            world.is_cluster("cluster");
            for (name, range) in nodes {
                world.join(name, range);
            }
            world
        }

        fn start(&self) {
            let metrics = Metrics::register(&mut Registry::default());
            let nodes = Nodes::new(self.api.client(), metrics.clone(), &Health::default());
            let (events, _) = Events::start(self.api.client(), "test", "test", metrics.clone());
            let provider = Provider {
                name: "test".to_owned(),
                schemes: vec!["fake".to_owned()],
                node_labels: Vec::new(),
                largest_lookup_batch: 1,
                instances: None,
                service_requirements: pileus_cloud::ServiceRequirements::default(),
                load_balancers: None,
                largest_route_batch: 2,
                routes: Some(Arc::new(self.cloud.clone())),
            };
            let settings = Settings {
                cluster: Cluster { name: "test".to_owned(), uid: Some("cluster".to_owned()) },
                cluster_ranges: vec!["10.0.0.0/8".parse().unwrap()],
                nodes_wait: self.nodes_wait,
                audit_period: AUDIT,
            };
            let controller = Controller::new(nodes.clone(), provider, events, metrics, settings, || 0.0);
            tokio::spawn(controller.unwrap().run(self.stop.clone()));
            tokio::spawn(async move { nodes.watch(CancellationToken::new()).await });
        }

        fn join(&self, name: &str, range: &str) {
            let node = json!({
                "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"taints": null, "podCIDRs": [range]},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.200.0.1"}]},
            });
            self.api.put(&Stored::registered(&node));
        }

        fn is_cluster(&self, uid: &str) {
            self.api.store("namespaces", json!({"metadata": {"name": "kube-system", "uid": uid}}));
        }

        async fn after(&self, time: Duration) -> Vec<String> {
            tokio::time::sleep(time).await;
            self.cloud.calls()
        }

        fn network(&self, name: &str) -> String {
            self.api.get(name).facts().network_unavailable.map_or("untold".to_owned(), |told| told.status)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_node_that_joins_costs_one_write_and_no_list_and_nothing_happens_after() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(world.network("a"), "False");
        world.join("b", "10.1.1.0/24");
        assert_eq!(world.after(SECOND).await, ["create 10.1.1.0/24"]);
        assert_eq!(world.network("b"), "False");
        assert_eq!(world.api.writes(), ["PATCH a/status", "PATCH b/status"]);
        // Until the audit, which finds all as it was.
        assert_eq!(world.after(AUDIT.saturating_sub(SECOND * 5)).await, Vec::<String>::new());
        assert_eq!(world.after(SECOND * 10).await, ["list"]);
        assert_eq!(world.api.writes(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_gets_its_route_once_it_is_initialised_or_where_it_waits_once_it_has_a_provider_id() {
        for nodes_wait in [false, true] {
            let world = World { nodes_wait, ..World::new(&[("a", "10.1.0.0/24")]) };
            let taint =
                json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
            let waits = world.api.put(&world.api.get("a").with(&json!({"spec": {"taints": taint}})));
            world.start();
            assert_eq!(world.after(SECOND).await, ["list"]);
            assert_eq!(world.network("a"), "untold");
            let is_known = world.api.put(&waits.with(&json!({"spec": {"providerID": "fake://a"}})));
            let create = vec!["create 10.1.0.0/24"];
            assert_eq!(world.after(SECOND).await, if nodes_wait { create.clone() } else { vec![] });
            assert_eq!(world.network("a"), if nodes_wait { "False" } else { "untold" });
            let status = &world.api.get("a").0["status"];
            world.api.put(&is_known.with(&json!({"spec": {"taints": null}, "status": status})));
            assert_eq!(world.after(SECOND).await, if nodes_wait { vec![] } else { create });
            assert_eq!(world.network("a"), "False");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_changed_behind_our_back_is_put_right_by_the_audit() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        world.after(SECOND).await;
        world.cloud.0.lock().unwrap().routes.clear();
        world.cloud.has("x", "10.1.9.0/24");
        assert_eq!(world.after(AUDIT + SECOND).await, ["list", "delete 10.1.9.0/24", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_is_deleted_only_as_a_fresh_list_shows_it() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.cloud.has("a", "10.1.0.0/24");
        world.start();
        assert_eq!(world.after(SECOND).await, ["list"]);
        let node = world.api.get("a");
        world.api.put(&node.with(&json!({"spec": {"podCIDRs": ["10.1.7.0/24"]}})));
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.0.0/24", "create 10.1.7.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_cluster_is_another_one_no_route_is_deleted_and_others_are_created() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        world.after(SECOND).await;
        world.is_cluster("other");
        world.cloud.has("gone", "10.1.9.0/24");
        world.join("a", "10.1.7.0/24");
        let calls = world.after(AUDIT * 2).await;
        assert!(calls.contains(&"create 10.1.7.0/24".to_owned()), "{calls:?}");
        assert!(!calls.iter().any(|call| call.starts_with("delete")), "{calls:?}");
        world.is_cluster("cluster");
        let calls = world.after(SECOND * 100).await;
        assert_eq!(calls, ["list", "delete 10.1.0.0/24", "delete 10.1.9.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cluster_is_read_only_where_a_route_is_to_go_which_stays_if_that_fails() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.api.fail_reads("namespaces", 1);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        // The read that fails is the first, which none of the passes before has made.
        world.join("a", "10.1.7.0/24");
        assert_eq!(world.after(SECOND / 10).await, ["list", "create 10.1.7.0/24"]);
        assert_eq!(world.after(SECOND * 10).await, ["list", "delete 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_moves_from_one_node_to_another_only_once_it_is_free() {
        let world = World::new(&[("b", "10.1.0.0/24")]);
        world.cloud.has("gone", "10.1.0.0/24");
        let error = Error::new(ErrorKind::Unavailable, "down");
        world.cloud.answers("10.1.0.0/24", vec![Err(error)]);
        world.start();
        assert_eq!(world.after(SECOND / 4).await, ["list", "delete 10.1.0.0/24"]);
        assert_eq!(world.network("b"), "True");
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.0.0/24", "create 10.1.0.0/24"]);
        assert_eq!(world.network("b"), "False");
        assert_eq!(world.after(SECOND * 60).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_waits_alone_and_its_node_is_told() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.1.0/24"), ("c", "10.1.2.0/24")]);
        let error = || Err(Error::new(ErrorKind::Unavailable, "the table is locked"));
        world.cloud.answers("10.1.1.0/24", vec![error(), error()]);
        world.start();
        let first = world.after(SECOND / 4).await;
        assert_eq!(first, ["list", "create 10.1.0.0/24", "create 10.1.1.0/24", "create 10.1.2.0/24"]);
        assert_eq!(["a", "b", "c"].map(|name| world.network(name)), ["False", "True", "False"]);
        assert_eq!(world.after(SECOND * 3).await, ["create 10.1.1.0/24", "create 10.1.1.0/24"]);
        assert_eq!(world.network("b"), "False");
        let note = "b: Could not create route for 10.1.1.0/24: the table is locked";
        assert!(world.api.notes().iter().any(|told| told.ends_with(note)), "{:?}", world.api.notes());
        assert!(world.api.events().contains(&"FailedToCreateRoute b".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_as_a_whole_ends_the_pass_and_the_others_go_first_in_the_next() {
        let nodes = [("a", "10.1.0.0/24"), ("b", "10.1.1.0/24"), ("c", "10.1.2.0/24"), ("d", "10.1.3.0/24")];
        let world = World::new(&nodes);
        world.cloud.0.lock().unwrap().failing = 1;
        world.start();
        assert_eq!(world.after(SECOND / 20).await, ["list", "none of 2"]);
        let calls = world.after(SECOND * 5).await;
        let in_turn = ["10.1.2.0/24", "10.1.3.0/24", "10.1.0.0/24", "10.1.1.0/24"];
        assert_eq!(calls, in_turn.map(|range| format!("create {range}")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_takes_its_time_is_asked_about_with_its_note() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let resume = Some("operation 7".to_owned());
        world.cloud.answers("10.1.0.0/24", vec![Ok(RouteProgress::InProgress { after: SECOND * 5, resume })]);
        world.start();
        assert_eq!(world.after(SECOND * 4).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(world.network("a"), "True");
        assert_eq!(world.after(SECOND * 4).await, ["create 10.1.0.0/24 operation 7"]);
        assert_eq!(world.network("a"), "False");
        assert!(world.api.events().is_empty(), "it is no failure");
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_has_the_table_read_again() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.cloud.answers("10.1.0.0/24", vec![Err(Error::new(ErrorKind::Conflict, "it has changed"))]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24", "list", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_table_is_not_known_nothing_is_changed_and_nothing_told() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let error = || Error::new(ErrorKind::Unavailable, "down");
        world.cloud.0.lock().unwrap().lists.extend([error(), error()]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "list"]);
        assert_eq!(world.network("a"), "untold");
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_nodes_of_one_range_make_no_storm() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["False", "True"]);
        assert!(world.api.events().contains(&"FailedToCreateRoute b".to_owned()));
        assert_eq!(world.after(SECOND * 30).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_contested_range_is_the_other_nodes_as_soon_as_it_is_given_up() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        world.join("a", "10.1.7.0/24");
        let calls = ["list", "delete 10.1.0.0/24", "create 10.1.7.0/24", "create 10.1.0.0/24"];
        assert_eq!(world.after(SECOND).await, calls);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["False", "False"]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_no_list_can_be_had_a_range_stays_taken_and_nodes_that_join_bring_no_more_lists() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        world.after(SECOND).await;
        world.cloud.0.lock().unwrap().lists.push_back(Error::new(ErrorKind::Unavailable, "down"));
        world.join("a", "10.1.7.0/24");
        world.join("b", "10.1.0.0/24");
        assert_eq!(world.after(SECOND / 4).await, ["list", "create 10.1.7.0/24"]);
        world.join("c", "10.1.2.0/24");
        assert_eq!(world.after(SECOND / 8).await, ["create 10.1.2.0/24"]);
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.0.0/24", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_nobody_can_work_on_keeps_its_route() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.1.0/24")]);
        world.cloud.has("a", "10.1.0.0/24");
        world.cloud.has("gone", "10.1.9.0/24");
        world.api.put(&world.api.get("a").with(&json!({"spec": {"providerID": "i-123"}})));
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.9.0/24", "create 10.1.1.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn conflicts_without_end_have_the_table_read_ever_less_often() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world
            .cloud
            .answers("10.1.0.0/24", vec![Err(Error::new(ErrorKind::Conflict, "it is another's")); 100]);
        world.start();
        let calls = world.after(SECOND * 600).await;
        let lists = calls.iter().filter(|call| *call == "list").count();
        assert!(calls.len() - lists > 10 && lists <= 5, "{calls:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_of_the_same_name_takes_over_no_note() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let resume = Some("operation 7".to_owned());
        world.cloud.answers("10.1.0.0/24", vec![Ok(RouteProgress::InProgress { after: SECOND * 5, resume })]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        let other = world.api.get("a").with(&json!({"metadata": {"uid": "uid-other"}}));
        world.api.put(&other);
        assert_eq!(world.after(SECOND).await, ["create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_policy_that_changes_the_condition_back_makes_no_storm() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let condition = json!([{"type": "NetworkUnavailable", "status": "Unknown", "reason": "Policy"}]);
        world.api.enforce(json!({"status": {"conditions": condition}}));
        world.start();
        world.after(SECOND * 30).await;
        assert!((1..=2).contains(&world.api.writes().len()));
    }
}
