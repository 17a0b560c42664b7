//! Calls a provider, and records the observations that the checks need. This module decides the calls and their order;
//! the checks interpret the answers.

mod load_balancers;
mod lookups;
mod routes;
mod settle;
mod silence;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use pileus_cloud::{AnnotationType, Cluster, ProviderId, Target};
use pileus_gate::{Coverage, Gate, Problem, Refusal};
use pileus_host::{Capability, Component, Description, Guest, Limits, Metrics, Settings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cloud::{Cloud, CloudMode};
use super::facts::{Configured, Facts, Known, Rejection, Remark, WrongDocument};
use super::input::Access;
use super::wrong_documents;
use crate::error::Error;

/// The most Nodes in a batch: the largest cluster that Kubernetes supports.
pub(crate) const MAX_BATCH: usize = 5_000;

/// How many requests of the largest batch reach the real cloud. Later ones are answered as by a gate whose limit is
/// reached.
const MAX_REQUESTS: usize = 100;

/// How long `describe` and `configure` may take. The host allows less, but what it allows depends on how busy the machine is.
/// Their processor time is limited as in a cluster, and they have nothing to wait for.
const INFO_DEADLINE: Duration = Duration::from_mins(2);

/// The provider to test, and the arguments of the test.
pub(crate) struct Subject {
    pub(crate) component: Component,
    /// JSON text; none where none was given.
    pub(crate) configuration: Option<String>,
    pub(crate) access: Access,
    /// Nodes with an instance, and their expected provider IDs.
    pub(crate) nodes: Vec<(String, Option<ProviderId>)>,
    /// The provider ID of an instance that is gone.
    pub(crate) gone: Option<ProviderId>,
    /// The name of a Node without an instance.
    pub(crate) unknown_node: String,
    /// Stops the changes of the cloud early; none if the test may not change the cloud.
    pub(crate) change_permit: Option<CancellationToken>,
}

/// Makes all calls, and reports progress.
///
/// # Errors
/// [`Error::Gate`] for invalid grants or rules, [`Error::Stopped`] if the user stopped changes.
pub(crate) async fn facts(subject: Subject, progress: &mut dyn FnMut(&str)) -> Result<Facts, Error> {
    let limits = Limits { info: INFO_DEADLINE, ..subject.access.call_limits.clone() };
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let component = &subject.component;
    progress("calling describe");
    let described = [
        component.describe(&limits, &metrics).await.map_err(|error| error.to_string()),
        component.describe(&limits, &metrics).await.map_err(|error| error.to_string()),
    ];
    let capabilities = component.capabilities.clone();
    let schema = described[0].as_ref().map_or(Value::Null, |known| known.configuration_schema.clone());
    progress("configuring the provider with valid and invalid documents");
    let mut wrong_documents = Vec::new();
    for (what, document, expected) in
        wrong_documents::wrong_documents(&schema, subject.configuration.as_deref())
    {
        let answer = notices(component.configure(&document, &limits, &metrics).await);
        let document = document.chars().take(120).collect();
        wrong_documents.push(WrongDocument { what, document, expected, answer });
    }
    let configured = match &subject.configuration {
        None => None,
        Some(document) => {
            let answers = [
                component
                    .configure(document, &limits, &metrics)
                    .await
                    .map_err(rejection)
                    .and_then(check_rules),
                component
                    .configure(document, &limits, &metrics)
                    .await
                    .map_err(rejection)
                    .and_then(check_rules),
            ];
            let wishes = answers[0].iter().flat_map(|settings| &settings.endpoints);
            let wishes = wishes.map(|wish| wish.endpoint.clone());
            let rules = answers[0].as_ref().map_or(&[][..], |settings| &settings.rules);
            let coverage = Coverage::new(&subject.access.grants, wishes, rules);
            Some(Configured { document: document.clone(), answers, coverage })
        }
    };
    let mut facts = Facts {
        described,
        capabilities,
        wrong_documents,
        configured,
        lookups: None,
        load_balancers: None,
        routes: None,
    };
    if let (Ok(description), Some(Configured { answers: [Ok(settings), _], document, .. })) =
        (&facts.described[0], &facts.configured)
    {
        let (description, settings, document) = (description.clone(), settings.clone(), document.clone());
        let caller = caller(subject, description.clone(), settings.rules, &document, &metrics)?;
        caller.call(&description, &settings.refusals, &mut facts, progress).await?;
    }
    Ok(facts)
}

fn notices(configured: Result<Settings, pileus_host::Error>) -> Result<Vec<Remark>, Rejection> {
    configured.map(|settings| remarks(settings.notices)).map_err(rejection)
}

fn rejection(error: pileus_host::Error) -> Rejection {
    match error {
        pileus_host::Error::Configuration(problems) => Rejection::Problems(remarks(problems)),
        other => Rejection::Broken(other.to_string()),
    }
}

fn remarks(problems: Vec<Problem>) -> Vec<Remark> {
    problems.into_iter().map(|Problem { path, message }| (path, message)).collect()
}

/// Rejects settings whose rules the gate doesn't accept.
fn check_rules(settings: Settings) -> Result<Settings, Rejection> {
    let rules = pileus_gate::Rules::new(settings.rules.clone());
    rules.map(|_| settings).map_err(|error| Rejection::Broken(error.to_string()))
}

fn caller(
    subject: Subject,
    description: Description,
    rules: Vec<pileus_gate::Rule>,
    configuration: &str,
    metrics: &Metrics,
) -> Result<Caller, Error> {
    let Subject { component, configuration: _, access, nodes, gone, unknown_node, change_permit } = subject;
    let Access { grants, limits: tightened, credentials, identity, connection, call_limits } = access;
    let provider = description.name.clone();
    let config = pileus_gate::Config {
        provider: provider.clone(),
        grants,
        rules,
        refusals: Vec::new(),
        limits: Vec::new(),
        tightened,
        credentials,
        denied_ranges: Vec::new(),
        fence: pileus_gate::Fence::default(),
        connection,
    };
    let registry = &mut prometheus_client::registry::Registry::default();
    let gate = Gate::new(config, &pileus_gate::Metrics::register(registry))
        .map_err(|source| Error::Gate { provider: provider.clone(), source: Box::new(source) })?;
    gate.refill_limits(Duration::MAX);
    let cloud = Cloud::new();
    let gate = gate.with_interceptor(std::sync::Arc::new(cloud.clone()));
    let cluster = Cluster { name: "pileus-conformance".to_owned(), uid: Some(uid(&unknown_node, "cluster")) };
    let wants_known = description.service_facts.known;
    let annotations = &description.service_annotations;
    let selects_nodes = annotations.iter().any(|annotation| annotation.value == AnnotationType::NodeSelector);
    let scheme = description.provider_id_schemes.first().cloned().unwrap_or_default();
    let guest = Guest::new(component, &provider, description, configuration, gate, metrics);
    let guest = guest.with_identity(identity).with_limits(call_limits);
    Ok(Caller {
        guest,
        cloud,
        nodes,
        gone,
        unknown_node,
        scheme,
        wants_known,
        selects_nodes,
        cluster,
        change_permit,
    })
}

/// A UID in the format of the API server. It is unique because the name of the test's unknown Node is random.
fn uid(unknown_node: &str, what: &str) -> String {
    let half = |which: u8| {
        let mut hasher = DefaultHasher::new();
        (unknown_node, what, which).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    let version = (high & 0xfff) | 0x4000;
    let variant = (low >> 48 & 0x3fff) | 0x8000;
    format!(
        "{:08x}-{:04x}-{version:04x}-{variant:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        low & 0xffff_ffff_ffff
    )
}

/// Calls the provider and records the results.
struct Caller {
    guest: Guest,
    cloud: Cloud,
    nodes: Vec<(String, Option<ProviderId>)>,
    gone: Option<ProviderId>,
    unknown_node: String,
    /// The first of the provider's own schemes.
    scheme: String,
    /// Whether calls name the Services that don't change.
    wants_known: bool,
    /// Whether the host selects the targets of Services by an annotation.
    selects_nodes: bool,
    cluster: Cluster,
    change_permit: Option<CancellationToken>,
}

impl Caller {
    /// Calls all capabilities that the component exports.
    async fn call(
        self,
        description: &Description,
        refusals: &[Refusal],
        facts: &mut Facts,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let exports = |capability| facts.capabilities.contains(&capability);
        let [instances, load_balancers, routes] =
            [Capability::Instances, Capability::LoadBalancers, Capability::Routes].map(exports);
        if instances {
            facts.lookups = Some(self.lookups(description, refusals, progress).await);
        }
        let nodes = self.targets(facts.lookups.as_ref().and_then(|lookups| lookups.known.as_ref()));
        if load_balancers {
            facts.load_balancers = Some(self.services_changed(&nodes, progress).await?);
        }
        if routes {
            facts.routes = Some(self.routes_changed(&nodes, progress).await?);
        }
        self.silence(&nodes, facts, progress).await;
        Ok(())
    }

    /// The Nodes with an instance, as targets of traffic.
    fn targets(&self, known: Option<&Known>) -> Vec<Target> {
        let target = |(number, (name, expected)): (usize, &(String, Option<ProviderId>))| {
            let alone = known.and_then(|known| known.alone.get(number));
            let instance = alone.and_then(|alone| alone.by_name[0].instance());
            Some(Target {
                node: name.clone(),
                uid: uid(&self.unknown_node, name),
                provider_id: instance.map(|instance| instance.provider_id.clone()).or(expected.clone())?,
                addresses: instance.map(|instance| instance.addresses.clone()).unwrap_or_default(),
                zone: instance.and_then(|instance| instance.zone.clone()),
                labels: Vec::new(),
            })
        };
        self.nodes.iter().enumerate().filter_map(target).collect()
    }

    /// The permit to change the cloud, or what it takes to get one.
    fn permit(&self, nodes: &[Target], what: &str) -> Result<&CancellationToken, String> {
        let permit = self.change_permit.as_ref().ok_or_else(|| {
            format!("--allow-changes, which lets the test create {what} in the cloud and remove them")
        })?;
        if nodes.is_empty() {
            let node = "--node NAME or --node NAME=PROVIDER-ID, preferably for two Nodes";
            return Err(format!("a Node with an instance: pass {node}"));
        }
        Ok(permit)
    }
}

fn faults_but_silence() -> impl Iterator<Item = CloudMode> {
    CloudMode::FAULTS.into_iter().filter(|mode| *mode != CloudMode::Silence)
}

/// The error of a test that the user stopped, after it removed what it created.
fn finished(stopped: bool, left: &[String]) -> Result<(), Error> {
    if stopped { Err(Error::Stopped { left: left.to_vec() }) } else { Ok(()) }
}
