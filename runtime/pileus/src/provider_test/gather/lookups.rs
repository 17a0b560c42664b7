//! What is asked about Nodes, in which order.

use std::time::Instant;

use pileus_cloud::{NodeReference, ProviderId, Purpose};
use pileus_host::{Capability, Description};

use super::super::cloud::Scene;
use super::super::facts::{Alone, Call, Known, Lookups, Outcome};
use super::{Caller, LARGEST, SHARE, SHORT, troubles_but_silence};

impl Caller {
    pub(super) async fn lookups(&self, description: &Description, progress: &mut dyn FnMut(&str)) -> Lookups {
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
    pub(super) fn troubled(&self, known: Option<&Known>) -> Vec<(Purpose, Vec<NodeReference>)> {
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

    pub(super) async fn call_lookup(
        &self,
        scene: Scene,
        purpose: Purpose,
        nodes: Vec<NodeReference>,
    ) -> Call {
        self.cloud.begin(scene, &nodes);
        let started = Instant::now();
        let outcome = match self.guest.lookup_once(purpose, &nodes).await {
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
