//! Brings one Node up to date with its instance, write by write.

use std::sync::Arc;

use kube::api::Patch;
use pileus_cloud::{Answer, Instance, Purpose, Retry};

use super::Controller;
use super::apply::patch_request;
use super::decide::{SyncResult, retry};
use super::plan::{Action, Blocked, Plan, plan, plan_with_routes};
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
        instance: &Instance,
    ) -> (Arc<NodeFacts>, SyncResult) {
        let mut node = looked_up;
        let mut result = SyncResult::Unchanged;
        let mut writes = 0;
        if self.may_be_former(&node, instance) && !self.exists(&node, instance).await {
            let why = "the cloud still shows the instance of a former node of this name";
            return (node, SyncResult::Failed(Retry::WithBackoff, why.to_owned()));
        }
        loop {
            let plan = if self.settings.waits_for_routes { plan_with_routes } else { plan };
            let action = match plan(&node, instance) {
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
            tracing::debug!(node = %node.name, ?action, "writing");
            let request = patch_request(&node, &action);
            let written =
                self.nodes.patch(&node, request.name, request.target, &Patch::Merge(request.body)).await;
            let (is_written, now) = match written {
                Err(Error::Conflict) if writes < MAX_WRITES => (false, self.nodes.read(&node).await),
                written => (true, written),
            };
            drop(permit);
            let now = match now {
                Ok(now) => now,
                Err(Error::Gone) => return (node, SyncResult::Unchanged),
                Err(error) => return (node, SyncResult::Failed(error.retry(), error.to_string())),
            };
            if is_written {
                result = result_after(result, &action);
            }
            // Another client may have set the provider ID meanwhile. It may name another instance.
            let ours = node.provider_id.as_ref().unwrap_or(&instance.provider_id);
            if now.provider_id.as_ref().is_some_and(|id| id != ours) {
                let why = "another client has set its provider ID meanwhile".to_owned();
                return (now, SyncResult::Failed(Retry::Soon, why));
            }
            node = now;
        }
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
fn result_after(before: SyncResult, action: &Action) -> SyncResult {
    match action {
        Action::Complete(completion) if completion.taints.is_some() => SyncResult::Initialized,
        _ if before == SyncResult::Initialized => before,
        _ => SyncResult::Changed,
    }
}
