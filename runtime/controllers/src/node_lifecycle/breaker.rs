//! The circuit breaker: when so many machines are gone at once that an error of the cloud's, or of the credentials that
//! we ask it with, is likelier than the truth.
//!
//! Pure. Of what it counts, the Nodes that are held say so themselves, in a condition; so neither a restart nor another
//! leader lets go of them. Only the deletions of the last minutes are remembered here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// It opens over one part in so many of the provider's Nodes. A zone of a cluster that spans three is more than that,
/// a scale-down or a rack is usually less.
const SHARE: usize = 4;

/// It doesn't open below so many: in a small cluster one machine is a large share.
const LEAST: usize = 4;

/// How long a deletion counts. An error that comes slowly, a page of a list at a time, shows as a whole.
const WINDOW: Duration = Duration::from_mins(10);

/// Counts Nodes by UID. Times are those since the controller's start.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    deleted: BTreeMap<String, Duration>,
}

/// What the breaker says of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether Nodes are held rather than deleted.
    pub(super) is_open: bool,
    /// The Nodes whose machines are gone: held, confirmed in this pass, lacked by a list and not settled by a direct read,
    /// or deleted within the window.
    pub(super) gone: usize,
    /// The provider's Nodes, with those that were deleted within the window.
    pub(super) of: usize,
}

impl Breaker {
    /// Judges a pass: `present` are all Nodes of the provider, `absent` those of them whose machines are gone: held already,
    /// only just confirmed, or in doubt, as a cloud that is wrong about all may confirm but a few at a time. What may be
    /// deleted in this pass is all that are confirmed, or nothing.
    pub(super) fn judge(
        &self,
        present: &BTreeSet<&str>,
        absent: &BTreeSet<&str>,
        uptime: Duration,
    ) -> Verdict {
        let deleted = || self.within(uptime).filter(|uid| !present.contains(uid));
        let present_and_deleted =
            self.within(uptime).filter(|uid| present.contains(uid) && !absent.contains(uid));
        let gone = absent.len() + deleted().count() + present_and_deleted.count();
        let of = present.len() + deleted().count();
        Verdict { is_open: gone >= LEAST && gone * SHARE > of, gone, of }
    }

    /// A Node has been deleted, or may have been, or should be but may not. One that somebody released doesn't count: somebody has looked at it.
    pub(super) fn deleted(&mut self, uid: &str, uptime: Duration) {
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
            breaker.deleted(uid, uptime);
        }
    }

    fn set(uids: &[String]) -> BTreeSet<&str> {
        uids.iter().map(String::as_str).collect()
    }

    fn judge(breaker: &Breaker, present: &[String], absent: &[String], uptime: Duration) -> Verdict {
        breaker.judge(&set(present), &set(absent), uptime)
    }

    #[test]
    fn it_opens_over_a_quarter_and_not_below_four() {
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
            let verdict = judge(&Breaker::default(), &uids(0..present), &uids(0..absent), Duration::ZERO);
            assert_eq!(verdict, Verdict { is_open, gone: absent, of: present }, "{absent} of {present}");
        }
    }

    #[test]
    fn what_was_deleted_counts_for_ten_minutes_on_both_sides() {
        let mut breaker = Breaker::default();
        delete(&mut breaker, &uids(0..5), MINUTE);
        let (present, absent) = (uids(5..20), uids(5..6));
        for (at, verdict) in [
            (1, Verdict { is_open: true, gone: 6, of: 20 }),
            (11, Verdict { is_open: true, gone: 6, of: 20 }),
            (12, Verdict { is_open: false, gone: 1, of: 15 }),
        ] {
            assert_eq!(judge(&breaker, &present, &absent, MINUTE * at), verdict, "minute {at}");
        }
    }

    #[test]
    fn a_node_counts_once_whether_deleted_still_there_or_absent_again() {
        let mut breaker = Breaker::default();
        delete(&mut breaker, &uids(0..4), MINUTE);
        // The watch hasn't shown yet that they are gone: one of them was confirmed again.
        let verdict = judge(&breaker, &uids(0..16), &uids(0..1), MINUTE);
        assert_eq!(verdict, Verdict { is_open: false, gone: 4, of: 16 });
    }

    #[test]
    fn what_comes_slowly_shows_as_a_whole() {
        let mut breaker = Breaker::default();
        let mut deleted = 0;
        for pass in 0..20 {
            let absent = uids(deleted..deleted + 5); // 5 % of a hundred each minute
            let present = uids(deleted..100);
            if judge(&breaker, &present, &absent, MINUTE * pass).is_open {
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
        breaker.deleted("x", MINUTE * 12);
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
                if judge(&breaker, &present, &absent, uptime).is_open {
                    held.extend(new);
                    continue;
                }
                for uid in new {
                    breaker.deleted(&uid, uptime);
                    present.retain(|other| *other != uid);
                    deletions.push((uptime, uid));
                }
                let within = deletions.iter().filter(|(at, _)| *at + WINDOW >= uptime).count();
                prop_assert!(within <= 3.max((present.len() + within) / 4), "{within} deleted, {} left", present.len());
            }
        }
    }
}
