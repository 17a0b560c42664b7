//! One Node, from what is known of its machine to its last write, and who is told.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Patch;
use pileus_cloud::{Answer, Instance, Purpose, Retry};

use super::Controller;
use super::apply::write;
use super::decide::{Done, retry};
use super::labels::no_labels;
use super::plan::{Action, Blocked, Plan, plan, plan_with_routes};
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::NodeFacts;

/// How many writes to a Node are tried before others get their turn. Two complete it; more are for one that keeps
/// changing under our hands. What is changed back with each write, as by an admission policy, must not be written for
/// ever.
const TRIES: u32 = 8;

impl Controller {
    /// Writes to a Node until nothing is left to write. How it is then, and what became of it.
    ///
    /// The answer of the API server is the next observation: no read in between, and no write that rests on an old one.
    pub(super) async fn complete(
        &self,
        looked_up: Arc<NodeFacts>,
        machine: &Instance,
    ) -> (Arc<NodeFacts>, Done) {
        let mut node = looked_up;
        let mut done = Done::Unchanged;
        let mut tries = 0;
        if self.may_be_old(&node, machine) && !self.is_there(&node, machine).await {
            let why = "the cloud still shows the machine of the node that bore this name before";
            return (node, Done::Failed(Retry::WithBackoff, why.to_owned()));
        }
        loop {
            let plan = if self.settings.waits_for_routes { plan_with_routes } else { plan };
            let action = match plan(&node, machine) {
                Plan::Nothing => return (node, done),
                Plan::Blocked(Blocked::NoRoute) => return (node, Done::Waits),
                Plan::Blocked(why) => {
                    let retry = retry(&node, &why);
                    return (node, Done::Failed(retry, why.to_string()));
                }
                Plan::Write(_) if tries == TRIES => {
                    let why = "what is written to it is changed back at once: look for an admission policy";
                    return (node, Done::Failed(Retry::Slowly, why.to_owned()));
                }
                Plan::Write(action) => action,
            };
            tries += 1;
            tracing::debug!(node = %node.name, ?action, "writing");
            let request = write(&node, &action);
            let written =
                self.nodes.patch(&node, request.name, request.part, &Patch::Merge(request.body)).await;
            let (is_written, now) = match written {
                Err(Error::Conflict) if tries < TRIES => (false, self.nodes.read(&node).await),
                written => (true, written),
            };
            let now = match now {
                Ok(now) => now,
                Err(Error::Gone) => return (node, Done::Unchanged),
                Err(error) => return (node, Done::Failed(error.retry(), error.to_string())),
            };
            if is_written {
                done = effect(done, &action);
                say_left_out(&node, machine, &action);
            }
            // Somebody else gave it a provider ID while we were at it: the machine may be another one.
            let ours = node.provider_id.as_ref().unwrap_or(&machine.provider_id);
            if now.provider_id.as_ref().is_some_and(|id| id != ours) {
                let why = "its provider ID was set by somebody else meanwhile".to_owned();
                return (now, Done::Failed(Retry::Soon, why));
            }
            node = now;
        }
    }

    /// Whether an answer may be about a machine that is gone: one that the last Node of this name had. A list may show it
    /// for a while longer, and a provider ID can't be taken back.
    fn may_be_old(&self, node: &NodeFacts, machine: &Instance) -> bool {
        node.provider_id.is_none()
            && self.nodes.former_machine(&node.name).as_ref() == Some(&machine.provider_id)
    }

    /// Whether a direct read finds the machine: its Node was deleted by hand and has registered anew.
    async fn is_there(&self, node: &NodeFacts, machine: &Instance) -> bool {
        let mut reference = node.reference(&self.provider.node_labels);
        reference.provider_id = Some(machine.provider_id.clone());
        let answers = self.instances.lookup(Purpose::Confirm, &[reference]).await;
        let is_same = |answer: &Answer| matches!(answer, Answer::Found(found) if found.provider_id == machine.provider_id);
        matches!(answers.as_deref(), Ok([Ok(answer)]) if is_same(answer))
    }

    /// Tells that the turn of a Node has failed, for the `failures`th time in a row.
    pub(super) fn tell_failed(&self, node: &NodeFacts, failures: u32, retry: Retry, why: &str) {
        // The 1st, 2nd, 4th, 8th … failure: a user sees it soon, and neither log nor API server is flooded.
        if !failures.is_power_of_two() {
            return;
        }
        if node.is_uninitialised() {
            tracing::warn!(node = %node.name, failures, "not initialised: {why}");
            let note = format!("The node is not initialised yet: {why}");
            self.events.about_node(node, Reason::CloudInitializationFailed, note);
        } else if matches!(retry, Retry::Slowly | Retry::Uncertain) {
            tracing::warn!(node = %node.name, failures, "not refreshed: {why}");
            let note = format!("The node does not follow its machine: {why}");
            self.events.about_node(node, Reason::CloudRefreshFailed, note);
        } else {
            // A cloud that has trouble is no news about a Node that works.
            tracing::debug!(node = %node.name, failures, "not refreshed: {why}");
        }
    }

    /// Tells that a Node has lost its taint.
    pub(super) fn tell_initialised(&self, node: &NodeFacts) {
        let age = Timestamp::now().duration_since(node.created_at);
        let age = Duration::try_from(age).unwrap_or_default();
        self.metrics.node_initialised(age);
        let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::info!(node = %node.name, provider_id, age_seconds = age.as_secs(), "node initialised");
        self.events.about_node(node, Reason::Synced, "Node synced successfully".to_owned());
    }
}

/// What has become of a Node after one more write.
fn effect(before: Done, action: &Action) -> Done {
    match action {
        Action::Complete(completion) if completion.taints.is_some() => Done::Initialised,
        _ if before == Done::Initialised => before,
        _ => Done::Changed,
    }
}

/// Says once what the cloud tells and no label can hold.
fn say_left_out(node: &NodeFacts, machine: &Instance, action: &Action) {
    let refused = no_labels(machine);
    if matches!(action, Action::Complete(_)) && !refused.is_empty() {
        tracing::warn!(node = %node.name, ?refused, "what the cloud says that can't be labels is left out");
    }
}
