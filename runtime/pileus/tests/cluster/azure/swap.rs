//! The provider moves to another release of itself while Nodes join, are compared with their machines, and get routes.

use pileus_dev::artifact;
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cloud::Cloud;
use super::{has_routes, initialised, range, start, with_range, world};
use crate::SOON;
use crate::world::Run;

/// The Nodes that are there before.
const SETTLED: usize = 20;

/// The document for the component with a mark that makes its digest another one.
fn release(cloud: &Cloud, mark: &str) -> Value {
    let mut document = cloud.document();
    let component = cloud.file(&format!("{mark}.wasm"), artifact::rebuilt("azure-provider", mark).unwrap());
    document["spec"]["source"] = json!({"file": component});
    document["spec"]["swap"] = json!({"canary": {"share": 50, "duration": "3s"}, "observe": "3s"});
    document
}

/// The calls of the provider that ended otherwise than well.
async fn failed_calls(run: &Run) -> u64 {
    let name = "pileus_provider_calls_total";
    run.metric(name, &[]).await - run.metric(name, &[r#"result="ok""#]).await
}

#[tokio::test]
async fn the_provider_moves_to_another_release_while_nodes_join() {
    let (mut world, cloud) = tokio::join!(world(), Cloud::start());
    let names = cloud.create("uniform", 80, "pool").await;
    world.flags.retain(|flag| !flag.contains("node-status-update-frequency"));
    world.flags.push("--node-status-update-frequency=1s");
    let run = start(&world, &release(&cloud, "first")).await;
    world.register(names[..SETTLED].iter().enumerate().map(|(number, name)| with_range(name, number))).await;
    for name in &names[..SETTLED] {
        has_routes(&world, name).await;
    }
    let settled = world.nodes().await;
    let (lookups, lookup) = (["function=\"lookup\"", "result=\"ok\""], "pileus_provider_calls_total");
    let before = run.metric(lookup, &lookups).await;

    let known = run.log();
    world.replace_document(&release(&cloud, "second"));
    // Nodes join one after the other until the new release answers all calls.
    let mut joined = SETTLED;
    let begun = Instant::now();
    let serves = |line: &String| line.contains("release serves calls") && !known.contains(line);
    while !run.log().iter().any(serves) {
        assert!(
            joined < names.len() - 1 && begun.elapsed() < SOON,
            "the release never serves: {joined} joined"
        );
        world.register([with_range(&names[joined], joined)]).await;
        has_routes(&world, &names[joined]).await;
        joined += 1;
    }
    run.logged(&["share of the lookups that the candidate answers", "share=50"]).await;
    world.register([node(&names[joined])]).await;
    initialised(&world, &names[joined]).await;

    assert!(joined > SETTLED + 1, "Nodes joined meanwhile");
    assert!(run.metric(lookup, &lookups).await > before);
    assert_eq!(failed_calls(&run).await, 0);
    let nodes = world.nodes().await;
    let unchanged = nodes.iter().filter(|node| settled.contains(node)).count();
    assert_eq!(unchanged, SETTLED, "no settled Node notices");
    cloud.routes_are(&(0..joined).map(range).collect::<Vec<_>>()).await;
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
