//! The composition root: the one place where document, cluster, provider, gate and controllers meet.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::USER_AGENT;
use futures::future::join_all;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pileus_cloud::Provider;
use pileus_controllers::events::Events;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::{Health, node, node_lifecycle};
use pileus_gate::{Coverage, Fence, Gate};
use pileus_host::{Code, CompiledCode, Compiler, Component, Engine, Guest, Limits, PublishedLimit, Settings};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::leader::{Election, End, Leadership};
use crate::{admin, cli, leader, telemetry};

/// How long a connection to the API server may be silent while something is expected on it. A watch without events is
/// ended by the server within 5 minutes; one that is silent for longer has lost its other end.
const SILENCE: Duration = Duration::from_secs(330);

/// How long events that are still queued at the end are waited for: they tell, they don't promise.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long writes that were begun before the end are waited for, in all: a Pod's grace period is 30 s.
const DRAIN: Duration = Duration::from_secs(25);

/// All metric families, by the crate that owns them.
struct Metrics {
    controllers: pileus_controllers::Metrics,
    gate: pileus_gate::Metrics,
    host: pileus_host::Metrics,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        Self {
            controllers: pileus_controllers::Metrics::register(registry),
            gate: pileus_gate::Metrics::register(registry),
            host: pileus_host::Metrics::register(registry),
        }
    }
}

/// Runs the controllers, as soon as this replica leads, until SIGTERM or SIGINT, and then until what is under way has
/// ended.
pub(crate) async fn run(arguments: cli::Run) -> Result<(), Error> {
    telemetry::start(arguments.log_format, &arguments.log_filter)?;
    let stop = stop_on_signal()?;
    let document = CloudProvider::read(&arguments.provider)?;

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = Election::new(arguments.leader_election, &host, random(), &mut registry)?;
    let cluster = cluster(arguments.kubeconfig, election.identity()).await?;
    let health = Health::default();
    let loaded = health.condition(format!("provider-{}", document.name), "it is being loaded");
    let address = admin::start(arguments.admin_address, health.clone(), election.standing(), registry)?;
    tracing::info!(%address, "serving /livez, /readyz and /metrics");

    let tenure = election.tenure();
    let fence = Fence::new(move || tenure.may_write());
    let api_server = cluster.cluster_url.to_string();
    let denied = api_server_address(&cluster);
    let client = leader::fenced(cluster.clone(), fence.clone())
        .map_err(|error| Error::Kubeconfig(error.to_string()))?;
    let (provider, gate) = load(document, arguments.compiled, denied, fence, &metrics).await?;
    loaded.holds();
    let nodes = Nodes::new(client.clone(), metrics.controllers.clone(), &health);
    let cast = Cast { client, nodes: nodes.clone(), provider, metrics: metrics.controllers, host };
    let (controllers, events) = cast.controllers(&arguments.node_controllers)?;
    let serve = async {
        tracing::info!(%api_server, identity = election.identity(), "ready to lead");
        let Some(leadership) = lead(election, cluster, &stop).await? else { return Ok(()) };
        // A predecessor may have spent just now what the limits would let through.
        gate.empty_limits();
        tracing::info!("starting controllers");
        let end = tokio::select! {
            biased;
            lost = leadership.lost() => return Err(lost),
            end = work(controllers.run(&stop), &gate, &stop) => end,
        };
        leadership.end(end).await;
        Ok(())
    };
    // One that stands by watches, too, so that it knows all Nodes when its turn comes.
    tokio::select! {
        served = serve => served?,
        () = nodes.watch(CancellationToken::new()) => {}
    }
    if tokio::time::timeout(LAST_WORDS, join_all(events)).await.is_err() {
        tracing::warn!("stopped before all events were sent");
    }
    tracing::info!("stopped");
    Ok(())
}

/// What the controllers are made of.
struct Cast {
    client: Client,
    nodes: Nodes,
    provider: Provider,
    metrics: pileus_controllers::Metrics,
    /// The name of this machine or Pod.
    host: String,
}

/// The controllers, ready to run.
struct Controllers {
    node: node::Controller,
    node_lifecycle: node_lifecycle::Controller,
}

impl Cast {
    /// Puts the controllers together, and returns with them what still sends their events when they have ended.
    fn controllers(self, flags: &cli::NodeControllers) -> Result<(Controllers, Vec<JoinHandle<()>>), Error> {
        let mut sending = Vec::new();
        let mut events = |component| {
            let (events, task) =
                Events::start(self.client.clone(), component, &self.host, self.metrics.clone());
            sending.push(task);
            events
        };
        let (nodes, provider, metrics) = (&self.nodes, &self.provider, &self.metrics);
        let node = node::Controller::new(
            nodes.clone(),
            provider.clone(),
            events("cloud-node-controller"),
            metrics.clone(),
            flags.node(),
            jitter,
        );
        let node_lifecycle = node_lifecycle::Controller::new(
            nodes.clone(),
            provider.clone(),
            events("cloud-node-lifecycle-controller"),
            metrics.clone(),
            flags.node_lifecycle(),
        );
        let nothing_to_do = || Error::NothingToDo { provider: provider.name.clone() };
        let (node, node_lifecycle) = node.zip(node_lifecycle).ok_or_else(nothing_to_do)?;
        Ok((Controllers { node, node_lifecycle }, sending))
    }
}

impl Controllers {
    /// Works until all have ended after they were told to stop.
    async fn run(self, stop: &CancellationToken) {
        tokio::join!(self.node.run(stop.clone()), self.node_lifecycle.run(stop.clone()));
    }
}

/// Takes part in the election until this replica leads; none if it is stopped before.
async fn lead(
    election: Election,
    cluster: Config,
    stop: &CancellationToken,
) -> Result<Option<Leadership>, Error> {
    let leadership = election.start(cluster, jitter)?;
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        acquired = leadership.acquired() => return acquired.map(|()| Some(leadership)),
    }
    leadership.end(End::Released).await;
    Ok(None)
}

/// Lets controllers work until they are stopped, and what they have begun come to its end.
async fn work(controllers: impl Future<Output = ()>, gate: &Gate, stop: &CancellationToken) -> End {
    let close = async {
        stop.cancelled().await;
        gate.close();
        Instant::now() + DRAIN
    };
    // The end is set before the controllers begin to count their own time.
    let (end, ()) = tokio::join!(biased; close, controllers);
    let cloud = tokio::time::timeout_at(end, gate.writes_ended()).await;
    if cloud.is_err() {
        tracing::warn!(unfinished = gate.writes_under_way(), "stopped before the cloud answered all writes");
    }
    // Controllers that needed all of the time have given up something, too.
    if Instant::now() < end { End::Released } else { End::LeftToExpire }
}

/// Takes a provider all the way from its document to something that controllers can call.
async fn load(
    document: CloudProvider,
    compiled: cli::Compiled,
    denied_addresses: Vec<IpAddr>,
    fence: Fence,
    metrics: &Metrics,
) -> Result<(Provider, Gate), Error> {
    let CloudProvider { name, component, configuration, grants, limits: tightened } = document;
    let failed = |source| Error::Provider { provider: name.clone(), source };
    let limits = Limits::default();
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let bytes = pileus_host::read(&component).await.map_err(failed)?;
    let component = Component::load(&engine, bytes).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics.host).await.map_err(failed)?;
    let settings = component.configure(&configuration, &limits, &metrics.host).await.map_err(failed)?;
    let (source, took) = match component.code {
        Code::Compiled(took) => ("compiler", took),
        Code::Cached(took) => ("cache", took),
    };
    tracing::info!(
        provider = %name, component = %description.name, version = %description.version,
        digest = %component.digest, contract = %component.contract, capabilities = ?component.capabilities,
        code_from = source, took_ms = took.as_millis(), "provider loaded"
    );
    let coverage = coverage(&grants, &settings);
    for (endpoint, grants) in &coverage.granted {
        tracing::info!(provider = %name, %endpoint, ?grants, "the provider may reach what it asks for");
    }
    for endpoint in &coverage.missing {
        tracing::warn!(provider = %name, %endpoint, "the provider asks for a host that no grant names; requests to it will be denied");
    }
    let denied_ranges = denied_addresses.into_iter().map(Into::into).collect();
    let no_gate = |source| Error::Gate { provider: name.clone(), source: Box::new(source) };
    let limits = settings.limits.iter().map(published).collect::<Result<_, _>>().map_err(no_gate)?;
    let (provider, rules) = (name.clone(), settings.rules);
    let config = pileus_gate::Config { provider, grants, rules, limits, tightened, denied_ranges, fence };
    let gate = Gate::new(config, &metrics.gate).map_err(no_gate)?;
    let guest = Guest::new(component, &name, description, &configuration, gate.clone(), &metrics.host);
    Ok((guest.provider(), gate))
}

/// A limit as the gate takes it.
fn published(limit: &PublishedLimit) -> Result<pileus_gate::Limit, pileus_gate::Error> {
    let PublishedLimit { key, capacity, per_minute } = limit;
    pileus_gate::Limit::new(key, *capacity, f64::from(*per_minute) / 60.0)
}

/// What the provider wishes, against what it has.
pub(crate) fn coverage(grants: &[pileus_gate::Grant], settings: &Settings) -> Coverage {
    Coverage::new(grants, settings.wishes.iter().map(|wish| wish.endpoint.clone()))
}

/// The folder for compiled code, where there is one that can be used. A relative or empty `XDG_CACHE_HOME` doesn't
/// count, as its specification says.
pub(crate) fn compiled_code(compiled: cli::Compiled) -> Option<CompiledCode> {
    let default = || {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        cache.map(|cache| cache.join("pileus/compiled"))
    };
    let folder = compiled.compiled_code.or_else(default)?;
    CompiledCode::open(&folder)
        .inspect_err(|error| {
            tracing::warn!(folder = %folder.display(), %error, "compiled code is not kept; each start compiles");
        })
        .ok()
}

/// Components are compiled by a child process of this very program.
pub(crate) fn compiler() -> Compiler {
    Compiler::this_program(&[cli::COMPILE])
}

/// How to reach the API server: the kubeconfig that was named, else those in `KUBECONFIG`, else the Pod's service account.
/// Nothing is sent yet: one that doesn't answer shows in `/readyz`, and is asked again. The cluster's audit log knows who
/// asks by `who`.
pub(crate) async fn cluster(path: Option<PathBuf>, who: &str) -> Result<Config, Error> {
    let of_variable = || format!("in KUBECONFIG ({})", std::env::var("KUBECONFIG").unwrap_or_default());
    let named = path.as_ref().map_or_else(of_variable, |path| path.display().to_string());
    let wrong = |error: kube::config::KubeconfigError| {
        Error::Kubeconfig(format!("can't use the kubeconfig {named}: {error}"))
    };
    let kubeconfig = match &path {
        Some(path) => Some(Kubeconfig::read_from(path).map_err(wrong)?),
        None => Kubeconfig::from_env().map_err(wrong)?,
    };
    let mut config = match kubeconfig {
        Some(kubeconfig) => {
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None => Config::incluster()
            .map_err(|error| Error::Kubeconfig(format!("not in a Pod and no kubeconfig given: {error}")))?,
    };
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    if let Ok(agent) = HeaderValue::from_str(&format!("pileus/{} ({who})", env!("CARGO_PKG_VERSION"))) {
        config.headers.push((USER_AGENT, agent));
    }
    Ok(config)
}

/// The API server's own address, which a provider has no business with. On loopback, where only a developer's is, it
/// is denied with everything there unless a grant names it.
fn api_server_address(cluster: &Config) -> Vec<IpAddr> {
    let host = cluster.cluster_url.host().unwrap_or_default();
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .into_iter()
        .filter(|ip: &IpAddr| !ip.is_loopback())
        .collect()
}

fn stop_on_signal() -> Result<CancellationToken, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Machine)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Machine)?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: stopping once the writes that are under way have been answered");
        asked.cancel();
    });
    Ok(stop)
}

/// Spreads retries. Randomly keyed, so that replicas don't retry in step.
fn jitter() -> f64 {
    f64::from(u32::try_from(random() >> 96).unwrap_or_default()) / f64::from(u32::MAX)
}

/// As good as the keys that the system gives to hash maps; no secret is made of it.
fn random() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let keys = RandomState::new();
    u128::from(keys.hash_one(0_u8)) << 64 | u128::from(keys.hash_one(1_u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let config = pileus_gate::Config {
            provider: "test".to_owned(),
            grants: Vec::new(),
            rules: Vec::new(),
            limits: Vec::new(),
            tightened: Vec::new(),
            denied_ranges: Vec::new(),
            fence: Fence::default(),
        };
        Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_only_if_all_that_was_begun_has_ended_in_time() {
        for (name, drains_for, end) in [
            ("nothing is under way", Duration::ZERO, End::Released),
            ("it ends in time", Duration::from_secs(24), End::Released),
            ("the controllers give up after their own time", DRAIN, End::LeftToExpire),
        ] {
            let (gate, stop) = (gate(), CancellationToken::new());
            let controllers = async {
                stop.cancelled().await;
                tokio::time::sleep(drains_for).await;
            };
            let stopping = async {
                // Long after the start.
                tokio::time::sleep(DRAIN * 3).await;
                stop.cancel();
            };
            let (ended, ()) = tokio::join!(work(controllers, &gate, &stop), stopping);
            assert_eq!(ended, end, "{name}");
        }
    }
}
