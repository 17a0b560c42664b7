//! Releases with a defect that only one step of a swap can find: the check, the dry run, the canary, or the time after the
//! switch. Each stops there or is rolled back, and no node and no Service notices.

use pileus_dev::nodes::node;
use serde_json::json;

use super::{Delivery, condition, is_rejected};
use crate::cloud::Object;
use crate::service;

#[tokio::test]
async fn a_release_for_another_contract_stops_at_the_check() {
    let (delivery, run, active) = Delivery::running().await;
    delivery.changed_component("other", |bytes| {
        let name = b"pileus:provider/";
        let interfaces: Vec<_> =
            bytes.windows(name.len()).enumerate().filter(|(_, found)| found == name).map(|it| it.0).collect();
        for begin in interfaces {
            let version = begin + bytes[begin..].iter().position(|byte| *byte == b'@').unwrap() + 1;
            assert_eq!(bytes[version..version + 5], *b"0.2.0");
            bytes[version + 2] = b'7';
        }
    });
    let digest = delivery.release_file("other.wasm", "stable");
    let status = delivery.until("rejected", is_rejected).await;
    let rejected = &status["rejected"][0];
    assert_eq!(rejected["release"]["component"], digest);
    let why = rejected["why"].as_str().unwrap();
    assert!(why.contains("speaks pileus:provider@0.7.0, this host accepts 0.2.x"), "{why}");
    assert_eq!(status["active"]["release"], active);
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_release_ten_times_slower_stops_in_the_canary_and_one_that_fails_only_after_the_switch_is_rolled_back()
 {
    let (delivery, run, active) = Delivery::running().await;
    delivery.register_silent().await;
    // Long enough that a busy machine changes little about it.
    delivery.world.cloud.set_faults(json!({"latency": {"fixedMs": 50}})).await;
    let mut slow = delivery.spec("slow");
    slow["swap"]["canary"]["duration"] = json!("5m");
    delivery.apply(slow).await;
    let status = delivery.until("rejected", is_rejected).await;
    let why = status["rejected"][0]["why"].as_str().unwrap();
    assert!(why.starts_with("rejected as canary: half of the calls for lookups ended within "), "{why}");
    assert_eq!(status["active"]["release"], active);
    assert_eq!(condition(&status, "Ready").0, "True");
    delivery.world.cloud.set_faults(json!({})).await;
    let nodes = delivery.world.nodes().await;

    // All nodes have provider IDs until the switch, so neither the dry run nor the canary looks one up by its name.
    delivery.apply(delivery.spec("fails-by-name")).await;
    delivery
        .until("active", |status| status["active"]["release"] != active && !status["observing"].is_null())
        .await;
    assert_eq!(delivery.world.nodes().await, nodes, "no node notices");
    let names = delivery.create_machines("new").await;
    delivery.world.register(names.iter().map(|name| node(name))).await;
    let status = delivery.until("rolled back", |status| status["active"]["release"] == active).await;
    let why = status["active"]["why"].as_str().unwrap();
    assert!(why.contains("rolled back: ") && why.contains("lookups and changes failed"), "{why}");
    let event = delivery.world.event("unruly", "ProviderRolledBack").await;
    assert!(event.message.unwrap().contains("lookups and changes failed"));
    delivery.initialised(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let after = delivery.world.nodes().await;
    assert!(nodes.iter().all(|node| after.contains(node)), "no other node notices");
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_release_that_would_delete_a_load_balancer_is_held_by_the_dry_run() {
    let (delivery, run, active) = Delivery::running().await;
    service::create(&delivery.world, "web", json!({"ports": [{"port": 80}]})).await;
    delivery.world.event("web", "EnsuredLoadBalancer").await;
    let balancers = delivery.world.cloud.all(Object::LoadBalancer).await.unwrap();
    let writes = delivery.world.cloud.writes().await;
    delivery.apply(delivery.spec("lists-other-owners")).await;
    let status = delivery.until("held", |status| status["candidate"]["phase"]["name"] == "held").await;
    let differences = &status["candidate"]["differences"];
    assert_eq!((&differences["lookups"], &differences["writes"]), (&json!(0), &json!(1)), "{differences:#}");
    let shown = differences["shown"][0].as_str().unwrap();
    assert!(shown.starts_with("delete load balancer "), "{shown}");
    assert_eq!(status["active"]["release"], active);
    assert_eq!(delivery.world.cloud.writes().await, writes);
    assert_eq!(delivery.world.cloud.all(Object::LoadBalancer).await.unwrap(), balancers);
    let event = delivery.world.event("unruly", "ProviderHeld").await;
    assert!(event.message.unwrap().contains("delete load balancer "));
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
