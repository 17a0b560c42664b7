//! The lookups of the lifecycle controller: several at a time, so that a call that hangs delays only the Nodes that it is about.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use pileus_cloud::{Instances, Provider, Purpose};
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

use super::planner::NodeAnswer;
use crate::answers::per_item;
use crate::facts::node::NodeFacts;
use crate::task::joined;

/// How many lookups run at the same time. Each may hold as many Nodes as the provider takes, so a few are enough, and a cloud
/// that is slow isn't made slower.
const CONCURRENT_LOOKUPS: usize = 4;

/// The lookups that wait and that run. One that hangs outlasts its pass.
pub(super) struct Lookups {
    instances: Arc<dyn Instances>,
    node_labels: Vec<String>,
    largest_batch: usize,
    /// The Nodes that wait for a lookup.
    to_list: VecDeque<Arc<NodeFacts>>,
    /// The Nodes that wait for a direct read, each with the answer of the lookup.
    to_confirm: VecDeque<NodeAnswer>,
    running: JoinSet<Answered>,
    /// The UIDs of the Nodes that are being looked up.
    busy: BTreeSet<String>,
    /// The number of the present pass.
    pass: u64,
    /// How many of the running lookups belong to the present pass.
    of_this_pass: usize,
}

/// The answers of one lookup.
pub(super) struct Answered {
    pass: u64,
    /// For a direct read, the answers of the lookup that it confirms. Empty for that lookup itself.
    pub(super) listed: Vec<NodeAnswer>,
    pub(super) answers: Vec<NodeAnswer>,
}

impl Lookups {
    pub(super) fn new(instances: Arc<dyn Instances>, provider: &Provider) -> Self {
        Self {
            instances,
            node_labels: provider.node_labels.clone(),
            largest_batch: provider.largest_lookup_batch.max(1),
            to_list: VecDeque::new(),
            to_confirm: VecDeque::new(),
            running: JoinSet::new(),
            busy: BTreeSet::new(),
            pass: 0,
            of_this_pass: 0,
        }
    }

    /// Begins a pass that looks these Nodes up, except those that are being looked up since an earlier pass.
    pub(super) fn begin(&mut self, candidates: Vec<Arc<NodeFacts>>) {
        let confirming: BTreeSet<_> = self.to_confirm.iter().map(|(node, _)| &node.uid).collect();
        let is_free =
            |node: &Arc<NodeFacts>| !self.busy.contains(&node.uid) && !confirming.contains(&node.uid);
        self.to_list = candidates.into_iter().filter(is_free).collect();
        self.pass += 1;
        self.of_this_pass = 0;
    }

    /// Adds Nodes that need a direct read.
    pub(super) fn confirm(&mut self, listed: Vec<NodeAnswer>) {
        self.to_confirm.extend(listed);
    }

    /// Starts as many lookups as may run, in as few calls as the provider allows. Direct reads come last, since one call can make
    /// those that several lookups need.
    pub(super) fn start(&mut self) {
        while self.running.len() < CONCURRENT_LOOKUPS {
            let most = self.largest_batch;
            let nodes: Vec<_> = self.to_list.drain(..most.min(self.to_list.len())).collect();
            if !nodes.is_empty() {
                self.spawn(Purpose::Refresh, nodes, Vec::new());
                continue;
            }
            let listed: Vec<_> = self.to_confirm.drain(..most.min(self.to_confirm.len())).collect();
            if listed.is_empty() {
                return;
            }
            let nodes = listed.iter().map(|(node, _)| Arc::clone(node)).collect();
            self.spawn(Purpose::Confirm, nodes, listed);
        }
    }

    /// Whether the present pass still waits for answers.
    pub(super) fn is_pass_unfinished(&self) -> bool {
        self.of_this_pass > 0 || !self.to_list.is_empty() || !self.to_confirm.is_empty()
    }

    /// Waits for the next lookup to end. `None` where none is running.
    pub(super) async fn next(&mut self) -> Option<Answered> {
        let ended = self.running.join_next().await?;
        Some(self.on_end(ended))
    }

    /// The next lookup that has ended already.
    pub(super) fn try_next(&mut self) -> Option<Answered> {
        let ended = self.running.try_join_next()?;
        Some(self.on_end(ended))
    }

    /// The number of Nodes that wait for a lookup.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.to_list.len()
    }

    fn on_end(&mut self, ended: Result<Answered, JoinError>) -> Answered {
        let answered = joined(ended);
        self.of_this_pass -= usize::from(answered.pass == self.pass);
        for (node, _) in &answered.answers {
            self.busy.remove(&node.uid);
        }
        answered
    }

    fn spawn(&mut self, purpose: Purpose, nodes: Vec<Arc<NodeFacts>>, listed: Vec<NodeAnswer>) {
        self.busy.extend(nodes.iter().map(|node| node.uid.clone()));
        self.of_this_pass += 1;
        let references: Vec<_> = nodes.iter().map(|node| node.reference(&self.node_labels)).collect();
        let (pass, instances) = (self.pass, Arc::clone(&self.instances));
        let lookup = async move {
            let answers = instances.lookup(purpose, &references).await;
            let answers = per_item(answers, nodes.len());
            Answered { pass, listed, answers: nodes.into_iter().zip(answers).collect() }
        };
        self.running.spawn(lookup.in_current_span());
    }
}
