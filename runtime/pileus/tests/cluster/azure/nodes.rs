//! Nodes of all kinds of machines in one cluster are initialised, and follow their machines.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use pileus_dev::nodes::{await_absence, await_node, node};
use serde_json::json;
use tokio::time;

use super::cloud::{Cloud, SUBSCRIPTION};
use super::{initialised, passes, provider_id, start, world};
use crate::SOON;
use crate::node::{addresses, set_ready, taints};
use crate::world::World;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// From a Node's creation until its machine is looked up, and the whole seconds that creation times are cut to.
pub(super) const AGE: Duration = Duration::from_secs(62);

/// The resource group in which a machine isn't where the configuration says.
const ELSEWHERE: (&str, &str) = ("kubernetes.azure.com/resource-group", "Elsewhere");

/// The labels that a Node has of its machine, by the last part of their key.
fn topology(node: &Node) -> BTreeMap<String, String> {
    let is_topology =
        |key: &str| ["zone", "region", "instance-type"].iter().any(|name| key.ends_with(&format!("/{name}")));
    let labels = node.labels().iter().filter(|(key, _)| is_topology(key));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The labels that cloud-provider-azure gives, under the current and the old keys.
fn labels(zone: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("node.kubernetes.io/instance-type", "Standard_D4s_v5"),
        ("beta.kubernetes.io/instance-type", "Standard_D4s_v5"),
        ("topology.kubernetes.io/region", "eastus"),
        ("failure-domain.beta.kubernetes.io/region", "eastus"),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The types of a Node's addresses.
fn kinds(node: &Node) -> Vec<String> {
    addresses(node).into_iter().map(|(kind, _)| kind).collect()
}

async fn until(world: &World, name: &str, is_so: impl Fn(&Node) -> bool + Send + Sync + 'static) {
    await_node(&world.client, name, is_so, SOON).await.unwrap();
}

async fn is_shut_down(world: &World, name: &str, expected: bool) {
    until(world, name, move |node| taints(node).iter().any(|taint| taint == SHUTDOWN) == expected).await;
}

/// Machines of each kind, the resource of each below its group and provider, and its zone. A machine that is in no zone has its
/// fault domain in place of it.
async fn of_all_kinds(cloud: &Cloud) -> Vec<(String, String, &'static str)> {
    let of_set = |set: &str, number: usize| format!("virtualMachineScaleSets/{set}/virtualMachines/{number}");
    let by_itself = |name: &str| format!("virtualMachines/{name}");
    let dual = json!({
        "count": 2, "prefix": "dual", "group": "Nodes", "dualStack": true, "publicAddresses": true,
    });
    let mut all = Vec::new();
    let zones = ["eastus-1", "eastus-2", "eastus-3", "eastus-1"];
    for (number, name) in cloud.create("uniform", 4, "pool").await.into_iter().enumerate() {
        all.push((name, of_set("pool0-vmss", number), zones[number]));
    }
    for (number, name) in cloud.create_as(&dual).await.into_iter().enumerate() {
        all.push((name, of_set("dual0-vmss", number), zones[number]));
    }
    for (number, name) in cloud.create("flexible", 2, "flex").await.into_iter().enumerate() {
        all.push((name, by_itself(&format!("flex0-flex_{number:08x}")), zones[number]));
    }
    for (number, name) in cloud.create("availability-sets", 2, "avset").await.into_iter().enumerate() {
        all.push((name.clone(), by_itself(&name), ["0", "1"][number]));
    }
    // Its network has other addresses than that of the other machines.
    let id = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/elsewhere/providers/Microsoft.Network/virtualNetworks/nodes-vnet"
    );
    let network = json!({"id": id, "location": "eastus", "properties": {
        "addressSpace": {"addressPrefixes": ["10.230.0.0/16"]},
        "subnets": [{"name": "nodes", "properties": {"addressPrefixes": ["10.230.0.0/16"]}}],
    }});
    cloud.admin(Method::POST, "resources", &json!({"resources": [network]})).await;
    let alone = json!({"count": 1, "arrangement": "standalone", "prefix": "alone", "group": "elsewhere"});
    for name in cloud.create_as(&alone).await {
        all.push((name.clone(), by_itself(&name), zones[0]));
    }
    all
}

#[tokio::test]
async fn nodes_of_all_kinds_are_initialised_and_follow_their_machines() {
    let (world, cloud) = tokio::join!(world(), Cloud::start());
    let machines = of_all_kinds(&cloud).await;
    let run = start(&world, &cloud.document()).await;
    let kubelet = |name: &String| {
        let (key, group) = ELSEWHERE;
        if name.starts_with("alone") { node(name).label(key, group) } else { node(name) }
    };
    let released = node("on-premises").label("kubernetes.azure.com/managed", "false").not_ready();
    world.register(machines.iter().map(|(name, ..)| kubelet(name)).chain([released])).await;
    for (name, resource, zone) in &machines {
        let found = initialised(&world, name).await;
        let group = if name.starts_with("alone") { "elsewhere" } else { "nodes" };
        let id = format!(
            "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/{resource}"
        );
        assert_eq!((provider_id(&found), topology(&found)), (&*id, labels(zone)), "{name}");
        let expected = if name.starts_with("dual") {
            vec!["InternalIP", "Hostname", "ExternalIP", "InternalIP"]
        } else {
            vec!["InternalIP", "Hostname"]
        };
        assert_eq!(kinds(&found), expected, "{name}");
        assert_eq!(addresses(&found)[1].1, *name);
    }
    let released = initialised(&world, "on-premises").await;
    assert_eq!((provider_id(&released), topology(&released)), ("", BTreeMap::new()), "it isn't Azure's");

    time::sleep(AGE).await;
    let name = |beginning: &str, number: usize| {
        let mut found = machines.iter().filter(|(name, ..)| name.starts_with(beginning));
        &*found.nth(number).unwrap().0
    };
    let stopped =
        [(name("pool", 0), "deallocate"), (name("flex", 0), "stop"), (name("avset", 0), "deallocate")];
    let (reimaged, moved) = (name("pool", 1), name("flex", 1));
    let (gone, again) = ([name("pool", 2), name("alone", 0)], name("pool", 3));
    for (name, action) in stopped {
        cloud.act(name, action).await;
    }
    cloud.act(reimaged, "reimage").await;
    cloud.act(again, "recreate").await;
    for name in gone {
        cloud.act(name, "delete").await;
    }
    let command = json!({"machines": [moved], "action": "move", "zone": "3"});
    cloud.admin(Method::POST, "machines", &command).await;
    for name in stopped.map(|(name, _)| name).iter().chain(&gone).chain([&reimaged, &again]) {
        set_ready(&world.client, name, "False").await;
    }
    for (name, _) in stopped {
        is_shut_down(&world, name, true).await;
    }
    for name in gone {
        await_absence(&world.client, name, SOON).await.unwrap();
    }
    until(&world, moved, |node| topology(node) == labels("eastus-3")).await;

    // One that was made again is another machine: its Node goes, and the kubelet registers a new one.
    let former = machines.iter().find(|(name, ..)| name == again).unwrap().1.clone();
    await_absence(&world.client, again, SOON).await.unwrap();
    world.register([node(again)]).await;
    let found = initialised(&world, again).await;
    assert!(
        provider_id(&found).ends_with("/pool0-vmss/virtualMachines/4"),
        "{former}: {}",
        provider_id(&found)
    );

    for (name, _) in stopped {
        cloud.act(name, "start").await;
        set_ready(&world.client, name, "True").await;
        is_shut_down(&world, name, false).await;
    }
    passes(&run, 3).await;
    is_shut_down(&world, reimaged, false).await;
    let nodes = world.nodes().await;
    assert_eq!(nodes.len(), machines.len() + 1 - gone.len(), "no other Node is deleted");
    assert!(run.stop().await.success());
}
