//! Each Service gets its load balancer as soon as the cloud allows, and no second one, although the cloud refuses,
//! fails late, loses answers or has other writers.

use std::time::Duration;

use pileus_dev::kubernetes::Options;
use serde_json::json;
use tokio::time;

use crate::service::{Style, change, create, delete, document, join, settles, stays};
use crate::world::{Run, World};

/// How long operations take that can fail late.
const SLOW: u64 = 200;

#[tokio::test]
async fn each_service_gets_its_own_load_balancer_despite_every_fault() {
    whatever_the_cloud_does(Style::PerService).await;
}

#[tokio::test]
async fn each_service_gets_its_part_of_a_shared_load_balancer_despite_every_fault() {
    whatever_the_cloud_does(Style::Shared).await;
}

async fn whatever_the_cloud_does(style: Style) {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--leader-elect=false"];
    join(&world, &["a", "b"]).await;
    let run = world.start_with(&document(&world, style)).await;
    run.ready().await;
    create(&world, "kept", json!({})).await;
    create(&world, "removed-0", json!({})).await;
    settles(&world).await;
    let operations = |late: u64| json!({"takesMs": SLOW, "jitterMs": SLOW, "lateFailures": {"next": late}});
    let writes = json!(["create", "change", "delete"]);
    let all = json!(["list", "get", "create", "change", "delete"]);
    // Those that count down end by themselves. One whose operations last would be asked for ever.
    let faults = [
        (json!({"operations": operations(0)}), None),
        (json!({"operations": operations(4)}), Some("SyncLoadBalancerFailed")),
        (json!({"operations": operations(1), "preconditions": {"next": 12}}), None),
        (json!({"lost": {"next": 5, "kinds": writes}}), None),
        (json!({"lost": {"share": 0.4, "kinds": all}, "operations": operations(1)}), None),
        (json!({"throttle": {"share": 1, "retryAfterSeconds": 1, "kinds": writes}}), Some("throttled")),
        (json!({"errors": {"share": 1, "status": 500, "kinds": all}}), Some("SyncLoadBalancerFailed")),
        (
            json!({"errors": {"share": 0.5, "status": 503, "kinds": writes}, "operations": operations(1)}),
            None,
        ),
    ];
    for (round, (faults, met)) in faults.iter().enumerate() {
        // Faults that last until they are ended, and how the cloud counts them.
        let outcomes = [("throttle", "throttled"), ("errors", "error"), ("lost", "lost")];
        let lasting = outcomes.iter().find(|(fault, _)| faults.get(fault).is_some());
        let before = world.cloud.ended(lasting.map_or("ok", |(_, outcome)| *outcome)).await;
        world.cloud.set_faults(faults.clone()).await;
        let (new, old) = (format!("removed-{}", round + 1), format!("removed-{round}"));
        create(&world, &new, json!({"ports": [{"port": 81 + round}]})).await;
        change(&world, "kept", json!({"spec": {"ports": [{"port": 81 + round}]}})).await;
        delete(&world, &old).await;
        meets(&world, &run, *met, &new).await;
        // What is refused for as long as the fault is there, is done when it isn't.
        if let Some((_, outcome)) = lasting {
            // Half of all writes may fail without one of these few: each change is a new chance.
            let mut port = 1000;
            while world.cloud.ended(outcome).await <= before {
                port += 1;
                change(&world, "kept", json!({"spec": {"ports": [{"port": port}]}})).await;
                time::sleep(Duration::from_millis(100)).await;
            }
            world.cloud.set_faults(json!({})).await;
        }
        settles(&world).await;
    }
    world.cloud.set_faults(json!({})).await;
    stays(&world, style).await;
    assert!(run.stop().await.success());
}

/// Waits until a fault has shown.
async fn meets(world: &World, run: &Run, met: Option<&str>, service: &str) {
    match met {
        None => {}
        Some("throttled") => run.counted("pileus_service_changes_total", &[r#"result="throttled""#]).await,
        Some(reason) => drop(world.event(service, reason).await),
    }
}

#[tokio::test]
async fn concurrent_writes_of_others_to_a_shared_load_balancer_are_kept() {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--leader-elect=false"];
    join(&world, &["a"]).await;
    let run = world.start_with(&document(&world, Style::Shared)).await;
    run.ready().await;
    // Half of all guarded writes come too late, while Services come and go.
    world.cloud.set_faults(json!({"preconditions": {"share": 0.5}, "operations": {"takesMs": SLOW}})).await;
    for number in 0..20 {
        create(&world, &format!("x-{number}"), json!({})).await;
        if number % 3 == 2 {
            delete(&world, &format!("x-{}", number - 1)).await;
        }
    }
    settles(&world).await;
    world.cloud.set_faults(json!({})).await;
    world.event("x-0", "EnsuredLoadBalancer").await;
    stays(&world, Style::Shared).await;
    assert!(run.stop().await.success());
}
