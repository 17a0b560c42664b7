//! Reports the results of the work on Nodes to users, by event and log.

use std::time::Duration;

use jiff::Timestamp;
use pileus_cloud::Retry;

use super::Controller;
use super::decide::SyncResult;
use super::missing::Cause;
use crate::events::Reason;
use crate::facts::node::NodeFacts;

/// How many times in a row the cloud may ask to come back later, or routes may be missing, before an event reports it. That
/// is normal while an instance starts.
const PENDING_LIMIT: u32 = 8;

impl Controller {
    /// Reports the result of the work on a Node, which was the same `in_a_row` times.
    pub(super) fn report(&self, node: &NodeFacts, result: &SyncResult, in_a_row: u32) {
        match result {
            SyncResult::Initialized => self.report_initialized(node),
            SyncResult::Released { is_new: true } => self.report_released(node),
            SyncResult::Failed(retry, why) => self.report_failure(node, in_a_row, *retry, why),
            SyncResult::Pending(after) if in_a_row >= PENDING_LIMIT => {
                let why = "the cloud keeps asking to retry later";
                self.report_failure(node, in_a_row, Retry::After(*after), why);
            }
            // The route controller reports routes that can't be created. It reports nothing where there are none to create.
            SyncResult::AwaitsRoutes if in_a_row >= PENDING_LIMIT => {
                let why = match node.pod_cidrs[..] {
                    [] => "it has no spec.podCIDRs, so there are no routes to create",
                    _ => "the cloud has no route to its Pods yet",
                };
                self.report_failure(node, in_a_row, Retry::WithBackoff, why);
            }
            SyncResult::Unchanged
            | SyncResult::Changed
            | SyncResult::Released { is_new: false }
            | SyncResult::Pending(_)
            | SyncResult::AwaitsRoutes => {}
        }
    }

    /// Reports why a Node has no instance, or no provider.
    pub(super) fn report_missing(&self, node: &NodeFacts, cause: Cause) {
        let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(node = %node.name, provider_id, cause = cause.as_str(), "node has no instance");
        self.events.record_for_node(node, cause.reason(), cause.note(node, &self.provider));
    }

    /// Reports that the work on a Node has failed, for the `failures`th time in a row.
    fn report_failure(&self, node: &NodeFacts, failures: u32, retry: Retry, why: &str) {
        // Reports the 1st, 2nd, 4th, 8th … failure: users see it soon, and neither the log nor the API server is flooded.
        if !failures.is_power_of_two() {
            return;
        }
        if node.is_uninitialized() {
            tracing::warn!(node = %node.name, failures, reason = why, "node not initialized");
            let note = format!("The node is not initialized yet: {why}");
            self.events.record_for_node(node, Reason::CloudInitializationFailed, note);
        } else if matches!(retry, Retry::Slowly | Retry::Uncertain) {
            tracing::warn!(node = %node.name, failures, reason = why, "node not refreshed");
            let note = format!("The node is not updated from its cloud instance: {why}");
            self.events.record_for_node(node, Reason::CloudRefreshFailed, note);
        } else {
            // A cloud that fails for a while says nothing about an initialized Node.
            tracing::debug!(node = %node.name, failures, reason = why, "node not refreshed");
        }
    }

    /// Reports that a Node whose instance the provider doesn't manage has lost its uninitialized taint.
    fn report_released(&self, node: &NodeFacts) {
        tracing::info!(node = %node.name, "node released: the provider does not manage its instance");
        let name = &self.provider.name;
        let note =
            format!("Removed the uninitialized taint: provider {name} does not manage this node's instance");
        self.events.record_for_node(node, Reason::Synced, note);
    }

    /// Reports that a Node has lost its uninitialized taint.
    fn report_initialized(&self, node: &NodeFacts) {
        let age = Timestamp::now().duration_since(node.created_at);
        let age = Duration::try_from(age).unwrap_or_default();
        self.metrics.observe_initialization(age);
        let provider_id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::info!(node = %node.name, provider_id, age_seconds = age.as_secs(), "node initialized");
        self.events.record_for_node(node, Reason::Synced, "Node synced successfully".to_owned());
    }
}
