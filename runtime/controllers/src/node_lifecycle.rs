//! The lifecycle controller: a machine is stopped, and its Node is tainted; it is gone, and its Node is deleted.
//!
//! It looks at all Nodes together, again and again: those that aren't ready are looked up in one go, since a list costs
//! the cloud the same for one as for a thousand. A Node is deleted only once a direct read has confirmed that its machine
//! is gone, and not while so many go at once that it looks like an error (`breaker`).

mod apply;
mod breaker;
#[cfg(test)]
mod histories;
mod judge;
pub(crate) mod metrics;
mod plan;
#[cfg(test)]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_cloud::{Instances, Provider, Purpose};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span};

use crate::error::Error;
use crate::events::Events;
use crate::facts::node::NodeFacts;
use crate::metrics::Metrics;
use crate::nodes::{Nodes, write_each};
use judge::{Answered, Findings, Judge, Now};
use plan::{Action, Write};

/// What an operator may change.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// From the end of one pass to the next.
    pub period: Duration,
    /// Whether a Node whose machine is stopped also gets the taint `node.kubernetes.io/out-of-service`, which moves its
    /// Pods and their volumes.
    pub taints_out_of_service: bool,
}

impl Default for Settings {
    /// Upstream looks each 5 s, one Node at a time; a pass costs a list here.
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
    judge: Judge,
    started: Instant,
    /// Passes in which an error came instead of an answer, since all was known.
    failures: u32,
}

impl Controller {
    /// Puts the controller together; none where the provider knows no machines.
    pub fn new(
        nodes: Nodes,
        provider: Provider,
        events: Events,
        metrics: Metrics,
        settings: Settings,
    ) -> Option<Self> {
        let instances = provider.instances.clone()?;
        Some(Self { nodes, instances, provider, events, lifecycle: metrics.lifecycle, settings })
    }

    /// Works until it is told to stop, and then until no write is under way.
    pub async fn run(self, stop: CancellationToken) {
        let judge = Judge::new(self.provider.clone(), self.settings.taints_out_of_service);
        let mut memory = Memory { judge, started: Instant::now(), failures: 0 };
        // The list of Nodes, so that the first pass doesn't look at none and then wait for its turn.
        let mut nodes = self.nodes.follow();
        let mut wait = stop.run_until_cancelled(nodes.recv()).await.map(drop);
        drop(nodes);
        while wait.is_some() {
            let span = info_span!("reconcile", controller = "cloud-node-lifecycle");
            self.pass(&mut memory, &stop).instrument(span).await;
            wait = stop.run_until_cancelled(tokio::time::sleep(self.settings.period)).await;
        }
        self.lifecycle.leaves();
    }

    async fn pass(&self, memory: &mut Memory, stop: &CancellationToken) {
        let Some(nodes) = self.nodes.all() else { return };
        let candidates = memory.judge.candidates(&nodes, memory.now());
        self.lifecycle.asked(candidates.len());
        let Some(findings) = stop.run_until_cancelled(self.ask(memory, candidates)).await else { return };
        memory.tell(&self.provider.name, findings.failed.as_ref());
        // The Nodes may have changed during the lookups: plan with what is known now.
        let Some(nodes) = self.nodes.all() else { return };
        let plan = memory.judge.plan(&nodes, &findings, memory.now());
        self.lifecycle.planned(&plan, findings.contradicted, memory.judge.unknown());
        let holds = plan.actions.iter().filter(|action| matches!(action.write, Write::Hold(_))).count();
        if holds > 0 {
            let (gone, of) = (plan.verdict.gone, plan.verdict.of);
            tracing::warn!(
                nodes = holds, gone, of, provider = %self.provider.name,
                "machines are gone, but so many at once that their nodes are held rather than deleted"
            );
        }
        self.write(memory, plan.actions, stop).await;
        self.lifecycle.passed();
    }

    /// Looks up the candidates, and then directly those that are in doubt.
    async fn ask(&self, memory: &mut Memory, candidates: Vec<Arc<NodeFacts>>) -> Findings {
        let mut findings = Findings::default();
        if candidates.is_empty() {
            return findings;
        }
        let answers = self.look_up(Purpose::Refresh, candidates).await;
        let doubted = memory.judge.looked_up(&mut findings, answers, memory.now());
        let in_doubt = doubted.iter().map(|(node, _)| Arc::clone(node)).collect();
        let answers = self.look_up(Purpose::Confirm, in_doubt).await;
        memory.judge.confirmed(&mut findings, &doubted, answers, memory.now());
        findings
    }

    /// Looks up machines in as few calls as the provider allows. Each Node gets an answer, in the same order; where a call
    /// failed as a whole its Nodes have its error.
    async fn look_up(&self, purpose: Purpose, nodes: Vec<Arc<NodeFacts>>) -> Vec<Answered> {
        let mut answered = Vec::with_capacity(nodes.len());
        for chunk in nodes.chunks(self.provider.largest_lookup_batch.max(1)) {
            let references: Vec<_> =
                chunk.iter().map(|node| node.reference(&self.provider.node_labels)).collect();
            let answers = self.instances.lookup(purpose, &references).await;
            let answers = answers.unwrap_or_else(|error| vec![Err(error); chunk.len()]);
            answered.extend(chunk.iter().cloned().zip(answers));
        }
        answered
    }

    /// Writes, several at a time and in this order. Once it is told to stop no write begins, and those that have begun
    /// are awaited.
    async fn write(&self, memory: &mut Memory, actions: Vec<Action>, stop: &CancellationToken) {
        let write = |action: Action| async move {
            let written = self.apply(&action).await;
            (action, written)
        };
        if !write_each(actions, stop, write, |(action, written)| memory.wrote(&action, &written)).await {
            tracing::warn!("stopped before all writes were answered");
        }
    }
}

impl Memory {
    fn now(&self) -> Now {
        Now { wall: Timestamp::now(), uptime: self.started.elapsed() }
    }

    /// Notes what became of a write.
    fn wrote(&mut self, action: &Action, written: &Result<(), Error>) {
        let now = self.now();
        // One that is gone may have been deleted by a try of ours whose answer got lost; one that may not be deleted is not
        // asked about for a while, but its machine is gone. One that has changed is asked about at once.
        if let Write::Delete { is_released } = action.write
            && !matches!(written, Err(Error::Conflict))
        {
            self.judge.deleted(&action.node, is_released, now);
        }
        match written {
            Ok(()) => {}
            // The next pass looks again.
            Err(error @ (Error::Conflict | Error::Gone)) => {
                tracing::debug!(node = %action.node.name, "{error}");
            }
            Err(error) => {
                tracing::warn!(node = %action.node.name, write = ?action.write, "not written: {error}");
                if matches!(error, Error::Refused(_) | Error::Forbidden(_)) {
                    self.judge.refused(&action.node, now);
                }
            }
        }
    }

    /// Tells of errors that came instead of answers: in the 1st, 2nd, 4th, 8th … pass, and the end of it.
    fn tell(&mut self, provider: &str, failed: Option<&pileus_cloud::Error>) {
        let nodes = self.judge.unknown();
        if let Some(error) = failed {
            self.failures = self.failures.saturating_add(1);
            if self.failures.is_power_of_two() {
                let passes = self.failures;
                tracing::warn!(
                    provider,
                    passes,
                    nodes,
                    "machines of nodes that are not ready are not known: {error}"
                );
            }
        } else if nodes == 0 && self.failures > 0 {
            tracing::info!(provider, "the machines of all nodes that are not ready are known again");
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
    use pileus_cloud::{Answer, InstanceState, NodeReference};
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::health::Health;
    use crate::model::instance;
    use crate::nodes::{DRAIN, WRITERS};

    /// An API server of as many Nodes as it was given, of which none ever changes. It keeps what it is asked to write,
    /// and answers that, with this status, as often as it has been allowed to.
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

        fn told(&self) -> BTreeMap<String, usize> {
            let mut reasons = BTreeMap::new();
            for (_, _, event) in
                self.writes.lock().unwrap().iter().filter(|(_, path, _)| path.contains("/events"))
            {
                *reasons.entry(event["reason"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            reasons
        }
    }

    /// Machines by what the question is for and the name of the Node; none where there is none.
    struct Machines {
        calls: Mutex<Vec<(Purpose, usize)>>,
        state: fn(Purpose, &str) -> Option<InstanceState>,
        hangs: bool,
    }

    #[async_trait]
    impl Instances for Machines {
        async fn lookup(
            &self,
            purpose: Purpose,
            nodes: &[NodeReference],
        ) -> Result<Vec<Result<Answer, pileus_cloud::Error>>, pileus_cloud::Error> {
            self.calls.lock().unwrap().push((purpose, nodes.len()));
            if self.hangs {
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
        Provider {
            name: "model".to_owned(),
            schemes: vec!["model".to_owned()],
            node_labels: Vec::new(),
            largest_lookup_batch: 100,
            service_requirements: pileus_cloud::ServiceRequirements::default(),
            load_balancers: None,
            largest_route_batch: 1,
            routes: None,
            instances,
        }
    }

    struct Running {
        api: Api,
        machines: Arc<Machines>,
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

    /// Starts a controller with so many Nodes, `n0`, `n1` and so on.
    fn start(nodes: usize, answers: usize, machines: Machines) -> Running {
        start_with(200, nodes, answers, machines)
    }

    fn start_with(status: u16, nodes: usize, answers: usize, machines: Machines) -> Running {
        let nodes = Arc::new((0..nodes).map(|n| node(&format!("n{n}"))).collect());
        let api = Api { status, nodes, writes: Arc::default(), answers: Arc::new(Semaphore::new(answers)) };
        let client = kube::Client::new(api.clone(), "default");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let machines = Arc::new(machines);
        let provider = provider(Some(Arc::clone(&machines) as Arc<dyn Instances>));
        let nodes = Nodes::new(client.clone(), metrics.clone(), &Health::default());
        let (events, _) = Events::start(client, "test", "test", metrics.clone());
        let controller =
            Controller::new(nodes.clone(), provider, events, metrics, Settings::default()).unwrap();
        let stop = CancellationToken::new();
        let watching = stop.clone();
        tokio::spawn(async move { nodes.watch(watching).await });
        let controller = tokio::spawn(controller.run(stop.clone()));
        Running { api, machines, stop, controller, metrics: registry }
    }

    /// Time in which everything that can happen without time happens.
    async fn a_moment() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn machines(state: fn(Purpose, &str) -> Option<InstanceState>) -> Machines {
        Machines { calls: Mutex::default(), state, hangs: false }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_asks_for_all_together_and_directly_only_for_what_a_list_lacks() {
        // A list lacks n1, n11 and n111, of which n11 is there.
        let running = start(
            250,
            1000,
            machines(|purpose, name| match (purpose, name) {
                (_, "n1" | "n111") | (Purpose::Refresh, "n11") => None,
                _ => Some(InstanceState::Running),
            }),
        );
        a_moment().await;
        let calls = running.machines.calls.lock().unwrap().clone();
        let list = |count| (Purpose::Refresh, count);
        assert_eq!(calls, [list(100), list(100), list(50), (Purpose::Confirm, 3)]);
        let deleted = running.api.written(&Method::DELETE);
        assert_eq!(deleted.len(), 2);
        assert_eq!(deleted[0].0, "/api/v1/nodes/n1");
        assert_eq!(deleted[0].1["preconditions"], json!({"uid": "uid-n1", "resourceVersion": "7"}));
        assert_eq!(running.api.told(), [("DeletingNode".to_owned(), 2)].into());
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
        assert_eq!(running.machines.calls.lock().unwrap().len(), 8, "the next pass asks as much");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_fails_is_told_of_unless_somebody_else_was_faster() {
        for (status, result, is_told) in [
            (403, "refused", true),
            (404, "gone", false),
            (409, "conflict", false),
            (500, "unavailable", true),
        ] {
            let running = start_with(status, 1, 1, machines(|_, _| None));
            a_moment().await;
            let mut told = BTreeMap::from([("DeletingNode".to_owned(), 1)]);
            told.extend(is_told.then(|| ("DeletingNodeFailed".to_owned(), 1)));
            assert_eq!(running.api.told(), told, "{status}");
            let metrics = running.metrics();
            let line = format!("pileus_node_lifecycle_deletions_total{{result=\"{result}\"}} 1");
            assert!(metrics.contains(&line), "{line} is not in {metrics}");
            running.stop.cancel();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_may_not_be_changed_is_tried_each_minute() {
        for (status, machines, confirms) in [
            (403, machines(|_, _| None), 3),
            (403, machines(|_, _| Some(InstanceState::Stopped)), 0),
            (200, machines(|_, _| Some(InstanceState::Stopped)), 0), // and changed back at once, as none here ever changes
        ] {
            let running = start_with(status, 1, 1000, machines);
            tokio::time::sleep(Duration::from_secs(125)).await;
            let tries =
                running.api.written(&Method::DELETE).len() + running.api.written(&Method::PATCH).len();
            let calls = running.machines.calls.lock().unwrap().clone();
            let direct = calls.iter().filter(|(purpose, _)| *purpose == Purpose::Confirm).count();
            assert_eq!((tries, direct, calls.len()), (3, confirms, 3 + confirms), "{calls:?}");
            running.stop.cancel();
        }
    }

    #[test]
    fn a_machine_that_is_gone_counts_for_the_breaker_whatever_became_of_its_node() {
        let deleted: Vec<_> = (0..4).map(|n| Arc::new(NodeFacts::registered(&n.to_string()))).collect();
        for (written, is_released, gone) in [
            (Ok(()), false, 4),
            (Ok(()), true, 0),
            (Err(Error::Unavailable("no answer".to_owned())), false, 4),
            (Err(Error::Gone), false, 4), // by a try whose answer got lost
            (Err(Error::Conflict), false, 0),
            (Err(Error::Refused("no right".to_owned())), false, 4),
        ] {
            let judge = Judge::new(provider(None), false);
            let mut memory = Memory { judge, started: Instant::now(), failures: 0 };
            for node in &deleted {
                let action = Action { node: Arc::clone(node), write: Write::Delete { is_released } };
                memory.wrote(&action, &written);
            }
            let verdict = memory.judge.plan(&[], &Findings::default(), memory.now()).verdict;
            assert_eq!(verdict.gone, gone, "{written:?} {is_released}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn when_too_many_are_gone_their_nodes_are_held_and_told_of() {
        let running = start(
            40,
            1000,
            machines(|_, name| (!name.ends_with(['1', '2', '3'])).then_some(InstanceState::Running)),
        );
        a_moment().await;
        assert_eq!(running.api.written(&Method::DELETE), []);
        let held = running.api.written(&Method::PATCH);
        assert_eq!(held.len(), 12);
        assert_eq!(held[0].0, "/api/v1/nodes/n1/status");
        assert_eq!(held[0].1["status"]["conditions"][0]["type"], "pileus.dev/MachineAbsent");
        assert_eq!(running.api.told(), [("DeletionHeld".to_owned(), 12)].into());
        let metrics = running.metrics();
        for line in ["pileus_node_lifecycle_held 12", "pileus_node_lifecycle_breaker_open 1"] {
            assert!(metrics.contains(line), "{line} is not in {metrics}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn once_told_to_stop_no_write_begins_and_those_under_way_are_awaited() {
        let running = start(40, 0, machines(|_, _| Some(InstanceState::Stopped)));
        a_moment().await;
        assert_eq!(running.api.written(&Method::PATCH).len(), WRITERS);
        running.stop.cancel();
        a_moment().await;
        assert!(!running.controller.is_finished(), "waits for the answers");
        running.api.answers.add_permits(1000);
        running.controller.await.unwrap();
        assert_eq!(running.api.written(&Method::PATCH).len(), WRITERS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_never_answered_keeps_nobody_longer_than_the_drain() {
        let running = start(40, 0, machines(|_, _| Some(InstanceState::Stopped)));
        a_moment().await;
        running.stop.cancel();
        let stopped = Instant::now();
        running.controller.await.unwrap();
        assert_eq!(stopped.elapsed(), DRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_hangs_does_not_keep_it_from_stopping() {
        let running = start(1, 0, Machines { hangs: true, ..machines(|_, _| None) });
        a_moment().await;
        assert_eq!(running.machines.calls.lock().unwrap().len(), 1);
        running.stop.cancel();
        running.controller.await.unwrap();
    }
}
