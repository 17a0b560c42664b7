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
use crate::api_server::{ApiServer, Backup, history};
use crate::health::Health;
use crate::informer::StoreHistory;
use crate::model::{self, Random, uid};
use crate::scenarios::StoredNode;
use crate::services::ServiceWatches;

/// How long a call takes unless something else is planned.
const LATENCY: Duration = Duration::from_millis(20);
const ID: &str = "example.com/id";
const AUDIT: Duration = Duration::from_mins(30);
const SECOND: Duration = Duration::from_secs(1);

/// The planned course of a call about a Service.
#[derive(Clone)]
enum Planned {
    Takes(Duration),
    InProgress(&'static str),
    /// It goes on, and the ingress works already. The cluster's own address is among it.
    Works,
    Fails(ErrorKind),
    /// It takes effect, and the answer gets lost.
    LosesAnswer,
    FailsAsAWhole,
    HasNoOutcome,
    Panics,
    NeverAnswers,
}

/// A cloud, with planned courses of the next calls by the Service's name.
#[derive(Clone, Default)]
struct Cloud(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The Nodes behind each load balancer, by the Service's UID.
    behind: BTreeMap<String, Vec<String>>,
    /// The calls, one string each.
    calls: Vec<String>,
    planned: BTreeMap<String, Vec<Planned>>,
    /// The UIDs of the Services in calls in flight.
    in_flight: Vec<String>,
    most_calls: usize,
    calls_now: usize,
    /// A Service to create in the API server while a list is in flight.
    created_during_list: Option<(ApiServer, Value)>,
}

impl Cloud {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// Plans the next calls about this Service, in this order.
    fn plan(&self, name: &str, planned: &[Planned]) {
        self.state().planned.insert(name.to_owned(), planned.iter().rev().cloned().collect());
    }

    fn behind(&self, name: &str) -> Option<Vec<String>> {
        self.state().behind.get(&uid(name)).cloned()
    }

    fn apply(&self, change: &ServiceChange, nodes: &[String]) -> ServiceProgress {
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
        ServiceProgress::done(status)
    }
}

fn ingress() -> Ingress {
    let point = IngressPoint::Ip("192.0.2.1".to_owned());
    Ingress { point, ip_mode: Some(IpMode::Vip), ports: Vec::new() }
}

fn describe(change: &ServiceChange) -> (String, String) {
    let (verb, name, uid) = match &change.action {
        ServiceAction::Ensure(service) => ("ensure", &service.name, &service.uid),
        ServiceAction::UpdateTargets(service) => ("update", &service.name, &service.uid),
        ServiceAction::Delete(service) => ("delete", &service.name, &service.uid),
        ServiceAction::RemoveOrphan(owned) => ("remove", &owned.name, owned.service_uid.as_ref().unwrap()),
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
        let (lines, uids): (Vec<_>, Vec<_>) = call.changes.iter().map(describe).unzip();
        let names: Vec<_> = lines.iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
        let planned: Vec<_> = {
            let mut state = self.state();
            let audit = if call.is_audit { "audit: " } else { "" };
            state.calls.push(format!("{audit}{}", lines.join(", ")));
            assert!(
                uids.iter().all(|uid| !state.in_flight.contains(uid)),
                "{uids:?} are in two calls at once"
            );
            state.in_flight.extend(uids.iter().cloned());
            state.calls_now += 1;
            state.most_calls = state.most_calls.max(state.calls_now);
            names.iter().map(|name| state.planned.get_mut(name).and_then(Vec::pop)).collect()
        };
        let takes = planned.iter().flatten().map(|planned| match planned {
            Planned::Takes(time) => *time,
            Planned::NeverAnswers => Duration::MAX,
            _ => LATENCY,
        });
        let takes = takes.max().unwrap_or(LATENCY);
        // A slow call has the effect that was decided on at its start.
        let end = CallEnd(self.clone(), uids);
        tokio::time::sleep(takes).await;
        drop(end);
        let outcome = |(change, planned): (&ServiceChange, &Option<Planned>)| match planned {
            Some(Planned::Panics) => panic!("the host is broken"),
            Some(Planned::FailsAsAWhole) => {
                Err(Err(CloudError::new(ErrorKind::Unavailable(None), "all down")))
            }
            Some(Planned::LosesAnswer) => {
                self.apply(change, &nodes);
                Ok(Err(CloudError::new(ErrorKind::Unavailable(None), "no answer")))
            }
            Some(Planned::HasNoOutcome) => Err(Ok(Vec::new())),
            Some(Planned::Fails(kind)) => Ok(Err(CloudError::new(*kind, "it is locked"))),
            Some(Planned::InProgress(note)) => {
                Ok(Ok(ServiceProgress::in_progress(SECOND * 5, Some((*note).to_owned()))))
            }
            Some(Planned::Works) => {
                let own = Ingress { point: IngressPoint::Ip("10.96.0.1".to_owned()), ..ingress() };
                let annotation = |key: &str| (key.to_owned(), Some("7".to_owned()));
                Ok(Ok(ServiceProgress::InProgress {
                    after: SECOND * 5,
                    resume: None,
                    status: Some(vec![own, ingress()]),
                    notices: Vec::new(),
                    annotations: [ID, "example.com/other"].map(annotation).to_vec(),
                }))
            }
            _ => Ok(Ok(self.apply(change, &nodes))),
        };
        call.changes.iter().zip(&planned).map(outcome).collect::<Result<Vec<_>, _>>().or_else(|whole| whole)
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, CloudError> {
        tokio::time::sleep(LATENCY).await;
        let mut state = self.state();
        state.calls.push("list".to_owned());
        if let Some((api, service)) = state.created_during_list.take() {
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

/// Notes the end of a call, also where the call is dropped.
struct CallEnd(Cloud, Vec<String>);

impl Drop for CallEnd {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls_now -= 1;
        state.in_flight.retain(|uid| !self.1.contains(uid));
    }
}

struct TestCluster {
    api: ApiServer,
    cloud: Cloud,
    history: StoreHistory,
    stop: CancellationToken,
}

impl TestCluster {
    /// A cluster with a Node.
    fn new() -> Self {
        let cluster = Self {
            api: ApiServer::new(),
            cloud: Cloud::default(),
            history: history(),
            stop: CancellationToken::new(),
        };
        cluster.join("a");
        cluster.set_uid("cluster");
        cluster
    }

    fn start(&self) -> tokio::task::JoinHandle<()> {
        let requirements = ServiceRequirements {
            largest_batch: 1000,
            allows_concurrent_calls: true,
            wants_namespace_labels: true,
            takes_missing_node_ports: true,
            written_annotations: vec![ID.to_owned()],
            ..ServiceRequirements::default()
        };
        let (metrics, health) = (Metrics::register(&mut Registry::default()), Health::default());
        let nodes = Nodes::new(self.api.client(), metrics.clone(), &health, &self.history);
        nodes.set_claims(model::claims());
        let watches = ServiceWatches::new(self.api.client(), &metrics, &self.history);
        let services = Services::new(&watches, metrics.clone(), &health, &requirements);
        let (events, _) = Events::start(self.api.client(), "service-controller", "test", metrics.clone());
        let provider = Provider {
            name: "test".to_owned(),
            service_requirements: requirements,
            load_balancers: Some(Arc::new(self.cloud.clone())),
            ..model::provider("fake")
        };
        let settings = Settings {
            cluster: Cluster { name: "test".to_owned(), uid: Some("cluster".to_owned()) },
            classes: Vec::new(),
            is_default: true,
            marks_services: false,
            audit_period: AUDIT,
            calls: 4,
        };
        let (of_nodes, of_services) = (nodes.clone(), services.clone());
        let (stop, stopped) = (self.stop.clone(), self.stop.clone());
        tokio::spawn(async move { of_nodes.watch(stop).await });
        tokio::spawn(async move { watches.run(stopped).await });
        tokio::spawn(async move { of_services.join_watches().await });
        let addresses = ClusterAddresses::new(nodes.clone(), Some(services.clone()), []);
        let deps = ControllerDeps { nodes, addresses, provider, events, metrics, jitter: || 0.0 };
        let controller = Controller::new(deps, services, settings).unwrap();
        tokio::spawn(controller.run(self.stop.clone()))
    }

    fn join(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}")},
            "spec": {"taints": null, "providerID": format!("fake://{name}")},
        });
        self.api.put(&StoredNode::registered(&node));
    }

    fn set_uid(&self, uid: &str) {
        self.api.store("namespaces", json!({"metadata": {"name": "kube-system", "uid": uid}}));
    }

    fn create(&self, name: &str) {
        self.api.store("services", service(name));
    }

    /// Waits, and returns the calls since the last time.
    async fn calls_during(&self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        self.cloud.calls()
    }

    fn address(&self, name: &str) -> Option<String> {
        let service = self.api.service(&format!("shop/{name}"))?;
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    }
}

/// Random actions of users, a cloud and an API server, with leaders that are killed and others that are stopped.
#[tokio::test(start_paused = true)]
async fn after_random_events_the_cloud_has_what_the_cluster_asks_for() {
    for seed in 0..8 {
        let mut cluster = TestCluster::new();
        let mut running = cluster.start();
        let mut random = Random(seed);
        for step in 0..60 {
            if random.percent(8) {
                if random.percent(50) {
                    running.abort();
                }
                cluster.stop.cancel();
                drop(running.await);
                cluster.stop = CancellationToken::new();
                running = cluster.start();
            }
            cluster.change_something(&mut random, step);
            tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
        }
        cluster.cloud.state().planned.clear();
        // Longer than any delay, and shorter than the time to an audit.
        tokio::time::sleep(AUDIT / 3).await;
        cluster.assert_cloud_matches_cluster(seed);
        cluster.api.writes();
        tokio::time::sleep(AUDIT * 2).await;
        assert_eq!(cluster.api.writes(), Vec::<String>::new(), "seed {seed}");
        cluster.stop.cancel();
    }
}

/// Watches are silent after the API server's store went back, and nothing else says that the store did.
#[tokio::test(start_paused = true)]
async fn after_a_restored_backup_all_is_listed_again_and_nothing_is_deleted() {
    all_is_listed_again_and_nothing_is_deleted_after(ApiServer::restore).await;
}

/// Watches are begun again as after any interruption.
#[tokio::test(start_paused = true)]
async fn a_backup_that_is_restored_with_raised_versions_deletes_nothing_either() {
    all_is_listed_again_and_nothing_is_deleted_after(ApiServer::restore_raised).await;
}

async fn all_is_listed_again_and_nothing_is_deleted_after(restore: fn(&ApiServer, Backup)) {
    let mut cluster = TestCluster { history: StoreHistory::default(), ..TestCluster::new() };
    cluster.create("old");
    let running = cluster.start();
    cluster.calls_during(SECOND * 10).await;
    let backup = cluster.api.back_up();
    for name in ["new", "newer"] {
        cluster.create(name);
    }
    cluster.join("b");
    for port in 1..50 {
        cluster.api.change(
            "services",
            "shop/old",
            &json!({"spec": {"ports": [{"port": port, "nodePort": 30080}]}}),
        );
    }
    cluster.calls_during(SECOND * 60).await;
    assert!(cluster.address("new").is_some());

    restore(&cluster.api, backup);
    let changed = json!({"spec": {"ports": [{"port": 8443, "nodePort": 30080}]}});
    cluster.api.change("services", "shop/old", &changed);
    let calls = cluster.calls_during(SECOND * 30).await;
    assert!(calls.iter().any(|call| call.contains("ensure old")), "{calls:?}");
    let calls = [calls, cluster.calls_during(AUDIT * 3).await].concat();
    assert!(!calls.iter().any(|call| call.contains("remove") || call.contains("delete")), "{calls:?}");
    assert!(cluster.cloud.behind("new").is_some() && cluster.cloud.behind("newer").is_some());

    // The watch works again, and after a restart the usual evidence is enough.
    cluster.create("next");
    assert!(cluster.calls_during(SECOND * 10).await.contains(&"ensure next".to_owned()));
    cluster.stop.cancel();
    drop(running.await);
    cluster.stop = CancellationToken::new();
    cluster.history = StoreHistory::default();
    let _running = cluster.start();
    cluster.calls_during(SECOND * 30).await;
    assert!(cluster.cloud.behind("new").is_none() && cluster.cloud.behind("old").is_some());
}

impl TestCluster {
    fn change_something(&self, random: &mut Random, step: u64) {
        let name = format!("s{}", random.below(4));
        let key = format!("shop/{name}");
        let Some(there) = self.api.service(&key) else {
            let mut service = service(&name);
            service["metadata"]["uid"] = json!(uid(&step.to_string()));
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
                    Planned::Takes(takes),
                    Planned::InProgress("note"),
                    Planned::Fails(ErrorKind::Conflict(None)),
                    Planned::Fails(ErrorKind::Throttled(Some(SECOND))),
                    Planned::LosesAnswer,
                    Planned::FailsAsAWhole,
                ];
                let planned = (0..3).filter_map(|_| random.pick(&all).cloned());
                self.cloud.plan(&name, &planned.collect::<Vec<_>>());
            }
        }
    }

    fn assert_cloud_matches_cluster(&self, seed: u64) {
        let nodes: Vec<_> =
            ["a", "n0", "n1", "n2"].into_iter().filter(|name| self.api.has_node(name)).collect();
        let mut wanted = BTreeMap::new();
        for name in (0..4).map(|number| format!("s{number}")) {
            let Some(service) = self.api.service(&format!("shop/{name}")) else { continue };
            let metadata = &service["metadata"];
            assert!(metadata["deletionTimestamp"].is_null(), "seed {seed}: {name} is not deleted");
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
        "metadata": {"namespace": "shop", "name": name, "uid": uid(name)},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
    })
}

const ADDRESS: Option<&str> = Some("192.0.2.1");

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_address_and_leaves_nothing_behind() {
    let cluster = TestCluster::new();
    cluster.start();
    assert_eq!(cluster.calls_during(SECOND * 2).await, ["list"]);
    cluster.create("web");
    assert_eq!(cluster.calls_during(SECOND * 2).await, ["ensure web"]);
    assert_eq!(cluster.address("web").as_deref(), ADDRESS);
    assert_eq!(cluster.api.writes(), ["PATCH shop/web/status"; 2], "the finalizer and the status");
    assert_eq!(cluster.api.events(), ["EnsuringLoadBalancer web", "EnsuredLoadBalancer web"]);
    // Until the audit, which finds all as it was.
    assert_eq!(cluster.calls_during(AUDIT.saturating_sub(SECOND * 10)).await, Vec::<String>::new());
    assert_eq!(cluster.calls_during(SECOND * 20).await, ["list", "audit: ensure web"]);
    assert_eq!(cluster.api.lists().iter().filter(|of| **of == "services").count(), 1, "at the start");
    cluster.api.delete("services", "shop/web");
    assert_eq!(cluster.calls_during(SECOND * 2).await, ["delete web"]);
    assert_eq!(cluster.api.service("shop/web"), None);
    assert_eq!(cluster.api.writes(), ["PATCH shop/web/status"]);
    assert_eq!(cluster.api.events(), ["DeletingLoadBalancer web", "DeletedLoadBalancer web"]);
    assert_eq!(cluster.cloud.behind("web"), None);
    assert_eq!(cluster.calls_during(AUDIT * 2).await, ["list", "list"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_delays_no_other_service() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.cloud.plan("slow", &[Planned::Takes(SECOND * 60)]);
    cluster.create("slow");
    cluster.calls_during(SECOND * 2).await;
    for name in ["one", "two"] {
        cluster.create(name);
        assert_eq!(cluster.calls_during(SECOND * 2).await, [format!("ensure {name}")]);
        assert_eq!(cluster.address(name).as_deref(), ADDRESS);
    }
    assert_eq!((cluster.address("slow"), cluster.cloud.state().most_calls), (None, 2));
    cluster.calls_during(SECOND * 60).await;
    assert_eq!(cluster.address("slow").as_deref(), ADDRESS);
}

/// In upstream's S47 a slow pass over all Services continues with the Nodes of its start.
#[tokio::test(start_paused = true)]
async fn a_slow_call_never_replaces_newer_nodes() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.create("web");
    cluster.create("db");
    cluster.calls_during(SECOND * 3).await;
    cluster.cloud.plan("web", &[Planned::Takes(SECOND * 30)]);
    cluster.join("b");
    assert_eq!(cluster.calls_during(SECOND * 5).await, ["update db, update web"]);
    cluster.join("c");
    let change = json!({"spec": {"ports": [{"port": 443, "nodePort": 30443}]}});
    cluster.api.change("services", "shop/db", &change);
    cluster.calls_during(SECOND * 60).await;
    for name in ["web", "db"] {
        assert_eq!(cluster.cloud.behind(name).unwrap(), ["a", "b", "c"], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_status_is_written_again_without_a_call() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.create("web");
    cluster.calls_during(SECOND * 10).await;
    cluster.api.change("services", "shop/web", &json!({"status": null}));
    assert_eq!(cluster.calls_during(SECOND * 10).await, Vec::<String>::new());
    assert_eq!(cluster.address("web").as_deref(), ADDRESS);
}

#[tokio::test(start_paused = true)]
async fn after_any_kind_of_failure_the_service_is_retried_and_others_are_served() {
    for (name, planned, within) in [
        ("it fails as a whole", Planned::FailsAsAWhole, SECOND * 10),
        ("it has no outcome for the change", Planned::HasNoOutcome, SECOND * 120),
        ("it panics", Planned::Panics, SECOND * 120),
        (
            "it never answers",
            Planned::NeverAnswers,
            ServiceRequirements::default().longest_call + SECOND * 120,
        ),
        ("its change fails", Planned::Fails(ErrorKind::Unavailable(None)), SECOND * 10),
    ] {
        let cluster = TestCluster::new();
        cluster.start();
        cluster.cloud.plan("web", &[planned]);
        cluster.create("web");
        cluster.calls_during(SECOND / 2).await;
        assert_eq!(cluster.address("web"), None, "{name}");
        cluster.create("db");
        cluster.calls_during(SECOND * 2).await;
        assert_eq!(cluster.address("db").as_deref(), ADDRESS, "{name}");
        cluster.calls_during(within).await;
        assert_eq!(cluster.address("web").as_deref(), ADDRESS, "{name}");
        assert!(cluster.api.events().contains(&"SyncLoadBalancerFailed web".to_owned()), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_progress_is_polled_with_its_note() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.cloud.plan("web", &[Planned::InProgress("operation 7"), Planned::InProgress("operation 8")]);
    cluster.create("web");
    assert_eq!(cluster.calls_during(SECOND * 4).await, ["list", "ensure web"]);
    assert_eq!(cluster.api.events(), ["EnsuringLoadBalancer web", "LoadBalancerPending web"]);
    assert_eq!(cluster.calls_during(SECOND * 4).await, ["ensure web operation 7"]);
    assert_eq!(cluster.address("web"), None);
    assert_eq!(cluster.calls_during(SECOND * 5).await, ["ensure web operation 8"]);
    assert_eq!(cluster.address("web").as_deref(), ADDRESS);
    assert_eq!(cluster.api.events(), ["EnsuredLoadBalancer web"], "pending is reported once");
}

#[tokio::test(start_paused = true)]
async fn ingress_and_annotations_reach_the_service_while_the_change_goes_on() {
    let cluster = TestCluster::new();
    // Its ClusterIP is no address of a load balancer.
    let mut other = service("other");
    other["spec"] = json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    cluster.api.store("services", other);
    cluster.cloud.plan("web", &[Planned::Works]);
    cluster.start();
    cluster.create("web");
    assert_eq!(cluster.calls_during(SECOND * 3).await, ["list", "ensure web"]);
    let web = cluster.api.service("shop/web").unwrap();
    assert_eq!(web["metadata"]["annotations"], json!({ID: "7"}));
    assert_eq!(web["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
    let events = cluster.api.events();
    assert_eq!(events, ["EnsuringLoadBalancer web", "LoadBalancerWarning web", "LoadBalancerPending web"]);
    assert_eq!(cluster.api.writes().len(), 3, "the finalizer, the annotation and the status");
    assert_eq!(cluster.calls_during(SECOND * 5).await, ["ensure web"]);
    assert_eq!(cluster.api.events(), ["EnsuredLoadBalancer web"]);
    assert_eq!(cluster.api.writes(), Vec::<String>::new(), "the status is the same");
}

#[tokio::test(start_paused = true)]
async fn orphans_are_removed_and_a_new_service_does_not_count_as_gone() {
    let cluster = TestCluster::new();
    cluster.cloud.state().behind.insert(uid("gone"), Vec::new());
    cluster.cloud.state().behind.insert(uid("young"), Vec::new());
    cluster.cloud.state().created_during_list = Some((cluster.api.clone(), service("young")));
    cluster.start();
    assert_eq!(
        cluster.calls_during(SECOND * 10).await,
        ["list", "ensure young", &format!("remove lb-{}", uid("gone"))]
    );
    assert_eq!(cluster.cloud.state().behind.keys().collect::<Vec<_>>(), [&uid("young")]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changed_its_type_before_the_start_is_cleaned_up() {
    let cluster = TestCluster::new();
    let mut turned = service("web");
    turned["spec"]["type"] = json!("ClusterIP");
    cluster.api.store("services", turned);
    cluster.cloud.state().behind.insert(uid("web"), Vec::new());
    cluster.start();
    assert_eq!(cluster.calls_during(SECOND * 10).await, ["list", "delete web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_loses_its_finalizer_before_its_deletion_began_is_cleaned_up() {
    let cluster = TestCluster::new();
    let mut turned = service("web");
    turned["spec"]["type"] = json!("ClusterIP");
    turned["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    cluster.api.store("services", turned);
    cluster.cloud.state().behind.insert(uid("web"), Vec::new());
    cluster.start();
    // The Service is known by now, and the list isn't finished.
    tokio::time::sleep(LATENCY).await;
    cluster.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
    assert_eq!(cluster.calls_during(SECOND * 10).await, ["list", "delete web"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_went_without_its_finalizer_leaves_nothing_behind() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.create("web");
    cluster.calls_during(SECOND * 10).await;
    cluster.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
    cluster.api.delete("services", "shop/web");
    assert_eq!(cluster.calls_during(SECOND * 10).await, ["delete web"]);
}

#[tokio::test(start_paused = true)]
async fn the_watch_alone_deletes_no_load_balancer() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.create("web");
    cluster.calls_during(SECOND * 10).await;
    cluster.api.report_deleted("services", "shop/web");
    assert_eq!(cluster.calls_during(SECOND * 10).await, Vec::<String>::new());
    cluster.api.delete("services", "shop/web");
    assert_eq!(cluster.calls_during(SECOND * 10).await, ["delete web"]);
}

#[tokio::test(start_paused = true)]
async fn with_the_api_server_of_another_cluster_nothing_counts_as_gone() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.create("web");
    cluster.calls_during(SECOND * 10).await;
    cluster.set_uid("other");
    cluster.api.change("services", "shop/web", &json!({"metadata": {"finalizers": null}}));
    cluster.api.delete("services", "shop/web");
    let asked = cluster.calls_during(AUDIT * 2).await;
    assert!(asked.iter().all(|call| ["list", "audit: ensure web"].contains(&&**call)), "{asked:?}");
    assert!(cluster.cloud.behind("web").is_some());
    cluster.set_uid("cluster");
    assert!(cluster.calls_during(SECOND * 100).await.contains(&"delete web".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_a_service_is_retried() {
    let cluster = TestCluster::new();
    let mut turned = service("web");
    turned["spec"]["type"] = json!("ClusterIP");
    cluster.api.store("services", turned);
    cluster.cloud.state().behind.insert(uid("web"), Vec::new());
    cluster.api.fail_reads("services", 3);
    cluster.start();
    assert_eq!(cluster.calls_during(SECOND / 2).await, ["list"]);
    assert_eq!(cluster.calls_during(SECOND * 10).await, ["delete web"]);
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_retried() {
    let cluster = TestCluster::new();
    cluster.start();
    cluster.api.refuse(&[403, 503, 409, 429]);
    cluster.create("web");
    cluster.calls_during(SECOND * 20).await;
    assert_eq!(cluster.address("web").as_deref(), ADDRESS);
    cluster.api.refuse(&[500]);
    cluster.api.delete("services", "shop/web");
    cluster.calls_during(SECOND * 20).await;
    assert_eq!(cluster.api.service("shop/web"), None);
}

#[tokio::test(start_paused = true)]
async fn an_admission_policy_that_undoes_writes_causes_no_write_storm() {
    for policy in [json!({"status": null}), json!({"metadata": {"finalizers": null}})] {
        let cluster = TestCluster::new();
        cluster.api.enforce(policy.clone());
        cluster.create("web");
        cluster.start();
        cluster.calls_during(SECOND * 600).await;
        let writes = cluster.api.writes().len();
        assert!((5..=12).contains(&writes), "{policy}: {writes}");
        assert!(cluster.api.events().contains(&"SyncLoadBalancerFailed web".to_owned()), "{policy}");
        assert!(cluster.api.notes().iter().any(|note| note.contains("look for an admission policy")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_namespace_labels_ensures_the_load_balancer() {
    let cluster = TestCluster::new();
    let namespace = |tier| json!({"metadata": {"name": "shop", "uid": "shop", "labels": {"tier": tier}}});
    cluster.api.store("namespaces", namespace("gold"));
    cluster.create("web");
    cluster.start();
    cluster.calls_during(SECOND * 10).await;
    cluster.api.store("namespaces", namespace("tin"));
    assert_eq!(cluster.calls_during(SECOND * 2).await, ["ensure web"]);
    cluster.api.store("namespaces", json!({"metadata": {"name": "other", "uid": "other"}}));
    assert_eq!(cluster.calls_during(SECOND * 2).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_stop_begins_no_work_and_awaits_the_writes_in_flight() {
    let cluster = TestCluster::new();
    let running = cluster.start();
    cluster.calls_during(SECOND * 2).await;
    for number in 0..20 {
        cluster.create(&format!("s{number:02}"));
    }
    // A write takes 5 ms.
    cluster.calls_during(Duration::from_millis(2)).await;
    cluster.stop.cancel();
    running.await.unwrap();
    assert_eq!(cluster.api.writes().len(), CONCURRENT_WRITES);
    assert_eq!(cluster.calls_during(SECOND * 10).await, Vec::<String>::new());
}
