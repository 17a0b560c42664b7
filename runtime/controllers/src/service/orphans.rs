//! Load balancers whose Services are gone, and which only the cloud's list names.
//!
//! An orphan is removed only if it has our cluster's UID, and a Service UID that a read of the API server lacks which began
//! after the cloud's answer. A beginning of a UID counts as long as no Service of that read begins so. What is less certain
//! is counted and stays.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pileus_cloud::{
    Error as CloudError, OwnedLoadBalancer, Retry, ServiceAction, ServiceChange, ServiceProgress, is_uid_of,
    may_be_uid,
};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::work::{Key, Listing, ListingReport};
use crate::schedule::Backoff;
use crate::services::UidIndex;

/// What the cloud's lists have shown.
#[derive(Debug)]
pub(super) struct Orphans {
    cluster_uid: Option<String>,
    /// By the cloud's name.
    found: BTreeMap<String, (OwnedLoadBalancer, Attempt)>,
    unattributed: BTreeSet<String>,
    /// The UIDs of Services that the list names and this process doesn't know.
    expected: HashSet<String>,
    /// The UIDs of Services whose deletion was confirmed since the list in flight began. It may still show them.
    deleted: HashSet<String>,
    list_due: Option<Instant>,
    failures: u32,
    /// Whether there has been a list.
    pub(super) has_listed: bool,
}

/// Whether the cloud says that an object was created for the cluster with this UID.
pub(super) fn is_of_cluster(owned: &OwnedLoadBalancer, uid: Option<&str>) -> bool {
    owned.cluster_uid.as_deref().zip(uid).is_some_and(|(mark, uid)| is_uid_of(mark, uid))
}

/// What follows from a list.
#[derive(Debug, Default)]
pub(super) struct ListChanges {
    /// Orphans, and from when they are to be removed; none where an object isn't an orphan any more.
    pub(super) orphans: Vec<(Key, Option<Instant>)>,
    /// The UIDs of known Services for which the cloud has something.
    pub(super) known: Vec<String>,
}

impl Orphans {
    /// No orphans are known yet; the first list is due at this time.
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

    /// Makes the next list due at this time.
    pub(super) fn schedule_list(&mut self, at: Instant) {
        self.list_due = Some(at);
    }

    /// When the next list is due; none while one is in flight.
    pub(super) fn list_due(&self) -> Option<Instant> {
        self.list_due
    }

    /// Whether a list is due.
    pub(super) fn is_list_due(&self, now: Instant) -> bool {
        self.list_due.is_some_and(|due| due <= now)
    }

    /// A list begins.
    pub(super) fn on_list_started(&mut self) {
        self.list_due = None;
        self.deleted.clear();
    }

    /// The deletion of a Service's load balancer is confirmed.
    pub(super) fn on_service_deleted(&mut self, uid: &str) {
        self.deleted.insert(uid.to_owned());
        self.expected.remove(uid);
    }

    /// Whether the last list named a Service that this process didn't know.
    pub(super) fn is_expected(&self, uid: &str) -> bool {
        self.expected.contains(uid)
    }

    /// The list has failed, and is backed off.
    pub(super) fn on_list_failed(&mut self, retry: Retry, now: Instant, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        self.list_due = Some(now + Backoff::default().delay(retry, self.failures, jitter));
    }

    /// The list has succeeded. `known` are the UIDs of the Services that this process knows.
    pub(super) fn on_listed(
        &mut self,
        listing: &Listing,
        known: &HashSet<&str>,
        now: Instant,
    ) -> (ListingReport, ListChanges) {
        (self.failures, self.has_listed) = (0, true);
        let (mut report, mut changes) = (ListingReport::default(), ListChanges::default());
        let mut found = BTreeMap::new();
        let mut unattributed = BTreeSet::new();
        let mut expected = HashSet::new();
        let uids = known.iter().copied().chain(self.deleted.iter().map(String::as_str));
        let uids: UidIndex<'_> = uids.chain(listing.present.keys().map(String::as_str)).collect();
        for owned in &listing.owned {
            let mark = owned.service_uid.as_deref();
            let mark = mark.filter(|_| is_of_cluster(owned, self.cluster_uid.as_deref()));
            let meant: Vec<_> = mark.into_iter().flat_map(|mark| uids.meant_by(mark)).collect();
            if meant.is_empty() && mark.is_some_and(may_be_uid) {
                found.insert(owned.name.clone(), owned);
            } else if meant.is_empty() {
                unattributed.insert(owned.name.clone());
            }
            for uid in meant.into_iter().filter(|uid| !self.deleted.contains(*uid)) {
                match listing.present.get(uid) {
                    _ if known.contains(uid) => changes.known.push(uid.to_owned()),
                    Some(name) => {
                        expected.insert(uid.to_owned());
                        report.unknown.push(name.clone());
                    }
                    None => {}
                }
            }
        }
        self.expected = expected;
        report.unknown.sort_unstable();
        report.unknown.dedup();
        report.orphans = found.len();
        report.new_unattributed = unattributed.difference(&self.unattributed).cloned().collect();
        report.unattributed = unattributed.len();
        self.unattributed = unattributed;
        self.found.retain(|name, (_, attempt)| {
            let stays = attempt.is_in_flight() || found.contains_key(name);
            if !stays {
                changes.orphans.push((Key::Orphan(name.clone()), None));
            }
            stays
        });
        for (name, owned) in found {
            let known = self.found.entry(name.clone()).or_insert_with(|| {
                changes.orphans.push((Key::Orphan(name), Some(now)));
                (owned.clone(), Attempt::new(now))
            });
            // The name may stand for another object by now, of another Service.
            known.0.clone_from(owned);
        }
        (report, changes)
    }

    /// Begins the removal of an orphan.
    pub(super) fn start_removal(&mut self, name: &str) -> Option<ServiceChange> {
        let (owned, attempt) = self.found.get_mut(name)?;
        attempt.start();
        let resume = attempt.resume(None);
        Some(ServiceChange { action: ServiceAction::RemoveOrphan(owned.clone()), resume })
    }

    /// The outcome of a removal. Returns the attempt that goes on, or none where the orphan is gone.
    pub(super) fn on_outcome(
        &mut self,
        name: &str,
        outcome: &Result<ServiceProgress, CloudError>,
        now: Instant,
        jitter: f64,
    ) -> Option<&Attempt> {
        let (_, attempt) = self.found.get_mut(name)?;
        attempt.end();
        match outcome {
            Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere) => {
                self.found.remove(name);
                return None;
            }
            Ok(ServiceProgress::InProgress { after, resume, .. }) => {
                attempt.poll_after(*after, resume.clone(), None, now);
            }
            Err(error) => drop(attempt.fail(error, now, jitter)),
        }
        self.found.get(name).map(|(_, attempt)| attempt)
    }
}
