//! The CNCF's registry, with artifacts as pileus and oras push them, and signatures as cosign 3 makes them.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use pileus_loader::{
    CredentialSource, Digest, Error, Key, Layout, Loader, Package, Progress, PublicKey, Registries,
    RegistrySettings, SecretFile, Signer, Trust, TrustPolicy, TrustSpec,
};
use serde_json::json;

use crate::stack::{Protection, RealRegistry, key_pair, oras, sign};
use crate::{Fixture, TIMEOUTS, component, reference};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn package(version: &str) -> Package {
    Package {
        bytes: component(version).into(),
        imports: vec!["wasi:http/outgoing-handler@0.2.6".into()],
        exports: vec!["pileus:provider/info@0.2.0".into()],
        annotations: [("org.opencontainers.image.version".to_owned(), version.to_owned())].into(),
        created: None,
    }
}

fn insecure() -> TrustPolicy {
    TrustPolicy::new(TrustSpec { insecure: true, ..TrustSpec::default() }).unwrap()
}

fn key(name: &str, pem: &str) -> Key {
    Key { name: name.to_owned(), key: PublicKey::from_pem(pem).unwrap(), expires: None }
}

async fn push(registries: &Registries, text: &str, version: &str) -> Digest {
    registries.push(&reference(text), &package(version)).await.unwrap()
}

#[tokio::test]
async fn what_pileus_pushes_is_the_same_each_time_and_both_pileus_and_oras_read_it() {
    let registry = RealRegistry::start();
    let fixture = Fixture::new();
    let text = format!("{}/team/p:1", registry.host);
    let digest = push(&fixture.registries, &text, "one").await;
    assert_eq!(push(&fixture.registries, &text, "one").await, digest);
    assert_eq!(fixture.loader.resolve(&reference(&text)).await.unwrap(), digest);
    let verified = fixture.loader.fetch(&reference(&text), &insecure(), NOW).await.unwrap();
    assert_eq!(
        (verified.bytes(), verified.digest(), verified.trust()),
        (&*component("one"), digest, &Trust::Insecure)
    );
    let folder = registry.folder.path();
    let manifest = oras(folder, &["manifest", "fetch", "--plain-http", &text]);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    let layer = manifest["layers"][0]["digest"].as_str().unwrap();
    assert_eq!(layer, Digest::of(&component("one")).to_string());
    let at = text.replace(":1", &format!("@{layer}"));
    oras(folder, &["blob", "fetch", "--plain-http", "--output", "layer.wasm", &at]);
    assert_eq!(std::fs::read(folder.join("layer.wasm")).unwrap(), component("one"));
    let config = text.replace(":1", &format!("@{}", manifest["config"]["digest"].as_str().unwrap()));
    let config = oras(folder, &["blob", "fetch", "--plain-http", "--output", "-", &config]);
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!((&config["os"], &config["layerDigests"][0]), (&"wasip2".into(), &layer.into()));
    assert_eq!(config["component"]["exports"][0], "pileus:provider/info@0.2.0");
}

#[tokio::test]
async fn transfers_report_how_far_they_are() {
    let registry = RealRegistry::start();
    let text = format!("{}/p:1", registry.host);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reported);
    let progress = Progress::new(move |done, total| log.lock().unwrap().push((done, total)));
    let fixture = Fixture::new();
    let registries = fixture.registries.clone().with_progress(progress);
    let loader = Loader::new(fixture.loader.store().clone(), registries.clone());
    let size = component("one").len() as u64;
    let whole = |when: &str| {
        let reported = std::mem::take(&mut *reported.lock().unwrap());
        assert!(reported.is_sorted() && reported.iter().all(|(_, total)| *total == size), "{reported:?}");
        assert_eq!(reported.last(), Some(&(size, size)), "{when}");
    };
    push(&registries, &text, "one").await;
    whole("pushed");
    loader.fetch(&reference(&text), &insecure(), NOW).await.unwrap();
    whole("fetched");
    // What is there already is not transferred.
    push(&registries, &text, "one").await;
    loader.fetch(&reference(&text), &insecure(), NOW).await.unwrap();
    assert_eq!(*reported.lock().unwrap(), []);
}

/// The configuration that wkg 0.16 pushes with a component, as its source has it.
fn wkg_config() -> serde_json::Value {
    json!({
        "created": "2026-01-01T00:00:00.123456789Z",
        "author": null,
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [Digest::of(&component("one"))],
        "component": {
            "exports": ["pileus:provider/info@0.2.0"],
            "imports": ["wasi:io/error@0.2.6"],
            "target": null,
        },
    })
}

/// The manifest that wkg 0.16 pushes.
fn wkg_manifest() -> serde_json::Value {
    let config = wkg_config().to_string();
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.wasm.config.v0+json",
            "digest": Digest::of(config.as_bytes()),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/wasm",
            "digest": Digest::of(&component("one")),
            "size": component("one").len(),
            "annotations": {"org.opencontainers.image.title": "p.wasm"},
        }],
    })
}

#[tokio::test]
async fn artifacts_of_oras_are_read_and_other_things_named() {
    let registry = RealRegistry::start();
    let fixture = Fixture::new();
    let folder = registry.folder.path();
    std::fs::write(folder.join("p.wasm"), component("one")).unwrap();
    std::fs::write(folder.join("config.json"), wkg_config().to_string()).unwrap();
    std::fs::write(folder.join("notes.txt"), "x").unwrap();
    let at = |tag: &str| format!("{}/p:{tag}", registry.host);
    oras(folder, &["push", "--plain-http", &at("plain"), "p.wasm"]);
    oras(folder, &["push", "--plain-http", &at("typed"), "p.wasm:application/wasm"]);
    let config = "config.json:application/vnd.wasm.config.v0+json";
    oras(folder, &["push", "--plain-http", "--config", config, &at("cncf"), "p.wasm:application/wasm"]);
    let manifest = oras(folder, &["manifest", "fetch", "--plain-http", &at("cncf")]);
    let mut manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // oras notes the time of the push.
    manifest.as_object_mut().unwrap().remove("annotations").unwrap();
    assert_eq!(manifest, wkg_manifest());
    oras(folder, &["manifest", "index", "create", "--plain-http", &at("index"), "cncf"]);
    for tag in ["plain", "typed", "cncf", "index"] {
        let verified = fixture.loader.fetch(&reference(&at(tag)), &insecure(), NOW).await.unwrap();
        assert_eq!(verified.bytes(), component("one"), "{tag}");
    }
    oras(folder, &["push", "--plain-http", &at("two"), "p.wasm", "notes.txt"]);
    oras(folder, &["push", "--plain-http", &at("notes"), "notes.txt"]);
    for (tag, expected) in
        [("two", "it has 2 layers"), ("notes", "not an archive"), ("none", "does not exist")]
    {
        let error =
            fixture.loader.fetch(&reference(&at(tag)), &insecure(), NOW).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{tag}: {error}");
    }
}

#[tokio::test]
async fn signatures_of_cosign_count_in_both_layouts_and_each_attack_is_named() {
    let registry = RealRegistry::start();
    let fixture = Fixture::new();
    let folder = registry.folder.path();
    let (alice_key, alice) = key_pair(folder, "alice");
    let (bob_key, bob) = key_pair(folder, "bob");
    let (_, eve) = key_pair(folder, "eve");
    let (alice, bob, eve) = (key("alice", &alice), key("bob", &bob), key("eve", &eve));
    let at = |name: &str| format!("{}/{name}", registry.host);
    let by = |keys: &[&Key], threshold: usize, layouts: &[Layout]| {
        let keys = keys.iter().copied().cloned().collect();
        let layouts = layouts.to_vec();
        TrustPolicy::new(TrustSpec { keys, threshold, layouts, ..TrustSpec::default() }).unwrap()
    };
    let fetch = async |name: &str, policy: &TrustPolicy| {
        let found = fixture.loader.fetch(&reference(&at(name)), policy, NOW).await;
        found.map(|verified| format!("{:?}", verified.trust())).map_err(|error| error.to_string())
    };
    let both = Layout::ALL;
    let signed = |names: &[&str]| {
        Ok(format!(
            "{:?}",
            Trust::Signed { signers: names.iter().map(|name| Signer::Key((*name).to_owned())).collect() }
        ))
    };

    let one = push(&fixture.registries, &at("prov:1"), "one").await;
    let error = fetch("prov:1", &by(&[&alice], 1, &both)).await.unwrap_err();
    assert!(error.contains("it has no signature"), "{error}");
    sign(folder, &alice_key, &at(&format!("prov@{one}")), &[]);
    assert_eq!(fetch("prov:1", &by(&[&alice], 1, &both)).await, signed(&["alice"]));
    assert_eq!(fetch("prov:1", &by(&[&alice, &bob], 1, &[Layout::Bundle])).await, signed(&["alice"]));
    let error = fetch("prov:1", &by(&[&eve], 1, &both)).await.unwrap_err();
    assert!(error.contains("one matches no key in the trust policy"), "{error}");
    let error = fetch("prov:1", &by(&[&alice, &bob], 2, &both)).await.unwrap_err();
    assert!(error.contains("it has 1 of 2 necessary signatures: by key alice"), "{error}");

    sign(folder, &bob_key, &at(&format!("prov@{one}")), &["--new-bundle-format=false"]);
    assert_eq!(fetch("prov:1", &by(&[&alice, &bob], 2, &both)).await, signed(&["alice", "bob"]));
    assert_eq!(fetch("prov:1", &by(&[&bob], 1, &[Layout::Tag])).await, signed(&["bob"]));
    let error = fetch("prov:1", &by(&[&bob], 1, &[Layout::Bundle])).await.unwrap_err();
    assert!(error.contains("stored in the layout `tag`, which the trust policy doesn't accept"), "{error}");

    // The signature of another version is put in the place of the missing one.
    let two = push(&fixture.registries, &at("prov:2"), "two").await;
    let tag = |name: &str, digest: Digest| at(&format!("{name}:sha256-{}.sig", digest.hex()));
    let stolen = oras(folder, &["manifest", "fetch", "--plain-http", &tag("prov", one)]);
    std::fs::write(folder.join("stolen.json"), stolen).unwrap();
    oras(folder, &["manifest", "push", "--plain-http", &tag("prov", two), "stolen.json"]);
    let error = fetch("prov:2", &by(&[&alice, &bob], 1, &both)).await.unwrap_err();
    assert!(error.contains(&format!("one by key bob is for another artifact, {one}")), "{error}");

    // What was signed for one repository is copied to another one, with its signature.
    oras(folder, &["cp", "--from-plain-http", "--to-plain-http", &at("prov:1"), &at("copy:1")]);
    oras(folder, &["cp", "--from-plain-http", "--to-plain-http", &tag("prov", one), &tag("copy", one)]);
    let error = fetch("copy:1", &by(&[&bob], 1, &both)).await.unwrap_err();
    assert!(error.contains(&format!("is for another repository, \"{}", at("prov"))), "{error}");
    assert!(error.contains("was copied here"), "{error}");
}

#[tokio::test]
async fn what_was_verified_is_verified_again_at_each_load_and_needs_no_registry() {
    let mut registry = RealRegistry::start();
    let fixture = Fixture::new();
    let folder = registry.folder.path().to_owned();
    let (private, public) = key_pair(&folder, "alice");
    let policy = |key: Key| TrustPolicy::new(TrustSpec { keys: vec![key], ..TrustSpec::default() }).unwrap();
    let alice = key("alice", &public);
    let text = reference(&format!("{}/prov:1", registry.host));
    let digest = push(&fixture.registries, &text.to_string(), "one").await;
    sign(&folder, &private, &text.pinned(digest).to_string().replace(":1@", "@"), &[]);
    let trusted = policy(alice.clone());
    fixture.loader.fetch(&text, &trusted, NOW).await.unwrap();
    registry.stop();

    let error = fixture.loader.resolve(&text).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let restarted = fixture.restarted();
    let started = std::time::Instant::now();
    let verified = restarted.obtain(&text, &trusted, NOW).await.unwrap();
    println!("loaded from the store after {:?}", started.elapsed());
    assert_eq!((verified.bytes(), verified.digest()), (&*component("one"), digest));
    // The same store under another policy: its key has expired since, or is not trusted any more.
    let expired = policy(Key { expires: Some(NOW), ..alice });
    let error = restarted.load(&text, digest, &expired, NOW).await.unwrap_err().to_string();
    assert!(error.contains("keys of the trust policy have expired (alice on 1970"), "{error}");
    let error = restarted.load(&text, digest, &policy(key("eve", &key_pair(&folder, "eve").1)), NOW).await;
    assert!(error.unwrap_err().to_string().contains("matches no key in the trust policy"));
}

#[tokio::test]
async fn a_protected_registry_needs_its_authority_and_a_credential() {
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, private) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    // The password is "planted".
    let login = "ann:$2y$05$abcdefghijklmnopqrstuu0eHyQoAvNr2KOXo6uHFCH0PYNU3cnQO\n";
    let protection = Protection { tls: Some((&certificate, &private)), login: Some(login) };
    let registry = RealRegistry::protected(&protection);
    let folder = registry.folder.path();
    let bundle = folder.join("certificate");
    let settings = |bundle| RegistrySettings {
        registry: registry.host.clone(),
        plain_http: Some(false),
        ca_bundle: bundle,
        ..RegistrySettings::default()
    };
    let config = |text: &str, helpers| {
        let file = folder.join("docker.json");
        std::fs::write(&file, text.replace("HOST", &registry.host)).unwrap();
        CredentialSource::DockerConfig { config: Arc::new(SecretFile::new(file)), helpers }
    };
    let text = format!("{}/p:1", registry.host);
    let trying = async |bundle, credentials| {
        let fixture = Fixture::with(vec![settings(bundle)], credentials, TIMEOUTS);
        let pushed = fixture.registries.push(&reference(&text), &package("one")).await;
        let fetched = match pushed {
            Ok(_) => fixture.loader.fetch(&reference(&text), &insecure(), NOW).await.map(drop),
            Err(error) => Err(error),
        };
        fetched.map_err(|error| error.to_string())
    };
    let error = trying(None, vec![]).await.unwrap_err();
    assert!(error.contains("TLS failed") && error.contains("`caBundle`"), "{error}");
    let bundle = Some(bundle);
    let error = trying(bundle.clone(), vec![]).await.unwrap_err();
    assert!(error.contains("it demands a credential; credential used: none"), "{error}");
    let right = r#"{"auths": {"HOST": {"auth": "YW5uOnBsYW50ZWQ="}}}"#;
    assert_eq!(trying(bundle.clone(), vec![config(right, false)]).await, Ok(()));
    let wrong = r#"{"auths": {"https://HOST/v2/": {"auth": "YW5uOng="}}}"#;
    let error = trying(bundle.clone(), vec![config(wrong, false)]).await.unwrap_err();
    assert!(error.contains("refuses the credential; credential used: entry \"https://127.0.0.1"), "{error}");
    let helper = r#"{"credHelpers": {"HOST": "pileus-test-that-does-not-exist"}}"#;
    let error = trying(bundle.clone(), vec![config(helper, false)]).await.unwrap_err();
    assert!(error.contains("which a controller doesn't run"), "{error}");
    let error = trying(bundle, vec![config(helper, true)]).await.unwrap_err();
    assert!(error.contains("docker-credential-pileus-test-that-does-not-exist: it can't be run"), "{error}");
}
