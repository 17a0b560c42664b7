//! `pileus inspect` of a reference: the component as of a file, and what the registry has beside it.

use pileus_dev::registry::cosign;
use serde_json::{Value, json};

use super::Bench;

#[tokio::test]
async fn a_reference_is_inspected_with_its_signatures_and_attachments() {
    let bench = Bench::new();
    let (alice, bob) = (bench.key_pair("alice"), bench.key_pair("bob"));
    let digest = bench.push("prov:1").await;
    let (at, by_digest) = (bench.at("prov:1"), bench.at(&format!("prov@{digest}")));
    bench.sign(&alice, "prov", &digest, &[]);
    bench.sign(&bob, "prov", &digest, &["--new-bundle-format=false"]);
    std::fs::write(bench.path("sbom.json"), "{}").unwrap();
    bench.oras(&["attach", "--plain-http", "--artifact-type", "application/spdx+json", &at, "sbom.json"]);
    std::fs::write(bench.path("slsa.json"), r#"{"buildDefinition": {}, "runDetails": {}}"#).unwrap();
    let attest = [
        "attest",
        "--yes",
        "--key",
        &alice,
        "--use-signing-config=false",
        "--tlog-upload=false",
        "--allow-insecure-registry",
        "--type",
        "slsaprovenance1",
        "--predicate",
        "slsa.json",
        &by_digest,
    ];
    cosign(bench.folder(), &attest);

    let object = bench.object(&["inspect", &at, "--key", "alice.pub"]).await;
    let file = bench.object(&["inspect", "p.wasm"]).await;
    for field in ["digest", "sizeBytes", "contract", "capabilities", "provider", "exports", "imports"] {
        assert_eq!(object[field], file[field], "{field}");
    }
    assert_eq!(
        (&file["artifact"], &file["file"], &object["file"]),
        (&Value::Null, &json!("p.wasm"), &Value::Null)
    );
    let found = &object["artifact"];
    assert_eq!(found["reference"], format!("{at}@{digest}"));
    assert_eq!((&found["tag"], &found["digest"]), (&json!("1"), &json!(digest)));
    assert_eq!(found["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(found["configMediaType"], "application/vnd.wasm.config.v0+json");
    let component =
        json!({"mediaType": "application/wasm", "digest": file["digest"], "sizeBytes": file["sizeBytes"]});
    assert_eq!(found["component"], component);
    assert_eq!(found["trust"], json!({"by": "signatures", "keys": ["alice"]}));
    assert_eq!(found["annotations"]["org.opencontainers.image.version"], "0.1.0");
    let signatures = found["signatures"].as_array().unwrap();
    assert_eq!(signatures[0], json!({"layout": "bundle", "key": "alice", "problem": null}));
    assert_eq!((&signatures[1]["layout"], &signatures[1]["key"]), (&json!("tag"), &Value::Null));
    assert!(signatures[1]["problem"].as_str().unwrap().contains("matches no key"), "{found}");
    assert_eq!(signatures.len(), 2, "the attestation is not a signature: {found}");
    let kinds: Vec<_> = found["attachments"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert!(
        kinds.len() == 2 && kinds.contains(&&json!("sbom")) && kinds.contains(&&json!("provenance")),
        "{found}"
    );

    let text = bench.succeed(&["inspect", &at, "--key", "bob.pub"]).await;
    for part in [
        &*format!("  reference           {at}@{digest}"),
        "  tag                 1",
        "  trust               signed by bob",
        "manifest application/vnd.oci.image.manifest.v1+json",
        "component application/wasm",
        "tag: by key bob",
        "bundle: doesn't count: one matches no key",
        "sbom application/spdx+json, sha256:",
        "provenance https://slsa.dev/provenance/v1, sha256:",
        "pileus:provider@0.2.0 (this host accepts 0.2.x)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = bench.succeed(&["inspect", &at, "--insecure"]).await;
    assert!(text.contains("bundle: not verified; pass --key FILE"), "{text}");
    bench.refusal(&["inspect", "p.wasm", "--key", "bob.pub"], 2, &["can't be checked for a file"]).await;
    bench.refusal(&["inspect", "p.wasm", "--digest", &digest], 8, &["it is not the pinned one"]).await;
    let pinned = file["digest"].as_str().unwrap();
    bench.succeed(&["inspect", "p.wasm", "--digest", pinned]).await;
}

/// An attestation by a key doesn't approve what it is about.
#[tokio::test]
async fn an_attestation_is_no_signature() {
    let bench = Bench::new();
    let alice = bench.key_pair("alice");
    let digest = bench.push("prov:1").await;
    std::fs::write(bench.path("bad.json"), r#"{"verdict": "do not run"}"#).unwrap();
    for (layout, name) in [("--new-bundle-format=true", "bundle"), ("--new-bundle-format=false", "tag")] {
        let by_digest = bench.at(&format!("prov@{digest}"));
        let attest = [
            "attest",
            "--yes",
            "--key",
            &alice,
            "--use-signing-config=false",
            "--tlog-upload=false",
            "--allow-insecure-registry",
            "--type",
            "custom",
            "--predicate",
            "bad.json",
            layout,
            &by_digest,
        ];
        cosign(bench.folder(), &attest);
        bench
            .refusal(&["verify", &bench.at("prov:1"), "--key", "alice.pub"], 8, &["it has no signature"])
            .await;
        let found = bench.object(&["inspect", &by_digest]).await["artifact"].clone();
        let attachments = found["attachments"].as_array().unwrap();
        assert!(attachments.iter().any(|one| one["kind"] == "attestation"), "{name}: {found}");
        assert_eq!(found["signatures"], json!([]), "{name}");
    }
}
