//! Performs the planned writes, one request for each action, and reports them to users.

use jiff::Timestamp;
use kube::api::Patch;
use serde_json::{Value, json};

use super::Controller;
use super::breaker::BreakerState;
use super::plan::{Action, NodeWrite};
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::{NodeFacts, Taint};
use crate::nodes::PatchTarget;
use crate::well_known::{ANNOTATION_RELEASE_DELETION, CONDITION_MACHINE_ABSENT};

/// The reason of the condition of a Node on hold.
const CONDITION_REASON: &str = "DeletionHeld";

impl Controller {
    /// Performs an action, and reports it by event and log.
    pub(super) async fn apply(&self, action: &Action) -> Result<(), Error> {
        let node = &*action.node;
        match &action.write {
            NodeWrite::SetTaints(taints) => {
                let patch = Patch::Merge(taints_patch(node, taints));
                let now = self.nodes.patch(node, "set_taints", PatchTarget::Object, &patch).await?;
                // An error, because the taints would otherwise be written again in each pass.
                if now.taints == node.taints {
                    let why = "the change of its taints is undone at once: look for an admission policy";
                    return Err(Error::Refused(why.to_owned()));
                }
                let keys: Vec<_> = taints.iter().map(|taint| &taint.key).collect();
                tracing::info!(node = %node.name, taints = ?keys, "taints changed: instance stopped or running again");
            }
            NodeWrite::EndHold => {
                let patch = Patch::Strategic(end_hold_patch(node));
                self.nodes.patch(node, "end_hold", PatchTarget::Status, &patch).await?;
                tracing::info!(node = %node.name, "deletion hold lifted: instance found again");
            }
            NodeWrite::Hold(breaker) => {
                let note = hold_note(node, *breaker);
                let patch = Patch::Strategic(hold_patch(node, &note, Timestamp::now()));
                self.nodes.patch(node, "hold", PatchTarget::Status, &patch).await?;
                self.events.record_for_node(node, Reason::DeletionHeld, note);
            }
            NodeWrite::Delete { is_released } => self.delete(node, *is_released).await?,
        }
        Ok(())
    }

    async fn delete(&self, node: &NodeFacts, is_released: bool) -> Result<(), Error> {
        let note = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.events.record_for_node(node, Reason::DeletingNode, note);
        let deleted = self.nodes.delete(node).await;
        self.lifecycle.count_deletion(deleted.as_ref().copied());
        match &deleted {
            Ok(()) => {
                let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::info!(node = %node.name, provider_id, is_released, "node deleted: instance gone");
            }
            // No failure: another client has deleted the Node, or has changed it so that the next pass decides again.
            Err(Error::Gone | Error::Conflict) => {}
            Err(error) => {
                let note = format!("Failed deleting node {}: {error}", node.name);
                self.events.record_for_node(node, Reason::DeletingNodeFailed, note);
            }
        }
        deleted
    }
}

/// A merge patch, because it replaces the list. It has the resourceVersion, so that no taint that another client adds meanwhile
/// gets lost.
fn taints_patch(node: &NodeFacts, taints: &[Taint]) -> Value {
    let metadata = json!({"uid": node.uid, "resourceVersion": node.resource_version});
    json!({"metadata": metadata, "spec": {"taints": taints}})
}

/// A strategic merge patch, because it merges conditions by type and so keeps all others.
fn hold_patch(node: &NodeFacts, note: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": CONDITION_MACHINE_ABSENT,
        "status": "True",
        "reason": CONDITION_REASON,
        "message": note,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    });
    json!({"metadata": {"uid": node.uid}, "status": {"conditions": [condition]}})
}

/// Removes the release annotation together with the condition, which a write to the status may do. The annotation was about this
/// hold and must not release a later one.
fn end_hold_patch(node: &NodeFacts) -> Value {
    let metadata = json!({"uid": node.uid, "annotations": {ANNOTATION_RELEASE_DELETION: null}});
    let condition = json!({"$patch": "delete", "type": CONDITION_MACHINE_ABSENT});
    json!({"metadata": metadata, "status": {"conditions": [condition]}})
}

/// The message about a Node on hold, with the way to release it.
fn hold_note(node: &NodeFacts, breaker: BreakerState) -> String {
    let (NodeFacts { name, uid, .. }, BreakerState { gone, total, .. }) = (node, breaker);
    format!(
        "The cloud reports that the instance of this node is gone, but the same is reported for {gone} of {total} nodes; \
         deletion is on hold because this may be a cloud error. The hold ends when the instance is found again. To delete \
         the node anyway, run: pileus release-deletion {name}, or annotate it with {ANNOTATION_RELEASE_DELETION}={uid}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFacts {
        NodeFacts { resource_version: "7".to_owned(), ..NodeFacts::registered("a") }
    }

    #[test]
    fn taints_are_replaced_only_if_the_node_is_unchanged() {
        let taints = [Taint {
            key: "k".to_owned(),
            value: None,
            effect: "NoExecute".to_owned(),
            time_added: Some("2026-01-02T03:04:05Z".to_owned()),
        }];
        let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"});
        let metadata = json!({"uid": "uid-a", "resourceVersion": "7"});
        assert_eq!(
            taints_patch(&node(), &taints),
            json!({"metadata": metadata, "spec": {"taints": [taint]}})
        );
    }

    #[test]
    fn the_message_of_a_hold_says_why_and_how_to_release_the_node() {
        let breaker = BreakerState { is_open: true, gone: 30, total: 100 };
        let note = hold_note(&node(), breaker);
        for part in ["30 of 100", "pileus release-deletion a,", "pileus.dev/release-deletion=uid-a"] {
            assert!(note.contains(part), "{part:?} is not in {note:?}");
        }
        let now = Timestamp::constant(1_767_323_045, 999_999_999);
        let condition = json!({
            "type": "pileus.dev/MachineAbsent", "status": "True", "reason": "DeletionHeld", "message": note,
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        let patch = hold_patch(&node(), &note, now);
        assert_eq!(patch, json!({"metadata": {"uid": "uid-a"}, "status": {"conditions": [condition]}}));
    }

    #[test]
    fn lifting_a_hold_removes_the_condition_and_the_annotation() {
        let metadata = json!({"uid": "uid-a", "annotations": {"pileus.dev/release-deletion": null}});
        let condition = json!({"$patch": "delete", "type": "pileus.dev/MachineAbsent"});
        assert_eq!(
            end_hold_patch(&node()),
            json!({"metadata": metadata, "status": {"conditions": [condition]}})
        );
    }
}
