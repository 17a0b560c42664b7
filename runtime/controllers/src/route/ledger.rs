//! What has become of changes that aren't done: each waits for its own time, whatever its neighbours do.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{ProviderId, Retry};
use tokio::time::Instant;

use crate::schedule::Delays;

/// A change, told apart from others over passes: what is done about which range, for which route or for the Node of which
/// UID. A Node that takes over the name of another takes over none of its failures and notes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The route of this name is deleted.
    Delete(String),
    /// The range gets a route to this Node and its machine.
    Create(IpNet, String, Option<ProviderId>),
    /// The Node is told that another one has the range.
    Contested(IpNet, String),
    /// The Node's condition is written.
    Condition(String),
}

#[derive(Debug)]
struct Entry {
    failures: u32,
    not_before: Instant,
    resume: Option<String>,
}

/// The changes that are under way at the cloud or have failed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Key, Entry>,
}

impl Ledger {
    /// Whether a change may be made now.
    pub(super) fn is_due(&self, key: &Key, now: Instant) -> bool {
        self.entries.get(key).is_none_or(|entry| entry.not_before <= now)
    }

    /// The note that the provider left for itself.
    pub(super) fn resume(&self, key: &Key) -> Option<String> {
        self.entries.get(key)?.resume.clone()
    }

    /// It is done.
    pub(super) fn done(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// The cloud is at it.
    pub(super) fn is_under_way(&mut self, key: Key, now: Instant, after: Duration, resume: Option<String>) {
        // A cloud that says "at once" for ever isn't asked in a tight loop.
        let not_before = now + after.max(Delays::default().soon);
        self.entries.insert(key, Entry { failures: 0, not_before, resume });
    }

    /// It has failed; it is due again after a delay that grows. How often it has failed in a row.
    pub(super) fn failed(&mut self, key: Key, now: Instant, retry: Retry, jitter: f64) -> u32 {
        let entry = self.entries.entry(key).or_insert(Entry { failures: 0, not_before: now, resume: None });
        entry.failures = entry.failures.saturating_add(1);
        entry.not_before = now + Delays::default().after(retry, entry.failures, jitter);
        entry.failures
    }

    /// Forgets the changes that nobody wants any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Key) -> bool) {
        self.entries.retain(|key, _| is_wanted(key));
    }

    /// When the next change is due that wasn't at this time. What was due then has been tried, or waits for another.
    pub(super) fn next_after(&self, time: Instant) -> Option<Instant> {
        self.entries.values().map(|entry| entry.not_before).filter(|due| *due > time).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_waits_for_its_own_time() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let [a, b] = ["a", "b"].map(|name| Key::Delete(name.to_owned()));
        assert!(ledger.is_due(&a, now) && ledger.next_after(now).is_none());
        ledger.failed(a.clone(), now, Retry::WithBackoff, 0.0);
        ledger.is_under_way(b.clone(), now, Duration::from_secs(3), Some("note".to_owned()));
        let ms = Duration::from_millis;
        assert!(!ledger.is_due(&a, now + ms(499)) && ledger.is_due(&a, now + ms(500)));
        assert!(!ledger.is_due(&b, now + ms(2999)) && ledger.is_due(&b, now + ms(3000)));
        assert_eq!((ledger.resume(&a), ledger.resume(&b)), (None, Some("note".to_owned())));
        ledger.failed(a.clone(), now, Retry::WithBackoff, 0.0);
        assert!(!ledger.is_due(&a, now + ms(999)) && ledger.is_due(&a, now + ms(1000)));
        assert_eq!(ledger.next_after(now), Some(now + ms(1000)));
        assert_eq!(ledger.next_after(now + ms(1000)), Some(now + ms(3000)));
        ledger.retain(|key| *key == b);
        assert!(ledger.is_due(&a, now));
        ledger.done(&b);
        assert_eq!((ledger.next_after(now), ledger.resume(&b)), (None, None));
        ledger.is_under_way(b.clone(), now, Duration::ZERO, None);
        assert!(!ledger.is_due(&b, now + ms(99)) && ledger.is_due(&b, now + ms(100)));
    }
}
