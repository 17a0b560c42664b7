//! Makes the changes of a pass: routes at the cloud, deletions first, and then the conditions of Nodes.

use std::collections::HashSet;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use kube::api::Patch;
use pileus_cloud::{Error as CloudError, RouteAction, RouteChange, RouteProgress};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Controller;
use super::memory::{Memory, condition_key, create_key, delete_key};
use super::plan::{
    KnownRoute, Plan, WantedRoute, condition, conditions, desired_route, has_condition, route_digest,
};
use crate::answers::per_item;
use crate::error::Error;
use crate::events::Reason;
use crate::facts::node::NodeFacts;
use crate::nodes::{PatchTarget, write_each};

impl Controller {
    /// Deletes the routes that are due, if the plan is from a new list and the cluster is still that of the start. Returns the
    /// ranges that are still occupied by a route to delete.
    pub(super) async fn delete(&self, memory: &mut Memory, plan: &Plan, is_fresh: bool) -> HashSet<IpNet> {
        let now = Instant::now();
        let due = |known: &&KnownRoute| {
            is_fresh && known.is_listed && memory.pending.is_due(&delete_key(known), now)
        };
        let (mut due, mut left): (Vec<_>, Vec<_>) = plan.deletes.iter().partition(due);
        if !self.may_delete(memory, &due).await {
            left.append(&mut due);
        }
        let mut chunks = due.chunks(self.provider.largest_route_batch.max(1));
        for chunk in chunks.by_ref() {
            let changes = chunk.iter().map(|known| RouteChange {
                action: RouteAction::Delete(known.route.clone()),
                resume: memory.pending.resume(&delete_key(known)),
            });
            let (outcomes, is_answered) = self.change("delete", changes.collect()).await;
            for (known, outcome) in chunk.iter().zip(outcomes) {
                let (name, destination) = (&known.route.name, &known.route.destination);
                if memory.on_outcome(delete_key(known), &outcome, (self.jitter)()) {
                    tracing::info!(route = %name, %destination, "route deleted: no node wants it");
                    memory.table.iter_mut().for_each(|table| table.retain(|there| there != *known));
                    continue;
                }
                left.push(known);
                if let Err(error) = outcome {
                    tracing::debug!(route = %name, %destination, %error, "route not deleted");
                }
            }
            if !is_answered {
                break;
            }
        }
        left.extend(chunks.flatten());
        left.into_iter().filter_map(|known| known.destination).collect()
    }

    /// Whether routes may be deleted now. They may not if the cluster is another one, as after the loss of its store: then Nodes
    /// are missing that still need their routes.
    async fn may_delete(&self, memory: &mut Memory, due: &[&KnownRoute]) -> bool {
        if due.is_empty() {
            return true;
        }
        let Err(error) = self.nodes.confirm_cluster(self.settings.cluster.uid.as_deref()).await else {
            return true;
        };
        let failed = |known: &&KnownRoute| {
            memory.pending.on_failure(delete_key(known), Instant::now(), error.retry(), (self.jitter)())
        };
        let failures = due.iter().map(failed).max();
        if failures.is_some_and(u32::is_power_of_two) {
            tracing::warn!(routes = due.len(), %error, "routes not deleted: the cluster could not be confirmed");
        }
        false
    }

    /// Creates the routes that are due. A route whose range is occupied waits until the present route is deleted.
    pub(super) async fn create(&self, memory: &mut Memory, plan: &Plan, occupied: &HashSet<IpNet>) {
        let now = Instant::now();
        let due = |wanted: &&WantedRoute| {
            memory.pending.is_due(&create_key(wanted), now) && !occupied.contains(&wanted.range)
        };
        let due: Vec<_> = plan.creates.iter().filter(due).collect();
        let mut missing = plan.creates.len() + plan.conflicts.len();
        let labels = &self.provider.node_labels;
        for chunk in due.chunks(self.provider.largest_route_batch.max(1)) {
            let changes = chunk.iter().map(|wanted| RouteChange {
                action: RouteAction::Create(desired_route(wanted, labels)),
                resume: memory.pending.resume(&create_key(wanted)),
            });
            let (outcomes, is_answered) = self.change("create", changes.collect()).await;
            for (wanted, outcome) in chunk.iter().zip(outcomes) {
                let route = route_digest(&wanted.node, labels);
                let period = self.jittered(self.settings.audit_period);
                memory.elsewhere.on_outcome(wanted, route, &outcome, Instant::now(), period);
                missing -= usize::from(memory.on_outcome(create_key(wanted), &outcome, (self.jitter)()));
                self.on_created(memory, wanted, outcome);
            }
            if !is_answered {
                break;
            }
        }
        self.metrics.route.set_missing(missing);
    }

    /// Adds a route that was created to the table, and reports one that failed.
    fn on_created(
        &self,
        memory: &mut Memory,
        wanted: &WantedRoute,
        outcome: Result<RouteProgress, CloudError>,
    ) {
        let WantedRoute { node, range } = wanted;
        match outcome {
            Ok(RouteProgress::Done) => {
                tracing::debug!(node = %node.name, %range, "route created");
                let created = KnownRoute::created(&desired_route(wanted, &self.provider.node_labels));
                let is_same =
                    |there: &KnownRoute| there.destination == created.destination && there.leads_to(node);
                if let Some(table) = memory.table.as_mut().filter(|table| !table.iter().any(is_same)) {
                    table.push(created);
                }
            }
            Ok(RouteProgress::Elsewhere) => {
                tracing::debug!(node = %node.name, %range, "no route needed: the range reaches its node without one");
            }
            Ok(RouteProgress::InProgress { .. }) => {}
            Err(error) => {
                let note = format!("Could not create route for {range}: {error}");
                tracing::debug!(node = %node.name, %range, %error, "route not created");
                self.events.record_for_node(node, Reason::FailedToCreateRoute, note);
            }
        }
    }

    /// Makes one call. Returns an outcome for each change, and whether the call succeeded as a whole. After a failed call the pass
    /// makes no further calls, because with a cloud that hangs each call takes its whole timeout. Their changes come first in
    /// the next pass.
    async fn change(
        &self,
        action: &'static str,
        changes: Vec<RouteChange>,
    ) -> (Vec<Result<RouteProgress, CloudError>>, bool) {
        let outcomes = self.routes.change(&self.settings.cluster, &changes).await;
        let is_answered = outcomes.is_ok();
        let outcomes = per_item(outcomes, changes.len());
        for outcome in &outcomes {
            self.metrics.route.count_change(action, outcome);
        }
        log_failures(action, &changes, &outcomes);
        (outcomes, is_answered)
    }

    /// Writes the conditions that differ from the table. After `stop` no write begins, and those in flight are awaited. The plan is
    /// dropped here, so that the facts of a Node are freed as soon as newer ones arrive.
    pub(super) async fn write_conditions(&self, memory: &mut Memory, plan: Plan, stop: &CancellationToken) {
        let now = Instant::now();
        let due = |node: &NodeFacts, is_available| {
            memory.pending.is_due(&condition_key(node), now) || memory.truces.is_news(node, is_available)
        };
        let wanted = conditions(
            &plan,
            memory.table.as_deref().unwrap_or_default(),
            &memory.elsewhere,
            &memory.pending,
        );
        let wanted: Vec<_> =
            wanted.into_iter().filter(|(node, is_available)| due(node, *is_available)).collect();
        drop(plan);
        let wanted = self.without_truces(memory, wanted, now);
        let write = |(node, is_available): (Arc<NodeFacts>, bool)| async move {
            let written = self.write_condition(&node, is_available).await;
            (node, is_available, written)
        };
        let mut failed = Vec::new();
        let on_result = |(node, is_available, written): (Arc<NodeFacts>, bool, Result<(), Error>)| {
            let key = condition_key(&node);
            match written {
                Ok(()) => {
                    memory.pending.on_done(&key);
                    memory.truces.on_written(&node, is_available, Instant::now());
                }
                // The change of the Node causes the next pass.
                Err(Error::Gone) => {}
                Err(error) => {
                    let (retry, jitter) = (error.retry(), (self.jitter)());
                    memory.pending.on_failure(key, Instant::now(), retry, jitter);
                    failed.push((node, error));
                }
            }
        };
        let is_whole = write_each(wanted, stop, write, on_result).await;
        // One log line, because an API server that refuses may do so for thousands of Nodes.
        if let Some((node, error)) = failed.first() {
            let (node, failed) = (&node.name, failed.len());
            tracing::warn!(failed, first = %node, %error, "conditions NetworkUnavailable not written");
        }
        if !is_whole {
            tracing::warn!("stopped before all node conditions were written");
        }
    }

    /// The conditions to write now: without those that another client keeps replacing.
    fn without_truces(
        &self,
        memory: &mut Memory,
        mut wanted: Vec<(Arc<NodeFacts>, bool)>,
        now: Instant,
    ) -> Vec<(Arc<NodeFacts>, bool)> {
        wanted.retain(|(node, is_available)| {
            let may_write = memory.truces.may_write(node, *is_available, now);
            if !may_write {
                if let Some(at) = memory.truces.next_answer(node).filter(|at| *at > now) {
                    memory.pending.on_progress(condition_key(node), now, at - now, None);
                }
                if memory.truces.take_report(node) {
                    let reason = node.network_unavailable.as_ref().map_or("", |theirs| &theirs.reason);
                    let note = format!(
                        "Another client replaces the condition NetworkUnavailable (with reason {reason:?}); it is written \
                         again ever less often: turn this off in the network plugin, or start Pileus without --cluster-cidr"
                    );
                    self.events.record_for_node(node, Reason::NetworkConditionContested, note);
                }
            }
            may_write
        });
        wanted
    }

    async fn write_condition(&self, node: &NodeFacts, is_available: bool) -> Result<(), Error> {
        let patch =
            |node: &NodeFacts| Patch::Strategic(condition_patch(node, is_available, Timestamp::now()));
        let write = async |node: &NodeFacts| {
            self.nodes.patch(node, "set_network_unavailable", PatchTarget::Status, &patch(node)).await
        };
        let now = match write(node).await {
            // The kubelet writes the status, too. No change of the Node that matters here may follow.
            Err(Error::Conflict) => write(&*self.nodes.read(node).await?).await?,
            written => written?,
        };
        // An error, because the condition would otherwise be written again in each pass.
        if has_condition(&now, is_available) {
            Ok(())
        } else {
            Err(Error::Refused("the condition is undone at once: look for an admission policy".to_owned()))
        }
    }
}

/// Logs one line for a call: where a cloud is down, thousands of routes may fail with each try.
fn log_failures(
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
        tracing::warn!(action, failed = count, of, first = range, %error, "routes not changed");
    }
}

/// A strategic merge patch, because it merges conditions by type and so keeps all others. The transition time changes only with
/// the status, not with the reason.
pub(super) fn condition_patch(node: &NodeFacts, is_available: bool, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (status, reason) = condition(is_available);
    let message = if is_available {
        "The cloud has a route for each Pod CIDR of this node"
    } else {
        "No cloud route for this node's Pod CIDR"
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
