//! Nodes follow instances that stop, disappear, return, or only seem to.
//!
//! The absence of an instance counts only once its Node is a minute old. Each test waits for that once, with all
//! related cases.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{Kubelet, await_absence, await_node, node};
use serde_json::json;
use tokio::time;

use crate::SOON;
use crate::node::{is_uninitialised, set_ready, taints};
use crate::world::{Run, World, document, release};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const MACHINE_ABSENT: &str = "pileus.dev/MachineAbsent";

/// From a Node's creation until its machine's absence counts, and the whole seconds that creation times are cut to.
const AGE: Duration = Duration::from_secs(62);

/// Often enough for a test; the number of passes is what some of them wait for.
const QUICK: [&str; 2] = ["--node-monitor-period=500ms", "--leader-elect=false"];

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = QUICK.to_vec();
    world
}

/// Machines with initialised Nodes of the same names, old enough to be deleted. With their machines' IDs, in order.
async fn grown_up(world: &World, names: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(world.cloud.create(json!({"name": name})).await);
    }
    let mut history = world.history().await;
    world.register(names.iter().map(|name| node(name))).await;
    history.initialised(names).await;
    time::sleep(AGE).await;
    ids
}

/// Waits until the lifecycle controller has looked at all Nodes so many times more.
async fn passes(run: &Run, more: u64) {
    let passes = run.metric("pileus_node_lifecycle_passes_total", &[]).await + more;
    run.reaches("pileus_node_lifecycle_passes_total", passes).await;
}

async fn await_taint(world: &World, name: &str, key: &str, there: bool) {
    let is_so = |node: &Node| taints(node).iter().any(|taint| taint == key) == there;
    await_node(&world.client, name, is_so, SOON).await.unwrap();
}

/// The status of the condition that says that a Node is held.
fn held(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == MACHINE_ABSENT).map(|held| held.status.clone())
}

async fn names(world: &World) -> BTreeSet<String> {
    world.nodes().await.iter().map(kube::ResourceExt::name_any).collect()
}

/// A provider that answers that an instance is absent whenever a request fails.
#[tokio::test]
async fn a_provider_that_takes_errors_for_absence_costs_no_node() {
    let world = world().await;
    let endpoint = format!("http://127.0.0.1:{}", world.cloud.port);
    let grant = json!({
        "host": "127.0.0.1", "port": world.cloud.port, "tls": false, "addresses": ["127.0.0.1"],
    });
    let configuration = json!({"endpoint": endpoint, "breaks": "errors-are-absent"});
    let run = world.start_with(&document("unruly-provider", &configuration, &json!([grant]))).await;
    run.ready().await;
    let all = ["alive", "others-1", "others-2", "others-3", "others-4"];
    let ids = grown_up(&world, &all).await;
    set_ready(&world.client, "alive", "Unknown").await;
    for faults in [
        json!({"errors": {"share": 1, "status": 500}}),
        json!({"throttle": {"share": 1}}),
        json!({"lost": {"share": 1, "kinds": ["list", "get"]}}),
    ] {
        let before = run.metric("pileus_provider_doubted_total", &[]).await;
        world.cloud.set_faults(faults.clone()).await;
        run.reaches("pileus_provider_doubted_total", before + 1).await;
        passes(&run, 2).await;
        assert_eq!(names(&world).await.len(), all.len(), "{faults}");
    }
    run.logged(&["not believed", "node=\"alive\""]).await;
    world.cloud.set_faults(json!({})).await;
    world.cloud.delete(&ids[0]).await;
    await_absence(&world.client, "alive", SOON).await.unwrap();
}

#[tokio::test]
async fn a_node_is_deleted_only_after_its_instance_is_confirmed_absent() {
    let world = world().await;
    let run = world.start().await;
    // Neither is this provider's, regardless of instances of that name.
    let strangers: [Kubelet; 2] =
        [node("foreign").provider_id("other-cloud://7").not_ready(), node("bare").initialized().not_ready()];
    world.register(strangers).await;
    let all =
        ["gone", "stopped", "unlisted", "ready", "silent", "others-1", "others-2", "others-3", "others-4"];
    let ids = grown_up(&world, &all).await;

    // The list leaves one out that is there.
    world.cloud.set_faults(json!({"hidden": {"lists": {"names": ["unlisted"]}}})).await;
    world.cloud.stop(&ids[1]).await;
    for id in [&ids[0], &ids[3]] {
        world.cloud.delete(id).await;
    }
    for name in ["stopped", "unlisted", "silent", "others-1"] {
        set_ready(&world.client, name, "False").await;
    }
    // One that registers now is too young, though it has no machine.
    world.register([node("young").not_ready()]).await;
    set_ready(&world.client, "gone", "Unknown").await;

    await_absence(&world.client, "gone", SOON).await.unwrap();
    let event = world.event("gone", "DeletingNode").await;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reporting_component.as_deref(), Some("cloud-node-lifecycle-controller"));
    assert_eq!(event.involved_object.api_version.as_deref(), Some("v1"));
    await_taint(&world, "stopped", SHUTDOWN, true).await;
    passes(&run, 3).await;
    let expected = all.iter().skip(1).chain(&["foreign", "bare", "young"]);
    assert_eq!(names(&world).await, expected.map(|name| (*name).to_owned()).collect());
    assert!(run.metric("pileus_node_lifecycle_absent_unconfirmed_total", &[]).await > 0, "the list lied");

    world.cloud.start_machine(&ids[1]).await;
    passes(&run, 2).await;
    await_taint(&world, "stopped", SHUTDOWN, true).await;
    set_ready(&world.client, "stopped", "True").await;
    await_taint(&world, "stopped", SHUTDOWN, false).await;

    let deletions: Vec<_> = world.writes().into_iter().filter(|write| write["verb"] == "delete").collect();
    assert_eq!(deletions.len(), 1, "{deletions:#?}");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn nodes_are_held_when_too_many_instances_disappear_at_once_until_released() {
    let world = world().await;
    let run = world.start().await;
    let all: Vec<_> = (0..12).map(|number| format!("n-{number}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let ids = grown_up(&world, &all).await;

    // Half of the machines are gone, two of them only seem to be. That is seen at once, by the next one that starts.
    assert!(run.stop().await.success());
    let (vanished, seem) = (&all[..6], &all[4..6]);
    for id in &ids[..4] {
        world.cloud.delete(id).await;
    }
    world.cloud.set_faults(json!({"hidden": {"lists": {"names": seem}, "gets": {"names": seem}}})).await;
    for name in vanished {
        set_ready(&world.client, name, "Unknown").await;
    }
    let run = world.start().await;
    for name in vanished {
        let is_held = |node: &Node| held(node).as_deref() == Some("True");
        await_node(&world.client, name, is_held, SOON).await.unwrap();
        let event = world.event(name, "DeletionHeld").await;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert!(event.message.unwrap().contains(&format!("pileus release-deletion {name}")));
    }
    run.reaches("pileus_node_lifecycle_held", 6).await;
    run.reaches("pileus_node_lifecycle_breaker_open", 1).await;

    // Neither time nor a restart ends the hold, and nothing is written repeatedly.
    passes(&run, 3).await;
    assert!(run.stop().await.success());
    let writes = world.writes().len();
    let run = world.start().await;
    passes(&run, 3).await;
    assert_eq!(names(&world).await.len(), 12);
    assert_eq!(world.writes().len(), writes, "{:#?}", world.writes().split_off(writes));

    // What only seemed to be gone is let go by itself.
    world.cloud.set_faults(json!({})).await;
    for name in seem {
        await_node(&world.client, name, |node| held(node).is_none(), SOON).await.unwrap();
    }

    // One by one, or all; a wrong name releases nothing.
    let wrong = release(&world, &[all[0], "n-11", "unknown"]).await;
    assert_eq!(wrong.code, Some(6));
    assert!(
        wrong.stderr.contains("node n-11 is not held")
            && wrong.stderr.contains("node unknown does not exist")
    );
    passes(&run, 2).await;
    assert_eq!(names(&world).await.len(), 12);
    let right = release(&world, &[all[0]]).await;
    assert!(right.code == Some(0) && right.stdout.starts_with("node n-0: released"), "{right:?}");
    await_absence(&world.client, all[0], SOON).await.unwrap();
    passes(&run, 2).await;
    assert_eq!(names(&world).await.len(), 11, "the others stay held");
    assert_eq!(release(&world, &["--all"]).await.code, Some(0));
    for name in &all[1..4] {
        await_absence(&world.client, name, SOON).await.unwrap();
    }
    passes(&run, 2).await;
    assert_eq!(names(&world).await, all[4..].iter().map(|name| (*name).to_owned()).collect());
    run.reaches_zero("pileus_node_lifecycle_held").await;
    assert_eq!(release(&world, &["--all"]).await.stdout, "no node is held\n");
    assert!(world.nodes().await.iter().all(|node| !is_uninitialised(node)));
    assert!(run.stop().await.success());
}
