//! The composition root of `pileus run`: the one place where documents, cluster, providers and election meet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use pileus_controllers::events::Events;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::ServiceWatches;
use pileus_controllers::{Health, StoreHistory, route};
use pileus_gate::{Fence, Grant};
use pileus_loader::ProxyEnvironment;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterConfig;
use crate::document::{CloudProvider, ClusterOrigin};
use crate::error::Error;
use crate::leader::{Election, LeaseEnd};
use crate::leading::Leading;
use crate::metrics::Metrics;
use crate::providers::{Announcer, Documents, FollowedFile, FollowedResources, ProviderDeps, Providers};
use crate::random::{jitter, random};
use crate::releases::{Comparison, ReleaseDeps};
use crate::secrets::Secrets;
use crate::signals::stop_on_signal;
use crate::sources::environment_proxies;
use crate::working::{ClaimTable, WorkDeps};
use crate::{admin, cli, cluster, folders, provider, telemetry};

/// How long the process waits at its end for queued events. Events are best effort, so some may be lost.
const EVENTS_DRAIN: Duration = Duration::from_secs(2);

/// Runs the providers, and their controllers as soon as this replica leads, until SIGTERM or SIGINT. Then it waits until
/// everything in flight has ended.
///
/// # Errors
/// Where the process can't start, or loses its lease.
pub(crate) async fn run(arguments: cli::Run) -> Result<(), Error> {
    telemetry::start(arguments.log_format, &arguments.log_filter)?;
    let stop = stop_on_signal()?;
    let secrets = Secrets::default();
    let route = arguments.route_controller.route(arguments.cluster(), &arguments.controllers)?;
    let file =
        arguments.provider.clone().map(|path| FollowedFile::read(path, secrets.clone())).transpose()?;
    if let Some(document) = file.as_ref().and_then(FollowedFile::document) {
        log_overruled(document, &environment_proxies());
    }
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let health = Health::default();
    // Before the admin server listens: a process whose parts have no checks yet isn't ready.
    let starting = health.part().check("providers", "the documents of the providers are not known yet");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let election = Election::new(arguments.leader_election.clone(), &host, random(), &mut registry)?;
    let cluster = cluster::config(arguments.kubeconfig.clone(), election.identity()).await?;
    let gates = watch::Sender::default();
    let shown = admin::Sources {
        health: health.clone(),
        leader: Some(election.status()),
        registry: Arc::new(registry),
        gates: gates.subscribe(),
    };
    admin::start(&arguments.admin_server, shown)?;

    let client = cluster.client(election.fence())?;
    secrets.connect(client.clone(), &cluster.config.default_namespace);
    let history = StoreHistory::default();
    let nodes = Nodes::new(client.clone(), metrics.controllers.clone(), &health, &history);
    let services = ServiceWatches::new(client.clone(), &metrics.controllers, &history);
    let (leads, leading) = watch::channel(None);
    let (events, event_task) = Events::start(client.clone(), "pileus", &host, metrics.controllers.clone());
    let namespace = cluster.config.default_namespace.as_str();
    let documents = documents(file, &arguments, secrets, (&client, namespace), &health)?;
    let announcer = Announcer { events, leading: leading.clone(), metrics: metrics.swaps.clone() };
    let (of_nodes, of_services) = (nodes.clone(), services.clone());
    let process = Process { client, nodes, services, metrics, health, host, announcer };
    let may_be_several = !documents.is_file();
    let deps = provider_deps(arguments, route, process, &cluster, (election.fence(), may_be_several))?;
    let providers = Providers::new(deps, documents, gates, starting);
    let run = lead_and_work(providers, (leads, leading), election, cluster, &stop);
    tokio::select! {
        worked = run => worked?,
        // A replica that stands by watches, too: when it is elected, it knows all Nodes.
        () = of_nodes.watch(CancellationToken::new()) => {}
        () = of_services.run(CancellationToken::new()) => {}
    }
    if tokio::time::timeout(EVENTS_DRAIN, event_task).await.is_err() {
        tracing::warn!("stopped before all events were sent");
    }
    tracing::info!("stopped");
    Ok(())
}

/// What exists once in a process.
struct Process {
    client: Client,
    nodes: Nodes,
    services: ServiceWatches,
    metrics: Metrics,
    health: Health,
    /// The name of this machine or Pod.
    host: String,
    announcer: Announcer,
}

/// The operator's file, or else the resources of the cluster.
///
/// # Errors
/// [`Error::Flag`] for the folder that the resources may name files in.
fn documents(
    file: Option<FollowedFile>,
    arguments: &cli::Run,
    secrets: Secrets,
    (client, namespace): (&Client, &str),
    health: &Health,
) -> Result<Documents, Error> {
    if let Some(file) = file {
        return Ok(Documents::File(Box::new(file)));
    }
    let origin =
        ClusterOrigin::new(secrets, arguments.provider_files.as_deref(), arguments.provider_node_access)?;
    let check = health.check("provider-watch", "the API server has not sent the list of CloudProviders yet");
    Ok(Documents::Resources(Box::new(FollowedResources::new((client.clone(), namespace), origin, check))))
}

/// What all providers share.
///
/// # Errors
/// [`Error::Engine`].
fn provider_deps(
    arguments: cli::Run,
    route: Option<route::Settings>,
    process: Process,
    cluster: &ClusterConfig,
    (fence, may_be_several): (Fence, bool),
) -> Result<ProviderDeps, Error> {
    let Process { client, nodes, services, metrics, health, host, announcer } = process;
    let (own_cluster, api_server) = (arguments.cluster(), cluster::addresses(cluster));
    let comparison = Comparison {
        client: client.clone(),
        nodes: nodes.clone(),
        server: cluster.config.cluster_url.clone(),
        cluster: own_cluster.clone(),
        routes: route.clone(),
        controllers: arguments.controllers.clone(),
    };
    let work = WorkDeps {
        client,
        claims: ClaimTable::new(nodes.clone()),
        nodes,
        services,
        may_be_several,
        api_server: api_server.clone(),
        metrics: metrics.controllers.clone(),
        host,
        cluster: own_cluster,
        controllers: arguments.controllers,
        node_controllers: arguments.node_controllers,
        service_controller: arguments.service_controller,
        route,
    };
    let releases = ReleaseDeps {
        engine: provider::engine(arguments.compiled)?,
        store: folders::store(arguments.stored)
            .inspect_err(|error| tracing::warn!(%error, "no image can be fetched"))
            .ok(),
        metrics,
        denied_addresses: api_server,
        fence,
    };
    let (releases, work) = (Arc::new(releases), Arc::new(work));
    Ok(ProviderDeps { releases, work, comparison, health, announcer })
}

/// Logs the proxy variables that name another way to the cloud than the document, which alone decides.
fn log_overruled(document: &CloudProvider, environment: &ProxyEnvironment) {
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

/// Takes part in the election as soon as there is something to do, and lets the providers' controllers work once this replica
/// is elected. Gives up the lease when they have ended.
async fn lead_and_work(
    providers: Providers,
    (leads, leading): (watch::Sender<Option<Leading>>, watch::Receiver<Option<Leading>>),
    election: Election,
    cluster: ClusterConfig,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let is_file = providers.is_file();
    let mut gates = providers.gates();
    let mut work = std::pin::pin!(providers.run(leading, stop));
    // A replica that can't serve must not lead. Documents of the cluster need a leader first, who decides what is active.
    if is_file {
        tokio::select! {
            ended = &mut work => return ended.map(drop),
            _ = gates.wait_for(|gates| !gates.is_empty()) => {}
        }
    }
    tracing::info!(api_server = %cluster.config.cluster_url, identity = election.identity(), "ready to lead");
    let leadership = election.start(cluster, jitter)?;
    tokio::select! {
        biased;
        ended = &mut work => {
            leadership.end(LeaseEnd::Released).await;
            return ended.map(drop);
        }
        acquired = leadership.acquired() => acquired?,
    }
    leads.send_replace(Some(Leading { predecessor_idle: leadership.predecessor_idle() }));
    let end = tokio::select! {
        biased;
        lost = leadership.lost() => return Err(lost),
        end = work => end?,
    };
    leadership.end(end).await;
    Ok(())
}
