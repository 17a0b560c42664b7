//! Helpers of the tests of Services, with the final check of all of them: the cloud has exactly what the cluster needs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Namespace, Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time;

use crate::SOON;
use crate::cloud::Object;
use crate::world::World;

/// What keeps a Service until its load balancer is gone.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The class that documents of [`document`] name.
pub(crate) const OURS: &str = "example.com/ours";

/// A Service with this label asks for what it can't have.
pub(crate) const INVALID: &str = "invalid";

/// Between two looks at cluster and cloud.
const PAUSE: time::Duration = time::Duration::from_millis(50);

/// How the provider lays load balancers out in the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// An object for each Service.
    PerService,
    /// An address for each Service, and one object that all share.
    Shared,
}

impl Style {
    fn as_str(self) -> &'static str {
        match self {
            Self::PerService => "perService",
            Self::Shared => "shared",
        }
    }
}

/// The document for the simulated provider in this style, with a class of its own.
pub(crate) fn document(world: &World, style: Style) -> Value {
    let mut document = world.simulated(world.cloud.port);
    document["spec"]["configuration"]["loadBalancers"] = json!(style.as_str());
    document["spec"]["loadBalancerClasses"] = json!([OURS]);
    document
}

/// Machines of these names and their Nodes, initialised.
pub(crate) async fn join(world: &World, names: &[&str]) -> Vec<String> {
    let mut machines = Vec::new();
    for name in names {
        machines.push(world.cloud.create(json!({"name": name})).await);
    }
    let nodes = names.iter().zip(&machines).map(|(name, machine)| {
        pileus_dev::nodes::node(name).provider_id(&format!("simulated://{machine}")).initialized()
    });
    world.register(nodes).await;
    machines
}

pub(crate) fn api(world: &World) -> Api<Service> {
    Api::default_namespaced(world.client.clone())
}

/// Makes a Service of type LoadBalancer with one port, and with what `spec` says beyond that.
pub(crate) async fn create(world: &World, name: &str, spec: Value) -> Service {
    create_whole(world, &json!({"metadata": {"name": name}, "spec": spec})).await
}

/// Makes a Service of which the type and a port may be missing.
pub(crate) async fn create_whole(world: &World, service: &Value) -> Service {
    let mut whole = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    merge(&mut whole, service);
    let service = serde_json::from_value(whole).unwrap();
    api(world).create(&PostParams::default(), &service).await.unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Changes a Service as a user does.
pub(crate) async fn change(world: &World, name: &str, patch: Value) -> Service {
    api(world).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Deletes a Service, and doesn't wait.
pub(crate) async fn delete(world: &World, name: &str) {
    api(world).delete(name, &DeleteParams::default()).await.unwrap();
}

/// Deletes a Service and removes its finalizer, as an impatient user does.
pub(crate) async fn tear_out(world: &World, name: &str) {
    delete(world, name).await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match api(world).patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        // It had none yet.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn get(world: &World, name: &str) -> Option<Service> {
    api(world).get_opt(name).await.unwrap()
}

/// Waits until a Service is so.
pub(crate) async fn until(world: &World, name: &str, wanted: impl Fn(&Service) -> bool) -> Service {
    let mut last = None;
    let search = async {
        loop {
            last = get(world, name).await;
            match &last {
                Some(service) if wanted(service) => return service.clone(),
                _ => time::sleep(PAUSE).await,
            }
        }
    };
    let found = time::timeout(SOON, search).await;
    found.unwrap_or_else(|_| panic!("{name} stays at {last:#?}"))
}

/// Its ingress.
pub(crate) fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|status| status.ingress.as_deref()).unwrap_or_default()
}

pub(crate) fn has_finalizer(service: &Service) -> bool {
    service.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether it has an address, and what keeps it until that is given back.
pub(crate) fn is_served(service: &Service) -> bool {
    has_finalizer(service) && !ingress(service).is_empty()
}

/// All Services.
pub(crate) async fn all(world: &World) -> Vec<Service> {
    Api::<Service>::all(world.client.clone()).list(&ListParams::default()).await.unwrap().items
}

/// Whether it asks for one of our load balancers.
fn is_wanted(service: &Service) -> bool {
    let spec = service.spec.as_ref().unwrap();
    spec.type_.as_deref() == Some("LoadBalancer")
        && spec.load_balancer_class.as_deref().is_none_or(|class| class == OURS)
        && service.metadata.deletion_timestamp.is_none()
        && !service.labels().contains_key(INVALID)
}

/// What a load balancer is to be like, or is like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shape {
    /// Protocol, port, port of the Nodes.
    ports: BTreeSet<(String, u64, u64)>,
    ranges: BTreeSet<String>,
    health_check_port: Option<u64>,
    sticky_seconds: Option<u64>,
    machines: BTreeSet<String>,
    /// What its Service's status says, or the cloud.
    points: BTreeSet<String>,
}

fn asked_for(service: &Service, machines: &BTreeSet<String>) -> Shape {
    let spec = service.spec.as_ref().unwrap();
    let ports = spec.ports.iter().flatten().map(|port| {
        let number = |port: i32| u64::try_from(port).unwrap();
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
        (protocol, number(port.port), port.node_port.map(number).unwrap_or_default())
    });
    let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
    let health = spec.health_check_node_port.filter(|_| is_local);
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let points = ingress(service).iter().filter_map(|way| way.ip.clone().or(way.hostname.clone()));
    Shape {
        ports: ports.collect(),
        ranges: spec.load_balancer_source_ranges.iter().flatten().cloned().collect(),
        health_check_port: health.map(|port| u64::try_from(port).unwrap()),
        sticky_seconds: client_ip.and_then(|it| it.timeout_seconds).map(|it| u64::try_from(it).unwrap()),
        machines: machines.clone(),
        points: points.collect(),
    }
}

/// The machines of the Nodes that may take traffic.
fn targets(nodes: &[Node]) -> BTreeSet<String> {
    let is_target = |node: &&Node| {
        let is_excluded =
            |value: &String| !matches!(value.as_str(), "0" | "f" | "F" | "FALSE" | "false" | "False");
        let excluded = node.labels().get("node.kubernetes.io/exclude-from-external-load-balancers");
        node.metadata.deletion_timestamp.is_none()
            && !excluded.is_some_and(is_excluded)
            && !crate::node::taints(node).iter().any(|key| key == "ToBeDeletedByClusterAutoscaler")
    };
    let id = |node: &Node| {
        node.spec.as_ref()?.provider_id.as_ref()?.strip_prefix("simulated://").map(str::to_owned)
    };
    nodes.iter().filter(is_target).filter_map(id).collect()
}

fn texts(value: &Value) -> BTreeSet<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// What the cloud says of a load balancer, or of a front end of a shared one.
fn held(object: &Value, machines: &Value, points: BTreeSet<String>) -> Shape {
    let ports = object["ports"].as_array().unwrap().iter().map(|port| {
        let node_port = port["nodePort"].as_u64().unwrap_or_default();
        (port["protocol"].as_str().unwrap().to_owned(), port["port"].as_u64().unwrap(), node_port)
    });
    Shape {
        ports: ports.collect(),
        ranges: texts(&object["sourceRanges"]),
        health_check_port: object["healthCheckPort"].as_u64(),
        sticky_seconds: object["stickySeconds"].as_u64(),
        machines: texts(machines),
        points,
    }
}

/// What the cloud holds that bears this cluster's UID, by the UID of the Service that it bears; or what of it isn't
/// finished, or is there in vain.
async fn holdings(world: &World, cluster: &str) -> Result<BTreeMap<String, Shape>, String> {
    let own = |object: &Value| object["labels"]["pileus-cluster"] == cluster;
    let service = |object: &Value| object["labels"]["pileus-service"].as_str().unwrap_or_default().to_owned();
    let is_active = |object: &Value| object["state"] == "active";
    let mut holdings = BTreeMap::new();
    let all = world.cloud.all(Object::LoadBalancer).await?;
    let addresses = world.cloud.all(Object::Address).await?;
    let shared = world.cloud.all(Object::SharedLoadBalancer).await?;
    if let Some(object) = all.iter().chain(&addresses).find(|it| own(it) && !is_active(it)) {
        return Err(format!("not active: {object}"));
    }
    for object in all.iter().filter(|it| own(it)) {
        let points = texts(&object["addresses"])
            .into_iter()
            .chain([object["hostname"].as_str().unwrap_or_default().to_owned()]);
        if holdings.insert(service(object), held(object, &object["machines"], points.collect())).is_some() {
            return Err(format!("twice for one service: {object}"));
        }
    }
    let mut unused: BTreeMap<_, _> =
        addresses.iter().filter(|it| own(it)).map(|it| (it["name"].to_string(), it)).collect();
    for object in &shared {
        for front in object["frontends"].as_array().unwrap().iter().filter(|it| own(it)) {
            if !is_active(object) {
                return Err(format!("not active: {object}"));
            }
            let address = unused
                .remove(&front["address"].to_string())
                .ok_or_else(|| format!("without an address: {front}"))?;
            let points = BTreeSet::from([address["value"].as_str().unwrap().to_owned()]);
            if holdings.insert(service(front), held(front, &object["machines"], points)).is_some() {
                return Err(format!("twice for one service: {front}"));
            }
        }
    }
    match unused.values().next() {
        Some(address) => Err(format!("in no load balancer: {address}")),
        None => Ok(holdings),
    }
}

/// The UID by which this cluster's own is known.
pub(crate) async fn cluster_uid(world: &World) -> String {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap()
}

/// What isn't as it should be between cluster and cloud; none where all is.
pub(crate) async fn difference(world: &World) -> Option<String> {
    let (services, machines) = (all(world).await, targets(&world.nodes().await));
    let mut holdings = match holdings(world, &cluster_uid(world).await).await {
        Ok(holdings) => holdings,
        Err(unfinished) => return Some(unfinished),
    };
    for service in services {
        let (uid, name) = (service.uid().unwrap(), service.name_any());
        let held = holdings.remove(&uid);
        if !is_wanted(&service) {
            let spec = service.spec.as_ref().unwrap();
            let is_foreign = spec.load_balancer_class.as_deref().is_some_and(|class| class != OURS);
            if held.is_some() || service.metadata.deletion_timestamp.is_some() {
                return Some(format!("{name} is not gone yet: {held:?}"));
            }
            let is_marked = has_finalizer(&service) || !ingress(&service).is_empty();
            if is_marked && !is_foreign && !service.labels().contains_key(INVALID) {
                return Some(format!("{name} is still marked: {service:?}"));
            }
            continue;
        }
        let asked = asked_for(&service, &machines);
        let Some(held) = held else { return Some(format!("{name} has no load balancer")) };
        let is_told = !asked.points.is_empty() && asked.points.is_subset(&held.points);
        if !is_told
            || !has_finalizer(&service)
            || (Shape { points: held.points.clone(), ..asked.clone() }) != held
        {
            let finalizers = service.finalizers();
            return Some(format!("{name} asks for {asked:#?} with {finalizers:?} and has {held:#?}"));
        }
    }
    holdings.into_iter().next().map(|(uid, held)| format!("for no service, with UID {uid}: {held:?}"))
}

/// Waits until the cloud holds exactly what the cluster asks for, and the cluster says so.
pub(crate) async fn settles(world: &World) {
    let mut last = None;
    let search = async {
        loop {
            last = difference(world).await;
            if last.is_none() {
                return;
            }
            time::sleep(PAUSE).await;
        }
    };
    let is_settled = time::timeout(SOON, search).await.is_ok();
    assert!(is_settled, "{}", last.unwrap_or_default());
}

/// Asserts that everything is settled and no process writes any more: another Service comes and goes, and nothing is
/// written that isn't about it. The world needs an audit log.
pub(crate) async fn stays(world: &World, style: Style) {
    settles(world).await;
    let (rest, cloud) = (Timestamp::now(), world.cloud.writes().await);
    create(world, "sentinel", json!({})).await;
    settles(world).await;
    delete(world, "sentinel").await;
    settles(world).await;
    let new = world.writes_since(rest).into_iter().filter(is_about_service);
    let others: Vec<_> = new.filter(|entry| entry["objectRef"]["name"] != "sentinel").collect();
    assert!(others.is_empty(), "written although all was well: {others:#?}");
    // One object, or an address and the shared one: made and removed.
    let most = if style == Style::Shared { 4 } else { 2 };
    let written = world.cloud.writes().await - cloud;
    assert!(written <= most, "{written} writes to the cloud for one service that came and went");
}

/// How much was written to Services by Pileus, and to the cloud by any client. What Pileus wrote last must have been
/// answered: what can be seen of it may be ahead of the audit log.
pub(crate) async fn written(world: &World) -> (usize, u64) {
    (world.writes().iter().filter(|entry| is_about_service(entry)).count(), world.cloud.writes().await)
}

fn is_about_service(entry: &Value) -> bool {
    entry["objectRef"]["resource"] == "services"
}
