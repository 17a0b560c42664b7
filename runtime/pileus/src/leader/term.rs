//! The fence: whether this process may change anything now, in the cluster or in the cloud.
//!
//! A leader may write until its renew deadline has passed since it *sent* its last successful renewal. Other replicas
//! take the Lease over after they have seen it unchanged for the lease duration, which is longer, and they can't see a
//! renewal before it is sent. So two processes never may write at the same time, even if processes are stopped and
//! messages delayed or lost. Only their clocks must run at the same speed (to within a third, with the default
//! durations).
//!
//! The clock is `CLOCK_BOOTTIME`. Like `CLOCK_MONOTONIC` it can't be set and continues while a process is stopped.
//! Unlike `CLOCK_MONOTONIC` it also continues while the machine is suspended, so after a resume the term is over. A
//! virtual machine that its hypervisor pauses without notice sees neither clock move; then only resourceVersions
//! protect against its writes.
//!
//! The check comes after all queueing, when the bytes of a request are handed to the socket ([`pileus_gate::Fence`]). A
//! gap remains between the check and the kernel, and in the network: a process that is stopped exactly there sends one
//! request when it continues. That write began under the old leader and counts as its own. The API server's
//! resourceVersions and UIDs, and the cloud's own conflicts, guard against it.

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time of `CLOCK_BOOTTIME`: how long the machine has been up, including suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(pub(crate) Duration);

impl BootTime {
    /// The current time.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(Duration::from_secs(seconds) + Duration::from_nanos(now.tv_nsec.unsigned_abs()))
    }

    /// The duration since an earlier time; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    fn nanoseconds(self) -> u64 {
        // Enough for 584 years.
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// How long this process may write. Clones share the state; a check reads the clock.
#[derive(Debug, Clone)]
pub(crate) struct LeaseTerm {
    /// The end of the term, in nanoseconds of [`BootTime`].
    until: Arc<AtomicU64>,
}

/// A term that has been ended and can't be extended.
const ENDED: u64 = 0;

/// A term that has not begun. It is in the past, but can be extended.
const NOT_BEGUN: u64 = 1;

impl LeaseTerm {
    /// The term of a process that doesn't lead yet.
    pub(crate) fn none() -> Self {
        Self { until: Arc::new(AtomicU64::new(NOT_BEGUN)) }
    }

    /// The term of the only replica: it lasts until it is ended.
    pub(crate) fn unlimited() -> Self {
        Self { until: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Whether writes are allowed now.
    pub(crate) fn may_write(&self) -> bool {
        self.lasts_at(BootTime::now())
    }

    fn lasts_at(&self, now: BootTime) -> bool {
        now.nanoseconds() < self.until.load(Ordering::SeqCst)
    }

    /// Extends the term until `end`, unless it has been ended.
    pub(crate) fn extend_until(&self, end: BootTime) {
        let extend = |until| (until != ENDED).then_some(end.nanoseconds());
        let _unless_ended = self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, extend);
    }

    /// Ends the term permanently.
    pub(crate) fn end(&self) {
        self.until.store(ENDED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_exactly_at_its_end() {
        let at = |nanoseconds| BootTime(Duration::from_nanos(nanoseconds));
        let term = LeaseTerm::none();
        assert!(!term.lasts_at(at(1)) && !term.may_write());
        let shared = term.clone();
        term.extend_until(at(1000));
        assert!(shared.lasts_at(at(999)) && !shared.lasts_at(at(1000)));
        term.end();
        assert!(!shared.lasts_at(at(999)));
        // The answer to a renewal arrives late.
        term.extend_until(at(2000));
        assert!(!shared.lasts_at(at(1000)), "ended permanently");
        assert!(LeaseTerm::unlimited().may_write());
    }

    #[test]
    fn the_clock_advances_and_sums_saturate() {
        let before = BootTime::now();
        assert!(BootTime::now() >= before && before.0 > Duration::ZERO);
        assert_eq!(before.since(BootTime::now() + Duration::MAX), Duration::ZERO);
        assert_eq!((before + Duration::from_secs(5)).since(before), Duration::from_secs(5));
    }
}
