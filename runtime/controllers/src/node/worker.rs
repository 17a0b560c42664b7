//! The main loop of the node controller. It sends one lookup at a time for each kind of work, and passes the answers to
//! several writers, each of which completes one Node.

mod verification;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Answer, Error};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use super::Controller;
use super::decide::{NextStep, SyncResult, answer_label, decide};
use super::missing::{Cause, MissingInstances};
use super::notices::Notices;
use super::plan::Goal;
use super::queue::NodeQueue;
use super::screening::Given;
use super::work_kind::WorkKind;
use crate::answers::per_item;
use crate::facts::node::NodeFacts;
use crate::nodes::{CONCURRENT_WRITES, Change, DRAIN_TIMEOUT};
use crate::task::joined;
use crate::timer::sleep_until;
use verification::confirm_absent;

/// The pause after a lookup before the next one, in which Nodes to initialize are gathered. A Node that joins alone is looked
/// up at once. Of a hundred that join within a second, every two or three would otherwise cost a list, since a lookup is
/// faster than they arrive.
const BATCH_WINDOW: Duration = Duration::from_millis(100);

/// The same for refreshes, for which no user waits. If a client relabels thousands of Nodes one after the other, that costs a
/// list each 10 seconds.
const REFRESH_BATCH_WINDOW: Duration = Duration::from_secs(10);

/// The most Nodes that are being written, by the kind of work that may be begun below. Those that join need two writes each, and
/// take turns: see [`Controller`]'s permits.
const MOST_WRITERS: [(WorkKind, usize); 2] =
    [(WorkKind::Initialize, 4 * CONCURRENT_WRITES), (WorkKind::Refresh, CONCURRENT_WRITES)];

/// The state of the running controller.
pub(super) struct Worker {
    controller: Arc<Controller>,
    changes: mpsc::UnboundedReceiver<Vec<Change>>,
    queue: NodeQueue,
    missing: MissingInstances,
    /// Whether the first Nodes have come.
    has_begun: bool,
    initialize: Pipeline,
    refresh: Pipeline,
    /// The lookups in flight, at most one of each kind.
    lookups: JoinSet<LookupResult>,
    /// What users have been told.
    notices: Notices,
    /// What the Nodes that are being written get, by name.
    writing: HashMap<String, Given>,
    /// The Nodes that are being written.
    writes: JoinSet<(WorkKind, Arc<NodeFacts>, SyncResult)>,
}

/// A Node and what it is to follow.
type ToWrite = (Arc<NodeFacts>, Goal);

/// The work of one kind between the queue and the writers.
struct Pipeline {
    is_looking_up: bool,
    next_lookup: Instant,
    /// The Nodes that wait for a writer, as they were looked up.
    to_write: VecDeque<ToWrite>,
}

struct LookupResult {
    kind: WorkKind,
    nodes: Vec<Arc<NodeFacts>>,
    answers: Result<Vec<Result<Answer, Error>>, Error>,
    /// Whether the lookup was as large as it may be, so that more Nodes may be due.
    is_full: bool,
}

impl Worker {
    pub(super) fn new(controller: Controller) -> Self {
        let pipeline =
            || Pipeline { is_looking_up: false, next_lookup: Instant::now(), to_write: VecDeque::new() };
        Self {
            changes: controller.nodes.subscribe(),
            queue: NodeQueue::new(controller.provider.clone(), &controller.settings),
            missing: MissingInstances::default(),
            has_begun: false,
            initialize: pipeline(),
            refresh: pipeline(),
            notices: Notices::default(),
            writing: HashMap::new(),
            lookups: JoinSet::new(),
            writes: JoinSet::new(),
            controller: Arc::new(controller),
        }
    }

    /// Runs until `stop`, and then until no write is in flight.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            for kind in WorkKind::ALL {
                self.start_lookup(kind);
            }
            self.start_writes();
            let lookups = WorkKind::ALL.into_iter().filter_map(|kind| self.next_lookup(kind));
            let next = lookups.chain(self.missing.next_unserved()).min();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(changes) = self.changes.recv() => self.observe(changes, Instant::now()),
                Some(result) = self.lookups.join_next() => self.on_lookup_result(joined(result)),
                Some(result) = self.writes.join_next() => {
                    let (kind, node, result) = joined(result);
                    self.writing.remove(&node.name);
                    self.finish_and_report(kind, &node, &result);
                }
                () = sleep_until(next) => {}
            }
            self.report_unserved(Instant::now());
            self.set_gauges();
        }
        self.lookups.abort_all();
        self.controller.permits.close();
        // Nodes whose writes haven't begun are left to the next start.
        let drained =
            tokio::time::timeout(DRAIN_TIMEOUT, async { while self.writes.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(unfinished = self.writes.len(), "stopped before all writes were answered");
        }
    }

    /// When the next lookup of this kind may start. `None` while one is in flight, and while Nodes of the last one wait for a
    /// writer: those that are due meanwhile are gathered.
    fn next_lookup(&self, kind: WorkKind) -> Option<Instant> {
        let pipeline = self.pipeline(kind);
        let is_free = !pipeline.is_looking_up && pipeline.to_write.is_empty();
        let due = self.queue.next_due(kind).filter(|_| is_free);
        due.map(|due| due.max(pipeline.next_lookup))
    }

    /// Starts one lookup of all Nodes that are due, unless one is in flight.
    fn start_lookup(&mut self, kind: WorkKind) {
        let now = Instant::now();
        if self.next_lookup(kind).is_none_or(|next| now < next) {
            return;
        }
        let most = self.controller.provider.largest_lookup_batch;
        let nodes = self.queue.take(kind, now, most);
        // The span links what the provider and the gate log to this lookup.
        let span = info_span!("reconcile", controller = "cloud-node", ?kind, nodes = nodes.len());
        span.in_scope(|| tracing::debug!("looking up instances"));
        self.pipeline_mut(kind).is_looking_up = true;
        let instances = Arc::clone(&self.controller.instances);
        let labels = self.controller.provider.node_labels.clone();
        let lookup = async move {
            let references: Vec<_> = nodes.iter().map(|node| node.reference(&labels)).collect();
            let mut answers = instances.lookup(kind.purpose(), &references).await;
            if let Ok(answers) = &mut answers {
                confirm_absent(&*instances, &nodes, &references, answers).await;
            }
            LookupResult { kind, is_full: nodes.len() == most, nodes, answers }
        };
        self.lookups.spawn(lookup.instrument(span));
    }

    /// Passes the instances that were found to the writers, and finishes the work on all other Nodes.
    fn on_lookup_result(&mut self, result: LookupResult) {
        let LookupResult { kind, nodes, answers, is_full } = result;
        let window = match kind {
            _ if is_full => Duration::ZERO,
            WorkKind::Initialize => BATCH_WINDOW,
            WorkKind::Refresh => REFRESH_BATCH_WINDOW,
        };
        // One jitter for the whole lookup, so that Nodes that failed together are retried together.
        let (now, jitter) = (Instant::now(), (self.controller.jitter)());
        let pipeline = self.pipeline_mut(kind);
        pipeline.is_looking_up = false;
        pipeline.next_lookup = now + window;
        // A failure of the whole lookup is reported for Nodes that wait, but says nothing about an initialized Node.
        let is_per_node = answers.is_ok();
        if let Err(error) = &answers {
            tracing::warn!(nodes = nodes.len(), ?kind, %error, "instance lookup failed");
        }
        let answers = per_item(answers, nodes.len());
        self.record(kind, &nodes, &answers, is_per_node);
        let mut answered: Vec<_> = nodes.into_iter().zip(answers).collect();
        // Of two Nodes that claim one instance, the older one is written first and so gets it.
        answered.sort_by(|(a, _), (b, _)| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
        for (node, answer) in answered {
            self.controller.metrics.count_answer(answer_label(&answer));
            // A Node may be gone by now, or belong to another provider.
            if self.queue.contains(&node.name)
                && let Some(cause) = self.missing.on_answer(&node, &answer)
            {
                self.controller.report_missing(&node, cause);
            }
            match decide(&node, answer) {
                NextStep::Write(mut goal) => {
                    self.controller.screen(&node, &mut goal, &mut self.notices);
                    self.pipeline_mut(kind).to_write.push_back((node, goal));
                }
                NextStep::Finish(result) => {
                    let in_a_row = self.finish(kind, &node, &result, now, jitter);
                    if is_per_node || node.is_uninitialized() {
                        self.controller.report(&node, &result, in_a_row);
                    }
                }
            }
        }
    }

    /// Starts writers up to the limit, for initializations first.
    fn start_writes(&mut self) {
        while let Some((kind, (looked_up, goal))) = self.next_to_write() {
            // The Node may have changed since the lookup.
            match self.queue.current(kind, &looked_up) {
                Some(node) => {
                    if let Err(conflict) = self.controller.claim(&node, &goal, &mut self.writing) {
                        let result = self.controller.refuse(&node, &conflict, &mut self.notices);
                        self.finish_and_report(kind, &node, &result);
                        continue;
                    }
                    let controller = Arc::clone(&self.controller);
                    // To complete a Node may take another lookup.
                    let span = info_span!("reconcile", controller = "cloud-node", ?kind, node = %node.name);
                    let write = async move {
                        let (node, result) = controller.complete(node, &goal).await;
                        (kind, node, result)
                    };
                    self.writes.spawn(write.instrument(span));
                }
                None => {
                    self.finish(kind, &looked_up, &SyncResult::Unchanged, Instant::now(), 0.0);
                }
            }
        }
    }

    /// The next Node to write, if there is room for one more of its kind.
    fn next_to_write(&mut self) -> Option<(WorkKind, ToWrite)> {
        let has_room = |most: usize| self.writes.len() < most;
        let kinds = MOST_WRITERS.map(|(kind, most)| has_room(most).then_some(kind));
        kinds
            .into_iter()
            .flatten()
            .find_map(|kind| Some((kind, self.pipeline_mut(kind).to_write.pop_front()?)))
    }

    fn finish_and_report(&mut self, kind: WorkKind, node: &NodeFacts, result: &SyncResult) {
        let in_a_row = self.finish(kind, node, result, Instant::now(), (self.controller.jitter)());
        self.controller.report(node, result, in_a_row);
    }

    fn set_gauges(&self) {
        let metrics = &self.controller.metrics;
        metrics.set_waiting_nodes(self.queue.uninitialized());
        for cause in Cause::ALL {
            metrics.set_missing_instances(cause, self.missing.count(cause));
        }
    }

    /// Ends the work on a Node. Returns how many times in a row it ended like this, see [`NodeQueue::finish`].
    fn finish(
        &mut self,
        kind: WorkKind,
        node: &NodeFacts,
        result: &SyncResult,
        now: Instant,
        jitter: f64,
    ) -> u32 {
        // Our own writes arrive as changes, too, before their responses do.
        while let Ok(changes) = self.changes.try_recv() {
            self.observe(changes, now);
        }
        if kind == WorkKind::Refresh {
            self.controller.metrics.count_refresh(result.label());
        }
        self.queue.finish(kind, node, result.next_lookup(), now, jitter)
    }

    const fn pipeline(&self, kind: WorkKind) -> &Pipeline {
        match kind {
            WorkKind::Initialize => &self.initialize,
            WorkKind::Refresh => &self.refresh,
        }
    }

    const fn pipeline_mut(&mut self, kind: WorkKind) -> &mut Pipeline {
        match kind {
            WorkKind::Initialize => &mut self.initialize,
            WorkKind::Refresh => &mut self.refresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::{ApiServer, history};
    use crate::cluster_addresses::ClusterAddresses;
    use crate::deps::ControllerDeps;
    use crate::events::Events;
    use crate::health::Health;
    use crate::metrics::Metrics;
    use crate::model;
    use crate::node::Settings;
    use crate::nodes::Nodes;
    use crate::scenarios::StoredNode;
    use pileus_cloud::{
        Address, AddressKind, ErrorKind, Instance, InstanceState, Instances, NodeReference, Provider,
        ProviderId, Purpose, Stance,
    };
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use std::sync::Mutex;

    const PERIOD: Duration = Duration::from_mins(30);

    /// Stands for the address of each instance, see [`address_of`].
    const OWN_ADDRESS: &str = "10.0.0.1";

    /// The address of the instance of a Node.
    fn address_of(name: &str) -> String {
        let [high, low] = name
            .bytes()
            .fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
            .to_be_bytes();
        format!("10.1.{high}.{low}")
    }

    /// A cloud with an instance for each Node.
    #[derive(Clone)]
    struct Cloud {
        /// How many Nodes were looked up for what.
        lookups: Arc<Mutex<Vec<(Purpose, usize)>>>,
        instance: Arc<Mutex<Instance>>,
        refusal: Arc<Mutex<Option<Error>>>,
        is_pending: Arc<Mutex<bool>>,
        /// Whether direct reads find no instance, while lists still show it.
        is_gone: Arc<Mutex<bool>>,
        /// The instances of these Nodes are others than those of their names.
        mistaken: Arc<Mutex<Vec<(&'static str, &'static str)>>>,
        /// How many of its answers the cloud loses.
        lost: Arc<Mutex<usize>>,
        /// The names of the Nodes that lists lack.
        unlisted: Arc<Mutex<Vec<&'static str>>>,
        /// What the provider does about all Nodes, if it manages none.
        stance: Arc<Mutex<Option<Stance>>>,
        refresh_takes: Duration,
    }

    #[async_trait::async_trait]
    impl Instances for Cloud {
        async fn lookup(
            &self,
            purpose: Purpose,
            nodes: &[NodeReference],
        ) -> Result<Vec<Result<Answer, Error>>, Error> {
            self.lookups.lock().unwrap().push((purpose, nodes.len()));
            let takes =
                if purpose == Purpose::Refresh { self.refresh_takes } else { Duration::from_millis(20) };
            tokio::time::sleep(takes).await;
            if let Some(error) = self.refusal.lock().unwrap().clone() {
                return Err(error);
            }
            if let Some(stance) = *self.stance.lock().unwrap() {
                return Ok(vec![Ok(Answer::Unmanaged(stance)); nodes.len()]);
            }
            if *self.is_pending.lock().unwrap() {
                return Ok(vec![Ok(Answer::Pending(secs(5))); nodes.len()]);
            }
            if purpose == Purpose::Confirm && *self.is_gone.lock().unwrap() {
                return Ok(vec![Ok(Answer::Absent); nodes.len()]);
            }
            let instance = self.instance.lock().unwrap().clone();
            let id = |name: &str| ProviderId::parse(&format!("fake://{name}")).unwrap();
            let mistaken = self.mistaken.lock().unwrap().clone();
            let name = |node: &NodeReference| {
                let other = mistaken.iter().find(|(of, _)| *of == node.name);
                other.map_or(node.name.clone(), |(_, other)| (*other).to_owned())
            };
            let found = |node: &NodeReference| {
                let mut found = Instance { provider_id: id(&name(node)), ..instance.clone() };
                for address in found.addresses.iter_mut().filter(|address| address.value == OWN_ADDRESS) {
                    address.value = address_of(&node.name);
                }
                found
            };
            let lost = std::mem::take(&mut *self.lost.lock().unwrap());
            let unlisted = self.unlisted.lock().unwrap().clone();
            let is_listed = |node: &NodeReference| {
                purpose == Purpose::Confirm || !unlisted.iter().any(|name| *name == node.name)
            };
            let answer = |node| if is_listed(node) { Answer::Found(found(node)) } else { Answer::Absent };
            Ok(nodes.iter().skip(lost).map(|node| Ok(answer(node))).collect())
        }
    }

    /// A running controller between an API server and a cloud.
    struct Running {
        api: ApiServer,
        cloud: Cloud,
        counts: Registry,
        stop: CancellationToken,
        controller: tokio::task::JoinHandle<()>,
    }

    impl Running {
        fn start(nodes: impl IntoIterator<Item = StoredNode>, refresh_takes: Duration) -> Self {
            Self::start_as(nodes, refresh_takes, false)
        }

        fn start_as(
            nodes: impl IntoIterator<Item = StoredNode>,
            refresh_takes: Duration,
            waits_for_routes: bool,
        ) -> Self {
            let api = ApiServer::new();
            for node in nodes {
                api.put(&node);
            }
            let instance = Instance {
                provider_id: ProviderId::parse("fake://any").unwrap(),
                instance_type: Some("small".to_owned()),
                zone: None,
                region: None,
                addresses: vec![Address::new(AddressKind::InternalIp, OWN_ADDRESS)],
                labels: Vec::new(),
                state: InstanceState::Running,
                left_out: Vec::new(),
            };
            let cloud = Cloud {
                lookups: Arc::default(),
                instance: Arc::new(Mutex::new(instance)),
                refusal: Arc::default(),
                is_pending: Arc::default(),
                is_gone: Arc::default(),
                mistaken: Arc::default(),
                lost: Arc::default(),
                unlisted: Arc::default(),
                stance: Arc::default(),
                refresh_takes,
            };
            let provider = Provider {
                largest_lookup_batch: 500,
                instances: Some(Arc::new(cloud.clone())),
                ..model::provider("fake")
            };
            let mut counts = Registry::default();
            let metrics = Metrics::register(&mut counts);
            let (events, _) = Events::start(api.client(), "cloud-node-controller", "test", metrics.clone());
            let nodes = Nodes::new(api.client(), metrics.clone(), &Health::default(), &history());
            nodes.set_claims(model::claims());
            let settings = Settings { refresh_period: PERIOD, waits_for_routes, is_node_manager: false };
            let addresses = ClusterAddresses::new(nodes.clone(), None, ["10.0.99.1".parse().unwrap()]);
            let deps =
                ControllerDeps { nodes: nodes.clone(), addresses, provider, events, metrics, jitter: || 0.5 };
            let controller = Controller::new(deps, settings).unwrap();
            let stop = CancellationToken::new();
            let watched = stop.clone();
            tokio::spawn(async move { nodes.watch(watched).await });
            let controller = tokio::spawn(controller.run(stop.clone()));
            Self { api, cloud, counts, stop, controller }
        }

        fn lookups(&self) -> Vec<(Purpose, usize)> {
            std::mem::take(&mut self.cloud.lookups.lock().unwrap())
        }

        /// What is counted under a name, as `label="value"} count`.
        fn counts(&self, name: &str) -> Vec<String> {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &self.counts).unwrap();
            let mut counts: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'))
                .map(str::to_owned)
                .collect();
            counts.sort();
            counts
        }

        async fn end(self) {
            self.stop.cancel();
            self.controller.await.unwrap();
        }
    }

    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn waiting(name: &str) -> StoredNode {
        StoredNode::registered(&json!({"metadata": {"name": name, "uid": format!("uid-{name}")}}))
    }

    /// A Node that is as the cloud says.
    fn working(name: &str) -> StoredNode {
        let labels =
            json!({"node.kubernetes.io/instance-type": "small", "beta.kubernetes.io/instance-type": "small"});
        waiting(name).with(&json!({
            "metadata": {"labels": labels},
            "spec": {"providerID": format!("fake://{name}"), "taints": null},
            "status": {"addresses": [{"type": "InternalIP", "address": address_of(name)}]},
        }))
    }

    fn many(kind: fn(&str) -> StoredNode, count: usize) -> impl Iterator<Item = StoredNode> {
        (0..count).map(move |n| kind(&format!("n{n}")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_never_gets_routes_is_reported() {
        let running = Running::start_as([waiting("a")], secs(1), true);
        pass(secs(5 * 60)).await;
        assert_eq!(running.api.events(), Vec::<String>::new());
        pass(secs(10 * 60)).await;
        assert_eq!(running.api.events(), ["CloudInitializationFailed a"]);
        assert!(running.api.notes()[0].contains("spec.podCIDRs"), "{:?}", running.api.notes());
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_waits_for_its_routes_loses_the_taint_as_soon_as_it_has_them() {
        let running = Running::start_as([waiting("a")], secs(1), true);
        pass(secs(30)).await;
        assert_eq!(running.api.writes(), ["PATCH a/status", "PATCH a"]);
        let facts = running.api.get("a").facts();
        assert!(facts.is_uninitialized() && facts.provider_id.is_some());
        let condition = |status, reason| json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": status, "reason": reason}]}});
        running.api.put(&running.api.get("a").with(&condition("True", "NoRouteCreated")));
        pass(secs(5)).await;
        assert!(running.api.get("a").facts().is_uninitialized());
        assert_eq!(running.api.events(), Vec::<String>::new());
        running.api.put(&running.api.get("a").with(&condition("False", "RouteCreated")));
        pass(secs(2)).await;
        assert!(!running.api.get("a").facts().is_uninitialized());
        assert_eq!(running.api.writes(), ["PATCH a"]);
        assert_eq!(running.api.events(), ["Synced a"]);
        assert_eq!(running.lookups().len(), 2, "when it joined, and when it had its routes");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_does_not_get_the_former_instance_of_its_name_from_a_stale_list() {
        let running = Running::start([working("a")], secs(1));
        pass(secs(5)).await;
        running.lookups();
        *running.cloud.is_gone.lock().unwrap() = true;
        running.api.put(&waiting("a").with(&json!({"metadata": {"uid": "second"}})));
        pass(secs(2)).await;
        assert_eq!(running.lookups()[..2], [(Purpose::Initialise, 1), (Purpose::Confirm, 1)]);
        assert_eq!(running.api.writes(), [""; 0]);
        assert_eq!(running.api.events().first().map(String::as_str), Some("CloudInitializationFailed a"));
        // The Node was deleted by hand, and registers again with its own instance.
        *running.cloud.is_gone.lock().unwrap() = false;
        pass(secs(10)).await;
        running.api.get("a").assert_is(&working("a").with(&json!({"metadata": {"uid": "second"}})));
        running.end().await;
    }

    /// The notes with this text, as `METHOD name: note`.
    fn told(running: &Running, part: &str) -> Vec<String> {
        running.api.notes().into_iter().filter(|note| note.contains(part)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_node_of_an_instance_is_refused_and_both_are_told_once() {
        let older = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        let younger = json!({"metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}});
        let own_id = json!({"spec": {"providerID": "fake://own"}});
        for (first, second, mistaken, refused) in [
            // Both wait, and the cloud gives one instance for both.
            (waiting("a").with(&younger), waiting("b").with(&older), vec![("a", "b")], "a"),
            // One has the instance already, and is the younger one.
            (working("a").with(&younger), waiting("b").with(&older), vec![("b", "a")], "b"),
            // Kubelets say so.
            (
                waiting("a").with(&own_id).with(&older),
                waiting("b").with(&own_id).with(&younger),
                vec![("a", "own"), ("b", "own")],
                "b",
            ),
            // A kubelet says so of a Node that works.
            (
                working("a").with(&older),
                waiting("b").with(&younger).with(&json!({"spec": {"providerID": "fake://a"}})),
                vec![("b", "a")],
                "b",
            ),
        ] {
            let running = Running::start([], secs(1));
            *running.cloud.mistaken.lock().unwrap() = mistaken;
            running.api.put(&first);
            running.api.put(&second);
            pass(secs(400)).await;
            let other = if refused == "a" { "b" } else { "a" };
            assert!(running.api.get(refused).facts().is_uninitialized(), "{refused} is refused");
            assert!(!running.api.get(other).facts().is_uninitialized(), "{other} works");
            let notes = told(&running, "refused");
            assert_eq!(notes.len(), 2, "{notes:?}");
            assert!(
                notes.iter().any(|note| note.starts_with(&format!("POST {refused}: The node is refused"))),
                "{notes:?}"
            );
            assert!(
                notes.iter().any(|note| note.starts_with(&format!("POST {other}: Node {refused}"))),
                "{notes:?}"
            );
            // The Node that keeps it is deleted.
            running.api.delete("nodes", other);
            pass(secs(1000)).await;
            assert!(!running.api.get(refused).facts().is_uninitialized(), "{refused} gets it");
            running.end().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_of_a_live_node_is_given_to_no_other() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let shared = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}});
        let running = Running::start([working("a").with(&shared).with(&ready)], secs(1));
        running.cloud.instance.lock().unwrap().addresses[0].value = "10.0.0.2".to_owned();
        pass(secs(5)).await;
        running.api.put(&waiting("b"));
        pass(secs(60)).await;
        assert!(running.api.get("b").facts().is_uninitialized());
        assert_eq!(told(&running, "refused").len(), 2, "{:?}", running.api.notes());
        running.api.put(
            &running
                .api
                .get("a")
                .with(&json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})),
        );
        pass(secs(600)).await;
        assert!(!running.api.get("b").facts().is_uninitialized(), "it has moved");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn facts_that_a_node_can_not_have_are_left_out_and_told_once() {
        let running = Running::start([], secs(1));
        {
            let mut instance = running.cloud.instance.lock().unwrap();
            instance.zone = Some("Default Group".to_owned());
            instance.region = Some("eu".to_owned());
            instance.addresses.push(Address::new(AddressKind::ExternalIp, "10.0.99.1"));
            instance.left_out = vec!["236 of 300 addresses: the limit is 64".to_owned()];
        }
        running.api.put(&waiting("a"));
        pass(PERIOD * 4).await;
        let facts = running.api.get("a").facts();
        assert!(!facts.is_uninitialized());
        assert_eq!(facts.labels.get("topology.kubernetes.io/region"), Some("eu"));
        assert!(!facts.labels.contains_key("topology.kubernetes.io/zone"));
        assert_eq!(facts.addresses.len(), 1, "{:?}", facts.addresses);
        let notes = told(&running, "Left out of");
        assert_eq!(notes.len(), 1, "{notes:?}");
        for part in [
            "236 of 300 addresses",
            "zone \"Default Group\": not a label value",
            "10.0.99.1: it is the API server's address",
        ] {
            assert!(notes[0].contains(part), "{part}: {notes:?}");
        }
        running.cloud.instance.lock().unwrap().zone = Some("Other Group".to_owned());
        pass(PERIOD * 2).await;
        assert_eq!(told(&running, "Left out of").len(), 2, "another cause");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_answer_loses_no_node_and_gives_none_the_answer_of_another() {
        let running = Running::start(many(waiting, 3), secs(1));
        *running.cloud.lost.lock().unwrap() = 1;
        pass(secs(1)).await;
        assert_eq!(running.api.writes(), Vec::<String>::new());
        pass(secs(4000)).await;
        for n in 0..3 {
            let name = format!("n{n}");
            running.api.get(&name).assert_is(&working(&name));
        }
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_nodes_cost_one_lookup_together_and_two_writes_each() {
        let running = Running::start(many(waiting, 100), secs(1));
        pass(secs(5)).await;
        assert_eq!(running.lookups(), [(Purpose::Initialise, 100)]);
        assert_eq!(running.api.writes().len(), 200);
        for n in 0..100 {
            let name = format!("n{n}");
            running.api.get(&name).assert_is(&working(&name));
        }
        let events = running.api.events();
        assert_eq!(events.len(), 100);
        assert!(events.contains(&"Synced n7".to_owned()));
        pass(PERIOD).await;
        assert_eq!(running.lookups(), [(Purpose::Refresh, 100)], "all Nodes join the next sweep together");
        assert_eq!((running.api.writes(), running.api.events()), (vec![], vec![]));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn at_rest_a_sweep_costs_one_lookup_and_nothing_is_written() {
        let running = Running::start(many(working, 100), secs(1));
        pass(secs(5)).await;
        assert_eq!(running.lookups(), [(Purpose::Refresh, 100)], "the first is at the start");
        for beat in 1..=3 {
            let beats =
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "beat": beat}]}});
            running.api.put(&working("n1").with(&beats));
            pass(PERIOD).await;
            assert_eq!(running.lookups(), [(Purpose::Refresh, 100)]);
        }
        assert_eq!((running.api.writes(), running.api.events()), (vec![], vec![]));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_results_of_refreshes_are_counted() {
        let running = Running::start([working("a"), waiting("b")], secs(1));
        pass(secs(60)).await;
        let changed = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "huge"}}});
        running.api.put(&working("a").with(&changed));
        pass(secs(120)).await;
        let trouble = Error::new(ErrorKind::Unavailable(None), "the cloud does not answer");
        *running.cloud.refusal.lock().unwrap() = Some(trouble);
        running.api.put(&working("a").with(&changed));
        pass(secs(2)).await;
        let answers = running.counts("pileus_node_lookup_answers_total");
        assert_eq!(answers, [r#"answer="found"} 3"#, r#"answer="unavailable"} 1"#]);
        let refreshes = running.counts("pileus_node_refreshes_total");
        let expected = [r#"result="changed"} 1"#, r#"result="failed"} 1"#, r#"result="unchanged"} 1"#];
        assert_eq!(refreshes, expected);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_of_more_nodes_than_fit_in_a_lookup_continues_at_once() {
        let running = Running::start(many(working, 501), secs(1));
        pass(secs(3)).await;
        assert_eq!(running.lookups(), [(Purpose::Refresh, 500), (Purpose::Refresh, 1)]);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_instance_is_followed_at_the_next_sweep() {
        let running = Running::start(many(working, 3), secs(1));
        pass(secs(5)).await;
        running.cloud.instance.lock().unwrap().instance_type = Some("large".to_owned());
        pass(PERIOD).await;
        assert_eq!(running.api.writes().len(), 3, "our own writes trigger no lookup");
        assert_eq!(running.lookups(), [(Purpose::Refresh, 3); 2]);
        let labels = running.api.get("n1").facts().labels;
        assert_eq!(&labels["node.kubernetes.io/instance-type"], "large");
        assert_eq!(running.api.events(), Vec::<String>::new(), "a refresh records no event");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_change_is_corrected_at_once() {
        let running = Running::start(many(working, 3), secs(1));
        pass(secs(60)).await;
        running.lookups();
        let changed = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "huge"}}});
        running.api.put(&working("n1").with(&changed));
        pass(secs(2)).await;
        assert_eq!(running.lookups(), [(Purpose::Refresh, 1)]);
        running.api.get("n1").assert_is(&working("n1"));
        pass(secs(300)).await;
        assert_eq!(running.lookups(), []);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_in_a_row_share_a_few_lookups() {
        let running = Running::start(many(working, 100), secs(1));
        pass(secs(60)).await;
        running.lookups();
        let changed = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "huge"}}});
        for n in 0..100 {
            running.api.put(&working(&format!("n{n}")).with(&changed));
            pass(Duration::from_millis(200)).await;
        }
        pass(secs(20)).await;
        let lookups = running.lookups();
        assert!(lookups.len() <= 4, "{lookups:?}");
        assert_eq!(running.api.writes().len(), 100);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_sweep_delays_no_initialization() {
        let running = Running::start(many(working, 100), secs(600));
        pass(secs(5)).await;
        running.api.put(&waiting("new"));
        pass(secs(1)).await;
        running.api.get("new").assert_is(&working("new"));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn initializations_are_written_before_refreshes() {
        let stale = many(|name| working(name).with(&json!({"metadata": {"labels": null}})), 300);
        let running = Running::start(stale, Duration::from_millis(300));
        pass(Duration::from_millis(320)).await; // the writes of the sweep have begun, and take 95 ms
        running.api.put(&waiting("new"));
        pass(Duration::from_millis(50)).await;
        let writes = running.api.writes();
        assert!(writes.contains(&"PATCH new".to_owned()) && writes.len() < 250, "{}", writes.len());
        pass(secs(5)).await;
        assert_eq!(writes.len() + running.api.writes().len(), 302);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflicting_write_is_planned_again() {
        let running = Running::start([waiting("a")], secs(1));
        let theirs = json!({"spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
            {"key": "theirs", "effect": "NoExecute"},
        ]}});
        let has_addresses = || running.api.get("a").0["status"]["addresses"].is_array();
        for _ in 0..5000 {
            if has_addresses() {
                break;
            }
            pass(Duration::from_millis(1)).await;
        }
        assert!(has_addresses(), "the first write is done");
        running.api.put(&running.api.get("a").with(&theirs));
        pass(secs(1)).await;
        assert_eq!(running.api.writes(), ["PATCH a/status", "PATCH a", "PATCH a"]);
        let taints = json!({"spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]}});
        running.api.get("a").assert_is(&working("a").with(&taints));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_a_policy_undoes_each_time_is_given_up() {
        let running = Running::start([working("a")], secs(1));
        pass(secs(5)).await;
        let without_type = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": null}}});
        running.api.enforce(without_type.clone());
        running.api.put(&working("a").with(&without_type));
        pass(secs(600)).await;
        assert_eq!(running.api.writes().len(), 8);
        assert_eq!(running.api.events(), ["CloudRefreshFailed a"]);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_cloud_is_reported_for_waiting_nodes_and_called_less_for_the_others() {
        let running = Running::start(many(working, 50), secs(1));
        pass(secs(60)).await;
        running.lookups();
        let trouble = Error::new(ErrorKind::Unavailable(None), "the cloud does not answer");
        *running.cloud.refusal.lock().unwrap() = Some(trouble);
        running.api.put(&waiting("new"));
        pass(PERIOD).await;
        let (waits, works): (Vec<_>, Vec<_>) =
            running.lookups().into_iter().partition(|(purpose, _)| *purpose == Purpose::Initialise);
        assert!(waits.len() > 10 && works.len() == 3, "{works:?}"); // at the sweep, and 10 s and 20 s after
        assert!(works.iter().all(|(_, nodes)| *nodes == 50), "{works:?}");
        let events = running.api.events();
        assert!(events.iter().all(|event| event == "CloudInitializationFailed new"), "{events:?}");
        *running.cloud.refusal.lock().unwrap() = None;
        pass(secs(200)).await;
        running.api.get("new").assert_is(&working("new"));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_keeps_asking_to_retry_later_is_reported_for_waiting_nodes() {
        let running = Running::start([waiting("waits"), working("works")], secs(1));
        *running.cloud.is_pending.lock().unwrap() = true;
        pass(secs(30)).await;
        assert_eq!(running.api.events(), Vec::<String>::new(), "an instance that starts is normal");
        pass(secs(200)).await;
        let events = running.api.events(); // after the 8th, 16th and 32nd lookup, which are 5 s apart
        assert_eq!(events, ["CloudInitializationFailed waits"; 3]);
        *running.cloud.is_pending.lock().unwrap() = false;
        pass(secs(20)).await;
        running.api.get("waits").assert_is(&working("waits"));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_node_ip_of_an_initialized_node_is_reported_and_blocks_no_label() {
        let asks = json!({"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"});
        let wrong = json!({"metadata": {"labels": null, "annotations": asks}});
        let running = Running::start([working("a").with(&wrong)], secs(1));
        pass(secs(5)).await;
        assert_eq!(running.api.events(), ["CloudRefreshFailed a"]);
        assert_eq!(running.api.writes(), ["PATCH a"]);
        pass(secs(1700)).await;
        assert_eq!(running.lookups().len(), 1, "an operator has to act first");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_ready_node_whose_instance_is_gone_is_reported_once_after_a_direct_read() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let run =
            Running::start([working("a").with(&ready), working("b").with(&ready), working("c")], secs(1));
        *run.cloud.unlisted.lock().unwrap() = vec!["a", "c"];
        for (is_gone, notes, missing) in
            [(false, 0, 0), (true, 1, 1), (true, 1, 1), (false, 1, 0), (true, 2, 1)]
        {
            *run.cloud.is_gone.lock().unwrap() = is_gone;
            run.lookups();
            pass(PERIOD).await;
            assert_eq!(run.lookups(), [(Purpose::Refresh, 3), (Purpose::Confirm, 1)], "c isn't ready");
            let events = run.api.notes();
            let told = events
                .iter()
                .filter(|note| note.contains("a: The cloud has no instance with the provider ID"));
            assert_eq!((told.count(), events.len()), (notes, notes), "{events:?}");
            let counts = run.counts("pileus_node_without_instance");
            assert!(counts.contains(&format!("cause=\"absent\"}} {missing}")), "{counts:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_no_lookup_can_help_is_reported() {
        let bare = working("bare").with(&json!({"spec": {"providerID": null}}));
        let foreign = waiting("foreign").with(&json!({"spec": {"providerID": "other://7"}}));
        let run = Running::start([bare, foreign], secs(1));
        *run.cloud.unlisted.lock().unwrap() = vec!["bare"];
        pass(secs(29)).await;
        assert_eq!(run.api.notes().len(), 1, "{:?}", run.api.notes());
        pass(secs(2)).await;
        let notes = run.api.notes();
        assert!(notes[0].contains("bare: The cloud has no instance with the name \"bare\""), "{notes:?}");
        assert!(
            notes[1].contains("foreign: The node waits to be initialized, but its provider ID"),
            "{notes:?}"
        );
        pass(PERIOD * 3).await;
        assert_eq!(run.api.notes().len(), 2, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_node_loses_its_taint_alone_and_costs_nothing_until_it_changes() {
        for waits_for_routes in [false, true] {
            let run = Running::start_as([waiting("a"), working("b")], secs(1), waits_for_routes);
            *run.cloud.stance.lock().unwrap() = Some(Stance::Released);
            pass(PERIOD * 3).await;
            let mut lookups = run.lookups();
            lookups.sort_by_key(|(purpose, _)| purpose.as_str());
            assert_eq!(lookups, [(Purpose::Initialise, 1), (Purpose::Refresh, 1)]);
            assert_eq!(run.api.writes(), ["PATCH a"]);
            run.api.get("a").assert_is(&waiting("a").with(&json!({"spec": {"taints": null}})));
            run.api.get("b").assert_is(&working("b"));
            assert_eq!(run.api.events(), ["Synced a"], "no node has an event about a missing instance");
            assert_eq!(
                run.counts("pileus_node_without_instance").iter().filter(|it| !it.ends_with(" 0")).count(),
                0
            );
            // The provider manages the instance of a Node that gets a provider ID.
            *run.cloud.stance.lock().unwrap() = None;
            run.api.put(&run.api.get("a").with(&json!({"spec": {"providerID": "fake://a"}})));
            pass(secs(5)).await;
            assert_eq!(run.lookups(), [(Purpose::Refresh, 1)]);
            run.api.get("a").assert_is(&working("a"));
            run.end().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_left_alone_keeps_its_taint_and_is_looked_up_at_each_sweep() {
        let run = Running::start([waiting("a")], secs(1));
        *run.cloud.stance.lock().unwrap() = Some(Stance::LeftAlone);
        pass(PERIOD * 2 + secs(5)).await;
        assert_eq!(run.lookups(), [(Purpose::Initialise, 1); 3]);
        assert_eq!((run.api.writes(), run.api.events()), (vec![], vec!["InstanceNotFound a".to_owned()]));
        run.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_take_turns_so_that_no_write_directly_follows_one_to_the_same_node() {
        let running = Running::start(many(waiting, 200), secs(1));
        pass(secs(5)).await;
        let writes = running.api.writes();
        assert_eq!(writes.len(), 400);
        let gap = |n: &usize| {
            let name = format!("PATCH n{n}");
            let of = |write: &str| writes.iter().position(|other| other == write).unwrap();
            of(&name) - of(&format!("{name}/status"))
        };
        let apart = (0..200).filter(|n| gap(n) >= 2 * CONCURRENT_WRITES).count();
        assert!(apart > 150, "{apart} of 200; the last ones have no others to wait for");
        let alone = Running::start([waiting("a")], secs(1));
        pass(Duration::from_millis(60)).await;
        assert_eq!(alone.api.writes().len(), 2, "a node that joins alone waits for nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_join_while_all_writers_are_busy_are_gathered() {
        let running = Running::start(many(waiting, 800), secs(1));
        for n in 0..100 {
            pass(Duration::from_millis(2)).await;
            running.api.put(&waiting(&format!("late{n}")));
        }
        pass(secs(5)).await;
        assert_eq!(running.lookups(), [(Purpose::Initialise, 500), (Purpose::Initialise, 400)]);
        assert_eq!(running.api.writes().len(), 1800);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_after_the_stop() {
        let running = Running::start(many(waiting, 100), secs(1));
        pass(Duration::from_millis(50)).await;
        running.stop.cancel();
        let api = running.api.clone();
        running.end().await;
        let written = api.writes().len();
        assert!((1..150).contains(&written), "{written}");
        pass(secs(60)).await;
        assert_eq!(api.writes(), Vec::<String>::new());
    }
}
