//! The queue of calls: which changes wait, how urgent they are, and which go together in one call.
//!
//! Changes that users wait for go together when they come within a tenth of a second, in calls of limited size, so that the
//! first doesn't wait for the last. All others go in as few calls as possible. Where the provider allows one call at a time,
//! Services share an object that each call writes once, so a call takes along all that is due within a second.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::work::Key;

/// How urgent a call is, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Priority {
    /// A user waits for it.
    User,
    /// It asks again about an operation in progress.
    Poll,
    /// It brings new targets, or removes an orphan.
    Targets,
    /// It checks that all is still as confirmed.
    Audit,
}

impl Priority {
    const ALL: [Self; 4] = [Self::User, Self::Poll, Self::Targets, Self::Audit];

    /// The priority as a field of logs.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Poll => "poll",
            Self::Targets => "targets",
            Self::Audit => "audit",
        }
    }

    /// How long a call waits for more changes after the first one is due. Polls have waited already.
    const fn batch_window(self) -> Duration {
        match self {
            Self::User => Duration::from_millis(100),
            Self::Poll => Duration::ZERO,
            Self::Targets | Self::Audit => Duration::from_secs(1),
        }
    }
}

/// The most changes in one of several concurrent calls for users.
const MAX_USER_CHANGES: usize = 100;

/// How far apart polls begin: a provider needs a read for each poll, regardless of its size. Where only one call may run,
/// this is the distance between all calls, users' changes gather up to this long while more come, and a poll goes along with
/// another call up to this much too early. Operations polled in turns, while the cloud writes the shared object, would have
/// it written in turns.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How many polls run concurrently, where calls may. A poll that waits for the cloud's write limit lasts until its deadline,
/// and meanwhile the other one serves the rest.
const MAX_POLLS: usize = 2;

/// How long an audit gives way to changes that users wait for. In the first audit after a start, Services that haven't had
/// their turn yet don't learn about Nodes that join or leave.
const MAX_AUDIT_DELAY: Duration = Duration::from_mins(1);

/// How calls may be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLimits {
    /// The most changes of one call.
    pub(super) max_changes: usize,
    /// How many calls for users may run concurrently; none where only one call of any kind may run.
    pub(super) concurrency: Option<usize>,
}

/// The changes that wait for a call, and how many calls are in flight.
#[derive(Debug)]
pub(super) struct WorkQueue {
    limits: CallLimits,
    waiting: BTreeMap<Priority, BTreeSet<(Instant, Key)>>,
    places: HashMap<Key, (Priority, Instant)>,
    in_flight: BTreeMap<Priority, usize>,
    /// Whether a list is in flight, which is a call as well.
    pub(super) is_listing: bool,
    /// When the last poll began; where only one call may run, the last call.
    last_poll: Option<Instant>,
}

impl WorkQueue {
    /// An empty queue.
    pub(super) fn new(limits: CallLimits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            places: HashMap::new(),
            in_flight: BTreeMap::new(),
            is_listing: false,
            last_poll: None,
        }
    }

    /// Makes an object wait with this priority until a time. It waits once: any former place in the queue is given up.
    pub(super) fn enqueue(&mut self, key: &Key, priority: Priority, ready_at: Instant) {
        self.remove(key);
        let is_early = priority == Priority::Poll && self.is_serial();
        let early = if is_early { POLL_INTERVAL } else { Duration::ZERO };
        let ready_at = ready_at.checked_sub(early).unwrap_or(ready_at);
        self.places.insert(key.clone(), (priority, ready_at));
        self.waiting.entry(priority).or_default().insert((ready_at, key.clone()));
    }

    /// Takes an object out of the queue.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some((priority, ready_at)) = self.places.remove(key)
            && let Some(waiting) = self.waiting.get_mut(&priority)
        {
            waiting.remove(&(ready_at, key.clone()));
        }
    }

    /// Takes the objects of the next call that may begin now.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Priority, Vec<Key>)> {
        let is_due = |priority: &Priority| self.due_at(*priority).is_some_and(|at| at <= now);
        let priority = Priority::ALL.into_iter().find(is_due)?;
        let mut keys = Vec::new();
        match self.limits.concurrency {
            Some(_) if priority == Priority::User => self.take(priority, now, MAX_USER_CHANGES, &mut keys),
            // All that is due goes along: an object that Services share is written once.
            None if priority != Priority::Audit => {
                for priority in [Priority::User, Priority::Poll, Priority::Targets] {
                    self.take(priority, now, usize::MAX, &mut keys);
                }
            }
            _ => self.take(priority, now, usize::MAX, &mut keys),
        }
        if priority == Priority::Poll || self.is_serial() {
            self.last_poll = Some(now);
        }
        *self.in_flight.entry(priority).or_default() += 1;
        Some((priority, keys))
    }

    /// What a refusal of targets is about: one Service, or all Services where they share an object.
    pub(super) fn subject<'a>(&self, uid: &'a str) -> Option<&'a str> {
        (!self.is_serial()).then_some(uid)
    }

    /// A call with this priority has ended.
    pub(super) fn on_call_ended(&mut self, priority: Priority) {
        if let Some(count) = self.in_flight.get_mut(&priority) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether a list may begin: after changes that users wait for, and where only one call may run, when none does.
    pub(super) fn can_list(&self, now: Instant) -> bool {
        let is_idle = !self.is_serial() || self.in_flight.values().all(|count| *count == 0);
        let is_user_waiting = self.earliest(Priority::User).is_some_and(|ready_at| ready_at <= now);
        !self.is_listing && is_idle && !is_user_waiting
    }

    /// When the next call may begin; none where nothing waits, or only the end of another call allows it.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        Priority::ALL.into_iter().filter_map(|priority| self.due_at(priority)).min()
    }

    /// Whether only one call may run.
    fn is_serial(&self) -> bool {
        self.limits.concurrency.is_none()
    }

    /// When the next call with a priority may begin, as far as the calls in flight allow it.
    fn due_at(&self, priority: Priority) -> Option<Instant> {
        let earliest = self.earliest(priority)?;
        let in_flight = |priority| self.in_flight.get(&priority).copied().unwrap_or_default();
        let has_room = match self.limits.concurrency {
            None => !self.is_listing && Priority::ALL.into_iter().all(|priority| in_flight(priority) == 0),
            Some(calls) if priority == Priority::User => in_flight(priority) < calls,
            Some(_) if priority == Priority::Poll => in_flight(priority) < MAX_POLLS,
            Some(_) => in_flight(priority) == 0,
        };
        let is_serial = self.is_serial();
        let is_gathering = is_serial && priority == Priority::User;
        let last = if is_gathering { self.latest_by(priority, earliest + POLL_INTERVAL)? } else { earliest };
        let gathered_at = last + priority.batch_window();
        let is_user_waiting = self.earliest(Priority::User).is_some_and(|user| user <= gathered_at);
        let gives_way = priority == Priority::Audit && is_user_waiting;
        let due_at = if gives_way { earliest + MAX_AUDIT_DELAY } else { gathered_at };
        let last_poll = self.last_poll.filter(|_| is_serial || priority == Priority::Poll);
        has_room.then_some(last_poll.map_or(due_at, |last_poll| due_at.max(last_poll + POLL_INTERVAL)))
    }

    /// When the first object with a priority is ready.
    fn earliest(&self, priority: Priority) -> Option<Instant> {
        Some(self.waiting.get(&priority)?.first()?.0)
    }

    /// When the last object is ready among those that are ready by a time. A later retry delays no other object.
    fn latest_by(&self, priority: Priority, by: Instant) -> Option<Instant> {
        let end = (by, Key::Service(String::new()));
        Some(self.waiting.get(&priority)?.range(..end).next_back()?.0)
    }

    /// Takes up to `max` objects that are ready, as far as they fit into a call.
    fn take(&mut self, priority: Priority, now: Instant, max: usize, keys: &mut Vec<Key>) {
        let Some(waiting) = self.waiting.get_mut(&priority) else { return };
        let max = max.min(self.limits.max_changes.saturating_sub(keys.len()));
        for _ in 0..max {
            match waiting.pop_first() {
                Some((ready_at, key)) if ready_at <= now => {
                    self.places.remove(&key);
                    keys.push(key);
                }
                Some(later) => {
                    waiting.insert(later);
                    return;
                }
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn queue(concurrency: Option<usize>) -> (WorkQueue, Instant) {
        (WorkQueue::new(CallLimits { max_changes: 3, concurrency }), Instant::now())
    }

    fn key(name: &str) -> Key {
        Key::Service(name.to_owned())
    }

    /// The next call, as its priority and the names of its objects.
    fn next(queue: &mut WorkQueue, now: Instant) -> Option<(Priority, String)> {
        let (priority, keys) = queue.next(now)?;
        let name = |key: &Key| match key {
            Key::Service(name) | Key::Orphan(name) => name.clone(),
        };
        Some((priority, keys.iter().map(name).collect()))
    }

    fn of(priority: Priority, names: &str) -> (Priority, String) {
        (priority, names.to_owned())
    }

    #[test]
    fn each_priority_gathers_from_its_first_object_and_takes_what_is_ready() {
        for (priority, gathering) in
            [(Priority::User, 100), (Priority::Poll, 0), (Priority::Targets, 1000), (Priority::Audit, 1000)]
        {
            let (mut queue, now) = queue(Some(1));
            queue.enqueue(&key("a"), priority, now);
            queue.enqueue(&key("b"), priority, now + MS * gathering);
            queue.enqueue(&key("c"), priority, now + MS * (gathering + 1));
            assert_eq!(queue.next_wake(), Some(now + MS * gathering), "{priority:?}");
            let early = (now + MS * gathering).checked_sub(MS).filter(|early| *early >= now);
            assert_eq!(early.and_then(|early| next(&mut queue, early)), None, "{priority:?}");
            assert_eq!(next(&mut queue, now + MS * gathering), Some(of(priority, "ab")), "{priority:?}");
            // The next poll begins a while after this one.
            let beside = (priority == Priority::Poll).then_some(now + POLL_INTERVAL);
            assert_eq!(queue.next_wake(), beside, "{priority:?}: one call is in flight");
            queue.on_call_ended(priority);
            assert!(queue.next_wake().is_some(), "{priority:?}");
        }
    }

    #[test]
    fn an_object_waits_in_one_place_only() {
        let (mut queue, now) = queue(Some(1));
        queue.enqueue(&key("a"), Priority::Targets, now);
        queue.enqueue(&key("a"), Priority::User, now + MS * 500);
        queue.enqueue(&key("b"), Priority::User, now);
        queue.remove(&key("b"));
        queue.remove(&key("c"));
        assert_eq!(queue.next_wake(), Some(now + MS * 600));
        assert_eq!(next(&mut queue, now + MS * 600), Some(of(Priority::User, "a")));
    }

    #[test]
    fn users_have_several_concurrent_calls_and_each_other_priority_starts_with_one() {
        let (mut queue, now) = queue(Some(2));
        for n in 0..9 {
            for priority in Priority::ALL {
                queue.enqueue(&key(&format!("{}{n}", priority.as_str())), priority, now);
            }
        }
        let later = now + Duration::from_secs(1);
        let mut begun = Vec::new();
        while let Some((priority, keys)) = queue.next(later) {
            assert_eq!(keys.len(), 3, "{priority:?}");
            begun.push(priority);
        }
        assert_eq!(begun, [Priority::User, Priority::User, Priority::Poll, Priority::Targets]);
        // The audit gives way to users, and polls keep their distance.
        assert_eq!(queue.next_wake(), Some(later + POLL_INTERVAL));
        queue.on_call_ended(Priority::User);
        assert_eq!(queue.next(later).map(|(priority, _)| priority), Some(Priority::User));
        assert_eq!(
            queue.next(later).map(|(priority, _)| priority),
            Some(Priority::Audit),
            "no user is waiting"
        );
    }

    #[test]
    fn one_slow_poll_leaves_room_for_another_and_two_do_not() {
        let (mut queue, now) = queue(Some(4));
        let seconds = |count| now + Duration::from_secs(count);
        queue.enqueue(&key("a"), Priority::Poll, now);
        assert_eq!(next(&mut queue, now), Some(of(Priority::Poll, "a")));
        queue.enqueue(&key("b"), Priority::Poll, now);
        assert_eq!((queue.next_wake(), next(&mut queue, seconds(1) - MS)), (Some(seconds(1)), None));
        assert_eq!(next(&mut queue, seconds(1)), Some(of(Priority::Poll, "b")));
        queue.enqueue(&key("c"), Priority::Poll, seconds(1));
        assert_eq!((queue.next_wake(), next(&mut queue, seconds(9))), (None, None), "two are in flight");
        queue.on_call_ended(Priority::Poll);
        assert_eq!(next(&mut queue, seconds(9)), Some(of(Priority::Poll, "c")));
    }

    #[test]
    fn an_audit_is_delayed_for_a_minute_at_most() {
        let (mut queue, now) = queue(Some(1));
        queue.enqueue(&key("a"), Priority::Audit, now);
        for n in 0..99 {
            queue.enqueue(&key(&n.to_string()), Priority::User, now);
        }
        let first = |queue: &mut WorkQueue, at| queue.next(at).map(|(priority, _)| priority);
        assert_eq!(first(&mut queue, now + MAX_AUDIT_DELAY - MS), Some(Priority::User));
        assert_eq!(first(&mut queue, now + MAX_AUDIT_DELAY - MS), None);
        assert_eq!(first(&mut queue, now + MAX_AUDIT_DELAY), Some(Priority::Audit));
    }

    #[test]
    fn a_serial_call_runs_alone_and_takes_along_what_is_ready() {
        let (mut queue, now) = queue(None);
        for (name, priority) in
            [("a", Priority::Audit), ("b", Priority::Targets), ("c", Priority::Poll), ("d", Priority::User)]
        {
            queue.enqueue(&key(name), priority, now);
        }
        let later = now + MS * 100;
        assert!(!queue.can_list(later), "a user waits");
        assert_eq!(next(&mut queue, later), Some(of(Priority::User, "dcb")));
        assert_eq!((queue.next_wake(), queue.can_list(later)), (None, false));
        queue.on_call_ended(Priority::User);
        assert_eq!(queue.next_wake(), Some(later + POLL_INTERVAL));
        assert!(queue.can_list(later));
        queue.is_listing = true;
        assert_eq!((queue.next_wake(), queue.can_list(later)), (None, false), "a list is a call");
        queue.is_listing = false;
        assert_eq!(next(&mut queue, later + POLL_INTERVAL), Some(of(Priority::Audit, "a")));
    }

    #[test]
    fn a_serial_call_takes_along_polls_up_to_a_second_early() {
        let (mut queue, now) =
            (WorkQueue::new(CallLimits { max_changes: 9, concurrency: None }), Instant::now());
        let at = |seconds: f64| now + Duration::from_secs_f64(seconds);
        for (name, priority, ready) in [
            ("a", Priority::User, 0.0),
            ("b", Priority::Poll, 1.1),
            ("c", Priority::Poll, 1.2),
            ("d", Priority::Poll, 1.0),
        ] {
            queue.enqueue(&key(name), priority, at(ready));
        }
        assert_eq!(next(&mut queue, at(0.1)), Some(of(Priority::User, "adb")));
        queue.on_call_ended(Priority::User);
        // The next call begins a second after this one did, and takes all together.
        queue.enqueue(&key("e"), Priority::User, at(0.2));
        for (name, ready) in [("a", 1.2), ("b", 2.1), ("d", 2.2)] {
            queue.enqueue(&key(name), Priority::Poll, at(ready));
        }
        assert_eq!((queue.next_wake(), next(&mut queue, at(1.0))), (Some(at(1.1)), None));
        assert_eq!(next(&mut queue, at(1.1)), Some(of(Priority::User, "eacb")));
        // After a long call there is no pause.
        queue.on_call_ended(Priority::User);
        queue.enqueue(&key("a"), Priority::Poll, at(8.0));
        assert_eq!(next(&mut queue, at(7.0)), Some(of(Priority::Poll, "da")));
    }

    #[test]
    fn before_a_serial_call_user_work_gathers_for_a_second_at_most() {
        for (came, fires) in
            [(&[0][..], 100), (&[0, 50, 140], 240), (&[0, 500, 990], 1090), (&[0, 50, 5000], 150)]
        {
            let (mut queue, now) = queue(None);
            for at in came {
                queue.enqueue(&key(&at.to_string()), Priority::User, now + MS * *at);
            }
            assert_eq!(queue.next_wake(), Some(now + MS * fires), "{came:?}");
        }
    }

    #[test]
    fn a_list_runs_concurrently_with_calls_where_the_provider_allows_it() {
        let (mut queue, now) = queue(Some(1));
        queue.enqueue(&key("a"), Priority::User, now);
        assert!(queue.next(now + MS * 100).is_some() && queue.can_list(now + MS * 100));
        queue.enqueue(&key("b"), Priority::User, now + MS * 200);
        assert!(queue.can_list(now + MS * 199) && !queue.can_list(now + MS * 200));
        queue.is_listing = true;
        assert!(!queue.can_list(now));
        queue.on_call_ended(Priority::User);
        assert_eq!(queue.next_wake(), Some(now + MS * 300));
    }
}
