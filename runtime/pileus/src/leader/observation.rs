//! What a candidate knows of the Lease and of itself, and how that changes with what it reads, hears and writes. Pure, as
//! `decide` is: moments and random numbers are arguments.

use std::time::Duration;

use jiff::Timestamp;

use super::tenure::Time;

/// No duration that stands in a Lease is honoured beyond this: a slip must not leave a cluster without a leader for
/// years. The flags allow no longer one.
pub(crate) const LONGEST: Duration = Duration::from_hours(1);

/// The duration in a Lease that was released, in seconds.
pub(super) const RELEASED: i32 = 1;

/// How far retries of candidates are spread: one waits 1 to 2.2 retry periods, as with client-go.
pub(crate) const JITTER: f64 = 1.2;

/// One that competes for the Lease.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// What it writes as the holder's name, and nobody else does.
    pub(crate) identity: String,
    /// How long others wait that see no renewal.
    pub(crate) lease_duration: Duration,
    /// How long it leads without a renewal.
    pub(crate) renew_deadline: Duration,
    /// From one renewal to the next, and at least between two looks at what another holds.
    pub(crate) retry_period: Duration,
}

/// What stands in a Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Empty if nobody holds it.
    pub(crate) holder: String,
    /// The holder's lease duration in seconds, as it stands there.
    pub(crate) seconds: i32,
    /// When the holder became it.
    pub(crate) acquired: Option<Timestamp>,
    /// When it was last renewed.
    pub(crate) renewed: Option<Timestamp>,
    /// How often it has changed hands.
    pub(crate) transitions: i32,
}

/// What is known of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lease {
    /// It wasn't looked at yet.
    Unknown,
    /// It isn't there, and never was as far as is known.
    Absent,
    /// It was there, and this is what stood in it.
    Gone(Record),
    /// It is there.
    Present {
        /// Its resourceVersion.
        version: String,
        /// What stands in it.
        record: Record,
    },
}

/// What a candidate knows.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) lease: Lease,
    /// When what stands in the Lease was last seen to change.
    changed: Time,
    /// The newest version that was seen, so that a watch that lags isn't believed.
    newest: String,
    /// Whether the next step needs a new look.
    pub(super) is_stale: bool,
    /// When the next step is due.
    pub(super) due: Time,
    /// When the last write was sent that made it the holder or renewed that; none if it doesn't lead.
    pub(crate) led_since: Option<Time>,
}

impl Observation {
    /// What one knows that has just started.
    pub(crate) fn none(now: Time) -> Self {
        let (lease, newest) = (Lease::Unknown, String::new());
        Self { lease, changed: now, newest, is_stale: false, due: now, led_since: None }
    }

    /// Takes in what a read has found; the next step may follow at once. `jitter` is a number from 0 to 1.
    pub(crate) fn read(
        &mut self,
        found: Option<(String, Record)>,
        candidate: &Candidate,
        now: Time,
        jitter: f64,
    ) {
        if let Some((version, _)) = &found {
            self.newest.clone_from(version);
        }
        self.replace(found, now);
        self.is_stale = false;
        let free = self.free_from(candidate);
        if self.led_since.is_none() && now < free {
            self.look_again(free, candidate, now, jitter);
        }
    }

    /// Takes in what a watch tells: the Lease in this version, or that it was deleted then. What is older than what is
    /// known already is left aside; whether it isn't.
    pub(crate) fn watched(
        &mut self,
        version: &str,
        record: Option<Record>,
        candidate: &Candidate,
        now: Time,
        jitter: f64,
    ) -> bool {
        if !is_newer(version, &self.newest) || self.lease == Lease::Unknown {
            return false;
        }
        version.clone_into(&mut self.newest);
        let found = record.map(|record| (version.to_owned(), record));
        let has_changed = self.replace(found, now);
        if self.led_since.is_none() {
            self.look_again(self.free_from(candidate), candidate, now, jitter);
        } else if has_changed {
            // Somebody has meddled with it: what should stand there is written at once.
            self.due = now;
        }
        true
    }

    /// A write was accepted that made it the holder or renewed that.
    pub(crate) fn wrote(&mut self, sent: Time, version: String, record: Record, candidate: &Candidate) {
        self.newest.clone_from(&version);
        self.lease = Lease::Present { version, record };
        self.is_stale = false;
        self.due = sent + candidate.retry_period;
        self.led_since = Some(sent);
    }

    /// A write was refused, as the Lease has changed since it was looked at.
    pub(crate) fn conflicted(&mut self) {
        self.is_stale = true;
    }

    /// A request failed, or its answer didn't come.
    pub(crate) fn failed(&mut self, candidate: &Candidate, now: Time, jitter: f64) {
        self.is_stale = true;
        let factor = if self.led_since.is_some() { 1.0 } else { 1.0 + JITTER * jitter };
        self.due = now + candidate.retry_period.mul_f64(factor);
    }

    /// Who holds the Lease, as far as is known.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.lease {
            Lease::Present { record, .. } if !record.holder.is_empty() => Some(&record.holder),
            _ => None,
        }
    }

    /// Whether that is a change of what stands there.
    fn replace(&mut self, found: Option<(String, Record)>, now: Time) -> bool {
        let old = match &self.lease {
            Lease::Present { record, .. } => Some(record.clone()),
            Lease::Unknown | Lease::Absent | Lease::Gone(_) => None,
        };
        let has_changed = old.as_ref() != found.as_ref().map(|(_, record)| record);
        if has_changed {
            self.changed = now;
        }
        match (found, old) {
            (Some((version, record)), _) => self.lease = Lease::Present { version, record },
            (None, Some(old)) => self.lease = Lease::Gone(old),
            (None, None) if self.lease == Lease::Unknown => self.lease = Lease::Absent,
            (None, None) => {}
        }
        has_changed
    }

    /// From when on the Lease is surely nobody else's any more.
    pub(super) fn free_from(&self, candidate: &Candidate) -> Time {
        match &self.lease {
            Lease::Unknown | Lease::Absent => Time(Duration::ZERO),
            Lease::Present { record, .. } if record.is_released() => Time(Duration::ZERO),
            Lease::Present { record, .. } | Lease::Gone(record) => {
                let stands = Duration::from_secs(u64::try_from(record.seconds).unwrap_or_default());
                self.changed + stands.max(candidate.lease_duration).min(LONGEST)
            }
        }
    }

    /// When a candidate looks again: after a retry period and its jitter, or soon after the Lease becomes free, where
    /// the jitter keeps several from trying in the same instant.
    fn look_again(&mut self, free: Time, candidate: &Candidate, now: Time, jitter: f64) {
        let spread = candidate.retry_period.mul_f64(jitter / 10.0);
        let poll = now + candidate.retry_period.mul_f64(1.0 + JITTER * jitter);
        self.due = poll.min(free.max(now) + spread);
    }
}

impl Candidate {
    /// How long it waits for an answer: as upstream, so that there is time for a second try.
    pub(crate) fn patience(&self) -> Duration {
        self.renew_deadline.div_f64(2.0).max(Duration::from_secs(1))
    }

    /// What stands in a Lease that it has just taken.
    pub(super) fn record(&self, transitions: i32, wall: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            seconds: self.seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        }
    }

    /// Its lease duration in the unit of the Lease, rounded up: others may wait longer than needed, but no shorter.
    pub(super) fn seconds(&self) -> i32 {
        let whole = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(whole).unwrap_or(i32::MAX)
    }
}

impl Record {
    fn is_released(&self) -> bool {
        self.holder.is_empty() && self.seconds == RELEASED
    }
}

/// Whether a resourceVersion is newer than another; they are numbers that grow. In doubt it is.
fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => true,
    }
}

// What follows from what is known is shown by the tests of `decide`.
#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Time {
        Time(Duration::from_secs_f64(seconds))
    }

    fn candidate() -> Candidate {
        Candidate {
            identity: "a".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn held(holder: &str) -> Record {
        Record { holder: holder.to_owned(), seconds: 15, ..Record::default() }
    }

    /// What is known after this was read at the start.
    fn read(record: Option<Record>, jitter: f64) -> Observation {
        let mut known = Observation::none(seconds(0.0));
        let found = record.map(|record| ("5".to_owned(), record));
        known.read(found, &candidate(), seconds(0.0), jitter);
        known
    }

    #[test]
    fn the_holder_is_whose_name_stands_in_a_lease_that_is_there() {
        assert_eq!(Observation::none(seconds(0.0)).holder(), None);
        assert_eq!(read(None, 0.0).holder(), None);
        assert_eq!(read(Some(held("")), 0.0).holder(), None);
        let mut known = read(Some(held("b")), 0.0);
        assert_eq!(known.holder(), Some("b"));
        known.watched("6", None, &candidate(), seconds(1.0), 0.0);
        assert_eq!(known.holder(), None, "it was deleted");
    }

    #[test]
    fn candidates_look_again_after_1_to_2_2_retry_periods_and_soon_after_the_lease_is_free() {
        for (jitter, looks, tries) in [(0.0, 2.0, 15.0), (0.5, 3.2, 15.1), (1.0, 4.4, 15.2)] {
            let mut known = read(Some(held("b")), jitter);
            assert_eq!(known.due, seconds(looks), "jitter {jitter}");
            known.read(Some(("5".to_owned(), held("b"))), &candidate(), seconds(14.0), jitter);
            assert_eq!(known.due, seconds(tries), "jitter {jitter}");
            known.failed(&candidate(), seconds(14.0), jitter);
            assert_eq!(known.due, seconds(14.0 + looks), "jitter {jitter}");
        }
    }

    #[test]
    fn after_a_look_what_is_free_is_taken_at_once_and_what_is_ones_own_renewed_at_once() {
        let mut known = read(None, 1.0);
        assert_eq!(known.due, seconds(0.0), "free");
        known.wrote(seconds(0.0), "6".to_owned(), held("a"), &candidate());
        known.failed(&candidate(), seconds(2.0), 1.0);
        known.read(Some(("6".to_owned(), held("a"))), &candidate(), seconds(4.0), 1.0);
        assert_eq!(known.due, seconds(4.0), "its own");
    }

    #[test]
    fn what_a_watch_tells_late_or_before_the_first_look_is_left_aside() {
        let mut known = Observation::none(seconds(0.0));
        assert!(!known.watched("6", Some(held("b")), &candidate(), seconds(1.0), 0.0));
        let mut known = read(Some(held("b")), 0.0);
        for (version, is_news) in [("4", false), ("5", false), ("6", true), ("6", false), ("x", true)] {
            let told = known.watched(version, Some(held("b")), &candidate(), seconds(1.0), 0.0);
            assert_eq!(told, is_news, "{version}");
        }
    }

    #[test]
    fn a_duration_is_written_in_whole_seconds_and_never_too_short() {
        for (milliseconds, written) in [(15_000, 15), (14_001, 15), (14_999, 15)] {
            let lease_duration = Duration::from_millis(milliseconds);
            assert_eq!(Candidate { lease_duration, ..candidate() }.seconds(), written, "{milliseconds}");
        }
    }

    #[test]
    fn an_answer_is_waited_for_so_long_that_a_second_try_fits_in() {
        for (deadline, patience) in [(10_000, 5_000), (3_000, 1_500), (1_500, 1_000)] {
            let renew_deadline = Duration::from_millis(deadline);
            let got = Candidate { renew_deadline, ..candidate() }.patience();
            assert_eq!(got, Duration::from_millis(patience), "{deadline}");
        }
    }
}
