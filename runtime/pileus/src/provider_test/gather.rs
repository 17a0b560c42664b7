//! Asks a provider everything that the checks need to know. Here are the calls and their order; what the answers mean
//! is the checks' affair.

mod load_balancers;
mod play;
mod routes;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use pileus_cloud::{Cluster, ListedRoute, NodeReference, Owned, ProviderId, Purpose, Target};
use pileus_gate::{Coverage, Gate};
use pileus_host::{Capability, Component, Description, Guest, Limits, Metrics, Settings};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::changes::{Changes, Played};
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
            let wishes = answers[0].iter().flat_map(|settings| &settings.wishes);
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
    let gate = gate.with_stand_in(std::sync::Arc::new(cloud.clone()));
    let cluster = Cluster { name: "pileus-conformance".to_owned(), uid: Some(uid(&nobody, "cluster")) };
    let scheme = description.provider_id_schemes.first().cloned().unwrap_or_default();
    let guest = Guest::new(component, &provider, description, configuration, gate, metrics);
    Ok(Caller { guest, cloud, nodes, gone, nobody, scheme, cluster, may_change })
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
        let hard = |soft: Duration, hard: Duration| SHORT + hard.saturating_sub(soft);
        let lookup_hard = hard(normal.lookup_soft, normal.lookup_hard);
        let change_hard = hard(normal.change_soft, normal.change_hard);
        self.guest = self.guest.with_limits(Limits {
            lookup_soft: SHORT,
            lookup_hard,
            change_soft: SHORT,
            change_hard,
            ..normal
        });
        let scene = Scene::Silence;
        let mut say = |hard: Duration| {
            progress(&format!("asking {}, for up to {} s", scene.as_str(), hard.as_secs()));
        };
        if let Some(lookups) = &mut facts.lookups {
            say(lookup_hard);
            lookups.patience = (SHORT, lookup_hard);
            // One such wait tells enough.
            if let Some((purpose, about)) = self.troubled(lookups.known.as_ref()).into_iter().next() {
                lookups.troubles.push((scene, vec![self.call_lookup(scene, purpose, about).await]));
            }
        }
        if let Some(changes) = &mut facts.load_balancers {
            say(change_hard);
            changes.patience = (SHORT, change_hard);
            changes.troubles.push(self.trouble_services(scene).await);
        }
        if let Some(changes) = &mut facts.routes {
            say(change_hard);
            changes.patience = (SHORT, change_hard);
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

    async fn services_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<Owned>, Error> {
        let played = match self.permit(nodes, "two load balancers") {
            Err(needs) => Err(needs),
            Ok(stop) => {
                progress("making two load balancers in the cloud, which may take minutes");
                let mut played = Played::of(self.cluster.uid.clone(), self.services().map(|it| it.uid));
                let play = self.play_services(nodes, &mut played);
                let stopped = stop.run_until_cancelled(play).await.is_none();
                progress("removing what was made");
                played.left = self.remove_services().await;
                finished(stopped, &played.left)?;
                Ok(played)
            }
        };
        let mut troubles = Vec::new();
        for scene in troubles_but_silence() {
            progress(&format!("changing load balancers of {}", scene.as_str()));
            troubles.push(self.trouble_services(scene).await);
        }
        Ok(Changes { played, troubles, patience: (SHORT, SHORT) })
    }

    async fn routes_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<ListedRoute>, Error> {
        let played = match self.permit(nodes, "two routes") {
            Err(needs) => Err(needs),
            Ok(stop) => {
                progress("making two routes in the cloud");
                let mut played = Played::of(self.cluster.uid.clone(), self.destinations());
                let play = self.play_routes(nodes, &mut played);
                let stopped = stop.run_until_cancelled(play).await.is_none();
                progress("removing what was made");
                played.left = self.remove_routes().await;
                finished(stopped, &played.left)?;
                Ok(played)
            }
        };
        let mut troubles = Vec::new();
        for scene in troubles_but_silence() {
            progress(&format!("changing routes of {}", scene.as_str()));
            troubles.push(self.trouble_routes(scene, nodes).await);
        }
        Ok(Changes { played, troubles, patience: (SHORT, SHORT) })
    }

    async fn lookups(&self, description: &Description, progress: &mut dyn FnMut(&str)) -> Lookups {
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
        let largest = self.call_lookup(Scene::RealFor(SHARE), Purpose::Initialise, many).await;
        let troubles = self.in_trouble(known.as_ref(), progress).await;
        Lookups { patience: (SHORT, SHORT), empty, missing, foreign, largest, gone, known, troubles }
    }

    /// Asks a cloud in each kind of trouble but that of not answering.
    async fn in_trouble(
        &self,
        known: Option<&Known>,
        progress: &mut dyn FnMut(&str),
    ) -> Vec<(Scene, Vec<Call>)> {
        let about = self.troubled(known);
        let mut troubles = Vec::new();
        for scene in troubles_but_silence() {
            progress(&format!("asking {}", scene.as_str()));
            let mut calls = Vec::new();
            for (purpose, nodes) in &about {
                calls.push(self.call_lookup(scene, *purpose, nodes.clone()).await);
            }
            if scene == Scene::BreaksDown {
                // Alone too, so that it isn't another Node's request that was answered.
                for (name, _) in &self.nodes {
                    calls.push(self.call_lookup(scene, Purpose::Initialise, vec![node(name, None)]).await);
                }
            }
            troubles.push((scene, calls));
        }
        troubles
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
        self.call_lookup(Scene::Real, purpose, nodes).await
    }

    async fn call_lookup(&self, scene: Scene, purpose: Purpose, nodes: Vec<NodeReference>) -> Call {
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

fn troubles_but_silence() -> impl Iterator<Item = Scene> {
    Scene::TROUBLES.into_iter().filter(|scene| *scene != Scene::Silence)
}

/// Ends the test where its author stopped it, once what it made is removed.
fn finished(stopped: bool, left: &[String]) -> Result<(), Error> {
    if stopped { Err(Error::Stopped { left: left.to_vec() }) } else { Ok(()) }
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
