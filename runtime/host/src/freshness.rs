//! How old the cached data of a lookup may be, and which answers it supports: found may be old, absent must be new.
//!
//! An instance that existed a moment ago most likely still does, and where it doesn't, the next lookup finds out. But a list
//! that was requested before a Node was created may lack its instance, for as long as the list is cached. So an answer that
//! only fresh data can support is compared with the age of what its lookup has read. Where that is too old, the Node is
//! looked up once more. All times are arguments, so the decision depends on nothing else.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Purpose};
use pileus_gate::{Evidence, View};
use tokio::time::Instant;

/// The oldest cached data for Nodes that join. Thousands join within a minute or two, each some seconds after its instance
/// exists, so two or three lists of all instances answer for them.
const INITIALISE_MAX_AGE: Duration = Duration::from_secs(30);

/// The oldest cached data for refreshes. A round over 5,000 Nodes takes several calls within some seconds, which share one
/// list. Nodes that aren't ready are looked up every 10 s, so each of these lookups reads new data.
const REFRESH_MAX_AGE: Duration = Duration::from_secs(5);

/// How long after a Node's creation, by the API server's clock, a request must have been sent so that it was certainly sent
/// after the creation. Clocks of well-kept machines differ by less than a second.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// When a Node is looked up again for whose instance no fresh data was read in time.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What a lookup for this purpose may read from the gate's cache.
pub(crate) fn cache_view(purpose: Purpose) -> View {
    match purpose {
        Purpose::Initialise => View::at_most(INITIALISE_MAX_AGE),
        Purpose::Refresh => View::at_most(REFRESH_MAX_AGE),
        Purpose::Confirm => View::fresh(),
    }
}

/// The age of the data that the answers of a lookup rest on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupEvidence {
    /// How long ago the oldest cached data was requested. `None` where nothing came from the cache.
    oldest: Option<Duration>,
    /// Whether the pages of a list are from two sweeps. An instance may be missing from both because it moved in between.
    is_torn: bool,
    /// How long ago the lookup began. Its Nodes had been created by then.
    began: Duration,
    /// The time by the wall clock, which is compared with the API server's.
    now: Timestamp,
}

impl LookupEvidence {
    /// The evidence of a lookup that began at this time.
    pub(crate) fn new(evidence: &Evidence, began: Instant, now: Instant, wall: Timestamp) -> Self {
        let Evidence { oldest, is_torn } = *evidence;
        let ago = |then: Instant| now.saturating_duration_since(then);
        Self { oldest: oldest.map(ago), is_torn, began: ago(began), now: wall }
    }

    /// Whether the evidence supports an answer about a Node that was created at this time.
    pub(crate) fn supports(&self, answer: &Answer, created_at: Timestamp) -> bool {
        match answer {
            Answer::Found(_) | Answer::Unmanaged(_) => true,
            Answer::Absent => !self.is_torn && self.is_newer_than(created_at),
            // It was right when it was read, and stays right for as long as it says.
            Answer::Pending(after) => self.oldest.is_none_or(|age| age <= self.began || age < *after),
        }
    }

    /// Whether all data was certainly requested after a Node's creation.
    fn is_newer_than(&self, created_at: Timestamp) -> bool {
        let node_age = self.now.duration_since(created_at);
        let is_older_by_skew = |age: Duration| {
            SignedDuration::try_from(age).is_ok_and(|age| age.saturating_add(CLOCK_SKEW) <= node_age)
        };
        self.oldest.is_none_or(|age| age <= self.began || is_older_by_skew(age))
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Instance, InstanceState, ProviderId, Stance};

    use super::*;

    fn found() -> Answer {
        Answer::Found(Instance {
            provider_id: ProviderId::parse("a://1").unwrap(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: Vec::new(),
            state: InstanceState::Stopped,
            left_out: Vec::new(),
        })
    }

    /// The evidence of a lookup that began 2 s ago.
    fn evidence(oldest: Option<u64>, is_torn: bool) -> LookupEvidence {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        LookupEvidence {
            oldest: oldest.map(Duration::from_secs),
            is_torn,
            began: Duration::from_secs(2),
            now,
        }
    }

    #[test]
    fn absent_is_supported_only_where_all_data_is_newer_than_the_node() {
        // The Node's age in seconds, the age of the oldest data, whether its list is torn, whether absent is supported.
        let rows: [(i64, Option<u64>, bool, bool); 14] = [
            (3, None, false, true),
            (3, None, true, false),
            (3, Some(0), false, true),
            (3, Some(2), false, true), // requested at the moment when the lookup began
            (3, Some(3), false, false),
            (3, Some(2), true, false),
            (3, Some(30), false, false),
            (62, Some(3), false, false),
            (63, Some(3), false, true), // a minute after the Node's creation
            (63, Some(3), true, false),
            (90, Some(30), false, true),
            (89, Some(30), false, false),
            (-3600, Some(3), false, false), // a Node of the future: one of the clocks is wrong
            (-3600, Some(1), false, true),  // but not the clock that measured the lookup
        ];
        for (age, oldest, is_torn, expected) in rows {
            let evidence = evidence(oldest, is_torn);
            let created_at = evidence.now - SignedDuration::from_secs(age);
            let is_supported = evidence.supports(&Answer::Absent, created_at);
            assert_eq!(is_supported, expected, "node of {age} s, {oldest:?} s old, torn: {is_torn}");
        }
    }

    #[test]
    fn pending_is_supported_for_as_long_as_it_says_and_found_always() {
        let pending = |seconds| Answer::Pending(Duration::from_secs(seconds));
        let rows = [
            (pending(5), None, true),
            (pending(5), Some(4), true),
            (pending(5), Some(5), false),
            (pending(5), Some(30), false),
            (pending(1), Some(2), true), // requested by this lookup, however long that takes
            (pending(40), Some(30), true),
            (found(), Some(30), true),
            (Answer::Unmanaged(Stance::LeftAlone), Some(30), true),
        ];
        for (answer, oldest, expected) in rows {
            for is_torn in [false, true] {
                let evidence = evidence(oldest, is_torn);
                assert_eq!(
                    evidence.supports(&answer, evidence.now),
                    expected,
                    "{answer:?} {oldest:?} {is_torn}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ages_count_from_the_request() {
        let requested = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let cached = Evidence { oldest: Some(requested), is_torn: false };
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let evidence = LookupEvidence::new(&cached, began, Instant::now(), now);
        let ages = (evidence.oldest.map(|age| age.as_secs()), evidence.began.as_secs());
        assert_eq!(ages, (Some(5), 2));
        let created_at = now - SignedDuration::from_secs(65);
        assert!(evidence.supports(&Answer::Absent, created_at));
        assert!(!evidence.supports(&Answer::Absent, created_at + SignedDuration::from_secs(1)));
    }
}
