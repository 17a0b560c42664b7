//! One Node, from the answer about its machine to its last write.

use std::time::Duration;

use jiff::Timestamp;
use pileus_cloud::{Answer, ErrorKind, Instance, Retry};

use super::Controller;
use super::plan::{self, Action, Blocked, Plan};
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::NodeFacts;

/// How often a Node that keeps changing under our hands is read again before others get their turn.
const CONFLICTS: u32 = 5;

/// What became of the work on one Node.
#[derive(Debug)]
pub(super) enum Done {
    /// Nothing is left to do.
    Settled,
    /// The Node is complete now.
    Initialised(Box<NodeFacts>),
    /// The cloud asks for patience.
    Again(Duration),
    /// It failed, and this is what a user should know.
    Failed(Retry, String),
}

/// What an answer of the cloud leads to.
pub(super) enum Next {
    Write(Box<Instance>),
    Done(Done),
}

pub(super) fn decide(answer: Result<Answer, pileus_cloud::Error>) -> Next {
    Next::Done(match answer {
        Ok(Answer::Found(machine)) => return Next::Write(Box::new(machine)),
        // Until it is known to be gone, it may be one that the cloud doesn't list yet.
        Ok(Answer::Absent) => Done::Failed(Retry::Growing, "the cloud has no machine for it".to_owned()),
        Ok(Answer::Pending(after)) => Done::Again(after),
        Ok(Answer::Unmanaged) => Done::Settled,
        Err(error) => Done::Failed(error.kind.retry(), error.message),
    })
}

pub(super) fn label(answer: &Result<Answer, pileus_cloud::Error>) -> &'static str {
    match answer {
        Ok(Answer::Found(_)) => "found",
        Ok(Answer::Absent) => "absent",
        Ok(Answer::Pending(_)) => "pending",
        Ok(Answer::Unmanaged) => "unmanaged",
        Err(error) => error.kind.as_str(),
    }
}

/// When a blocked Node is worth another look: a machine gets its addresses by itself, while a wrong `--node-ip` takes
/// somebody to put it right, which then shows as a change of the Node.
fn retry(blocked: &Blocked) -> Retry {
    match blocked {
        Blocked::NoAddress | Blocked::NodeIpUnknown(_) => Retry::Growing,
        Blocked::NodeIpMalformed(_) => ErrorKind::Invalid.retry(),
    }
}

impl Controller {
    /// Writes to a Node until nothing is left to write.
    pub(super) async fn complete(&self, looked_up: NodeFacts, machine: &Instance) -> Done {
        let mut node = looked_up;
        let mut conflicts = 0;
        let mut was_completed = false;
        loop {
            let action = match plan::plan(&node, machine) {
                Plan::Nothing if was_completed => return Done::Initialised(Box::new(node)),
                Plan::Nothing => return Done::Settled,
                Plan::Blocked(why) => return Done::Failed(retry(&why), why.to_string()),
                Plan::Write(action) => action,
            };
            tracing::debug!(node = %node.name, ?action, "writing");
            if let Action::Complete { .. } = action {
                was_completed = true;
                let refused = plan::no_labels(machine);
                if !refused.is_empty() {
                    tracing::warn!(node = %node.name, ?refused, "what the cloud says that can't be labels is left out");
                }
            }
            let written = match self.nodes.apply(&node, &action).await {
                Err(Error::Conflict) if conflicts < CONFLICTS => {
                    conflicts += 1;
                    was_completed = false;
                    self.nodes.read(&node).await
                }
                written => written,
            };
            let now = match written {
                Ok(now) => now,
                Err(Error::Gone) => return Done::Settled,
                Err(error) => return Done::Failed(error.retry(), error.to_string()),
            };
            // Somebody else gave it a provider ID while we were at it: the machine may be another one.
            if !was_completed && now.provider_id != node.provider_id {
                return Done::Failed(
                    Retry::Soon,
                    "its provider ID was set by somebody else meanwhile".to_owned(),
                );
            }
            node = now;
        }
    }

    pub(super) fn tell_failed(&self, node: &NodeFacts, failures: u32, why: &str) {
        // The 1st, 2nd, 4th, 8th … failure: a user sees it soon, and neither log nor API server is flooded.
        if failures.is_power_of_two() {
            tracing::warn!(node = %node.name, failures, "not initialised: {why}");
            let note = format!("The node is not initialised yet: {why}");
            self.events.about_node(node, Reason::CloudInitializationFailed, note);
        }
    }

    pub(super) fn tell_initialised(&self, node: &NodeFacts) {
        let age = Timestamp::now().duration_since(node.created_at);
        let age = Duration::try_from(age).unwrap_or_default();
        self.metrics.node_initialised(age);
        let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::info!(node = %node.name, provider_id, age_seconds = age.as_secs(), "node initialised");
        self.events.about_node(node, Reason::Synced, "Node synced successfully".to_owned());
    }
}
