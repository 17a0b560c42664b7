//! The cost of the sandbox: calls through the whole host (slot, store, instance, call, conversion both ways), compared
//! with the same provider called natively by the SDK's test host. No call makes a request.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostile_provider::Hostile;
use jiff::Timestamp;
use pileus_cloud::{Address, AddressKind, Answer, Instances, NodeReference, Purpose};
use pileus_dev::artifact;
use pileus_gate::{Gate, Grant, Interceptor};
use pileus_guest::testing;
use pileus_host::{CodeCache, CodeOrigin, Compiler, Component, Engine, Guest, Limits};
use pileus_loader::{Loader, TrustPolicy};
use prometheus_client::registry::Registry;

use crate::Failure;
use crate::report::{Samples, heading, note, row, size, time};

/// Calls about one Node, in rounds of as many natively and sandboxed, so that both meet the same moods of the machine.
const ROUNDS: usize = 40;
const CALLS: usize = 100;
/// Calls about many Nodes.
const BATCHES: usize = 40;
const NODES: usize = 5_000;
/// Loads of a component, each by a new engine as after a restart.
const LOADS: usize = 10;

/// What the design allows over native.
const CALL_TARGET: Duration = Duration::from_micros(100);
const BATCH_TARGET: Duration = Duration::from_millis(20);

/// Measures calls and loads.
pub(crate) async fn measure() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let compiled = CodeCache::open(folder.path())?;
    let echo = artifact::component("hostile-provider")?;

    let mut first = Samples::default();
    let mut instances = load(&echo, &compiled).await?;
    for _ in 0..LOADS {
        instances = load(&echo, &compiled).await?;
        first.push(timed_lookup(&instances, &nodes(1)).await?);
    }
    let one = compare(&instances, ROUNDS, CALLS, 1).await?;
    heading("A call about one node, no request", &["median", "p90", "target"]);
    lines(&one, &time(one.native.median() + CALL_TARGET));
    row("first call after a load", &[time(first.median()), time(first.percentile(90))]);
    note(&format!("{} calls, {LOADS} loads; target: native + {}", ROUNDS * CALLS, time(CALL_TARGET)));

    let many = compare(&instances, BATCHES, 1, NODES).await?;
    heading(&format!("A call about {NODES} nodes, no request"), &["median", "p90", "target"]);
    lines(&many, &time(many.native.median() + BATCH_TARGET));
    note(&format!("{BATCHES} calls; target: native + {}", time(BATCH_TARGET)));

    loads(&artifact::component("simulated-provider")?).await
}

/// The same calls, natively and sandboxed.
#[derive(Default)]
struct Compared {
    native: Samples,
    sandboxed: Samples,
}

fn lines(compared: &Compared, target: &str) {
    let Compared { native, sandboxed } = compared;
    let times = |samples: &Samples| [time(samples.median()), time(samples.percentile(90))];
    row("native", &times(native));
    row("fresh instance", &[&times(sandboxed)[..], &[target.to_owned()]].concat());
    let over = sandboxed.median().saturating_sub(native.median());
    row("fresh instance over native", &[time(over)]);
}

/// In a task, as the controllers call: the call's own task then runs on the same thread.
async fn compare(
    instances: &Arc<dyn Instances>,
    rounds: usize,
    calls: usize,
    nodes_each: usize,
) -> Result<Compared, Failure> {
    let instances = Arc::clone(instances);
    let task = tokio::spawn(async move {
        let nodes = nodes(nodes_each);
        let mut compared = Compared::default();
        for round in 0..=rounds {
            let native = native_lookups(calls, nodes_each)?;
            let mut sandboxed = Vec::new();
            for _ in 0..calls {
                sandboxed.push(timed_lookup(&instances, &nodes).await?);
            }
            // The first round warms both up.
            if round > 0 {
                compared.native.extend(native);
                compared.sandboxed.extend(sandboxed);
            }
        }
        Ok(compared)
    });
    task.await?
}

/// Not a part of `compare`, as the double stays on its thread.
fn native_lookups(calls: usize, nodes: usize) -> Result<Vec<Duration>, Failure> {
    let host = testing::Host::new().log_level(tracing::Level::INFO);
    let nodes = native_nodes(nodes);
    let lookup = |_| {
        let started = Instant::now();
        let answers = host.lookup::<Hostile>(pileus_guest::Purpose::Initialise, &nodes);
        let took = started.elapsed();
        let answers = answers.map_err(|error| error.message)?;
        let found = answers.iter().filter(|answer| matches!(answer, Ok(pileus_guest::Answer::Found(_))));
        all(nodes.len(), found.count())?;
        Ok(took)
    };
    (0..calls).map(lookup).collect()
}

async fn timed_lookup(instances: &Arc<dyn Instances>, nodes: &[NodeReference]) -> Result<Duration, Failure> {
    let started = Instant::now();
    let answers = instances.lookup(Purpose::Initialise, nodes).await;
    let took = started.elapsed();
    let answers = answers.map_err(|error| error.message)?;
    let found = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Found(_))));
    all(nodes.len(), found.count())?;
    Ok(took)
}

fn all(nodes: usize, found: usize) -> Result<(), Failure> {
    if nodes == found { Ok(()) } else { Err(format!("{found} of {nodes} nodes found").into()) }
}

/// A provider without any grant, by a new engine.
async fn load(path: &Path, compiled: &CodeCache) -> Result<Arc<dyn Instances>, Failure> {
    let engine = Engine::start(Some(compiled.clone()), Compiler::InProcess)?;
    let component = Component::load(&engine, Loader::read_file(path, &TrustPolicy::default()).await?).await?;
    provider(component, "{}", Limits::default()).await
}

/// A provider without any grant.
pub(crate) async fn provider(
    component: Component,
    configuration: &str,
    limits: Limits,
) -> Result<Arc<dyn Instances>, Failure> {
    provider_with(component, configuration, limits, Vec::new(), None).await
}

/// A provider with these grants, whose requests an interceptor may answer.
pub(crate) async fn provider_with(
    component: Component,
    configuration: &str,
    limits: Limits,
    grants: Vec<Grant>,
    interceptor: Option<Arc<dyn Interceptor>>,
) -> Result<Arc<dyn Instances>, Failure> {
    let mut registry = Registry::default();
    let metrics = pileus_host::Metrics::register(&mut registry);
    let description = component.describe(&limits, &metrics).await?;
    let settings = component.configure(configuration, &limits, &metrics).await?;
    let config = pileus_gate::Config { grants, rules: settings.rules, ..pileus_gate::Config::new("bench") };
    let gate = Gate::new(config, &pileus_gate::Metrics::register(&mut registry))?;
    let gate = interceptor.into_iter().fold(gate, Gate::with_interceptor);
    let guest = Guest::new(component, "bench", description, configuration, gate, &metrics);
    guest.with_limits(limits).provider().instances.ok_or_else(|| "the provider knows no machines".into())
}

/// Loads by a new engine each, with and without code on disk.
async fn loads(path: &Path) -> Result<(), Failure> {
    let verified = Loader::read_file(path, &TrustPolicy::default()).await?;
    let [mut engines, mut compiled, mut cached] = [(); 3].map(|()| Samples::default());
    let mut native = 0;
    for _ in 0..LOADS {
        let folder = tempfile::tempdir()?;
        let code = CodeCache::open(folder.path())?;
        for _ in 0..2 {
            let started = Instant::now();
            let engine = Engine::start(Some(code.clone()), Compiler::InProcess)?;
            engines.push(started.elapsed());
            let started = Instant::now();
            let component = Component::load(&engine, verified.clone()).await?;
            match component.code_origin {
                CodeOrigin::Compiled(_) => compiled.push(started.elapsed()),
                CodeOrigin::Cached(_) => cached.push(started.elapsed()),
            }
        }
        let sizes = fs::read_dir(folder.path())?.map(|file| Ok(file?.metadata()?.len()));
        native = sizes.sum::<Result<u64, Failure>>()?;
    }
    heading("The simulated provider's component", &["min", "median", "max"]);
    row("start an engine", &engines.spread());
    row("load, compiling", &compiled.spread());
    row("load, compiled code on disk", &cached.spread());
    let component = size(u64::try_from(verified.bytes().len())?);
    note(&format!("component {component}, compiled code {}; {LOADS} loads each", size(native)));
    Ok(())
}

/// Nodes as kubelets register them.
pub(crate) fn nodes(count: usize) -> Vec<NodeReference> {
    (1..=count).map(node).collect()
}

fn node(number: usize) -> NodeReference {
    NodeReference { uid: format!("9f6d4b4e-3c1e-4f57-9d6b-{number:012}"), ..named(&format!("node-{number}")) }
}

/// A Node of this name as its kubelet registers it.
pub(crate) fn named(name: &str) -> NodeReference {
    NodeReference {
        uid: format!("uid-of-{name}"),
        provider_id: None,
        created_at: Timestamp::UNIX_EPOCH,
        addresses: vec![
            Address { kind: AddressKind::InternalIp, value: "10.0.0.1".to_owned() },
            Address { kind: AddressKind::Hostname, value: name.to_owned() },
        ],
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
        name: name.to_owned(),
    }
}

/// The same Nodes in the SDK's words.
fn native_nodes(count: usize) -> Vec<pileus_guest::NodeReference> {
    let native = |NodeReference { name, uid, .. }: NodeReference| pileus_guest::NodeReference {
        uid,
        addresses: vec![
            pileus_guest::Address::new(pileus_guest::AddressKind::InternalIp, "10.0.0.1"),
            pileus_guest::Address::new(pileus_guest::AddressKind::Hostname, name.clone()),
        ],
        ..pileus_guest::NodeReference::new(name)
    };
    nodes(count).into_iter().map(native).collect()
}
