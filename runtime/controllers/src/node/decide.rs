//! What an answer about a machine leads to.

use std::time::Duration;

use pileus_cloud::{Answer, Error, ErrorKind, Instance, Retry};

use super::plan::Blocked;
use super::roster::Again;
use crate::facts::node::NodeFacts;

/// When a Node that waits for its routes is looked at again although nobody has told that it has them.
const ROUTES: Duration = Duration::from_mins(1);

/// What to do with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Write what follows from the machine.
    Write(Box<Instance>),
    /// There is nothing to write.
    Done(Done),
}

/// What became of a Node's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing was to be done.
    Unchanged,
    /// The Node has been written, and is as its machine now.
    Changed,
    /// The Node has lost its taint.
    Initialised,
    /// The cloud asks for patience.
    Again(Duration),
    /// It waits for its routes.
    Waits,
    /// It failed, and this is what a user should know.
    Failed(Retry, String),
}

impl Done {
    /// When the Node gets its next turn.
    pub(super) const fn again(&self) -> Again {
        match self {
            Self::Unchanged | Self::Changed | Self::Initialised => Again::AtSweep,
            Self::Again(after) => Again::After(*after),
            Self::Waits => Again::After(ROUTES),
            Self::Failed(retry, _) => Again::Failed(*retry),
        }
    }

    /// What the metric calls it.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed | Self::Initialised => "changed",
            Self::Again(_) | Self::Waits => "pending",
            Self::Failed(..) => "failed",
        }
    }
}

/// What an answer of the cloud leads to.
pub(super) fn decide(node: &NodeFacts, answer: Result<Answer, Error>) -> Next {
    Next::Done(match answer {
        Ok(Answer::Found(machine)) => return Next::Write(Box::new(machine)),
        // Until it is known to be gone, it may be one that the cloud doesn't list yet.
        Ok(Answer::Absent) if node.is_uninitialised() => {
            Done::Failed(Retry::WithBackoff, "the cloud has no machine for it".to_owned())
        }
        // A Node without a provider ID is nobody's; for others, the lifecycle controller asks.
        Ok(Answer::Absent | Answer::Unmanaged) => Done::Unchanged,
        Ok(Answer::Pending(after)) => Done::Again(after),
        Err(error) => Done::Failed(error.kind.retry(), error.message),
    })
}

/// What the metric calls an answer.
pub(super) fn label(answer: &Result<Answer, Error>) -> &'static str {
    match answer {
        Ok(Answer::Found(_)) => "found",
        Ok(Answer::Absent) => "absent",
        Ok(Answer::Pending(_)) => "pending",
        Ok(Answer::Unmanaged) => "unmanaged",
        Err(error) => error.kind.as_str(),
    }
}

/// When a blocked Node is worth another look. A machine gets its addresses by itself, while a wrong `--node-ip` takes
/// somebody to put it right, which then shows as a change of the Node; so does what is wrong with a Node that works.
pub(super) fn retry(node: &NodeFacts, blocked: &Blocked) -> Retry {
    match blocked {
        Blocked::NoAddress | Blocked::NodeIpUnknown(_) if node.is_uninitialised() => Retry::WithBackoff,
        Blocked::NoAddress | Blocked::NodeIpUnknown(_) | Blocked::NodeIpMalformed(_) | Blocked::NoRoute => {
            ErrorKind::Invalid.retry()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_that_waits_fails_for_want_of_a_machine() {
        let waits = NodeFacts::registered("a");
        let works = NodeFacts { taints: Vec::new(), ..NodeFacts::registered("a") };
        let absent = Done::Failed(Retry::WithBackoff, "the cloud has no machine for it".to_owned());
        let pending = Answer::Pending(Duration::from_secs(7));
        let error = |kind| Err(Error::new(kind, "why"));
        let failed = |retry| Done::Failed(retry, "why".to_owned());
        for (node, answer, done) in [
            (&waits, Ok(Answer::Absent), absent),
            (&works, Ok(Answer::Absent), Done::Unchanged),
            (&waits, Ok(Answer::Unmanaged), Done::Unchanged),
            (&works, Ok(Answer::Unmanaged), Done::Unchanged),
            (&waits, Ok(pending.clone()), Done::Again(Duration::from_secs(7))),
            (&works, Ok(pending), Done::Again(Duration::from_secs(7))),
            (&waits, error(ErrorKind::Unavailable), failed(Retry::WithBackoff)),
            (&works, error(ErrorKind::Denied), failed(Retry::Slowly)),
        ] {
            assert_eq!(decide(node, answer), Next::Done(done));
        }
    }

    #[test]
    fn a_node_that_works_is_not_looked_up_again_and_again_for_what_somebody_has_to_put_right() {
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
