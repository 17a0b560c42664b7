//! What the cloud takes at the moment: the buckets of the limits and the resources that it closed, and what its answers
//! teach about both. Pure, like the decision that it serves.
//!
//! What a refusal is about can't be read off it: a lock on one resource and a limit of the whole account are both
//! answered 429. So it closes only the resource at first; two different resources of one limit close the narrowest
//! limit that they share, the one that fills most slowly, and two such limits the next wider one. It counts against the
//! limit at once where the cloud says that no quota is left, and where the resource had been open again in between; and
//! only with four resources where the cloud says that quota is left, as it does with locks.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::limits::{
    answer::{Answer, Refused},
    bucket::{Bucket, Token},
    buckets::{BucketId, Buckets, LimitId, Slot, Suspect},
    closures::{Closures, Resource},
    known::Rate,
};

/// How many different things must be refused before what they share is closed...
const ENOUGH: usize = 2;
/// ...and how many where the cloud says that it isn't the quota.
const ENOUGH_DESPITE_QUOTA: usize = 4;
/// For how long a refusal is remembered for that, at least.
const SUSPECTED: Duration = Duration::from_secs(10);

/// The tokens of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Taken {
    buckets: Arc<[BucketId]>,
    /// One of each bucket.
    tokens: Box<[Token]>,
    resource: Resource,
    at: Instant,
}

/// When a request can be sent, and what it has to wait for longest until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) at: Instant,
    /// None where it is the resource.
    pub(crate) limit: Option<LimitId>,
    pub(crate) reason: Reason,
}

/// What a request has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Tokens that flow in.
    Rate,
    /// The end of the time for which the cloud closed a limit.
    Closed,
    /// The same, for the resource alone.
    Resource,
    /// Room in the queue.
    Full,
    /// The end of a write whose caller has gone.
    Unfinished,
    /// Nothing: it could go at once, had it time left.
    Late,
}

/// A limit that was closed because the cloud refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Closed {
    pub(crate) limit: LimitId,
    pub(crate) lasts: Duration,
    pub(crate) learned: Rate,
}

/// What the buckets of one limit are like.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Look {
    /// The least of what they let through.
    pub(crate) rate: Option<Rate>,
    /// The least of what they learned, where that is less than was declared.
    pub(crate) learned: Option<Rate>,
    /// The least of what they hold.
    pub(crate) tokens: Option<f64>,
    pub(crate) buckets: usize,
    pub(crate) closed_until: Option<Instant>,
}

/// The buckets and the closed resources.
#[derive(Debug)]
pub(crate) struct Supply {
    pub(crate) buckets: Buckets,
    pub(crate) closures: Closures,
}

impl Supply {
    /// Limits that let through at most so much, with buckets that are empty now.
    pub(crate) fn new(most: Vec<Rate>, now: Instant) -> Self {
        Self { buckets: Buckets::new(most, now), closures: Closures::default() }
    }

    /// The buckets of these limits, none twice.
    pub(crate) fn buckets_of(&mut self, limits: &[(LimitId, &str)], now: Instant) -> Arc<[BucketId]> {
        self.buckets.make_room(now);
        let found: BTreeSet<_> =
            limits.iter().map(|(limit, value)| self.buckets.of(*limit, value, now)).collect();
        found.into_iter().collect()
    }

    /// When a request will be sent that needs the token with this number of each bucket, if probes under way succeed.
    pub(crate) fn estimate(
        &mut self,
        now: Instant,
        buckets: &[BucketId],
        resource: Resource,
        turn: impl Fn(BucketId, &Slot) -> f64,
    ) -> Estimate {
        let at = self.closures.until(resource).map_or(now, |until| until.max(now));
        let mut estimate = Estimate { at, limit: None, reason: Reason::Resource };
        for id in buckets {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            let at = slot.bucket.expected(now, turn(*id, slot));
            if at > estimate.at {
                let closed = slot.bucket.closed_until(now).is_some();
                let reason = if closed { Reason::Closed } else { Reason::Rate };
                estimate = Estimate { at, limit: Some(slot.limit), reason };
            }
        }
        if estimate.at <= now && self.opens(now, buckets, resource, |_| 0.0) <= now {
            estimate.reason = Reason::Late;
        }
        estimate
    }

    /// When a request may be sent that needs a token of each bucket beyond those that are claimed, if nothing changes;
    /// now, if it may be at once.
    pub(crate) fn opens(
        &mut self,
        now: Instant,
        buckets: &[BucketId],
        resource: Resource,
        claimed: impl Fn(BucketId) -> f64,
    ) -> Instant {
        let mut until = self.closures.opens(resource, now);
        for id in buckets {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            until = until.max(slot.bucket.when(now, 1.0 + claimed(*id)));
        }
        until
    }

    /// Takes a token of each bucket.
    pub(crate) fn take(&mut self, now: Instant, buckets: &Arc<[BucketId]>, resource: Resource) -> Taken {
        // Nothing forgets a bucket that somebody just found or waits for, so there is a token of each, in order.
        let take = |id: &BucketId| Some(self.buckets.get_mut(*id)?.bucket.take(now));
        let tokens = buckets.iter().filter_map(take).collect();
        self.closures.sent(resource, now);
        Taken { buckets: buckets.clone(), tokens, resource, at: now }
    }

    /// Takes the tokens of a request that is sent a second time, without waiting for them. None where something that it
    /// needs is closed.
    pub(crate) fn take_again(&mut self, now: Instant, taken: &Taken) -> Option<Taken> {
        let Taken { buckets, tokens: _, resource, at: _ } = taken;
        let is_open = |id: &BucketId| self.buckets.get(*id).is_some_and(|slot| slot.bucket.is_open(now));
        if self.closures.opens(*resource, now) > now || !buckets.iter().all(is_open) {
            return None;
        }
        let take = |id: &BucketId| {
            let slot = self.buckets.get_mut(*id)?;
            slot.bucket.fill(now);
            Some(slot.bucket.take_in_advance(now))
        };
        let tokens = buckets.iter().filter_map(take).collect();
        self.closures.sent(*resource, now);
        Some(Taken { buckets: buckets.clone(), tokens, resource: *resource, at: now })
    }

    /// A request that had its tokens surely wasn't sent.
    pub(crate) fn put_back(&mut self, now: Instant, taken: &Taken) {
        self.finish(now, taken, |slot, token| slot.bucket.put_back(token));
    }

    /// A request that was sent has no answer, and won't have one. Says whether somebody may go now for that.
    pub(crate) fn lost(&mut self, now: Instant, taken: &Taken) -> bool {
        self.finish(now, taken, |slot, token| slot.bucket.finished(token))
    }

    /// A request that was sent is answered. Says which limits that closed, and whether somebody may go now.
    pub(crate) fn answered(&mut self, now: Instant, taken: &Taken, answer: Answer) -> (Vec<Closed>, bool) {
        let Answer { refused, remaining } = answer;
        let tried = self.finish(now, taken, |slot, token| {
            slot.bucket.finished(token);
            if refused.is_none() {
                slot.bucket.accepted(taken.at);
            }
            if let Some(requests) = remaining {
                slot.bucket.remaining(requests);
            }
        });
        let Some(refused) = refused else {
            self.closures.accepted(taken.resource, now, taken.at);
            return (Vec::new(), tried);
        };
        (self.refused(now, taken, refused, remaining), tried)
    }

    /// Says whether something was closed or crowded, so that others may wait for how this request fared.
    fn finish(&mut self, now: Instant, taken: &Taken, change: impl Fn(&mut Slot, Token)) -> bool {
        let mut tried = self.closures.until(taken.resource).is_some();
        for (id, token) in taken.buckets.iter().zip(&taken.tokens) {
            let Some(slot) = self.buckets.get_mut(*id) else { continue };
            slot.bucket.fill(now);
            tried |= slot.bucket.was_tried(token.at) || slot.bucket.is_crowded();
            change(slot, *token);
        }
        self.closures.finished(taken.resource, taken.at);
        tried
    }

    /// Finds out how far a refusal reaches, and closes that.
    fn refused(
        &mut self,
        now: Instant,
        taken: &Taken,
        refused: Refused,
        remaining: Option<u32>,
    ) -> Vec<Closed> {
        let Refused { after, throttled } = refused;
        let reopened = self.closures.refused(taken.resource, now, taken.at, after);
        let until = now + after.unwrap_or_default().max(SUSPECTED);
        let mut enough = match remaining {
            Some(0) => 1,
            _ if reopened => 1,
            Some(_) => ENOUGH_DESPITE_QUOTA,
            None => ENOUGH,
        };
        let mut below = Some(Suspect::Resource(taken.resource));
        let mut closed = Vec::new();
        for (id, token) in self.narrowest_first(taken) {
            let Some(slot) = self.buckets.get_mut(id) else { continue };
            let suspected = below.is_some_and(|below| slot.suspect(now, below, until, enough));
            // A probe that is refused says by itself that the closure isn't over.
            if !suspected && !slot.bucket.was_tried(taken.at) {
                below = None;
                continue;
            }
            (below, enough) = (Some(Suspect::Bucket(id)), ENOUGH);
            if slot.bucket.refused(now, token, after, throttled) {
                let lasts = slot.bucket.closed_until(now).map_or(Duration::ZERO, |until| until - now);
                closed.push(Closed { limit: slot.limit, lasts, learned: slot.bucket.learned() });
            }
        }
        closed
    }

    /// The buckets of a request and its tokens, from the one that fills most slowly.
    fn narrowest_first(&self, taken: &Taken) -> Vec<(BucketId, Token)> {
        let mut buckets: Vec<_> = taken.buckets.iter().copied().zip(taken.tokens.iter().copied()).collect();
        let fills = |id| self.buckets.get(id).map_or(f64::INFINITY, |slot| slot.bucket.most().per_second);
        buckets.sort_by(|(one, _), (other, _)| fills(*one).total_cmp(&fills(*other)));
        buckets
    }

    /// What each limit is like now, by [`LimitId`].
    pub(crate) fn looks(&mut self, now: Instant) -> Vec<Look> {
        let mut looks = vec![Look::default(); self.buckets.limits()];
        for slot in self.buckets.iter_mut() {
            slot.bucket.fill(now);
            if let Some(look) = looks.get_mut(slot.limit) {
                look.add(&slot.bucket, now);
            }
        }
        looks
    }
}

impl Look {
    fn add(&mut self, bucket: &Bucket, now: Instant) {
        let rate = bucket.learned();
        let least = |other: Option<Rate>| Some(other.map_or(rate, |other| other.least(rate)));
        self.rate = least(self.rate);
        if rate != bucket.most() {
            self.learned = least(self.learned);
        }
        self.tokens = Some(self.tokens.map_or(bucket.tokens(), |tokens| tokens.min(bucket.tokens())));
        self.buckets += 1;
        self.closed_until = self.closed_until.max(bucket.closed_until(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits 0 and 1 are narrow ones and 2 is wide.
    struct World {
        supply: Supply,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let rate = |per_second| Rate { burst: 100.0, per_second };
            let now = Instant::now();
            let supply = Supply::new(vec![rate(5.0), rate(6.0), rate(10.0)], now);
            Self { supply, now: now + Duration::from_secs(100) }
        }

        fn send(&mut self, limits: &[LimitId], resource: Resource) -> Taken {
            let limits: Vec<_> = limits.iter().map(|limit| (*limit, "")).collect();
            let buckets = self.supply.buckets_of(&limits, self.now);
            self.supply.take(self.now, &buckets, resource)
        }

        /// Sends a request and has it refused. Says which limits that closed.
        fn refuse(&mut self, limits: &[LimitId], resource: Resource, remaining: Option<u32>) -> Vec<LimitId> {
            let taken = self.send(limits, resource);
            self.now += Duration::from_millis(10);
            let refused = Some(Refused { after: Some(Duration::from_secs(30)), throttled: true });
            let (closed, _) = self.supply.answered(self.now, &taken, Answer { refused, remaining });
            closed.iter().map(|closed| closed.limit).collect()
        }
    }

    #[test]
    fn a_refusal_closes_its_resource_and_a_second_resource_their_narrowest_limit() {
        let mut world = World::new();
        assert_eq!(world.refuse(&[2, 0], 1, None), [0; 0]);
        assert_eq!(world.supply.closures.count(world.now), 1);
        assert_eq!(world.refuse(&[2, 0], 1, None), [0; 0], "the same once more, from before it was closed");
        assert_eq!(world.refuse(&[2, 0], 2, None), [0]);
        assert!(world.supply.looks(world.now)[0].closed_until.is_some());
        assert!(world.supply.looks(world.now)[2].closed_until.is_none());
    }

    #[test]
    fn a_second_sending_takes_tokens_that_are_not_there_unless_something_is_closed() {
        let mut world = World::new();
        let first = world.send(&[0], 1);
        for _ in 0..99 {
            let sent = world.send(&[0], 1);
            world.supply.lost(world.now, &sent);
        }
        let again = world.supply.take_again(world.now, &first).unwrap();
        let ids = world.supply.buckets_of(&[(0, "")], world.now);
        let wait = world.supply.opens(world.now, &ids, 9, |_| 0.0) - world.now;
        assert!((0.39..0.41).contains(&wait.as_secs_f64()), "two tokens at 5 a second, not one: {wait:?}");
        world.supply.put_back(world.now, &again);
        let wait = world.supply.opens(world.now, &ids, 9, |_| 0.0) - world.now;
        assert!((0.19..0.21).contains(&wait.as_secs_f64()), "{wait:?}");
        world.refuse(&[1], 1, None);
        assert_eq!(world.supply.take_again(world.now, &first), None, "its resource is closed");
        let other = world.send(&[0], 2);
        world.refuse(&[0], 3, Some(0));
        assert_eq!(world.supply.take_again(world.now, &other), None, "its limit is closed");
    }

    #[test]
    fn two_narrow_limits_that_close_close_the_wide_one() {
        let mut world = World::new();
        for (limit, resource) in [(0, 1), (0, 2), (1, 3)] {
            world.refuse(&[limit, 2], resource, None);
        }
        assert_eq!(world.refuse(&[1, 2], 4, None), [1, 2]);
    }

    #[test]
    fn refusals_too_far_apart_have_nothing_to_do_with_each_other() {
        let mut world = World::new();
        world.refuse(&[0], 1, None);
        world.now += Duration::from_secs(31);
        assert_eq!(world.refuse(&[0], 2, None), [0; 0]);
    }

    #[test]
    fn what_the_cloud_says_of_its_quota_counts_for_or_against_the_limit() {
        let mut world = World::new();
        assert_eq!(world.refuse(&[0, 2], 1, Some(0)), [0]);
        let mut world = World::new();
        for resource in 1..4 {
            assert_eq!(world.refuse(&[0, 2], resource, Some(100)), [0; 0], "{resource}");
        }
        assert_eq!(world.refuse(&[0, 2], 4, Some(100)), [0]);
    }

    #[test]
    fn a_resource_that_was_open_again_and_is_refused_again_is_no_lock() {
        let mut world = World::new();
        world.refuse(&[0], 1, None);
        world.now += Duration::from_secs(31);
        assert_eq!(world.refuse(&[0], 1, None), [0; 0], "a lock goes on");
        world.now += Duration::from_secs(31);
        let probe = world.send(&[0], 1);
        world.supply.answered(world.now, &probe, Answer::default());
        assert_eq!(world.supply.closures.count(world.now), 0);
        assert_eq!(world.refuse(&[0], 1, None), [0]);
    }

    #[test]
    fn a_cloud_that_is_unwell_closes_a_limit_and_teaches_no_rate() {
        let mut world = World::new();
        for resource in [1, 2] {
            let taken = world.send(&[0], resource);
            let refused = Some(Refused { after: Some(Duration::from_secs(5)), throttled: false });
            world.supply.answered(world.now, &taken, Answer { refused, remaining: None });
        }
        let Look { learned, closed_until, .. } = world.supply.looks(world.now)[0];
        assert_eq!((learned, closed_until), (None, Some(world.now + Duration::from_secs(5))));
    }

    #[test]
    fn values_that_come_and_go_make_room_for_others() {
        let mut world = World::new();
        for value in 0..20_000 {
            world.supply.buckets_of(&[(0, &value.to_string())], world.now);
        }
        world.now += Duration::from_mins(1);
        let [one, other] = ["one", "other"].map(|value| world.supply.buckets_of(&[(0, value)], world.now));
        assert_ne!(one, other);
    }
}
