//! A provider that misbehaves, or requests more than it is granted, harms neither the process nor the cluster, and the
//! operator sees what is wrong.

use pileus_dev::nodes::{await_node, node};
use serde_json::json;

use crate::SOON;
use crate::node::is_uninitialised;
use crate::world::{World, document};

#[tokio::test]
async fn a_provider_that_loops_or_traps_hurts_neither_pileus_nor_the_cluster() {
    let world = World::new().await;
    world.cloud.create(json!({"name": "a"})).await;
    let registered = world.register([node("a")]).await;
    for (behaviour, result, said) in
        [("loop", "cpu", "stopped after 2000 ms of CPU time"), ("trap", "trap", "trapped: ")]
    {
        let run = world
            .start_with(&document("hostile-provider", &json!({"behaviour": behaviour}), &json!([])))
            .await;
        run.ready().await;
        let labels = [r#"function="lookup""#, &format!(r#"result="{result}""#)];
        run.counted("pileus_provider_calls_total", &labels).await;
        run.logged(&["WARN", "node=a", "not initialized", said]).await;
        let message = world.event("a", "CloudInitializationFailed").await.message.unwrap();
        assert!(message.contains("provider hostile: lookup "), "{message}");
        assert!(run.is_well().await, "{behaviour}");
        assert!(run.stop().await.success(), "{behaviour}");
        assert_eq!(world.nodes().await, registered, "{behaviour}");
    }

    let run = world.start().await;
    await_node(&world.client, "a", |node| !is_uninitialised(node), SOON).await.unwrap();
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_host_without_a_grant_is_not_reached_and_the_operator_learns_what_to_grant() {
    let world = World::new().await;
    world.cloud.create(json!({"name": "a"})).await;
    let registered = world.register([node("a")]).await;
    let run = world.start_with(&world.simulated(world.cloud.port - 1)).await;
    let port = world.cloud.port.to_string();
    let endpoint = format!("http://127.0.0.1:{port}");
    run.logged(&["WARN", "requests a host without a grant", &endpoint]).await;
    let advice = format!("add a grant with `tls: false`, `host: \"127.0.0.1\"` and `port: {port}`");
    run.logged(&["WARN", "isn't granted to provider simulated", &advice]).await;
    let message = world.event("a", "CloudInitializationFailed").await.message.unwrap();
    assert!(message.contains(&endpoint) && message.contains(&advice), "{message}");
    run.counted("pileus_gate_requests_total", &[r#"result="denied""#]).await;
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
    assert_eq!(world.cloud.reads().await, Vec::<serde_json::Value>::new());
    assert_eq!(world.nodes().await, registered);
}
