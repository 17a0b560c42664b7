//! What the cloud takes at present: the buckets of the limits, the paused resources, and what its answers teach about
//! both. Pure.
//!
//! A refusal does not say what it is about: a lock on one resource and a limit of the whole account are both answered
//! with 429. So a refusal pauses only its resource at first. Refusals of two different resources pause the narrowest
//! limit that they share, the one that fills most slowly. Two such limits pause the next wider one. A refusal counts
//! against the limit at once if the cloud says that no quota is left, or if the resource had been open again in
//! between. If the cloud says that quota is left, as with locks, it takes four resources. A limit that the answer itself
//! names as used up is paused at once. A lock that the provider's settings tell from throttling closes its object alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::bucket::{Bucket, Token};
use crate::limits::buckets::{BucketId, BucketSlot, Buckets, LimitId, RefusalSource};
use crate::limits::feedback::{CloudRefusal, Feedback};
use crate::limits::hold::HoldReason;
use crate::limits::limit::Rate;
use crate::limits::pauses::{PausedResources, Resource};

/// How many different sources must be refused before what they share is paused...
const ENOUGH: usize = 2;
/// ...and how many if the cloud says that quota is left.
const ENOUGH_DESPITE_QUOTA: usize = 4;
/// How long a refusal counts for that, at least.
const SUSPECTED: Duration = Duration::from_secs(10);

/// The tokens of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenSet {
    buckets: Arc<[BucketId]>,
    /// One of each bucket.
    tokens: Box<[Token]>,
    resource: Resource,
    at: Instant,
}

/// When a request can be sent, and what it waits for longest until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) at: Instant,
    /// None if it is the resource.
    pub(crate) limit: Option<LimitId>,
    pub(crate) reason: HoldReason,
}

/// A limit that was paused because the cloud refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PausedLimit {
    pub(crate) limit: LimitId,
    pub(crate) lasts: Duration,
    pub(crate) learned: Rate,
}

/// The present state of the buckets of one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LimitReading {
    /// The lowest rate of the buckets.
    pub(crate) rate: Option<Rate>,
    /// The lowest learned rate, if it is below the declared one.
    pub(crate) learned: Option<Rate>,
    /// The fewest tokens in a bucket.
    pub(crate) tokens: Option<f64>,
    pub(crate) buckets: usize,
    pub(crate) paused_until: Option<Instant>,
}

/// The buckets and the paused resources.
#[derive(Debug)]
pub(crate) struct Capacity {
    pub(crate) buckets: Buckets,
    pub(crate) pauses: PausedResources,
}

impl Capacity {
    /// Creates limits with these highest rates, and with empty buckets.
    pub(crate) fn new(most: Vec<Rate>, now: Instant) -> Self {
        Self { buckets: Buckets::new(most, now), pauses: PausedResources::default() }
    }

    /// The buckets of these limits, none of them twice.
    pub(crate) fn buckets_of(&mut self, limits: &[(LimitId, &str)], now: Instant) -> Arc<[BucketId]> {
        self.buckets.make_room(now);
        let found: BTreeSet<_> =
            limits.iter().map(|(limit, value)| self.buckets.of(*limit, value, now)).collect();
        found.into_iter().collect()
    }

    /// When a request is expected to be sent that needs the token with this number of each bucket, if probes in flight
    /// succeed.
    pub(crate) fn estimate(
        &mut self,
        now: Instant,
        buckets: &[BucketId],
        resource: Resource,
        position: impl Fn(BucketId, &BucketSlot) -> f64,
    ) -> Estimate {
        let at = self.pauses.until(resource).map_or(now, |until| until.max(now));
        let mut estimate = Estimate { at, limit: None, reason: HoldReason::ResourcePaused };
        for id in buckets {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            let at = slot.bucket.expected_at(now, position(*id, slot));
            if at > estimate.at {
                let closed = slot.bucket.paused_until(now).is_some();
                let reason = if closed { HoldReason::LimitPaused } else { HoldReason::Rate };
                estimate = Estimate { at, limit: Some(slot.limit), reason };
            }
        }
        if estimate.at <= now && self.opens_at(now, buckets, resource, |_| 0.0) <= now {
            estimate.reason = HoldReason::Late;
        }
        estimate
    }

    /// When a request can be sent that needs a token of each bucket beyond those claimed, if nothing changes. Now, if
    /// it can be sent at once.
    pub(crate) fn opens_at(
        &mut self,
        now: Instant,
        buckets: &[BucketId],
        resource: Resource,
        claimed: impl Fn(BucketId) -> f64,
    ) -> Instant {
        let mut until = self.pauses.opens_at(resource, now);
        for id in buckets {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            until = until.max(slot.bucket.available_at(now, 1.0 + claimed(*id)));
        }
        until
    }

    /// Takes a token of each bucket.
    pub(crate) fn take(&mut self, now: Instant, buckets: &Arc<[BucketId]>, resource: Resource) -> TokenSet {
        // A bucket that was just looked up or is waited for is not forgotten, so there is a token of each, in order.
        let take = |id: &BucketId| Some(self.buckets.get_mut(*id)?.bucket.take(now));
        let tokens = buckets.iter().filter_map(take).collect();
        self.pauses.on_sent(resource, now);
        TokenSet { buckets: buckets.clone(), tokens, resource, at: now }
    }

    /// Takes the tokens for sending a request a second time, without waiting for them. None if a limit or the resource
    /// is paused.
    pub(crate) fn take_again(&mut self, now: Instant, taken: &TokenSet) -> Option<TokenSet> {
        let TokenSet { buckets, tokens: _, resource, at: _ } = taken;
        let is_open = |id: &BucketId| self.buckets.get(*id).is_some_and(|slot| slot.bucket.is_open(now));
        if self.pauses.opens_at(*resource, now) > now || !buckets.iter().all(is_open) {
            return None;
        }
        let take = |id: &BucketId| {
            let slot = self.buckets.get_mut(*id)?;
            slot.bucket.fill(now);
            Some(slot.bucket.take_in_advance(now))
        };
        let tokens = buckets.iter().filter_map(take).collect();
        self.pauses.on_sent(*resource, now);
        Some(TokenSet { buckets: buckets.clone(), tokens, resource: *resource, at: now })
    }

    /// Puts back the tokens of a request that was not sent.
    pub(crate) fn put_back(&mut self, now: Instant, taken: &TokenSet) {
        self.finish(now, taken, |slot, token| slot.bucket.put_back(token));
    }

    /// Notes that a request was sent and never will be answered. Returns whether others may now be sent.
    pub(crate) fn on_lost(&mut self, now: Instant, taken: &TokenSet) -> bool {
        self.finish(now, taken, |slot, token| slot.bucket.on_finished(token))
    }

    /// Notes the answer to a request. Returns the limits that it paused, and whether others may now be sent.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        taken: &TokenSet,
        answer: &Feedback,
    ) -> (Vec<PausedLimit>, bool) {
        let Feedback { refused, locked, .. } = answer;
        let tried = self.finish(now, taken, |slot, token| {
            slot.bucket.on_finished(token);
            if refused.is_none() {
                slot.bucket.on_accepted(taken.at);
            }
            if let Some(requests) = answer.remaining_of(slot.limit) {
                slot.bucket.on_remaining(requests);
            }
        });
        let Some(refused) = refused else {
            self.pauses.on_accepted(taken.resource, now, taken.at);
            if let Some(after) = locked {
                self.pauses.on_locked(taken.resource, now, *after);
            }
            return (Vec::new(), tried);
        };
        (self.on_refused(now, taken, *refused, answer), tried)
    }

    /// Returns whether something was paused or its window full, so that others may wait for the answer to this request.
    fn finish(&mut self, now: Instant, taken: &TokenSet, change: impl Fn(&mut BucketSlot, Token)) -> bool {
        let mut tried = self.pauses.until(taken.resource).is_some();
        for (id, token) in taken.buckets.iter().zip(&taken.tokens) {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            tried |= slot.bucket.is_probe(token.at) || slot.bucket.is_crowded();
            change(slot, *token);
        }
        self.pauses.on_finished(taken.resource, taken.at);
        tried
    }

    /// Decides what a refusal is about, and pauses that.
    fn on_refused(
        &mut self,
        now: Instant,
        taken: &TokenSet,
        refused: CloudRefusal,
        answer: &Feedback,
    ) -> Vec<PausedLimit> {
        let CloudRefusal { after, throttled } = refused;
        let reopened = self.pauses.on_refused(taken.resource, now, taken.at, after);
        let until = now + after.unwrap_or_default().max(SUSPECTED);
        let mut enough = match answer.remaining {
            Some(0) => 1,
            _ if reopened => 1,
            Some(_) => ENOUGH_DESPITE_QUOTA,
            None => ENOUGH,
        };
        let mut below = Some(RefusalSource::Resource(taken.resource));
        let mut closed = Vec::new();
        for (id, token) in self.narrowest_first(taken) {
            let Some(slot) = self.buckets.get_mut(id) else { continue };
            let suspected = below.is_some_and(|below| slot.record_refusal(now, below, until, enough));
            // The refusal of a probe shows by itself that the pause is not over.
            if !suspected && !answer.is_used_up(slot.limit) && !slot.bucket.is_probe(taken.at) {
                below = None;
                continue;
            }
            (below, enough) = (Some(RefusalSource::Bucket(id)), ENOUGH);
            if slot.bucket.on_refused(now, token, after, throttled) {
                let lasts = slot.bucket.paused_until(now).map_or(Duration::ZERO, |until| until - now);
                closed.push(PausedLimit { limit: slot.limit, lasts, learned: slot.bucket.learned() });
            }
        }
        closed
    }

    /// The buckets of a request and its tokens, the one that fills most slowly first.
    fn narrowest_first(&self, taken: &TokenSet) -> Vec<(BucketId, Token)> {
        let mut buckets: Vec<_> = taken.buckets.iter().copied().zip(taken.tokens.iter().copied()).collect();
        let fills = |id| self.buckets.get(id).map_or(f64::INFINITY, |slot| slot.bucket.ceiling().per_second);
        buckets.sort_by(|(one, _), (other, _)| fills(*one).total_cmp(&fills(*other)));
        buckets
    }

    /// The present state of each limit, by [`LimitId`].
    pub(crate) fn readings(&mut self, now: Instant) -> Vec<LimitReading> {
        let mut readings = vec![LimitReading::default(); self.buckets.limits()];
        for slot in self.buckets.iter_mut() {
            slot.bucket.fill(now);
            if let Some(look) = readings.get_mut(slot.limit) {
                look.add(&slot.bucket, now);
            }
        }
        readings
    }
}

impl LimitReading {
    fn add(&mut self, bucket: &Bucket, now: Instant) {
        let rate = bucket.learned();
        let least = |other: Option<Rate>| Some(other.map_or(rate, |other| other.least(rate)));
        self.rate = least(self.rate);
        if rate != bucket.ceiling() {
            self.learned = least(self.learned);
        }
        self.tokens = Some(self.tokens.map_or(bucket.tokens(), |tokens| tokens.min(bucket.tokens())));
        self.buckets += 1;
        self.paused_until = self.paused_until.max(bucket.paused_until(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::pauses::resource_at;

    /// Limits 0 and 1 are narrow and limit 2 is wide.
    struct World {
        capacity: Capacity,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let rate = |per_second| Rate { burst: 100.0, per_second };
            let now = Instant::now();
            let capacity = Capacity::new(vec![rate(5.0), rate(6.0), rate(10.0)], now);
            Self { capacity, now: now + Duration::from_secs(100) }
        }

        fn send(&mut self, limits: &[LimitId], resource: Resource) -> TokenSet {
            let limits: Vec<_> = limits.iter().map(|limit| (*limit, "")).collect();
            let buckets = self.capacity.buckets_of(&limits, self.now);
            self.capacity.take(self.now, &buckets, resource)
        }

        /// Sends a request that is refused. Returns the limits that this paused.
        fn refuse(&mut self, limits: &[LimitId], resource: Resource, remaining: Option<u32>) -> Vec<LimitId> {
            let taken = self.send(limits, resource);
            self.now += Duration::from_millis(10);
            let refused = Some(CloudRefusal { after: Some(Duration::from_secs(30)), throttled: true });
            self.answer(&taken, &Feedback { refused, remaining, ..Feedback::default() })
        }

        fn answer(&mut self, taken: &TokenSet, answer: &Feedback) -> Vec<LimitId> {
            let (closed, _) = self.capacity.on_answer(self.now, taken, answer);
            closed.iter().map(|closed| closed.limit).collect()
        }
    }

    #[test]
    fn a_refusal_pauses_its_resource_and_a_second_one_their_narrowest_limit() {
        let mut world = World::new();
        assert_eq!(world.refuse(&[2, 0], 1, None), [0; 0]);
        assert_eq!(world.capacity.pauses.count(world.now), 1);
        assert_eq!(world.refuse(&[2, 0], 1, None), [0; 0], "the same once more, from before it was paused");
        assert_eq!(world.refuse(&[2, 0], 2, None), [0]);
        assert!(world.capacity.readings(world.now)[0].paused_until.is_some());
        assert!(world.capacity.readings(world.now)[2].paused_until.is_none());
    }

    #[test]
    fn what_is_told_of_one_limit_empties_its_bucket_alone_and_used_up_it_is_paused_at_once() {
        let mut world = World::new();
        let taken = world.send(&[0, 1, 2], 1);
        let told = Feedback { remaining: Some(90), told: vec![(1, Some(12))], ..Feedback::default() };
        assert_eq!(world.answer(&taken, &told), [0; 0]);
        let left: Vec<_> =
            world.capacity.readings(world.now).iter().map(|it| it.tokens.unwrap().round()).collect();
        assert_eq!(left, [90.0, 12.0, 90.0]);
        // A limit whose number this answer lacks is left alone as well.
        let taken = world.send(&[0, 1], 1);
        let silent = Feedback { remaining: Some(3), told: vec![(1, None)], ..Feedback::default() };
        assert_eq!(world.answer(&taken, &silent), [0; 0]);
        let left: Vec<_> =
            world.capacity.readings(world.now).iter().map(|it| it.tokens.unwrap().round()).collect();
        assert_eq!(left, [3.0, 11.0, 90.0]);
        let taken = world.send(&[0, 1, 2], 2);
        let refused = Some(CloudRefusal { after: Some(Duration::from_secs(30)), throttled: true });
        let used_up = Feedback { refused, told: vec![(1, Some(0))], ..Feedback::default() };
        assert_eq!(world.answer(&taken, &used_up), [1]);
    }

    #[test]
    fn a_lock_closes_its_object_to_changes_and_no_limit() {
        let mut world = World::new();
        let locked = Feedback { locked: Some(Duration::from_secs(5)), ..Feedback::default() };
        let (read, change) = (resource_at(8, false), resource_at(8, true));
        for resource in (100..200).map(|hash| resource_at(2 * hash, true)).chain([read]) {
            let taken = world.send(&[0, 2], resource);
            assert_eq!(world.answer(&taken, &locked), [0; 0]);
        }
        let readings = world.capacity.readings(world.now);
        assert!(readings.iter().all(|it| it.paused_until.is_none() && it.learned.is_none()), "{readings:?}");
        assert_eq!(world.capacity.pauses.count(world.now), 101);
        for (resource, closed) in [(change, 5), (read, 0), (resource_at(10, true), 0)] {
            let opens = world.capacity.opens_at(world.now, &[], resource, |_| 0.0);
            assert_eq!(opens - world.now, Duration::from_secs(closed), "{resource}");
        }
        let later = world.now + Duration::from_secs(5);
        assert_eq!(world.capacity.opens_at(later, &[], change, |_| 0.0), later, "no probe is waited for");
        // A refusal after the lock is the first one of its resource.
        let buckets = world.capacity.buckets_of(&[(0, "")], later);
        let taken = world.capacity.take(later, &buckets, change);
        world.now = later;
        let refused = Some(CloudRefusal { after: None, throttled: true });
        assert_eq!(world.answer(&taken, &Feedback { refused, ..Feedback::default() }), [0; 0]);
    }

    #[test]
    fn sending_again_takes_tokens_in_advance_unless_something_is_paused() {
        let mut world = World::new();
        let first = world.send(&[0], 1);
        for _ in 0..99 {
            let sent = world.send(&[0], 1);
            world.capacity.on_lost(world.now, &sent);
        }
        let again = world.capacity.take_again(world.now, &first).unwrap();
        let ids = world.capacity.buckets_of(&[(0, "")], world.now);
        let wait = world.capacity.opens_at(world.now, &ids, 9, |_| 0.0) - world.now;
        assert!((0.39..0.41).contains(&wait.as_secs_f64()), "two tokens at 5 a second, not one: {wait:?}");
        world.capacity.put_back(world.now, &again);
        let wait = world.capacity.opens_at(world.now, &ids, 9, |_| 0.0) - world.now;
        assert!((0.19..0.21).contains(&wait.as_secs_f64()), "{wait:?}");
        world.refuse(&[1], 1, None);
        assert_eq!(world.capacity.take_again(world.now, &first), None, "its resource is paused");
        let other = world.send(&[0], 2);
        world.refuse(&[0], 3, Some(0));
        assert_eq!(world.capacity.take_again(world.now, &other), None, "its limit is paused");
    }

    #[test]
    fn two_paused_narrow_limits_pause_the_wide_one() {
        let mut world = World::new();
        for (limit, resource) in [(0, 1), (0, 2), (1, 3)] {
            world.refuse(&[limit, 2], resource, None);
        }
        assert_eq!(world.refuse(&[1, 2], 4, None), [1, 2]);
    }

    #[test]
    fn refusals_far_apart_do_not_count_together() {
        let mut world = World::new();
        world.refuse(&[0], 1, None);
        world.now += Duration::from_secs(31);
        assert_eq!(world.refuse(&[0], 2, None), [0; 0]);
    }

    #[test]
    fn the_remaining_quota_counts_for_or_against_the_limit() {
        let mut world = World::new();
        assert_eq!(world.refuse(&[0, 2], 1, Some(0)), [0]);
        let mut world = World::new();
        for resource in 1..4 {
            assert_eq!(world.refuse(&[0, 2], resource, Some(100)), [0; 0], "{resource}");
        }
        assert_eq!(world.refuse(&[0, 2], 4, Some(100)), [0]);
    }

    #[test]
    fn a_resource_refused_again_after_it_was_open_is_not_locked() {
        let mut world = World::new();
        world.refuse(&[0], 1, None);
        world.now += Duration::from_secs(31);
        assert_eq!(world.refuse(&[0], 1, None), [0; 0], "the lock continues");
        world.now += Duration::from_secs(31);
        let probe = world.send(&[0], 1);
        world.capacity.on_answer(world.now, &probe, &Feedback::default());
        assert_eq!(world.capacity.pauses.count(world.now), 0);
        assert_eq!(world.refuse(&[0], 1, None), [0]);
    }

    #[test]
    fn an_unavailable_cloud_pauses_a_limit_and_teaches_no_rate() {
        let mut world = World::new();
        for resource in [1, 2] {
            let taken = world.send(&[0], resource);
            let refused = Some(CloudRefusal { after: Some(Duration::from_secs(5)), throttled: false });
            world.answer(&taken, &Feedback { refused, ..Feedback::default() });
        }
        let LimitReading { learned, paused_until, .. } = world.capacity.readings(world.now)[0];
        assert_eq!((learned, paused_until), (None, Some(world.now + Duration::from_secs(5))));
    }

    #[test]
    fn values_no_longer_used_make_room_for_others() {
        let mut world = World::new();
        for value in 0..20_000 {
            world.capacity.buckets_of(&[(0, &value.to_string())], world.now);
        }
        world.now += Duration::from_mins(1);
        let [one, other] = ["one", "other"].map(|value| world.capacity.buckets_of(&[(0, value)], world.now));
        assert_ne!(one, other);
    }
}
