//! Asks a provider everything that the checks need to know. Here are the calls and their order; what the answers mean
//! is the checks' affair.

use std::time::{Duration, Instant};

use pileus_cloud::{NodeReference, ProviderId, Purpose};
use pileus_gate::{Coverage, Gate};
use pileus_host::{Capability, Component, Description, Guest, Limits, Metrics, Settings};
use serde_json::Value;

use super::cloud::{Cloud, Scene};
use super::facts::{Alone, Call, Configured, Facts, Known, Lookups, Outcome, Refusal, Refused};
use super::subject::Access;
use super::wrong_documents::wrong_documents;
use crate::error::Error;

/// The most Nodes of the largest batch: as many as the largest cluster that Kubernetes supports has.
pub(crate) const LARGEST: usize = 5_000;

/// The requests of the largest batch that reach the real cloud; what comes after is answered as the host's own gate
/// would, were the cloud's limit reached.
const SHARE: usize = 100;

/// The soft deadline in front of a cloud that never answers: short, as nothing is gained by waiting. The time from there
/// to the hard one is that of [`Limits::default`], on which providers count.
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
            let wishes = answers[0].iter().flat_map(|settings| &settings.wishes);
            let coverage = Coverage::new(&subject.access.grants, wishes.map(|wish| wish.endpoint.clone()));
            Some(Configured { document: document.clone(), answers, coverage })
        }
    };
    let lookups = match (&described[0], &configured) {
        (Ok(description), Some(Configured { answers: [Ok(settings), _], document, .. }))
            if capabilities.contains(&Capability::Instances) =>
        {
            let (rules, document) = (settings.rules.clone(), document.clone());
            let caller = caller(subject, description.clone(), rules, &document, &metrics)?;
            Some(caller.lookups(description, progress).await)
        }
        _ => None,
    };
    Ok(Facts { described, capabilities, refusals, configured, lookups })
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
    let Subject { component, configuration: _, access, nodes, gone, nobody } = subject;
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
    let gate = gate.with_stand_in(std::sync::Arc::new(cloud.clone()));
    let guest = Guest::new(component, &provider, description, configuration, gate, metrics);
    Ok(Caller { guest, cloud, nodes, gone, nobody })
}

/// Calls the provider and writes down what came of it.
struct Caller {
    guest: Guest,
    cloud: Cloud,
    nodes: Vec<(String, Option<ProviderId>)>,
    gone: Option<ProviderId>,
    nobody: String,
}

impl Caller {
    async fn lookups(self, description: &Description, progress: &mut dyn FnMut(&str)) -> Lookups {
        let largest = description.call_shape(Capability::Instances).largest_batch;
        let largest = usize::try_from(largest).unwrap_or(LARGEST).min(LARGEST);
        progress("looking up Nodes that nobody has");
        let nobody = node(&self.nobody, None);
        let missing = self.lookup(Purpose::Initialise, vec![nobody]).await;
        let empty = self.lookup(Purpose::Initialise, Vec::new()).await;
        let elsewhere = ProviderId::parse("pileus-no-such-cloud://machine").ok();
        let foreign = self.lookup(Purpose::Refresh, vec![node(&self.nobody, elsewhere)]).await;
        let gone = match self.gone.clone() {
            Some(id) => Some(self.lookup(Purpose::Confirm, vec![node(&self.nobody, Some(id))]).await),
            None => None,
        };
        let known = if self.nodes.is_empty() {
            None
        } else {
            progress("looking up the Nodes that the cloud knows");
            Some(self.known().await)
        };
        progress(&format!("looking up {largest} Nodes at once"));
        let many = (0..largest).map(|number| node(&format!("{}-{number}", self.nobody), None)).collect();
        let largest = self.call(Scene::RealFor(SHARE), Purpose::Initialise, many).await;

        let (patience, troubles) = self.in_trouble(known.as_ref(), progress).await;
        Lookups { patience, empty, missing, foreign, largest, gone, known, troubles }
    }

    /// Asks a cloud in each kind of trouble. Returns the deadlines of the call that gets no answer.
    async fn in_trouble(
        mut self,
        known: Option<&Known>,
        progress: &mut dyn FnMut(&str),
    ) -> ((Duration, Duration), Vec<(Scene, Vec<Call>)>) {
        let about = self.troubled(known);
        let mut troubles = Vec::new();
        for scene in Scene::TROUBLES.into_iter().filter(|scene| *scene != Scene::Silence) {
            progress(&format!("asking {}", scene.as_str()));
            let mut calls = Vec::new();
            for (purpose, nodes) in &about {
                calls.push(self.call(scene, *purpose, nodes.clone()).await);
            }
            if scene == Scene::BreaksDown {
                // Alone too, so that it isn't another Node's request that was answered.
                for (name, _) in &self.nodes {
                    calls.push(self.call(scene, Purpose::Initialise, vec![node(name, None)]).await);
                }
            }
            troubles.push((scene, calls));
        }
        let normal = Limits::default();
        let (soft, hard) = (SHORT, SHORT + normal.lookup_hard.saturating_sub(normal.lookup_soft));
        progress(&format!("asking {}, for up to {} s", Scene::Silence.as_str(), hard.as_secs()));
        self.guest = self.guest.with_limits(Limits { lookup_soft: soft, lookup_hard: hard, ..normal });
        // One such wait tells enough.
        if let Some((purpose, nodes)) = about.into_iter().next() {
            troubles.push((Scene::Silence, vec![self.call(Scene::Silence, purpose, nodes).await]));
        }
        ((soft, hard), troubles)
    }

    async fn known(&self) -> Known {
        let mut alone = Vec::new();
        for (name, expected) in &self.nodes {
            let by_name = [
                self.lookup(Purpose::Initialise, vec![node(name, None)]).await,
                self.lookup(Purpose::Initialise, vec![node(name, None)]).await,
            ];
            let expected = expected.as_ref().map(ToString::to_string);
            let (mut by_id, mut confirmed) = (None, None);
            if let Some(machine) = by_name[0].machine() {
                let with_id = vec![node(name, Some(machine.provider_id.clone()))];
                by_id = Some(self.lookup(Purpose::Refresh, with_id.clone()).await);
                confirmed = Some(self.lookup(Purpose::Confirm, with_id).await);
            }
            alone.push(Alone { expected, by_name, by_id, confirmed });
        }
        // Not the same forwards and backwards, or a provider that turns lists around would pass.
        let nobody = |number: usize| node(&format!("{}-{number}", self.nobody), None);
        let each = self.nodes.iter().enumerate();
        let mut mixed: Vec<_> =
            each.flat_map(|(number, (name, _))| [node(name, None), nobody(number)]).collect();
        mixed.push(nobody(self.nodes.len()));
        let reversed = mixed.iter().rev().cloned().collect();
        let mixed = self.lookup(Purpose::Initialise, mixed).await;
        let reversed = self.lookup(Purpose::Initialise, reversed).await;
        Known { alone, mixed, reversed }
    }

    /// What a cloud in trouble is asked about: Nodes that it knows, where there are some, since of a Node that nobody
    /// has one could be right by accident.
    fn troubled(&self, known: Option<&Known>) -> Vec<(Purpose, Vec<NodeReference>)> {
        let by_name = match self.nodes.as_slice() {
            [] => vec![node(&self.nobody, None)],
            nodes => nodes.iter().map(|(name, _)| node(name, None)).collect(),
        };
        let confirmed =
            known.iter().flat_map(|known| &known.alone).filter_map(|alone| alone.confirmed.as_ref());
        let by_id: Vec<_> = confirmed.flat_map(|call| call.nodes.clone()).collect();
        let mut about = vec![(Purpose::Initialise, by_name)];
        if !by_id.is_empty() {
            about.push((Purpose::Confirm, by_id));
        }
        about
    }

    async fn lookup(&self, purpose: Purpose, nodes: Vec<NodeReference>) -> Call {
        self.call(Scene::Real, purpose, nodes).await
    }

    async fn call(&self, scene: Scene, purpose: Purpose, nodes: Vec<NodeReference>) -> Call {
        self.cloud.begin(scene, &nodes);
        let started = Instant::now();
        let outcome = match self.guest.lookup_or_fault(purpose, &nodes).await {
            Ok(Ok(answers)) => Outcome::Answers(answers),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(fault) => Outcome::Fault(fault),
        };
        Call { purpose, nodes, outcome, requests: self.cloud.seen(), took: started.elapsed() }
    }
}

/// A Node as the host would ask about it.
fn node(name: &str, provider_id: Option<ProviderId>) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        provider_id,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
    }
}
