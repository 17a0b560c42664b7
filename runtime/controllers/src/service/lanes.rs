//! What waits for a call, by how urgent it is, and what goes together.
//!
//! What users wait for goes together that came within a tenth of a second, and in calls that aren't too long, so that the
//! first needn't wait for the last. What nobody waits for goes in as few calls as it fits into.

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
/// about.
const ASKING: Duration = Duration::from_secs(1);

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
    /// When the last call began that asked again.
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
        if lane == Lane::Again {
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
        let is_idle = self.shape.side_by_side.is_some() || self.under_way.values().all(|count| *count == 0);
        let is_user_waiting = self.first(Lane::User).is_some_and(|ready| ready <= now);
        !self.is_listing && is_idle && !is_user_waiting
    }

    /// When the next call may begin; none where nothing waits, or only for another call to end.
    pub(super) fn wakes(&self) -> Option<Instant> {
        Lane::ALL.into_iter().filter_map(|lane| self.fires_at(lane)).min()
    }

    /// When a lane's next call may begin, as far as calls that are under way let it.
    fn fires_at(&self, lane: Lane) -> Option<Instant> {
        let first = self.first(lane)?;
        let under_way = |lane| self.under_way.get(&lane).copied().unwrap_or_default();
        let has_room = match self.shape.side_by_side {
            None => !self.is_listing && Lane::ALL.into_iter().all(|lane| under_way(lane) == 0),
            Some(calls) if lane == Lane::User => under_way(lane) < calls,
            Some(_) => under_way(lane) == 0,
        };
        let gathered = first + lane.gathering();
        let is_user_waiting = self.first(Lane::User).is_some_and(|user| user <= gathered);
        let fires = match (lane, self.asked) {
            (Lane::Again, Some(asked)) => first.max(asked + ASKING),
            (Lane::Audit, _) if is_user_waiting => first + LAST,
            _ => gathered,
        };
        has_room.then_some(fires)
    }

    fn first(&self, lane: Lane) -> Option<Instant> {
        Some(self.waiting.get(&lane)?.first()?.0)
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
