//! By what a component is trusted, and why one isn't: each refusal is a message of its own.

use serde_json::json;

use super::Bench;

#[tokio::test]
async fn signatures_of_both_layouts_are_verified_by_the_keys_that_are_given() {
    let bench = Bench::new();
    let (alice, bob) = (bench.key_pair("alice"), bench.key_pair("bob"));
    bench.key_pair("eve");
    let digest = bench.push("prov:1").await;
    let at = bench.at("prov:1");
    let verify = |more: &[&'static str]| -> Vec<&str> { [&["verify", at.as_str()][..], more].concat() };
    bench.refusal(&verify(&["--key", "alice.pub"]), 8, &["it has no signature", "cosign sign"]).await;

    bench.sign(&alice, "prov", &digest, &[]);
    let pinned = format!("{at}@{digest}");
    assert_eq!(bench.succeed(&verify(&["--key", "alice.pub"])).await, format!("{pinned}\nsigned by alice\n"));
    let object = bench.object(&verify(&["--key", "release=alice.pub"])).await;
    let trust = json!({"by": "signatures", "keys": ["release"]});
    assert_eq!(object, json!({"reference": pinned, "digest": digest, "trust": trust}));
    bench.refusal(&verify(&["--key", "eve.pub"]), 8, &["one matches no key in the trust policy"]).await;
    let both = ["--key", "alice.pub", "--key", "bob.pub", "--threshold", "2"];
    bench.refusal(&verify(&both), 8, &["it has 1 of 2 necessary signatures: by key alice"]).await;
    let as_tag = ["--key", "alice.pub", "--signature-layout", "tag"];
    bench.refusal(&verify(&as_tag), 8, &["the layout `bundle`, which the trust policy doesn't accept"]).await;

    bench.sign(&bob, "prov", &digest, &["--new-bundle-format=false"]);
    assert_eq!(bench.succeed(&verify(&both)).await, format!("{pinned}\nsigned by alice, bob\n"));
    let as_bundle = ["--key", "bob.pub", "--signature-layout", "bundle"];
    bench.refusal(&verify(&as_bundle), 8, &["the layout `tag`, which the trust policy doesn't accept"]).await;
    for name in ["alice", "bob"] {
        let key = format!("{name}.pub");
        let pulled = bench.object(&["pull", &at, "--key", &key, "-o", "pulled.wasm"]).await;
        assert_eq!(pulled["trust"]["keys"], json!([name]));
        assert!(bench.is_provider("pulled.wasm"), "{name}");
    }
}

#[tokio::test]
async fn a_signature_that_is_copied_from_elsewhere_does_not_count() {
    let bench = Bench::new();
    let alice = bench.key_pair("alice");
    let digest = bench.push("prov:1").await;
    bench.sign(&alice, "prov", &digest, &["--new-bundle-format=false"]);
    let signature = format!("sha256-{}.sig", digest.strip_prefix("sha256:").unwrap());
    // The component with its signature, in another repository.
    for (from, to) in [("prov:1", "copy:1"), (&*format!("prov:{signature}"), &*format!("copy:{signature}"))] {
        bench.oras(&["cp", "--from-plain-http", "--to-plain-http", &bench.at(from), &bench.at(to)]);
    }
    let copied = format!("is for another repository, \"{}", bench.at("prov"));
    bench
        .refusal(&["verify", &bench.at("copy:1"), "--key", "alice.pub"], 8, &[&copied, "was copied here"])
        .await;

    // Another artifact in the same repository, with the signature of the first one.
    let config = "config.json:application/vnd.wasm.config.v0+json";
    std::fs::write(bench.path("config.json"), "{}").unwrap();
    bench.oras(&["push", "--plain-http", "--config", config, &bench.at("prov:2"), "p.wasm:application/wasm"]);
    let descriptor = bench.oras(&["manifest", "fetch", "--plain-http", "--descriptor", &bench.at("prov:2")]);
    let descriptor: serde_json::Value = serde_json::from_str(&descriptor).unwrap();
    let second = descriptor["digest"].as_str().unwrap().replace("sha256:", "sha256-");
    let stolen = bench.oras(&["manifest", "fetch", "--plain-http", &bench.at(&format!("prov:{signature}"))]);
    std::fs::write(bench.path("stolen.json"), stolen).unwrap();
    bench.oras(&[
        "manifest",
        "push",
        "--plain-http",
        &bench.at(&format!("prov:{second}.sig")),
        "stolen.json",
    ]);
    let parts = [&*format!("one by key alice is for another artifact, {digest}")];
    bench.refusal(&["verify", &bench.at("prov:2"), "--key", "alice.pub"], 8, &parts).await;
}

#[tokio::test]
async fn without_keys_a_digest_or_insecure_decides() {
    let bench = Bench::new();
    let digest = bench.push("prov:1").await;
    let (at, other) = (bench.at("prov:1"), format!("sha256:{}", "0".repeat(64)));
    let (pinned, by_digest) = (format!("{at}@{digest}"), bench.at(&format!("prov@{digest}")));
    for command in ["verify", "pull", "inspect", "warm"] {
        bench
            .refusal(&[command, &at], 8, &["is not trusted: a tag can be moved", "--insecure", "--key"])
            .await;
        let parts = ["is not trusted: it is not the pinned one", &other];
        bench.refusal(&[command, &at, "--digest", &other], 8, &parts).await;
    }
    for (arguments, reference, words) in [
        (&[at.as_str(), "--digest", &digest][..], &pinned, "trusted by its digest"),
        (&[&pinned], &pinned, "trusted by its digest"),
        (&[&by_digest], &by_digest, "trusted by its digest"),
        (
            &[&format!("oci://{at}"), "--insecure"],
            &pinned,
            "not verified, since --insecure accepts any component",
        ),
    ] {
        let verify = [&["verify"], arguments].concat();
        assert_eq!(bench.succeed(&verify).await, format!("{reference}\n{words}\n"));
        let pull = [&["pull"], arguments].concat();
        assert_eq!(bench.succeed(&pull).await, format!("{reference}\nprov.wasm: {words}\n"));
        assert!(bench.is_provider("prov.wasm"));
    }
    bench.refusal(&["verify", &bench.at("prov:2"), "--insecure"], 6, &["manifests/2 does not exist"]).await;
    bench.refusal(&["verify", &bench.at(&format!("prov@{other}"))], 6, &["does not exist"]).await;
}

#[tokio::test]
async fn what_oras_pushes_is_pulled_and_other_things_are_named() {
    let bench = Bench::new();
    std::fs::write(bench.path("notes.txt"), "x").unwrap();
    let at = |tag: &str| bench.at(&format!("prov:{tag}"));
    bench.oras(&["push", "--plain-http", &at("plain"), "p.wasm"]);
    bench.oras(&["push", "--plain-http", &at("typed"), "p.wasm:application/wasm"]);
    bench.oras(&["push", "--plain-http", &at("notes"), "notes.txt"]);
    for tag in ["plain", "typed"] {
        let pulled = bench.object(&["pull", &at(tag), "--insecure", "-o", "pulled.wasm"]).await;
        assert_eq!((&pulled["file"], &pulled["trust"]), (&json!("pulled.wasm"), &json!({"by": "insecure"})));
        assert!(bench.is_provider("pulled.wasm"), "{tag}");
    }
    for command in ["verify", "pull", "inspect", "warm"] {
        bench
            .refusal(&[command, &at("notes"), "--insecure"], 3, &["is not a component", "not an archive"])
            .await;
    }
    // What is there stays where a pull fails, and a file that can't be written is named.
    let parts = ["can't write none/p.wasm", "No such file"];
    bench.refusal(&["pull", &at("plain"), "--insecure", "-o", "none/p.wasm"], 1, &parts).await;
}

impl Bench {
    /// Whether a file has the bytes of the provider that was pushed.
    fn is_provider(&self, name: &str) -> bool {
        let provider = pileus_dev::artifact::component("simulated-provider").unwrap();
        std::fs::read(self.path(name)).unwrap() == std::fs::read(provider).unwrap()
    }
}
