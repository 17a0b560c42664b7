//! Pileus waits for an API server that restarts or isn't running yet, and `/readyz` says so.

use pileus_dev::nodes::node;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn readyz_fails_while_the_api_server_restarts_and_pileus_recovers() {
    let mut world = World::new().await;
    // A leader that can't renew its Lease ends.
    world.flags = vec!["--leader-elect=false"];
    for name in ["before", "after"] {
        world.cloud.create(json!({"name": name})).await;
    }
    let mut history = world.history().await;
    let run = world.start().await;
    world.register([node("before")]).await;
    history.initialised(&["before"]).await;

    world.kubernetes.stop_api_server().await.unwrap();
    let said = run.unready("[-]node-watch failed: the watch of nodes is interrupted").await;
    assert!(said.contains("[+]provider-simulated ok"), "{said}");
    run.logged(&["WARN", "watch interrupted; trying again", "nodes"]).await;
    assert!(run.is_alive().await, "a restart of Pileus would not help");

    world.kubernetes.start_api_server().await.unwrap();
    run.ready().await;
    world.register([node("after")]).await;
    history.initialised(&["after"]).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn pileus_waits_for_an_api_server_that_is_not_running_yet() {
    let mut world = World::new().await;
    // A leader that can't renew its Lease ends.
    world.flags = vec!["--leader-elect=false"];
    world.cloud.create(json!({"name": "a"})).await;
    let mut history = world.history().await;
    world.register([node("a")]).await;
    world.kubernetes.stop_api_server().await.unwrap();

    let run = world.start_with(&world.simulated(world.cloud.port)).await;
    let said = run.unready("the watch of nodes is interrupted").await;
    assert!(said.contains("onnect"), "says what is wrong with the connection: {said}");
    run.logged(&["WARN", "watch interrupted; trying again", "nodes"]).await;
    assert!(run.is_alive().await);

    world.kubernetes.start_api_server().await.unwrap();
    run.ready().await;
    history.initialised(&["a"]).await;
    assert!(run.stop().await.success());
}
