//! Two providers in one cluster: all controllers of both, an API server in memory, and a cloud for each. What is tested is
//! that neither provider sees or changes anything of the other.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pileus_cloud::{
    Address, AddressKind, Answer, Cluster, Error, Ingress, IngressPoint, Instance, InstanceState, Instances,
    IpMode, ListedRoute, LoadBalancers, NodeReference, OwnedLoadBalancer, Provider, ProviderId, Purpose,
    RouteAction, RouteChange, RouteProgress, Routes, ServiceAction, ServiceCall, ServiceProgress,
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Claim, Claims};
use crate::api_server::{ApiServer, history};
use crate::cluster_addresses::ClusterAddresses;
use crate::deps::ControllerDeps;
use crate::events::Events;
use crate::facts::service::NodeSelector;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::model::{self, instance, uid};
use crate::nodes::Nodes;
use crate::scenarios::StoredNode;
use crate::services::{ServiceWatches, Services};
use crate::{node, node_lifecycle, route, service};

const SECOND: Duration = Duration::from_secs(1);
const AUDIT: Duration = Duration::from_mins(30);

/// The cloud of one provider. Clones share it.
#[derive(Clone)]
struct Cloud {
    /// The provider's name and its scheme.
    provider: &'static str,
    state: Arc<Mutex<CloudState>>,
}

#[derive(Default)]
struct CloudState {
    /// The Nodes that any call was about.
    nodes: BTreeSet<String>,
    /// The Nodes whose instances are gone.
    gone: BTreeSet<String>,
    /// The Nodes that the cloud has never had an instance for.
    unknown: BTreeSet<String>,
    /// The targets of each load balancer, by the Service's name.
    balancers: BTreeMap<String, Vec<String>>,
    routes: Vec<ListedRoute>,
}

impl Cloud {
    fn new(provider: &'static str) -> Self {
        Self { provider, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, CloudState> {
        self.state.lock().unwrap()
    }

    /// The Services with a load balancer.
    fn balanced(&self) -> Vec<String> {
        self.state().balancers.keys().cloned().collect()
    }

    fn instance_of(&self, node: &NodeReference) -> Instance {
        let own = format!("{}://{}", self.provider, node.name);
        let id = node.provider_id.as_ref().map_or(own, ToString::to_string);
        let address =
            node.name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let address = IpAddr::from((0x0a00_0000 | (address & 0xff_ffff)).to_be_bytes()).to_string();
        Instance {
            addresses: vec![Address::new(AddressKind::InternalIp, address)],
            ..instance(&id, InstanceState::Running)
        }
    }

    fn ingress(&self) -> Ingress {
        let ip = if self.provider == "a" { "192.0.2.1" } else { "192.0.2.2" };
        Ingress { point: IngressPoint::Ip(ip.to_owned()), ip_mode: Some(IpMode::Vip), ports: Vec::new() }
    }
}

#[async_trait]
impl Instances for Cloud {
    async fn lookup(&self, _: Purpose, nodes: &[NodeReference]) -> Result<Vec<Result<Answer, Error>>, Error> {
        tokio::time::sleep(SECOND / 50).await;
        let mut state = self.state();
        state.nodes.extend(nodes.iter().map(|node| node.name.clone()));
        let answer = |node: &NodeReference| {
            if state.gone.contains(&node.name) || state.unknown.contains(&node.name) {
                return Ok(Answer::Absent);
            }
            Ok(Answer::Found(self.instance_of(node)))
        };
        Ok(nodes.iter().map(answer).collect())
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn change(&self, call: ServiceCall<'_>) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
        tokio::time::sleep(SECOND / 50).await;
        let mut state = self.state();
        let targets: Vec<_> = call.targets.iter().map(|target| target.node.clone()).collect();
        state.nodes.extend(targets.clone());
        let mut change = |action: &ServiceAction| match action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                state.balancers.insert(service.name.clone(), targets.clone());
                vec![self.ingress()]
            }
            ServiceAction::Delete(service) => {
                state.balancers.remove(&service.name);
                Vec::new()
            }
            ServiceAction::RemoveOrphan(owned) => {
                state.balancers.remove(&owned.name);
                Vec::new()
            }
        };
        Ok(call.changes.iter().map(|it| Ok(ServiceProgress::done(change(&it.action)))).collect())
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        tokio::time::sleep(SECOND / 50).await;
        let owned = |name: &String| OwnedLoadBalancer {
            cluster_uid: cluster.uid.clone(),
            service_uid: Some(uid(name)),
            service: None,
            name: name.clone(),
            extra: Vec::new(),
        };
        Ok(self.state().balancers.keys().map(owned).collect())
    }
}

#[async_trait]
impl Routes for Cloud {
    async fn list(&self, _: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        Ok(self.state().routes.clone())
    }

    async fn change(
        &self,
        _: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<Result<RouteProgress, Error>>, Error> {
        let mut state = self.state();
        for RouteChange { action, .. } in changes {
            match action {
                RouteAction::Delete(route) => state.routes.retain(|there| there != route),
                RouteAction::Create(route) => {
                    state.nodes.insert(route.node.clone());
                    state.routes.push(ListedRoute {
                        name: route.name_hint.clone(),
                        node: None,
                        target: None,
                        addresses: route.addresses.clone(),
                        destination: route.destination.to_string(),
                        cluster_uid: None,
                        is_blackhole: false,
                        extra: Vec::new(),
                    });
                }
            }
        }
        Ok(changes.iter().map(|_| Ok(RouteProgress::Done)).collect())
    }
}

/// A cluster with two providers, `a` and `b`.
struct Setup {
    api: ApiServer,
    nodes: Nodes,
    services: ServiceWatches,
    a: Cloud,
    b: Cloud,
    registry: Registry,
    metrics: Metrics,
    health: Health,
    /// How many Nodes were registered.
    registered: Cell<u8>,
}

/// The running controllers of one provider.
struct Controllers {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Controllers {
    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// The claim of a provider with this selector and this class. With an empty text it has none.
fn claim(name: &str, selector: &str, class: &str, is_default: bool) -> Claim {
    Claim {
        node_selector: NodeSelector::of(selector),
        classes: (!class.is_empty()).then(|| class.to_owned()).into_iter().collect(),
        is_default,
        created_at: Timestamp::UNIX_EPOCH,
        ..Claim::of_only_provider(name, vec![name.to_owned()])
    }
}

fn claims(of: &[Claim]) -> Claims {
    let (claims, overlaps) = Claims::new(of.to_vec());
    assert_eq!(overlaps, []);
    claims
}

impl Setup {
    fn new() -> Self {
        let (api, mut registry, health) = (ApiServer::new(), Registry::default(), Health::default());
        let metrics = Metrics::register(&mut registry);
        let history = history();
        let nodes = Nodes::new(api.client(), metrics.clone(), &health, &history);
        let watched = nodes.clone();
        tokio::spawn(async move { watched.watch(CancellationToken::new()).await });
        let services = ServiceWatches::new(api.client(), &metrics, &history);
        let watched = services.clone();
        tokio::spawn(async move { watched.run(CancellationToken::new()).await });
        api.store("namespaces", json!({"metadata": {"name": "kube-system", "uid": "cluster"}}));
        let (a, b) = (Cloud::new("a"), Cloud::new("b"));
        Self { api, nodes, services, a, b, registry, metrics, health, registered: Cell::default() }
    }

    /// Starts all controllers of a provider with this claim.
    fn start(&self, cloud: &Cloud, claim: &Claim, marks_services: bool) -> Controllers {
        let (client, metrics) = (self.api.client(), self.metrics.of_provider(cloud.provider));
        let provider = Provider {
            name: cloud.provider.to_owned(),
            largest_lookup_batch: 100,
            largest_route_batch: 100,
            instances: Some(Arc::new(cloud.clone())),
            load_balancers: Some(Arc::new(cloud.clone())),
            routes: Some(Arc::new(cloud.clone())),
            ..model::provider(cloud.provider)
        };
        let health = self.health.of_provider(cloud.provider);
        let requirements = &provider.service_requirements;
        let services = Services::new(&self.services, metrics.clone(), &health, requirements);
        let deps = ControllerDeps {
            nodes: self.nodes.clone(),
            addresses: ClusterAddresses::new(self.nodes.clone(), Some(services.clone()), []),
            provider,
            events: Events::start(client, "test", "test", metrics.clone()).0,
            metrics,
            jitter: || 0.0,
        };
        let cluster = Cluster { name: "test".to_owned(), uid: Some("cluster".to_owned()) };
        let of_services = service::Settings {
            cluster: cluster.clone(),
            classes: claim.classes.clone(),
            is_default: claim.is_default,
            marks_services,
            audit_period: AUDIT,
            calls: 4,
        };
        let of_routes = route::Settings {
            cluster,
            cluster_ranges: vec!["10.0.0.0/8".parse().unwrap()],
            nodes_wait: false,
            audit_period: AUDIT,
        };
        let stop = CancellationToken::new();
        let node = node::Controller::new(deps.clone(), node::Settings::default()).unwrap();
        let lifecycle = node_lifecycle::Controller::new(deps.clone(), node_lifecycle::Settings::default());
        let route = route::Controller::new(deps.clone(), of_routes).unwrap();
        let service = service::Controller::new(deps, services.clone(), of_services).unwrap();
        let tasks = vec![
            tokio::spawn(async move { services.join_watches().await }),
            tokio::spawn(node.run(stop.clone())),
            tokio::spawn(lifecycle.unwrap().run(stop.clone())),
            tokio::spawn(route.run(stop.clone())),
            tokio::spawn(service.run(stop.clone())),
        ];
        Controllers { stop, tasks }
    }

    /// Starts both providers with their claims, which mark the Services.
    fn start_both(&self, a: &Claim, b: &Claim) -> [Controllers; 2] {
        self.nodes.set_claims(claims(&[a.clone(), b.clone()]));
        [self.start(&self.a, a, true), self.start(&self.b, b, true)]
    }

    /// Lets a kubelet register a Node with this label `cloud`.
    fn register(&self, name: &str, cloud: &str, change: &Value) {
        let number = self.registered.get();
        self.registered.set(number + 1);
        let range = format!("10.{}.{number}.0/24", if cloud == "b" { 2 } else { 1 });
        let node = json!({
            "metadata": {"name": name, "uid": uid(name), "labels": {"cloud": cloud}},
            "spec": {"podCIDRs": [range]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.api.put(&StoredNode::registered(&node).with(change));
    }

    fn create(&self, name: &str, class: Option<&str>) {
        let spec = json!({
            "type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80, "nodePort": 30080}],
        });
        self.api.store(
            "services",
            json!({"metadata": {"namespace": "shop", "name": name, "uid": uid(name)}, "spec": spec}),
        );
    }

    fn address(&self, service: &str) -> Option<String> {
        let service = self.api.service(&format!("shop/{service}"))?;
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    }

    fn mark(&self, service: &str) -> Option<String> {
        let service = self.api.service(&format!("shop/{service}"))?;
        service["metadata"]["annotations"]["pileus.dev/provider"].as_str().map(str::to_owned)
    }

    fn provider_id(&self, node: &str) -> Option<String> {
        self.api.get(node).facts().provider_id.as_ref().map(ProviderId::to_string)
    }

    fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|shown| shown == line)
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn each_provider_sees_only_its_own_nodes_and_services() {
    let setup = Setup::new();
    setup.register("a-1", "a", &json!({}));
    setup.register("rest", "", &json!({}));
    setup.register("foreign", "", &json!({"spec": {"providerID": "x://foreign"}}));
    let [_a, _b] = setup.start_both(&claim("a", "", "x/a", true), &claim("b", "cloud=b", "x/b", false));
    for (name, class) in
        [("plain", None), ("of-a", Some("x/a")), ("of-b", Some("x/b")), ("other", Some("x/y"))]
    {
        setup.create(name, class);
    }
    after(SECOND * 2).await;
    setup.register("b-1", "b", &json!({}));
    setup.register("b-2", "b", &json!({"spec": {"providerID": "b://given"}}));
    after(AUDIT * 3).await;
    let seen = |cloud: &Cloud| cloud.state().nodes.iter().cloned().collect::<Vec<_>>();
    assert_eq!(seen(&setup.a), names(&["a-1", "rest"]));
    assert_eq!(seen(&setup.b), names(&["b-1", "b-2"]));
    for (node, id) in [
        ("a-1", "a://a-1"),
        ("rest", "a://rest"),
        ("b-1", "b://b-1"),
        ("b-2", "b://given"),
        ("foreign", "x://foreign"),
    ] {
        assert_eq!(setup.provider_id(node).as_deref(), Some(id), "{node}");
        assert_eq!(setup.api.get(node).facts().is_uninitialized(), node == "foreign", "{node}");
    }
    let balanced = |cloud: &Cloud| cloud.state().balancers.clone();
    let behind = |services: &[&str], nodes: &[&str]| {
        services.iter().map(|name| ((*name).to_owned(), names(nodes))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(balanced(&setup.a), behind(&["of-a", "plain"], &["a-1", "rest"]));
    assert_eq!(balanced(&setup.b), behind(&["of-b"], &["b-1", "b-2"]));
    assert_eq!((setup.mark("plain"), setup.mark("of-b")), (Some("a".to_owned()), Some("b".to_owned())));
    assert_eq!(setup.address("other"), None);
    for line in [
        "pileus_node_without_instance{provider=\"a\",cause=\"foreign_provider\"} 1",
        "pileus_node_without_instance{provider=\"b\",cause=\"foreign_provider\"} 0",
        "pileus_service_load_balancers{provider=\"a\",state=\"settled\"} 2",
        "pileus_service_load_balancers{provider=\"b\",state=\"settled\"} 1",
        "pileus_node_waiting{provider=\"a\"} 0",
        "pileus_node_waiting{provider=\"b\"} 0",
    ] {
        assert!(setup.metric(line), "{line}");
    }
    let reports = setup.api.events().into_iter().filter(|event| event == "InstanceNotFound foreign").count();
    assert_eq!(reports, 1, "one provider reports it");
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_one_provider_opens_leaves_the_other_alone() {
    let setup = Setup::new();
    let nodes = |cloud: &'static str| (0..8).map(move |number| format!("{cloud}-{number}"));
    for cloud in ["a", "b"] {
        for name in nodes(cloud) {
            let id = format!("{cloud}://{name}");
            setup.register(&name, cloud, &json!({"spec": {"providerID": id, "taints": null}}));
        }
    }
    let [_a, _b] = setup.start_both(&claim("a", "", "", true), &claim("b", "cloud=b", "", false));
    after(SECOND * 5).await;
    setup.a.state().gone.extend(nodes("a"));
    setup.b.state().gone.insert("b-0".to_owned());
    for name in nodes("a").chain(["b-0".to_owned()]) {
        let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        setup.api.put(&setup.api.get(&name).with(&silent));
    }
    after(SECOND * 60).await;
    assert!(nodes("a").all(|name| setup.api.has_node(&name)), "held");
    assert!(nodes("a").all(|name| setup.api.get(&name).facts().is_held));
    assert!(!setup.api.has_node("b-0"), "deleted");
    assert!(nodes("b").skip(1).all(|name| setup.api.has_node(&name)));
    for line in [
        "pileus_node_lifecycle_breaker_open{provider=\"a\"} 1",
        "pileus_node_lifecycle_held{provider=\"a\"} 8",
        "pileus_node_lifecycle_breaker_open{provider=\"b\"} 0",
        "pileus_node_lifecycle_held{provider=\"b\"} 0",
        "pileus_node_lifecycle_deletions_total{provider=\"b\",result=\"ok\"} 1",
    ] {
        assert!(setup.metric(line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_added_or_removed_takes_over_nodes_and_disturbs_no_other() {
    let setup = Setup::new();
    let (a, b) = (claim("a", "", "", true), claim("b", "cloud=b", "", false));
    setup.nodes.set_claims(claims(std::slice::from_ref(&a)));
    let _a = setup.start(&setup.a, &a, true);
    setup.a.state().unknown.insert("b-1".to_owned());
    setup.register("a-1", "a", &json!({}));
    setup.register("b-1", "b", &json!({}));
    setup.create("plain", None);
    after(SECOND * 5).await;
    assert_eq!((setup.provider_id("b-1"), setup.a.balanced()), (None, names(&["plain"])));
    // Of the same age, the first name stands.
    setup.nodes.set_claims(claims(&[a.clone(), b.clone()]));
    setup.a.state().nodes.clear();
    let of_b = setup.start(&setup.b, &b, true);
    after(SECOND * 5).await;
    assert_eq!(setup.provider_id("b-1").as_deref(), Some("b://b-1"));
    assert_eq!(setup.a.state().nodes, BTreeSet::new(), "no call follows from the other provider");
    // A Node that both selectors match belongs to neither.
    let both = claim("a", "cloud in (a,b)", "", true);
    setup.nodes.set_claims(claims(&[both, b]));
    setup.register("b-2", "b", &json!({}));
    after(SECOND * 60).await;
    assert_eq!(setup.provider_id("b-2"), None);
    assert!(setup.api.events().contains(&"ProviderConflict b-2".to_owned()));
    assert!(setup.metric("pileus_node_without_instance{provider=\"a\",cause=\"contested\"} 1"));
    // The other provider goes.
    of_b.stop().await;

    setup.metrics.of_provider("b").reset_gauges();
    setup.nodes.set_claims(claims(&[a]));
    after(SECOND * 60).await;
    assert_eq!(setup.provider_id("b-2").as_deref(), Some("a://b-2"));
    assert!(setup.metric("pileus_node_without_instance{provider=\"a\",cause=\"contested\"} 0"));
    assert!(!setup.a.state().nodes.contains("b-1"), "it keeps the provider ID of the provider that is gone");
    let checks = setup.health.report(tokio::time::Instant::now());
    assert!(checks.iter().all(|(name, _)| !name.ends_with(":b")), "{checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_a_claim_takes_no_node_from_a_load_balancer_and_deletes_no_route() {
    let setup = Setup::new();
    setup.register("a-1", "a", &json!({}));
    let [_a, _b] = setup.start_both(&claim("a", "", "", true), &claim("b", "cloud=b", "", false));
    setup.create("web", None);
    after(SECOND * 5).await;
    let has = || {
        let state = setup.a.state();
        (state.balancers["web"].clone(), state.routes.len(), setup.api.has_node("a-1"))
    };
    assert_eq!(has(), (names(&["a-1"]), 1, true));
    setup.nodes.set_claims(claims(&[claim("b", "cloud=b", "", false)]));
    after(AUDIT * 3).await;
    assert_eq!(has(), (names(&["a-1"]), 1, true));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_stays_with_the_provider_that_made_it_until_it_is_moved() {
    let setup = Setup::new();
    setup.register("a-1", "a", &json!({}));
    setup.register("b-1", "b", &json!({}));
    let default =
        |name: &str, is_default| claim(name, if name == "b" { "cloud=b" } else { "" }, "", is_default);
    let before = setup.start_both(&default("a", true), &default("b", false));
    setup.create("old", None);
    after(SECOND * 5).await;
    for controllers in before {
        controllers.stop().await;
    }
    assert_eq!(
        (setup.address("old").as_deref(), setup.mark("old").as_deref()),
        (Some("192.0.2.1"), Some("a"))
    );
    // The default moves, and so does the next Service.
    let [_a, _b] = setup.start_both(&default("a", false), &default("b", true));
    setup.create("new", None);
    after(AUDIT * 3).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&["old"]), names(&["new"])));
    assert_eq!(
        (setup.address("old").as_deref(), setup.address("new").as_deref()),
        (Some("192.0.2.1"), Some("192.0.2.2"))
    );
    let warning = "old: The load balancer stays with provider a, which made it";
    assert!(setup.api.notes().iter().any(|note| note.contains(warning)), "{:?}", setup.api.notes());
    // An operator moves it. The former provider deletes what it made.
    setup.api.change(
        "services",
        "shop/old",
        &json!({"metadata": {"annotations": {"pileus.dev/provider": "b"}}}),
    );
    after(SECOND * 30).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&[]), names(&["new", "old"])));
    assert_eq!(
        (setup.address("old").as_deref(), setup.mark("old").as_deref()),
        (Some("192.0.2.2"), Some("b"))
    );
    for name in ["old", "new"] {
        setup.api.delete("services", &format!("shop/{name}"));
    }
    after(SECOND * 30).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&[]), names(&[])));
    assert_eq!((setup.api.service("shop/old"), setup.api.service("shop/new")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn the_provider_of_a_mark_that_does_not_run_keeps_its_service_and_deletes_it_when_it_is_back() {
    let setup = Setup::new();
    setup.register("b-1", "b", &json!({}));
    let (a, b) = (claim("a", "", "", true), claim("b", "cloud=b", "", false));
    let [of_a, of_b] = setup.start_both(&a, &b);
    setup.create("web", None);
    after(SECOND * 5).await;
    of_a.stop().await;
    of_b.stop().await;
    // Only b runs, and would serve the Service.
    let b = claim("b", "", "", true);
    setup.nodes.set_claims(claims(std::slice::from_ref(&b)));
    let of_b = setup.start(&setup.b, &b, false);
    after(AUDIT * 2).await;
    setup.api.delete("services", "shop/web");
    after(AUDIT * 4).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&["web"]), names(&[])));
    assert!(setup.api.service("shop/web").is_some(), "its finalizer is a's to remove");
    let blocked = "which provider a has to remove";
    assert!(setup.api.notes().iter().any(|note| note.contains(blocked)), "{:?}", setup.api.notes());
    let a = claim("a", "cloud=a", "", false);
    setup.nodes.set_claims(claims(&[a.clone(), b]));
    let of_a = setup.start(&setup.a, &a, true);
    after(SECOND * 30).await;
    assert_eq!((setup.a.balanced(), setup.api.service("shop/web")), (names(&[]), None));
    of_a.stop().await;
    of_b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_made_for_an_unmarked_service_is_not_lost_when_the_default_moves() {
    let setup = Setup::new();
    let (a, b) = (claim("a", "", "", true), claim("b", "cloud=b", "", false));
    setup.nodes.set_claims(claims(&[a.clone(), b.clone()]));
    // From before there were marks.
    let of_a = setup.start(&setup.a, &a, false);
    setup.create("web", None);
    after(SECOND * 5).await;
    of_a.stop().await;
    assert_eq!((setup.a.balanced(), setup.mark("web")), (names(&["web"]), None));
    let (a, b) = (Claim { is_default: false, ..a }, Claim { is_default: true, ..b });
    let [_a, _b] = setup.start_both(&a, &b);
    after(AUDIT * 3).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&["web"]), names(&["web"])));
    assert_eq!(
        (setup.address("web").as_deref(), setup.mark("web").as_deref()),
        (Some("192.0.2.2"), Some("b"))
    );
    assert!(setup.metric("pileus_service_orphans{provider=\"a\",owner=\"unknown\"} 1"), "it is reported");
    setup.api.delete("services", "shop/web");
    after(SECOND * 60).await;
    assert_eq!((setup.a.balanced(), setup.b.balanced()), (names(&[]), names(&[])));
}
