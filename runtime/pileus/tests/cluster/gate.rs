//! `/debug/gate` shows limits and requests, and the log shows which reconcile a request belongs to.

use pileus_dev::nodes::{await_node, node};
use serde_json::json;

use crate::SOON;
use crate::node::is_uninitialised;
use crate::world::World;

#[tokio::test]
async fn the_page_of_the_gate_shows_its_limits_and_the_last_requests() {
    let world = World::new().await;
    world.cloud.create(json!({"name": "a"})).await;
    let run = world.start().await;
    world.register([node("a")]).await;
    await_node(&world.client, "a", |node| !is_uninitialised(node), SOON).await.unwrap();

    assert_eq!(run.page("/").await.body, "/livez\n/healthz\n/readyz\n/metrics\n/debug/gate\n");
    let json = run.page("/debug/gate.json").await.json();
    assert_eq!(json["provider"], "simulated");
    // Before it asked the cloud, the provider looked what the cache has.
    let requests = json["requests"].as_array().unwrap();
    let request = requests.iter().find(|request| request["from"] == "cloud").unwrap();
    let grant = format!("http://127.0.0.1:{}", world.cloud.port);
    for (field, expected) in [
        ("method", json!("GET")),
        ("grant", json!(grant)),
        ("effect", json!("read")),
        ("result", json!("ok")),
        ("status", json!(200)),
    ] {
        assert_eq!(request[field], expected, "{field}: {request:#}");
    }
    let url = request["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("{grant}/v1/")) && !url.contains('?'), "{url}");
    let limit = &json["limits"][0];
    let text = run.page("/debug/gate").await.body;
    for part in ["provider simulated, ", limit["key"].as_str().unwrap(), url] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let gauge = format!("pileus_gate_limit_tokens{{provider=\"simulated\",limit={}}}", limit["key"]);
    let metrics = run.page("/metrics").await.body;
    assert!(metrics.contains(&gauge), "{gauge}: {metrics}");
    // None has led before, so nothing of the limits can be spent.
    run.logged(&["limits start full"]).await;
    assert!(run.stop().await.success());
    let next = world.start().await;
    next.logged(&["limits start with what has flowed in", "predecessor_idle_s="]).await;
    assert!(next.stop().await.success());
}

#[tokio::test]
async fn the_log_shows_the_call_and_the_reconcile_of_a_request() {
    let mut world = World::new().await;
    world.flags = vec!["--log-filter", "info,pileus_gate=debug"];
    world.cloud.create(json!({"name": "a"})).await;
    let run = world.start().await;
    world.register([node("a")]).await;
    let line = run.logged(&["request to the cloud finished", "kind=Initialize"]).await;
    let spans = ["reconcile{controller=\"cloud-node\"", ":call{", ":cloud request{", ": pileus_gate::"];
    let places: Vec<_> =
        spans.iter().map(|span| line.find(span).unwrap_or_else(|| panic!("{span}: {line}"))).collect();
    assert!(places.is_sorted(), "{line}");
    for part in ["nodes=1", "provider=\"simulated\"", "function=\"lookup\"", "effect=\"read\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(run.stop().await.success());
}
