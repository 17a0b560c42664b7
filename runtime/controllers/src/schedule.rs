//! The work queue of a controller, ordered by due time, and the backoff after failures.
//!
//! An object waits for its due time, is being processed, or isn't in the queue. An object that changes while it is processed
//! is due again afterwards. So no change is lost, and no object is processed twice at once.
//!
//! Pure: the clock is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pileus_cloud::Retry;
use tokio::time::Instant;

/// The delays before failed work is retried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The first delay where a fresh read is likely to help. It is also the shortest pause before the cloud is called again.
    pub(crate) soon: Duration,
    /// The first delay of other work. Each further delay is twice as long, in both cases.
    pub(crate) first: Duration,
    /// The longest delay.
    pub(crate) longest: Duration,
    /// The delay where an operator has to act first.
    pub(crate) slow: Duration,
}

impl Default for Backoff {
    /// The backoff of work that a user waits for.
    fn default() -> Self {
        Self {
            soon: Duration::from_millis(100),
            first: Duration::from_millis(500),
            longest: Duration::from_mins(2),
            slow: Duration::from_mins(1),
        }
    }
}

impl Backoff {
    /// The delay after the n-th failure in a row, counted from 1. `jitter`, from 0 to 1, spreads work that failed together.
    pub(crate) fn delay(self, retry: Retry, failures: u32, jitter: f64) -> Duration {
        let Self { soon, first, longest, slow } = self;
        let doublings = failures.saturating_sub(1).min(16);
        let grown = |least: Duration| least.saturating_mul(1 << doublings).min(longest);
        match retry {
            Retry::After(after) => after.max(soon) + first.mul_f64(jitter),
            // The delay grows here, too, for the case that a fresh read doesn't help.
            Retry::Soon => grown(soon).mul_f64(1.0 + jitter),
            Retry::Slowly => slow.mul_f64(1.0 + jitter / 2.0),
            Retry::WithBackoff | Retry::Uncertain => grown(first).mul_f64(1.0 + jitter / 2.0),
        }
    }
}

/// The objects in the queue, by name.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The waiting objects by due time. Busy objects are left out, so that no search has to skip them.
    due: BTreeSet<(Instant, String)>,
    objects: BTreeMap<String, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    due: Option<Instant>,
    is_busy: bool,
    failures: u32,
}

impl Schedule {
    /// Whether the object is being processed.
    pub(crate) fn is_busy(&self, name: &str) -> bool {
        self.objects.get(name).is_some_and(|entry| entry.is_busy)
    }

    /// Adds an object that is due at `at`, or after its present processing if that ends later. An earlier due time wins: an
    /// object that has changed doesn't wait for an old delay.
    pub(crate) fn enqueue(&mut self, name: &str, at: Instant) {
        let entry = self.objects.entry(name.to_owned()).or_default();
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        let former = entry.due.replace(at);
        if entry.is_busy {
            return;
        }
        if let Some(due) = former {
            self.due.remove(&(due, name.to_owned()));
        }
        self.due.insert((at, name.to_owned()));
    }

    /// Removes an object that is gone. Processing that has begun ends by itself.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(entry) = self.objects.get_mut(name) {
            if let Some(due) = entry.due.take() {
                self.due.remove(&(due, name.to_owned()));
            }
            if !entry.is_busy {
                self.objects.remove(name);
            }
        }
    }

    /// Takes up to `most` objects that are due, the longest waiting first. They are busy until [`Schedule::on_success`] or
    /// [`Schedule::on_failure`].
    pub(crate) fn take(&mut self, now: Instant, most: usize) -> Vec<String> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, name)) = self.due.first().filter(|(due, _)| *due <= now).cloned()
        {
            self.due.pop_first();
            if let Some(entry) = self.objects.get_mut(&name) {
                entry.due = None;
                entry.is_busy = true;
                taken.push(name);
            }
        }
        taken
    }

    /// Ends the processing of an object. It is due again after `again`, if given.
    pub(crate) fn on_success(&mut self, name: &str, now: Instant, again: Option<Duration>) {
        let Some(entry) = self.objects.get_mut(name) else { return };
        entry.failures = 0;
        match (again, entry.due) {
            (None, None) => drop(self.objects.remove(name)),
            (None, Some(_)) => self.release(name),
            (Some(after), _) => {
                self.release(name);
                self.enqueue(name, now + after);
            }
        }
    }

    /// Ends the processing of an object that failed. Returns the number of failures in a row.
    pub(crate) fn on_failure(
        &mut self,
        name: &str,
        now: Instant,
        retry: Retry,
        backoff: Backoff,
        jitter: f64,
    ) -> u32 {
        let Some(entry) = self.objects.get_mut(name) else { return 0 };
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        let after = backoff.delay(retry, failures, jitter);
        self.release(name);
        self.enqueue(name, now + after);
        failures
    }

    /// The due time of the next object. It is in the past where an object is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The number of objects that wait or are busy.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.objects.len()
    }

    /// Marks an object as no longer busy, so that a due time set meanwhile counts.
    fn release(&mut self, name: &str) {
        if let Some(entry) = self.objects.get_mut(name) {
            entry.is_busy = false;
            self.due.extend(entry.due.map(|due| (due, name.to_owned())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm};

    fn names(schedule: &mut Schedule, now: Instant) -> Vec<String> {
        schedule.take(now, usize::MAX)
    }

    #[test]
    fn an_object_that_changes_while_it_is_busy_is_due_again() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.enqueue("a", now);
        schedule.enqueue("a", now);
        assert_eq!(names(&mut schedule, now), ["a"]);
        schedule.enqueue("a", now);
        assert!(names(&mut schedule, now).is_empty(), "never twice at once");
        assert_eq!(schedule.next_due(), None);
        schedule.on_success("a", now, None);
        assert_eq!(names(&mut schedule, now), ["a"]);
        schedule.on_success("a", now, None);
        assert_eq!((schedule.len(), schedule.next_due()), (0, None));
    }

    #[test]
    fn the_longest_waiting_come_first_up_to_the_limit() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.enqueue("late", now + Duration::from_secs(1));
        schedule.enqueue("b", now);
        schedule.enqueue("a", now - Duration::from_millis(1));
        assert_eq!(schedule.take(now, 1), ["a"]);
        assert_eq!(schedule.take(now, 9), ["b"]);
        assert_eq!(schedule.next_due(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn delays_grow_up_to_a_bound_and_reset_on_success() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for (retry, first) in
            [(Retry::Soon, [100, 200, 400, 800]), (Retry::WithBackoff, [500, 1000, 2000, 4000])]
        {
            let mut backoff = Vec::new();
            for _ in 0..20 {
                schedule.enqueue("a", now);
                schedule.take(now, 1);
                schedule.on_failure("a", now, retry, Backoff::default(), 0.0);
                backoff.push(schedule.next_due().unwrap() - now);
            }
            assert_eq!(backoff[..4], first.map(Duration::from_millis), "{retry:?}");
            assert_eq!(backoff[19], Backoff::default().longest, "{retry:?}");
            schedule.enqueue("a", now);
            schedule.take(now, 1);
            schedule.on_success("a", now, None);
        }
        schedule.enqueue("a", now);
        schedule.take(now, 1);
        assert_eq!(schedule.on_failure("a", now, Retry::WithBackoff, Backoff::default(), 0.0), 1);
        assert_eq!(schedule.next_due(), Some(now + Backoff::default().first));
    }

    #[test]
    fn retry_after_is_honored_and_a_change_overrides_a_delay() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.enqueue("a", now);
        schedule.take(now, 1);
        schedule.on_failure("a", now, Retry::After(Duration::from_secs(7)), Backoff::default(), 1.0);
        assert!(schedule.next_due().unwrap() >= now + Duration::from_secs(7));
        schedule.enqueue("a", now);
        assert_eq!(schedule.next_due(), Some(now));
    }

    #[test]
    fn jitter_lengthens_a_delay_up_to_its_share() {
        let [soon, first, longest, slow] = [1, 10, 40, 100].map(Duration::from_secs);
        let backoff = Backoff { soon, first, longest, slow };
        for (retry, seconds) in [
            (Retry::Soon, [1.0, 1.5, 2.0]),
            (Retry::After(Duration::ZERO), [1.0, 6.0, 11.0]),
            (Retry::After(Duration::from_secs(7)), [7.0, 12.0, 17.0]),
            (Retry::Slowly, [100.0, 125.0, 150.0]),
            (Retry::WithBackoff, [10.0, 12.5, 15.0]),
            (Retry::Uncertain, [10.0, 12.5, 15.0]),
        ] {
            for (jitter, seconds) in [0.0, 0.5, 1.0].into_iter().zip(seconds) {
                let now = Instant::now();
                let mut schedule = Schedule::default();
                schedule.enqueue("a", now);
                schedule.take(now, 1);
                schedule.on_failure("a", now, retry, backoff, jitter);
                let expected = now + Duration::from_secs_f64(seconds);
                assert_eq!(schedule.next_due(), Some(expected), "{retry:?}, jitter {jitter}");
            }
        }
    }

    #[test]
    fn an_object_that_is_gone_is_removed_even_while_it_is_busy() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.enqueue("a", now);
        schedule.remove("a");
        assert_eq!((schedule.len(), schedule.next_due()), (0, None));
        schedule.enqueue("a", now);
        schedule.take(now, 1);
        schedule.enqueue("a", now);
        schedule.remove("a");
        schedule.on_success("a", now, None);
        assert_eq!((schedule.len(), schedule.next_due()), (0, None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Changed(u8),
        Gone(u8),
        Take(usize),
        Settle(u8, Option<u64>),
        Fail(u8),
        Wait(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u8..4).prop_map(Step::Changed),
            (0_u8..4).prop_map(Step::Gone),
            (1_usize..4).prop_map(Step::Take),
            (0_u8..4, prop::option::of(0_u64..900)).prop_map(|(name, again)| Step::Settle(name, again)),
            (0_u8..4).prop_map(Step::Fail),
            (0_u64..1000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        // The generator that is the default takes most of the time: each alternative that isn't picked makes a new one.
        #![proptest_config(Config { rng_algorithm: RngAlgorithm::XorShift, ..Config::default() })]
        #[test]
        fn no_change_is_lost_and_no_object_is_busy_twice(steps in prop::collection::vec(any_step(), 0..60)) {
            let mut now = Instant::now();
            let mut schedule = Schedule::default();
            let mut busy = BTreeSet::new();
            let mut changed = BTreeSet::new(); // since it was last taken
            for step in steps {
                match step {
                    Step::Changed(n) => {
                        schedule.enqueue(&n.to_string(), now);
                        changed.insert(n.to_string());
                    }
                    Step::Gone(n) => {
                        schedule.remove(&n.to_string());
                        changed.remove(&n.to_string());
                    }
                    Step::Take(most) => {
                        for name in schedule.take(now, most) {
                            prop_assert!(busy.insert(name.clone()), "{name} is busy twice");
                            changed.remove(&name);
                        }
                    }
                    Step::Settle(n, again) if busy.remove(&n.to_string()) => {
                        schedule.on_success(&n.to_string(), now, again.map(Duration::from_millis));
                    }
                    Step::Fail(n) if busy.remove(&n.to_string()) => {
                        schedule.on_failure(&n.to_string(), now, Retry::WithBackoff, Backoff::default(), 0.5);
                    }
                    Step::Settle(..) | Step::Fail(_) => {}
                    Step::Wait(ms) => now += Duration::from_millis(ms),
                }
            }
            for name in std::mem::take(&mut busy) {
                schedule.on_success(&name, now, None);
            }
            let taken: BTreeSet<_> = schedule.take(now, usize::MAX).into_iter().collect();
            prop_assert!(changed.is_subset(&taken), "{changed:?} changed, {taken:?} were taken");
        }
    }
}
