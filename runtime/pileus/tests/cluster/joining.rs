//! Nodes join: what Pileus writes, in which order, and which Nodes it leaves alone.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{UNINITIALIZED, node};
use serde_json::{Value, json};

use crate::node::{addresses, is_uninitialised, outcome, taints};
use crate::world::World;

/// The taint that the API server itself gives to a new Node, which stays in these tests.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

/// A machine without a host name, so that the kubelet's own stays.
fn machine(name: &str, internal: &[&str], external: &str) -> Value {
    let internal = internal.iter().map(|ip| json!({"kind": "internal-ip", "value": ip}));
    let addresses: Vec<_> = internal.chain([json!({"kind": "external-ip", "value": external})]).collect();
    json!({"name": name, "addresses": addresses, "labels": {"example.com/rack": format!("rack-of-{name}")}})
}

#[tokio::test]
async fn a_joining_node_gets_all_facts_before_its_taint_is_removed() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for machine in [
        machine("plain", &["10.1.0.1"], "203.0.113.1"),
        machine("with-node-ip", &["10.1.0.2", "10.1.0.22"], "203.0.113.2"),
        machine("with-taint", &["10.1.0.3"], "203.0.113.3"),
    ] {
        ids.push(world.cloud.create(machine).await);
    }
    let run = world.start().await;
    let mut history = world.history().await;
    let registered = [
        node("plain"),
        node("with-node-ip").node_ip("10.1.0.22"),
        node("with-taint").taint("example.com/dedicated", "gpu", "NoSchedule"),
    ];
    world.register(registered).await;
    let names = ["plain", "with-node-ip", "with-taint"];
    let nodes = history.initialised(&names).await;
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (node.name_any(), outcome(node))).collect();

    let expected_addresses = [
        pairs(&[("InternalIP", "10.1.0.1"), ("ExternalIP", "203.0.113.1"), ("Hostname", "plain")]),
        pairs(&[("InternalIP", "10.1.0.22"), ("ExternalIP", "203.0.113.2"), ("Hostname", "with-node-ip")]),
        pairs(&[("InternalIP", "10.1.0.3"), ("ExternalIP", "203.0.113.3"), ("Hostname", "with-taint")]),
    ];
    for (((name, id), expected), zone) in
        names.iter().zip(&ids).zip(&expected_addresses).zip(["sim-1a", "sim-1b", "sim-1c"])
    {
        let node = &nodes[*name];
        assert_eq!(node.provider_id, Some(format!("simulated://{id}")));
        assert_eq!(node.addresses, *expected);
        for (key, value) in [
            ("node.kubernetes.io/instance-type", "small-2"),
            ("beta.kubernetes.io/instance-type", "small-2"),
            ("topology.kubernetes.io/zone", zone),
            ("failure-domain.beta.kubernetes.io/zone", zone),
            ("topology.kubernetes.io/region", "sim-1"),
            ("failure-domain.beta.kubernetes.io/region", "sim-1"),
            ("example.com/rack", &format!("rack-of-{name}")),
            ("kubernetes.io/hostname", name),
        ] {
            assert_eq!(node.labels.get(key).map(String::as_str), Some(value), "{name}: {key}");
        }
    }
    assert_eq!(nodes["plain"].taints, [NOT_READY]);
    assert_eq!(nodes["with-taint"].taints, ["example.com/dedicated", NOT_READY]);

    // No state in between in which a Pod could have landed on half a Node.
    for state in history.until(|_| true).await {
        let index = names.iter().position(|name| *name == state.name_any()).unwrap();
        let has_id = state.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
        let is_complete = has_id && addresses(&state) == expected_addresses[index];
        assert!(is_complete || is_uninitialised(&state), "{:#?}", outcome(&state));
    }
    for name in names {
        let event = world.event(name, "Synced").await;
        assert_eq!(event.type_.as_deref(), Some("Normal"));
        assert_eq!(event.reporting_component.as_deref(), Some("cloud-node-controller"));
    }
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_node_waits_for_its_instance_and_foreign_nodes_are_left_alone() {
    let world = World::new().await;
    let mut history = world.history().await;
    let registered = world.register([node("foreign").provider_id("other-cloud://7"), node("early")]).await;
    let run = world.start().await;

    let event = world.event("early", "CloudInitializationFailed").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.unwrap();
    assert!(message.contains("the cloud has no instance with the name \"early\""), "{message}");
    let early = world.nodes().await.into_iter().find(|node| node.name_any() == "early").unwrap();
    assert_eq!(taints(&early), [UNINITIALIZED, NOT_READY]);

    world.cloud.create(json!({"name": "early"})).await;
    // The foreign one has a machine of its name, too, and still isn't the provider's.
    world.cloud.create(json!({"name": "foreign"})).await;
    history.initialised(&["early"]).await;
    world.event("early", "Synced").await;
    assert!(run.stop().await.success());

    let before = registered.into_iter().find(|node| node.name_any() == "foreign").unwrap();
    let after = world.nodes().await.into_iter().find(|node| node.name_any() == "foreign").unwrap();
    assert_eq!(before, after);
    assert_eq!(world.events("foreign").await, Vec::new(), "for half a minute");
}

#[tokio::test]
async fn a_second_start_writes_nothing_to_what_is_complete() {
    let world = World::with(Options { audit: true }).await;
    let mut history = world.history().await;
    let names = world.cloud.create_many(5).await;
    world.register(names.iter().map(|name| node(name))).await;
    let run = world.start().await;
    let before = history.initialised(&names).await;
    for name in &names {
        world.event(name, "Synced").await;
    }
    assert!(run.stop().await.success());
    let writes_before = writes(&world);
    assert_eq!(writes_before.len(), 10, "two to each Node: {writes_before:#?}");

    let run = world.start().await;
    // That the second one has seen all of them shows in that it has dealt with one that came after.
    world.cloud.create(json!({"name": "another"})).await;
    world.register([node("another")]).await;
    history.initialised(&["another"]).await;
    world.event("another", "Synced").await;
    assert!(run.stop().await.success());

    let after = world.nodes().await;
    assert_eq!(before, after.into_iter().filter(|node| node.name_any() != "another").collect::<Vec<_>>());
    let new: Vec<_> = writes(&world).split_off(writes_before.len());
    assert_eq!(new, ["another", "another"]);
}

/// All writes of Pileus to Nodes, as their names.
fn writes(world: &World) -> Vec<String> {
    let name = |entry: &Value| entry["objectRef"]["name"].as_str().unwrap_or_default().to_owned();
    world.writes().iter().map(name).collect()
}
