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
pub(super) enum Lane {
    /// What a user waits for.
    User,
    /// What the cloud is at, asked after again.
    Again,
    /// New targets, and what nobody waits for.
    Targets,
    /// Whether all is still as it was.
    Audit,
}

impl Lane {
    const ALL: [Self; 4] = [Self::User, Self::Again, Self::Targets, Self::Audit];

    /// The lane as a metric label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Again => "again",
            Self::Targets => "targets",
            Self::Audit => "audit",
        }
    }

    /// How long it is gathered after the first has come. What the cloud is at has waited already; see [`Lanes::asked`].
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
pub(super) struct Shape {
    /// The most changes of one call.
    pub(super) largest: usize,
    /// How many calls for users may run side by side; none where only one call at all may run.
    pub(super) side_by_side: Option<usize>,
}

/// What waits.
#[derive(Debug)]
pub(super) struct Lanes {
    shape: Shape,
    waiting: BTreeMap<Lane, BTreeSet<(Instant, Key)>>,
    places: HashMap<Key, (Lane, Instant)>,
    under_way: BTreeMap<Lane, usize>,
    /// Whether a list is under way, which is a call as well.
    pub(super) is_listing: bool,
    /// When the last call began that asked again; where only one may run, the last call.
    asked: Option<Instant>,
}

impl Lanes {
    /// Nothing waits.
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            waiting: BTreeMap::new(),
            places: HashMap::new(),
            under_way: BTreeMap::new(),
            is_listing: false,
            asked: None,
        }
    }

    /// This waits in a lane until a time, and nowhere else.
    pub(super) fn put(&mut self, key: &Key, lane: Lane, ready: Instant) {
        self.remove(key);
        let early = if lane == Lane::Again && self.is_one_by_one() { ASKING } else { Duration::ZERO };
        let ready = ready.checked_sub(early).unwrap_or(ready);
        self.places.insert(key.clone(), (lane, ready));
        self.waiting.entry(lane).or_default().insert((ready, key.clone()));
    }

    /// This waits no more.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some((lane, ready)) = self.places.remove(key)
            && let Some(waiting) = self.waiting.get_mut(&lane)
        {
            waiting.remove(&(ready, key.clone()));
        }
    }

    /// What the next call is made of that may begin now.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Lane, Vec<Key>)> {
        let fires = |lane: &Lane| self.fires_at(*lane).is_some_and(|at| at <= now);
        let lane = Lane::ALL.into_iter().find(fires)?;
        let mut keys = Vec::new();
        match self.shape.side_by_side {
            Some(_) if lane == Lane::User => self.take(lane, now, TOGETHER, &mut keys),
            // Whatever is ready goes along: where Services share an object it is written once.
            None if lane != Lane::Audit => {
                for lane in [Lane::User, Lane::Again, Lane::Targets] {
                    self.take(lane, now, usize::MAX, &mut keys);
                }
            }
            _ => self.take(lane, now, usize::MAX, &mut keys),
        }
        if lane == Lane::Again || self.is_one_by_one() {
            self.asked = Some(now);
        }
        *self.under_way.entry(lane).or_default() += 1;
        Some((lane, keys))
    }

    /// A call is over.
    pub(super) fn ends(&mut self, lane: Lane) {
        if let Some(count) = self.under_way.get_mut(&lane) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether a list may begin: not before what users wait for, nor beside a call where only one may run.
    pub(super) fn may_list(&self, now: Instant) -> bool {
        let is_idle = !self.is_one_by_one() || self.under_way.values().all(|count| *count == 0);
        let is_user_waiting = self.first(Lane::User).is_some_and(|ready| ready <= now);
        !self.is_listing && is_idle && !is_user_waiting
    }

    /// When the next call may begin; none where nothing waits, or only for another call to end.
    pub(super) fn wakes(&self) -> Option<Instant> {
        Lane::ALL.into_iter().filter_map(|lane| self.fires_at(lane)).min()
    }

    /// Whether only one call may run.
    fn is_one_by_one(&self) -> bool {
        self.shape.side_by_side.is_none()
    }

    /// When a lane's next call may begin, as far as calls that are under way let it.
    fn fires_at(&self, lane: Lane) -> Option<Instant> {
        let first = self.first(lane)?;
        let under_way = |lane| self.under_way.get(&lane).copied().unwrap_or_default();
        let has_room = match self.shape.side_by_side {
            None => !self.is_listing && Lane::ALL.into_iter().all(|lane| under_way(lane) == 0),
            Some(calls) if lane == Lane::User => under_way(lane) < calls,
            Some(_) if lane == Lane::Again => under_way(lane) < ASKERS,
            Some(_) => under_way(lane) == 0,
        };
        let is_alone = self.is_one_by_one();
        let until = if is_alone && lane == Lane::User { self.last(lane, first + ASKING)? } else { first };
        let gathered = until + lane.gathering();
        let is_user_waiting = self.first(Lane::User).is_some_and(|user| user <= gathered);
        let fires = if lane == Lane::Audit && is_user_waiting { first + LAST } else { gathered };
        let asked = self.asked.filter(|_| is_alone || lane == Lane::Again);
        has_room.then_some(asked.map_or(fires, |asked| fires.max(asked + ASKING)))
    }

    fn first(&self, lane: Lane) -> Option<Instant> {
        Some(self.waiting.get(&lane)?.first()?.0)
    }

    /// When the last is ready that is so by then. What is tried again later keeps nobody waiting.
    fn last(&self, lane: Lane, by: Instant) -> Option<Instant> {
        let end = (by, Key::Service(String::new()));
        Some(self.waiting.get(&lane)?.range(..end).next_back()?.0)
    }

    /// Takes up to `most` of what is ready, as far as they fit into a call.
    fn take(&mut self, lane: Lane, now: Instant, most: usize, keys: &mut Vec<Key>) {
        let Some(waiting) = self.waiting.get_mut(&lane) else { return };
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

    fn lanes(side_by_side: Option<usize>) -> (Lanes, Instant) {
        (Lanes::new(Shape { largest: 3, side_by_side }), Instant::now())
    }

    fn key(name: &str) -> Key {
        Key::Service(name.to_owned())
    }

    /// The next call, as its lane and what it is made of.
    fn next(lanes: &mut Lanes, now: Instant) -> Option<(Lane, String)> {
        let (lane, keys) = lanes.next(now)?;
        let name = |key: &Key| match key {
            Key::Service(name) | Key::Orphan(name) => name.clone(),
        };
        Some((lane, keys.iter().map(name).collect()))
    }

    fn of(lane: Lane, names: &str) -> (Lane, String) {
        (lane, names.to_owned())
    }

    #[test]
    fn each_lane_gathers_from_the_first_that_came_and_takes_what_is_ready() {
        for (lane, gathering) in
            [(Lane::User, 100), (Lane::Again, 0), (Lane::Targets, 1000), (Lane::Audit, 1000)]
        {
            let (mut lanes, now) = lanes(Some(1));
            lanes.put(&key("a"), lane, now);
            lanes.put(&key("b"), lane, now + MS * gathering);
            lanes.put(&key("c"), lane, now + MS * (gathering + 1));
            assert_eq!(lanes.wakes(), Some(now + MS * gathering), "{lane:?}");
            let early = (now + MS * gathering).checked_sub(MS).filter(|early| *early >= now);
            assert_eq!(early.and_then(|early| next(&mut lanes, early)), None, "{lane:?}");
            assert_eq!(next(&mut lanes, now + MS * gathering), Some(of(lane, "ab")), "{lane:?}");
            // Another call that asks again begins no sooner than a while after this one.
            let beside = (lane == Lane::Again).then_some(now + ASKING);
            assert_eq!(lanes.wakes(), beside, "{lane:?}: one call is under way");
            lanes.ends(lane);
            assert!(lanes.wakes().is_some(), "{lane:?}");
        }
    }

    #[test]
    fn what_is_put_elsewhere_or_removed_waits_no_more_where_it_was() {
        let (mut lanes, now) = lanes(Some(1));
        lanes.put(&key("a"), Lane::Targets, now);
        lanes.put(&key("a"), Lane::User, now + MS * 500);
        lanes.put(&key("b"), Lane::User, now);
        lanes.remove(&key("b"));
        lanes.remove(&key("c"));
        assert_eq!(lanes.wakes(), Some(now + MS * 600));
        assert_eq!(next(&mut lanes, now + MS * 600), Some(of(Lane::User, "a")));
    }

    #[test]
    fn calls_side_by_side_are_as_many_for_users_and_one_at_first_for_each_other_lane() {
        let (mut lanes, now) = lanes(Some(2));
        for n in 0..9 {
            for lane in Lane::ALL {
                lanes.put(&key(&format!("{}{n}", lane.as_str())), lane, now);
            }
        }
        let later = now + Duration::from_secs(1);
        let mut begun = Vec::new();
        while let Some((lane, keys)) = lanes.next(later) {
            assert_eq!(keys.len(), 3, "{lane:?}");
            begun.push(lane);
        }
        assert_eq!(begun, [Lane::User, Lane::User, Lane::Again, Lane::Targets]);
        // The audit is behind what users wait for, and what asks again isn't asked at once.
        assert_eq!(lanes.wakes(), Some(later + ASKING));
        lanes.ends(Lane::User);
        assert_eq!(lanes.next(later).map(|(lane, _)| lane), Some(Lane::User));
        assert_eq!(lanes.next(later).map(|(lane, _)| lane), Some(Lane::Audit), "no user waits any more");
    }

    #[test]
    fn one_that_takes_long_to_be_asked_after_keeps_no_other_from_it_and_two_do() {
        let (mut lanes, now) = lanes(Some(4));
        let seconds = |count| now + Duration::from_secs(count);
        lanes.put(&key("a"), Lane::Again, now);
        assert_eq!(next(&mut lanes, now), Some(of(Lane::Again, "a")));
        lanes.put(&key("b"), Lane::Again, now);
        assert_eq!((lanes.wakes(), next(&mut lanes, seconds(1) - MS)), (Some(seconds(1)), None));
        assert_eq!(next(&mut lanes, seconds(1)), Some(of(Lane::Again, "b")));
        lanes.put(&key("c"), Lane::Again, seconds(1));
        assert_eq!((lanes.wakes(), next(&mut lanes, seconds(9))), (None, None), "two are under way");
        lanes.ends(Lane::Again);
        assert_eq!(next(&mut lanes, seconds(9)), Some(of(Lane::Again, "c")));
    }

    #[test]
    fn an_audit_is_not_put_off_for_ever() {
        let (mut lanes, now) = lanes(Some(1));
        lanes.put(&key("a"), Lane::Audit, now);
        for n in 0..99 {
            lanes.put(&key(&n.to_string()), Lane::User, now);
        }
        let first = |lanes: &mut Lanes, at| lanes.next(at).map(|(lane, _)| lane);
        assert_eq!(first(&mut lanes, now + LAST - MS), Some(Lane::User));
        assert_eq!(first(&mut lanes, now + LAST - MS), None);
        assert_eq!(first(&mut lanes, now + LAST), Some(Lane::Audit));
    }

    #[test]
    fn where_one_call_may_run_it_runs_alone_and_takes_along_what_is_ready() {
        let (mut lanes, now) = lanes(None);
        for (name, lane) in [("a", Lane::Audit), ("b", Lane::Targets), ("c", Lane::Again), ("d", Lane::User)]
        {
            lanes.put(&key(name), lane, now);
        }
        let later = now + MS * 100;
        assert!(!lanes.may_list(later), "a user waits");
        assert_eq!(next(&mut lanes, later), Some(of(Lane::User, "dcb")));
        assert_eq!((lanes.wakes(), lanes.may_list(later)), (None, false));
        lanes.ends(Lane::User);
        assert_eq!(lanes.wakes(), Some(later + ASKING));
        assert!(lanes.may_list(later));
        lanes.is_listing = true;
        assert_eq!((lanes.wakes(), lanes.may_list(later)), (None, false), "a list is a call");
        lanes.is_listing = false;
        assert_eq!(next(&mut lanes, later + ASKING), Some(of(Lane::Audit, "a")));
    }

    #[test]
    fn where_one_call_may_run_what_the_cloud_is_at_goes_along_up_to_a_second_too_soon() {
        let (mut lanes, now) = (Lanes::new(Shape { largest: 9, side_by_side: None }), Instant::now());
        let at = |seconds: f64| now + Duration::from_secs_f64(seconds);
        for (name, lane, ready) in [
            ("a", Lane::User, 0.0),
            ("b", Lane::Again, 1.1),
            ("c", Lane::Again, 1.2),
            ("d", Lane::Again, 1.0),
        ] {
            lanes.put(&key(name), lane, at(ready));
        }
        assert_eq!(next(&mut lanes, at(0.1)), Some(of(Lane::User, "adb")));
        lanes.ends(Lane::User);
        // The next call begins a second after this one did, and brings all together, whoever came first.
        lanes.put(&key("e"), Lane::User, at(0.2));
        for (name, ready) in [("a", 1.2), ("b", 2.1), ("d", 2.2)] {
            lanes.put(&key(name), Lane::Again, at(ready));
        }
        assert_eq!((lanes.wakes(), next(&mut lanes, at(1.0))), (Some(at(1.1)), None));
        assert_eq!(next(&mut lanes, at(1.1)), Some(of(Lane::User, "eacb")));
        // After one that has taken long there is no pause.
        lanes.ends(Lane::User);
        lanes.put(&key("a"), Lane::Again, at(8.0));
        assert_eq!(next(&mut lanes, at(7.0)), Some(of(Lane::Again, "da")));
    }

    #[test]
    fn where_one_call_may_run_users_work_gathers_while_more_comes_but_for_a_second() {
        for (came, fires) in
            [(&[0][..], 100), (&[0, 50, 140], 240), (&[0, 500, 990], 1090), (&[0, 50, 5000], 150)]
        {
            let (mut lanes, now) = lanes(None);
            for at in came {
                lanes.put(&key(&at.to_string()), Lane::User, now + MS * *at);
            }
            assert_eq!(lanes.wakes(), Some(now + MS * fires), "{came:?}");
        }
    }

    #[test]
    fn a_list_runs_beside_calls_where_they_may_run_side_by_side() {
        let (mut lanes, now) = lanes(Some(1));
        lanes.put(&key("a"), Lane::User, now);
        assert!(lanes.next(now + MS * 100).is_some() && lanes.may_list(now + MS * 100));
        lanes.put(&key("b"), Lane::User, now + MS * 200);
        assert!(lanes.may_list(now + MS * 199) && !lanes.may_list(now + MS * 200));
        lanes.is_listing = true;
        assert!(!lanes.may_list(now));
        lanes.ends(Lane::User);
        assert_eq!(lanes.wakes(), Some(now + MS * 300));
    }
}
