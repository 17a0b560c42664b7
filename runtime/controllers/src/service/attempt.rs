//! How the work on something fares: when it goes on, and what became of it before.

use std::time::Duration;

use pileus_cloud::{Error as CloudError, ErrorKind};
use tokio::time::Instant;

use crate::schedule::Delays;

/// How often what somebody has to put right fails until it is told again: half an hour of tries, while events are kept for
/// one. EventLog with each try, a thousand Services whose credential has expired would write 16 events a second.
const STANDING: u32 = 32;

/// Whether work is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    None,
    InFlight,
    /// It is, and there is another task by now.
    Overtaken,
}

/// How the work on something fares.
#[derive(Debug)]
pub(super) struct Attempt {
    work: Work,
    /// When the next step may begin.
    pub(super) ready: Instant,
    /// Whether the cloud is at it, so that the next step only asks after it.
    pub(super) is_under: bool,
    /// How often it has failed in a row.
    pub(super) failures: u32,
    /// The provider's note, and the targets for which it was left.
    resume: Option<(String, Option<u64>)>,
    /// Whether it has been told that this task has begun.
    pub(super) is_announced: bool,
    /// Whether it has been told that the cloud is at it.
    pub(super) is_pending_told: bool,
}

impl Attempt {
    /// A task that may begin now.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            work: Work::None,
            ready: now,
            is_under: false,
            failures: 0,
            resume: None,
            is_announced: false,
            is_pending_told: false,
        }
    }

    /// Whether work is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.work != Work::None
    }

    /// Work begins.
    pub(super) fn begins(&mut self) {
        self.work = Work::InFlight;
    }

    /// It is another task by now: no failure, delay or note of the old one counts.
    pub(super) fn renew(&mut self, now: Instant) {
        let work = if self.is_busy() { Work::Overtaken } else { Work::None };
        *self = Self { work, ..Self::new(now) };
    }

    /// The note for a call with these targets, if it was left for the same.
    pub(super) fn resume(&self, targets: Option<u64>) -> Option<String> {
        let (note, of) = self.resume.as_ref()?;
        (*of == targets).then(|| note.clone())
    }

    /// The work is over. Whether what became of it says anything about the next.
    pub(super) fn ends(&mut self) -> bool {
        std::mem::replace(&mut self.work, Work::None) != Work::Overtaken
    }

    /// The cloud is at it: to be asked again after this time. One that says "at once" for ever isn't asked in a tight loop, and
    /// one that fails each time at the end is begun ever less often: only success makes failures forgotten.
    pub(super) fn goes_on(
        &mut self,
        after: Duration,
        note: Option<String>,
        targets: Option<u64>,
        now: Instant,
    ) {
        self.is_under = true;
        self.ready = now + after.max(Delays::default().soon);
        self.resume = note.map(|note| (note, targets));
    }

    /// It has failed. Whether that is worth telling, which is ever less often; what somebody has to put right is told as long
    /// as it stands.
    pub(super) fn failed(&mut self, error: &CloudError, now: Instant, jitter: f64) -> bool {
        (self.is_under, self.resume) = (false, None);
        let is_asked_to_wait = matches!(error.kind, ErrorKind::Throttled(Some(_)));
        if !is_asked_to_wait {
            self.failures = self.failures.saturating_add(1);
        }
        self.ready = now + Delays::default().after(error.kind.retry(), self.failures, jitter);
        match error.kind {
            ErrorKind::Throttled(Some(_)) => false,
            ErrorKind::Throttled(None) | ErrorKind::Unavailable | ErrorKind::Conflict => {
                self.failures.is_power_of_two()
            }
            ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Broken => {
                self.failures.is_power_of_two() || self.failures.is_multiple_of(STANDING)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_ever_less_often_and_one_that_somebody_has_to_put_right_as_long_as_it_stands() {
        let now = Instant::now();
        let asked = ErrorKind::Throttled(Some(Duration::from_secs(7)));
        let told_of = |kind| {
            let mut turn = Attempt::new(now);
            let error = CloudError::new(kind, "x");
            (1..=100).filter(|_| turn.failed(&error, now, 0.0)).collect::<Vec<u32>>()
        };
        let (passes, stands) = (vec![1, 2, 4, 8, 16, 32, 64], vec![1, 2, 4, 8, 16, 32, 64, 96]);
        for (kind, told) in [
            (ErrorKind::Unavailable, &passes),
            (ErrorKind::Conflict, &passes),
            (ErrorKind::Throttled(None), &passes),
            (asked, &Vec::new()),
            (ErrorKind::Invalid, &stands),
            (ErrorKind::Denied, &stands),
            (ErrorKind::Broken, &stands),
        ] {
            assert_eq!(told_of(kind), *told, "{kind:?}");
        }
        let mut turn = Attempt::new(now);
        turn.failed(&CloudError::new(asked, "x"), now, 0.0);
        assert_eq!((turn.failures, turn.ready), (0, now + Duration::from_secs(7)));
    }

    #[test]
    fn a_note_is_for_one_task_with_the_same_targets_and_goes_with_a_failure() {
        let now = Instant::now();
        let mut turn = Attempt::new(now);
        turn.goes_on(Duration::ZERO, Some("note".to_owned()), Some(1), now);
        assert_eq!(turn.ready, now + Duration::from_millis(100), "not in a tight loop");
        assert_eq!(
            [Some(1), Some(2), None].map(|targets| turn.resume(targets).is_some()),
            [true, false, false]
        );
        turn.failed(&CloudError::new(ErrorKind::Unavailable, "x"), now, 0.0);
        assert!(turn.resume(Some(1)).is_none() && !turn.is_under);
        turn.goes_on(Duration::ZERO, Some("note".to_owned()), None, now);
        assert!(turn.is_under && turn.resume(None).is_some());
        turn.renew(now);
        assert!(turn.resume(None).is_none() && !turn.is_under && turn.ready == now);
    }

    #[test]
    fn what_fails_at_the_end_each_time_is_begun_ever_less_often() {
        let mut now = Instant::now();
        let (mut turn, start) = (Attempt::new(now), now);
        let error = CloudError::new(ErrorKind::Unavailable, "the operation has failed");
        let told = (0..20).filter(|_| {
            turn.goes_on(Duration::from_secs(5), None, None, now);
            now = turn.ready;
            let is_told = turn.failed(&error, now, 0.0);
            now = turn.ready;
            is_told
        });
        assert_eq!(told.count(), 5);
        assert!(now - start > Duration::from_mins(20), "{:?}", now - start);
    }

    #[test]
    fn what_becomes_of_an_overtaken_task_says_nothing_of_the_next() {
        let now = Instant::now();
        let mut turn = Attempt::new(now);
        turn.renew(now);
        assert!(!turn.is_busy());
        turn.begins();
        assert!(turn.is_busy() && turn.ends() && !turn.is_busy());
        turn.begins();
        turn.renew(now);
        turn.renew(now);
        assert!(turn.is_busy() && !turn.ends() && !turn.is_busy());
        turn.begins();
        assert!(turn.ends());
    }
}
