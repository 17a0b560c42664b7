//! A provider moves from one release to another while Pileus runs: its document is a file that is replaced.

use pileus_dev::nodes::{await_node, node};
use serde_json::{Value, json};

use crate::SOON;
use crate::node::is_uninitialised;
use crate::world::{Run, World, document};

/// A document for the provider that breaks one promise. A swap has no canary, and its release proves itself at once.
fn unruly(world: &World, breaks: &str, spec: &Value) -> Value {
    let endpoint = format!("http://127.0.0.1:{}", world.cloud.port);
    let grant =
        json!({"host": "127.0.0.1", "port": world.cloud.port, "tls": false, "addresses": ["127.0.0.1"]});
    let mut document =
        document("unruly-provider", &json!({"endpoint": endpoint, "breaks": breaks}), &json!([grant]));
    document["spec"]["swap"] = json!({"canary": {"share": 0}, "observe": "0s"});
    document["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    document
}

/// A cluster with two nodes that are initialised by a provider without defects.
async fn settled(world: &World) -> Run {
    for name in ["a", "b"] {
        world.cloud.create(json!({"name": name})).await;
    }
    world.register([node("a"), node("b")]).await;
    let run = world.start_with(&unruly(world, "nothing", &json!({}))).await;
    run.ready().await;
    for name in ["a", "b"] {
        await_node(&world.client, name, |node| !is_uninitialised(node), SOON).await.unwrap();
    }
    run
}

#[tokio::test]
async fn a_changed_document_takes_effect_and_nothing_is_written() {
    let world = World::new().await;
    let run = settled(&world).await;
    let (nodes, writes) = (world.nodes().await, world.cloud.writes().await);
    let mut served = Vec::new();
    // Of the releases before, only the last two are kept. None of the later ones is compiled again.
    for soft in ["9s", "8s", "7s", "6s"] {
        world.replace_document(&unruly(&world, "nothing", &json!({"deadlines": {"lookup": {"soft": soft}}})));
        let parts = ["release serves calls", "provider=unruly", r#"controllers="go on""#];
        served.push(run.logged_besides(&served, &parts).await);
    }
    assert!(run.is_well().await);
    assert_eq!(world.cloud.writes().await, writes);
    world.cloud.create(json!({"name": "c"})).await;
    world.register([node("c")]).await;
    await_node(&world.client, "c", |node| !is_uninitialised(node), SOON).await.unwrap();
    let unchanged = world.nodes().await.into_iter().filter(|node| node.metadata.name.as_deref() != Some("c"));
    assert_eq!(unchanged.collect::<Vec<_>>(), nodes);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_release_that_answers_otherwise_is_held_until_the_document_changes() {
    let world = World::new().await;
    let run = settled(&world).await;
    world.replace_document(&unruly(&world, "forgets-by-id", &json!({})));
    run.logged(&["is held: in the dry run it answered 2 lookups differently and wanted 0 writes"]).await;
    run.shows(200, "[+]provider-unruly ok: ", "is held").await;
    world.replace_document(&unruly(&world, "nothing", &json!({})));
    run.shows(200, "[+]provider-unruly ok", "").await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_document_that_is_invalid_leaves_the_former_one_in_use() {
    let world = World::new().await;
    let run = settled(&world).await;
    world.replace_document(&unruly(&world, "nothing", &json!({"deadline": {}})));
    run.logged(&["the document has changed and is invalid; the former one stays in use"]).await;
    world.replace_document(&unruly(&world, "everything", &json!({})));
    run.logged(&["does not run until the spec changes", "unknown variant"]).await;
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}
