//! The lookups of Nodes.

use std::time::Instant;

use pileus_cloud::{NodeReference, ProviderId, Purpose};
use pileus_host::{Capability, Description};

use super::super::cloud::CloudMode;
use super::super::facts::{Alone, Known, LookupCall, LookupOutcome, Lookups};
use super::{Caller, MAX_BATCH, MAX_REQUESTS, SHORT_DEADLINE, faults_but_silence};

impl Caller {
    pub(super) async fn lookups(&self, description: &Description, progress: &mut dyn FnMut(&str)) -> Lookups {
        let largest = description.call_shape(Capability::Instances).largest_batch;
        let largest = usize::try_from(largest).unwrap_or(MAX_BATCH).min(MAX_BATCH);
        progress("looking up Nodes without an instance");
        let unknown_node = node(&self.unknown_node, None);
        let missing = self.lookup(Purpose::Initialise, vec![unknown_node]).await;
        let empty = self.lookup(Purpose::Initialise, Vec::new()).await;
        let elsewhere = ProviderId::parse("pileus-no-such-cloud://machine").ok();
        let foreign = self.lookup(Purpose::Refresh, vec![node(&self.unknown_node, elsewhere)]).await;
        let gone = match self.gone.clone() {
            Some(id) => Some(self.lookup(Purpose::Confirm, vec![node(&self.unknown_node, Some(id))]).await),
            None => None,
        };
        let known = if self.nodes.is_empty() {
            None
        } else {
            progress("looking up the Nodes with an instance");
            Some(self.known().await)
        };
        progress(&format!("looking up {largest} Nodes at once"));
        let many =
            (0..largest).map(|number| node(&format!("{}-{number}", self.unknown_node), None)).collect();
        let largest = self.call_lookup(CloudMode::RealFor(MAX_REQUESTS), Purpose::Initialise, many).await;
        let faults = self.under_faults(known.as_ref(), progress).await;
        Lookups {
            deadlines: (SHORT_DEADLINE, SHORT_DEADLINE),
            empty,
            missing,
            foreign,
            largest,
            gone,
            known,
            faults,
        }
    }

    /// Lookups with each kind of fault but silence.
    async fn under_faults(
        &self,
        known: Option<&Known>,
        progress: &mut dyn FnMut(&str),
    ) -> Vec<(CloudMode, Vec<LookupCall>)> {
        let about = self.fault_subjects(known);
        let mut faults = Vec::new();
        for mode in faults_but_silence() {
            progress(&format!("looking up Nodes with {}", mode.as_str()));
            let mut calls = Vec::new();
            for (purpose, nodes) in &about {
                calls.push(self.call_lookup(mode, *purpose, nodes.clone()).await);
            }
            if mode == CloudMode::BreaksDown {
                // Alone too, so that the one answered request is for this Node.
                for (name, _) in &self.nodes {
                    calls.push(self.call_lookup(mode, Purpose::Initialise, vec![node(name, None)]).await);
                }
            }
            faults.push((mode, calls));
        }
        faults
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
            if let Some(instance) = by_name[0].instance() {
                let with_id = vec![node(name, Some(instance.provider_id.clone()))];
                by_id = Some(self.lookup(Purpose::Refresh, with_id.clone()).await);
                confirmed = Some(self.lookup(Purpose::Confirm, with_id).await);
            }
            alone.push(Alone { expected, by_name, by_id, confirmed });
        }
        // Not the same forwards and backwards, or a provider that calls lists around would pass.
        let unknown_node = |number: usize| node(&format!("{}-{number}", self.unknown_node), None);
        let each = self.nodes.iter().enumerate();
        let mut mixed: Vec<_> =
            each.flat_map(|(number, (name, _))| [node(name, None), unknown_node(number)]).collect();
        mixed.push(unknown_node(self.nodes.len()));
        let reversed = mixed.iter().rev().cloned().collect();
        let mixed = self.lookup(Purpose::Initialise, mixed).await;
        let reversed = self.lookup(Purpose::Initialise, reversed).await;
        Known { alone, mixed, reversed }
    }

    /// The Nodes of lookups with faults: those with an instance, if there are any, because an answer about another Node
    /// could be right by accident.
    pub(super) fn fault_subjects(&self, known: Option<&Known>) -> Vec<(Purpose, Vec<NodeReference>)> {
        let by_name = match self.nodes.as_slice() {
            [] => vec![node(&self.unknown_node, None)],
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

    async fn lookup(&self, purpose: Purpose, nodes: Vec<NodeReference>) -> LookupCall {
        self.call_lookup(CloudMode::Real, purpose, nodes).await
    }

    pub(super) async fn call_lookup(
        &self,
        mode: CloudMode,
        purpose: Purpose,
        nodes: Vec<NodeReference>,
    ) -> LookupCall {
        self.cloud.begin(mode, &nodes);
        let started = Instant::now();
        let outcome = match self.guest.lookup_once(purpose, &nodes).await {
            Ok(Ok(answers)) => LookupOutcome::Answers(answers),
            Ok(Err(error)) => LookupOutcome::Failed(error),
            Err(fault) => LookupOutcome::Fault(fault),
        };
        LookupCall { purpose, nodes, outcome, requests: self.cloud.seen(), took: started.elapsed() }
    }
}

/// A Node as the host passes it.
fn node(name: &str, provider_id: Option<ProviderId>) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        provider_id,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
    }
}
