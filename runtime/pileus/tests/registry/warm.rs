//! `pileus warm`: what a start then finds, and what it says where it can't leave that behind.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::Bench;

#[tokio::test]
async fn a_warm_start_needs_neither_compiler_nor_registry() {
    let mut bench = Bench::new();
    let alice = bench.key_pair("alice");
    let digest = bench.push("prov:1").await;
    bench.sign(&alice, "prov", &digest, &[]);
    let at = bench.at("prov:1");
    let warm = ["warm", &at, "--key", "alice.pub", "--store", "store", "--compiled-code", "code"];
    let first = bench.object(&warm).await;
    assert_eq!((&first["code"]["from"], &first["digest"]), (&json!("compiler"), &json!(digest)));
    assert_eq!(first["trust"], json!({"by": "signatures", "keys": ["alice"]}));
    assert_eq!(bench.succeed(&warm).await, format!("{at}@{digest}\nsigned by alice; was compiled already\n"));
    assert!(bench.path("store/components").read_dir().unwrap().count() == 1);
    // Until the start pins it, nothing that shares the store evicts it.
    let pins: Vec<_> = bench.path("store/pins").read_dir().unwrap().collect();
    let pin: Value =
        serde_json::from_slice(&std::fs::read(pins[0].as_ref().unwrap().path()).unwrap()).unwrap();
    assert_eq!(
        (pins.len(), &pin["owner"], &pin["digests"]),
        (1, &json!(format!("warm {at}")), &json!([digest]))
    );
    assert!(pin["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());

    bench.registry.stop();
    let said = bench.call(&warm).await;
    assert_eq!(
        (said.code, said.stdout),
        (Some(0), format!("{at}@{digest}\nsigned by alice; was compiled already\n"))
    );
    assert!(said.stderr.contains("can't reach") && said.stderr.contains("from the store"), "{}", said.stderr);
    // What the store has is verified with the policy of today.
    bench.key_pair("eve");
    let with_eve = ["warm", &at, "--key", "eve.pub", "--store", "store", "--compiled-code", "code"];
    bench.refusal(&with_eve, 8, &["matches no key in the trust policy"]).await;
    let without_store = ["warm", &at, "--key", "alice.pub", "--store", "other", "--compiled-code", "code"];
    bench.refusal(&without_store, 6, &["can't reach"]).await;
    // A damaged component is missing, and never used.
    let component = bench.path("store/components").read_dir().unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&component).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&component, bytes).unwrap();
    bench.refusal(&warm, 6, &["can't reach"]).await;
}

#[tokio::test]
async fn folders_that_can_not_be_used_are_named() {
    let bench = Bench::new();
    let digest = bench.push("prov:1").await;
    let by_digest = bench.at(&format!("prov@{digest}"));
    std::fs::create_dir(bench.path("open")).unwrap();
    std::fs::set_permissions(bench.path("open"), Permissions::from_mode(0o777)).unwrap();
    let warm = |store, code| ["warm", &*by_digest, "--store", store, "--compiled-code", code];
    let parts = ["can't use the folder of --compiled-code: open: others can write to it"];
    bench.refusal(&warm("store", "open"), 1, &parts).await;
    bench.refusal(&warm("open", "code"), 1, &["can't open open in the store"]).await;
    let mut command = bench.command(&["pull", &by_digest]);
    let said = super::output({
        command.env_remove("HOME");
        command
    })
    .await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("pass --store FOLDER"), "{said:?}");
}
