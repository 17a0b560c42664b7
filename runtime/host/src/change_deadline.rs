//! The soft deadline of changes of load balancers.
//!
//! A provider reads before it writes. Where its reads take longer than the soft deadline, its write comes too late, and each
//! further call would begin with the same reads: no write would ever leave. So the call after such a one has more time, until a
//! write has left. The usual deadline is short because a user gets no address before the whole call has been answered.
//!
//! Pure, except for what it remembers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::limits::Limits;

/// An extended soft deadline is the hard one divided by this. The rest is for requests in flight and for the answer.
const SHARE_OF_HARD: u32 = 3;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeEnd {
    /// Whether its soft deadline had passed.
    pub(crate) is_late: bool,
    /// Whether the cloud answered a request of it that changes something.
    pub(crate) has_written: bool,
}

/// Whether the next call has more time.
#[derive(Debug, Default)]
pub(crate) struct ChangeDeadline {
    is_extended: AtomicBool,
}

impl ChangeDeadline {
    /// The soft and the hard deadline of the next call. A part of a call that failed has its share of both.
    pub(crate) fn deadlines(&self, limits: &Limits, deadline_divisor: u32) -> [Duration; 2] {
        let Limits { load_balancers_soft: soft, load_balancers_hard: hard, .. } = *limits;
        let is_extended = self.is_extended.load(Ordering::Relaxed);
        let soft = if is_extended { soft.max(hard / SHARE_OF_HARD) } else { soft };
        [soft / deadline_divisor, hard / deadline_divisor]
    }

    /// Applies the end of a call. One that had nothing to write in time says nothing about the next.
    pub(crate) fn on_end(&self, end: ChangeEnd) {
        let ChangeEnd { is_late, has_written } = end;
        if has_written || is_late {
            self.is_extended.store(!has_written, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(soft: u32, hard: u32) -> Limits {
        Limits { load_balancers_soft: soft * SECOND, load_balancers_hard: hard * SECOND, ..Limits::default() }
    }

    #[test]
    fn a_call_has_more_time_after_one_that_ended_late_without_a_write() {
        let usual = limits(5, 60);
        let (late, wrote) = (true, true);
        for (row, calls, deadlines, expected) in [
            ("the first", &[][..], &usual, 5),
            ("late", &[(late, !wrote)], &usual, 20),
            ("late twice", &[(late, !wrote), (late, !wrote)], &usual, 20),
            ("late, with a write", &[(late, wrote)], &usual, 5),
            ("a write after it", &[(late, !wrote), (late, wrote)], &usual, 5),
            ("a write in time after it", &[(late, !wrote), (!late, wrote)], &usual, 5),
            ("nothing to write after it", &[(late, !wrote), (!late, !wrote)], &usual, 20),
            ("in time", &[(!late, !wrote)], &usual, 5),
            ("an operator's long deadline", &[(late, !wrote)], &limits(30, 60), 30),
        ] {
            let deadline = ChangeDeadline::default();
            for (is_late, has_written) in calls {
                deadline.on_end(ChangeEnd { is_late: *is_late, has_written: *has_written });
            }
            let [soft, hard] = [expected * SECOND, deadlines.load_balancers_hard];
            assert_eq!(deadline.deadlines(deadlines, 1), [soft, hard], "{row}");
            assert_eq!(deadline.deadlines(deadlines, 4), [soft / 4, hard / 4], "{row}");
        }
    }

    #[test]
    fn a_change_whose_reads_take_longer_than_the_soft_deadline_writes_on_its_second_call_at_the_latest() {
        let limits = limits(5, 60);
        let usual = limits.load_balancers_soft;
        for reads in 1..20 {
            let (deadline, reads) = (ChangeDeadline::default(), reads * SECOND);
            // A request that begins after the soft deadline isn't sent.
            let writes = |_: &u32| {
                let [soft, _] = deadline.deadlines(&limits, 1);
                let has_written = reads < soft;
                deadline.on_end(ChangeEnd { is_late: reads >= soft, has_written });
                has_written
            };
            let call = (1..=9).find(writes);
            assert_eq!(call, Some(if reads < usual { 1 } else { 2 }), "{reads:?}");
            assert_eq!(
                deadline.deadlines(&limits, 1)[0],
                usual,
                "{reads:?}: the next call has the usual time"
            );
        }
    }
}
