//! What follows from the cloud's answer about a Node: a write, or the end of this work with a result.

use std::time::Duration;

use pileus_cloud::{Answer, Error, ErrorKind, Retry, Stance};

use super::missing::looked_for;
use super::plan::{Blocked, Goal};
use super::queue::NextLookup;
use crate::facts::node::NodeFacts;

/// When a Node that waits for its routes is looked up again, should no change of the Node report them before.
const ROUTES_POLL: Duration = Duration::from_mins(1);

/// The next step after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Write what follows from this.
    Write(Goal),
    /// There is nothing to write.
    Finish(SyncResult),
}

/// The result of the work on a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SyncResult {
    /// The Node was up to date.
    Unchanged,
    /// The Node has been written and is up to date.
    Changed,
    /// The Node has lost its uninitialized taint.
    Initialized,
    /// The provider doesn't manage the instance, and the Node waits for nothing.
    Released {
        /// Whether the Node has lost its uninitialized taint by this work.
        is_new: bool,
    },
    /// The cloud asks to come back after this time.
    Pending(Duration),
    /// The Node waits for its routes.
    AwaitsRoutes,
    /// The work failed, for a reason that users should know.
    Failed(Retry, String),
}

impl SyncResult {
    /// When the Node is looked up again.
    pub(super) const fn next_lookup(&self) -> NextLookup {
        match self {
            Self::Unchanged | Self::Changed | Self::Initialized => NextLookup::AtSweep,
            Self::Released { .. } => NextLookup::OnChange,
            Self::Pending(after) => NextLookup::After(*after),
            Self::AwaitsRoutes => NextLookup::After(ROUTES_POLL),
            Self::Failed(retry, _) => NextLookup::OnRetry(*retry),
        }
    }

    /// The result as a metric label.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Unchanged | Self::Released { is_new: false } => "unchanged",
            Self::Changed | Self::Initialized | Self::Released { is_new: true } => "changed",
            Self::Pending(_) | Self::AwaitsRoutes => "pending",
            Self::Failed(..) => "failed",
        }
    }
}

/// Decides on the next step for a Node from the cloud's answer.
pub(super) fn decide(node: &NodeFacts, answer: Result<Answer, Error>) -> NextStep {
    NextStep::Finish(match answer {
        Ok(Answer::Found(instance)) => return NextStep::Write(Goal::Instance(Box::new(instance))),
        // The cloud may not list a new instance yet.
        Ok(Answer::Absent) if node.is_uninitialized() => {
            SyncResult::Failed(Retry::WithBackoff, no_instance(node))
        }
        // Nothing says that a Node without a provider ID belongs to this cloud. For others, the lifecycle controller confirms
        // that the instance is gone. Where neither happens, `missing` reports it.
        Ok(Answer::Absent | Answer::Unmanaged(Stance::LeftAlone)) => SyncResult::Unchanged,
        Ok(Answer::Unmanaged(Stance::Released)) => return NextStep::Write(Goal::Released),
        Ok(Answer::Pending(after)) => SyncResult::Pending(after),
        Err(error) => SyncResult::Failed(error.kind.retry(), error.message),
    })
}

/// Why a Node that waits isn't initialized: what was looked for, and what to do.
fn no_instance(node: &NodeFacts) -> String {
    let what_to_do = match node.provider_id {
        Some(_) => "correct its kubelet's --provider-id",
        None => "give it the name of its instance, or start its kubelet with --provider-id",
    };
    format!(
        "the cloud has no instance with {}; unless the instance is still being created, {what_to_do}",
        looked_for(node)
    )
}

/// The answer as a metric label.
pub(super) fn answer_label(answer: &Result<Answer, Error>) -> &'static str {
    match answer {
        Ok(Answer::Found(_)) => "found",
        Ok(Answer::Absent) => "absent",
        Ok(Answer::Pending(_)) => "pending",
        Ok(Answer::Unmanaged(_)) => "unmanaged",
        Err(error) => error.kind.as_str(),
    }
}

/// When to retry a blocked Node. An instance gets its addresses by itself. A wrong `--node-ip` must be corrected by an operator,
/// which shows as a change of the Node; the same holds for what blocks an initialized Node.
pub(super) fn retry(node: &NodeFacts, blocked: &Blocked) -> Retry {
    match blocked {
        Blocked::NoAddress | Blocked::NodeIpUnknown(_) if node.is_uninitialized() => Retry::WithBackoff,
        Blocked::NoAddress | Blocked::NodeIpUnknown(_) | Blocked::NodeIpMalformed(_) | Blocked::NoRoute => {
            ErrorKind::Invalid.retry()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pileus_cloud::{InstanceState, ProviderId};

    use crate::model::instance;

    #[test]
    fn a_waiting_node_without_an_instance_is_told_what_was_looked_for() {
        for (provider_id, parts) in [
            (None, ["the name \"a\"", "--provider-id"]),
            (Some("fake://typo"), ["the provider ID fake://typo", "correct its kubelet's --provider-id"]),
        ] {
            let provider_id = provider_id.map(|id| ProviderId::parse(id).unwrap());
            let node = NodeFacts { provider_id, ..NodeFacts::registered("a") };
            let NextStep::Finish(SyncResult::Failed(_, why)) = decide(&node, Ok(Answer::Absent)) else {
                panic!("it fails");
            };
            assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        }
    }

    #[test]
    fn only_a_waiting_node_fails_for_lack_of_an_instance() {
        let waits = NodeFacts::registered("a");
        let works = NodeFacts { taints: Vec::new(), ..NodeFacts::registered("a") };
        let absent = SyncResult::Failed(Retry::WithBackoff, no_instance(&waits));
        let pending = Answer::Pending(Duration::from_secs(7));
        let error = |kind| Err(Error::new(kind, "why"));
        let failed = |retry| SyncResult::Failed(retry, "why".to_owned());
        for (node, answer, result) in [
            (&waits, Ok(Answer::Absent), absent),
            (&works, Ok(Answer::Absent), SyncResult::Unchanged),
            (&waits, Ok(Answer::Unmanaged(Stance::LeftAlone)), SyncResult::Unchanged),
            (&works, Ok(Answer::Unmanaged(Stance::LeftAlone)), SyncResult::Unchanged),
            (&waits, Ok(pending.clone()), SyncResult::Pending(Duration::from_secs(7))),
            (&works, Ok(pending), SyncResult::Pending(Duration::from_secs(7))),
            (&waits, error(ErrorKind::Unavailable(None)), failed(Retry::WithBackoff)),
            (&works, error(ErrorKind::Denied), failed(Retry::Slowly)),
        ] {
            assert_eq!(decide(node, answer), NextStep::Finish(result));
        }
    }

    #[test]
    fn an_instance_and_a_release_are_written_for_each_node() {
        let found = instance("fake://a", InstanceState::Running);
        let waits = NodeFacts::registered("a");
        let works = NodeFacts { taints: Vec::new(), ..NodeFacts::registered("a") };
        for node in [&waits, &works] {
            let written = decide(node, Ok(Answer::Found(found.clone())));
            assert_eq!(written, NextStep::Write(Goal::Instance(Box::new(found.clone()))));
            let released = decide(node, Ok(Answer::Unmanaged(Stance::Released)));
            assert_eq!(released, NextStep::Write(Goal::Released));
        }
    }

    #[test]
    fn a_released_node_is_looked_up_again_only_when_it_changes() {
        for (is_new, label) in [(true, "changed"), (false, "unchanged")] {
            let result = SyncResult::Released { is_new };
            assert_eq!((result.next_lookup(), result.label()), (NextLookup::OnChange, label));
        }
    }

    #[test]
    fn an_initialized_node_that_an_operator_must_correct_is_retried_slowly() {
        let waits = NodeFacts::registered("a");
        let works = NodeFacts { taints: Vec::new(), ..NodeFacts::registered("a") };
        let unknown = Blocked::NodeIpUnknown([10, 0, 0, 9].into());
        let malformed = Blocked::NodeIpMalformed("why".to_owned());
        for (node, blocked, expected) in [
            (&waits, &Blocked::NoAddress, Retry::WithBackoff),
            (&waits, &unknown, Retry::WithBackoff),
            (&waits, &malformed, Retry::Slowly),
            (&works, &unknown, Retry::Slowly),
            (&works, &malformed, Retry::Slowly),
        ] {
            assert_eq!(retry(node, blocked), expected, "{blocked:?}");
        }
    }
}
