//! Brings one Node up to date with its instance, or releases it, write by write.

use std::sync::Arc;

use kube::api::Patch;
use pileus_cloud::{Answer, Instance, Purpose, Retry};

use super::Controller;
use super::apply::{PatchRequest, patch_request};
use super::decide::{SyncResult, retry};
use super::plan::{Action, Blocked, Goal, Plan, plan, plan_with_routes, release, with_mark};
use crate::error::Error;
use crate::facts::node::NodeFacts;

/// The most writes to a Node before other Nodes get a writer. Two complete a Node; more are needed only where the Node keeps
/// changing meanwhile. The limit ends a fight with an admission policy that undoes each write.
const MAX_WRITES: u32 = 8;

impl Controller {
    /// Writes to a Node until it is up to date. Returns the Node as it is then, and the result.
    ///
    /// The response to a write is the next observation: there is no read in between, and no write rests on old facts.
    pub(super) async fn complete(
        &self,
        looked_up: Arc<NodeFacts>,
        goal: &Goal,
    ) -> (Arc<NodeFacts>, SyncResult) {
        let mut node = looked_up;
        let mut result = match goal {
            Goal::Instance(_) => SyncResult::Unchanged,
            Goal::Released => SyncResult::Released { is_new: false },
        };
        let mut writes = 0;
        if let Goal::Instance(instance) = goal
            && self.may_be_former(&node, instance)
            && !self.exists(&node, instance).await
        {
            let why = "the cloud still shows the instance of a former node of this name";
            return (node, SyncResult::Failed(Retry::WithBackoff, why.to_owned()));
        }
        loop {
            let action = match self.plan(&node, goal) {
                Plan::Nothing => return (node, result),
                Plan::Blocked(Blocked::NoRoute) => return (node, SyncResult::AwaitsRoutes),
                Plan::Blocked(why) => {
                    let retry = retry(&node, &why);
                    return (node, SyncResult::Failed(retry, why.to_string()));
                }
                Plan::Write(_) if writes == MAX_WRITES => {
                    let why = "each write to it is undone at once: look for an admission policy";
                    return (node, SyncResult::Failed(Retry::Slowly, why.to_owned()));
                }
                Plan::Write(action) => action,
            };
            let permit = self.permits.acquire().await;
            // After the stop no Node is begun, and one that is half written is finished.
            if permit.is_err() && writes == 0 {
                return (node, result);
            }
            writes += 1;
            let (is_written, now) = self.write(&node, &action, writes < MAX_WRITES).await;
            drop(permit);
            let now = match now {
                Ok(now) => now,
                Err(Error::Gone) => return (node, SyncResult::Unchanged),
                Err(error) => return (node, SyncResult::Failed(error.retry(), error.to_string())),
            };
            if is_written {
                result = result_after(result, &action, goal);
            }
            // Another client may have set the provider ID meanwhile. It may name another instance.
            if now.provider_id.is_some() && now.provider_id.as_ref() != goal.provider_id(&node) {
                let why = "another client has set its provider ID meanwhile".to_owned();
                return (now, SyncResult::Failed(Retry::Soon, why));
            }
            node = now;
        }
    }

    /// Makes one write. Returns whether it was made, and the Node as it is then. After a conflict it isn't made, and the Node is
    /// read again, if another write may follow.
    async fn write(
        &self,
        node: &Arc<NodeFacts>,
        action: &Action,
        may_follow: bool,
    ) -> (bool, Result<Arc<NodeFacts>, Error>) {
        tracing::debug!(node = %node.name, ?action, "writing");
        let PatchRequest { name, target, body } = patch_request(node, action);
        match self.nodes.patch(node, name, target, &Patch::Merge(body)).await {
            Err(Error::Conflict) if may_follow => (false, self.nodes.read(node).await),
            written => (true, written),
        }
    }

    fn plan(&self, node: &NodeFacts, goal: &Goal) -> Plan {
        let plan = match goal {
            Goal::Instance(instance) if self.settings.waits_for_routes => plan_with_routes(node, instance),
            Goal::Instance(instance) => plan(node, instance),
            Goal::Released => return release(node),
        };
        if self.settings.is_node_manager { with_mark(node, plan) } else { plan }
    }

    /// Whether the instance belonged to a deleted Node of this name. A list may still show such an instance although it is
    /// gone, and a provider ID can't be taken back.
    fn may_be_former(&self, node: &NodeFacts, instance: &Instance) -> bool {
        node.provider_id.is_none()
            && self.nodes.former_instance(&node.name).as_ref() == Some(&instance.provider_id)
    }

    /// Whether a direct read finds the instance. It does where a Node was deleted by hand and has registered again.
    async fn exists(&self, node: &NodeFacts, instance: &Instance) -> bool {
        let mut reference = node.reference(&self.provider.node_labels);
        reference.provider_id = Some(instance.provider_id.clone());
        let answers = self.instances.lookup(Purpose::Confirm, &[reference]).await;
        let is_same = |answer: &Answer| matches!(answer, Answer::Found(found) if found.provider_id == instance.provider_id);
        matches!(answers.as_deref(), Ok([Ok(answer)]) if is_same(answer))
    }
}

/// The result of the work on a Node after one more write.
fn result_after(before: SyncResult, action: &Action, goal: &Goal) -> SyncResult {
    match action {
        _ if *goal == Goal::Released => SyncResult::Released { is_new: true },
        Action::Complete(completion) if completion.taints.is_some() => SyncResult::Initialized,
        _ if before == SyncResult::Initialized => before,
        _ => SyncResult::Changed,
    }
}
