//! The store of the API server is restored from a backup while Pileus runs: resource versions go back, and watches that
//! begin in the future are silent; or they are raised, and all watches begin again.

use std::path::Path;
use std::time::Duration;

use pileus_dev::nodes::node;
use pileus_dev::{Error, Kubernetes};
use serde_json::json;
use tempfile::TempDir;
use tokio::time;

use crate::SOON;
use crate::cloud::Object;
use crate::service::{Style, change, create, document, get, is_served, join, until};
use crate::world::World;

#[tokio::test]
async fn a_restored_backup_is_noticed_and_nothing_is_deleted_on_it() {
    is_noticed_and_nothing_is_deleted(Kubernetes::restore).await;
}

#[tokio::test]
async fn a_backup_that_is_restored_with_raised_versions_is_noticed_as_well() {
    is_noticed_and_nothing_is_deleted(Kubernetes::restore_raised).await;
}

async fn is_noticed_and_nothing_is_deleted(
    restore: impl AsyncFnOnce(&mut Kubernetes, &Path) -> Result<(), Error>,
) {
    let mut world = World::new().await;
    // A leader that can't renew its Lease ends.
    world.flags = vec!["--leader-elect=false"];
    join(&world, &["a"]).await;
    create(&world, "old", json!({})).await;
    let backup = TempDir::new().unwrap();
    world.kubernetes.back_up(backup.path()).await.unwrap();
    let run = world.start_with(&document(&world, Style::PerService)).await;
    run.ready().await;
    until(&world, "old", is_served).await;
    create(&world, "new", json!({})).await;
    until(&world, "new", is_served).await;
    // More versions than those that the restored store will have soon.
    for count in 0..300 {
        change(&world, "new", json!({"metadata": {"annotations": {"count": count.to_string()}}})).await;
    }
    assert_eq!(world.cloud.all(Object::LoadBalancer).await.unwrap().len(), 2);

    restore(&mut world.kubernetes, backup.path()).await.unwrap();
    assert!(get(&world, "new").await.is_none());
    change(&world, "old", json!({"spec": {"ports": [{"port": 8443}]}})).await;
    world.cloud.create(json!({"name": "late"})).await;
    let mut history = world.history().await;
    world.register([node("late")]).await;
    let works = async {
        run.logged(&["WARN", "store went back to an older state"]).await;
        history.initialised(&["late"]).await;
        until(&world, "old", is_served).await;
        loop {
            let all = world.cloud.all(Object::LoadBalancer).await.unwrap();
            if all.iter().any(|one| one.to_string().contains("8443")) {
                return;
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    // A watch that nothing interrupts lasts longer.
    time::timeout(SOON, works).await.expect("it works again");
    for kind in ["services", "nodes"] {
        assert!(run.metric("pileus_api_server_rollbacks_total", &[kind]).await > 0, "{kind}");
    }
    run.shows(200, "[+]service-watch ok", "nothing is deleted from the cloud").await;
    // Long enough for reads and lists that would find that the Service is missing.
    time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.cloud.all(Object::LoadBalancer).await.unwrap().len(), 2);
    assert!(run.stop().await.success());
}
