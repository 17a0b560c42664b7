//! The buckets of all limits. A limit whose key has a `{n}` has a bucket for each value that a path brings, so a
//! provider decides how many there are: their number is bounded here. Buckets that are the same as new ones are
//! forgotten first. Without such buckets, new values share one, which is slower than necessary but never too
//! fast.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::bucket::Bucket;
use crate::limits::limit::Rate;
use crate::limits::urgency::{FAIR_SHARE, Urgency, UrgencyCounts};

/// The most buckets of limits with a `{n}`; about 4 MiB. The largest clusters have 5,000 nodes.
const MOST: usize = 10_000;

/// A bucket, valid while a request waits for it or has a token of it.
pub(crate) type BucketId = usize;

/// A limit, by its position in the table of limits.
pub(crate) type LimitId = usize;

/// A bucket, and the requests that want its tokens.
#[derive(Debug)]
pub(crate) struct BucketSlot {
    pub(crate) limit: LimitId,
    pub(crate) value: Arc<str>,
    pub(crate) bucket: Bucket,
    /// The requests that wait, by urgency.
    pub(crate) waiting: UrgencyCounts,
    /// How many tokens in a row went to more urgent requests while others waited.
    passed: UrgencyCounts,
    /// Recent refusals below this limit, and until when each counts.
    recent_refusals: Vec<(RefusalSource, Instant)>,
}

/// Where a refusal came from: a resource, or a narrower limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalSource {
    Resource(u64),
    Bucket(BucketId),
}

impl BucketSlot {
    /// Whether requests wait.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting != UrgencyCounts::default()
    }

    /// Counts a request that waits.
    pub(crate) fn joined(&mut self, urgency: Urgency) {
        *self.waiting.of_mut(urgency) += 1;
    }

    /// Counts a request that no longer waits. Returns how many of its urgency are left.
    pub(crate) fn left(&mut self, urgency: Urgency) -> u32 {
        let waiting = self.waiting.of_mut(urgency);
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            *self.passed.of_mut(urgency) = 0;
        }
        *waiting
    }

    /// Counts a token for a request of this urgency. Returns the urgencies that were passed by so often that the next
    /// token is theirs.
    pub(crate) fn passed_by(&mut self, urgency: Urgency) -> Vec<Urgency> {
        *self.passed.of_mut(urgency) = 0;
        let mut due = Vec::new();
        for other in Urgency::ALL.into_iter().filter(|other| *other > urgency) {
            if self.waiting.of(other) == 0 {
                continue;
            }
            let passed = self.passed.of_mut(other);
            *passed = passed.saturating_add(1);
            if *passed >= FAIR_SHARE {
                due.push(other);
            }
        }
        due
    }

    /// Records a refusal below this limit. Returns whether enough different sources were refused that the limit itself
    /// must be the cause.
    pub(crate) fn record_refusal(
        &mut self,
        now: Instant,
        record_refusal: RefusalSource,
        until: Instant,
        enough: usize,
    ) -> bool {
        self.recent_refusals.retain(|(known, until)| *until > now && *known != record_refusal);
        self.recent_refusals.push((record_refusal, until));
        let proven = self.recent_refusals.len() >= enough;
        if proven {
            self.recent_refusals.clear();
        }
        proven
    }
}

/// All buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// The highest rates of the limits, by [`LimitId`].
    ceilings: Vec<Rate>,
    slots: Vec<Option<BucketSlot>>,
    free: Vec<BucketId>,
    known: HashMap<(LimitId, Arc<str>), BucketId>,
    /// Since when buckets that do not exist yet count as filling.
    empty: Instant,
    /// How long they had been filling then.
    idle: Duration,
    /// When buckets were last forgotten.
    swept: Instant,
}

impl Buckets {
    /// Creates buckets that are empty now.
    pub(crate) fn new(ceilings: Vec<Rate>, now: Instant) -> Self {
        let (slots, free, known) = (Vec::new(), Vec::new(), HashMap::new());
        let mut buckets = Self { ceilings, slots, free, known, empty: now, idle: Duration::ZERO, swept: now };
        for limit in 0..buckets.ceilings.len() {
            // The bucket without a value always exists.
            buckets.make(limit, "".into(), now);
        }
        buckets
    }

    /// Lets all buckets, including those that do not exist yet, hold what has filled in this time since they were empty.
    pub(crate) fn refill(&mut self, now: Instant, idle: Duration) {
        (self.empty, self.idle) = (now, idle);
        for slot in self.slots.iter_mut().flatten() {
            slot.bucket.empty(now);
            slot.bucket.fill_for(idle);
        }
    }

    /// The bucket of a limit for this value, filled up to this time.
    pub(crate) fn of(&mut self, limit: LimitId, value: &str, now: Instant) -> BucketId {
        // A lookup by a pair of references would take more code than the copy is worth.
        let key = (limit, Arc::from(value));
        let id = match self.known.get(&key) {
            Some(known) => *known,
            None if self.known.len() < self.room() => self.make(limit, key.1, now),
            // The bucket without a value has the number of its limit.
            None => limit,
        };
        if let Some(slot) = self.get_mut(id) {
            slot.bucket.fill(now);
        }
        id
    }

    pub(crate) fn get(&self, id: BucketId) -> Option<&BucketSlot> {
        self.slots.get(id)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: BucketId) -> Option<&mut BucketSlot> {
        self.slots.get_mut(id)?.as_mut()
    }

    /// The number of limits.
    pub(crate) fn limits(&self) -> usize {
        self.ceilings.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut BucketSlot> {
        self.slots.iter_mut().flatten()
    }

    fn make(&mut self, limit: LimitId, value: Arc<str>, now: Instant) -> BucketId {
        let ceiling = self.ceilings.get(limit).copied().unwrap_or(Rate::UNDECLARED);
        let mut bucket = Bucket::new(ceiling, self.empty, now);
        bucket.fill_for(self.idle);
        let slot = BucketSlot {
            limit,
            value: value.clone(),
            bucket,
            waiting: UrgencyCounts::default(),
            passed: UrgencyCounts::default(),
            recent_refusals: Vec::new(),
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if let Some(place) = self.slots.get_mut(id) {
            *place = Some(slot);
        }
        self.known.insert((limit, value), id);
        id
    }

    /// Makes room for the buckets of one request where possible. Must not be called between their lookups: a bucket
    /// that was just looked up is the same as a new one.
    pub(crate) fn make_room(&mut self, now: Instant) {
        if self.known.len() + self.ceilings.len() > self.room() && now > self.swept {
            self.swept = now;
            self.forget(now);
        }
    }

    fn room(&self) -> usize {
        MOST + self.ceilings.len()
    }

    fn forget(&mut self, now: Instant) {
        let Self { slots, free, known, ceilings, .. } = self;
        for (id, place) in slots.iter_mut().enumerate().skip(ceilings.len()) {
            let Some(slot) = place else { continue };
            slot.bucket.fill(now);
            let suspected = slot.recent_refusals.iter().any(|(_, until)| *until > now);
            if slot.bucket.is_as_new() && !slot.is_wanted() && !suspected {
                let BucketSlot { limit, value, .. } = slot;
                known.remove(&(*limit, value.clone()));
                free.push(id);
                *place = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(per_second: f64) -> Vec<Rate> {
        vec![Rate { burst: 2.0, per_second }; 2]
    }

    #[test]
    fn each_value_has_a_bucket_of_its_own_and_the_same_one_again() {
        let now = Instant::now();
        let mut buckets = Buckets::new(rates(1.0), now);
        let ids = [(0, "a"), (0, "b"), (1, "a"), (0, "")].map(|(limit, value)| buckets.of(limit, value, now));
        let known: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(known.len(), 4);
        assert_eq!(buckets.of(0, "b", now), ids[1]);
    }

    #[test]
    fn buckets_are_bounded_and_further_values_share_one() {
        let now = Instant::now();
        let mut buckets = Buckets::new(rates(0.001), now);
        for value in 0..2 * MOST {
            buckets.of(1, &value.to_string(), now);
        }
        assert_eq!((buckets.slots.len(), buckets.known.len()), (MOST + 2, MOST + 2));
        let shared = [buckets.of(1, "new", now), buckets.of(1, "another", now)];
        assert_eq!(shared, [1, 1], "the one without a value");
    }

    #[test]
    fn a_bucket_that_is_the_same_as_new_makes_room_and_a_used_one_does_not() {
        let now = Instant::now();
        let mut buckets = Buckets::new(rates(1.0), now);
        let used = buckets.of(1, "used", now);
        buckets.get_mut(used).unwrap().joined(Urgency::User);
        for value in 0..2 * MOST {
            buckets.of(1, &value.to_string(), now);
        }
        let later = now + Duration::from_mins(1);
        buckets.make_room(later);
        let fresh = buckets.of(1, "fresh", later);
        assert_ne!((fresh, buckets.of(1, "used", later)), (1, 1));
        assert_eq!(buckets.of(1, "used", later), used);
        assert_eq!(buckets.known.len(), 4);
    }

    #[test]
    fn a_bucket_created_later_has_filled_since_all_were_emptied() {
        let now = Instant::now();
        let mut buckets = Buckets::new(rates(1.0), now);
        let later = now + Duration::from_mins(1);
        let full = buckets.of(1, "a", later);
        assert!(buckets.get(full).unwrap().bucket.free(later) >= 2.0);
        // A burst of 2 at 1 a second.
        for (idle, expected) in [(0, 0.0), (1, 1.0), (2, 2.0), (u64::MAX, 2.0)] {
            buckets.refill(later, Duration::from_secs(idle));
            for value in ["a".to_owned(), format!("new-{idle}")] {
                let id = buckets.of(1, &value, later);
                let free = buckets.get(id).unwrap().bucket.free(later);
                assert!((free - expected).abs() < 0.01, "{value} after {idle} s: {free}");
            }
        }
    }
}
