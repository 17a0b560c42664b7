//! Records which instances the cloud has confirmed, and reads those directly that a lookup lacked: a list may lack an instance
//! that exists, and its Node would lose the traffic of load balancers.

use std::collections::HashSet;
use std::sync::Arc;

use pileus_cloud::{Answer, Error, ErrorKind, Instances, NodeReference, Purpose};
use tokio::time::Instant;

use super::Worker;
use crate::facts::node::{NodeFacts, Readiness};
use crate::node::work_kind::WorkKind;
use crate::nodes::{Change, Confirmations};
use crate::well_known::ANNOTATION_NODE_MANAGER;

impl Worker {
    /// Applies changes of Nodes. The first ones are all Nodes.
    pub(super) fn observe(&mut self, changes: Vec<Change>, now: Instant) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.notices.observe(&changes);
        self.tell_of_node_managers(&changes);
        for change in &changes {
            self.missing.observe(change, &self.controller.provider.name, now);
        }
        self.queue.observe(changes, now);
        if is_first {
            self.controller.confirmations.begin(self.queue.nodes());
        }
    }

    /// Tells the operator once that node managers do a part of this controller's work.
    fn tell_of_node_managers(&mut self, changes: &[Change]) {
        if !self.controller.settings.is_node_manager && self.notices.shows_node_managers(changes) {
            tracing::warn!(
                annotation = ANNOTATION_NODE_MANAGER,
                "node managers keep nodes up to date, and this process leaves those alone: start it with \
                 --controllers=*,-cloud-node, or remove the node managers and then the annotation"
            );
        }
    }

    /// Reports the Nodes that no provider serves and that have waited too long.
    pub(super) fn report_unserved(&mut self, now: Instant) {
        for (node, cause) in self.missing.take_unserved(&self.controller.provider.name, now) {
            self.controller.report_missing(&node, cause);
        }
    }

    /// Records which instances exist.
    pub(super) fn record(
        &self,
        kind: WorkKind,
        nodes: &[Arc<NodeFacts>],
        answers: &[Result<Answer, Error>],
        is_per_node: bool,
    ) {
        let confirmations = &self.controller.confirmations;
        for (node, answer) in nodes.iter().zip(answers) {
            record(confirmations, node, answer, is_per_node);
        }
        if kind == WorkKind::Refresh {
            let uids: HashSet<&str> = self.queue.nodes().map(|node| node.uid.as_str()).collect();
            confirmations.retain(|uid| uids.contains(uid));
        }
    }
}

/// Whether a direct read follows where a lookup has no instance of a Node. For Nodes that aren't ready, the lifecycle controller
/// makes it.
fn is_read_directly(node: &NodeFacts) -> bool {
    node.readiness == Readiness::True && node.provider_id.is_some() && !node.is_uninitialized()
}

/// Records what an answer says about the instance of a Node. `is_per_node` says that an error is about this Node alone.
fn record(
    confirmations: &Confirmations,
    node: &NodeFacts,
    answer: &Result<Answer, Error>,
    is_per_node: bool,
) {
    match (answer, &node.provider_id) {
        (Ok(Answer::Found(instance)), _) => confirmations.record_found(node, &instance.provider_id),
        // The provider knows the Node, and says that its instance is managed by other means.
        (Ok(Answer::Unmanaged(_)), Some(id)) => confirmations.record_found(node, id),
        (Ok(Answer::Absent), _) => confirmations.record_absent(node, is_read_directly(node)),
        // The cloud or the provider refuses this provider ID, and would refuse it in a load balancer, too.
        (Err(error), _) if is_per_node && error.kind == ErrorKind::Invalid => {
            confirmations.record_absent(node, true);
        }
        _ => confirmations.record_unknown(node),
    }
}

/// Replaces each answer that the instance of a working Node is absent with that of a direct read. A list may be wrong, and such
/// a Node has a kubelet that reports.
pub(super) async fn confirm_absent(
    instances: &dyn Instances,
    nodes: &[Arc<NodeFacts>],
    references: &[NodeReference],
    answers: &mut [Result<Answer, Error>],
) {
    let (doubted, sought): (Vec<_>, Vec<_>) = (nodes.iter().zip(references).zip(answers))
        .filter(|((node, _), answer)| is_read_directly(node) && **answer == Ok(Answer::Absent))
        .map(|((_, reference), answer)| (answer, reference.clone()))
        .unzip();
    if sought.is_empty() {
        return;
    }
    let read = instances.lookup(Purpose::Confirm, &sought).await;
    let mut read = read.unwrap_or_else(|error| vec![Err(error); sought.len()]).into_iter();
    for answer in doubted {
        *answer =
            read.next().unwrap_or_else(|| Err(Error::new(ErrorKind::Broken, "no answer about the node")));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::{InstanceState, ProviderId, Stance};

    use super::*;
    use crate::model::instance;

    #[test]
    fn only_definite_answers_say_whether_an_instance_exists() {
        let id = ProviderId::parse("fake://a").unwrap();
        let initialized =
            NodeFacts { taints: Vec::new(), provider_id: Some(id), ..NodeFacts::registered("a") };
        let found = || Ok(Answer::Found(instance("fake://a", InstanceState::Running)));
        let error = |kind| Err(Error::new(kind, "why"));
        // The answer, whether the Node is ready, whether an error is about this Node, and whether the Node counts then.
        for (answer, is_ready, is_per_node, expected) in [
            (found(), true, true, true),
            (Ok(Answer::Unmanaged(Stance::LeftAlone)), true, true, true),
            (Ok(Answer::Pending(Duration::ZERO)), true, true, true),
            (Ok(Answer::Absent), false, true, true),
            (Ok(Answer::Absent), true, true, false),
            (error(ErrorKind::Invalid), true, true, false),
            (error(ErrorKind::Invalid), true, false, true),
            (error(ErrorKind::Denied), true, true, true),
            (error(ErrorKind::Unavailable(None)), true, true, true),
            (error(ErrorKind::Broken), true, true, true),
        ] {
            let readiness = if is_ready { Readiness::True } else { Readiness::False };
            let node = NodeFacts { readiness, ..initialized.clone() };
            let confirmations = Confirmations::default();
            confirmations.expect_answers();
            confirmations.begin([&node].into_iter());
            record(&confirmations, &node, &answer, is_per_node);
            let is_usable = confirmations.unusable([&node].into_iter()).is_empty();
            assert_eq!(is_usable, expected, "{answer:?} {is_ready} {is_per_node}");
        }
    }
}
