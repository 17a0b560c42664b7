//! Routes follow the Pod CIDRs of Nodes, regardless of faults, restarts and other writers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{UNINITIALIZED, await_node, node};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use crate::SOON;
use crate::world::{Run, World};

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--cluster-cidr=10.244.0.0/16,fd00:10::/48", "--leader-elect=false"];
    world
}

/// Machines of these names, and Nodes with a range of each family.
async fn join(world: &World, names: &[&str]) -> Vec<String> {
    let mut machines = Vec::new();
    for name in names {
        machines.push(world.cloud.create(json!({"name": name})).await);
    }
    world.register(names.iter().map(|name| node(name))).await;
    for (name, machine) in names.iter().zip(&machines) {
        let number: u32 = machine.trim_start_matches("m-").parse().unwrap();
        give_ranges(world, name, number).await;
    }
    machines
}

async fn give_ranges(world: &World, name: &str, number: u32) {
    let ranges = [format!("10.244.{number}.0/24"), format!("fd00:10:0:{number}::/64")];
    let patch = Patch::Merge(json!({"spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}));
    Api::<Node>::all(world.client.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The status and the reason of a Node's condition.
fn network(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.filter(|condition| condition.type_ == "NetworkUnavailable");
    found.next().map(|condition| (condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

async fn is_told(world: &World, name: &str, status: &str, reason: &str) {
    let told = Some((status.to_owned(), reason.to_owned()));
    await_node(&world.client, name, |node| network(node) == told, SOON).await.unwrap();
}

/// The machine that each range is carried to.
async fn table(world: &World) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let routes = world.cloud.routes().await;
    routes.iter().map(|route| (text(&route["destination"]), text(&route["machine"]))).collect()
}

async fn becomes(world: &World, expected: &[(String, String)]) {
    let expected: BTreeMap<_, _> = expected.iter().cloned().collect();
    let reached = async {
        while table(world).await != expected {
            time::sleep(time::Duration::from_millis(50)).await;
        }
    };
    if time::timeout(SOON, reached).await.is_err() {
        assert_eq!(table(world).await, expected);
    }
}

fn both(machines: &[String]) -> Vec<(String, String)> {
    let of = |machine: &String| {
        let number: u32 = machine.trim_start_matches("m-").parse().unwrap();
        [format!("10.244.{number}.0/24"), format!("fd00:10:0:{number}::/64")]
            .map(|range| (range, machine.clone()))
    };
    machines.iter().flat_map(of).collect()
}

async fn writes(run: &Run) -> u64 {
    run.metric("pileus_route_changes_total", &[]).await
}

#[tokio::test]
async fn routes_follow_nodes_and_nothing_is_written_twice() {
    let world = world().await;
    let run = world.start().await;
    let machines = join(&world, &["a", "b"]).await;
    world.cloud.put_route("foreign", "192.168.0.0/24", &machines[0]).await;
    world.cloud.put_route("wider", "10.0.0.0/8", &machines[0]).await;
    let foreign = [("192.168.0.0/24", 0), ("10.0.0.0/8", 0)];
    let foreign = foreign.map(|(range, machine)| (range.to_owned(), machines[machine].clone()));
    let all = |machines: &[String]| [both(machines), foreign.to_vec()].concat();
    becomes(&world, &all(&machines)).await;
    for name in ["a", "b"] {
        is_told(&world, name, "False", "RouteCreated").await;
    }
    let is_ours =
        |route: &Value| route["labels"]["pileus-cluster"].as_str().is_some_and(|uid| uid.len() == 36);
    assert_eq!(world.cloud.routes().await.iter().filter(|route| is_ours(route)).count(), 4);

    // A Node goes, and so do its routes.
    Api::<Node>::all(world.client.clone()).delete("b", &DeleteParams::default()).await.unwrap();
    becomes(&world, &all(&machines[..1])).await;
    assert!(run.stop().await.success());

    // The next start finds all as it should be.
    let writes_before = world.writes().len();
    let run = world.start().await;
    run.counted("pileus_route_lists_total", &[r#"result="ok""#]).await;
    let new = join(&world, &["c"]).await;
    becomes(&world, &all(&[machines[0].clone(), new[0].clone()])).await;
    // By then what was written is also counted.
    is_told(&world, "c", "False", "RouteCreated").await;
    assert_eq!(writes(&run).await, 2, "only what joined was written");
    let told = world.writes().split_off(writes_before);
    assert!(told.iter().all(|write| write["objectRef"]["name"] == "c"), "{told:#?}");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn two_clusters_with_one_route_table_leave_each_others_routes_alone() {
    let (world, other) = (world().await, world().await);
    let mine = join(&world, &["a", "b"]).await;
    let theirs = world.cloud.create(json!({"name": "c"})).await;
    other.register([node("c")]).await;
    give_ranges(&other, "c", 3).await;
    let run = world.start().await;
    becomes(&world, &both(&mine)).await;
    let document = world.simulated(world.cloud.port);
    let second = other.start_with(&document).await;
    second.ready().await;
    let all = |machines: &[&String]| both(&machines.iter().map(|id| (*id).clone()).collect::<Vec<_>>());
    becomes(&world, &all(&[&mine[0], &mine[1], &theirs])).await;
    is_told(&other, "c", "False", "RouteCreated").await;
    second.logged(&["routes of another cluster"]).await;
    // Each cluster deletes routes of its own: a Node goes here, and all routes there.
    Api::<Node>::all(world.client.clone()).delete("b", &DeleteParams::default()).await.unwrap();
    becomes(&world, &all(&[&mine[0], &theirs])).await;
    run.logged(&["routes of another cluster"]).await;
    // A range that the other cluster has isn't taken away, and the Node's event says so.
    let rival = world.cloud.create(json!({"name": "d"})).await;
    other.register([node("d")]).await;
    give_ranges(&other, "d", 1).await;
    let event = other.event("d", "FailedToCreateRoute").await;
    assert!(event.message.unwrap_or_default().contains("another cluster"), "of {rival}");
    Api::<Node>::all(other.client.clone()).delete("c", &DeleteParams::default()).await.unwrap();
    becomes(&world, &all(&[&mine[0]])).await;
    assert!(run.stop().await.success() && second.stop().await.success());
}

#[tokio::test]
async fn a_refused_route_is_reported_on_the_node_and_retried() {
    let world = world().await;
    world
        .cloud
        .set_faults(json!({"errors": {"share": 1, "status": 503, "kinds": ["create", "delete"]}}))
        .await;
    let run = world.start().await;
    // Machines are made by the same kind of call, so that it lets this one be made.
    world.cloud.set_faults(json!({})).await;
    let machine = world.cloud.create(json!({"name": "a"})).await;
    world
        .cloud
        .set_faults(json!({"errors": {"share": 1, "status": 503, "kinds": ["create", "delete"]}}))
        .await;
    world.register([node("a")]).await;
    give_ranges(&world, "a", 1).await;
    is_told(&world, "a", "True", "NoRouteCreated").await;
    let note = world.event("a", "FailedToCreateRoute").await.message.unwrap();
    assert!(note.contains("10.244.1.0/24") || note.contains("fd00:10:0:1::/64"), "{note}");
    assert!(note.contains("503"), "{note}");
    world.cloud.set_faults(json!({})).await;
    is_told(&world, "a", "False", "RouteCreated").await;
    becomes(&world, &both(&[machine])).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn with_wait_for_routes_a_node_takes_pods_only_once_it_has_routes() {
    let mut world = world().await;
    world.flags.push("--wait-for-routes");
    let machine = world.cloud.create(json!({"name": "a"})).await;
    world.cloud.set_faults(json!({"errors": {"share": 1, "status": 503, "kinds": ["create"]}})).await;
    let run = world.start().await;
    world.register([node("a")]).await;
    give_ranges(&world, "a", 1).await;
    is_told(&world, "a", "True", "NoRouteCreated").await;
    let waits =
        |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some()) && is_kept_free(node);
    await_node(&world.client, "a", waits, SOON).await.unwrap();
    world.cloud.set_faults(json!({})).await;
    await_node(&world.client, "a", |node| !is_kept_free(node), SOON).await.unwrap();
    let node = Api::<Node>::all(world.client.clone()).get("a").await.unwrap();
    assert_eq!(network(&node), Some(("False".to_owned(), "RouteCreated".to_owned())));
    becomes(&world, &both(&[machine])).await;
    assert!(run.stop().await.success());
}

/// Whether a Node has the taint that keeps Pods away until the cloud's part is done.
fn is_kept_free(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == UNINITIALIZED)
}

#[tokio::test]
async fn after_kills_and_lost_answers_the_route_table_is_right() {
    let world = world().await;
    let machines = join(&world, &["a", "b", "c", "d"]).await;
    world
        .cloud
        .set_faults(json!({
            "latency": {"fixedMs": 20, "jitterMs": 60},
            "lost": {"share": 0.3, "kinds": ["create", "delete"]},
        }))
        .await;
    // The first dies with nothing done, and each later one a little further on.
    for step in 0..6 {
        let run = world.start().await;
        time::sleep(time::Duration::from_millis(step * 60)).await;
        run.signal(Signal::KILL);
        assert!(!run.ended().await.success());
        if step == 3 {
            Api::<Node>::all(world.client.clone()).delete("d", &DeleteParams::default()).await.unwrap();
        }
    }
    let run = world.start().await;
    becomes(&world, &both(&machines[..3])).await;
    for name in ["a", "b", "c"] {
        is_told(&world, name, "False", "RouteCreated").await;
    }
    assert!(run.stop().await.success());
}
