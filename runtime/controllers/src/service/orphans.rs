//! What the cloud has for Services that are gone: what nobody else can clean up.
//!
//! Deleted is only what bears our cluster's UID, and a Service's UID that a read of the API server lacks which began after
//! the cloud had answered. Whatever can't be told so certainly is counted and stays.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pileus_cloud::{
    Error as CloudError, OwnedLoadBalancer, Retry, ServiceAction, ServiceChange, ServiceProgress,
};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::work::{Key, Listing, ListingReport};
use crate::schedule::Delays;

/// What is known from lists of what the cloud has.
#[derive(Debug)]
pub(super) struct Orphans {
    cluster_uid: Option<String>,
    /// By the cloud's name.
    found: BTreeMap<String, (OwnedLoadBalancer, Attempt)>,
    unattributed: BTreeSet<String>,
    /// The UIDs of Services of which the cloud has something, and of which nothing is known here.
    expected: HashSet<String>,
    /// The UIDs of Services whose deletion was confirmed since the list that is under way began: it may show them still.
    deleted: HashSet<String>,
    list_due: Option<Instant>,
    failures: u32,
    /// Whether there has been a list.
    pub(super) has_listed: bool,
}

/// What a list changes.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Orphans that are to be removed from then on, and those that are none any more.
    pub(super) orphans: Vec<(Key, Option<Instant>)>,
    /// Services that are known and of which the cloud has something.
    pub(super) known: Vec<String>,
}

impl Orphans {
    /// None is known, and the first list is due then.
    pub(super) fn new(cluster_uid: Option<String>, list_due: Instant) -> Self {
        Self {
            cluster_uid,
            found: BTreeMap::new(),
            unattributed: BTreeSet::new(),
            expected: HashSet::new(),
            deleted: HashSet::new(),
            list_due: Some(list_due),
            failures: 0,
            has_listed: false,
        }
    }

    /// The next list is due then.
    pub(super) fn list_at(&mut self, at: Instant) {
        self.list_due = Some(at);
    }

    /// When the next list is due, unless one is under way.
    pub(super) fn list_due(&self) -> Option<Instant> {
        self.list_due
    }

    /// Whether a list is due.
    pub(super) fn is_list_due(&self, now: Instant) -> bool {
        self.list_due.is_some_and(|due| due <= now)
    }

    /// A list begins.
    pub(super) fn listing_begins(&mut self) {
        self.list_due = None;
        self.deleted.clear();
    }

    /// A Service's deletion is confirmed.
    pub(super) fn deleted(&mut self, uid: &str) {
        self.deleted.insert(uid.to_owned());
        self.expected.remove(uid);
    }

    /// Whether the cloud has something of a Service that nothing was known of.
    pub(super) fn expects(&self, uid: &str) -> bool {
        self.expected.contains(uid)
    }

    /// The list failed, and is due again after a delay that grows.
    pub(super) fn not_listed(&mut self, retry: Retry, now: Instant, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        self.list_due = Some(now + Delays::default().after(retry, self.failures, jitter));
    }

    /// The list is there.
    pub(super) fn listed(
        &mut self,
        listing: &Listing,
        is_known: impl Fn(&str) -> bool,
        now: Instant,
    ) -> (ListingReport, Changed) {
        (self.failures, self.expected, self.has_listed) = (0, HashSet::new(), true);
        let (mut report, mut changed) = (ListingReport::default(), Changed::default());
        let mut found = BTreeMap::new();
        let mut unattributed = BTreeSet::new();
        for owned in &listing.owned {
            let uid = owned.service_uid.as_deref().filter(|_| self.is_ours(owned));
            match uid.map(|uid| (uid, listing.present.get(uid))) {
                None => drop(unattributed.insert(owned.name.clone())),
                Some((uid, _)) if self.deleted.contains(uid) => {}
                Some((uid, _)) if is_known(uid) => changed.known.push(uid.to_owned()),
                Some((uid, Some(name))) => {
                    self.expected.insert(uid.to_owned());
                    report.unknown.push(name.clone());
                }
                Some((_, None)) => drop(found.insert(owned.name.clone(), owned)),
            }
        }
        report.unknown.sort_unstable();
        report.unknown.dedup();
        report.orphans = found.len();
        report.new_unattributed = unattributed.difference(&self.unattributed).cloned().collect();
        report.unattributed = unattributed.len();
        self.unattributed = unattributed;
        self.found.retain(|name, (_, turn)| {
            let stays = turn.is_busy() || found.contains_key(name);
            if !stays {
                changed.orphans.push((Key::Orphan(name.clone()), None));
            }
            stays
        });
        for (name, owned) in found {
            let known = self.found.entry(name.clone()).or_insert_with(|| {
                changed.orphans.push((Key::Orphan(name), Some(now)));
                (owned.clone(), Attempt::new(now))
            });
            // What a name stands for may be another thing by now, of another Service.
            known.0.clone_from(owned);
        }
        (report, changed)
    }

    fn is_ours(&self, owned: &OwnedLoadBalancer) -> bool {
        self.cluster_uid.is_some() && owned.cluster_uid == self.cluster_uid
    }

    /// The removal of an orphan begins.
    pub(super) fn begins(&mut self, name: &str) -> Option<ServiceChange> {
        let (owned, turn) = self.found.get_mut(name)?;
        turn.begins();
        Some(ServiceChange { action: ServiceAction::RemoveOrphan(owned.clone()), resume: turn.resume(None) })
    }

    /// What became of the removal: when to go on, and whether that only asks after it; none where it is gone.
    pub(super) fn came(
        &mut self,
        name: &str,
        outcome: &Result<ServiceProgress, CloudError>,
        now: Instant,
        jitter: f64,
    ) -> Option<(Instant, bool)> {
        let (_, turn) = self.found.get_mut(name)?;
        turn.ends();
        match outcome {
            Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere) => {
                self.found.remove(name);
                return None;
            }
            Ok(ServiceProgress::InProgress { after, resume }) => {
                turn.goes_on(*after, resume.clone(), None, now);
            }
            Err(error) => drop(turn.failed(error, now, jitter)),
        }
        Some((turn.ready, turn.is_under))
    }
}
