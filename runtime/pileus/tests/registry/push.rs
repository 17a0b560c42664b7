//! What `pileus push` makes of a component, and what it refuses before anything is sent.

use serde_json::{Value, json};

use super::Bench;

#[tokio::test]
async fn a_provider_is_pushed_in_the_cncfs_format_and_has_one_digest() {
    let bench = Bench::new();
    let at = bench.at("example/simulated:1.2");
    let printed = bench.succeed(&["push", "p.wasm", &at]).await;
    let digest = bench.push("example/simulated:1.2").await;
    assert_eq!(printed, format!("{at}@{digest}\n"), "pushing it again changes nothing");
    assert_eq!(bench.push("other/name:x").await, digest, "nor does another place");

    let manifest = bench.oras(&["manifest", "fetch", "--plain-http", &at]);
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(manifest["layers"][0]["mediaType"], "application/wasm");
    let annotation = |name: &str| manifest["annotations"][format!("org.opencontainers.image.{name}")].clone();
    assert_eq!((annotation("title"), annotation("version")), (json!("simulated"), json!("0.1.0")));
    let description = annotation("description");
    assert!(
        description.as_str().is_some_and(|text| text.contains("instances, local-instance, load-balancers")),
        "{description}"
    );

    // oras reads the bytes, and the interfaces that a registry may show.
    let blob = |part: &Value| bench.at(&format!("example/simulated@{}", part["digest"].as_str().unwrap()));
    bench.oras(&["blob", "fetch", "--plain-http", "-o", "back.wasm", &blob(&manifest["layers"][0])]);
    let [pushed, back] = ["p.wasm", "back.wasm"].map(|name| std::fs::read(bench.path(name)).unwrap());
    assert!(pushed == back, "the bytes differ");
    let config = bench.oras(&["blob", "fetch", "--plain-http", "-o", "-", &blob(&manifest["config"])]);
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!((&config["os"], &config["architecture"]), (&json!("wasip2"), &json!("wasm")));
    let exports = config["component"]["exports"].as_array().unwrap();
    assert!(exports.contains(&json!("pileus:provider/info@0.2.0")), "{config}");
}

#[tokio::test]
async fn what_is_not_a_provider_is_refused_before_anything_is_sent() {
    let bench = Bench::new();
    std::fs::write(bench.path("script.wasm"), "#!/bin/sh").unwrap();
    std::fs::write(bench.path("tool.wasm"), wat::parse_str("(component)").unwrap()).unwrap();
    let at = bench.at("p:1");
    bench.refusal(&["push", "script.wasm", &at], 3, &["script.wasm", "this is not WebAssembly"]).await;
    bench.refusal(&["push", "tool.wasm", &at], 3, &["tool.wasm", "not a provider"]).await;
    bench.refusal(&["push", "none.wasm", &at], 2, &["can't read the component none.wasm"]).await;
    let pinned = format!("{at}@sha256:{}", "0".repeat(64));
    for (reference, expected) in [
        (pinned.as_str(), "a push needs a tag and no digest"),
        ("localhost:5000/p", "it has no version"),
        ("provider:1", "docker.io/NAME:TAG"),
    ] {
        bench.refusal(&["push", "p.wasm", reference], 2, &[expected]).await;
    }
    bench.refusal(&["verify", &at, "--insecure"], 6, &["does not exist"]).await;
    // No registry listens there.
    bench.refusal(&["push", "p.wasm", "127.0.0.1:1/p:1"], 6, &["can't reach 127.0.0.1:1"]).await;
}
