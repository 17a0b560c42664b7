//! Initialized Nodes follow their instances by periodic refreshes, which write nothing if nothing has changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{await_node, node};
use serde_json::{Value, json};

use crate::SOON;
use crate::node::addresses;
use crate::world::World;

const OWNED: &str = "pileus.dev/owned-labels";

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--node-status-update-frequency=1s", "--leader-elect=false"];
    world
}

async fn until(world: &World, name: &str, is_so: impl Fn(&Node) -> bool) -> Node {
    await_node(&world.client, name, is_so, SOON).await.unwrap()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels().get(key).map(String::as_str)
}

#[tokio::test]
async fn a_node_follows_its_instance_and_keeps_what_others_set() {
    let world = world().await;
    let labels = json!({"example.com/rack": "r1", "example.com/team": "cloud", "example.com/old": "x"});
    let id = world.cloud.create(json!({"name": "a", "labels": labels})).await;
    let run = world.start().await;
    let mut history = world.history().await;
    world.register([node("a").label("example.com/team", "kubelet")]).await;
    let before = history.initialised(&["a"]).await.remove(0);
    assert_eq!(before.annotations()[OWNED], "example.com/old,example.com/rack");

    let addresses_now = json!([{"kind": "internal-ip", "value": "10.7.0.7"}, {"kind": "external-ip", "value": "203.0.113.77"}]);
    let change = json!({
        "type": "large-8", "addresses": addresses_now,
        "labels": {"example.com/rack": "r2", "example.com/team": "cloud-2", "example.com/new": "y"},
    });
    world.cloud.change(&id, change).await;
    let after = until(&world, "a", |node| label(node, "example.com/new").is_some()).await;
    let expected = [("InternalIP", "10.7.0.7"), ("ExternalIP", "203.0.113.77"), ("Hostname", "a")];
    assert_eq!(addresses(&after), expected.map(|(kind, value)| (kind.to_owned(), value.to_owned())));
    let wanted: BTreeMap<_, _> = [
        ("node.kubernetes.io/instance-type", Some("large-8")),
        ("beta.kubernetes.io/instance-type", Some("large-8")),
        ("example.com/rack", Some("r2")),
        ("example.com/team", Some("kubelet")),
        ("example.com/old", None),
        ("example.com/new", Some("y")),
    ]
    .into();
    for (key, value) in wanted {
        assert_eq!(label(&after, key), value, "{key}");
    }
    assert_eq!(after.annotations()[OWNED], "example.com/new,example.com/rack");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn changes_of_others_are_corrected_without_a_refresh() {
    let mut world = world().await;
    world.flags = vec!["--leader-elect=false"];
    world.cloud.create(json!({"name": "a"})).await;
    let run = world.start().await;
    let mut history = world.history().await;
    world.register([node("a")]).await;
    history.initialised(&["a"]).await;
    let zone = "topology.kubernetes.io/zone";
    let patch = Patch::Merge(json!({"metadata": {"labels": {zone: "nowhere"}}}));
    Api::<Node>::all(world.client.clone()).patch("a", &PatchParams::default(), &patch).await.unwrap();
    until(&world, "a", |node| label(node, zone) == Some("sim-1a")).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_node_that_joined_without_the_taint_gets_missing_facts() {
    let world = world().await;
    let id = world.cloud.create(json!({"name": "a"})).await;
    let run = world.start().await;
    world.register([node("a").initialized(), node("nobodys").initialized()]).await;
    let has_id = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
    let node = until(&world, "a", has_id).await;
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("simulated://{id}")));
    until(&world, "a", |node| label(node, "topology.kubernetes.io/zone").is_some()).await;
    run.reaches("pileus_node_refreshes_total", 3).await;
    let nobodys = world.nodes().await.into_iter().find(|node| node.name_any() == "nobodys").unwrap();
    assert!(!has_id(&nobodys));
    let events = world.events("nobodys").await;
    let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, ["InstanceNotFound"]);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn refreshes_of_unchanged_nodes_write_nothing() {
    let world = world().await;
    let names = world.cloud.create_many(50).await;
    let run = world.start().await;
    let mut history = world.history().await;
    world.register(names.iter().map(|name| node(name))).await;
    history.initialised(&names).await;
    let rest = Timestamp::now();
    let refreshed = run.metric("pileus_node_refreshes_total", &[]).await;
    let lists = world.cloud.lists("ok").await;
    run.reaches("pileus_node_refreshes_total", refreshed + 150).await;
    // More sweeps may have come meanwhile; regardless of their number, each costs at most two lists.
    let lists = world.cloud.lists("ok").await - lists;
    let sweeps = (run.metric("pileus_node_refreshes_total", &[]).await - refreshed).div_ceil(50);
    assert!((2..=2 * sweeps).contains(&lists), "{lists} lists for {sweeps} sweeps of 50 nodes");
    assert_eq!(world.writes_since(rest), Vec::<Value>::new());
    assert!(run.stop().await.success());
}
