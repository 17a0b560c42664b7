//! What the route controller remembers between passes, and how it learns from changes of Nodes and from the cloud's outcomes.
//! All of it can be rebuilt from a list and the Nodes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ipnet::IpNet;
use pileus_cloud::{Error, ErrorKind, RouteProgress};
use tokio::time::Instant;

use super::elsewhere::Elsewhere;
use super::pending::{ChangeKey, PendingChanges};
use super::plan::{self, KnownRoute, Plan, WantedRoute};
use super::truce::Truces;
use crate::facts::node::NodeFacts;
use crate::nodes::Change;

/// What is kept between passes. All of it can be rebuilt from a list and the Nodes.
pub(super) struct Memory {
    /// The cloud's table. `None` before the first list.
    pub(super) table: Option<Vec<KnownRoute>>,
    /// When the next list is due.
    pub(super) next_list: Instant,
    pub(super) list_failures: u32,
    /// When the last pass began.
    pub(super) last_pass: Instant,
    pub(super) pending: PendingChanges,
    pub(super) elsewhere: Elsewhere,
    /// The digest of each Node when it was last seen, by its name.
    pub(super) digests: BTreeMap<String, u64>,
    /// The UIDs of the other clusters whose routes have been logged.
    pub(super) other_clusters: BTreeSet<String>,
    pub(super) truces: Truces,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            table: None,
            next_list: Instant::now(),
            list_failures: 0,
            last_pass: Instant::now(),
            pending: PendingChanges::default(),
            elsewhere: Elsewhere::default(),
            digests: BTreeMap::new(),
            other_clusters: BTreeSet::new(),
            truces: Truces::default(),
        }
    }
}

impl Memory {
    /// Applies changes of Nodes. Returns whether they can change routes or conditions.
    pub(super) fn observe(&mut self, changes: Vec<Change>, label_keys: &[String]) -> bool {
        let mut matters = false;
        for change in changes {
            match change {
                Change::Present(node) => {
                    let digest = plan::digest(&node, label_keys);
                    matters |= self.digests.insert(node.name.clone(), digest) != Some(digest);
                }
                Change::Gone(name) => matters |= self.digests.remove(&name).is_some(),
            }
        }
        matters
    }

    /// When the next pass is due without a change of a Node. `None` before the first pass, which waits for the list of Nodes.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let has_passed = self.table.is_some() || self.list_failures > 0;
        let pending = self.pending.next_after(self.last_pass);
        let audit = self.elsewhere.next_after(self.last_pass);
        let wakes = pending.into_iter().chain(audit).chain([self.next_list]);
        wakes.min().filter(|_| has_passed)
    }

    /// Removes pending changes that the plan no longer wants.
    pub(super) fn forget_unwanted(&mut self, plan: &Plan) {
        let deletes = plan.deletes.iter().map(delete_key);
        let creates = plan.creates.iter().map(create_key);
        let conflicts = plan.conflicts.iter().map(|(wanted, _)| conflict_key(wanted));
        let wanted: BTreeSet<_> = deletes.chain(creates).chain(conflicts).collect();
        let nodes: HashSet<&str> = plan.networks.iter().map(|(node, _)| &*node.uid).collect();
        self.truces.retain(|uid| nodes.contains(uid));
        let needed: HashSet<(&str, IpNet)> = plan
            .networks
            .iter()
            .flat_map(|(node, ranges)| ranges.iter().map(|range| (&*node.uid, *range)))
            .collect();
        self.elsewhere.retain(|uid, range| needed.contains(&(uid, range)));
        self.pending.retain(|key| match key {
            ChangeKey::Condition(uid) => nodes.contains(&**uid),
            ChangeKey::Delete(_) | ChangeKey::Create(..) | ChangeKey::Conflict(..) => wanted.contains(key),
        });
    }

    /// Applies the outcome of a change at the cloud. Returns whether it is done.
    pub(super) fn on_outcome(
        &mut self,
        key: ChangeKey,
        outcome: &Result<RouteProgress, Error>,
        jitter: f64,
    ) -> bool {
        let now = Instant::now();
        match outcome {
            Ok(RouteProgress::Done | RouteProgress::Elsewhere) => {
                self.pending.on_done(&key);
                true
            }
            Ok(RouteProgress::InProgress { after, resume }) => {
                self.pending.on_progress(key, now, *after, resume.clone());
                false
            }
            Err(error) => {
                let failures = self.pending.on_failure(key, now, error.kind.retry(), jitter);
                // After a conflict the known table is wrong, so it is listed again; less often where that doesn't help.
                if matches!(error.kind, ErrorKind::Conflict(_)) && failures.is_power_of_two() {
                    self.next_list = now;
                }
                false
            }
        }
    }
}

pub(super) fn delete_key(known: &KnownRoute) -> ChangeKey {
    ChangeKey::Delete(known.route.name.clone())
}

pub(super) fn create_key(wanted: &WantedRoute) -> ChangeKey {
    let WantedRoute { node, range } = wanted;
    ChangeKey::Create(*range, node.uid.clone(), node.provider_id.clone())
}

pub(super) fn conflict_key(wanted: &WantedRoute) -> ChangeKey {
    ChangeKey::Conflict(wanted.range, wanted.node.uid.clone())
}

pub(super) fn condition_key(node: &NodeFacts) -> ChangeKey {
    ChangeKey::Condition(node.uid.clone())
}
