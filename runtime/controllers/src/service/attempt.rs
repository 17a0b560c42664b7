//! The attempt to take one step: whether it is in flight, when it may begin or go on, and how often it has failed.

use std::time::Duration;

use pileus_cloud::{Error as CloudError, ErrorKind};
use tokio::time::Instant;

use crate::schedule::Backoff;

/// How many failures pass between two reports of an error that a person has to fix: half an hour of retries, while the API
/// server keeps events for an hour. Reported with each retry, a thousand Services with an expired credential would cost 16
/// events a second.
const REPORT_EVERY: u32 = 32;

/// Whether work is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    None,
    /// It is, for the task of now.
    Current,
    /// It is, but the Service has changed since: its result says nothing about the task of now.
    Superseded,
}

/// What the cloud has begun and wants to be asked about again.
#[derive(Debug)]
struct Operation {
    /// The provider's note.
    resume: Option<String>,
    /// The targets for which the provider left the note; none for a deletion.
    targets: Option<u64>,
}

/// The attempt to take one step.
#[derive(Debug)]
pub(super) struct Attempt {
    flight: Flight,
    /// When the next work may begin.
    pub(super) ready_at: Instant,
    operation: Option<Operation>,
    /// How many times it has failed in a row.
    failures: u32,
}

impl Attempt {
    /// An attempt that may begin now.
    pub(super) fn new(now: Instant) -> Self {
        Self { flight: Flight::None, ready_at: now, operation: None, failures: 0 }
    }

    /// Whether work is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.flight != Flight::None
    }

    /// Whether the Service has changed since the work in flight began.
    pub(super) fn is_superseded(&self) -> bool {
        self.flight == Flight::Superseded
    }

    /// Whether the cloud has begun, so that the next call only asks about its progress.
    pub(super) fn is_in_progress(&self) -> bool {
        self.operation.is_some()
    }

    /// Work begins.
    pub(super) fn start(&mut self) {
        self.flight = Flight::Current;
    }

    /// The task is another one from now on: no failure, delay or note of the former one counts.
    pub(super) fn restart(&mut self, now: Instant) {
        let flight = if self.is_in_flight() { Flight::Superseded } else { Flight::None };
        *self = Self { flight, ..Self::new(now) };
    }

    /// The provider's note for a call with these targets, if it was left for the same ones.
    pub(super) fn resume(&self, targets: Option<u64>) -> Option<String> {
        let operation = self.operation.as_ref().filter(|operation| operation.targets == targets)?;
        operation.resume.clone()
    }

    /// Work ends. Returns whether its result counts for the task of now.
    pub(super) fn end(&mut self) -> bool {
        std::mem::replace(&mut self.flight, Flight::None) != Flight::Superseded
    }

    /// The cloud has begun and wants to be asked again after this time, but never in a tight loop. Failures stay counted, so
    /// that an operation that fails each time at its end is started ever less often.
    pub(super) fn poll_after(
        &mut self,
        after: Duration,
        resume: Option<String>,
        targets: Option<u64>,
        now: Instant,
    ) {
        self.operation = Some(Operation { resume, targets });
        self.ready_at = now + after.max(Backoff::default().soon);
    }

    /// The work has failed and is backed off. Returns whether to report it: ever less often, but an error that a person has
    /// to fix is reported as long as it lasts.
    pub(super) fn fail(&mut self, error: &CloudError, now: Instant, jitter: f64) -> bool {
        self.operation = None;
        let is_asked_to_wait = matches!(error.kind, ErrorKind::Throttled(Some(_)));
        if !is_asked_to_wait {
            self.failures = self.failures.saturating_add(1);
        }
        self.ready_at = now + Backoff::default().delay(error.kind.retry(), self.failures, jitter);
        match error.kind {
            ErrorKind::Throttled(Some(_)) => false,
            ErrorKind::Throttled(None) | ErrorKind::Unavailable(_) | ErrorKind::Conflict(_) => {
                self.failures.is_power_of_two()
            }
            ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Broken => {
                self.failures.is_power_of_two() || self.failures.is_multiple_of(REPORT_EVERY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_ever_less_often_and_those_a_person_has_to_fix_as_long_as_they_last() {
        let now = Instant::now();
        let asked = ErrorKind::Throttled(Some(Duration::from_secs(7)));
        let reported = |kind| {
            let mut attempt = Attempt::new(now);
            let error = CloudError::new(kind, "x");
            (1..=100).filter(|_| attempt.fail(&error, now, 0.0)).collect::<Vec<u32>>()
        };
        let (transient, lasting) = (vec![1, 2, 4, 8, 16, 32, 64], vec![1, 2, 4, 8, 16, 32, 64, 96]);
        for (kind, expected) in [
            (ErrorKind::Unavailable(None), &transient),
            (ErrorKind::Conflict(None), &transient),
            (ErrorKind::Throttled(None), &transient),
            (asked, &Vec::new()),
            (ErrorKind::Invalid, &lasting),
            (ErrorKind::Denied, &lasting),
            (ErrorKind::Broken, &lasting),
        ] {
            assert_eq!(reported(kind), *expected, "{kind:?}");
        }
        let mut attempt = Attempt::new(now);
        attempt.fail(&CloudError::new(asked, "x"), now, 0.0);
        assert_eq!((attempt.failures, attempt.ready_at), (0, now + Duration::from_secs(7)));
    }

    #[test]
    fn a_resume_note_serves_one_task_with_the_same_targets_until_a_failure() {
        let now = Instant::now();
        let mut attempt = Attempt::new(now);
        attempt.poll_after(Duration::ZERO, Some("note".to_owned()), Some(1), now);
        assert_eq!(attempt.ready_at, now + Duration::from_millis(100), "not in a tight loop");
        assert_eq!(
            [Some(1), Some(2), None].map(|targets| attempt.resume(targets).is_some()),
            [true, false, false]
        );
        attempt.fail(&CloudError::new(ErrorKind::Unavailable(None), "x"), now, 0.0);
        assert!(attempt.resume(Some(1)).is_none() && !attempt.is_in_progress());
        attempt.poll_after(Duration::ZERO, Some("note".to_owned()), None, now);
        assert!(attempt.is_in_progress() && attempt.resume(None).is_some());
        attempt.restart(now);
        assert!(attempt.resume(None).is_none() && !attempt.is_in_progress() && attempt.ready_at == now);
    }

    #[test]
    fn an_operation_that_fails_each_time_at_its_end_is_started_ever_less_often() {
        let mut now = Instant::now();
        let (mut attempt, start) = (Attempt::new(now), now);
        let error = CloudError::new(ErrorKind::Unavailable(None), "the operation has failed");
        let reported = (0..20).filter(|_| {
            attempt.poll_after(Duration::from_secs(5), None, None, now);
            now = attempt.ready_at;
            let is_reported = attempt.fail(&error, now, 0.0);
            now = attempt.ready_at;
            is_reported
        });
        assert_eq!(reported.count(), 5);
        assert!(now - start > Duration::from_mins(20), "{:?}", now - start);
    }

    #[test]
    fn the_result_of_superseded_work_does_not_count_for_the_next_task() {
        let now = Instant::now();
        let mut attempt = Attempt::new(now);
        attempt.restart(now);
        assert!(!attempt.is_in_flight());
        attempt.start();
        assert!(attempt.is_in_flight() && attempt.end() && !attempt.is_in_flight());
        attempt.start();
        attempt.restart(now);
        attempt.restart(now);
        assert!(attempt.is_in_flight() && !attempt.end() && !attempt.is_in_flight());
        attempt.start();
        assert!(attempt.end());
    }
}
