//! The route controller keeps a route in the cloud for each Pod CIDR of each Node.
//!
//! A pass compares the desired routes with the cloud's table, for all Nodes together. It runs when a Node has changed in a way
//! that matters, and each half hour with a new list, because routes also change by other means. Between lists the table is
//! known from the last list and our own changes, so a Node that joins costs one write and no read (U-22). A route is deleted
//! only if a list made for that pass shows it, and only while the cluster is still that of the start. A range for which the
//! provider needs no route counts as present, although no list shows it (`elsewhere`).

mod apply;
mod elsewhere;
mod known;
mod memory;
pub(crate) mod metrics;
mod pending;
mod plan;
pub mod preview;
mod report;
#[cfg(test)]
mod scenarios;
mod truce;

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{Cluster, Provider, Routes};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deps::ControllerDeps;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::schedule::Backoff;
use crate::timer::sleep_until;
use memory::{Memory, delete_key};
use plan::{KnownRoute, Plan, PlanInputs};

/// The pause after a pass in which changes are gathered, so that Nodes that join together get their routes together.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// What the operator has set for the controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster.
    pub cluster: Cluster,
    /// The CIDRs of all Pods, at most one of each family. Routes outside are never touched.
    pub cluster_ranges: Vec<IpNet>,
    /// Whether Nodes wait for their routes before they are initialized.
    pub nodes_wait: bool,
    /// The time after which the cloud's table is listed although no Node has changed.
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
    /// See [`ControllerDeps::jitter`].
    jitter: fn() -> f64,
}

impl Controller {
    /// Builds the controller. `None` where the provider has no routes.
    pub fn new(deps: ControllerDeps, settings: Settings) -> Option<Self> {
        let ControllerDeps { nodes, addresses: _, provider, events, metrics, jitter } = deps;
        let routes = provider.routes.clone()?;
        metrics.route.show();
        Some(Self { nodes, routes, provider, events, metrics, settings, jitter })
    }

    /// Sets the UID of the cluster.
    #[must_use]
    pub fn of_cluster(mut self, uid: Option<String>) -> Self {
        self.settings.cluster.uid = uid;
        self
    }

    /// Runs until `stop`. A change in flight is finished by the gate, or found by the next list.
    pub async fn run(self, stop: CancellationToken) {
        let mut memory = Memory::default();
        let mut changes = self.nodes.subscribe();
        let mut confirmed = self.nodes.confirmations(&self.provider.name).subscribe();
        // The first pass waits for the list of all Nodes.
        let (mut next_pass, mut is_due) = (Instant::now(), false);
        loop {
            let wake = memory.next_wake().map(|at| at.max(next_pass));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = changes.recv() => match changed {
                    Some(changed) => is_due |= memory.observe(changed, &self.provider.node_labels),
                    None => return,
                },
                Ok(()) = confirmed.changed(), if memory.table.is_some() => is_due = true,
                () = sleep_until(if is_due { Some(next_pass) } else { wake }) => {
                    is_due = false;
                    self.pass(&mut memory, &stop).await;
                    next_pass = Instant::now() + BATCH_WINDOW;
                }
            }
        }
    }

    /// Compares the desired routes with the table, and makes the changes that are due.
    async fn pass(&self, memory: &mut Memory, stop: &CancellationToken) {
        self.metrics.route.count_pass();
        memory.last_pass = Instant::now();
        let changing = async {
            let (plan, is_fresh) = self.plan_with_list(memory).await?;
            memory.forget_unwanted(&plan);
            self.report_conflicts(memory, &plan);
            let occupied = self.delete(memory, &plan, is_fresh).await;
            self.create(memory, &plan, &occupied).await;
            Some(plan)
        };
        // The gate finishes a call in flight.
        let Some(Some(plan)) = stop.run_until_cancelled(changing).await else { return };
        self.write_conditions(memory, plan, stop).await;
    }

    /// Plans the pass. A plan with deletions that are due is made from a new list, if the cloud can be listed. Returns the plan and
    /// whether it is from a new list. `None` while the cloud's table isn't known.
    async fn plan_with_list(&self, memory: &mut Memory) -> Option<(Plan, bool)> {
        let mut is_fresh = false;
        if memory.next_list <= Instant::now() {
            is_fresh = self.list(memory).await;
        }
        let plan = self.plan(memory)?;
        let is_due = |known: &KnownRoute| memory.pending.is_due(&delete_key(known), Instant::now());
        // A list that has failed is retried at its own time, regardless of Node changes.
        if is_fresh || memory.list_failures > 0 || !plan.deletes.iter().any(is_due) {
            return Some((plan, is_fresh));
        }
        is_fresh = self.list(memory).await;
        Some((self.plan(memory)?, is_fresh))
    }

    fn plan(&self, memory: &Memory) -> Option<Plan> {
        let (nodes, routes) = (self.nodes.all(&self.provider.name)?, memory.table.as_ref()?);
        let (provider, cluster_ranges) = (&*self.provider.name, &*self.settings.cluster_ranges);
        let unreadable_ranges = &self.nodes.unreadable_ranges();
        let nodes_wait = self.settings.nodes_wait;
        let cluster_uid = self.settings.cluster.uid.as_deref();
        let inputs = PlanInputs {
            nodes: &nodes,
            unreadable_ranges,
            provider,
            cluster_uid,
            routes,
            cluster_ranges,
            nodes_wait,
            pending: &memory.pending,
        };
        let mut plan = plan::plan(inputs);
        // A cloud may refuse a change of the whole table for a route to an instance that doesn't exist.
        let confirmations = self.nodes.confirmations(&self.provider.name);
        let unusable = confirmations.unusable(nodes.iter().map(|node| &**node));
        let (labels, now) = (&self.provider.node_labels, Instant::now());
        plan.creates.retain(|wanted| {
            let route = plan::route_digest(&wanted.node, labels);
            !unusable.contains(&wanted.node.uid) && !memory.elsewhere.is_settled(wanted, route, now)
        });
        Some(plan)
    }

    /// A period that differs from one time to the next, so that clusters that start together don't stay together.
    fn jittered(&self, period: Duration) -> Duration {
        period.mul_f64(1.0 + (self.jitter)() / 10.0)
    }

    /// Lists the cloud's table. Returns whether that succeeded. A failed list is retried by later passes, after a backoff.
    async fn list(&self, memory: &mut Memory) -> bool {
        let listed = self.routes.list(&self.settings.cluster).await;
        self.metrics.route.count_list(listed.as_ref().err());
        let now = Instant::now();
        match listed {
            Ok(routes) => {
                if memory.list_failures > 0 {
                    tracing::info!(routes = routes.len(), "listing routes succeeds again");
                }
                memory.list_failures = 0;
                let routes: Vec<_> = routes.into_iter().map(KnownRoute::listed).collect();
                self.report_other_clusters(memory, &routes);
                memory.table = Some(routes);
                memory.next_list = now + self.jittered(self.settings.audit_period);
                true
            }
            Err(error) => {
                memory.list_failures = memory.list_failures.saturating_add(1);
                let delay =
                    Backoff::default().delay(error.kind.retry(), memory.list_failures, (self.jitter)());
                memory.next_list = now + delay;
                if memory.list_failures.is_power_of_two() {
                    tracing::warn!(
                        failures = memory.list_failures, provider = %self.provider.name, %error,
                        "listing routes failed; no route is deleted until it succeeds"
                    );
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};
    use std::sync::Mutex;

    use async_trait::async_trait;
    use pileus_cloud::{Error, ErrorKind, ListedRoute, Route, RouteAction, RouteChange, RouteProgress};
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::api_server::{ApiServer, history};
    use crate::cluster_addresses::ClusterAddresses;
    use crate::health::Health;
    use crate::model;
    use crate::scenarios::StoredNode;

    /// The duration of a call.
    const LATENCY: Duration = Duration::from_millis(20);
    const AUDIT: Duration = Duration::from_mins(30);

    /// A cloud's table, with the outcomes of changes to a range before they succeed.
    #[derive(Clone, Default)]
    struct Cloud(Arc<Mutex<Table>>);

    #[derive(Default)]
    struct Table {
        routes: Vec<ListedRoute>,
        calls: Vec<String>,
        outcomes: BTreeMap<String, VecDeque<Result<RouteProgress, Error>>>,
        lists: VecDeque<Error>,
        /// The number of change calls that fail as a whole.
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
            cluster_uid: None,
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
                return Err(Error::new(ErrorKind::Unavailable(None), "down"));
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
        /// A running controller, and these Nodes with their Pod CIDRs.
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
            let nodes = Nodes::new(self.api.client(), metrics.clone(), &Health::default(), &history());
            nodes.set_claims(model::claims());
            let (events, _) = Events::start(self.api.client(), "test", "test", metrics.clone());
            let provider = Provider {
                name: "test".to_owned(),
                node_labels: vec!["example.com/*".to_owned()],
                largest_route_batch: 2,
                routes: Some(Arc::new(self.cloud.clone())),
                ..model::provider("fake")
            };
            let settings = Settings {
                cluster: Cluster { name: "test".to_owned(), uid: Some("cluster".to_owned()) },
                cluster_ranges: vec!["10.0.0.0/8".parse().unwrap()],
                nodes_wait: self.nodes_wait,
                audit_period: AUDIT,
            };
            let deps = ControllerDeps {
                nodes: nodes.clone(),
                addresses: ClusterAddresses::new(nodes.clone(), None, []),
                provider,
                events,
                metrics,
                jitter: || 0.0,
            };
            let controller = Controller::new(deps, settings).unwrap();
            tokio::spawn(controller.run(self.stop.clone()));
            tokio::spawn(async move { nodes.watch(CancellationToken::new()).await });
        }

        fn join(&self, name: &str, range: &str) {
            let node = json!({
                "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"taints": null, "podCIDRs": [range]},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.200.0.1"}]},
            });
            self.api.put(&StoredNode::registered(&node));
        }

        fn is_cluster(&self, uid: &str) {
            self.api.store("namespaces", json!({"metadata": {"name": "kube-system", "uid": uid}}));
        }

        async fn after(&self, time: Duration) -> Vec<String> {
            tokio::time::sleep(time).await;
            self.cloud.calls()
        }

        fn network(&self, name: &str) -> String {
            self.api
                .get(name)
                .facts()
                .network_unavailable
                .map_or("unset".to_owned(), |condition| condition.status)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_node_that_joins_costs_one_write_and_no_list() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(world.network("a"), "False");
        world.join("b", "10.1.1.0/24");
        assert_eq!(world.after(SECOND).await, ["create 10.1.1.0/24"]);
        assert_eq!(world.network("b"), "False");
        assert_eq!(world.api.writes(), ["PATCH a/status", "PATCH b/status"]);
        // Then nothing happens until the audit, which finds no change.
        assert_eq!(world.after(AUDIT.saturating_sub(SECOND * 5)).await, Vec::<String>::new());
        assert_eq!(world.after(SECOND * 10).await, ["list"]);
        assert_eq!(world.api.writes(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_gets_its_route_once_initialized_or_if_it_waits_for_routes_once_it_has_a_provider_id() {
        for nodes_wait in [false, true] {
            let world = World { nodes_wait, ..World::new(&[("a", "10.1.0.0/24")]) };
            let taint =
                json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
            let waits = world.api.put(&world.api.get("a").with(&json!({"spec": {"taints": taint}})));
            world.start();
            assert_eq!(world.after(SECOND).await, ["list"]);
            assert_eq!(world.network("a"), "unset");
            let with_id = world.api.put(&waits.with(&json!({"spec": {"providerID": "fake://a"}})));
            let create = vec!["create 10.1.0.0/24"];
            assert_eq!(world.after(SECOND).await, if nodes_wait { create.clone() } else { vec![] });
            assert_eq!(world.network("a"), if nodes_wait { "False" } else { "unset" });
            let status = &world.api.get("a").0["status"];
            world.api.put(&with_id.with(&json!({"spec": {"taints": null}, "status": status})));
            assert_eq!(world.after(SECOND).await, if nodes_wait { vec![] } else { create });
            assert_eq!(world.network("a"), "False");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_audit_corrects_what_other_clients_have_changed() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        world.after(SECOND).await;
        world.cloud.0.lock().unwrap().routes.clear();
        world.cloud.has("x", "10.1.9.0/24");
        assert_eq!(world.after(AUDIT + SECOND).await, ["list", "delete 10.1.9.0/24", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_is_deleted_only_if_a_new_list_shows_it() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.cloud.has("a", "10.1.0.0/24");
        world.start();
        assert_eq!(world.after(SECOND).await, ["list"]);
        let node = world.api.get("a");
        world.api.put(&node.with(&json!({"spec": {"podCIDRs": ["10.1.7.0/24"]}})));
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.0.0/24", "create 10.1.7.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn in_another_cluster_no_route_is_deleted_and_routes_are_still_created() {
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
    async fn the_cluster_is_confirmed_only_before_deletions_and_a_failure_keeps_the_route() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.api.fail_reads("namespaces", 1);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        // The failing read is the first one: no pass before has made any.
        world.join("a", "10.1.7.0/24");
        assert_eq!(world.after(SECOND / 10).await, ["list", "create 10.1.7.0/24"]);
        assert_eq!(world.after(SECOND * 10).await, ["list", "delete 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_moves_from_one_node_to_another_only_once_it_is_free() {
        let world = World::new(&[("b", "10.1.0.0/24")]);
        world.cloud.has("gone", "10.1.0.0/24");
        let error = Error::new(ErrorKind::Unavailable(None), "down");
        world.cloud.answers("10.1.0.0/24", vec![Err(error)]);
        world.start();
        assert_eq!(world.after(SECOND / 4).await, ["list", "delete 10.1.0.0/24"]);
        assert_eq!(world.network("b"), "True");
        assert_eq!(world.after(SECOND).await, ["list", "delete 10.1.0.0/24", "create 10.1.0.0/24"]);
        assert_eq!(world.network("b"), "False");
        assert_eq!(world.after(SECOND * 60).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_fails_backs_off_alone_and_is_reported() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.1.0/24"), ("c", "10.1.2.0/24")]);
        let error = || Err(Error::new(ErrorKind::Unavailable(None), "the table is locked"));
        world.cloud.answers("10.1.1.0/24", vec![error(), error()]);
        world.start();
        let first = world.after(SECOND / 4).await;
        assert_eq!(first, ["list", "create 10.1.0.0/24", "create 10.1.1.0/24", "create 10.1.2.0/24"]);
        assert_eq!(["a", "b", "c"].map(|name| world.network(name)), ["False", "True", "False"]);
        assert_eq!(world.after(SECOND * 3).await, ["create 10.1.1.0/24", "create 10.1.1.0/24"]);
        assert_eq!(world.network("b"), "False");
        let note = "b: Could not create route for 10.1.1.0/24: the table is locked";
        assert!(world.api.notes().iter().any(|other| other.ends_with(note)), "{:?}", world.api.notes());
        assert!(world.api.events().contains(&"FailedToCreateRoute b".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_as_a_whole_ends_the_pass_and_other_changes_come_first_in_the_next() {
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
    async fn a_change_in_progress_is_called_again_with_its_note() {
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
    async fn a_route_that_the_cloud_has_begun_is_there_when_the_provider_says_so_and_not_when_a_list_shows_it()
     {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.1.0/24")]);
        let progress =
            |note: &str| Ok(RouteProgress::InProgress { after: SECOND * 5, resume: Some(note.to_owned()) });
        let error = |kind| Err(Error::new(kind, "by the test"));
        let outcomes =
            vec![progress("operation 7"), error(ErrorKind::Unavailable(None)), progress("operation 8")];
        world.cloud.answers("10.1.0.0/24", outcomes);
        // Has the table listed.
        let conflict = || error(ErrorKind::Conflict(None));
        world.cloud.answers("10.1.1.0/24", vec![conflict(), conflict()]);
        world.start();
        let calls = world.after(SECOND / 8).await;
        assert_eq!(calls, ["list", "create 10.1.0.0/24", "create 10.1.1.0/24"]);
        world.cloud.has("a", "10.1.0.0/24");
        let calls = world.after(SECOND * 4).await;
        assert_eq!(calls, ["list", "create 10.1.1.0/24", "list", "create 10.1.1.0/24"]);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["True", "False"], "it is being made");
        assert_eq!(world.after(SECOND * 2).await, ["create 10.1.0.0/24 operation 7", "create 10.1.0.0/24"]);
        assert_eq!(world.network("a"), "True", "it has failed");
        assert_eq!(world.after(SECOND * 5).await, ["create 10.1.0.0/24 operation 8"]);
        assert_eq!(world.network("a"), "False");
        assert_eq!(world.after(AUDIT).await, ["list"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_that_needs_no_route_counts_as_present_and_is_asked_about_again_when_the_node_changes() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.1.0/24")]);
        let elsewhere = || vec![Ok(RouteProgress::Elsewhere)];
        world.cloud.answers("10.1.0.0/24", elsewhere());
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24", "create 10.1.1.0/24"]);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["False", "False"]);
        assert_eq!(world.api.get("a").facts().network_unavailable.unwrap().reason, "RouteCreated");
        // Neither a heartbeat, nor another Node's route, nor a list that lacks the range changes that.
        world.api.put(&world.api.get("a").with(&json!({"metadata": {"labels": {"team": "x"}}})));
        world.cloud.has("gone", "10.1.9.0/24");
        world.join("b", "10.1.2.0/24");
        let calls = world.after(SECOND).await;
        assert_eq!(calls, ["list", "delete 10.1.1.0/24", "delete 10.1.9.0/24", "create 10.1.2.0/24"]);
        assert_eq!(world.network("a"), "False");
        // A label that the provider reads.
        world.cloud.answers("10.1.0.0/24", elsewhere());
        let label = |value: &str| json!({"metadata": {"labels": {"example.com/managed": value}}});
        world.api.put(&world.api.get("a").with(&label("false")));
        assert_eq!(world.after(SECOND).await, ["create 10.1.0.0/24"]);
        world.api.put(&world.api.get("a").with(&label("true")));
        assert_eq!(world.after(SECOND).await, ["create 10.1.0.0/24"], "now it gets a route");
        assert_eq!(world.after(SECOND * 600).await, Vec::<String>::new());
        assert_eq!(world.network("a"), "False");
        let written = world.api.writes();
        assert_eq!(written.iter().filter(|write| *write == "PATCH a/status").count(), 1, "{written:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn at_an_audit_and_after_a_restart_a_range_that_needed_no_route_is_asked_about_once() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let down = || Err(Error::new(ErrorKind::Unavailable(None), "down"));
        let elsewhere = || Ok(RouteProgress::Elsewhere);
        world.cloud.answers("10.1.0.0/24", vec![elsewhere(), down(), elsewhere(), elsewhere()]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        let mut calls = world.after(AUDIT).await;
        assert_eq!(world.network("a"), "False", "an audit that fails changes nothing");
        calls.extend(world.after(SECOND * 5).await);
        assert_eq!(calls, ["list", "create 10.1.0.0/24", "create 10.1.0.0/24"]);
        world.stop.cancel();
        let again = World { stop: CancellationToken::new(), ..world };
        again.start();
        assert_eq!(again.after(SECOND * 5).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(again.network("a"), "False");
        assert_eq!(again.api.writes(), ["PATCH a/status"]);
        assert!(
            again.api.events().is_empty()
                || again.api.events().iter().all(|it| it == "FailedToCreateRoute a")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_conflict_the_table_is_listed_again() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world
            .cloud
            .answers("10.1.0.0/24", vec![Err(Error::new(ErrorKind::Conflict(None), "it has changed"))]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24", "list", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_table_is_unknown_nothing_is_changed_or_reported() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let error = || Error::new(ErrorKind::Unavailable(None), "down");
        world.cloud.0.lock().unwrap().lists.extend([error(), error()]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "list"]);
        assert_eq!(world.network("a"), "unset");
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_nodes_with_one_range_cause_no_storm() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["False", "True"]);
        assert!(world.api.events().contains(&"FailedToCreateRoute b".to_owned()));
        assert_eq!(world.after(SECOND * 30).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_in_conflict_goes_to_the_other_node_once_the_owner_gives_it_up() {
        let world = World::new(&[("a", "10.1.0.0/24"), ("b", "10.1.0.0/24")]);
        world.start();
        assert_eq!(world.after(SECOND).await, ["list", "create 10.1.0.0/24"]);
        world.join("a", "10.1.7.0/24");
        let calls = ["list", "delete 10.1.0.0/24", "create 10.1.7.0/24", "create 10.1.0.0/24"];
        assert_eq!(world.after(SECOND).await, calls);
        assert_eq!(["a", "b"].map(|name| world.network(name)), ["False", "False"]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_lists_fail_a_range_stays_occupied_and_joining_nodes_cause_no_lists() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        world.start();
        world.after(SECOND).await;
        world.cloud.0.lock().unwrap().lists.push_back(Error::new(ErrorKind::Unavailable(None), "down"));
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
            .answers("10.1.0.0/24", vec![Err(Error::new(ErrorKind::Conflict(None), "it is another's")); 100]);
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

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_is_lost_in_a_conflict_is_written_again_at_once() {
        for conflicts in 1..4 {
            let world = World::new(&[("a", "10.1.0.0/24")]);
            world.api.refuse(&vec![409; conflicts]);
            world.start();
            // Nothing of the Node that a pass sees changes meanwhile.
            world.after(SECOND * 2).await;
            assert_eq!(world.network("a"), "False", "{conflicts} conflicts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_writer_of_the_condition_is_not_answered_write_for_write() {
        for (status, most) in [("False", 3), ("True", 11)] {
            let world = World::new(&[("a", "10.1.0.0/24")]);
            world.start();
            world.after(SECOND).await;
            for _ in 0..600 {
                let node = world.api.get("a");
                let condition =
                    json!([{"type": "NetworkUnavailable", "status": status, "reason": "PluginSays"}]);
                world.api.put(&node.with(&json!({"status": {"conditions": condition}})));
                world.after(SECOND).await;
            }
            let answers = world.api.writes().iter().filter(|write| *write == "PATCH a/status").count();
            assert!((2..=most).contains(&answers), "{status}: {answers} answers");
            assert_eq!(world.api.events(), ["NetworkConditionContested a"], "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_of_another_cluster_is_neither_deleted_nor_replaced() {
        let world = World::new(&[("a", "10.1.0.0/24")]);
        let foreign =
            |range: &str| ListedRoute { cluster_uid: Some("another".to_owned()), ..there("theirs", range) };
        world.cloud.0.lock().unwrap().routes.extend([foreign("10.1.0.0/24"), foreign("10.9.0.0/24")]);
        world.cloud.has("gone", "10.8.0.0/24");
        world.start();
        let calls = world.after(AUDIT * 3).await;
        let changes: Vec<_> = calls.iter().filter(|call| *call != "list").collect();
        assert_eq!(changes, ["delete 10.8.0.0/24"], "which bears no UID");
        assert_eq!(world.network("a"), "True");
        assert!(
            world.api.notes().iter().any(|note| note.contains("another cluster")),
            "{:?}",
            world.api.notes()
        );
    }
}
