//! What a pass changes: routes at the cloud, the deletions first, and then the conditions of Nodes that tell of it.

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::Patch;
use pileus_cloud::{Error as CloudError, RouteAction, RouteChange, RouteProgress};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::{Known, Plan, Wanted, condition, conditions, route, says};
use super::{Controller, Memory, condition_key, create_key, delete_key};
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::NodeFacts;
use crate::nodes::{Part, write_each};

impl Controller {
    /// Deletes the routes that are due, if the plan is from a list made for it, and takes those that are gone out of the
    /// table. Says which ranges still have a route that is to go: all, unless the cluster is still the one of the start.
    pub(super) async fn delete(&self, memory: &mut Memory, plan: &Plan, is_fresh: bool) -> HashSet<IpNet> {
        let now = Instant::now();
        let due =
            |known: &&Known| is_fresh && known.is_listed && memory.ledger.is_due(&delete_key(known), now);
        let (mut due, mut left): (Vec<_>, Vec<_>) = plan.deletes.iter().partition(due);
        if !self.may_delete(memory, &due).await {
            left.append(&mut due);
        }
        let mut chunks = due.chunks(self.provider.largest_route_batch.max(1));
        for chunk in chunks.by_ref() {
            let changes = chunk.iter().map(|known| RouteChange {
                action: RouteAction::Delete(known.route.clone()),
                resume: memory.ledger.resume(&delete_key(known)),
            });
            let (outcomes, is_answered) = self.change("delete", changes.collect()).await;
            for (known, outcome) in chunk.iter().zip(outcomes) {
                let (name, destination) = (&known.route.name, &known.route.destination);
                if memory.came(delete_key(known), &outcome, (self.jitter)()) {
                    tracing::info!(route = %name, %destination, "route deleted: no node wants it");
                    memory.table.iter_mut().for_each(|table| table.retain(|there| there != *known));
                    continue;
                }
                left.push(known);
                if let Err(error) = outcome {
                    tracing::debug!(route = %name, %destination, "route not deleted: {error}");
                }
            }
            if !is_answered {
                break;
            }
        }
        left.extend(chunks.flatten());
        left.into_iter().filter_map(|known| known.destination).collect()
    }

    /// Whether routes may be deleted now. The Nodes that want them may be missing because their store was lost.
    async fn may_delete(&self, memory: &mut Memory, due: &[&Known]) -> bool {
        if due.is_empty() {
            return true;
        }
        let Err(error) = self.nodes.confirm_cluster(self.settings.cluster.uid.as_deref()).await else {
            return true;
        };
        let failed = |known: &&Known| {
            memory.ledger.failed(delete_key(known), Instant::now(), error.retry(), (self.jitter)())
        };
        let failures = due.iter().map(failed).max();
        if failures.is_some_and(u32::is_power_of_two) {
            tracing::warn!(count = due.len(), "no route is deleted: {error}");
        }
        false
    }

    /// Creates the routes that are due. One whose range is taken waits until the route there is gone.
    pub(super) async fn create(&self, memory: &mut Memory, plan: &Plan, taken: &HashSet<IpNet>) {
        let now = Instant::now();
        let due = |wanted: &&Wanted| {
            memory.ledger.is_due(&create_key(wanted), now) && !taken.contains(&wanted.range)
        };
        let due: Vec<_> = plan.creates.iter().filter(due).collect();
        let mut missing = plan.creates.len() + plan.contested.len();
        for chunk in due.chunks(self.provider.largest_route_batch.max(1)) {
            let changes = chunk.iter().map(|wanted| RouteChange {
                action: RouteAction::Create(route(wanted)),
                resume: memory.ledger.resume(&create_key(wanted)),
            });
            let (outcomes, is_answered) = self.change("create", changes.collect()).await;
            for (wanted, outcome) in chunk.iter().zip(outcomes) {
                let Wanted { node, range } = wanted;
                if memory.came(create_key(wanted), &outcome, (self.jitter)()) {
                    tracing::debug!(node = %node.name, %range, "route created");
                    memory.table.iter_mut().for_each(|table| table.push(Known::created(&route(wanted))));
                    missing -= 1;
                } else if let Err(error) = outcome {
                    let note = format!("Could not create route for {range}: {error}");
                    tracing::debug!(node = %node.name, %range, "route not created: {error}");
                    self.events.about_node(node, Reason::FailedToCreateRoute, note);
                }
            }
            if !is_answered {
                break;
            }
        }
        self.metrics.route.missing(missing);
    }

    /// One call, with an outcome for each change; and whether the cloud could consider them. Where it could not, the others
    /// of the pass aren't tried: against a cloud that hangs each call takes its whole time. They go first in the next pass.
    async fn change(
        &self,
        action: &'static str,
        changes: Vec<RouteChange>,
    ) -> (Vec<Result<RouteProgress, CloudError>>, bool) {
        let outcomes = self.routes.change(&self.settings.cluster, &changes).await;
        let is_answered = outcomes.is_ok();
        let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); changes.len()]);
        for outcome in &outcomes {
            self.metrics.route.changed(action, outcome);
        }
        warn_of_failures(action, &changes, &outcomes);
        (outcomes, is_answered)
    }

    /// Writes the conditions that aren't what they should be. Once it is told to stop no write begins, and those that have
    /// begun are awaited. The plan ends here, so that the facts of each Node go as soon as newer ones have come.
    pub(super) async fn tell(&self, memory: &mut Memory, plan: Plan, stop: &CancellationToken) {
        let now = Instant::now();
        let due = |node: &NodeFacts| memory.ledger.is_due(&condition_key(node), now);
        let wanted = conditions(&plan, memory.table.as_deref().unwrap_or_default());
        let wanted: Vec<_> = wanted.into_iter().filter(|(node, _)| due(node)).collect();
        drop(plan);
        let write = |(node, is_available): (Arc<NodeFacts>, bool)| async move {
            let written = self.write_condition(&node, is_available).await;
            (node, written)
        };
        let mut failed = Vec::new();
        let answered = |(node, written): (Arc<NodeFacts>, Result<(), Error>)| {
            let key = condition_key(&node);
            match written {
                Ok(()) => memory.ledger.done(&key),
                // Its news brings the next pass.
                Err(Error::Conflict | Error::Gone) => {}
                Err(error) => {
                    let (retry, jitter) = (error.retry(), (self.jitter)());
                    memory.ledger.failed(key, Instant::now(), retry, jitter);
                    failed.push((node, error));
                }
            }
        };
        let is_whole = write_each(wanted, stop, write, answered).await;
        // An API server that refuses does so for all, and they may be thousands.
        if let Some((node, error)) = failed.first() {
            let (node, failed) = (&node.name, failed.len());
            tracing::warn!(%node, failed, "conditions NetworkUnavailable not written; the first since: {error}");
        }
        if !is_whole {
            tracing::warn!("stopped before all conditions of nodes were written");
        }
    }

    async fn write_condition(&self, node: &NodeFacts, is_available: bool) -> Result<(), Error> {
        let patch = Patch::Strategic(condition_patch(node, is_available, Timestamp::now()));
        let now = self.nodes.patch(node, "set_network_unavailable", Part::Status, &patch).await?;
        // Else it would be written again in each pass.
        if says(&now, is_available) {
            Ok(())
        } else {
            Err(Error::Refused("it is changed back at once: look for an admission policy".to_owned()))
        }
    }
}

/// One line for a call: where a cloud is down, each of thousands of routes fails, and again with each try.
fn warn_of_failures(
    action: &'static str,
    changes: &[RouteChange],
    outcomes: &[Result<RouteProgress, CloudError>],
) {
    let failed = changes.iter().zip(outcomes).filter_map(|(change, outcome)| {
        let error = outcome.as_ref().err()?;
        Some((change, error))
    });
    let failed: Vec<_> = failed.collect();
    if let Some((change, error)) = failed.first() {
        let (count, of) = (failed.len(), changes.len());
        let range = match &change.action {
            RouteAction::Delete(route) => route.destination.clone(),
            RouteAction::Create(route) => route.destination.to_string(),
        };
        tracing::warn!(action, failed = count, of, range, "routes not changed; the first since: {error}");
    }
}

/// A strategic merge patch, which keeps the conditions of others: they are merged by type. A transition is one of the
/// status; its time stays where only the reason changes.
pub(super) fn condition_patch(node: &NodeFacts, is_available: bool, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (status, reason) = condition(is_available);
    let message = if is_available {
        "The cloud has a route for each of the node's ranges of Pod addresses"
    } else {
        "The cloud lacks a route for the node's range of Pod addresses"
    };
    let mut condition = json!({
        "type": "NetworkUnavailable",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
    });
    let is_transition = node.network_unavailable.as_ref().is_none_or(|before| before.status != status);
    if is_transition && let Some(condition) = condition.as_object_mut() {
        condition.insert("lastTransitionTime".to_owned(), json!(now));
    }
    json!({"metadata": {"uid": node.uid}, "status": {"conditions": [condition]}})
}
