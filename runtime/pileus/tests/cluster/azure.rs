//! The Azure provider with the simulator of the resource manager and a real API server. `cloud` is the simulator as a process;
//! each other module has the tests of one subject.

mod cloud;
mod credentials;
mod faults;
mod nodes;
mod routes;
mod swap;
mod takeover;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{Kubelet, await_node, node};
use serde_json::{Value, json};

use crate::SOON;
use crate::node::initialised;
use crate::world::{Run, World};

/// Looks at Nodes, machines and the route table every second or two.
const QUICK: [&str; 5] = [
    "--cluster-cidr=10.244.0.0/16",
    "--node-monitor-period=1s",
    "--node-status-update-frequency=2s",
    "--route-reconciliation-period=2s",
    "--leader-elect=false",
];

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = QUICK.to_vec();
    world
}

async fn start(world: &World, document: &Value) -> Run {
    let run = world.start_with(document).await;
    run.ready().await;
    run
}

/// A Node with the Pod CIDR of this number.
fn with_range(name: &str, number: usize) -> Kubelet {
    node(name).pod_cidrs(&[range(number)])
}

fn range(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Gives a Node the Pod CIDR of this number, as kube-controller-manager does.
async fn give_range(world: &World, name: &str, number: usize) {
    let patch = Patch::Merge(json!({"spec": {"podCIDR": range(number), "podCIDRs": [range(number)]}}));
    Api::<Node>::all(world.client.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().unwrap().provider_id.as_deref().unwrap_or_default()
}

/// The Node's condition that says whether it has its routes: the status and the reason.
fn network(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?;
    Some((found.status.clone(), found.reason.clone().unwrap_or_default()))
}

/// Waits until a Node says that it has its routes.
async fn has_routes(world: &World, name: &str) {
    let wanted = Some(("False".to_owned(), "RouteCreated".to_owned()));
    await_node(&world.client, name, |node| network(node) == wanted, SOON).await.unwrap();
}

/// Waits until the lifecycle controller has looked at all Nodes so many times more.
async fn passes(run: &Run, more: u64) {
    let passes = run.metric("pileus_node_lifecycle_passes_total", &[]).await + more;
    run.reaches("pileus_node_lifecycle_passes_total", passes).await;
}

/// Waits until the route table was listed so many times more.
async fn lists(run: &Run, more: u64) {
    let (name, ok) = ("pileus_route_lists_total", [r#"result="ok""#]);
    run.reaches_of(name, &ok, run.metric(name, &ok).await + more).await;
}
