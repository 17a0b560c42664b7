//! The composition root of `pileus node-manager`: the node controller of one Node, whose questions the machine's own metadata
//! service answers. It needs no lease, since no other process has its Node; `pileus run` leaves that alone.
//!
//! Of the document only what is for the machine's metadata service applies: a node manager runs on every machine, and must neither
//! use the cloud's quota nor carry the cloud's credentials there.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use pileus_cloud::{LocalInstance, Provider};
use pileus_controllers::claims::{Claim, Claims};
use pileus_controllers::events::Events;
use pileus_controllers::node::{Controller, LocalInstances};
use pileus_controllers::nodes::Nodes;
use pileus_controllers::{ClusterAddresses, ControllerDeps, Health};
use pileus_gate::{Credential, CredentialKind, Fence, Gate, Grant};
use pileus_host::{Component, Guest};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::provider::{configure, engine, gate_config, obtain};
use crate::providers::Gates;
use crate::random::jitter;
use crate::secrets::Secrets;
use crate::signals::stop_on_signal;
use crate::{admin, cli, telemetry};

/// How often the API server is asked whether the watch is up to date. In a large cluster thousands of node managers ask, and
/// nothing is deleted for what one of them knows.
const VERSION_PERIOD: Duration = Duration::from_mins(10);

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
    let document = CloudProvider::read(&arguments.provider, &secrets)?;
    let document = if arguments.fallback_instances { document } else { of_this_machine(document) };
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (health, gates) = (Health::default(), watch::Sender::new(Gates::new()));
    let starting = health.check("provider", "the component is not loaded yet");
    let node_name = arguments.node_name.clone().unwrap_or_else(host_name);
    let cluster = cluster::config(arguments.kubeconfig.clone(), &format!("node-manager {node_name}")).await?;
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
    let api_server = cluster::addresses(&cluster);
    let (name, selector) = (document.name.clone(), document.node_selector.clone());
    let (settings, falls_back) = (arguments.node(), arguments.fallback_instances);
    let denied = api_server.iter().copied().map(Into::into).collect();
    let (provider, local, gate) = load(document, denied, arguments, &metrics).await?;
    gates.send_replace(Gates::from([(name.clone(), gate)]));
    starting.pass();

    let nodes =
        Nodes::of_one(client.clone(), metrics.controllers.clone(), &health, VERSION_PERIOD, &node_name);
    let claim = Claim { node_selector: selector, ..Claim::of_only_provider(name, provider.schemes.clone()) };
    nodes.set_claims(Claims::new(vec![claim]).0);
    let this = ThisNode { client, nodes, name: node_name, settings };
    let provider = of_node(provider, local, &this.name, falls_back);
    this.manage(provider, &metrics, api_server, stop).await;
    tracing::info!("stopped");
    Ok(())
}

/// This machine's Node.
struct ThisNode {
    client: Client,
    nodes: Nodes,
    name: String,
    settings: pileus_controllers::node::Settings,
}

impl ThisNode {
    async fn manage(
        self,
        provider: Provider,
        metrics: &Metrics,
        api_server: Vec<std::net::IpAddr>,
        stop: CancellationToken,
    ) {
        let Self { client, nodes, name, settings } = self;
        let metrics = &metrics.controllers;
        let (events, event_task) = Events::start(client, "cloud-node-manager", &name, metrics.clone());
        let deps = ControllerDeps {
            nodes: nodes.clone(),
            addresses: ClusterAddresses::new(nodes.clone(), None, api_server),
            provider,
            events,
            metrics: metrics.clone(),
            jitter,
        };
        tracing::info!(node = %name, "managing this machine's node");
        // Some: the provider has instances, see `of_node`.
        if let Some(controller) = Controller::new(deps, settings) {
            tokio::select! {
                () = controller.run(stop) => {}
                () = nodes.watch(CancellationToken::new()) => {}
            }
        }
        if tokio::time::timeout(EVENTS_DRAIN, event_task).await.is_err() {
            tracing::warn!("stopped before all events were sent");
        }
    }
}

/// The provider of a node manager: it answers about this Node alone, and has nothing but instances.
fn of_node(provider: Provider, local: Arc<dyn LocalInstance>, node: &str, falls_back: bool) -> Provider {
    let fallback = provider.instances.clone().filter(|_| falls_back);
    Provider {
        instances: Some(Arc::new(LocalInstances::new(local, node, fallback))),
        largest_lookup_batch: 1,
        load_balancers: None,
        routes: None,
        ..provider
    }
}

/// Loads the component of a document, with its gate.
async fn load(
    document: CloudProvider,
    denied_ranges: Vec<ipnet::IpNet>,
    arguments: cli::NodeManager,
    metrics: &Metrics,
) -> Result<(Provider, Arc<dyn LocalInstance>, Gate), Error> {
    let engine = engine(arguments.compiled)?;
    let verified = obtain(&document, arguments.stored).await?;
    let failed = |source| Error::Provider { provider: document.name.clone(), source };
    let component = Component::load(&engine, verified).await.map_err(failed)?;
    let (description, settings) = configure(&component, &document, metrics).await?;
    let config = pileus_gate::Config { denied_ranges, ..gate_config(&document, &settings) };
    let invalid_gate = |source| Error::Gate { provider: document.name.clone(), source: Box::new(source) };
    let gate = Gate::new(config, &metrics.gate).map_err(invalid_gate)?;
    let CloudProvider { name, configuration, identity, call_limits, .. } = document;
    let guest = Guest::new(component, &name, description, &configuration, gate.clone(), &metrics.host);
    let (provider, local) = guest.with_identity(identity).with_limits(call_limits).local_provider();
    match local {
        Some(local) => Ok((provider, local, gate)),
        None => Err(Error::NoLocalInstance { provider: name }),
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
