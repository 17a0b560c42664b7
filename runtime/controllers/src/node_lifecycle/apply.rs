//! Writes of this controller: one request an action.

use jiff::Timestamp;
use kube::api::Patch;
use serde_json::{Value, json};

use super::Controller;
use super::breaker::Verdict;
use super::plan::{Action, Write};
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::{NodeFacts, Taint};
use crate::nodes::Part;
use crate::well_known::{ANNOTATION_RELEASE_DELETION, CONDITION_MACHINE_ABSENT};

/// Why the condition is true.
const CONDITION_REASON: &str = "DeletionHeld";

impl Controller {
    /// Carries an action out and tells whoever should know.
    pub(super) async fn apply(&self, action: &Action) -> Result<(), Error> {
        let node = &*action.node;
        match &action.write {
            Write::SetTaints(taints) => {
                let patch = Patch::Merge(taints_patch(node, taints));
                let now = self.nodes.patch(node, "set_taints", Part::Whole, &patch).await?;
                // Else it would be written again in each pass.
                if now.taints == node.taints {
                    let why = "its taints are changed back at once: look for an admission policy";
                    return Err(Error::Refused(why.to_owned()));
                }
                let keys: Vec<_> = taints.iter().map(|taint| &taint.key).collect();
                tracing::info!(node = %node.name, taints = ?keys, "taints changed, as its machine was stopped or runs again");
            }
            Write::EndHold => {
                let patch = Patch::Strategic(end_hold_patch(node));
                self.nodes.patch(node, "end_hold", Part::Status, &patch).await?;
                tracing::info!(node = %node.name, "no longer held: its machine is there after all");
            }
            Write::Hold(verdict) => {
                let note = hold_note(node, *verdict);
                let patch = Patch::Strategic(hold_patch(node, &note, Timestamp::now()));
                self.nodes.patch(node, "hold", Part::Status, &patch).await?;
                self.events.about_node(node, Reason::DeletionHeld, note);
            }
            Write::Delete { is_released } => self.delete(node, *is_released).await?,
        }
        Ok(())
    }

    async fn delete(&self, node: &NodeFacts, is_released: bool) -> Result<(), Error> {
        let note = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.events.about_node(node, Reason::DeletingNode, note);
        let deleted = self.nodes.delete(node).await;
        self.lifecycle.deleted(deleted.as_ref().copied());
        match &deleted {
            Ok(()) => {
                let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::info!(node = %node.name, provider_id, is_released, "node deleted: its machine is gone");
            }
            // Somebody else was faster, or has changed it, so that it is looked at again: nothing has failed.
            Err(Error::Gone | Error::Conflict) => {}
            Err(error) => {
                let note = format!("Failed deleting node {}: {error}", node.name);
                self.events.about_node(node, Reason::DeletingNodeFailed, note);
            }
        }
        deleted
    }
}

/// A merge patch, which replaces the list; with the resourceVersion, as it holds the taints of others, of which none that
/// is added meanwhile must get lost.
fn taints_patch(node: &NodeFacts, taints: &[Taint]) -> Value {
    let metadata = json!({"uid": node.uid, "resourceVersion": node.resource_version});
    json!({"metadata": metadata, "spec": {"taints": taints}})
}

/// A strategic merge patch, which keeps the conditions of others: they are merged by type.
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

/// Takes the annotation away with the condition, which a write to the status may do: it was about this hold, and must not
/// release a later one.
fn end_hold_patch(node: &NodeFacts) -> Value {
    let metadata = json!({"uid": node.uid, "annotations": {ANNOTATION_RELEASE_DELETION: null}});
    let condition = json!({"$patch": "delete", "type": CONDITION_MACHINE_ABSENT});
    json!({"metadata": metadata, "status": {"conditions": [condition]}})
}

/// What is told of a Node that is held, and how to let it go.
fn hold_note(node: &NodeFacts, verdict: Verdict) -> String {
    let (NodeFacts { name, uid, .. }, Verdict { gone, of, .. }) = (node, verdict);
    format!(
        "The cloud says that the machine of this node is gone, but so it says of {gone} of {of} nodes, which may be \
         an error. The node is kept until its machine is found again, or until somebody lets it go: \
         pileus release-deletion {name}, or annotate it with {ANNOTATION_RELEASE_DELETION}={uid}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFacts {
        NodeFacts { resource_version: "7".to_owned(), ..NodeFacts::registered("a") }
    }

    #[test]
    fn taints_are_replaced_only_where_the_node_has_not_changed() {
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
    fn a_hold_says_what_happened_and_how_to_end_it() {
        let verdict = Verdict { is_open: true, gone: 30, of: 100 };
        let note = hold_note(&node(), verdict);
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
    fn nothing_of_a_hold_is_left_when_it_ends() {
        let metadata = json!({"uid": "uid-a", "annotations": {"pileus.dev/release-deletion": null}});
        let condition = json!({"$patch": "delete", "type": "pileus.dev/MachineAbsent"});
        assert_eq!(
            end_hold_patch(&node()),
            json!({"metadata": metadata, "status": {"conditions": [condition]}})
        );
    }
}
