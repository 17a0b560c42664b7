//! The composition root of `pileus run`: the one place where document, cluster, provider, gate and controllers meet.

mod controllers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::Services;
use pileus_controllers::{ClusterAddresses, Health, VERSION_PERIOD};
use pileus_gate::{Gate, Grant};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{ClusterConfig, Environment};
use crate::document::CloudProvider;
use crate::error::Error;
use crate::leader::{Election, Leadership, LeaseEnd};
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::signals::stop_on_signal;
use crate::{admin, cli, cluster, credentials, provider, telemetry};
use controllers::{Controllers, Parts};

/// How long the process waits for writes that began before the stop. A Pod's grace period is 30 s.
const DRAIN: Duration = Duration::from_secs(25);

/// Runs the controllers as soon as this replica leads, until SIGTERM or SIGINT. Then it waits until everything in flight
/// has ended.
///
/// # Errors
/// Where the process can't start, or loses its lease.
pub(crate) async fn run(arguments: cli::Run) -> Result<(), Error> {
    telemetry::start(arguments.log_format, &arguments.log_filter)?;
    let stop = stop_on_signal()?;
    let secrets = Secrets::default();
    let route = arguments.route_controller.route(arguments.cluster())?;
    let document = CloudProvider::read(&arguments.provider, &secrets)?;
    log_overruled(&document, &Environment::read(|name| std::env::var(name).ok()));
    let service = arguments.service_controller.service(arguments.cluster(), document.classes.clone());
    let settings = controllers::Settings { nodes: arguments.node_controllers, service, route };

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let health = Health::default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = Election::new(arguments.leader_election, &host, random(), &mut registry)?;
    let cluster = cluster::config(arguments.kubeconfig, election.identity()).await?;
    let provider_loads = health.check(format!("provider-{}", document.name), "it is being loaded");
    let gate_shown = watch::Sender::new(None);
    let shown = admin::Sources {
        health: health.clone(),
        leader: election.status(),
        registry: Arc::new(registry),
        gate: gate_shown.subscribe(),
    };
    admin::start(&arguments.admin_server, shown)?;

    let fence = election.fence();
    let client = cluster.client(fence.clone())?;
    secrets.connect(client.clone(), &cluster.config.default_namespace);
    let api_server = cluster::addresses(&cluster);
    let loading = provider::load(document, arguments.compiled, api_server.clone(), fence, &metrics);
    // To load a large component may take longer than a Pod's grace period.
    let Some(loaded) = stop.run_until_cancelled(loading).await else { return Ok(()) };
    let (provider, gate) = loaded?;
    provider_loads.pass();
    gate_shown.send_replace(Some(gate.clone()));
    let credentials = credentials::CredentialConditions::new(gate.clone(), &health);

    let metrics = metrics.controllers;
    let nodes = Nodes::new(client.clone(), metrics.clone(), &health, VERSION_PERIOD);
    // Without load balancers Services aren't watched.
    let services = provider.load_balancers.is_some().then(|| {
        let requirements = &provider.service_requirements;
        Services::new(client.clone(), metrics.clone(), &health, requirements, VERSION_PERIOD)
    });
    let addresses = ClusterAddresses::new(nodes.clone(), services.clone(), api_server);
    let parts = Parts { client, nodes, addresses, services, provider, gate, metrics, health, host };
    Box::pin(watch_and_work(parts, settings, election, cluster, &credentials, &stop)).await
}

/// Watches the cluster, and runs the controllers while this replica leads.
async fn watch_and_work(
    parts: Parts,
    settings: controllers::Settings,
    election: Election,
    cluster: ClusterConfig,
    credentials: &credentials::CredentialConditions,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let (nodes, services) = (parts.nodes.clone(), parts.services.clone());
    let learning = parts.addresses.clone().learn(parts.client.clone());
    let (controllers, events) = Controllers::assemble(parts, settings)?;
    // A replica that stands by watches, too: when it is elected, it knows all Nodes and Services.
    let watch_services = OptionFuture::from(services.as_ref().map(|all| all.watch(CancellationToken::new())));
    tokio::select! {
        worked = lead_and_work(election, cluster, controllers, stop) => worked?,
        () = nodes.watch(CancellationToken::new()) => {}
        () = learning => {}
        Some(()) = watch_services => {}
        () = credentials.update() => {}
    }
    events.finish().await;
    tracing::info!("stopped");
    Ok(())
}

/// Logs the proxy variables that name another way to the cloud than the document, which alone decides.
fn log_overruled(document: &CloudProvider, environment: &Environment) {
    let proxy = document.connection.proxy.as_ref().map(|proxy| proxy.url.to_string());
    let of = |grant: &Grant| {
        let host = grant.host.to_string().replace('*', "any");
        environment.overruled(grant.tls, &host, grant.port, proxy.as_deref())
    };
    let variables: BTreeSet<_> = document.grants.iter().filter_map(of).collect();
    for variable in variables {
        let proxy = proxy.as_deref().unwrap_or("none");
        tracing::warn!(
            variable,
            proxy,
            "this environment variable doesn't apply to the cloud: spec.connection.proxy of the document decides"
        );
    }
}

/// Runs the controllers once this replica is elected, and gives up the lease when they have ended.
async fn lead_and_work(
    election: Election,
    cluster: ClusterConfig,
    controllers: Controllers,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let gate = controllers.gate();
    tracing::info!(api_server = %cluster.config.cluster_url, identity = election.identity(), "ready to lead");
    let Some(leadership) = lead(election, cluster, stop).await? else { return Ok(()) };
    refill_limits(&gate, leadership.predecessor_idle());
    tracing::info!("starting controllers");
    let end = tokio::select! {
        biased;
        lost = leadership.lost() => return Err(lost),
        end = work(controllers.run(stop), &gate, stop) => end,
    };
    leadership.end(end).await;
    Ok(())
}

/// Lets the limits start with what has flowed in since the former leader can have sent anything.
fn refill_limits(gate: &Gate, idle: Option<Duration>) {
    gate.refill_limits(idle.unwrap_or(Duration::MAX));
    match idle {
        None => tracing::info!("limits start full, because no replica has led before"),
        Some(idle) => tracing::info!(
            predecessor_idle_s = idle.as_secs(),
            "limits start with what has flowed in since the former leader stopped"
        ),
    }
}

/// Takes part in the election until this replica leads. `None` where it is stopped before.
async fn lead(
    election: Election,
    cluster: ClusterConfig,
    stop: &CancellationToken,
) -> Result<Option<Leadership>, Error> {
    let leadership = election.start(cluster, jitter)?;
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        acquired = leadership.acquired() => return acquired.map(|()| Some(leadership)),
    }
    leadership.end(LeaseEnd::Released).await;
    Ok(None)
}

/// Runs the controllers until they are stopped and what they have begun has ended. The lease is released only where nothing
/// can be in flight any more.
async fn work(controllers: impl Future<Output = ()>, gate: &Gate, stop: &CancellationToken) -> LeaseEnd {
    let close = async {
        stop.cancelled().await;
        gate.close();
        Instant::now() + DRAIN
    };
    // The deadline is set before the controllers start to count their own.
    let (end, ()) = tokio::join!(biased; close, controllers);
    let cloud = tokio::time::timeout_at(end, gate.wait_for_writes()).await;
    if cloud.is_err() {
        tracing::warn!(unfinished = gate.writes_in_flight(), "stopped before the cloud answered all writes");
    }
    // Controllers that took the whole time have given up writes, too.
    if Instant::now() < end { LeaseEnd::Released } else { LeaseEnd::LeftToExpire }
}

/// Returns a number from 0 to 1 that spreads retries. It is keyed at random, so that replicas don't retry in step.
fn jitter() -> f64 {
    f64::from(u32::try_from(random() >> 96).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Returns a number that is as random as the keys of hash maps. No secret is made of it.
fn random() -> u128 {
    use std::hash::{BuildHasher as _, RandomState};
    let keys = RandomState::new();
    u128::from(keys.hash_one(0_u8)) << 64 | u128::from(keys.hash_one(1_u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let config = pileus_gate::Config::new("test");
        Gate::new(config, &pileus_gate::Metrics::register(&mut Registry::default())).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_only_if_all_that_was_begun_has_ended_in_time() {
        for (name, drains_for, end) in [
            ("nothing is under way", Duration::ZERO, LeaseEnd::Released),
            ("it ends in time", Duration::from_secs(24), LeaseEnd::Released),
            ("the controllers give up after their own time", DRAIN, LeaseEnd::LeftToExpire),
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
