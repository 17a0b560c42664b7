//! The composition root: the one place where document, cluster, provider, gate and controllers meet.

mod controllers;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use kube::Config;
use pileus_controllers::Health;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::Services;
use pileus_gate::Gate;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::document::CloudProvider;
use crate::error::Error;
use crate::leader::{Election, Leadership, LeaseEnd};
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::signals::stop_on_signal;
use crate::{admin, cli, cluster, credentials, leader, provider, telemetry};
use controllers::Cast;

/// How long events that are still queued at the end are waited for: they tell, they don't promise.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long writes that were begun before the end are waited for, in all: a Pod's grace period is 30 s.
const DRAIN: Duration = Duration::from_secs(25);

/// Runs the controllers, as soon as this replica leads, until SIGTERM or SIGINT, and then until what is under way has
/// ended.
pub(crate) async fn run(arguments: cli::Run) -> Result<(), Error> {
    telemetry::start(arguments.log_format, &arguments.log_filter)?;
    let routes = arguments.route_controller.route(arguments.cluster())?;
    let stop = stop_on_signal()?;
    let secrets = Secrets::default();
    let document = CloudProvider::read(&arguments.provider, &secrets)?;
    let load_balancers = arguments.service_controller.service(arguments.cluster(), document.classes.clone());

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = Election::new(arguments.leader_election, &host, random(), &mut registry)?;
    let cluster = cluster::config(arguments.kubeconfig, election.identity()).await?;
    let health = Health::default();
    let loaded = health.condition(format!("provider-{}", document.name), "it is being loaded");
    let show_gate = watch::Sender::new(None);
    let shown = admin::Sources {
        health: health.clone(),
        leader: election.status(),
        registry: Arc::new(registry),
        gate: show_gate.subscribe(),
    };
    admin::start(&arguments.admin_server, shown)?;

    let fence = election.fence();
    let api_server = cluster.cluster_url.to_string();
    let client = leader::fenced(cluster.clone(), fence.clone())
        .map_err(|error| Error::Kubeconfig(error.to_string()))?;
    secrets.connect(client.clone(), &cluster.default_namespace);
    let denied = cluster::addresses(&cluster);
    let loading = provider::load(document, arguments.compiled, denied, fence, &metrics);
    // A large component may take longer than a Pod has to stop in.
    let Some(done) = stop.run_until_cancelled(loading).await else { return Ok(()) };
    let (provider, gate) = done?;
    let credentials = credentials::CredentialConditions::new(gate.clone(), &health);
    loaded.holds();
    show_gate.send_replace(Some(gate.clone()));
    let nodes = Nodes::new(client.clone(), metrics.controllers.clone(), &health);
    // Nobody reads Services for a provider that can do nothing for them.
    let services = provider.load_balancers.is_some().then(|| {
        Services::new(client.clone(), metrics.controllers.clone(), &health, &provider.service_requirements)
    });
    let cast = Cast {
        client,
        nodes: nodes.clone(),
        services: services.clone(),
        provider,
        gate: gate.clone(),
        metrics: metrics.controllers,
        host,
    };
    let (controllers, events) = cast.controllers(&arguments.node_controllers, load_balancers, routes)?;
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
    let watch_services = OptionFuture::from(services.as_ref().map(|all| all.watch(CancellationToken::new())));
    // One that stands by watches, too, so that it knows all Nodes and Services when its turn comes.
    tokio::select! {
        served = serve => served?,
        () = nodes.watch(CancellationToken::new()) => {}
        Some(()) = watch_services => {}
        () = credentials.update() => {}
    }
    if tokio::time::timeout(LAST_WORDS, join_all(events)).await.is_err() {
        tracing::warn!("stopped before all events were sent");
    }
    tracing::info!("stopped");
    Ok(())
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
    leadership.end(LeaseEnd::Released).await;
    Ok(None)
}

/// Lets controllers work until they are stopped, and what they have begun come to its end.
async fn work(controllers: impl Future<Output = ()>, gate: &Gate, stop: &CancellationToken) -> LeaseEnd {
    let close = async {
        stop.cancelled().await;
        gate.close();
        Instant::now() + DRAIN
    };
    // The end is set before the controllers begin to count their own time.
    let (end, ()) = tokio::join!(biased; close, controllers);
    let cloud = tokio::time::timeout_at(end, gate.wait_for_writes()).await;
    if cloud.is_err() {
        tracing::warn!(unfinished = gate.writes_in_flight(), "stopped before the cloud answered all writes");
    }
    // Controllers that needed all of the time have given up something, too.
    if Instant::now() < end { LeaseEnd::Released } else { LeaseEnd::LeftToExpire }
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
            credentials: Vec::new(),
            denied_ranges: Vec::new(),
            fence: pileus_gate::Fence::default(),
            connection: pileus_gate::Connection::default(),
        };
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
