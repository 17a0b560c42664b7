//! Reports ranges whose routes can't be created, and routes of other clusters.

use pileus_cloud::Retry;
use tokio::time::Instant;

use super::Controller;
use super::memory::{Memory, conflict_key};
use super::plan::{KnownRoute, Plan, is_in_cluster};
use crate::events::Reason;

impl Controller {
    /// Records an event for each Node whose range another Node or cluster has.
    pub(super) fn report_conflicts(&self, memory: &mut Memory, plan: &Plan) {
        for (wanted, holder) in &plan.conflicts {
            let (key, now) = (conflict_key(wanted), Instant::now());
            if memory.pending.is_due(&key, now) {
                let note = format!("Could not create route for {}: {holder}", wanted.range);
                self.events.record_for_node(&wanted.node, Reason::FailedToCreateRoute, note);
                // An operator has to change one of them.
                memory.pending.on_failure(key, now, Retry::Slowly, (self.jitter)());
            }
        }
    }

    /// Logs once which other clusters have routes in the cluster's CIDRs.
    pub(super) fn report_other_clusters(&self, memory: &mut Memory, routes: &[KnownRoute]) {
        let (ours, ranges) = (self.settings.cluster.uid.as_deref(), &self.settings.cluster_ranges);
        let is_within =
            |known: &&KnownRoute| known.destination.is_some_and(|range| is_in_cluster(ranges, range));
        for known in routes.iter().filter(is_within) {
            let Some(cluster) = known.other_cluster(ours) else { continue };
            if memory.other_clusters.insert(cluster.to_owned()) {
                tracing::warn!(
                    cluster, first = %known.route.name, destination = %known.route.destination,
                    "routes of another cluster in this cluster's CIDRs left alone: give each cluster its own --cluster-cidr, or \
                     delete them in the cloud if that cluster is gone"
                );
            }
        }
    }
}
