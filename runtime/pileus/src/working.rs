//! The controllers of one provider on this replica. They are made as soon as a release serves calls, and watch the Services from
//! then on; they work while this replica leads. A release that declares something else gets new controllers, which begin as
//! those of a new leader do.

mod claim_table;
mod conditions;
mod controllers;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use pileus_cloud::Provider;
use pileus_controllers::claims::Overlap;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::{ServiceWatches, Services};
use pileus_controllers::{ClusterAddresses, Health, HealthCheck, route, service};
use pileus_gate::Gate;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cli;
use crate::credentials::CredentialConditions;
use crate::error::Error;
use crate::leading::Leading;
pub(crate) use claim_table::ClaimTable;
use claim_table::Refusals;
pub(crate) use conditions::Conditions;
use controllers::{Controllers, EventTasks, Parts, Settings};

/// How long the end of a provider, or of the process, waits for writes that began before. A Pod's grace period is 30 s.
pub(crate) const DRAIN: Duration = Duration::from_secs(25);

/// What the controllers of all providers of a process share.
pub(crate) struct WorkDeps {
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    pub(crate) services: ServiceWatches,
    pub(crate) claims: ClaimTable,
    /// Whether several providers may run: then metrics and health checks have the name of their provider, and Services are
    /// marked with it.
    pub(crate) may_be_several: bool,
    /// At which this process reaches the API server.
    pub(crate) api_server: Vec<IpAddr>,
    pub(crate) metrics: pileus_controllers::Metrics,
    /// The name of this machine or Pod.
    pub(crate) host: String,
    pub(crate) cluster: pileus_cloud::Cluster,
    /// Which controllers the operator wants.
    pub(crate) controllers: cli::ControllerSelection,
    pub(crate) node_controllers: cli::NodeControllers,
    pub(crate) service_controller: cli::ServiceController,
    /// `None` where the route controller is turned off.
    pub(crate) route: Option<route::Settings>,
}

/// The controllers of one provider.
pub(crate) struct Working {
    deps: Arc<WorkDeps>,
    name: String,
    /// When its document was made.
    created_at: Timestamp,
    health: Health,
    /// Whether this replica leads, and how long the leader before had done nothing then.
    leads: Option<Leading>,
    /// Whether the limits have got what flowed in before this replica led.
    has_refilled: bool,
    /// What the controllers are to be made of, also while an older provider claims the same.
    wanted: Option<(Conditions, Provider, Gate)>,
    current: Option<Current>,
    refusals: watch::Receiver<Refusals>,
    /// Why it is refused, and what shows that.
    refused: Option<(String, HealthCheck)>,
}

struct Current {
    gate: watch::Sender<Gate>,
    /// Until they work.
    controllers: Option<Controllers>,
    work: Option<JoinHandle<()>>,
    stop: CancellationToken,
    events: EventTasks,
    /// What goes on on a replica that stands by.
    _watches: JoinSet<()>,
}

impl Working {
    /// No controllers yet for the provider of this name, whose document was made at this time. Their health checks go to
    /// `health`.
    pub(crate) fn new(deps: Arc<WorkDeps>, name: &str, created_at: Timestamp, health: &Health) -> Self {
        let health = if deps.may_be_several { health.of_provider(name) } else { health.part() };
        Self {
            name: name.to_owned(),
            created_at,
            health,
            leads: None,
            has_refilled: false,
            wanted: None,
            current: None,
            refusals: deps.claims.refusals(),
            refused: None,
            deps,
        }
    }

    /// What the controllers are made for.
    pub(crate) fn conditions(&self) -> Option<&Conditions> {
        self.wanted.as_ref().map(|(conditions, ..)| conditions)
    }

    /// Makes controllers in place of others that have stopped, unless an older provider claims the same Nodes or Services.
    ///
    /// # Errors
    /// [`Error::NothingToDo`] where no controller can use the provider.
    pub(crate) async fn start(
        &mut self,
        conditions: Conditions,
        provider: Provider,
        gate: Gate,
    ) -> Result<(), Error> {
        self.deps.claims.set(conditions.claim(&self.name, self.created_at));
        self.wanted = Some((conditions, provider, gate));
        self.reconsider().await
    }

    /// Finds what a release would claim that another provider has, and the present release doesn't.
    pub(crate) fn new_overlaps(&self) -> impl Fn(&Conditions) -> Vec<Overlap> + Send + use<> {
        let (deps, name, created_at) = (Arc::clone(&self.deps), self.name.clone(), self.created_at);
        move |conditions| deps.claims.new_overlaps(&conditions.claim(&name, created_at))
    }

    /// Why an older provider keeps the controllers from running.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refused.as_ref().map(|(why, _)| why.as_str())
    }

    /// Waits until other providers claim something else. Then [`Working::reconsider`] is due.
    pub(crate) async fn claims_changed(&mut self) {
        if self.refusals.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets the controllers run unless the provider is refused.
    ///
    /// # Errors
    /// As [`Working::start`].
    pub(crate) async fn reconsider(&mut self) -> Result<(), Error> {
        let refusal = self.refusals.borrow_and_update().get(&self.name).cloned();
        match (refusal, &self.wanted) {
            (Some(why), _) => {
                if self.current.is_some() || self.refused.is_none() {
                    tracing::warn!(provider = %self.name, "{why}; its controllers don't run");
                }
                self.refused = Some((why.clone(), self.health.part().check("claims", why)));
                self.end().await;
            }
            (None, Some((conditions, provider, gate))) => {
                self.refused = None;
                if self.current.is_none() {
                    let wanted = (conditions.clone(), provider.clone(), gate.clone());
                    self.current = Some(self.assemble(wanted)?);
                    self.begin();
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn assemble(&self, (conditions, provider, gate): (Conditions, Provider, Gate)) -> Result<Current, Error> {
        let deps = &self.deps;
        let health = self.health.part();
        let metrics = self.metrics();
        let mut watches = JoinSet::new();
        // Without a service controller Services aren't watched.
        let serves_services =
            provider.load_balancers.is_some() && deps.controllers.runs(cli::ControllerName::Service);
        let services = serves_services
            .then(|| Services::new(&deps.services, metrics.clone(), &health, &provider.service_requirements));
        if let Some(services) = services.clone() {
            watches.spawn(async move { services.join_watches().await });
        }
        let addresses = ClusterAddresses::new(deps.nodes.clone(), services.clone(), deps.api_server.clone());
        watches.spawn(addresses.clone().learn(deps.client.clone()));
        let (gate, gates) = watch::channel(gate);
        let credentials = CredentialConditions::new(gates.clone(), &health);
        watches.spawn(credentials.update());
        let settings = Settings {
            controllers: deps.controllers.clone(),
            nodes: deps.node_controllers.clone(),
            service: service::Settings {
                is_default: conditions.is_default,
                marks_services: deps.may_be_several,
                ..deps.service_controller.service(deps.cluster.clone(), conditions.classes.clone())
            },
            route: deps.route.clone(),
        };
        let host = deps.host.clone();
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
        Ok(Current {
            gate,
            controllers: Some(controllers),
            work: None,
            stop: CancellationToken::new(),
            events,
            _watches: watches,
        })
    }

    fn metrics(&self) -> pileus_controllers::Metrics {
        let Self { deps, name, .. } = self;
        if deps.may_be_several { deps.metrics.of_provider(name) } else { deps.metrics.clone() }
    }

    /// The release that serves calls has another gate, and the controllers go on.
    pub(crate) fn renew(&mut self, gate: Gate) {
        if let Some((.., wanted)) = &mut self.wanted {
            wanted.clone_from(&gate);
        }
        if let Some(current) = &self.current {
            current.gate.send_replace(gate);
        }
    }

    /// This replica leads from now on.
    pub(crate) fn lead(&mut self, leading: Leading) {
        self.leads = Some(leading);
        self.begin();
    }

    /// Lets the controllers work, if there are any and this replica leads.
    fn begin(&mut self) {
        let (Some(leading), Some(current)) = (self.leads, &mut self.current) else { return };
        let Some(controllers) = current.controllers.take() else { return };
        // Later gates take over what the first one has left.
        if !std::mem::replace(&mut self.has_refilled, true) {
            leading.refill_limits(&current.gate.borrow());
        }
        tracing::info!("starting controllers");
        let stop = current.stop.clone();
        current.work = Some(tokio::spawn(async move { Box::pin(controllers.run(&stop)).await }));
    }

    /// Stops the controllers, and waits until what they have begun in the cluster has ended. The cloud finishes what it has begun.
    pub(crate) async fn stop(&mut self) {
        self.wanted = None;
        self.end().await;
    }

    /// As [`Working::stop`], for good: what the provider claimed is free for others.
    pub(crate) async fn finish(mut self) {
        self.stop().await;
        self.deps.claims.remove(&self.name);
    }

    async fn end(&mut self) {
        let Some(current) = self.current.take() else { return };
        current.stop.cancel();
        // Controllers that never worked hold what the events wait for.
        drop(current.controllers);
        if let Some(work) = current.work {
            // A panic was logged where it happened.
            let _ended = work.await;
        }
        current.events.finish().await;
        // From now on nothing updates them.
        self.metrics().reset_gauges();
    }
}
