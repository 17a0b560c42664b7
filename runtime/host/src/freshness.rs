//! How old may be what a lookup reads of its cloud, and which of its answers are believed: found may be old, absent must
//! be new.
//!
//! A machine that was there a moment ago is there, most likely, and where it isn't the next look tells. But a list that
//! was asked for before a Node registered may lack its machine, and goes on doing so for as long as it is kept. So an
//! answer that only something new can give is held against what its lookup has read, and where that is too old, it is
//! asked for once more. Pure: how long ago things were is told by the caller's clocks.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Purpose};
use pileus_gate::{Evidence, View};
use tokio::time::Instant;

/// The oldest that a Node which joins is answered from. Thousands join within a minute or two, each some seconds after its
/// machine is there: they are answered from two or three lists of all machines.
const JOINING: Duration = Duration::from_secs(30);

/// The oldest that facts are refreshed from: a round over 5,000 Nodes takes several calls, some seconds altogether, and
/// they share one list. Nodes that aren't ready are looked up each 10 s, which sees something new each time.
const REFRESHING: Duration = Duration::from_secs(5);

/// How much later than a Node's creation, which the API server's clock tells, something must have been asked for to have
/// been asked for after it by any clock. Clocks of machines that are looked after differ by less than a second.
const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// When a Node is asked about again of whose machine nothing new could be found out in time.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// What a lookup for this purpose may read from the cache.
pub(crate) fn view(purpose: Purpose) -> View {
    match purpose {
        Purpose::Initialise => View::at_most(JOINING),
        Purpose::Refresh => View::at_most(REFRESHING),
        Purpose::Confirm => View::fresh(),
    }
}

/// What the answers of a lookup rest on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Basis {
    /// How long ago the oldest of what came from the cache was asked for; none where nothing came from it.
    oldest: Option<Duration>,
    /// Whether the pages of a list are from two sweeps. What they lack may have moved from one to the other.
    is_torn: bool,
    /// How long ago the lookup began. Its Nodes had registered by then.
    began: Duration,
    /// The time by the clock that is compared with the API server's.
    now: Timestamp,
}

impl Basis {
    /// What a lookup rests on that began at this time.
    pub(crate) fn new(evidence: &Evidence, began: Instant, now: Instant, wall: Timestamp) -> Self {
        let Evidence { oldest, is_torn } = *evidence;
        let ago = |then: Instant| now.saturating_duration_since(then);
        Self { oldest: oldest.map(ago), is_torn, began: ago(began), now: wall }
    }

    /// Whether an answer about a Node that was created at this time is to be believed.
    pub(crate) fn supports(&self, answer: &Answer, created_at: Timestamp) -> bool {
        match answer {
            Answer::Found(_) | Answer::Unmanaged => true,
            Answer::Absent => !self.is_torn && self.is_newer_than(created_at),
            // It was true when it was asked for, and holds for as long as it says.
            Answer::Pending(after) => self.oldest.is_none_or(|age| age <= self.began || age < *after),
        }
    }

    /// Whether all of it was surely asked for after a Node had registered.
    fn is_newer_than(&self, created_at: Timestamp) -> bool {
        let registered = self.now.duration_since(created_at);
        let is_older_by_skew = |age: Duration| {
            SignedDuration::try_from(age).is_ok_and(|age| age.saturating_add(SKEW) <= registered)
        };
        self.oldest.is_none_or(|age| age <= self.began || is_older_by_skew(age))
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Instance, InstanceState, ProviderId};

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
        })
    }

    /// What a lookup that began 2 s ago rests on.
    fn basis(oldest: Option<u64>, is_torn: bool) -> Basis {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        Basis { oldest: oldest.map(Duration::from_secs), is_torn, began: Duration::from_secs(2), now }
    }

    #[test]
    fn absent_is_believed_only_where_all_that_was_read_is_newer_than_the_node() {
        // How old the Node is in seconds, the oldest that was read, whether that is torn.
        let rows: [(i64, Option<u64>, bool, bool); 14] = [
            (3, None, false, true),
            (3, None, true, false),
            (3, Some(0), false, true),
            (3, Some(2), false, true), // asked for in the moment in which the lookup began
            (3, Some(3), false, false),
            (3, Some(2), true, false),
            (3, Some(30), false, false),
            (62, Some(3), false, false),
            (63, Some(3), false, true), // a minute after the Node's creation
            (63, Some(3), true, false),
            (90, Some(30), false, true),
            (89, Some(30), false, false),
            (-3600, Some(3), false, false), // a Node of tomorrow: one of the clocks is wrong
            (-3600, Some(1), false, true),  // but not this one, which saw the lookup begin
        ];
        for (age, oldest, is_torn, expected) in rows {
            let basis = basis(oldest, is_torn);
            let created_at = basis.now - SignedDuration::from_secs(age);
            let believed = basis.supports(&Answer::Absent, created_at);
            assert_eq!(believed, expected, "node of {age} s, {oldest:?} s old, torn: {is_torn}");
        }
    }

    #[test]
    fn pending_holds_for_as_long_as_it_says_and_what_was_found_holds() {
        let pending = |seconds| Answer::Pending(Duration::from_secs(seconds));
        let rows = [
            (pending(5), None, true),
            (pending(5), Some(4), true),
            (pending(5), Some(5), false),
            (pending(5), Some(30), false),
            (pending(1), Some(2), true), // asked for by this lookup, however long that takes
            (pending(40), Some(30), true),
            (found(), Some(30), true),
            (Answer::Unmanaged, Some(30), true),
        ];
        for (answer, oldest, expected) in rows {
            for is_torn in [false, true] {
                let basis = basis(oldest, is_torn);
                assert_eq!(basis.supports(&answer, basis.now), expected, "{answer:?} {oldest:?} {is_torn}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ages_count_from_the_moment_in_which_something_was_asked_for() {
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(2)).await;
        let evidence = Evidence { oldest: Some(asked), is_torn: false };
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let basis = Basis::new(&evidence, began, Instant::now(), now);
        let ages = (basis.oldest.map(|age| age.as_secs()), basis.began.as_secs());
        assert_eq!(ages, (Some(5), 2));
        let created_at = now - SignedDuration::from_secs(65);
        assert!(basis.supports(&Answer::Absent, created_at));
        assert!(!basis.supports(&Answer::Absent, created_at + SignedDuration::from_secs(1)));
    }
}
