//! Fixtures of the tests: the engine, the hostile provider with a behavior, gates, Nodes.

use std::path::PathBuf;
use std::sync::Arc;

use pileus_cloud::NodeReference;
use pileus_gate::{Gate, Grant, Rule};
use pileus_host::{CodeCache, Compiler, Component, Engine, Guest, Limits, Metrics};
use pileus_loader::Verified;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The component of a package, as `make guests` builds it.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let path = target.join("wasm32-wasip2/guest").join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `make guests`", path.display()))
}

/// An engine with a cache of compiled code between runs: compiling takes half a second.
pub(crate) fn engine() -> Engine {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    Engine::start(Some(CodeCache::open(&folder).unwrap()), Compiler::InProcess).unwrap()
}

pub(crate) fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

/// A gate with these grants and without rules.
pub(crate) fn gate(grants: Vec<Grant>) -> Gate {
    gate_with(grants, Vec::new())
}

/// A gate with these grants and rules.
pub(crate) fn gate_with(grants: Vec<Grant>, rules: Vec<Rule>) -> Gate {
    let config = pileus_gate::Config { grants, rules, ..pileus_gate::Config::new("hostile") };
    Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
}

/// The hostile provider with this behavior.
pub(crate) async fn hostile(engine: &Engine, behaviour: &str, limits: Limits) -> Arc<Guest> {
    let configuration = format!(r#"{{"behaviour": "{behaviour}"}}"#);
    configured(engine, &configuration, gate(Vec::new()), limits, &metrics()).await
}

/// The hostile provider with this configuration and gate.
pub(crate) async fn configured(
    engine: &Engine,
    configuration: &str,
    gate: Gate,
    limits: Limits,
    metrics: &Metrics,
) -> Arc<Guest> {
    Arc::new(configured_guest(engine, configuration, gate, limits, metrics).await)
}

/// The hostile provider with this behavior and gate, as a release has it.
pub(crate) async fn hostile_guest(
    engine: &Engine,
    behaviour: &str,
    gate: Gate,
    limits: Limits,
    metrics: &Metrics,
) -> Guest {
    let configuration = format!(r#"{{"behaviour": "{behaviour}"}}"#);
    configured_guest(engine, &configuration, gate, limits, metrics).await
}

/// As [`configured`], for a release.
pub(crate) async fn configured_guest(
    engine: &Engine,
    configuration: &str,
    gate: Gate,
    limits: Limits,
    metrics: &Metrics,
) -> Guest {
    let component =
        Component::load(engine, Verified::from_operator(guest("hostile_provider"), "test")).await.unwrap();
    let description = component.describe(&limits, metrics).await.unwrap();
    component.configure(configuration, &limits, metrics).await.unwrap();
    Guest::new(component, "hostile", description, configuration, gate, metrics).with_limits(limits)
}

/// The value of a counter of the host that has one set of labels.
pub(crate) fn count(registry: &Registry, family: &str) -> u32 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("pileus_provider_{family}_total{{")));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

pub(crate) fn node(name: &str) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
    }
}

/// Nodes whose names are this prefix and a number.
pub(crate) fn nodes(prefix: &str, count: usize) -> Vec<NodeReference> {
    (0..count).map(|number| node(&format!("{prefix}-{number}"))).collect()
}
