//! The composition root of `pileus node-manager`: the node controller of one Node, whose questions the machine's own metadata
//! service answers. It needs no lease, since no other process has its Node; `pileus run` leaves that alone.
//!
//! Of the document only what is for the machine's metadata service applies: a node manager runs on every machine, and must neither
//! use the cloud's quota nor carry the cloud's credentials there. A document that changes takes effect without a restart, which
//! would leave a Node that joins meanwhile without its node manager.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{LocalInstance, Provider};
use pileus_controllers::claims::{Claim, Claims};
use pileus_controllers::events::Events;
use pileus_controllers::facts::service::NodeSelector;
use pileus_controllers::node::{Controller, LocalInstances, Settings};
use pileus_controllers::nodes::Nodes;
use pileus_controllers::{ClusterAddresses, ControllerDeps, Health, StoreHistory};
use pileus_gate::{Credential, CredentialKind, Fence, Gate, Grant};
use pileus_host::{Component, Engine, Guest};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::provider::{configure, engine, gate_config, obtain};
use crate::providers::{FollowedFile, Gates};
use crate::random::jitter;
use crate::secrets::Secrets;
use crate::signals::stop_on_signal;
use crate::{admin, cli, program_code, telemetry};

/// How often the API server is asked whether the watch is up to date. In a large cluster thousands of node managers ask, and
/// nothing is deleted for what one of them knows.
const VERSION_PERIOD: Duration = Duration::from_mins(10);

/// The time between two tries to load the provider of a document that has changed. Its registry may fail for a while, and every
/// machine asks it.
const LOAD_RETRY: Duration = Duration::from_secs(30);

/// How often the memory of the program's code is given back. A refresh, each five minutes by default, brings a part of it back.
const RELEASE_PERIOD: Duration = Duration::from_mins(1);

/// How long the process waits at its end for queued events. Events are best effort, so some may be lost.
const EVENTS_DRAIN: Duration = Duration::from_secs(2);

/// Keeps one Node up to date until SIGTERM or SIGINT.
///
/// # Errors
/// Where the process can't start, and [`Error::NoLocalInstance`] where the component can't describe its machine.
pub(crate) async fn run(arguments: cli::NodeManager) -> Result<(), Error> {
    telemetry::start(arguments.log_format, &arguments.log_filter)?;
    let stop = stop_on_signal()?;
    let secrets = Secrets::default();
    let file = FollowedFile::read(arguments.provider.clone(), secrets.clone())?;
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::register(&mut registry));
    let (health, gates) = (Health::default(), watch::Sender::new(Gates::new()));
    let starting = health.check("provider", "the component is not loaded yet");
    let name = arguments.node_name.clone().unwrap_or_else(host_name);
    let cluster = cluster::config(arguments.kubeconfig.clone(), &format!("node-manager {name}")).await?;
    let shown = admin::Sources {
        health: health.clone(),
        leader: None,
        registry: Arc::new(registry),
        gates: gates.subscribe(),
    };
    let listens = cli::AdminServer { admin_address: arguments.admin_address, debug_address: None };
    admin::start(&listens, shown)?;
    let client = cluster.client(Fence::default())?;
    secrets.connect(client.clone(), &cluster.config.default_namespace);
    let (api_server, settings) = (cluster::addresses(&cluster), arguments.node());
    let mut source = ProviderSource {
        file,
        falls_back: arguments.fallback_instances,
        engine: engine(arguments.compiled)?,
        stored: arguments.stored,
        denied_ranges: api_server.iter().copied().map(Into::into).collect(),
        metrics: Arc::clone(&metrics),
    };
    let first = source.load_next().await?;
    starting.pass();

    let metrics = metrics.controllers.clone();
    let nodes = Nodes::of_one(
        client.clone(),
        metrics.clone(),
        &health,
        &StoreHistory::asked_each(VERSION_PERIOD),
        &name,
    );
    let (events, event_task) = Events::start(client, "cloud-node-manager", &name, metrics.clone());
    let this = ThisNode { name, nodes: nodes.clone(), events, metrics, api_server, settings, gates };
    tokio::select! {
        () = this.manage(first, source, stop) => {}
        () = nodes.watch(CancellationToken::new()) => {}
        never = release_code() => match never {},
    }
    if tokio::time::timeout(EVENTS_DRAIN, event_task).await.is_err() {
        tracing::warn!("stopped before all events were sent");
    }
    tracing::info!("stopped");
    Ok(())
}

/// This machine's Node.
struct ThisNode {
    name: String,
    nodes: Nodes,
    events: Events,
    metrics: pileus_controllers::Metrics,
    api_server: Vec<IpAddr>,
    settings: Settings,
    gates: watch::Sender<Gates>,
}

impl ThisNode {
    /// Keeps the Node up to date with this provider until `stop`, and with each that the document leads to later.
    async fn manage(self, mut provider: LocalProvider, mut source: ProviderSource, stop: CancellationToken) {
        loop {
            let replaced = stop.child_token();
            let mut managing = pin!(self.manage_by(provider, replaced.clone()));
            tokio::select! {
                () = &mut managing => return,
                next = source.next() => {
                    tracing::info!(provider = %next.name, "the document has changed and takes effect");
                    replaced.cancel();
                    managing.await;
                    provider = next;
                }
            }
        }
    }

    async fn manage_by(&self, by: LocalProvider, stop: CancellationToken) {
        let Self { name, nodes, events, metrics, api_server, settings, gates } = self;
        let LocalProvider { name: provider_name, node_selector, provider, local, fallback, gate } = by;
        gates.send_replace(Gates::from([(provider_name.clone(), gate)]));
        let only = Claim::of_only_provider(provider_name, provider.schemes.clone());
        nodes.set_claims(Claims::new(vec![Claim { node_selector, ..only }]).0);
        let deps = ControllerDeps {
            nodes: nodes.clone(),
            addresses: ClusterAddresses::new(nodes.clone(), None, api_server.clone()),
            provider: Provider {
                instances: Some(Arc::new(LocalInstances::new(local, name, fallback))),
                ..provider
            },
            events: events.clone(),
            metrics: metrics.clone(),
            jitter,
        };
        tracing::info!(node = %name, "managing this machine's node");
        // Some: the provider has instances.
        if let Some(controller) = Controller::new(deps, settings.clone()) {
            controller.run(stop).await;
        }
    }
}

/// A provider that describes this machine.
struct LocalProvider {
    name: String,
    node_selector: NodeSelector,
    /// It has neither load balancers nor routes.
    provider: Provider,
    local: Arc<dyn LocalInstance>,
    /// Asks the cloud, where the operator wants that.
    fallback: Option<Arc<dyn pileus_cloud::Instances>>,
    gate: Gate,
}

/// Loads the provider of the document, and again each time that the document changes.
struct ProviderSource {
    file: FollowedFile,
    falls_back: bool,
    engine: Engine,
    stored: cli::StoreFolder,
    denied_ranges: Vec<IpNet>,
    metrics: Arc<Metrics>,
}

impl ProviderSource {
    /// Loads the provider of the document, as it is at first and then as it changes.
    async fn load_next(&mut self) -> Result<LocalProvider, Error> {
        let document = self.file.next_document().await;
        self.load(document).await
    }

    /// Waits until the document has changed and its provider can be used.
    async fn next(&mut self) -> LocalProvider {
        loop {
            match self.load_next().await {
                Ok(provider) => return provider,
                Err(error) => tracing::warn!(
                    %error, "the document has changed and its provider can't be used; the former one stays in use"
                ),
            }
            tokio::time::sleep(LOAD_RETRY).await;
            self.file.report_again();
        }
    }

    /// Loads the component of a document, with its gate.
    async fn load(&self, document: CloudProvider) -> Result<LocalProvider, Error> {
        let document = if self.falls_back { document } else { of_this_machine(document) };
        let verified = obtain(&document, self.stored.clone()).await?;
        let failed = |source| Error::Provider { provider: document.name.clone(), source };
        let component = Component::load(&self.engine, verified).await.map_err(failed)?;
        let (description, settings) = configure(&component, &document, &self.metrics).await?;
        let denied_ranges = self.denied_ranges.clone();
        let config = pileus_gate::Config { denied_ranges, ..gate_config(&document, &settings) };
        let invalid_gate = |source| Error::Gate { provider: document.name.clone(), source: Box::new(source) };
        let gate = Gate::new(config, &self.metrics.gate).map_err(invalid_gate)?;
        let CloudProvider { name, node_selector, configuration, identity, call_limits, .. } = document;
        let guest =
            Guest::new(component, &name, description, &configuration, gate.clone(), &self.metrics.host);
        let (provider, local) = guest.with_identity(identity).with_limits(call_limits).local_provider();
        let Some(local) = local else { return Err(Error::NoLocalInstance { provider: name }) };
        let fallback = provider.instances.clone().filter(|_| self.falls_back);
        let provider = Provider { largest_lookup_batch: 1, load_balancers: None, routes: None, ..provider };
        Ok(LocalProvider { name, node_selector, provider, local, fallback, gate })
    }
}

/// What of a document is for this machine's metadata service. Where a credential says that an address is one, the gate lets no
/// request for an identity of the machine through, regardless of the grants.
fn of_this_machine(document: CloudProvider) -> CloudProvider {
    let CloudProvider { mut grants, mut credentials, .. } = document;
    let is_metadata = |credential: &Credential| matches!(credential.kind, CredentialKind::Metadata { .. });
    credentials.retain(is_metadata);
    let is_service =
        |grant: &Grant| credentials.iter().any(|credential| credential.hosts.contains(&grant.host));
    grants.retain(is_service);
    CloudProvider { grants, credentials, ..document }
}

/// Keeps code that doesn't run out of memory.
async fn release_code() -> Infallible {
    loop {
        tokio::time::sleep(RELEASE_PERIOD).await;
        if let Err(error) = program_code::release() {
            tracing::debug!(%error, "code that doesn't run stays in memory");
        }
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_manager_gets_no_grant_and_no_credential_for_the_cloud() {
        let text = "
apiVersion: pileus.dev/v1alpha1
kind: CloudProvider
metadata: {name: cloud}
spec:
  source: {file: provider.wasm}
  grants:
    - {host: api.cloud.example}
    - {host: 10.0.0.1, addresses: [10.0.0.1/32]}
    - {host: 127.0.0.1, tls: false, addresses: [127.0.0.1/32]}
    - {host: 169.254.169.254, tls: false, paths: [/metadata/instance], addresses: [169.254.169.254/32]}
  credentials:
    - {name: cloud, hosts: [api.cloud.example], bearer: {token: {secret: {name: cloud, key: token}}}}
    - name: machine
      hosts: [api.cloud.example]
      paths: [/identity]
      managedIdentity: {endpoint: 'http://169.254.169.254/metadata/identity/oauth2/token', resource: cloud}
    - {name: metadata, hosts: [169.254.169.254], metadata: {flavor: azure}}
";
        let document = CloudProvider::from_draft(text).unwrap();
        assert_eq!((document.grants.len(), document.credentials.len()), (4, 3));
        let left = of_this_machine(document);
        let hosts: Vec<_> = left.grants.iter().map(|grant| grant.host.to_string()).collect();
        let names: Vec<_> = left.credentials.iter().map(|credential| credential.name.as_str()).collect();
        assert_eq!((hosts, names), (vec!["169.254.169.254".to_owned()], vec!["metadata"]));
    }
}
