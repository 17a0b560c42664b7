//! The fence: whether this process may change anything now, in the cluster or in the cloud.
//!
//! A leader may write until its renew deadline has passed since it *sent* its last successful renewal. Others take the
//! Lease over when they have seen it unchanged for the lease duration, which is longer, and they can't have seen a
//! renewal before it was sent. So two processes never may write at the same time, whatever stops, delays or loses
//! messages, as long as their clocks run at the same speed (to within a third, with the default durations).
//!
//! The clock is `CLOCK_BOOTTIME`. Like `CLOCK_MONOTONIC` nobody can set it, and it goes on while a process is stopped;
//! other than that one it also goes on while the machine is suspended, so that a laptop or a virtual machine that wakes
//! up finds its tenure over. A virtual machine that is paused by its hypervisor without being told sees neither clock
//! move; for it the other side's resourceVersions are all that is left.
//!
//! The check comes after all queueing, in the moment in which the bytes of a request are handed to the socket
//! ([`pileus_gate::Fence`]). What can't be closed is the instant between the check and the kernel's taking the bytes, and
//! then the network: a process that is stopped just there sends its one request when it goes on. Such a write has begun
//! under the old leader and counts as its own; the API server's resourceVersions and UIDs, and the cloud's own
//! conflicts, are what meets it.

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of this machine's own clock: how long it has been running then, suspended or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    /// The present moment.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(Duration::from_secs(seconds) + Duration::from_nanos(now.tv_nsec.unsigned_abs()))
    }

    /// How long it is from an earlier moment until this one; nothing if it is a later one.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    fn nanoseconds(self) -> u64 {
        // 584 years.
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Whether this process may write now. Clones share it; asking costs a clock reading.
#[derive(Debug, Clone)]
pub(crate) struct Tenure {
    /// Nanoseconds of [`Time`].
    until: Arc<AtomicU64>,
}

/// That of a tenure which nothing prolongs any more.
const ENDED: u64 = 0;

/// In the past of every process, too.
const NOT_BEGUN: u64 = 1;

impl Tenure {
    /// That of a process that doesn't lead.
    pub(crate) fn none() -> Self {
        Self { until: Arc::new(AtomicU64::new(NOT_BEGUN)) }
    }

    /// That of a process that has no rivals: it lasts until it is ended.
    pub(crate) fn unrivalled() -> Self {
        Self { until: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Whether writes are allowed at this moment.
    pub(crate) fn may_write(&self) -> bool {
        self.lasts_at(Time::now())
    }

    fn lasts_at(&self, now: Time) -> bool {
        now.nanoseconds() < self.until.load(Ordering::SeqCst)
    }

    /// Lets it last until then, unless it has been ended.
    pub(crate) fn lasts_until(&self, end: Time) {
        let prolong = |until| (until != ENDED).then_some(end.nanoseconds());
        let _unless_ended = self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, prolong);
    }

    /// Ends it, now and for good.
    pub(crate) fn end(&self) {
        self.until.store(ENDED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenure_lasts_until_its_end_and_not_a_nanosecond_longer() {
        let at = |nanoseconds| Time(Duration::from_nanos(nanoseconds));
        let tenure = Tenure::none();
        assert!(!tenure.lasts_at(at(1)) && !tenure.may_write());
        let shared = tenure.clone();
        tenure.lasts_until(at(1000));
        assert!(shared.lasts_at(at(999)) && !shared.lasts_at(at(1000)));
        tenure.end();
        assert!(!shared.lasts_at(at(999)));
        // An answer that comes late.
        tenure.lasts_until(at(2000));
        assert!(!shared.lasts_at(at(1000)), "ended for good");
        assert!(Tenure::unrivalled().may_write());
    }

    #[test]
    fn the_clock_goes_on_and_sums_saturate() {
        let before = Time::now();
        assert!(Time::now() >= before && before.0 > Duration::ZERO);
        assert_eq!(before.since(Time::now() + Duration::MAX), Duration::ZERO);
        assert_eq!((before + Duration::from_secs(5)).since(before), Duration::from_secs(5));
    }
}
