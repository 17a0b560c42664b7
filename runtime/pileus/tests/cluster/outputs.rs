//! What a provider gives to Nodes: facts that a Node can't have, and what two Nodes can't both have.

use pileus_dev::nodes::{UNINITIALIZED, node};
use serde_json::json;

use crate::node::{addresses, taints};
use crate::world::World;

#[tokio::test]
async fn facts_that_a_node_cannot_have_are_left_out_and_the_rest_is_taken() {
    let world = World::new().await;
    let internal = |ip: &str| json!({"kind": "internal-ip", "value": ip});
    // The first address of the range of Services is that of the API server.
    let given = ["127.0.0.1", "169.254.169.254", "172.31.0.1", "10.1.0.1"].map(internal);
    world
        .cloud
        .create(json!({"name": "a", "type": "Server Auction", "labels": {"a b": "c"}, "addresses": given}))
        .await;
    let run = world.start().await;
    let mut history = world.history().await;
    world.register([node("a")]).await;
    let nodes = history.initialised(&["a"]).await;
    let internal = addresses(&nodes[0]).into_iter().filter(|(kind, _)| kind == "InternalIP");
    assert_eq!(internal.collect::<Vec<_>>(), [("InternalIP".to_owned(), "10.1.0.1".to_owned())]);
    let labels = nodes[0].metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get("topology.kubernetes.io/region").map(String::as_str), Some("sim-1"));
    assert!(!labels.contains_key("node.kubernetes.io/instance-type"));
    let event = world.event("a", "CloudFactsLeftOut").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let note = event.message.unwrap_or_default();
    for part in ["127.0.0.1", "169.254.169.254", "172.31.0.1: it is", "\"a b\"", "\"Server Auction\""] {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn the_second_node_of_an_instance_is_refused_until_the_first_is_gone() {
    let world = World::new().await;
    let id = world.cloud.create(json!({"name": "a"})).await;
    let run = world.start().await;
    let mut history = world.history().await;
    let own = format!("simulated://{id}");
    world.register([node("a").provider_id(&own)]).await;
    history.initialised(&["a"]).await;
    world.register([node("b").provider_id(&own)]).await;
    for name in ["a", "b"] {
        let event = world.event(name, "DuplicateProviderID").await;
        assert!(event.message.unwrap_or_default().contains(&own));
    }
    let refused = world.nodes().await.into_iter().find(|node| node.metadata.name.as_deref() == Some("b"));
    assert!(taints(&refused.unwrap()).contains(&UNINITIALIZED.to_owned()));
    kube::Api::<k8s_openapi::api::core::v1::Node>::all(world.client.clone())
        .delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    history.initialised(&["b"]).await;
    assert!(run.stop().await.success());
}
