//! What a candidate knows about the Lease, and how reads, watch events and writes change that. Pure: times and random
//! numbers are arguments.

use std::time::Duration;

use jiff::Timestamp;

use super::term::BootTime;
use crate::cli::MAX_LEASE_DURATION;

/// The lease duration of a released Lease, in seconds.
pub(super) const RELEASED: i32 = 1;

/// The spread of a candidate's retries: it waits 1 to 2.2 retry periods, as in client-go.
pub(crate) const JITTER: f64 = 1.2;

/// By how much the clocks of two replicas may differ when the time in a record is compared. Where they differ by more, a limit
/// starts with too much once.
const CLOCK_SKEW: Duration = Duration::from_secs(1);

/// A process that competes for the Lease.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The unique name that it writes as the holder.
    pub(crate) identity: String,
    /// How long other candidates wait without seeing a renewal.
    pub(crate) lease_duration: Duration,
    /// How long it leads without renewing.
    pub(crate) renew_deadline: Duration,
    /// The time between renewals, and the shortest time between reads of a Lease that another holds.
    pub(crate) retry_period: Duration,
}

/// The content of a Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// Empty if the Lease has no holder.
    pub(crate) holder: String,
    /// The holder's lease duration in seconds, unchecked.
    pub(crate) seconds: i32,
    /// When the holder acquired it.
    pub(crate) acquired: Option<Timestamp>,
    /// When it was last renewed.
    pub(crate) renewed: Option<Timestamp>,
    /// How often the holder has changed.
    pub(crate) transitions: i32,
}

/// What a candidate knows about the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// It has not been read.
    Unknown,
    /// It doesn't exist, and the candidate has never seen it.
    Absent,
    /// It was deleted; this was its last content.
    Gone(LeaseRecord),
    /// It exists.
    Present {
        /// Its resourceVersion.
        version: String,
        /// Its content.
        record: LeaseRecord,
    },
}

/// What a candidate knows, and when it acts next.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) lease: LeaseState,
    /// When the content was last seen to change.
    changed_at: BootTime,
    /// The newest version that was seen. Older watch events are ignored.
    newest_version: String,
    /// Whether the next action must be a read.
    pub(super) is_stale: bool,
    /// When the next action is due.
    pub(super) due: BootTime,
    /// When the candidate sent its last successful write; none if it doesn't lead.
    pub(crate) led_since: Option<BootTime>,
}

impl Observation {
    /// The observation of a candidate that has just started.
    pub(crate) fn none(now: BootTime) -> Self {
        let (lease, newest_version) = (LeaseState::Unknown, String::new());
        Self { lease, changed_at: now, newest_version, is_stale: false, due: now, led_since: None }
    }

    /// Records what a read found. The next action may follow at once. `jitter` is from 0 to 1.
    pub(crate) fn on_read(
        &mut self,
        found: Option<(String, LeaseRecord)>,
        candidate: &Candidate,
        now: BootTime,
        jitter: f64,
    ) {
        if let Some((version, _)) = &found {
            self.newest_version.clone_from(version);
        }
        self.replace(found, now);
        self.is_stale = false;
        let free = self.free_from(candidate);
        if self.led_since.is_none() && now < free {
            self.schedule_read(free, candidate, now, jitter);
        }
    }

    /// Records a watch event: the Lease in this version, or its deletion. Returns whether the event is news; older
    /// events are ignored.
    pub(crate) fn on_watch_event(
        &mut self,
        version: &str,
        record: Option<LeaseRecord>,
        candidate: &Candidate,
        now: BootTime,
        jitter: f64,
    ) -> bool {
        if !is_newer(version, &self.newest_version) || self.lease == LeaseState::Unknown {
            return false;
        }
        version.clone_into(&mut self.newest_version);
        let found = record.map(|record| (version.to_owned(), record));
        let has_changed = self.replace(found, now);
        if self.led_since.is_none() {
            self.schedule_read(self.free_from(candidate), candidate, now, jitter);
        } else if has_changed {
            // Another client has changed the Lease, so the leader corrects it at once.
            self.due = now;
        }
        true
    }

    /// Records that a write was accepted: the candidate leads.
    pub(crate) fn on_write(
        &mut self,
        sent: BootTime,
        version: String,
        record: LeaseRecord,
        candidate: &Candidate,
    ) {
        self.newest_version.clone_from(&version);
        self.lease = LeaseState::Present { version, record };
        self.is_stale = false;
        self.due = sent + candidate.retry_period;
        self.led_since = Some(sent);
    }

    /// Records that a write was refused because the Lease has changed since it was read.
    pub(crate) fn on_conflict(&mut self) {
        self.is_stale = true;
    }

    /// Records that a request failed or got no answer.
    pub(crate) fn on_failure(&mut self, candidate: &Candidate, now: BootTime, jitter: f64) {
        self.is_stale = true;
        let factor = if self.led_since.is_some() { 1.0 } else { 1.0 + JITTER * jitter };
        self.due = now + candidate.retry_period.mul_f64(factor);
    }

    /// The holder of the Lease, as far as known.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.lease {
            LeaseState::Present { record, .. } if !record.holder.is_empty() => Some(&record.holder),
            _ => None,
        }
    }

    /// How long a former leader has certainly done nothing, if this candidate takes the Lease now. `None` if none has ever held
    /// it, as far as is known. A leader that hasn't released the Lease may have worked until it expired. `wall` is compared with
    /// the time in the record, for what happened before the candidate looked.
    pub(crate) fn predecessor_idle(
        &self,
        candidate: &Candidate,
        now: BootTime,
        wall: Timestamp,
    ) -> Option<Duration> {
        let (record, works_on) = match &self.lease {
            LeaseState::Unknown | LeaseState::Absent => return None,
            LeaseState::Present { record, .. } if record.is_released() => (record, Duration::ZERO),
            LeaseState::Present { record, .. } | LeaseState::Gone(record) => {
                (record, record.duration(candidate))
            }
        };
        let seen = now.since(self.changed_at);
        let written = record.renewed.map_or(Duration::ZERO, |renewed| {
            let ago = wall.duration_since(renewed);
            Duration::try_from(ago).unwrap_or_default().saturating_sub(CLOCK_SKEW)
        });
        Some(seen.max(written).saturating_sub(works_on))
    }

    /// Replaces the known Lease. Returns whether its content has changed.
    fn replace(&mut self, found: Option<(String, LeaseRecord)>, now: BootTime) -> bool {
        let old = match &self.lease {
            LeaseState::Present { record, .. } => Some(record.clone()),
            LeaseState::Unknown | LeaseState::Absent | LeaseState::Gone(_) => None,
        };
        let has_changed = old.as_ref() != found.as_ref().map(|(_, record)| record);
        if has_changed {
            self.changed_at = now;
        }
        match (found, old) {
            (Some((version, record)), _) => self.lease = LeaseState::Present { version, record },
            (None, Some(old)) => self.lease = LeaseState::Gone(old),
            (None, None) if self.lease == LeaseState::Unknown => self.lease = LeaseState::Absent,
            (None, None) => {}
        }
        has_changed
    }

    /// When the Lease is certainly free for the candidate.
    pub(super) fn free_from(&self, candidate: &Candidate) -> BootTime {
        match &self.lease {
            LeaseState::Unknown | LeaseState::Absent => BootTime(Duration::ZERO),
            LeaseState::Present { record, .. } if record.is_released() => BootTime(Duration::ZERO),
            LeaseState::Present { record, .. } | LeaseState::Gone(record) => {
                self.changed_at + record.duration(candidate)
            }
        }
    }

    /// Schedules the next read: after a jittered retry period, or soon after the Lease becomes free. The jitter keeps
    /// several candidates from trying at the same time.
    fn schedule_read(&mut self, free: BootTime, candidate: &Candidate, now: BootTime, jitter: f64) {
        let spread = candidate.retry_period.mul_f64(jitter / 10.0);
        let poll = now + candidate.retry_period.mul_f64(1.0 + JITTER * jitter);
        self.due = poll.min(free.max(now) + spread);
    }
}

impl Candidate {
    /// The timeout of a request. As upstream, it leaves time for a second try.
    pub(crate) fn timeout(&self) -> Duration {
        self.renew_deadline.div_f64(2.0).max(Duration::from_secs(1))
    }

    /// The record with which the candidate takes the Lease.
    pub(super) fn record(&self, transitions: i32, wall: Timestamp) -> LeaseRecord {
        LeaseRecord {
            holder: self.identity.clone(),
            seconds: self.seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        }
    }

    /// The lease duration in whole seconds, rounded up: other candidates may wait longer than needed, but never shorter.
    pub(super) fn seconds(&self) -> i32 {
        let whole = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(whole).unwrap_or(i32::MAX)
    }
}

impl LeaseRecord {
    fn is_released(&self) -> bool {
        self.holder.is_empty() && self.seconds == RELEASED
    }

    /// How long after its last change the Lease is held.
    fn duration(&self, candidate: &Candidate) -> Duration {
        let written = Duration::from_secs(u64::try_from(self.seconds).unwrap_or_default());
        written.max(candidate.lease_duration).min(MAX_LEASE_DURATION)
    }
}

/// Whether a resourceVersion is newer than another. They are increasing numbers; anything else counts as newer.
fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => true,
    }
}

// The tests of `decide` show which actions follow from an observation.
#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> BootTime {
        BootTime(Duration::from_secs_f64(seconds))
    }

    fn candidate() -> Candidate {
        Candidate {
            identity: "a".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn held(holder: &str) -> LeaseRecord {
        LeaseRecord { holder: holder.to_owned(), seconds: 15, ..LeaseRecord::default() }
    }

    /// The observation after reading this at the start.
    fn read(record: Option<LeaseRecord>, jitter: f64) -> Observation {
        let mut known = Observation::none(seconds(0.0));
        let found = record.map(|record| ("5".to_owned(), record));
        known.on_read(found, &candidate(), seconds(0.0), jitter);
        known
    }

    #[test]
    fn only_an_existing_lease_has_a_holder() {
        assert_eq!(Observation::none(seconds(0.0)).holder(), None);
        assert_eq!(read(None, 0.0).holder(), None);
        assert_eq!(read(Some(held("")), 0.0).holder(), None);
        let mut known = read(Some(held("b")), 0.0);
        assert_eq!(known.holder(), Some("b"));
        known.on_watch_event("6", None, &candidate(), seconds(1.0), 0.0);
        assert_eq!(known.holder(), None, "it was deleted");
    }

    #[test]
    fn candidates_read_after_1_to_2_2_retry_periods_and_soon_after_the_lease_is_free() {
        for (jitter, reads, tries) in [(0.0, 2.0, 15.0), (0.5, 3.2, 15.1), (1.0, 4.4, 15.2)] {
            let mut known = read(Some(held("b")), jitter);
            assert_eq!(known.due, seconds(reads), "jitter {jitter}");
            known.on_read(Some(("5".to_owned(), held("b"))), &candidate(), seconds(14.0), jitter);
            assert_eq!(known.due, seconds(tries), "jitter {jitter}");
            known.on_failure(&candidate(), seconds(14.0), jitter);
            assert_eq!(known.due, seconds(14.0 + reads), "jitter {jitter}");
        }
    }

    #[test]
    fn after_a_read_a_free_lease_is_taken_and_an_own_lease_renewed_at_once() {
        let mut known = read(None, 1.0);
        assert_eq!(known.due, seconds(0.0), "free");
        known.on_write(seconds(0.0), "6".to_owned(), held("a"), &candidate());
        known.on_failure(&candidate(), seconds(2.0), 1.0);
        known.on_read(Some(("6".to_owned(), held("a"))), &candidate(), seconds(4.0), 1.0);
        assert_eq!(known.due, seconds(4.0), "held by the candidate itself");
    }

    #[test]
    fn a_predecessor_is_idle_since_it_released_the_lease_or_the_lease_expired() {
        let wall: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let renewed = |ago: i64, record: LeaseRecord| LeaseRecord {
            renewed: Some(wall - jiff::SignedDuration::from_secs(ago)),
            ..record
        };
        let released = || LeaseRecord { seconds: RELEASED, ..held("") };
        // The record at the first read, how long ago that was, and how long the predecessor has been idle.
        for (record, read_ago, expected) in [
            (None, 5.0, None),
            (Some(released()), 0.0, Some(0)),
            (Some(released()), 5.0, Some(5)),
            (Some(renewed(3, released())), 0.0, Some(2)),
            (Some(renewed(3600, released())), 1.0, Some(3599)),
            (Some(renewed(-60, released())), 1.0, Some(1)), // the clocks differ
            (Some(renewed(0, held("b"))), 15.0, Some(0)),
            (Some(renewed(0, held("b"))), 20.0, Some(5)),
            (Some(renewed(3600, held("b"))), 15.0, Some(3584)),
            (Some(renewed(3600, LeaseRecord { seconds: 600, ..held("b") })), 600.0, Some(2999)),
        ] {
            let known = read(record.clone(), 0.0);
            let idle = known.predecessor_idle(&candidate(), seconds(read_ago), wall);
            assert_eq!(idle.map(|idle| idle.as_secs()), expected, "{record:?} read {read_ago} s ago");
        }
        let mut known = read(Some(held("b")), 0.0);
        known.on_watch_event("6", None, &candidate(), seconds(1.0), 0.0);
        let idle = known.predecessor_idle(&candidate(), seconds(17.0), wall);
        assert_eq!(idle, Some(Duration::from_secs(1)), "deleted");
    }

    #[test]
    fn stale_events_and_events_before_the_first_read_are_ignored() {
        let mut known = Observation::none(seconds(0.0));
        assert!(!known.on_watch_event("6", Some(held("b")), &candidate(), seconds(1.0), 0.0));
        let mut known = read(Some(held("b")), 0.0);
        for (version, is_news) in [("4", false), ("5", false), ("6", true), ("6", false), ("x", true)] {
            let accepted = known.on_watch_event(version, Some(held("b")), &candidate(), seconds(1.0), 0.0);
            assert_eq!(accepted, is_news, "{version}");
        }
    }

    #[test]
    fn a_lease_duration_is_rounded_up_to_whole_seconds() {
        for (milliseconds, written) in [(15_000, 15), (14_001, 15), (14_999, 15)] {
            let lease_duration = Duration::from_millis(milliseconds);
            assert_eq!(Candidate { lease_duration, ..candidate() }.seconds(), written, "{milliseconds}");
        }
    }

    #[test]
    fn the_timeout_leaves_time_for_a_second_try() {
        for (deadline, timeout) in [(10_000, 5_000), (3_000, 1_500), (1_500, 1_000)] {
            let renew_deadline = Duration::from_millis(deadline);
            let got = Candidate { renew_deadline, ..candidate() }.timeout();
            assert_eq!(got, Duration::from_millis(timeout), "{deadline}");
        }
    }
}
