//! The buckets of all limits. A limit whose key has a `{n}` has one for each value that a path brings, so their number
//! is in a provider's hand: it is bounded here. LimitEntry that is as good as new is forgotten first; where none is, values
//! that weren't seen before share one bucket, which is slower than need be and never too fast.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::limits::bucket::Bucket;
use crate::limits::limit::Rate;
use crate::limits::urgency::{FAIR_SHARE, Urgency, UrgencyCounts};

/// How many buckets of limits with a `{n}` are kept; about 4 MiB. The largest clusters have 5,000 machines.
const MOST: usize = 10_000;

/// Which bucket, for as long as somebody waits for it or is under way with its token.
pub(crate) type BucketId = usize;

/// Which limit, by its position among the declared ones.
pub(crate) type LimitId = usize;

/// A bucket, and who wants its tokens.
#[derive(Debug)]
pub(crate) struct BucketSlot {
    pub(crate) limit: LimitId,
    pub(crate) value: Arc<str>,
    pub(crate) bucket: Bucket,
    /// How many wait.
    pub(crate) waiting: UrgencyCounts,
    /// How many tokens in a row went to more urgent requests while somebody waited.
    passed: UrgencyCounts,
    /// What was refused of late below this limit, and until when it counts.
    recent_refusals: Vec<(RefusalSource, Instant)>,
}

/// Where a hold came from: a resource, or a narrower limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalSource {
    Resource(u64),
    Bucket(BucketId),
}

impl BucketSlot {
    /// Whether anybody waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting != UrgencyCounts::default()
    }

    /// LimitEntry more waits.
    pub(crate) fn joined(&mut self, urgency: Urgency) {
        *self.waiting.of_mut(urgency) += 1;
    }

    /// LimitEntry less waits; so many are left of his urgency.
    pub(crate) fn left(&mut self, urgency: Urgency) -> u32 {
        let waiting = self.waiting.of_mut(urgency);
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            *self.passed.of_mut(urgency) = 0;
        }
        *waiting
    }

    /// A token goes to somebody of this urgency. Says who was passed by so often that the next is theirs.
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

    /// Notes a hold of something below this limit. Says whether so many different things were refused that it is
    /// the limit itself.
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
    /// What the limits let through at ceilings, by [`LimitId`].
    ceilings: Vec<Rate>,
    slots: Vec<Option<BucketSlot>>,
    free: Vec<BucketId>,
    known: HashMap<(LimitId, Arc<str>), BucketId>,
    /// Since when all buckets that aren't there yet have been filling.
    empty: Instant,
    /// When it was last looked which could be forgotten.
    swept: Instant,
}

impl Buckets {
    /// Buckets that are empty now.
    pub(crate) fn new(ceilings: Vec<Rate>, now: Instant) -> Self {
        let (slots, free, known) = (Vec::new(), Vec::new(), HashMap::new());
        let mut buckets = Self { ceilings, slots, free, known, empty: now, swept: now };
        for limit in 0..buckets.ceilings.len() {
            // The one without a value is there for good.
            buckets.make(limit, "".into(), now);
        }
        buckets
    }

    /// Empties all buckets, those that aren't there yet included.
    pub(crate) fn empty(&mut self, now: Instant) {
        self.empty = now;
        self.slots.iter_mut().flatten().for_each(|slot| slot.bucket.empty(now));
    }

    /// The bucket of a limit for this value, brought to this time.
    pub(crate) fn of(&mut self, limit: LimitId, value: &str, now: Instant) -> BucketId {
        // A lookup by a pair of references needs more code than the copy costs.
        let key = (limit, Arc::from(value));
        let id = match self.known.get(&key) {
            Some(known) => *known,
            None if self.known.len() < self.room() => self.make(limit, key.1, now),
            // The one without a value has the number of its limit.
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

    /// How many limits there are.
    pub(crate) fn limits(&self) -> usize {
        self.ceilings.len()
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut BucketSlot> {
        self.slots.iter_mut().flatten()
    }

    fn make(&mut self, limit: LimitId, value: Arc<str>, now: Instant) -> BucketId {
        let ceiling = self.ceilings.get(limit).copied().unwrap_or(Rate::UNDECLARED);
        let slot = BucketSlot {
            limit,
            value: value.clone(),
            bucket: Bucket::new(ceiling, self.empty, now),
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

    /// Makes room for the buckets of one request, where it can be made. Between their lookups it mustn't be: a bucket
    /// that was just looked up is as good as new.
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
    use std::time::Duration;

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
    fn buckets_are_bounded_and_what_is_too_much_shares_one() {
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
    fn a_bucket_that_is_as_new_makes_room_and_one_that_is_used_does_not() {
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
    fn a_bucket_that_comes_later_has_been_filling_since_all_were_emptied() {
        let now = Instant::now();
        let mut buckets = Buckets::new(rates(1.0), now);
        let later = now + Duration::from_mins(1);
        let full = buckets.of(1, "a", later);
        assert!(buckets.get(full).unwrap().bucket.free(later) >= 2.0);
        buckets.empty(later);
        for value in ["a", "b"] {
            let empty = buckets.of(1, value, later);
            assert!(buckets.get(empty).unwrap().bucket.free(later) < 1.0, "{value}");
        }
    }
}
