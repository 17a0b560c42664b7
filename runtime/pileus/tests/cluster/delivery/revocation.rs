//! What the operator takes out of the document ends at once.

use pileus_dev::nodes::node;
use serde_json::json;

use super::Delivery;

#[tokio::test]
async fn a_removed_grant_ends_while_swaps_are_paused_and_the_new_settings_become_active() {
    let delivery = Delivery::new().await;
    let digest = delivery.release("only", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let run = delivery.world.start_with_resources("store").await;
    let active = delivery.active(&digest).await["active"]["release"].clone();
    delivery.initialised(&["a", "b"]).await;
    assert_eq!(delivery.operate("pause").await.code, Some(0));
    let before =
        delivery.until("paused", |status| status["paused"] == true).await["observedGeneration"].as_u64();

    // The next swap follows soon.
    let mut spec = delivery.spec("nothing");
    spec["swap"]["observe"] = json!("1s");
    let mut without_grants = spec.clone();
    without_grants["grants"] = json!([]);
    delivery.apply(without_grants).await;
    for name in ["c", "d"] {
        delivery.world.cloud.create(json!({"name": name})).await;
    }
    delivery.until("observed", |status| status["observedGeneration"].as_u64() > before).await;
    let reads = delivery.world.cloud.reads().await.len();
    delivery.world.register([node("c")]).await;
    let message = delivery.world.event("c", "CloudInitializationFailed").await.message.unwrap();
    assert!(message.contains("no grant names this endpoint"), "{message}");
    assert_eq!(delivery.world.cloud.reads().await.len(), reads, "nothing reaches the cloud any more");
    let status = delivery.until("paused", |status| status["paused"] == true).await;
    assert_eq!(status["active"]["release"], active);

    // The component is the same, so that it asks for a host without a grant is no reason to refuse the new settings.
    assert_eq!(delivery.operate("resume").await.code, Some(0));
    let is_new = |status: &serde_json::Value| status["active"]["release"]["settings"] != active["settings"];
    let status = delivery.until("the new settings are active", is_new).await;
    assert_eq!(status["active"]["release"]["component"], digest);

    delivery.apply(spec).await;
    delivery.world.register([node("d")]).await;
    delivery.initialised(&["c", "d"]).await;
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
