//! The circuit breaker puts deletions on hold when so many instances are gone at once that an error of the cloud, or of the
//! credentials, is more likely than the truth.
//!
//! A Node on hold has a condition that says so. So neither a restart nor a new leader releases it. Only the deletions of the
//! last minutes are remembered here.
//!
//! Pure: the clock is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The breaker opens above a share of 1 / `SHARE` of the provider's Nodes. One of three zones is more than that, a scale-down
/// or a rack is usually less.
const SHARE: usize = 4;

/// The breaker doesn't open below this number: in a small cluster one instance is a large share.
const MIN_GONE: usize = 4;

/// How long a deletion counts, so that an error that spreads slowly, such as one page of a list at a time, counts as a whole.
const WINDOW: Duration = Duration::from_mins(10);

/// The recent deletions, by the Node's UID. Times are relative to the controller's start.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    deleted: BTreeMap<String, Duration>,
}

/// The state of the breaker in one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BreakerState {
    /// Whether deletions are on hold.
    pub(super) is_open: bool,
    /// The number of Nodes whose instances are gone: Nodes on hold, confirmed in this pass, missing in a list without a direct
    /// read since, or deleted within the window.
    pub(super) gone: usize,
    /// The number of the provider's Nodes, with those that were deleted within the window.
    pub(super) total: usize,
}

impl Breaker {
    /// Evaluates a pass. `present` are all Nodes of the provider. `absent` are those of them whose instances are gone: on hold,
    /// just confirmed, or suspected, because a cloud that is wrong about all Nodes may confirm only a few at a time. Either
    /// all confirmed Nodes of the pass may be deleted, or none.
    pub(super) fn evaluate(
        &self,
        present: &BTreeSet<&str>,
        absent: &BTreeSet<&str>,
        uptime: Duration,
    ) -> BreakerState {
        let deleted = || self.within(uptime).filter(|uid| !present.contains(uid));
        let present_and_deleted =
            self.within(uptime).filter(|uid| present.contains(uid) && !absent.contains(uid));
        let gone = absent.len() + deleted().count() + present_and_deleted.count();
        let total = present.len() + deleted().count();
        BreakerState { is_open: gone >= MIN_GONE && gone * SHARE > total, gone, total }
    }

    /// Counts a Node that was deleted, or may have been, or whose deletion was denied. The caller leaves out Nodes that an operator
    /// released.
    pub(super) fn on_deletion(&mut self, uid: &str, uptime: Duration) {
        self.deleted.retain(|_, at| is_within(*at, uptime));
        self.deleted.insert(uid.to_owned(), uptime);
    }

    fn within(&self, uptime: Duration) -> impl Iterator<Item = &str> {
        self.deleted.iter().filter(move |(_, at)| is_within(**at, uptime)).map(|(uid, _)| uid.as_str())
    }
}

fn is_within(at: Duration, uptime: Duration) -> bool {
    uptime.saturating_sub(at) <= WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn uids(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|n| n.to_string()).collect()
    }

    fn delete(breaker: &mut Breaker, uids: &[String], uptime: Duration) {
        for uid in uids {
            breaker.on_deletion(uid, uptime);
        }
    }

    fn set(uids: &[String]) -> BTreeSet<&str> {
        uids.iter().map(String::as_str).collect()
    }

    fn evaluate(breaker: &Breaker, present: &[String], absent: &[String], uptime: Duration) -> BreakerState {
        breaker.evaluate(&set(present), &set(absent), uptime)
    }

    #[test]
    fn the_breaker_opens_above_a_quarter_and_not_below_four() {
        for (absent, present, is_open) in [
            (1, 1, false),
            (3, 3, false), // all of a small cluster
            (4, 4, true),
            (4, 15, true),
            (4, 16, false), // exactly a quarter
            (5, 16, true),
            (25, 100, false),
            (26, 100, true),
            (1250, 5000, false),
            (1251, 5000, true),
        ] {
            let state = evaluate(&Breaker::default(), &uids(0..present), &uids(0..absent), Duration::ZERO);
            assert_eq!(
                state,
                BreakerState { is_open, gone: absent, total: present },
                "{absent} of {present}"
            );
        }
    }

    #[test]
    fn a_deletion_counts_for_ten_minutes_on_both_sides() {
        let mut breaker = Breaker::default();
        delete(&mut breaker, &uids(0..5), MINUTE);
        let (present, absent) = (uids(5..20), uids(5..6));
        for (at, state) in [
            (1, BreakerState { is_open: true, gone: 6, total: 20 }),
            (11, BreakerState { is_open: true, gone: 6, total: 20 }),
            (12, BreakerState { is_open: false, gone: 1, total: 15 }),
        ] {
            assert_eq!(evaluate(&breaker, &present, &absent, MINUTE * at), state, "minute {at}");
        }
    }

    #[test]
    fn a_node_counts_once_even_if_it_is_deleted_and_absent_again() {
        let mut breaker = Breaker::default();
        delete(&mut breaker, &uids(0..4), MINUTE);
        // The watch doesn't show the deletions yet, and one of the Nodes was confirmed again.
        let state = evaluate(&breaker, &uids(0..16), &uids(0..1), MINUTE);
        assert_eq!(state, BreakerState { is_open: false, gone: 4, total: 16 });
    }

    #[test]
    fn deletions_that_come_slowly_count_together() {
        let mut breaker = Breaker::default();
        let mut deleted = 0;
        for pass in 0..20 {
            let absent = uids(deleted..deleted + 5); // 5 % of a hundred each minute
            let present = uids(deleted..100);
            if evaluate(&breaker, &present, &absent, MINUTE * pass).is_open {
                break;
            }
            delete(&mut breaker, &absent, MINUTE * pass);
            deleted += 5;
        }
        assert_eq!(deleted, 25);
    }

    #[test]
    fn old_deletions_are_forgotten() {
        let mut breaker = Breaker::default();
        delete(&mut breaker, &uids(0..1000), MINUTE);
        breaker.on_deletion("x", MINUTE * 12);
        assert_eq!(breaker.deleted.len(), 1);
    }

    proptest! {
        #[test]
        fn within_ten_minutes_no_more_than_three_or_a_quarter_are_deleted(
            size in 0_usize..60,
            passes in prop::collection::vec((0_u64..400, prop::collection::vec(0_usize..60, 0..12), 0_usize..3), 0..40),
        ) {
            let mut breaker = Breaker::default();
            let (mut present, mut held) = (uids(0..size), BTreeSet::new());
            let mut deletions: Vec<(Duration, String)> = Vec::new();
            let (mut uptime, mut made) = (Duration::ZERO, size);
            for (after, confirmed, joining) in passes {
                uptime += Duration::from_secs(after);
                present.extend(uids(made..made + joining));
                made += joining;
                let new: BTreeSet<_> = confirmed.iter().filter_map(|n| present.get(*n))
                    .filter(|uid| !held.contains(*uid)).cloned().collect();
                let absent: Vec<_> = new.iter().chain(&held).cloned().collect();
                if evaluate(&breaker, &present, &absent, uptime).is_open {
                    held.extend(new);
                    continue;
                }
                for uid in new {
                    breaker.on_deletion(&uid, uptime);
                    present.retain(|other| *other != uid);
                    deletions.push((uptime, uid));
                }
                let within = deletions.iter().filter(|(at, _)| *at + WINDOW >= uptime).count();
                prop_assert!(within <= 3.max((present.len() + within) / 4), "{within} deleted, {} left", present.len());
            }
        }
    }
}
