//! The running controller: who gets a turn is looked up, and then written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Answer, Error, Instance, Retry};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use super::Controller;
use super::decide::{Done, Next, decide, label};
use super::roster::{Lane, Roster};
use crate::facts::node::NodeFacts;
use crate::nodes::{Change, DRAIN, WRITERS};

/// How long Nodes that wait are gathered after a lookup before the next one goes out. A Node that joins alone is looked
/// up at once; a hundred that join within a second would else cost a list for every two or three, as a lookup is faster
/// than they arrive.
const GATHERING: Duration = Duration::from_millis(100);

/// The same for refreshes, for which nobody waits: where somebody relabels thousands of Nodes one after the other, that
/// costs a list each 10 seconds.
const GATHERING_REFRESHES: Duration = Duration::from_secs(10);

/// How often in a row a cloud may ask for patience, or routes be missing, before somebody is told: while a machine starts,
/// that is no news.
const PENDING: u32 = 8;

/// The controller's state while it runs.
pub(super) struct Turns {
    controller: Arc<Controller>,
    changes: mpsc::UnboundedReceiver<Vec<Change>>,
    roster: Roster,
    initialise: Progress,
    refresh: Progress,
    /// The lookups that are under way, at most one in each lane.
    lookups: JoinSet<Found>,
    /// The Nodes that are being written.
    writes: JoinSet<(Lane, Arc<NodeFacts>, Done)>,
}

/// How far the turns of one lane are.
struct Progress {
    is_looking_up: bool,
    /// No lookup goes out before.
    gathers_until: Instant,
    /// What waits for a writer: a Node as it was looked up, and its machine.
    to_write: VecDeque<(Arc<NodeFacts>, Box<Instance>)>,
}

/// What a lookup brought.
struct Found {
    lane: Lane,
    nodes: Vec<Arc<NodeFacts>>,
    answers: Result<Vec<Result<Answer, Error>>, Error>,
    /// Whether more Nodes were due than one lookup may carry.
    is_full: bool,
}

impl Turns {
    pub(super) fn new(controller: Controller) -> Self {
        let progress =
            || Progress { is_looking_up: false, gathers_until: Instant::now(), to_write: VecDeque::new() };
        Self {
            changes: controller.nodes.follow(),
            roster: Roster::new(controller.provider.clone(), &controller.settings),
            initialise: progress(),
            refresh: progress(),
            lookups: JoinSet::new(),
            writes: JoinSet::new(),
            controller: Arc::new(controller),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            for lane in Lane::ALL {
                self.start_lookup(lane);
            }
            self.start_writes();
            let next = Lane::ALL.into_iter().filter_map(|lane| self.next(lane)).min();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(changes) = self.changes.recv() => self.roster.observe(changes, Instant::now()),
                Some(found) = self.lookups.join_next() => self.answered(finished(found)),
                Some(done) = self.writes.join_next() => {
                    let (lane, node, done) = finished(done);
                    let in_a_row = self.ended(lane, &node, &done, Instant::now(), (self.controller.jitter)());
                    self.tell(&node, &done, in_a_row);
                }
                () = until(next) => {}
            }
            self.controller.metrics.nodes_waiting(self.roster.uninitialised());
        }
        self.lookups.abort_all();
        // What has not begun to be written is left to the next start.
        let drained = tokio::time::timeout(DRAIN, async { while self.writes.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(unfinished = self.writes.len(), "stopped before all writes were answered");
        }
    }

    /// When the next lookup of a lane is to go out, unless one is under way.
    fn next(&self, lane: Lane) -> Option<Instant> {
        let progress = self.progress(lane);
        let next = self.roster.next(lane).filter(|_| !progress.is_looking_up);
        next.map(|due| due.max(progress.gathers_until))
    }

    /// Sends one lookup for all Nodes of a lane that are due, unless one is under way.
    fn start_lookup(&mut self, lane: Lane) {
        let now = Instant::now();
        if self.next(lane).is_none_or(|next| now < next) {
            return;
        }
        let most = self.controller.provider.largest_lookup_batch;
        let nodes = self.roster.take(lane, now, most);
        // What the provider and the gate say about this lookup says so in its span.
        let span = info_span!("reconcile", controller = "cloud-node", ?lane, nodes = nodes.len());
        span.in_scope(|| tracing::debug!("looking up machines"));
        self.progress_mut(lane).is_looking_up = true;
        let instances = Arc::clone(&self.controller.instances);
        let labels = self.controller.provider.node_labels.clone();
        let lookup = async move {
            let references: Vec<_> = nodes.iter().map(|node| node.reference(&labels)).collect();
            let answers = instances.lookup(lane.purpose(), &references).await;
            Found { lane, is_full: nodes.len() == most, nodes, answers }
        };
        self.lookups.spawn(lookup.instrument(span));
    }

    /// Sorts what a lookup brought: what is to be written waits for a writer.
    fn answered(&mut self, found: Found) {
        let Found { lane, nodes, answers, is_full } = found;
        let gathering = match lane {
            _ if is_full => Duration::ZERO,
            Lane::Initialise => GATHERING,
            Lane::Refresh => GATHERING_REFRESHES,
        };
        // The same for all of a lookup, so that those that failed together are looked up together.
        let (now, jitter) = (Instant::now(), (self.controller.jitter)());
        let progress = self.progress_mut(lane);
        progress.is_looking_up = false;
        progress.gathers_until = now + gathering;
        // What a cloud denies to all is no news about a Node that works; one that waits should say why.
        let is_nodes_own = answers.is_ok();
        let answers = answers.unwrap_or_else(|error| {
            tracing::warn!(nodes = nodes.len(), ?lane, "no machine was looked up: {error}");
            vec![Err(error); nodes.len()]
        });
        for (node, answer) in nodes.into_iter().zip(answers) {
            self.controller.metrics.answered(label(&answer));
            match decide(&node, answer) {
                Next::Write(machine) => self.progress_mut(lane).to_write.push_back((node, machine)),
                Next::Done(done) => {
                    let in_a_row = self.ended(lane, &node, &done, now, jitter);
                    if is_nodes_own || node.is_uninitialised() {
                        self.tell(&node, &done, in_a_row);
                    }
                }
            }
        }
    }

    /// Gives the free writers something to write, initialisations first.
    fn start_writes(&mut self) {
        while self.writes.len() < WRITERS {
            let waiting = Lane::ALL
                .into_iter()
                .find_map(|lane| Some((lane, self.progress_mut(lane).to_write.pop_front()?)));
            let Some((lane, (looked_up, machine))) = waiting else { return };
            // The Node may have changed since: plan with what is known now.
            match self.roster.current(lane, &looked_up) {
                Some(node) => {
                    let controller = Arc::clone(&self.controller);
                    // It may ask the provider once more.
                    let span = info_span!("reconcile", controller = "cloud-node", ?lane, node = %node.name);
                    let write = async move {
                        let (node, done) = controller.complete(node, &machine).await;
                        (lane, node, done)
                    };
                    self.writes.spawn(write.instrument(span));
                }
                None => drop(self.ended(lane, &looked_up, &Done::Unchanged, Instant::now(), 0.0)),
            }
        }
    }

    /// Notes what became of a Node's turn. How often in a row, where it is no good end ([`Roster::ended`]).
    fn ended(&mut self, lane: Lane, node: &NodeFacts, done: &Done, now: Instant, jitter: f64) -> u32 {
        // Our own writes are told here like those of others, and before they are answered.
        while let Ok(changes) = self.changes.try_recv() {
            self.roster.observe(changes, now);
        }
        if lane == Lane::Refresh {
            self.controller.metrics.node_refreshed(done.label());
        }
        self.roster.ended(lane, node, done.again(), now, jitter)
    }

    /// Tells whoever should know.
    fn tell(&self, node: &NodeFacts, done: &Done, in_a_row: u32) {
        match done {
            Done::Initialised => self.controller.tell_initialised(node),
            Done::Failed(retry, why) => self.controller.tell_failed(node, in_a_row, *retry, why),
            Done::Again(after) if in_a_row >= PENDING => {
                let why = "the cloud asks for patience again and again";
                self.controller.tell_failed(node, in_a_row, Retry::After(*after), why);
            }
            // The route controller tells of routes that can't be made, and of none where there are none to make.
            Done::Waits if in_a_row >= PENDING => {
                let why = match node.pod_cidrs[..] {
                    [] => "it has no spec.podCIDRs, for which it could have routes",
                    _ => "the cloud has no route to its Pods yet",
                };
                self.controller.tell_failed(node, in_a_row, Retry::WithBackoff, why);
            }
            Done::Unchanged | Done::Changed | Done::Again(_) | Done::Waits => {}
        }
    }

    const fn progress(&self, lane: Lane) -> &Progress {
        match lane {
            Lane::Initialise => &self.initialise,
            Lane::Refresh => &self.refresh,
        }
    }

    const fn progress_mut(&mut self, lane: Lane) -> &mut Progress {
        match lane {
            Lane::Initialise => &mut self.initialise,
            Lane::Refresh => &mut self.refresh,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::ApiServer;
    use crate::events::Events;
    use crate::health::Health;
    use crate::metrics::Metrics;
    use crate::node::Settings;
    use crate::nodes::Nodes;
    use crate::scenarios::Stored;
    use pileus_cloud::{
        Address, AddressKind, InstanceState, Instances, NodeReference, Provider, ProviderId, Purpose,
    };
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use std::sync::Mutex;

    const PERIOD: Duration = Duration::from_mins(30);

    /// A cloud with a machine for each Node.
    #[derive(Clone)]
    struct Cloud {
        /// How many Nodes were looked up for what.
        lookups: Arc<Mutex<Vec<(Purpose, usize)>>>,
        machine: Arc<Mutex<Instance>>,
        refusal: Arc<Mutex<Option<Error>>>,
        is_pending: Arc<Mutex<bool>>,
        /// Whether direct reads find no machine, while lists still show it.
        is_gone: Arc<Mutex<bool>>,
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
            if *self.is_pending.lock().unwrap() {
                return Ok(vec![Ok(Answer::Pending(secs(5))); nodes.len()]);
            }
            if purpose == Purpose::Confirm && *self.is_gone.lock().unwrap() {
                return Ok(vec![Ok(Answer::Absent); nodes.len()]);
            }
            let machine = self.machine.lock().unwrap().clone();
            let id = |name: &str| ProviderId::parse(&format!("fake://{name}")).unwrap();
            let found = |node: &NodeReference| Instance { provider_id: id(&node.name), ..machine.clone() };
            Ok(nodes.iter().map(|node| Ok(Answer::Found(found(node)))).collect())
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
        fn start(nodes: impl IntoIterator<Item = Stored>, refresh_takes: Duration) -> Self {
            Self::start_as(nodes, refresh_takes, false)
        }

        fn start_as(
            nodes: impl IntoIterator<Item = Stored>,
            refresh_takes: Duration,
            waits_for_routes: bool,
        ) -> Self {
            let api = ApiServer::new();
            for node in nodes {
                api.put(&node);
            }
            let machine = Instance {
                provider_id: ProviderId::parse("fake://any").unwrap(),
                instance_type: Some("small".to_owned()),
                zone: None,
                region: None,
                addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")],
                labels: Vec::new(),
                state: InstanceState::Running,
            };
            let cloud = Cloud {
                lookups: Arc::default(),
                machine: Arc::new(Mutex::new(machine)),
                refusal: Arc::default(),
                is_pending: Arc::default(),
                is_gone: Arc::default(),
                refresh_takes,
            };
            let provider = Provider {
                name: "fake".to_owned(),
                schemes: vec!["fake".to_owned()],
                node_labels: Vec::new(),
                largest_lookup_batch: 500,
                service_requirements: pileus_cloud::ServiceRequirements::default(),
                load_balancers: None,
                largest_route_batch: 1,
                routes: None,
                instances: Some(Arc::new(cloud.clone())),
            };
            let mut counts = Registry::default();
            let metrics = Metrics::register(&mut counts);
            let (events, _) = Events::start(api.client(), "cloud-node-controller", "test", metrics.clone());
            let nodes = Nodes::new(api.client(), metrics.clone(), &Health::default());
            let settings = Settings { refresh_period: PERIOD, waits_for_routes };
            let controller =
                Controller::new(nodes.clone(), provider, events, metrics, settings, || 0.5).unwrap();
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

    fn waiting(name: &str) -> Stored {
        Stored::registered(&json!({"metadata": {"name": name, "uid": format!("uid-{name}")}}))
    }

    /// A Node that is as the cloud says.
    fn working(name: &str) -> Stored {
        let labels =
            json!({"node.kubernetes.io/instance-type": "small", "beta.kubernetes.io/instance-type": "small"});
        waiting(name).with(&json!({
            "metadata": {"labels": labels},
            "spec": {"providerID": format!("fake://{name}"), "taints": null},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        }))
    }

    fn many(kind: fn(&str) -> Stored, count: usize) -> impl Iterator<Item = Stored> {
        (0..count).map(move |n| kind(&format!("n{n}")))
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_node_that_waits_for_routes_in_vain_users_are_told() {
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
        assert!(facts.is_uninitialised() && facts.provider_id.is_some());
        let told = |status, reason| json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": status, "reason": reason}]}});
        running.api.put(&running.api.get("a").with(&told("True", "NoRouteCreated")));
        pass(secs(5)).await;
        assert!(running.api.get("a").facts().is_uninitialised());
        assert_eq!(running.api.events(), Vec::<String>::new());
        running.api.put(&running.api.get("a").with(&told("False", "RouteCreated")));
        pass(secs(2)).await;
        assert!(!running.api.get("a").facts().is_uninitialised());
        assert_eq!(running.api.writes(), ["PATCH a"]);
        assert_eq!(running.api.events(), ["Synced a"]);
        assert_eq!(running.lookups().len(), 2, "when it joined, and when it had its routes");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_does_not_get_the_machine_of_the_one_before_because_a_list_still_shows_it() {
        let running = Running::start([working("a")], secs(1));
        pass(secs(5)).await;
        running.lookups();
        *running.cloud.is_gone.lock().unwrap() = true;
        running.api.put(&waiting("a").with(&json!({"metadata": {"uid": "second"}})));
        pass(secs(2)).await;
        assert_eq!(running.lookups()[..2], [(Purpose::Initialise, 1), (Purpose::Confirm, 1)]);
        assert_eq!(running.api.writes(), [""; 0]);
        assert_eq!(running.api.events().first().map(String::as_str), Some("CloudInitializationFailed a"));
        // It was deleted by hand, and registers anew with the machine that it has.
        *running.cloud.is_gone.lock().unwrap() = false;
        pass(secs(10)).await;
        running.api.get("a").assert_is(&working("a").with(&json!({"metadata": {"uid": "second"}})));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_wait_cost_one_lookup_and_two_writes_each() {
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
        assert_eq!(running.lookups(), [(Purpose::Refresh, 100)], "all join the next sweep together");
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
    async fn what_the_cloud_answers_and_what_becomes_of_refreshes_is_counted() {
        let running = Running::start([working("a"), waiting("b")], secs(1));
        pass(secs(60)).await;
        let changed = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "huge"}}});
        running.api.put(&working("a").with(&changed));
        pass(secs(120)).await;
        let trouble = Error::new(pileus_cloud::ErrorKind::Unavailable, "the cloud does not answer");
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
    async fn a_sweep_of_more_nodes_than_a_lookup_carries_goes_on_at_once() {
        let running = Running::start(many(working, 501), secs(1));
        pass(secs(3)).await;
        assert_eq!(running.lookups(), [(Purpose::Refresh, 500), (Purpose::Refresh, 1)]);
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_has_changed_is_followed_at_the_next_sweep() {
        let running = Running::start(many(working, 3), secs(1));
        pass(secs(5)).await;
        running.cloud.machine.lock().unwrap().instance_type = Some("large".to_owned());
        pass(PERIOD).await;
        assert_eq!(running.api.writes().len(), 3, "our own writes are no reason to look again");
        assert_eq!(running.lookups(), [(Purpose::Refresh, 3); 2]);
        let labels = running.api.get("n1").facts().labels;
        assert_eq!(labels["node.kubernetes.io/instance-type"], "large");
        assert_eq!(running.api.events(), Vec::<String>::new(), "no initialisation, no event");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_else_changes_is_put_right_at_once() {
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
    async fn many_changes_one_after_the_other_are_looked_at_together() {
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
    async fn a_long_sweep_holds_up_no_initialisation() {
        let running = Running::start(many(working, 100), secs(600));
        pass(secs(5)).await;
        running.api.put(&waiting("new"));
        pass(secs(1)).await;
        running.api.get("new").assert_is(&working("new"));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn initialisations_are_written_before_refreshes() {
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
    async fn a_write_that_meets_another_one_is_planned_anew() {
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
    async fn what_a_policy_changes_back_each_time_is_not_written_for_ever() {
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
    async fn a_cloud_in_trouble_is_told_for_nodes_that_wait_and_asked_ever_less_for_the_others() {
        let running = Running::start(many(working, 50), secs(1));
        pass(secs(60)).await;
        running.lookups();
        let trouble = Error::new(pileus_cloud::ErrorKind::Unavailable, "the cloud does not answer");
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
    async fn a_cloud_that_asks_for_patience_without_end_is_told_for_nodes_that_wait() {
        let running = Running::start([waiting("waits"), working("works")], secs(1));
        *running.cloud.is_pending.lock().unwrap() = true;
        pass(secs(30)).await;
        assert_eq!(running.api.events(), Vec::<String>::new(), "a machine that starts is no news");
        pass(secs(200)).await;
        let events = running.api.events(); // at the 8th, 16th and 32nd turn, which come each 5 s
        assert_eq!(events, ["CloudInitializationFailed waits"; 3]);
        *running.cloud.is_pending.lock().unwrap() = false;
        pass(secs(20)).await;
        running.api.get("waits").assert_is(&working("waits"));
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_node_ip_of_a_node_that_works_is_told_and_stops_no_label() {
        let asks = json!({"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"});
        let wrong = json!({"metadata": {"labels": null, "annotations": asks}});
        let running = Running::start([working("a").with(&wrong)], secs(1));
        pass(secs(5)).await;
        assert_eq!(running.api.events(), ["CloudRefreshFailed a"]);
        assert_eq!(running.api.writes(), ["PATCH a"]);
        pass(secs(1700)).await;
        assert_eq!(running.lookups().len(), 1, "somebody has to act first");
        running.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_after_the_end() {
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
