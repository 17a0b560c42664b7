//! What waits for a call, by how urgent it is, and what goes together.
//!
//! What users wait for goes together that came within a tenth of a second, and in calls that aren't too long, so that the
//! first needn't wait for the last. What nobody waits for goes in as few calls as it fits into. Where only one call may
//! run, Services share an object that each call writes once: all that is due within a second goes along with it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::work::Key;

/// What a call is made of, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Priority {
    /// What a user waits for.
    User,
    /// What the cloud is at, asked after again.
    Again,
    /// New targets, and what nobody waits for.
    Targets,
    /// Whether all is still as it was.
    Audit,
}

impl Priority {
    const ALL: [Self; 4] = [Self::User, Self::Again, Self::Targets, Self::Audit];

    /// The priority as a metric label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Again => "again",
            Self::Targets => "targets",
            Self::Audit => "audit",
        }
    }

    /// How long it is gathered after the first has come. What the cloud is at has waited already; see [`WorkQueue::asked`].
    const fn gathering(self) -> Duration {
        match self {
            Self::User => Duration::from_millis(100),
            Self::Again => Duration::ZERO,
            Self::Targets | Self::Audit => Duration::from_secs(1),
        }
    }
}

/// The most changes of users in one of several calls side by side.
const TOGETHER: usize = 100;

/// How far apart calls begin that ask after what the cloud is at: a provider needs a read for each, however much it is
/// about. Where only one call may run, all calls begin so far apart, users' work gathers so long while more comes, and what
/// is to be asked after goes along with a call up to so much too soon: what asked in turns while the cloud writes the shared
/// object would have it written in turns.
const ASKING: Duration = Duration::from_secs(1);

/// How many such calls run side by side, where calls may. One that waits for the cloud's limit of writes takes until its
/// deadline, and meanwhile the others are asked after.
const ASKERS: usize = 2;

/// How long an audit lets what users wait for go first. Nodes that come and go meanwhile are told to nobody whose turn in an
/// audit after a start hasn't come yet.
const LAST: Duration = Duration::from_mins(1);

/// How calls may be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLimits {
    /// The most changes of one call.
    pub(super) largest: usize,
    /// How many calls for users may run side by side; none where only one call at all may run.
    pub(super) side_by_side: Option<usize>,
}

/// What waits.
#[derive(Debug)]
pub(super) struct WorkQueue {
    shape: CallLimits,
    waiting: BTreeMap<Priority, BTreeSet<(Instant, Key)>>,
    places: HashMap<Key, (Priority, Instant)>,
    in_flight: BTreeMap<Priority, usize>,
    /// Whether a list is under way, which is a call as well.
    pub(super) is_listing: bool,
    /// When the last call began that asked again; where only one may run, the last call.
    asked: Option<Instant>,
}

impl WorkQueue {
    /// Nothing waits.
    pub(super) fn new(shape: CallLimits) -> Self {
        Self {
            shape,
            waiting: BTreeMap::new(),
            places: HashMap::new(),
            in_flight: BTreeMap::new(),
            is_listing: false,
            asked: None,
        }
    }

    /// This waits in a priority until a time, and nowhere else.
    pub(super) fn enqueue(&mut self, key: &Key, priority: Priority, ready: Instant) {
        self.remove(key);
        let early = if priority == Priority::Again && self.is_one_by_one() { ASKING } else { Duration::ZERO };
        let ready = ready.checked_sub(early).unwrap_or(ready);
        self.places.insert(key.clone(), (priority, ready));
        self.waiting.entry(priority).or_default().insert((ready, key.clone()));
    }

    /// This waits no more.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some((priority, ready)) = self.places.remove(key)
            && let Some(waiting) = self.waiting.get_mut(&priority)
        {
            waiting.remove(&(ready, key.clone()));
        }
    }

    /// What the next call is made of that may begin now.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Priority, Vec<Key>)> {
        let fires = |priority: &Priority| self.fires_at(*priority).is_some_and(|at| at <= now);
        let priority = Priority::ALL.into_iter().find(fires)?;
        let mut keys = Vec::new();
        match self.shape.side_by_side {
            Some(_) if priority == Priority::User => self.take(priority, now, TOGETHER, &mut keys),
            // Whatever is ready goes along: where Services share an object it is written once.
            None if priority != Priority::Audit => {
                for priority in [Priority::User, Priority::Again, Priority::Targets] {
                    self.take(priority, now, usize::MAX, &mut keys);
                }
            }
            _ => self.take(priority, now, usize::MAX, &mut keys),
        }
        if priority == Priority::Again || self.is_one_by_one() {
            self.asked = Some(now);
        }
        *self.in_flight.entry(priority).or_default() += 1;
        Some((priority, keys))
    }

    /// A call is over.
    pub(super) fn on_call_ended(&mut self, priority: Priority) {
        if let Some(count) = self.in_flight.get_mut(&priority) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether a list may begin: not before what users wait for, nor beside a call where only one may run.
    pub(super) fn can_list(&self, now: Instant) -> bool {
        let is_idle = !self.is_one_by_one() || self.in_flight.values().all(|count| *count == 0);
        let is_user_waiting = self.first(Priority::User).is_some_and(|ready| ready <= now);
        !self.is_listing && is_idle && !is_user_waiting
    }

    /// When the next call may begin; none where nothing waits, or only for another call to end.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        Priority::ALL.into_iter().filter_map(|priority| self.fires_at(priority)).min()
    }

    /// Whether only one call may run.
    fn is_one_by_one(&self) -> bool {
        self.shape.side_by_side.is_none()
    }

    /// When a priority's next call may begin, as far as calls that are under way let it.
    fn fires_at(&self, priority: Priority) -> Option<Instant> {
        let first = self.first(priority)?;
        let in_flight = |priority| self.in_flight.get(&priority).copied().unwrap_or_default();
        let has_room = match self.shape.side_by_side {
            None => !self.is_listing && Priority::ALL.into_iter().all(|priority| in_flight(priority) == 0),
            Some(calls) if priority == Priority::User => in_flight(priority) < calls,
            Some(_) if priority == Priority::Again => in_flight(priority) < ASKERS,
            Some(_) => in_flight(priority) == 0,
        };
        let is_alone = self.is_one_by_one();
        let until =
            if is_alone && priority == Priority::User { self.last(priority, first + ASKING)? } else { first };
        let gathered = until + priority.gathering();
        let is_user_waiting = self.first(Priority::User).is_some_and(|user| user <= gathered);
        let fires = if priority == Priority::Audit && is_user_waiting { first + LAST } else { gathered };
        let asked = self.asked.filter(|_| is_alone || priority == Priority::Again);
        has_room.then_some(asked.map_or(fires, |asked| fires.max(asked + ASKING)))
    }

    fn first(&self, priority: Priority) -> Option<Instant> {
        Some(self.waiting.get(&priority)?.first()?.0)
    }

    /// When the last is ready that is so by then. What is tried again later keeps nobody waiting.
    fn last(&self, priority: Priority, by: Instant) -> Option<Instant> {
        let end = (by, Key::Service(String::new()));
        Some(self.waiting.get(&priority)?.range(..end).next_back()?.0)
    }

    /// Takes up to `most` of what is ready, as far as they fit into a call.
    fn take(&mut self, priority: Priority, now: Instant, most: usize, keys: &mut Vec<Key>) {
        let Some(waiting) = self.waiting.get_mut(&priority) else { return };
        let most = most.min(self.shape.largest.saturating_sub(keys.len()));
        for _ in 0..most {
            match waiting.pop_first() {
                Some((ready, key)) if ready <= now => {
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

    fn queue(side_by_side: Option<usize>) -> (WorkQueue, Instant) {
        (WorkQueue::new(CallLimits { largest: 3, side_by_side }), Instant::now())
    }

    fn key(name: &str) -> Key {
        Key::Service(name.to_owned())
    }

    /// The next call, as its priority and what it is made of.
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
    fn each_lane_gathers_from_the_first_that_came_and_takes_what_is_ready() {
        for (priority, gathering) in
            [(Priority::User, 100), (Priority::Again, 0), (Priority::Targets, 1000), (Priority::Audit, 1000)]
        {
            let (mut queue, now) = queue(Some(1));
            queue.enqueue(&key("a"), priority, now);
            queue.enqueue(&key("b"), priority, now + MS * gathering);
            queue.enqueue(&key("c"), priority, now + MS * (gathering + 1));
            assert_eq!(queue.next_wake(), Some(now + MS * gathering), "{priority:?}");
            let early = (now + MS * gathering).checked_sub(MS).filter(|early| *early >= now);
            assert_eq!(early.and_then(|early| next(&mut queue, early)), None, "{priority:?}");
            assert_eq!(next(&mut queue, now + MS * gathering), Some(of(priority, "ab")), "{priority:?}");
            // Another call that asks again begins no sooner than a while after this one.
            let beside = (priority == Priority::Again).then_some(now + ASKING);
            assert_eq!(queue.next_wake(), beside, "{priority:?}: one call is under way");
            queue.on_call_ended(priority);
            assert!(queue.next_wake().is_some(), "{priority:?}");
        }
    }

    #[test]
    fn what_is_put_elsewhere_or_removed_waits_no_more_where_it_was() {
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
    fn calls_side_by_side_are_as_many_for_users_and_one_at_first_for_each_other_lane() {
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
        assert_eq!(begun, [Priority::User, Priority::User, Priority::Again, Priority::Targets]);
        // The audit is behind what users wait for, and what asks again isn't asked at once.
        assert_eq!(queue.next_wake(), Some(later + ASKING));
        queue.on_call_ended(Priority::User);
        assert_eq!(queue.next(later).map(|(priority, _)| priority), Some(Priority::User));
        assert_eq!(
            queue.next(later).map(|(priority, _)| priority),
            Some(Priority::Audit),
            "no user waits any more"
        );
    }

    #[test]
    fn one_that_takes_long_to_be_asked_after_keeps_no_other_from_it_and_two_do() {
        let (mut queue, now) = queue(Some(4));
        let seconds = |count| now + Duration::from_secs(count);
        queue.enqueue(&key("a"), Priority::Again, now);
        assert_eq!(next(&mut queue, now), Some(of(Priority::Again, "a")));
        queue.enqueue(&key("b"), Priority::Again, now);
        assert_eq!((queue.next_wake(), next(&mut queue, seconds(1) - MS)), (Some(seconds(1)), None));
        assert_eq!(next(&mut queue, seconds(1)), Some(of(Priority::Again, "b")));
        queue.enqueue(&key("c"), Priority::Again, seconds(1));
        assert_eq!((queue.next_wake(), next(&mut queue, seconds(9))), (None, None), "two are under way");
        queue.on_call_ended(Priority::Again);
        assert_eq!(next(&mut queue, seconds(9)), Some(of(Priority::Again, "c")));
    }

    #[test]
    fn an_audit_is_not_put_off_for_ever() {
        let (mut queue, now) = queue(Some(1));
        queue.enqueue(&key("a"), Priority::Audit, now);
        for n in 0..99 {
            queue.enqueue(&key(&n.to_string()), Priority::User, now);
        }
        let first = |queue: &mut WorkQueue, at| queue.next(at).map(|(priority, _)| priority);
        assert_eq!(first(&mut queue, now + LAST - MS), Some(Priority::User));
        assert_eq!(first(&mut queue, now + LAST - MS), None);
        assert_eq!(first(&mut queue, now + LAST), Some(Priority::Audit));
    }

    #[test]
    fn where_one_call_may_run_it_runs_alone_and_takes_along_what_is_ready() {
        let (mut queue, now) = queue(None);
        for (name, priority) in
            [("a", Priority::Audit), ("b", Priority::Targets), ("c", Priority::Again), ("d", Priority::User)]
        {
            queue.enqueue(&key(name), priority, now);
        }
        let later = now + MS * 100;
        assert!(!queue.can_list(later), "a user waits");
        assert_eq!(next(&mut queue, later), Some(of(Priority::User, "dcb")));
        assert_eq!((queue.next_wake(), queue.can_list(later)), (None, false));
        queue.on_call_ended(Priority::User);
        assert_eq!(queue.next_wake(), Some(later + ASKING));
        assert!(queue.can_list(later));
        queue.is_listing = true;
        assert_eq!((queue.next_wake(), queue.can_list(later)), (None, false), "a list is a call");
        queue.is_listing = false;
        assert_eq!(next(&mut queue, later + ASKING), Some(of(Priority::Audit, "a")));
    }

    #[test]
    fn where_one_call_may_run_what_the_cloud_is_at_goes_along_up_to_a_second_too_soon() {
        let (mut queue, now) =
            (WorkQueue::new(CallLimits { largest: 9, side_by_side: None }), Instant::now());
        let at = |seconds: f64| now + Duration::from_secs_f64(seconds);
        for (name, priority, ready) in [
            ("a", Priority::User, 0.0),
            ("b", Priority::Again, 1.1),
            ("c", Priority::Again, 1.2),
            ("d", Priority::Again, 1.0),
        ] {
            queue.enqueue(&key(name), priority, at(ready));
        }
        assert_eq!(next(&mut queue, at(0.1)), Some(of(Priority::User, "adb")));
        queue.on_call_ended(Priority::User);
        // The next call begins a second after this one did, and brings all together, whoever came first.
        queue.enqueue(&key("e"), Priority::User, at(0.2));
        for (name, ready) in [("a", 1.2), ("b", 2.1), ("d", 2.2)] {
            queue.enqueue(&key(name), Priority::Again, at(ready));
        }
        assert_eq!((queue.next_wake(), next(&mut queue, at(1.0))), (Some(at(1.1)), None));
        assert_eq!(next(&mut queue, at(1.1)), Some(of(Priority::User, "eacb")));
        // After one that has taken long there is no pause.
        queue.on_call_ended(Priority::User);
        queue.enqueue(&key("a"), Priority::Again, at(8.0));
        assert_eq!(next(&mut queue, at(7.0)), Some(of(Priority::Again, "da")));
    }

    #[test]
    fn where_one_call_may_run_users_work_gathers_while_more_comes_but_for_a_second() {
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
    fn a_list_runs_beside_calls_where_they_may_run_side_by_side() {
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
