//! The sandbox against components that somebody else wrote: one that does everything wrong that a guest can do, and
//! bytes that shouldn't have been loaded at all. Real components in the real engine; only the clouds are missing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod compiled;
mod loading;

use std::path::PathBuf;
use std::sync::Arc;

use pileus_cloud::NodeReference;
use pileus_gate::Gate;
use pileus_host::{CompiledCode, Component, Engine, Guest, Limits, Metrics};
use prometheus_client::registry::Registry;

/// The component of a package, as `make guests` builds it.
fn guest(name: &str) -> Vec<u8> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let path = target.join("wasm32-wasip2/guest").join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `make guests`", path.display()))
}

/// An engine that keeps compiled code between runs: it takes half a second that most tests here aren't about.
fn engine() -> Engine {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    Engine::start(Some(CompiledCode::open(&folder).unwrap())).unwrap()
}

fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

/// A gate that grants nothing.
fn closed_gate() -> Gate {
    let config = pileus_gate::Config {
        provider: "hostile".to_owned(),
        grants: Vec::new(),
        rules: Vec::new(),
        denied_ranges: Vec::new(),
        fence: pileus_gate::Fence::default(),
    };
    Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
}

/// The hostile provider with this behaviour.
async fn hostile(engine: &Engine, behaviour: &str, limits: Limits) -> Arc<Guest> {
    let component = Component::load(engine, guest("hostile_provider")).await.unwrap();
    let configuration = format!(r#"{{"behaviour": "{behaviour}"}}"#);
    let description = component.describe(&limits, &metrics()).await.unwrap();
    component.configure(&configuration, &limits, &metrics()).await.unwrap();
    let guest = Guest::new(component, "hostile", description, &configuration, closed_gate(), &metrics());
    Arc::new(guest.with_limits(limits))
}

fn node(name: &str) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
    }
}
