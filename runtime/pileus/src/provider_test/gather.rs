//! Asks a provider everything that the checks need to know. Here are the calls and their order; what the answers mean
//! is the checks' affair.

mod load_balancers;
mod lookups;
mod play;
mod routes;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use pileus_cloud::{Cluster, ProviderId, Target};
use pileus_gate::{Coverage, Gate};
use pileus_host::{Capability, Component, Description, Guest, Limits, Metrics, Settings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cloud::{Cloud, Scene};
use super::facts::{Configured, Facts, Known, Refusal, Refused};
use super::subject::Access;
use super::wrong_documents::wrong_documents;
use crate::error::Error;

/// The most Nodes of the largest batch: as many as the largest cluster that Kubernetes supports has.
pub(crate) const LARGEST: usize = 5_000;

/// The requests of the largest batch that reach the real cloud; what comes after is answered as the host's own gate
/// would, were the cloud's limit reached.
const SHARE: usize = 100;

/// The soft deadline in front of a cloud that never answers: short, as nothing is gained by waiting. The time from there
/// to the hard one is that of lookups in [`Limits::default`], on which providers count; changes have more, and need no more.
const SHORT: Duration = Duration::from_secs(2);

/// What to test, and with what.
pub(crate) struct Subject {
    pub(crate) component: Component,
    /// JSON text; none where none was given.
    pub(crate) configuration: Option<String>,
    pub(crate) access: Access,
    /// Nodes that the cloud knows, and their provider IDs where the author expects some.
    pub(crate) nodes: Vec<(String, Option<ProviderId>)>,
    /// The provider ID of a machine that is gone.
    pub(crate) gone: Option<ProviderId>,
    /// The name of a Node that nobody has.
    pub(crate) nobody: String,
    /// Whether it may make something in the cloud, to remove it again; and what says that it should stop doing so.
    pub(crate) may_change: Option<CancellationToken>,
}

/// Asks everything. `progress` hears what is going on.
pub(crate) async fn facts(subject: Subject, progress: &mut dyn FnMut(&str)) -> Result<Facts, Error> {
    let limits = Limits::default();
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let component = &subject.component;
    progress("asking the provider what it is");
    let described = [
        component.describe(&limits, &metrics).await.map_err(|error| error.to_string()),
        component.describe(&limits, &metrics).await.map_err(|error| error.to_string()),
    ];
    let capabilities = component.capabilities.clone();
    let schema = described[0].as_ref().map_or(Value::Null, |known| known.configuration_schema.clone());
    progress("configuring it, rightly and wrongly");
    let mut refusals = Vec::new();
    for (what, document, expected) in wrong_documents(&schema, subject.configuration.as_deref()) {
        let answer = component.configure(&document, &limits, &metrics).await.map(|_| ()).map_err(refused);
        let document = document.chars().take(120).collect();
        refusals.push(Refusal { what, document, expected, answer });
    }
    let configured = match &subject.configuration {
        None => None,
        Some(document) => {
            let answers = [
                component.configure(document, &limits, &metrics).await.map_err(refused).and_then(usable),
                component.configure(document, &limits, &metrics).await.map_err(refused).and_then(usable),
            ];
            let wishes = answers[0].iter().flat_map(|settings| &settings.endpoints);
            let coverage = Coverage::new(&subject.access.grants, wishes.map(|wish| wish.endpoint.clone()));
            Some(Configured { document: document.clone(), answers, coverage })
        }
    };
    let mut facts = Facts {
        described,
        capabilities,
        refusals,
        configured,
        lookups: None,
        load_balancers: None,
        routes: None,
    };
    if let (Ok(description), Some(Configured { answers: [Ok(settings), _], document, .. })) =
        (&facts.described[0], &facts.configured)
    {
        let (description, rules, document) = (description.clone(), settings.rules.clone(), document.clone());
        let caller = caller(subject, description.clone(), rules, &document, &metrics)?;
        caller.call(&description, &mut facts, progress).await?;
    }
    Ok(facts)
}

fn refused(error: pileus_host::Error) -> Refused {
    match error {
        pileus_host::Error::Configuration(problems) => {
            Refused::Problems(problems.into_iter().map(|problem| (problem.path, problem.message)).collect())
        }
        other => Refused::Broke(other.to_string()),
    }
}

/// Settings whose rules a gate takes.
fn usable(settings: Settings) -> Result<Settings, Refused> {
    let rules = pileus_gate::Rules::new(settings.rules.clone());
    rules.map(|_| settings).map_err(|error| Refused::Broke(error.to_string()))
}

fn caller(
    subject: Subject,
    description: Description,
    rules: Vec<pileus_gate::Rule>,
    configuration: &str,
    metrics: &Metrics,
) -> Result<Caller, Error> {
    let Subject { component, configuration: _, access, nodes, gone, nobody, may_change } = subject;
    let Access { grants, credentials, connection } = access;
    let provider = description.name.clone();
    let config = pileus_gate::Config {
        provider: provider.clone(),
        grants,
        rules,
        limits: Vec::new(),
        tightened: Vec::new(),
        credentials,
        denied_ranges: Vec::new(),
        fence: pileus_gate::Fence::default(),
        connection,
    };
    let registry = &mut prometheus_client::registry::Registry::default();
    let gate = Gate::new(config, &pileus_gate::Metrics::register(registry))
        .map_err(|source| Error::Gate { provider: provider.clone(), source: Box::new(source) })?;
    let cloud = Cloud::new();
    let gate = gate.with_interceptor(std::sync::Arc::new(cloud.clone()));
    let cluster = Cluster { name: "pileus-conformance".to_owned(), uid: Some(uid(&nobody, "cluster")) };
    let wants_known = description.service_facts.known;
    let scheme = description.provider_id_schemes.first().cloned().unwrap_or_default();
    let guest = Guest::new(component, &provider, description, configuration, gate, metrics);
    Ok(Caller { guest, cloud, nodes, gone, nobody, scheme, wants_known, cluster, may_change })
}

/// A UID as the API server makes them, of what nobody else has: the test's own name is random.
fn uid(nobody: &str, what: &str) -> String {
    let half = |which: u8| {
        let mut hasher = DefaultHasher::new();
        (nobody, what, which).hash(&mut hasher);
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

/// Calls the provider and writes down what came of it.
struct Caller {
    guest: Guest,
    cloud: Cloud,
    nodes: Vec<(String, Option<ProviderId>)>,
    gone: Option<ProviderId>,
    nobody: String,
    /// The first of the provider's own schemes.
    scheme: String,
    /// Whether a change should tell it of Services that stay as they are.
    wants_known: bool,
    cluster: Cluster,
    may_change: Option<CancellationToken>,
}

impl Caller {
    /// Calls all that the component exports, and writes down what came of it.
    async fn call(
        self,
        description: &Description,
        facts: &mut Facts,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let exports = |capability| facts.capabilities.contains(&capability);
        let [instances, load_balancers, routes] =
            [Capability::Instances, Capability::LoadBalancers, Capability::Routes].map(exports);
        if instances {
            facts.lookups = Some(self.lookups(description, progress).await);
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

    /// Asks a cloud that never answers, with little time.
    async fn silence(mut self, nodes: &[Target], facts: &mut Facts, progress: &mut dyn FnMut(&str)) {
        let normal = Limits::default();
        let hard = SHORT + normal.lookup_hard.saturating_sub(normal.lookup_soft);
        let patience = (SHORT, hard);
        self.guest = self.guest.with_limits(Limits {
            lookup_soft: SHORT,
            lookup_hard: hard,
            change_soft: SHORT,
            load_balancers_soft: SHORT,
            change_hard: hard,
            ..normal
        });
        let scene = Scene::Silence;
        let mut say = || progress(&format!("asking {}, for up to {} s", scene.as_str(), hard.as_secs()));
        if let Some(lookups) = &mut facts.lookups {
            say();
            lookups.patience = patience;
            // One such wait tells enough.
            if let Some((purpose, about)) = self.troubled(lookups.known.as_ref()).into_iter().next() {
                lookups.troubles.push((scene, vec![self.call_lookup(scene, purpose, about).await]));
            }
        }
        if let Some(changes) = &mut facts.load_balancers {
            say();
            changes.patience = patience;
            changes.troubles.push(self.trouble_services(scene).await);
        }
        if let Some(changes) = &mut facts.routes {
            say();
            changes.patience = patience;
            changes.troubles.push(self.trouble_routes(scene, nodes).await);
        }
    }

    /// The Nodes that the cloud knows, as those that traffic is led to.
    fn targets(&self, known: Option<&Known>) -> Vec<Target> {
        let target = |(number, (name, expected)): (usize, &(String, Option<ProviderId>))| {
            let alone = known.and_then(|known| known.alone.get(number));
            let machine = alone.and_then(|alone| alone.by_name[0].machine());
            Some(Target {
                node: name.clone(),
                uid: uid(&self.nobody, name),
                provider_id: machine.map(|machine| machine.provider_id.clone()).or(expected.clone())?,
                addresses: machine.map(|machine| machine.addresses.clone()).unwrap_or_default(),
                zone: machine.and_then(|machine| machine.zone.clone()),
                labels: Vec::new(),
            })
        };
        self.nodes.iter().enumerate().filter_map(target).collect()
    }

    /// Whether something may be made in the cloud, or what that takes.
    fn permit(&self, nodes: &[Target], what: &str) -> Result<&CancellationToken, String> {
        let permit = self.may_change.as_ref().ok_or_else(|| {
            format!("--allow-changes, which lets it make {what} in the cloud and remove them again")
        })?;
        if nodes.is_empty() {
            return Err(
                "a Node that the cloud knows: pass --node NAME or --node NAME=PROVIDER-ID, better twice"
                    .to_owned(),
            );
        }
        Ok(permit)
    }
}

fn troubles_but_silence() -> impl Iterator<Item = Scene> {
    Scene::TROUBLES.into_iter().filter(|scene| *scene != Scene::Silence)
}

/// Ends the test where its author stopped it, once what it made is removed.
fn finished(stopped: bool, left: &[String]) -> Result<(), Error> {
    if stopped { Err(Error::Stopped { left: left.to_vec() }) } else { Ok(()) }
}
