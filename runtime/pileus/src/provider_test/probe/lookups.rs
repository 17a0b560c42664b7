//! The lookups of Nodes.

use std::time::{Duration, Instant};

use pileus_cloud::{Answer, Error, NodeReference, ProviderId, Purpose};
use pileus_gate::Refusal;
use pileus_host::{Capability, Description, Fault};

use super::super::cloud::CloudMode;
use super::super::facts::{Alone, Known, LookupCall, LookupOutcome, Lookups};
use super::super::refusals;
use super::settle::{MIN_WAIT, read_until_final, retry_after};
use super::{Caller, MAX_BATCH, MAX_REQUESTS, faults_but_silence};

/// How many Nodes a refresh has at most. Providers read few instances one by one and more from a list.
const FULL_BATCH: usize = 64;

impl Caller {
    pub(super) async fn lookups(
        &self,
        description: &Description,
        refusals: &[Refusal],
        progress: &mut dyn FnMut(&str),
    ) -> Lookups {
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
            Some(self.known(largest).await)
        };
        progress(&format!("looking up {largest} Nodes at once"));
        let many =
            (0..largest).map(|number| node(&format!("{}-{number}", self.unknown_node), None)).collect();
        let largest = self.call_lookup(CloudMode::RealFor(MAX_REQUESTS), Purpose::Initialise, many).await;
        let faults = self.under_faults(known.as_ref(), progress).await;
        let refused = self.under_refusals(known.as_ref(), refusals).await;
        Lookups {
            deadlines: (Duration::ZERO, Duration::ZERO),
            empty,
            missing,
            foreign,
            largest,
            gone,
            known,
            faults,
            refused,
        }
    }

    /// A lookup with each refusal.
    async fn under_refusals(
        &self,
        known: Option<&Known>,
        refusals: &[Refusal],
    ) -> Vec<(Refusal, LookupCall)> {
        let mut refused = Vec::new();
        for refusal in refusals.iter().take(refusals::MAX_TRIED) {
            let Some((purpose, nodes)) = self.fault_subjects(known).into_iter().next() else { break };
            self.cloud.refuse(refusals::response(refusal));
            refused.push((refusal.clone(), self.call_lookup(CloudMode::Refusing, purpose, nodes).await));
        }
        refused
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

    async fn known(&self, largest: usize) -> Known {
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
        let by_id = alone.iter().filter_map(|alone| alone.by_id.as_ref()).flat_map(|call| &call.nodes);
        let by_id: Vec<_> = by_id.cloned().collect();
        let refreshed = if by_id.len() == alone.len() {
            let batch = by_id.into_iter().cycle().take(largest.min(FULL_BATCH)).collect();
            Some(self.lookup(Purpose::Refresh, batch).await)
        } else {
            None
        };
        Known { alone, mixed, reversed, refreshed }
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

    /// Looks up Nodes in the real cloud. Where that is to be repeated, because cloud or machine are busy, it is, as in a cluster.
    async fn lookup(&self, purpose: Purpose, nodes: Vec<NodeReference>) -> LookupCall {
        let read = async || {
            let mut call = self.call_lookup(CloudMode::Real, purpose, nodes.clone()).await;
            let requests = std::mem::take(&mut call.requests);
            (call, requests)
        };
        let (call, requests) = read_until_final(read, |call| repeat_after(&call.outcome)).await;
        LookupCall { requests, ..call }
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

/// When to repeat a lookup; none if its outcome is final.
fn repeat_after(outcome: &LookupOutcome) -> Option<Duration> {
    let of_answer = |answer: &Result<Answer, Error>| match answer {
        Ok(Answer::Pending(after)) => Some(*after),
        Ok(Answer::Found(_) | Answer::Absent | Answer::Unmanaged(_)) => None,
        Err(error) => retry_after(error),
    };
    match outcome {
        LookupOutcome::Answers(answers) => answers.iter().filter_map(of_answer).max(),
        LookupOutcome::Failed(error) => retry_after(error),
        LookupOutcome::Fault(fault) => matches!(fault, Fault::Deadline { .. }).then_some(MIN_WAIT),
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

#[cfg(test)]
mod tests {
    use pileus_cloud::{ErrorKind, Stance};

    use super::super::super::samples::answers;
    use super::*;

    #[test]
    fn a_lookup_is_repeated_unless_its_outcome_is_final() {
        let second = Duration::from_secs(1);
        let error = |kind| Error::new(kind, "why");
        let deadline = Fault::Deadline { limit: second, unanswered: None };
        let rows = [
            (answers([]), None),
            (answers([Ok(Answer::Absent), Ok(Answer::Unmanaged(Stance::LeftAlone))]), None),
            (answers([Err(error(ErrorKind::Broken)), Err(error(ErrorKind::Invalid))]), None),
            (answers([Ok(Answer::Absent), Ok(Answer::Pending(second * 3))]), Some(second * 3)),
            (answers([Err(error(ErrorKind::Unavailable(None))), Ok(Answer::Absent)]), Some(second)),
            (LookupOutcome::Failed(error(ErrorKind::Throttled(Some(second * 7)))), Some(second * 7)),
            (LookupOutcome::Failed(error(ErrorKind::Denied)), None),
            (LookupOutcome::Fault(deadline), Some(second)),
            (LookupOutcome::Fault(Fault::StackOverflow), None),
        ];
        for (outcome, expected) in rows {
            assert_eq!(repeat_after(&outcome), expected, "{outcome:?}");
        }
    }
}
