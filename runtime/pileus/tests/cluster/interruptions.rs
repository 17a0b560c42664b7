//! Other writers, SIGKILL and SIGTERM interrupt Pileus: no write is lost, and no work stays unfinished.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use pileus_dev::nodes::{Kubelet, UNINITIALIZED, await_absence, node};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::SOON;
use crate::node::{is_half_written, is_uninitialised, outcomes, taints};
use crate::proxy::{Network, Proxy};
use crate::world::World;

/// More than are written at the same time, so that some of them are always in between.
const MANY: usize = 100;

/// How often an interruption is tried that has to come at the right moment. It nearly always does.
const ROUNDS: usize = 10;

#[tokio::test]
async fn concurrent_writes_of_others_are_kept() {
    let mut world = World::new().await;
    world.flags = vec!["--leader-elect=false"];
    let network = Proxy::to(world.api_server_port()).await;
    let (names, nodes) = newcomers(&world).await;
    world.register(nodes).await;
    let mut history = world.history().await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 5_000, "kinds": ["list"]}})).await;
    let run = world.start_through(&network).await;
    // While the cloud thinks, the network to the API server stalls. So Pileus plans with the Nodes as they were, and its
    // writes arrive after those of another client.
    world.cloud.await_request().await;
    network.becomes(Network::Stalled);
    let written = meddle(&world.client, &names).await;
    run.counted("pileus_node_lookup_answers_total", &[]).await;
    network.becomes(Network::Whole);
    history.initialised(&names).await;
    nothing_is_lost(&world.nodes().await, &written);
    let conflicts = run.metric("pileus_node_writes_total", &[r#"result="conflict""#]).await;
    assert!(conflicts > 0, "no write came in between");
    assert!(run.stop().await.success());
}

fn nothing_is_lost(nodes: &[Node], written: &BTreeMap<String, Vec<String>>) {
    for node in nodes {
        let name = node.name_any();
        let taints: BTreeSet<_> = taints(node).into_iter().collect();
        assert!(!taints.contains(UNINITIALIZED), "{name}");
        for key in written.get(&name).into_iter().flatten() {
            assert!(taints.contains(key), "{name} has lost the taint {key}");
            assert!(node.labels().contains_key(key), "{name} has lost the label {key}");
        }
    }
}

/// Nodes with machines. Every other one has its addresses already, so that its only write rests on what is known of it
/// since before the lookup, and not on the answer to a write just before.
async fn newcomers(world: &World) -> (Vec<String>, Vec<Kubelet>) {
    let mut names = world.cloud.create_many(MANY / 2).await;
    let mut nodes: Vec<_> = names.iter().map(|name| node(name)).collect();
    for number in 0..MANY / 2 {
        let (name, ip) = (format!("addressed-{number}"), format!("10.2.0.{number}"));
        let addresses = json!([{"kind": "internal-ip", "value": ip}]);
        world.cloud.create(json!({"name": name, "addresses": addresses})).await;
        nodes.push(node(&name).node_ip(&ip));
        names.push(name);
    }
    (names, nodes)
}

/// Adds a taint and a label to each Node, and tells what it has added.
async fn meddle(client: &Client, names: &[String]) -> BTreeMap<String, Vec<String>> {
    let nodes = Api::<Node>::all(client.clone());
    let key = "meddler.example.com/x";
    let add = async |name: String| {
        let added = add(&nodes, &name, key).await.unwrap();
        added.then(|| (name, vec![key.to_owned()]))
    };
    let added: Vec<_> = stream::iter(names.to_vec()).map(add).buffer_unordered(8).collect().await;
    added.into_iter().flatten().collect()
}

/// Adds a taint and a label as `kubectl taint` does: the whole list of taints goes out, and the resource version with
/// it. Returns whether it did, or another client was faster.
async fn add(nodes: &Api<Node>, name: &str, key: &str) -> kube::Result<bool> {
    let node = nodes.get(name).await?;
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let effect = "PreferNoSchedule".to_owned();
    taints.push(Taint { key: key.to_owned(), effect, ..Taint::default() });
    let metadata = json!({"resourceVersion": node.resource_version(), "labels": {key: ""}});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": taints}}));
    match nodes.patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[tokio::test]
async fn nodes_that_a_killed_process_left_half_written_are_completed_by_the_next() {
    let mut world = World::new().await;
    // The next one would wait until the Lease of the killed one has expired.
    world.flags = vec!["--leader-elect=false"];
    let names = world.cloud.create_many(MANY).await;
    let fresh = || world.register(names.iter().map(|name| node(name)));
    fresh().await;
    let run = world.start().await;
    let undisturbed = world.history().await.initialised(&names).await;
    assert!(run.stop().await.success());

    let mut half_written = 0;
    for _ in 0..ROUNDS {
        remove_all(&world.client, &names).await;
        fresh().await;
        let mut history = world.history().await;
        let run = world.start_with(&world.simulated(world.cloud.port)).await;
        history.until(|states| states.iter().any(is_half_written)).await;
        run.kill();
        half_written = world.nodes().await.iter().filter(|node| is_half_written(node)).count();
        if half_written > 0 {
            break;
        }
    }
    assert!(half_written > 0, "no kill came at the right moment");

    let mut history = world.history().await;
    let run = world.start().await;
    let nodes = history.initialised(&names).await;
    assert_eq!(outcomes(&nodes), outcomes(&undisturbed));
    assert!(run.stop().await.success());
}

async fn remove_all(client: &Client, names: &[String]) {
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    for name in names {
        await_absence(client, name, SOON).await.unwrap();
    }
}

#[tokio::test]
async fn after_sigterm_writes_in_flight_are_finished() {
    let world = World::new().await;
    let names = world.cloud.create_many(MANY).await;
    world.register(names.iter().map(|name| node(name))).await;
    let mut history = world.history().await;
    let run = world.start_with(&world.simulated(world.cloud.port)).await;
    history.until(|states| states.iter().any(is_half_written)).await;
    let ended = run.stop().await;
    assert_eq!(ended.code(), Some(0));
    let nodes = world.nodes().await;
    assert!(nodes.iter().any(|node| !is_uninitialised(node)), "it had begun");
    assert_eq!(nodes.iter().filter(|node| is_half_written(node)).count(), 0);

    let run = world.start().await;
    history.initialised(&names).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn after_sigterm_pileus_does_not_wait_for_reads_of_a_slow_cloud() {
    let world = World::new().await;
    world.cloud.create(json!({"name": "a"})).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 60_000}})).await;
    world.register([node("a")]).await;
    let run = world.start_with(&world.simulated(world.cloud.port)).await;
    world.cloud.await_request().await;
    let asked = Instant::now();
    // Less than the least of the cloud's and the host's own deadlines.
    let ended = time::timeout(Duration::from_secs(9), run.stop()).await;
    assert_eq!(ended.unwrap().code(), Some(0), "after {:?}", asked.elapsed());
}
