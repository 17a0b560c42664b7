//! Bytes that are not a provider: each is refused with an error that says what its author should do.

use std::path::Path;

use pileus_host::{Capability, Component, Error, Limits};
use pileus_loader::{Loader, TrustPolicy, Verified};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{ManglingAndAbi, PackageId, Resolve};

use crate::fixture::{engine, guest, metrics};

/// A component of a world whose functions all trap.
fn component(wit: &str, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("test.wit", wit).unwrap();
    component_of(&resolve, package, world)
}

fn component_of(resolve: &Resolve, package: PackageId, world: &str) -> Vec<u8> {
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut module = wit_component::dummy_module(resolve, world, ManglingAndAbi::Standard32);
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

async fn refusal(bytes: &[u8]) -> Error {
    let engine = engine();
    match Component::load(&engine, Verified::from_operator(bytes.to_vec(), "test")).await {
        Ok(component) => panic!("loaded: {:?}", component.exports),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_file_is_read_up_to_the_limit_of_a_component() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.wasm");
    std::fs::File::create(&large).unwrap().set_len((128 << 20) + 1).unwrap();
    for path in [large.as_path(), Path::new("/dev/zero")] {
        let error = Loader::read_file(path, &TrustPolicy::default()).await.unwrap_err();
        assert!(matches!(error, pileus_loader::Error::TooLarge { limit: 0x0800_0000, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn bytes_that_are_not_a_component_are_told_apart() {
    let component = guest("hostile_provider");
    let half = component.get(..component.len() / 2).unwrap();
    assert!(matches!(refusal(b"").await, Error::NotWasm { .. }));
    assert!(matches!(refusal(b"#!/bin/sh\necho no").await, Error::NotWasm { .. }));
    assert!(matches!(refusal(&wat::parse_str("(module)").unwrap()).await, Error::CoreModule));
    assert!(matches!(refusal(half).await, Error::Invalid(_)));
    // Native code is never accepted as input.
    let native = wasmtime::Engine::default().precompile_component(&component).unwrap();
    assert!(matches!(refusal(&native).await, Error::NotWasm { .. }));
}

#[tokio::test]
async fn a_component_of_each_world_has_the_capabilities_of_the_world() {
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).unwrap();
    let engine = engine();
    for (world, capabilities) in [
        ("provides-instances", &[Capability::Instances][..]),
        ("provides-local-instance", &[Capability::LocalInstance]),
        ("provides-load-balancers", &[Capability::LoadBalancers]),
        ("provides-routes", &[Capability::Routes]),
        ("provider", &Capability::ALL),
    ] {
        let component =
            Component::load(&engine, Verified::from_operator(component_of(&resolve, package, world), "test"))
                .await
                .unwrap();
        assert_eq!(component.capabilities, capabilities, "{world}");
    }
}

#[tokio::test]
async fn the_error_about_another_contract_names_both_versions() {
    for version in ["0.1.0", "1.0.0"] {
        let wit = format!(
            "package pileus:provider@{version};
             interface info {{ describe: func() -> string; }}
             world provider {{ export info; }}"
        );
        let error = refusal(&component(&wit, "provider")).await;
        let text = error.to_string();
        assert!(matches!(error, Error::Version { .. }), "{text}");
        assert!(text.contains(version) && text.contains("0.2.x"), "{text}");
    }
}

#[tokio::test]
async fn a_component_without_info_or_capability_is_not_a_provider() {
    let error = refusal(&component(
        "package acme:tool@1.0.0; interface tool { work: func(); } world toolbox { export tool; }",
        "toolbox",
    ))
    .await;
    assert!(error.to_string().contains("acme:tool/tool@1.0.0"), "{error}");
    assert!(matches!(error, Error::NoProvider { .. }));
    let only_info = "package pileus:provider@0.2.0;
        interface info { describe: func() -> string; }
        world provider { export info; }";
    assert!(matches!(refusal(&component(only_info, "provider")).await, Error::NoCapability));
}

#[tokio::test]
async fn row_19_an_unknown_import_is_refused_at_load_by_name() {
    let wit = "package pileus:provider@0.2.0;
        interface info { describe: func() -> string; }
        interface instances { lookup: func() -> string; }
        interface secrets { read: func() -> string; }
        world provider { import secrets; export info; export instances; }";
    let Error::UnknownImports(imports) = refusal(&component(wit, "provider")).await else { panic!("loaded") };
    assert_eq!(imports, ["pileus:provider/secrets@0.2.0"]);
}

#[tokio::test]
async fn a_function_of_another_type_does_not_fit() {
    let wit = "package pileus:provider@0.2.0;
        interface info { describe: func() -> string; configure: func(); }
        interface instances { lookup: func() -> string; }
        world provider { export info; export instances; }";
    let engine = engine();
    let another =
        [component(wit, "provider"), built_for_another("load-balancers"), built_for_another("routes")];
    for bytes in another {
        // Types of exports are compared when they are looked up, which is before the guest runs.
        let component = Component::load(&engine, Verified::from_operator(bytes, "test")).await.unwrap();
        let error = component.describe(&Limits::default(), &metrics()).await.unwrap_err().to_string();
        assert!(error.contains("describe broke the contract: an export has another type"), "{error}");
    }
}

/// A component of an older contract, in which `change` of this capability had no cluster parameter.
fn built_for_another(capability: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_dir() {
            std::os::unix::fs::symlink(file.path(), folder.path().join(file.file_name())).unwrap();
            continue;
        }
        let mut text = std::fs::read_to_string(file.path()).unwrap();
        if file.file_name() == format!("{capability}.wit").as_str() {
            let older = text.replace("change: func(cluster: cluster, ", "change: func(");
            assert_ne!(older, text);
            text = older;
        }
        std::fs::write(folder.path().join(file.file_name()), text).unwrap();
    }
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(folder.path()).unwrap();
    component_of(&resolve, package, &format!("provides-{capability}"))
}

#[tokio::test]
async fn a_component_that_starts_with_too_much_memory_is_refused_before_it_runs() {
    let hungry = wat::parse_str(
        r#"(component (core module $m (memory 5000)) (core instance (instantiate $m))
             (instance $i) (export "pileus:provider/info@0.2.0" (instance $i))
             (instance $j) (export "pileus:provider/instances@0.2.0" (instance $j)))"#,
    );
    let error = refusal(&hungry.unwrap()).await;
    let text = error.to_string();
    assert!(matches!(error, Error::Invalid(_)), "{text}");
    assert!(text.contains("memory") && text.contains("exceeds the limit"), "{text}");
}

#[tokio::test]
async fn a_provider_is_loaded_with_its_description_and_settings() {
    let engine = engine();
    let component =
        Component::load(&engine, Verified::from_operator(guest("simulated_provider"), "test")).await.unwrap();
    assert_eq!(
        component.capabilities,
        [Capability::Instances, Capability::LocalInstance, Capability::LoadBalancers, Capability::Routes]
    );
    assert_eq!(component.contract, "0.2.0");
    assert!(component.imports.contains(&"pileus:provider/call@0.2.0".to_owned()), "{:?}", component.imports);
    let limits = Limits::default();
    let description = component.describe(&limits, &metrics()).await.unwrap();
    assert_eq!(
        (description.name.as_str(), description.provider_id_schemes.as_slice()),
        ("simulated", &["simulated".to_owned()][..])
    );
    let settings =
        component.configure(r#"{"endpoint": "http://127.0.0.1:8080"}"#, &limits, &metrics()).await.unwrap();
    assert_eq!(settings.endpoints.len(), 1);
    assert_eq!(settings.endpoints[0].endpoint.to_string(), "http://127.0.0.1:8080");
    assert_eq!(settings.rules.len(), 18);
}

#[tokio::test]
async fn an_invalid_configuration_is_reported_in_the_providers_words() {
    let engine = engine();
    let component =
        Component::load(&engine, Verified::from_operator(guest("simulated_provider"), "test")).await.unwrap();
    let wrong = component.configure(r#"{"endpoint": 5}"#, &Limits::default(), &metrics()).await.unwrap_err();
    let Error::Configuration(problems) = wrong else { panic!("{wrong}") };
    assert_eq!(problems[0].path, "endpoint");
}

#[tokio::test]
async fn a_provider_that_loops_in_configure_is_stopped() {
    let engine = engine();
    let component =
        Component::load(&engine, Verified::from_operator(guest("hostile_provider"), "test")).await.unwrap();
    let limits = Limits { cpu: std::time::Duration::from_millis(100), ..Limits::default() };
    let error =
        component.configure(r#"{"behaviour": "loop-in-configure"}"#, &limits, &metrics()).await.unwrap_err();
    assert!(matches!(error, Error::Info { function: "configure", .. }), "{error}");
}
