//! The lifecycle controller taints a Node whose instance is stopped, and deletes a Node whose instance is gone.
//!
//! It works in passes. A pass looks up all Nodes together that aren't ready, since a list costs the cloud the same for one Node
//! as for a thousand. A lookup that hangs delays only its own Nodes. A Node is deleted only after a direct read has confirmed that its instance is gone, and not while so
//! many are gone at once that it may be an error (`breaker`).

mod apply;
mod breaker;
#[cfg(test)]
mod histories;
mod lookups;
pub(crate) mod metrics;
mod plan;
mod planner;
#[cfg(test)]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_cloud::{Answer, Instances, Provider};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use crate::deps::ControllerDeps;
use crate::error::Error;
use crate::events::Events;
use crate::nodes::{Nodes, write_each};
use lookups::{Answered, Lookups};
use plan::{Action, NodeWrite};
use planner::{Findings, LifecyclePlanner, Now};

/// How long a pass waits for the next answer before it holds and deletes Nodes on the answers that it has. A lookup is given more
/// time by the host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the operator has set for the controller.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The pause between two passes.
    pub period: Duration,
    /// Whether a Node whose instance is stopped also gets the taint `node.kubernetes.io/out-of-service`, which moves its Pods
    /// and their volumes.
    pub taints_out_of_service: bool,
}

impl Default for Settings {
    /// Upstream checks each 5 s, one Node at a time. Here a pass costs one list.
    fn default() -> Self {
        Self { period: Duration::from_secs(10), taints_out_of_service: false }
    }
}

/// The lifecycle controller.
pub struct Controller {
    nodes: Nodes,
    instances: Arc<dyn Instances>,
    provider: Provider,
    events: Events,
    lifecycle: metrics::Metrics,
    settings: Settings,
}

/// What is kept between passes.
struct Memory {
    planner: LifecyclePlanner,
    lookups: Lookups,
    started: Instant,
    /// The number of passes with failed lookups since the last pass without.
    failures: u32,
}

impl Controller {
    /// Builds the controller. `None` where the provider can't look up instances.
    pub fn new(deps: ControllerDeps, settings: Settings) -> Option<Self> {
        let ControllerDeps { nodes, addresses: _, provider, events, metrics, jitter: _ } = deps;
        let instances = provider.instances.clone()?;
        metrics.lifecycle.show();
        Some(Self { nodes, instances, provider, events, lifecycle: metrics.lifecycle, settings })
    }

    /// Runs until `stop`, and then until no write is in flight.
    pub async fn run(self, stop: CancellationToken) {
        let planner = LifecyclePlanner::new(self.provider.clone(), self.settings.taints_out_of_service);
        let lookups = Lookups::new(Arc::clone(&self.instances), &self.provider);
        let mut memory = Memory { planner, lookups, started: Instant::now(), failures: 0 };
        // Wait for the first list of Nodes. Otherwise the first pass would see no Node, and the next one come a period later.
        let mut nodes = self.nodes.subscribe();
        let mut wait = stop.run_until_cancelled(nodes.recv()).await.map(drop);
        drop(nodes);
        while wait.is_some() {
            let span = info_span!("reconcile", controller = "cloud-node-lifecycle");
            self.pass(&mut memory, &stop).instrument(span).await;
            wait = stop.run_until_cancelled(tokio::time::sleep(self.settings.period)).await;
        }
        self.lifecycle.reset_gauges();
    }

    /// Makes one pass. Writes that help a Node are made as soon as its answer is there. Holds and deletions come last, since the
    /// breaker looks at all Nodes.
    async fn pass(&self, memory: &mut Memory, stop: &CancellationToken) {
        let mut findings = Findings::default();
        while let Some(answered) = memory.lookups.try_next() {
            self.record(&answered);
            memory.on_answered(&mut findings, answered);
        }
        let Some(nodes) = self.nodes.all(&self.provider.name) else { return };
        let help = memory.planner.plan_help(&nodes, &findings, memory.now());
        self.write(memory, help, stop).await;
        let candidates = memory.planner.candidates(&nodes, memory.now());
        self.lifecycle.set_candidates(candidates.len());
        memory.lookups.begin(candidates);
        if self.find(memory, &mut findings, stop).await.is_none() {
            return;
        }
        memory.report(&self.provider.name, findings.first_error.as_ref());
        // The Nodes may have changed during the lookups, so the plan reads them again.
        let Some(nodes) = self.nodes.all(&self.provider.name) else { return };
        let mut plan = memory.planner.plan(&nodes, &findings, memory.now());
        self.lifecycle.record_plan(&plan, findings.contradicted, memory.planner.unknown());
        plan.actions.retain(|action| !action.write.helps());
        let holds = plan.actions.iter().filter(|action| matches!(action.write, NodeWrite::Hold(_))).count();
        if holds > 0 {
            let (gone, total) = (plan.breaker.gone, plan.breaker.total);
            tracing::warn!(
                nodes = holds, gone, total, provider = %self.provider.name,
                "deletion of nodes on hold: so many instances are gone at once that it may be a cloud error"
            );
        }
        self.write(memory, plan.actions, stop).await;
        self.lifecycle.count_pass();
    }

    /// Records what direct reads say: a Node without an instance takes no traffic.
    fn record(&self, answered: &Answered) {
        let confirmations = self.nodes.confirmations(&self.provider.name);
        for (node, answer) in answered.answers.iter().filter(|_| !answered.listed.is_empty()) {
            match answer {
                Ok(Answer::Found(instance)) => confirmations.record_found(node, &instance.provider_id),
                Ok(Answer::Absent) => confirmations.record_absent(node, true),
                _ => {}
            }
        }
    }

    /// Looks up the candidates, and reads directly those that need it. A lookup that hangs is left to later passes. `None` after
    /// `stop`.
    async fn find(
        &self,
        memory: &mut Memory,
        findings: &mut Findings,
        stop: &CancellationToken,
    ) -> Option<()> {
        memory.lookups.start();
        while memory.lookups.is_pass_unfinished() {
            let next = tokio::time::timeout(ANSWER_TIMEOUT, memory.lookups.next());
            let Ok(Some(answered)) = stop.run_until_cancelled(next).await? else { break };
            self.record(&answered);
            let mut looked_up = memory.on_answered(findings, answered);
            while let Some(answered) = memory.lookups.try_next() {
                self.record(&answered);
                looked_up.extend(memory.on_answered(findings, answered));
            }
            // Before the writes, so that no lookup waits for them.
            memory.lookups.start();
            let nodes: Vec<_> = looked_up.iter().filter_map(|name| self.nodes.get(name)).collect();
            let help = memory.planner.plan_help(&nodes, findings, memory.now());
            self.write(memory, help, stop).await;
        }
        Some(())
    }

    /// Makes the writes in this order, several at a time. After `stop` no write begins, and those in flight are awaited.
    async fn write(&self, memory: &mut Memory, actions: Vec<Action>, stop: &CancellationToken) {
        let write = |action: Action| async move {
            let written = self.apply(&action).await;
            (action, written)
        };
        if !write_each(actions, stop, write, |(action, written)| memory.on_write_result(&action, &written))
            .await
        {
            tracing::warn!("stopped before all writes were answered");
        }
    }
}

impl Memory {
    fn now(&self) -> Now {
        Now { wall: Timestamp::now(), uptime: self.started.elapsed() }
    }

    /// Applies the answers of a lookup. Returns the names of its Nodes.
    fn on_answered(&mut self, findings: &mut Findings, answered: Answered) -> Vec<String> {
        let Answered { listed, answers, .. } = answered;
        let (names, now) = (answers.iter().map(|(node, _)| node.name.clone()).collect(), self.now());
        if listed.is_empty() {
            let to_confirm = self.planner.on_lookup(findings, answers, now);
            self.lookups.confirm(to_confirm);
        } else {
            self.planner.on_confirmation(findings, &listed, answers, now);
        }
        names
    }

    fn on_write_result(&mut self, action: &Action, written: &Result<(), Error>) {
        let now = self.now();
        // A Node that is gone may have been deleted by a request of ours whose response got lost. A Node whose deletion is denied
        // is skipped for a while, although its instance is gone. Only a Node that has changed is decided on again at once.
        if let NodeWrite::Delete { is_released } = action.write
            && !matches!(written, Err(Error::Conflict))
        {
            self.planner.on_deletion(&action.node, is_released, now);
        }
        match written {
            Ok(()) => {}
            // The next pass decides again.
            Err(error @ (Error::Conflict | Error::Gone)) => {
                tracing::debug!(node = %action.node.name, %error, "node not written");
            }
            Err(error) => {
                tracing::warn!(node = %action.node.name, write = ?action.write, %error, "node not written");
                if matches!(error, Error::Refused(_) | Error::Forbidden(_)) {
                    self.planner.on_refusal(&action.node, now);
                }
            }
        }
    }

    /// Logs failed lookups in the 1st, 2nd, 4th, 8th … pass, and when they have ended.
    fn report(&mut self, provider: &str, first_error: Option<&pileus_cloud::Error>) {
        let nodes = self.planner.unknown();
        if let Some(error) = first_error {
            self.failures = self.failures.saturating_add(1);
            if self.failures.is_power_of_two() {
                let passes = self.failures;
                tracing::warn!(provider, passes, nodes, %error, "instance lookup failed for nodes that are not ready");
            }
        } else if nodes == 0 && self.failures > 0 {
            tracing::info!(provider, "instance lookup succeeds again for all nodes that are not ready");
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::pending;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use async_trait::async_trait;
    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use pileus_cloud::{InstanceState, NodeReference, Purpose};
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::api_server::history;
    use crate::cluster_addresses::ClusterAddresses;
    use crate::facts::node::NodeFacts;
    use crate::health::Health;
    use crate::metrics::Metrics;
    use crate::model::{self, instance};
    use crate::nodes::{CONCURRENT_WRITES, DRAIN_TIMEOUT};

    /// An API server whose Nodes never change. It records writes and answers them with this status, as many as it has permits
    /// for.
    #[derive(Clone)]
    struct Api {
        status: u16,
        nodes: Arc<Vec<Value>>,
        writes: Arc<Mutex<Vec<(Method, String, Value)>>>,
        answers: Arc<Semaphore>,
    }

    impl tower_service::Service<Request<Body>> for Api {
        type Response = Response<Body>;
        type Error = kube::Error;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let api = self.clone();
            Box::pin(async move { Ok(api.answer(request).await) })
        }
    }

    impl Api {
        async fn answer(self, request: Request<Body>) -> Response<Body> {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = head.uri.path().to_owned();
            let mut status = 200;
            let answer = match (head.method, path.contains("/events")) {
                (Method::GET, _) if head.uri.query().unwrap_or_default().contains("watch=true") => {
                    pending().await
                }
                (Method::GET, _) => json!({
                    "kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": *self.nodes,
                }),
                (method, true) => {
                    self.writes.lock().unwrap().push((method, path, body.clone()));
                    body
                }
                (method, false) => {
                    self.writes.lock().unwrap().push((method, path, body));
                    self.answers.acquire().await.unwrap().forget();
                    status = self.status;
                    match status {
                        200 => self.nodes.first().cloned().unwrap_or_default(),
                        code => {
                            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
                        }
                    }
                }
            };
            let body = Body::from(answer.to_string().into_bytes());
            Response::builder().status(status).body(body).unwrap()
        }

        fn written(&self, method: &Method) -> Vec<(String, Value)> {
            let writes = self.writes.lock().unwrap();
            let those = writes.iter().filter(|(of, path, _)| of == method && !path.contains("/events"));
            those.map(|(_, path, body)| (path.clone(), body.clone())).collect()
        }

        fn events(&self) -> BTreeMap<String, usize> {
            let mut reasons = BTreeMap::new();
            for (_, _, event) in
                self.writes.lock().unwrap().iter().filter(|(_, path, _)| path.contains("/events"))
            {
                *reasons.entry(event["reason"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            reasons
        }
    }

    /// Instances, whose state is a function of the purpose and the Node name. `None` where there is no instance.
    struct FakeInstances {
        calls: Mutex<Vec<(Purpose, usize)>>,
        state: fn(Purpose, &str) -> Option<InstanceState>,
        /// A call about a Node of this name hangs.
        hangs: Option<&'static str>,
        hung: Mutex<usize>,
    }

    #[async_trait]
    impl Instances for FakeInstances {
        async fn lookup(
            &self,
            purpose: Purpose,
            nodes: &[NodeReference],
        ) -> Result<Vec<Result<Answer, pileus_cloud::Error>>, pileus_cloud::Error> {
            self.calls.lock().unwrap().push((purpose, nodes.len()));
            if nodes.iter().any(|node| Some(&*node.name) == self.hangs) {
                *self.hung.lock().unwrap() += 1;
                pending::<()>().await;
            }
            let answer = |node: &NodeReference| {
                let state = (self.state)(purpose, &node.name);
                Ok(state.map_or(Answer::Absent, |state| Answer::Found(instance("model://m", state))))
            };
            Ok(nodes.iter().map(answer).collect())
        }
    }

    fn node(name: &str) -> Value {
        json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
                "creationTimestamp": "2020-01-01T00:00:00Z",
            },
            "spec": {"providerID": format!("model://{name}")},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        })
    }

    fn provider(instances: Option<Arc<dyn Instances>>) -> Provider {
        Provider { largest_lookup_batch: 100, instances, ..model::provider("model") }
    }

    struct Running {
        api: Api,
        instances: Arc<FakeInstances>,
        stop: CancellationToken,
        controller: JoinHandle<()>,
        metrics: Registry,
    }

    impl Running {
        fn metrics(&self) -> String {
            let mut metrics = String::new();
            prometheus_client::encoding::text::encode(&mut metrics, &self.metrics).unwrap();
            metrics
        }
    }

    /// Starts a controller with this number of Nodes: `n0`, `n1` and so on.
    fn start(nodes: usize, answers: usize, instances: FakeInstances) -> Running {
        start_with(200, nodes, answers, instances)
    }

    fn start_with(status: u16, nodes: usize, answers: usize, instances: FakeInstances) -> Running {
        let nodes = Arc::new((0..nodes).map(|n| node(&format!("n{n}"))).collect());
        let api = Api { status, nodes, writes: Arc::default(), answers: Arc::new(Semaphore::new(answers)) };
        let client = kube::Client::new(api.clone(), "default");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let instances = Arc::new(instances);
        let provider = provider(Some(Arc::clone(&instances) as Arc<dyn Instances>));
        let nodes = Nodes::new(client.clone(), metrics.clone(), &Health::default(), &history());
        nodes.set_claims(model::claims());
        let (events, _) = Events::start(client, "test", "test", metrics.clone());
        let deps = ControllerDeps {
            nodes: nodes.clone(),
            addresses: ClusterAddresses::new(nodes.clone(), None, []),
            provider,
            events,
            metrics,
            jitter: || 0.0,
        };
        let controller = Controller::new(deps, Settings::default()).unwrap();
        let stop = CancellationToken::new();
        let watching = stop.clone();
        tokio::spawn(async move { nodes.watch(watching).await });
        let controller = tokio::spawn(controller.run(stop.clone()));
        Running { api, instances, stop, controller, metrics: registry }
    }

    /// Lets everything happen that needs no time.
    async fn a_moment() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn instances(state: fn(Purpose, &str) -> Option<InstanceState>) -> FakeInstances {
        FakeInstances { calls: Mutex::default(), state, hangs: None, hung: Mutex::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_looks_up_all_nodes_together_and_reads_directly_only_what_a_list_lacks() {
        // A list lacks n1, n11 and n111, of which n11 is there.
        let running = start(
            250,
            1000,
            instances(|purpose, name| match (purpose, name) {
                (_, "n1" | "n111") | (Purpose::Refresh, "n11") => None,
                _ => Some(InstanceState::Running),
            }),
        );
        a_moment().await;
        let calls = running.instances.calls.lock().unwrap().clone();
        let list = |count| (Purpose::Refresh, count);
        assert_eq!(calls, [list(100), list(100), list(50), (Purpose::Confirm, 3)]);
        let deleted = running.api.written(&Method::DELETE);
        assert_eq!(deleted.len(), 2);
        assert_eq!(deleted[0].0, "/api/v1/nodes/n1");
        assert_eq!(deleted[0].1["preconditions"], json!({"uid": "uid-n1", "resourceVersion": "7"}));
        assert_eq!(running.api.events(), [("DeletingNode".to_owned(), 2)].into());
        let metrics = running.metrics();
        for line in [
            "pileus_node_lifecycle_passes_total 1",
            "pileus_node_lifecycle_candidates 250",
            "pileus_node_lifecycle_absent_unconfirmed_total 1",
            "pileus_node_lifecycle_deletions_total{result=\"ok\"} 2",
            "pileus_node_lifecycle_breaker_open 0",
        ] {
            assert!(metrics.contains(line), "{line} is not in {metrics}");
        }
        tokio::time::sleep(Settings::default().period).await;
        assert_eq!(running.instances.calls.lock().unwrap().len(), 8, "the next pass makes as many calls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_deletion_is_reported_unless_another_client_was_faster() {
        for (status, result, is_reported) in [
            (403, "refused", true),
            (404, "gone", false),
            (409, "conflict", false),
            (500, "unavailable", true),
        ] {
            let running = start_with(status, 1, 1, instances(|_, _| None));
            a_moment().await;
            let mut events = BTreeMap::from([("DeletingNode".to_owned(), 1)]);
            events.extend(is_reported.then(|| ("DeletingNodeFailed".to_owned(), 1)));
            assert_eq!(running.api.events(), events, "{status}");
            let metrics = running.metrics();
            let line = format!("pileus_node_lifecycle_deletions_total{{result=\"{result}\"}} 1");
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
            running.stop.cancel();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_may_not_be_changed_is_retried_each_minute() {
        for (status, instances, confirms) in [
            (403, instances(|_, _| None), 3),
            (403, instances(|_, _| Some(InstanceState::Stopped)), 0),
            (200, instances(|_, _| Some(InstanceState::Stopped)), 0), // undone at once, because no Node here ever changes
        ] {
            let running = start_with(status, 1, 1000, instances);
            tokio::time::sleep(Duration::from_secs(125)).await;
            let tries =
                running.api.written(&Method::DELETE).len() + running.api.written(&Method::PATCH).len();
            let calls = running.instances.calls.lock().unwrap().clone();
            let direct = calls.iter().filter(|(purpose, _)| *purpose == Purpose::Confirm).count();
            assert_eq!((tries, direct, calls.len()), (3, confirms, 3 + confirms), "{calls:?}");
            running.stop.cancel();
        }
    }

    #[test]
    fn an_instance_that_is_gone_counts_for_the_breaker_regardless_of_its_deletion() {
        let deleted: Vec<_> = (0..4).map(|n| Arc::new(NodeFacts::registered(&n.to_string()))).collect();
        for (written, is_released, gone) in [
            (Ok(()), false, 4),
            (Ok(()), true, 0),
            (Err(Error::Unavailable("no answer".to_owned())), false, 4),
            (Err(Error::Gone), false, 4), // deleted by a request whose response got lost
            (Err(Error::Conflict), false, 0),
            (Err(Error::Refused("no right".to_owned())), false, 4),
        ] {
            let planner = LifecyclePlanner::new(provider(None), false);
            let lookups = Lookups::new(Arc::new(instances(|_, _| None)), &provider(None));
            let mut memory = Memory { planner, lookups, started: Instant::now(), failures: 0 };
            for node in &deleted {
                let action = Action { node: Arc::clone(node), write: NodeWrite::Delete { is_released } };
                memory.on_write_result(&action, &written);
            }
            let breaker = memory.planner.plan(&[], &Findings::default(), memory.now()).breaker;
            assert_eq!(breaker.gone, gone, "{written:?} {is_released}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_too_many_instances_are_gone_deletions_are_put_on_hold_and_reported() {
        let running = start(
            40,
            1000,
            instances(|_, name| (!name.ends_with(['1', '2', '3'])).then_some(InstanceState::Running)),
        );
        a_moment().await;
        assert_eq!(running.api.written(&Method::DELETE), []);
        let held = running.api.written(&Method::PATCH);
        assert_eq!(held.len(), 12);
        assert_eq!(held[0].0, "/api/v1/nodes/n1/status");
        assert_eq!(held[0].1["status"]["conditions"][0]["type"], "pileus.dev/MachineAbsent");
        assert_eq!(running.api.events(), [("DeletionHeld".to_owned(), 12)].into());
        let metrics = running.metrics();
        for line in ["pileus_node_lifecycle_held 12", "pileus_node_lifecycle_breaker_open 1"] {
            assert!(metrics.contains(line), "{line} is not in {metrics}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_stop_no_write_begins_and_those_in_flight_are_awaited() {
        let running = start(40, 0, instances(|_, _| Some(InstanceState::Stopped)));
        a_moment().await;
        assert_eq!(running.api.written(&Method::PATCH).len(), CONCURRENT_WRITES);
        running.stop.cancel();
        a_moment().await;
        assert!(!running.controller.is_finished(), "waits for the answers");
        running.api.answers.add_permits(1000);
        running.controller.await.unwrap();
        assert_eq!(running.api.written(&Method::PATCH).len(), CONCURRENT_WRITES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_never_answered_delays_the_stop_by_the_drain_timeout() {
        let running = start(40, 0, instances(|_, _| Some(InstanceState::Stopped)));
        a_moment().await;
        running.stop.cancel();
        let stopped = Instant::now();
        running.controller.await.unwrap();
        assert_eq!(stopped.elapsed(), DRAIN_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_hangs_delays_only_its_own_nodes() {
        // The first call of a pass is about n0 and others, and the last one about n97 and n98.
        let running = start(
            250,
            1000,
            FakeInstances {
                hangs: Some("n0"),
                ..instances(|_, name| match name {
                    "n97" => Some(InstanceState::Stopped),
                    "n98" => None,
                    _ => Some(InstanceState::Running),
                })
            },
        );
        a_moment().await;
        assert_eq!(running.api.written(&Method::PATCH)[0].0, "/api/v1/nodes/n97", "tainted at once");
        assert_eq!(running.api.written(&Method::DELETE), []);
        tokio::time::sleep(ANSWER_TIMEOUT).await;
        assert_eq!(
            running.api.written(&Method::DELETE)[0].0,
            "/api/v1/nodes/n98",
            "without the hanging answer"
        );
        tokio::time::sleep(Settings::default().period * 10).await;
        assert_eq!(*running.instances.hung.lock().unwrap(), 1, "its Nodes are not looked up again meanwhile");
        let passes = "pileus_node_lifecycle_passes_total 11";
        assert!(running.metrics().contains(passes), "{}", running.metrics());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_lookups_run_at_once_than_a_cloud_can_take() {
        let instances = instances(|_, _| Some(InstanceState::Running));
        let nodes: Vec<_> = (0..9).map(|n| Arc::new(NodeFacts::registered(&format!("n{n}")))).collect();
        let one_by_one = Provider { largest_lookup_batch: 1, ..provider(None) };
        let mut lookups = Lookups::new(Arc::new(instances), &one_by_one);
        lookups.begin(nodes);
        for left in [5, 4, 3, 2, 1, 0, 0, 0, 0] {
            lookups.start();
            assert!(lookups.is_pass_unfinished());
            assert_eq!(lookups.waiting(), left);
            assert!(lookups.next().await.is_some());
        }
        assert!(!lookups.is_pass_unfinished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_hangs_does_not_delay_the_stop() {
        let running = start(1, 0, FakeInstances { hangs: Some("n0"), ..instances(|_, _| None) });
        a_moment().await;
        assert_eq!(running.instances.calls.lock().unwrap().len(), 1);
        running.stop.cancel();
        running.controller.await.unwrap();
    }
}
