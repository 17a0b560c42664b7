//! The controllers of one provider on this replica. They are made as soon as a release serves calls, and watch the Services from
//! then on; they work while this replica leads. A release that declares something else gets new controllers, which begin as
//! those of a new leader do.

mod controllers;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use pileus_cloud::Provider;
use pileus_controllers::facts::service::NodeSelector;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::Services;
use pileus_controllers::{ClusterAddresses, Health, VERSION_PERIOD, route};
use pileus_gate::Gate;
use pileus_host::Declaration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cli;
use crate::credentials::CredentialConditions;
use crate::document::CloudProvider;
use crate::error::Error;
use controllers::{Controllers, EventTasks, Parts, Settings};

/// What the controllers of all providers of a process share.
pub(crate) struct WorkDeps {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    /// At which this process reaches the API server.
    pub(crate) api_server: Vec<IpAddr>,
    pub(crate) metrics: pileus_controllers::Metrics,
    /// The name of this machine or Pod.
    pub(crate) host: String,
    pub(crate) cluster: pileus_cloud::Cluster,
    pub(crate) node_controllers: cli::NodeControllers,
    pub(crate) service_controller: cli::ServiceController,
    /// `None` where the route controller is turned off.
    pub(crate) route: Option<route::Settings>,
}

/// What controllers are made for. They go on as long as it stays the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    pub(crate) declaration: Declaration,
    classes: Vec<String>,
    node_selector: NodeSelector,
    is_default: bool,
}

impl Conditions {
    /// Those of a release and the document that it runs under.
    pub(crate) fn new(declaration: Declaration, document: &CloudProvider) -> Self {
        let CloudProvider { classes, node_selector, is_default, .. } = document;
        let (classes, node_selector) = (classes.clone(), node_selector.clone());
        Self { declaration, classes, node_selector, is_default: *is_default }
    }
}

/// The controllers of one provider.
pub(crate) struct Working {
    deps: Arc<WorkDeps>,
    health: Health,
    /// Whether this replica leads, and how long the leader before had done nothing then.
    leads: Option<Option<Duration>>,
    current: Option<Current>,
}

struct Current {
    conditions: Conditions,
    gate: watch::Sender<Gate>,
    /// Until they work.
    controllers: Option<Controllers>,
    work: Option<JoinHandle<()>>,
    stop: CancellationToken,
    events: EventTasks,
    /// Watches of Services, and what else goes on on a replica that stands by.
    _watches: JoinSet<()>,
}

impl Working {
    /// No controllers yet. Their health checks go to `health`.
    pub(crate) fn new(deps: Arc<WorkDeps>, health: Health) -> Self {
        Self { deps, health, leads: None, current: None }
    }

    /// What the present controllers were made for.
    pub(crate) fn conditions(&self) -> Option<&Conditions> {
        self.current.as_ref().map(|current| &current.conditions)
    }

    /// Makes controllers in place of others that have stopped.
    ///
    /// # Errors
    /// [`Error::NothingToDo`] where no controller can use the provider.
    pub(crate) fn start(
        &mut self,
        conditions: Conditions,
        provider: Provider,
        gate: Gate,
    ) -> Result<(), Error> {
        let deps = &self.deps;
        let health = self.health.part();
        let mut watches = JoinSet::new();
        // Without load balancers Services aren't watched.
        let services = provider.load_balancers.is_some().then(|| {
            let requirements = &provider.service_requirements;
            Services::new(deps.client.clone(), deps.metrics.clone(), &health, requirements, VERSION_PERIOD)
        });
        if let Some(services) = services.clone() {
            watches.spawn(async move { services.watch(CancellationToken::new()).await });
        }
        let addresses = ClusterAddresses::new(deps.nodes.clone(), services.clone(), deps.api_server.clone());
        watches.spawn(addresses.clone().learn(deps.client.clone()));
        let (gate, gates) = watch::channel(gate);
        let credentials = CredentialConditions::new(gates.clone(), &health);
        watches.spawn(credentials.update());
        let settings = Settings {
            nodes: deps.node_controllers.clone(),
            service: deps.service_controller.service(deps.cluster.clone(), conditions.classes.clone()),
            route: deps.route.clone(),
        };
        let (metrics, host) = (deps.metrics.clone(), deps.host.clone());
        let parts = Parts {
            client: deps.client.clone(),
            nodes: deps.nodes.clone(),
            addresses,
            services,
            provider,
            gates,
            metrics,
            health,
            host,
        };
        let (controllers, events) = Controllers::assemble(parts, settings)?;
        self.current = Some(Current {
            conditions,
            gate,
            controllers: Some(controllers),
            work: None,
            stop: CancellationToken::new(),
            events,
            _watches: watches,
        });
        self.begin();
        Ok(())
    }

    /// The release that serves calls has another gate, and the controllers go on.
    pub(crate) fn renew(&self, gate: Gate) {
        if let Some(current) = &self.current {
            current.gate.send_replace(gate);
        }
    }

    /// This replica leads from now on; `predecessor_idle` is how long a leader before it had done nothing.
    pub(crate) fn lead(&mut self, predecessor_idle: Option<Duration>) {
        self.leads = Some(predecessor_idle);
        self.begin();
    }

    /// Lets the controllers work, if there are any and this replica leads.
    fn begin(&mut self) {
        let (Some(idle), Some(current)) = (self.leads, &mut self.current) else { return };
        let Some(controllers) = current.controllers.take() else { return };
        refill_limits(&current.gate.borrow(), idle);
        tracing::info!("starting controllers");
        let stop = current.stop.clone();
        current.work = Some(tokio::spawn(async move { controllers.run(&stop).await }));
    }

    /// Stops the controllers, and waits until what they have begun in the cluster has ended. The cloud finishes what it has begun.
    pub(crate) async fn stop(&mut self) {
        let Some(current) = self.current.take() else { return };
        current.stop.cancel();
        if let Some(work) = current.work {
            // A panic was logged where it happened.
            let _ended = work.await;
        }
        current.events.finish().await;
    }
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
