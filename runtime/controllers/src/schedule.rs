//! When to look at which object: the queue of a controller, as a pure structure.
//!
//! An object is waiting for its time, being worked on, or at rest. What changes while it is being worked on is looked
//! at again afterwards, so nothing is missed and no object is worked on twice at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pileus_cloud::Retry;
use tokio::time::Instant;

/// How long failed work is put off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delays {
    /// The first delay where a fresh read is likely to help, and the least that the cloud is given.
    pub(crate) soon: Duration,
    /// The first delay of other work; each further one is twice as long, here as there.
    pub(crate) first: Duration,
    /// The longest delay of work that keeps failing.
    pub(crate) longest: Duration,
    /// Where somebody has to act first.
    pub(crate) slow: Duration,
}

impl Default for Delays {
    /// Those of work that a user waits for.
    fn default() -> Self {
        Self {
            soon: Duration::from_millis(100),
            first: Duration::from_millis(500),
            longest: Duration::from_mins(2),
            slow: Duration::from_mins(1),
        }
    }
}

impl Delays {
    /// The delay after the n-th failure in a row, from 1. `jitter`, from 0 to 1, spreads what failed together.
    pub(crate) fn after(self, retry: Retry, failures: u32, jitter: f64) -> Duration {
        let Self { soon, first, longest, slow } = self;
        let doublings = failures.saturating_sub(1).min(16);
        let grown = |least: Duration| least.saturating_mul(1 << doublings).min(longest);
        match retry {
            Retry::After(after) => after.max(soon) + first.mul_f64(jitter),
            // Also what a fresh read should help with, where it doesn't.
            Retry::Soon => grown(soon).mul_f64(1.0 + jitter),
            Retry::Slowly => slow.mul_f64(1.0 + jitter / 2.0),
            Retry::WithBackoff | Retry::Uncertain => grown(first).mul_f64(1.0 + jitter / 2.0),
        }
    }
}

/// The objects that need a look, by name.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The objects that wait for their time. Busy ones aren't in here, so that nothing has to look past them.
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
    /// Whether the object is being worked on.
    pub(crate) fn is_busy(&self, name: &str) -> bool {
        self.objects.get(name).is_some_and(|entry| entry.is_busy)
    }

    /// The object has changed: look at it at `now`, or when the present work on it is done.
    pub(crate) fn changed(&mut self, name: &str, now: Instant) {
        self.wait_until(name, now);
    }

    /// The object is gone. Work on it that is under way ends by itself.
    pub(crate) fn gone(&mut self, name: &str) {
        if let Some(entry) = self.objects.get_mut(name) {
            if let Some(due) = entry.due.take() {
                self.due.remove(&(due, name.to_owned()));
            }
            if !entry.is_busy {
                self.objects.remove(name);
            }
        }
    }

    /// Takes up to `most` objects whose time has come, the longest waiting first; they are busy until they are
    /// `settled` or `failed`.
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

    /// The work on the object is done; look again after `again`, where given.
    pub(crate) fn settled(&mut self, name: &str, now: Instant, again: Option<Duration>) {
        let Some(entry) = self.objects.get_mut(name) else { return };
        entry.failures = 0;
        match (again, entry.due) {
            (None, None) => drop(self.objects.remove(name)),
            (None, Some(_)) => self.rest(name),
            (Some(after), _) => {
                self.rest(name);
                self.wait_until(name, now + after);
            }
        }
    }

    /// The work on the object failed. `jitter`, from 0 to 1, spreads what failed together. How often it has failed in
    /// a row.
    pub(crate) fn failed(
        &mut self,
        name: &str,
        now: Instant,
        retry: Retry,
        delays: Delays,
        jitter: f64,
    ) -> u32 {
        let Some(entry) = self.objects.get_mut(name) else { return 0 };
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        let after = delays.after(retry, failures, jitter);
        self.rest(name);
        self.wait_until(name, now + after);
        failures
    }

    /// When the next object's time comes. In the past where it has come.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// How many objects wait or are being worked on.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.objects.len()
    }

    /// The work on an object is over: what was put off meanwhile waits for its time again.
    fn rest(&mut self, name: &str) {
        if let Some(entry) = self.objects.get_mut(name) {
            entry.is_busy = false;
            self.due.extend(entry.due.map(|due| (due, name.to_owned())));
        }
    }

    /// An earlier time wins: what has changed is not made to wait for an old delay.
    fn wait_until(&mut self, name: &str, at: Instant) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(schedule: &mut Schedule, now: Instant) -> Vec<String> {
        schedule.take(now, usize::MAX)
    }

    #[test]
    fn what_changes_while_it_is_worked_on_is_looked_at_again() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.changed("a", now);
        schedule.changed("a", now);
        assert_eq!(names(&mut schedule, now), ["a"]);
        schedule.changed("a", now);
        assert!(names(&mut schedule, now).is_empty(), "never twice at once");
        assert_eq!(schedule.next(), None);
        schedule.settled("a", now, None);
        assert_eq!(names(&mut schedule, now), ["a"]);
        schedule.settled("a", now, None);
        assert_eq!((schedule.len(), schedule.next()), (0, None));
    }

    #[test]
    fn the_longest_waiting_come_first_and_no_more_than_asked_for() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.changed("late", now + Duration::from_secs(1));
        schedule.changed("b", now);
        schedule.changed("a", now - Duration::from_millis(1));
        assert_eq!(schedule.take(now, 1), ["a"]);
        assert_eq!(schedule.take(now, 9), ["b"]);
        assert_eq!(schedule.next(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn delays_grow_are_bounded_and_end_with_success() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        for (retry, first) in
            [(Retry::Soon, [100, 200, 400, 800]), (Retry::WithBackoff, [500, 1000, 2000, 4000])]
        {
            let mut delays = Vec::new();
            for _ in 0..20 {
                schedule.changed("a", now);
                schedule.take(now, 1);
                schedule.failed("a", now, retry, Delays::default(), 0.0);
                delays.push(schedule.next().unwrap() - now);
            }
            assert_eq!(delays[..4], first.map(Duration::from_millis), "{retry:?}");
            assert_eq!(delays[19], Delays::default().longest, "{retry:?}");
            schedule.changed("a", now);
            schedule.take(now, 1);
            schedule.settled("a", now, None);
        }
        schedule.changed("a", now);
        schedule.take(now, 1);
        assert_eq!(schedule.failed("a", now, Retry::WithBackoff, Delays::default(), 0.0), 1);
        assert_eq!(schedule.next(), Some(now + Delays::default().first));
    }

    #[test]
    fn the_clouds_own_time_is_kept_and_a_change_beats_a_delay() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.changed("a", now);
        schedule.take(now, 1);
        schedule.failed("a", now, Retry::After(Duration::from_secs(7)), Delays::default(), 1.0);
        assert!(schedule.next().unwrap() >= now + Duration::from_secs(7));
        schedule.changed("a", now);
        assert_eq!(schedule.next(), Some(now));
    }

    #[test]
    fn jitter_lengthens_a_delay_and_by_no_more_than_its_share() {
        let [soon, first, longest, slow] = [1, 10, 40, 100].map(Duration::from_secs);
        let delays = Delays { soon, first, longest, slow };
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
                schedule.changed("a", now);
                schedule.take(now, 1);
                schedule.failed("a", now, retry, delays, jitter);
                let expected = now + Duration::from_secs_f64(seconds);
                assert_eq!(schedule.next(), Some(expected), "{retry:?}, jitter {jitter}");
            }
        }
    }

    #[test]
    fn what_is_gone_is_forgotten_also_while_it_is_worked_on() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        schedule.changed("a", now);
        schedule.gone("a");
        assert_eq!((schedule.len(), schedule.next()), (0, None));
        schedule.changed("a", now);
        schedule.take(now, 1);
        schedule.changed("a", now);
        schedule.gone("a");
        schedule.settled("a", now, None);
        assert_eq!((schedule.len(), schedule.next()), (0, None));
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
        #[test]
        fn nothing_is_lost_and_nothing_is_worked_on_twice_at_once(steps in prop::collection::vec(any_step(), 0..60)) {
            let mut now = Instant::now();
            let mut schedule = Schedule::default();
            let mut busy = BTreeSet::new();
            let mut changed = BTreeSet::new(); // since it was last taken
            for step in steps {
                match step {
                    Step::Changed(n) => {
                        schedule.changed(&n.to_string(), now);
                        changed.insert(n.to_string());
                    }
                    Step::Gone(n) => {
                        schedule.gone(&n.to_string());
                        changed.remove(&n.to_string());
                    }
                    Step::Take(most) => {
                        for name in schedule.take(now, most) {
                            prop_assert!(busy.insert(name.clone()), "{name} is worked on twice");
                            changed.remove(&name);
                        }
                    }
                    Step::Settle(n, again) if busy.remove(&n.to_string()) => {
                        schedule.settled(&n.to_string(), now, again.map(Duration::from_millis));
                    }
                    Step::Fail(n) if busy.remove(&n.to_string()) => {
                        schedule.failed(&n.to_string(), now, Retry::WithBackoff, Delays::default(), 0.5);
                    }
                    Step::Settle(..) | Step::Fail(_) => {}
                    Step::Wait(ms) => now += Duration::from_millis(ms),
                }
            }
            for name in std::mem::take(&mut busy) {
                schedule.settled(&name, now, None);
            }
            let taken: BTreeSet<_> = schedule.take(now, usize::MAX).into_iter().collect();
            prop_assert!(changed.is_subset(&taken), "{changed:?} changed, {taken:?} were looked at");
        }
    }
}
