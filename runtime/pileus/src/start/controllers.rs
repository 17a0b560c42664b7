//! The controllers of one process: put together from what they share, and run side by side until they are told to stop.

use kube::Client;
use pileus_cloud::Provider;
use pileus_controllers::events::Events;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::Services;
use pileus_controllers::{node, node_lifecycle, route, service};
use pileus_gate::Gate;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::jitter;
use crate::error::Error;
use crate::{cli, cluster, credentials};

/// What the controllers are made of.
pub(super) struct Cast {
    pub(super) client: Client,
    pub(super) nodes: Nodes,
    /// Where the provider balances load.
    pub(super) services: Option<Services>,
    pub(super) provider: Provider,
    pub(super) gate: Gate,
    pub(super) metrics: pileus_controllers::Metrics,
    /// The name of this machine or Pod.
    pub(super) host: String,
}

/// The controllers, ready to run.
pub(super) struct Controllers {
    client: Client,
    node: Option<node::Controller>,
    node_lifecycle: Option<node_lifecycle::Controller>,
    service: Option<service::Controller>,
    route: Option<route::Controller>,
    gate: Gate,
    /// The operator's name for the provider.
    provider: String,
    /// What is told of its credentials.
    events: Events,
}

impl Cast {
    /// Puts the controllers together, and returns with them what still sends their events when they have ended.
    pub(super) fn controllers(
        self,
        flags: &cli::NodeControllers,
        load_balancers: service::Settings,
        routes: Option<route::Settings>,
    ) -> Result<(Controllers, Vec<JoinHandle<()>>), Error> {
        let mut sending = Vec::new();
        let mut events = |component| {
            let (events, task) =
                Events::start(self.client.clone(), component, &self.host, self.metrics.clone());
            sending.push(task);
            events
        };
        let Self { nodes, services, provider, metrics, .. } = &self;
        let shared = || (nodes.clone(), provider.clone(), metrics.clone());
        let (all, with, counted) = shared();
        let told = events("cloud-node-controller");
        let nodes_wait = routes.as_ref().is_some_and(|routes| routes.nodes_wait) && provider.routes.is_some();
        let node = node::Controller::new(all, with, told, counted, flags.node(nodes_wait), jitter);
        let (all, with, counted) = shared();
        let told = events("cloud-node-lifecycle-controller");
        let node_lifecycle =
            node_lifecycle::Controller::new(all, with, told, counted, flags.node_lifecycle());
        let service = services.clone().and_then(|services| {
            let ((all, with, counted), told) = (shared(), events("service-controller"));
            service::Controller::new(all, services, with, told, counted, load_balancers, jitter)
        });
        let route = routes.and_then(|settings| {
            let ((all, with, counted), told) = (shared(), events("route_controller"));
            route::Controller::new(all, with, told, counted, settings, jitter)
        });
        let events = events("pileus");
        if node.is_none() && node_lifecycle.is_none() && service.is_none() && route.is_none() {
            return Err(Error::NothingToDo { provider: self.provider.name });
        }
        let Self { client, gate, provider, .. } = self;
        let provider = provider.name;
        Ok((Controllers { client, node, node_lifecycle, service, route, gate, provider, events }, sending))
    }
}

impl Controllers {
    /// Works until all have ended after they were told to stop.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { client, node, node_lifecycle, service, route, gate, provider, events } = self;
        let of_nodes = async {
            if let Some(node) = node {
                node.run(stop.clone()).await;
            }
        };
        let of_lifecycles = async {
            if let Some(node_lifecycle) = node_lifecycle {
                node_lifecycle.run(stop.clone()).await;
            }
        };
        // What these create in the cloud bears the cluster's UID.
        let of_the_cluster = async {
            if service.is_none() && route.is_none() {
                return;
            }
            let Some(uid) = stop.run_until_cancelled(cluster::uid(&client)).await else { return };
            let of_services = async {
                if let Some(service) = service {
                    service.of_cluster(uid.clone()).run(stop.clone()).await;
                }
            };
            let of_routes = async {
                if let Some(route) = route {
                    route.of_cluster(uid.clone()).run(stop.clone()).await;
                }
            };
            tokio::join!(of_services, of_routes);
        };
        let controllers = async { tokio::join!(of_nodes, of_lifecycles, of_the_cluster) };
        tokio::select! {
            _ = controllers => {}
            () = credentials::record_events(&gate, &provider, &events) => {}
        }
    }
}
