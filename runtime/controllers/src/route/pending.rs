//! The changes of routes and conditions that aren't done: in progress at the cloud, or failed. Each is due again at its own
//! time, regardless of the others.
//!
//! Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{ProviderId, Retry};
use tokio::time::Instant;

use crate::schedule::Backoff;

/// Identifies a change over several passes. Keys have the Node's UID, so that a Node doesn't inherit the failures and notes of a
/// former Node of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeKey {
    /// Deletes the route of this name.
    Delete(String),
    /// Creates a route for this range to the Node with this UID and provider ID.
    Create(IpNet, String, Option<ProviderId>),
    /// Reports to the Node with this UID that another Node has the range.
    Conflict(IpNet, String),
    /// Writes the condition of the Node with this UID.
    Condition(String),
}

#[derive(Debug)]
struct PendingChange {
    failures: u32,
    not_before: Instant,
    resume: Option<String>,
    /// Whether the cloud has begun it.
    has_begun: bool,
}

/// The changes that are in progress or have failed.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changes: BTreeMap<ChangeKey, PendingChange>,
}

impl PendingChanges {
    /// Whether a change is due now. A change that isn't pending is.
    pub(super) fn is_due(&self, key: &ChangeKey, now: Instant) -> bool {
        self.changes.get(key).is_none_or(|change| change.not_before <= now)
    }

    /// The provider's own note about a change in progress.
    pub(super) fn resume(&self, key: &ChangeKey) -> Option<String> {
        self.changes.get(key)?.resume.clone()
    }

    /// Whether the cloud has begun a change that isn't done: it is in progress, or has failed since. A list may show the
    /// route all the same.
    pub(super) fn has_begun(&self, key: &ChangeKey) -> bool {
        self.changes.get(key).is_some_and(|change| change.has_begun)
    }

    /// Removes a change that is done.
    pub(super) fn on_done(&mut self, key: &ChangeKey) {
        self.changes.remove(key);
    }

    /// Records that a change is in progress, to be called again after this time.
    pub(super) fn on_progress(
        &mut self,
        key: ChangeKey,
        now: Instant,
        after: Duration,
        resume: Option<String>,
    ) {
        // A cloud that always says "at once" isn't called in a tight loop.
        let not_before = now + after.max(Backoff::default().soon);
        self.changes.insert(key, PendingChange { failures: 0, not_before, resume, has_begun: true });
    }

    /// Records that a change has failed, to be retried after a backoff and without the provider's note. Returns the number of failures in a row.
    pub(super) fn on_failure(&mut self, key: ChangeKey, now: Instant, retry: Retry, jitter: f64) -> u32 {
        let change = self.changes.entry(key).or_insert(PendingChange {
            failures: 0,
            not_before: now,
            resume: None,
            has_begun: false,
        });
        change.failures = change.failures.saturating_add(1);
        // It was left for an operation that may have failed.
        change.resume = None;
        change.not_before = now + Backoff::default().delay(retry, change.failures, jitter);
        change.failures
    }

    /// Removes the changes that are no longer wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&ChangeKey) -> bool) {
        self.changes.retain(|key, _| is_wanted(key));
    }

    /// When the next change becomes due after this time. A change that was due at this time has been tried since, or waits for
    /// another change.
    pub(super) fn next_after(&self, time: Instant) -> Option<Instant> {
        self.changes.values().map(|change| change.not_before).filter(|due| *due > time).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_is_due_at_its_own_time() {
        let (mut pending, now) = (PendingChanges::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| ChangeKey::Delete(name.to_owned()));
        assert!(pending.is_due(&a, now) && pending.next_after(now).is_none());
        pending.on_failure(a.clone(), now, Retry::WithBackoff, 0.0);
        pending.on_progress(b.clone(), now, Duration::from_secs(3), Some("note".to_owned()));
        let ms = Duration::from_millis;
        assert!(!pending.is_due(&a, now + ms(499)) && pending.is_due(&a, now + ms(500)));
        assert!(!pending.is_due(&b, now + ms(2999)) && pending.is_due(&b, now + ms(3000)));
        assert_eq!((pending.resume(&a), pending.resume(&b)), (None, Some("note".to_owned())));
        pending.on_failure(a.clone(), now, Retry::WithBackoff, 0.0);
        assert!(!pending.is_due(&a, now + ms(999)) && pending.is_due(&a, now + ms(1000)));
        assert_eq!(pending.next_after(now), Some(now + ms(1000)));
        assert_eq!(pending.next_after(now + ms(1000)), Some(now + ms(3000)));
        pending.retain(|key| *key == b);
        assert!(pending.is_due(&a, now));
        pending.on_failure(b.clone(), now, Retry::WithBackoff, 0.0);
        assert_eq!(pending.resume(&b), None, "a note serves until a failure");
        assert!(pending.has_begun(&b) && !pending.has_begun(&a));
        pending.on_done(&b);
        assert_eq!((pending.next_after(now), pending.resume(&b)), (None, None));
        pending.on_progress(b.clone(), now, Duration::ZERO, None);
        assert!(!pending.is_due(&b, now + ms(99)) && pending.is_due(&b, now + ms(100)));
    }
}
