//! Nodes join although the cloud is slow, busy, broken or stale, and Pileus sends no more requests than it should.

use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Run, World};

/// Starts Pileus with a grant for machines alone, so that the cloud hears of nothing else.
async fn start(world: &World) -> Run {
    let mut document = world.simulated(world.cloud.port);
    document["spec"]["grants"][0]["paths"] = json!(["/v1/machines"]);
    let run = world.start_with(&document).await;
    run.ready().await;
    run
}

#[tokio::test]
async fn a_node_joins_despite_every_fault_of_the_cloud() {
    let world = World::new().await;
    let mut history = world.history().await;
    // Each fault stays until it was met, and gives way to the next. A list that lags doesn't show the machine yet.
    world.cloud.set_faults(json!({"lag": {"listsMs": 300_000}})).await;
    world.cloud.create(json!({"name": "a"})).await;
    world.register([node("a")]).await;
    let run = start(&world).await;
    run.counted("pileus_node_lookup_answers_total", &[r#"answer="absent""#]).await;
    for (fault, outcome) in [
        (json!({"errors": {"share": 1, "status": 503}}), "error"),
        (json!({"lost": {"share": 1, "kinds": ["list", "get"]}}), "lost"),
        (json!({"throttle": {"share": 1, "retryAfterSeconds": 3}}), "throttled"),
    ] {
        world.cloud.set_faults(fault).await;
        world.cloud.await_list(outcome).await;
    }
    world.cloud.set_faults(json!({})).await;
    history.initialised(&["a"]).await;

    let reads = world.cloud.reads().await;
    let mut statuses: Vec<_> = reads.iter().map(|read| read["status"].as_u64()).collect();
    let at = |read: &Value| read["atMs"].as_u64().unwrap();
    // Nothing was asked again before the node's own turn came, nor before the cloud had said to come back.
    for (read, next) in reads.iter().zip(&reads[1..]) {
        let least = if read["status"] == 429 { 3_000 } else { 100 };
        assert!(at(next) >= at(read) + least, "{reads:#?}");
    }
    // None is an answer that was lost. On a slow machine one fault is met twice before the next has taken its place.
    statuses.dedup();
    assert_eq!(statuses, [Some(200), Some(503), None, Some(429), Some(200)]);
    let message = world.event("a", "CloudInitializationFailed").await.message.unwrap();
    assert!(message.starts_with("The node is not initialized yet: "), "{message}");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn two_hundred_nodes_at_once_take_at_most_two_lists() {
    const NODES: usize = 200;
    let world = World::new().await;
    let mut history = world.history().await;
    let there = world.cloud.create_many(NODES).await;
    world.register(there.iter().map(|name| node(name))).await;
    let run = start(&world).await;
    history.initialised(&there).await;
    assert_eq!(world.cloud.lists("ok").await, 1, "all of them were there at the start");

    // What joins during a lookup is gathered for the next one, so that a slow cloud is not asked more often.
    let new = world.cloud.create_many(NODES).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 3_000}})).await;
    let begun = Instant::now();
    world.register(new.iter().map(|name| node(name))).await;
    // One at once, one for those who came meanwhile; and one more each 3 s if it takes longer until they have come.
    let most = 2 + usize::try_from(begun.elapsed().as_secs() / 3).unwrap();
    history.initialised(&new).await;
    let lists = world.cloud.reads().await.split_off(1);
    let sweeps = lists.iter().filter(|list| !list["path"].as_str().unwrap().contains("name=")).count();
    // The first few may have gone out alone, by name.
    assert!(sweeps <= most && lists.len() - sweeps <= 3, "{lists:#?}");
    assert!(run.stop().await.success());
}

/// The event of a Node whose lookup had no answer names the request, and the metric doesn't count the call as ok.
async fn is_told(world: &World, run: &Run, node: &str, had_no_answer_for: &str) {
    let event = world.event(node, "CloudInitializationFailed").await;
    let message = event.message.unwrap();
    assert!(message.contains("GET http://127.0.0.1:") && message.contains("/v1/machines"), "{message}");
    assert!(message.contains(&format!("had no answer for {had_no_answer_for}")), "{message}");
    run.logged(&["node not initialized", "/v1/machines", "had no answer for"]).await;
    run.counted("pileus_provider_calls_total", &[r#"result="unanswered""#]).await;
    assert_eq!(run.metric("pileus_provider_calls_total", &[r#"result="ok""#]).await, 0);
}

#[tokio::test]
async fn a_node_joins_although_each_list_takes_longer_than_a_lookup() {
    let world = World::new().await;
    let mut history = world.history().await;
    world.cloud.create(json!({"name": "a"})).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 30_000}})).await;
    world.register([node("a")]).await;
    let run = start(&world).await;
    run.logged(&["starting controllers"]).await;
    let begun = Instant::now();
    // Fifteen seconds, less what the call took to begin.
    is_told(&world, &run, "a", "1").await;
    history.initialised(&["a"]).await;
    // The list of the first lookup serves a later one.
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_node_joins_with_deadlines_that_fit_a_slow_cloud() {
    let world = World::new().await;
    let mut history = world.history().await;
    world.cloud.create(json!({"name": "a"})).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 30_000}})).await;
    world.register([node("a")]).await;
    let mut document = world.simulated(world.cloud.port);
    document["spec"]["grants"][0]["paths"] = json!(["/v1/machines"]);
    document["spec"]["deadlines"] = json!({"lookup": {"soft": "60s", "hard": "1m30s"}});
    let run = world.start_with(&document).await;
    run.ready().await;
    history.initialised(&["a"]).await;
    assert_eq!(world.cloud.lists("ok").await, 1, "no lookup was given up");
    assert!(world.events("a").await.iter().all(|event| event.reason.as_deref() == Some("Synced")));
    assert!(run.stop().await.success());
}
