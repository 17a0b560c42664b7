//! Assembles the controllers of one process from what they share, and runs them side by side until they are stopped.

use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use kube::Client;
use pileus_cloud::Provider;
use pileus_controllers::events::Events;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::Services;
use pileus_controllers::{ClusterAddresses, ControllerDeps, Health, node, node_lifecycle, route, service};
use pileus_gate::Gate;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli;
use crate::cluster;
use crate::credentials;
use crate::error::Error;
use crate::random::jitter;

/// How long the process waits at its end for queued events. Events are best effort, so some may be lost.
const EVENTS_DRAIN: Duration = Duration::from_secs(2);

/// What the operator has set for the controllers.
pub(super) struct Settings {
    /// Which controllers the operator wants.
    pub(super) controllers: cli::ControllerSelection,
    pub(super) nodes: cli::NodeControllers,
    pub(super) service: service::Settings,
    /// `None` where the route controller is turned off.
    pub(super) route: Option<route::Settings>,
}

/// What the controllers share.
pub(super) struct Parts {
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    pub(super) addresses: ClusterAddresses,
    /// `None` where the provider has no load balancers.
    pub(super) services: Option<Services>,
    pub(super) provider: Provider,
    pub(super) gates: watch::Receiver<Gate>,
    pub(super) metrics: pileus_controllers::Metrics,
    pub(super) health: Health,
    /// The name of this machine or Pod.
    pub(super) host: String,
}

/// The controllers, ready to run. A controller is `None` where the provider lacks its capability or a flag turns it off.
pub(super) struct Controllers {
    client: Client,
    node: Option<node::Controller>,
    node_lifecycle: Option<node_lifecycle::Controller>,
    service: Option<service::Controller>,
    route: Option<route::Controller>,
    /// The gate that their calls pass; the last one is the present one.
    gates: watch::Receiver<Gate>,
    /// The operator's name for the provider.
    provider: String,
    /// The sink of events about the provider's credentials.
    events: Events,
    metrics: pileus_controllers::Metrics,
    health: Health,
}

/// The tasks that send events. They outlive the controllers, so that the last events still get out.
pub(super) struct EventTasks(Vec<JoinHandle<()>>);

impl Controllers {
    /// Builds every controller that the provider supports and the operator wants.
    ///
    /// # Errors
    /// [`Error::NothingToDo`] where no controller remains.
    pub(super) fn assemble(parts: Parts, settings: Settings) -> Result<(Self, EventTasks), Error> {
        let Parts { client, nodes, addresses, services, provider, gates, metrics, health, host } = parts;
        let mut tasks = Vec::new();
        let mut events_of = |component| {
            let (events, task) = Events::start(client.clone(), component, &host, metrics.clone());
            tasks.push(task);
            events
        };
        let mut deps_of = |component| ControllerDeps {
            nodes: nodes.clone(),
            addresses: addresses.clone(),
            provider: provider.clone(),
            events: events_of(component),
            metrics: metrics.clone(),
            jitter,
        };
        let nodes_wait = settings.route.as_ref().is_some_and(|route| route.nodes_wait);
        let flags = settings.nodes;
        let node_settings = flags.node(nodes_wait && provider.routes.is_some());
        let runs = |name| settings.controllers.runs(name);
        let node = runs(cli::ControllerName::CloudNode)
            .then(|| node::Controller::new(deps_of("cloud-node-controller"), node_settings))
            .flatten();
        let node_lifecycle = runs(cli::ControllerName::CloudNodeLifecycle)
            .then(|| {
                let deps = deps_of("cloud-node-lifecycle-controller");
                node_lifecycle::Controller::new(deps, flags.node_lifecycle())
            })
            .flatten();
        let service = services.and_then(|services| {
            service::Controller::new(deps_of("service-controller"), services, settings.service)
        });
        let route =
            settings.route.and_then(|route| route::Controller::new(deps_of("route_controller"), route));
        let events = events_of("pileus");
        let provider = provider.name;
        if node.is_none() && node_lifecycle.is_none() && service.is_none() && route.is_none() {
            return Err(Error::NothingToDo { provider });
        }
        let controllers =
            Self { client, node, node_lifecycle, service, route, gates, provider, events, metrics, health };
        Ok((controllers, EventTasks(tasks)))
    }

    /// Runs all controllers until each of them has ended after the stop.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { client, node, node_lifecycle, service, route, gates, provider, events, metrics, health } =
            self;
        let stopped = || stop.clone();
        let nodes = OptionFuture::from(node.map(|node| node.run(stopped())));
        let node_lifecycles = OptionFuture::from(node_lifecycle.map(|lifecycle| lifecycle.run(stopped())));
        // The service and route controllers mark what they create with the cluster's UID.
        let services_and_routes = async {
            if service.is_none() && route.is_none() {
                return;
            }
            let Some(uid) = stop.run_until_cancelled(cluster::uid(&client, &health, &metrics)).await else {
                return;
            };
            let service = service.map(|service| service.of_cluster(uid.clone()).run(stopped()));
            let route = route.map(|route| route.of_cluster(uid.clone()).run(stopped()));
            tokio::join!(OptionFuture::from(service), OptionFuture::from(route));
        };
        let controllers = async { tokio::join!(nodes, node_lifecycles, services_and_routes) };
        tokio::select! {
            _ = controllers => {}
            () = credentials::record_events(&gates, &provider, &events) => {}
        }
    }
}

impl EventTasks {
    /// Waits for a short time until all events have been sent.
    pub(super) async fn finish(self) {
        if tokio::time::timeout(EVENTS_DRAIN, join_all(self.0)).await.is_err() {
            tracing::warn!("stopped before all events were sent");
        }
    }
}
