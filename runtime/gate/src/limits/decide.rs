//! Decides which request is sent now, which waits and which is held back. Pure: a [`LimiterState`] is told what happens
//! and when; its caller has the clock, the sockets and the waiting.
//!
//! - A request needs a token of each of its limits at once, and takes none before all are available.
//! - More urgent requests go first; within an urgency the order of arrival holds. A request that was passed by
//!   [`FAIR_SHARE`](crate::limits::urgency::FAIR_SHARE) times in a row gets the next token, so none starves.
//! - A request that waits for one limit does not hold up requests that only need another, unless it will need the same
//!   token when it can be sent.
//! - A request that can't be sent before its deadline is held back at once, with the time at which it could be sent.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::buckets::{BucketId, BucketSlot, LimitId};
use crate::limits::capacity::{Capacity, PausedLimit, TokenSet};
use crate::limits::feedback::Feedback;
use crate::limits::hold::{Hold, HoldReason};
use crate::limits::limit::Rate;
use crate::limits::pauses::Resource;
use crate::limits::queue::{Queue, QueuedRequest, Ticket};
use crate::limits::urgency::{Urgency, UrgencyCounts};

/// Twice the nodes of the largest clusters. This many small requests take 32 MiB, all that belongs to them included.
const MOST_WAITING: usize = 10_000;
/// The most memory for the bodies and headers of all requests that wait, in bytes: two of the largest bodies.
const MOST_BYTES: usize = 16 << 20;

/// What a request needs to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) urgency: Urgency,
    /// The limits, each with the value that selects its bucket.
    pub(crate) limits: &'a [(LimitId, &'a str)],
    pub(crate) resource: Resource,
    /// The memory that the request takes while it waits, in bytes.
    pub(crate) bytes: usize,
    /// Until when it may wait.
    pub(crate) soft: Instant,
}

/// Whether a request is sent now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Admission {
    /// It is sent now.
    Send(TokenSet),
    /// It waits. Its outcome is among those that [`LimiterState::take_served`] returns, perhaps already.
    Wait(Ticket),
    /// It is held back.
    Hold(Hold),
}

/// The limits of one provider and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct LimiterState {
    pub(crate) capacity: Capacity,
    pub(crate) queue: Queue,
    /// The urgencies that get the next token of a bucket although more urgent requests wait.
    due: BTreeSet<(BucketId, Urgency)>,
    served: Vec<(Ticket, Result<TokenSet, Hold>)>,
    next: Option<Instant>,
}

/// What one pass through the queue has found so far.
#[derive(Default)]
struct QueuePass {
    /// Available tokens that an earlier request will need which can't be sent yet.
    claims: HashMap<BucketId, f64>,
    /// Buckets for which an earlier request waits longer than for its others.
    dry: HashSet<BucketId>,
}

impl QueuePass {
    fn claimed(&self, id: BucketId) -> f64 {
        self.claims.get(&id).copied().unwrap_or(0.0)
    }
}

impl LimiterState {
    /// Creates limits with these highest rates, and with empty buckets.
    pub(crate) fn new(most: Vec<Rate>, now: Instant) -> Self {
        let (capacity, queue) = (Capacity::new(most, now), Queue::default());
        Self { capacity, queue, due: BTreeSet::new(), served: Vec::new(), next: None }
    }

    /// Lets all buckets hold what has filled since a predecessor sent its last request, this long ago. It may have spent what
    /// they held.
    pub(crate) fn refill(&mut self, now: Instant, idle: Duration) {
        self.capacity.buckets.refill(now, idle);
        self.hold_back_late(now);
        self.serve(now);
    }

    /// Admits a request.
    pub(crate) fn acquire(&mut self, now: Instant, request: TokenRequest<'_>) -> Admission {
        let TokenRequest { urgency, limits, resource, bytes, soft } = request;
        let buckets = self.capacity.buckets_of(limits, now);
        let position = |_, slot: &BucketSlot| slot.waiting.position(urgency);
        let estimate = self.capacity.estimate(now, &buckets, resource, position);
        if estimate.at > soft {
            return Admission::Hold(Hold::new(estimate, now));
        }
        let opens = self.capacity.opens_at(now, &buckets, resource, |_| 0.0);
        let is_wanted = |id: &BucketId| self.capacity.buckets.get(*id).is_some_and(BucketSlot::is_wanted);
        if opens <= now && !buckets.iter().any(is_wanted) {
            return Admission::Send(self.grant(now, urgency, &buckets, resource));
        }
        if !self.make_room(now, urgency, bytes) {
            return Admission::Hold(Hold { reason: HoldReason::QueueFull, ..Hold::new(estimate, now) });
        }
        for id in &*buckets {
            if let Some(slot) = self.capacity.buckets.get_mut(*id) {
                slot.joined(urgency);
            }
        }
        let ticket = self.queue.push(urgency, QueuedRequest::new(buckets, resource, bytes, soft));
        self.next = Some(self.next.map_or(opens, |next| next.min(opens)));
        if opens <= now {
            self.serve(now);
        }
        Admission::Wait(ticket)
    }

    /// Takes the outcomes of requests that waited. Each is returned once.
    pub(crate) fn take_served(&mut self) -> Vec<(Ticket, Result<TokenSet, Hold>)> {
        std::mem::take(&mut self.served)
    }

    /// When [`Self::serve`] has something to do again, if nothing happens before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Holds back a request whose deadline has passed. None if it has an outcome already.
    pub(crate) fn expire(&mut self, now: Instant, ticket: Ticket) -> Option<Hold> {
        let hold = self.hold_back(now, ticket)?;
        self.serve(now);
        Some(hold)
    }

    /// Removes a request whose caller gave up.
    pub(crate) fn cancel(&mut self, now: Instant, ticket: Ticket) {
        if self.leave(ticket).is_some() {
            self.serve(now);
        }
    }

    /// Puts back the tokens of a request that was not sent.
    pub(crate) fn put_back(&mut self, now: Instant, taken: &TokenSet) {
        self.capacity.put_back(now, taken);
        self.serve(now);
    }

    /// Notes that a request was sent and never will be answered.
    pub(crate) fn on_lost(&mut self, now: Instant, taken: &TokenSet) {
        if self.capacity.on_lost(now, taken) {
            self.serve(now);
        }
    }

    /// Notes the answer to a request. Returns the limits that it paused.
    pub(crate) fn on_answer(&mut self, now: Instant, taken: &TokenSet, reply: &Feedback) -> Vec<PausedLimit> {
        let (closed, tried) = self.capacity.on_answer(now, taken, reply);
        let closes = reply.refused.is_some() || reply.locked.is_some();
        if closes {
            self.hold_back_late(now);
        }
        if tried || closes {
            self.serve(now);
        }
        closed
    }

    /// Gives tokens to the requests that can be sent now.
    pub(crate) fn serve(&mut self, now: Instant) {
        while self.serve_once(now) {}
    }

    /// Goes through the first requests of all groups in order. Ends early, with true, if an urgency was passed by so
    /// often that the order changes. A token was given then, so this can't go on forever.
    fn serve_once(&mut self, now: Instant) -> bool {
        let mut round = QueuePass::default();
        self.next = None;
        let due = self.due.iter().filter_map(|(bucket, urgency)| self.queue.first_for(*bucket, *urgency));
        let due: BTreeSet<_> = due.collect();
        for ticket in &due {
            self.serve_one(now, *ticket, &mut round);
        }
        let known = self.due.clone();
        let mut last = None;
        while let Some(ticket) = self.queue.head_after(last) {
            last = Some(ticket);
            let served = !due.contains(&ticket) && self.serve_one(now, ticket, &mut round);
            if served && !self.due.is_subset(&known) {
                return true;
            }
        }
        false
    }

    /// Gives a request its tokens if all are available that no earlier request claims. Otherwise, if it is the first to
    /// wait for this bucket, it claims the tokens that it will need when that one is available and that will not have
    /// flowed in again by then. Does nothing for later requests that need the same bucket.
    fn serve_one(&mut self, now: Instant, ticket: Ticket, round: &mut QueuePass) -> bool {
        let Some(QueuedRequest { buckets, resource, .. }) = self.queue.get(ticket) else { return false };
        if buckets.iter().any(|id| round.dry.contains(id)) {
            return false;
        }
        let (buckets, resource) = (buckets.clone(), *resource);
        let opens = self.capacity.opens_at(now, &buckets, resource, |id| round.claimed(id));
        if opens <= now {
            self.leave(ticket);
            let taken = self.grant(now, ticket.urgency, &buckets, resource);
            self.served.push((ticket, Ok(taken)));
            return true;
        }
        for id in &*buckets {
            let Some(slot) = self.capacity.buckets.get(*id) else { continue };
            let claimed = round.claimed(*id);
            let spare = slot.bucket.free(now) - claimed - 1.0;
            if slot.bucket.available_at(now, 1.0 + claimed) >= opens {
                round.dry.insert(*id);
            } else if spare >= 0.0 && spare + slot.bucket.inflow(opens.duration_since(now)) < 1.0 {
                *round.claims.entry(*id).or_default() += 1.0;
            }
        }
        self.next = Some(self.next.map_or(opens, |next| next.min(opens)));
        if self.capacity.pauses.opens_at(resource, now) > now {
            self.queue.set_apart(ticket);
        }
        false
    }

    fn grant(
        &mut self,
        now: Instant,
        urgency: Urgency,
        buckets: &Arc<[BucketId]>,
        resource: Resource,
    ) -> TokenSet {
        for id in &**buckets {
            let Some(slot) = self.capacity.buckets.get_mut(*id) else { continue };
            self.due.remove(&(*id, urgency));
            self.due.extend(slot.passed_by(urgency).into_iter().map(|passed| (*id, passed)));
        }
        self.capacity.take(now, buckets, resource)
    }

    /// Removes a request from the queue.
    fn leave(&mut self, ticket: Ticket) -> Option<QueuedRequest> {
        let waiting = self.queue.remove(ticket)?;
        for id in &*waiting.buckets {
            let Some(slot) = self.capacity.buckets.get_mut(*id) else { continue };
            if slot.left(ticket.urgency) == 0 {
                self.due.remove(&(*id, ticket.urgency));
            }
        }
        Some(waiting)
    }

    fn hold_back(&mut self, now: Instant, ticket: Ticket) -> Option<Hold> {
        let QueuedRequest { buckets, resource, .. } = self.leave(ticket)?;
        let position = |_, slot: &BucketSlot| slot.waiting.position(ticket.urgency);
        Some(Hold::new(self.capacity.estimate(now, &buckets, resource, position), now))
    }

    /// Holds back less urgent requests until there is room for one more.
    fn make_room(&mut self, now: Instant, urgency: Urgency, bytes: usize) -> bool {
        while self.queue.len() >= MOST_WAITING || self.queue.bytes().saturating_add(bytes) > MOST_BYTES {
            let Some(last) = self.queue.last().filter(|last| last.urgency > urgency) else { return false };
            let Some(hold) = self.hold_back(now, last) else { return false };
            self.served.push((last, Err(Hold { reason: HoldReason::QueueFull, ..hold })));
        }
        true
    }

    /// Holds back all requests whose deadline will pass before they can be sent.
    pub(super) fn hold_back_late(&mut self, now: Instant) {
        let mut before: HashMap<BucketId, UrgencyCounts> = HashMap::new();
        let mut late = Vec::new();
        for (ticket, QueuedRequest { buckets, resource, soft, .. }) in self.queue.iter() {
            let position =
                |id, _: &BucketSlot| before.get(&id).copied().unwrap_or_default().position(ticket.urgency);
            let estimate = self.capacity.estimate(now, buckets, *resource, position);
            if estimate.at > *soft {
                late.push((ticket, Hold::new(estimate, now)));
            } else {
                buckets.iter().for_each(|id| *before.entry(*id).or_default().of_mut(ticket.urgency) += 1);
            }
        }
        for (ticket, hold) in late {
            self.leave(ticket);
            self.served.push((ticket, Err(hold)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::feedback::CloudRefusal;
    use crate::limits::urgency::FAIR_SHARE;

    const FOREVER: Duration = Duration::from_hours(8000);
    const ACCEPTED: Feedback = Feedback { refused: None, locked: None, remaining: None, told: Vec::new() };

    fn refused(seconds: u64) -> Feedback {
        let after = Some(Duration::from_secs(seconds));
        Feedback { refused: Some(CloudRefusal { after, throttled: true }), ..ACCEPTED }
    }

    /// A state, its clock, and which requests were sent when.
    struct World {
        state: LimiterState,
        now: Instant,
        gone: Vec<(Ticket, TokenSet, Instant)>,
        turned_away: Vec<(Ticket, Hold)>,
    }

    impl World {
        fn new(limits: &[(f64, f64)]) -> Self {
            let most =
                limits.iter().map(|(burst, per_second)| Rate { burst: *burst, per_second: *per_second });
            let now = Instant::now();
            Self {
                state: LimiterState::new(most.collect(), now),
                now,
                gone: Vec::new(),
                turned_away: Vec::new(),
            }
        }

        /// With full buckets.
        fn full(limits: &[(f64, f64)]) -> Self {
            let mut world = Self::new(limits);
            world.now += FOREVER;
            world
        }

        fn ask(&mut self, urgency: Urgency, limits: &[LimitId], resource: Resource) -> Admission {
            self.ask_until(urgency, limits, resource, FOREVER)
        }

        fn ask_until(
            &mut self,
            urgency: Urgency,
            limits: &[LimitId],
            resource: Resource,
            patience: Duration,
        ) -> Admission {
            let limits: Vec<_> = limits.iter().map(|limit| (*limit, "")).collect();
            let soft = self.now + patience;
            let request = TokenRequest { urgency, limits: &limits, resource, bytes: 100, soft };
            let verdict = self.state.acquire(self.now, request);
            self.note();
            verdict
        }

        fn waits(&mut self, urgency: Urgency, limits: &[LimitId]) -> Ticket {
            match self.ask(urgency, limits, 0) {
                Admission::Wait(ticket) => ticket,
                other => panic!("{other:?}"),
            }
        }

        fn goes(&mut self, limits: &[LimitId], resource: Resource) -> TokenSet {
            match self.ask(Urgency::User, limits, resource) {
                Admission::Send(taken) => taken,
                Admission::Wait(ticket) if self.order().last() == Some(&ticket) => self.gone.pop().unwrap().1,
                other => panic!("{other:?}"),
            }
        }

        fn answer(&mut self, taken: &TokenSet, answer: &Feedback) -> Vec<LimitId> {
            let closed = self.state.on_answer(self.now, taken, answer);
            self.note();
            closed.iter().map(|closed| closed.limit).collect()
        }

        fn note(&mut self) {
            for (ticket, outcome) in self.state.take_served() {
                match outcome {
                    Ok(taken) => self.gone.push((ticket, taken, self.now)),
                    Err(hold) => self.turned_away.push((ticket, hold)),
                }
            }
        }

        /// Lets time pass as for a caller that wakes when the state asks for it.
        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            while let Some(next) = self.state.next().filter(|next| *next <= end) {
                self.now = next.max(self.now);
                self.state.serve(self.now);
                self.note();
            }
            self.now = end;
        }

        /// Answers all requests that were sent.
        fn answer_all(&mut self) {
            for (_, taken, _) in self.gone.clone() {
                self.state.on_lost(self.now, &taken);
            }
            self.note();
        }

        fn order(&self) -> Vec<Ticket> {
            self.gone.iter().map(|(ticket, ..)| *ticket).collect()
        }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_new_bucket_is_empty_and_fills_to_its_burst() {
        let mut world = World::new(&[(3.0, 1.0)]);
        let first = world.waits(Urgency::Background, &[0]);
        world.pass(seconds(0.9));
        assert_eq!(world.order(), []);
        world.pass(seconds(0.2));
        assert_eq!(world.order(), [first]);
        world.pass(seconds(100.0));
        for _ in 0..3 {
            world.goes(&[0], 0);
        }
        world.waits(Urgency::User, &[0]);
        world.state.refill(world.now, Duration::ZERO);
        world.pass(seconds(0.9));
        assert_eq!(world.gone.len(), 1);
    }

    #[test]
    fn a_request_takes_a_token_of_each_of_its_limits_or_none() {
        let mut world = World::full(&[(2.0, 1.0), (1.0, 0.1)]);
        world.goes(&[0, 1], 0);
        let both = world.waits(Urgency::User, &[0, 1]);
        // It needs a token of the second limit in 10 s; by then a new token of the first limit has flowed in.
        world.goes(&[0], 0);
        world.pass(seconds(10.5));
        assert_eq!(world.order(), [both]);
    }

    #[test]
    fn a_request_for_two_limits_is_not_starved_by_requests_for_one() {
        let mut world = World::new(&[(1.0, 1.0), (1.0, 0.9)]);
        world.waits(Urgency::Background, &[0]);
        let both = world.waits(Urgency::Background, &[0, 1]);
        for _ in 0..100 {
            world.waits(Urgency::Background, &[0]);
            world.waits(Urgency::Background, &[1]);
        }
        world.pass(seconds(3.0));
        assert!(world.order().contains(&both));
    }

    #[test]
    fn more_urgent_requests_go_first_and_within_an_urgency_in_order_of_arrival() {
        let mut world = World::new(&[(1.0, 1.0)]);
        let late = world.waits(Urgency::Background, &[0]);
        let later = world.waits(Urgency::Background, &[0]);
        let second = world.waits(Urgency::Initialise, &[0]);
        let first = world.waits(Urgency::User, &[0]);
        world.pass(seconds(4.5));
        assert_eq!(world.order(), [first, second, late, later]);
    }

    #[test]
    fn a_request_passed_by_a_share_of_tokens_gets_the_next() {
        let mut world = World::new(&[(1.0, 1.0)]);
        let background = world.waits(Urgency::Background, &[0]);
        let urgent: Vec<_> = (0..40).map(|_| world.waits(Urgency::User, &[0])).collect();
        let other = world.waits(Urgency::Background, &[0]);
        for _ in 0..85 {
            world.pass(seconds(0.5));
            world.answer_all();
        }
        let share = usize::try_from(FAIR_SHARE).unwrap();
        let mut expected = urgent;
        expected.insert(share, background);
        expected.insert(2 * share + 1, other);
        assert_eq!(world.order(), expected);
    }

    #[test]
    fn a_request_that_cannot_be_sent_in_time_gets_the_earliest_time_at_once() {
        let mut world = World::full(&[(1.0, 0.5)]);
        world.goes(&[0], 0);
        for _ in 0..4 {
            world.waits(Urgency::Initialise, &[0]);
        }
        let patience = seconds(5.0);
        let Admission::Hold(hold) = world.ask_until(Urgency::Initialise, &[0], 0, patience) else {
            panic!("it would be the fifth, after 10 s");
        };
        let Hold { limit, reason, after } = hold;
        assert_eq!((limit, reason, after.as_secs_f64().round()), (Some(0), HoldReason::Rate, 10.0));
        // Ahead of these four it waits 2 s.
        let urgent = world.ask_until(Urgency::User, &[0], 0, patience);
        let Admission::Wait(urgent) = urgent else { panic!("{urgent:?}") };
        world.pass(seconds(2.1));
        assert_eq!(world.order(), [urgent]);
    }

    #[test]
    fn a_request_past_its_deadline_names_a_limit_only_if_one_holds_it_back() {
        // The burst, whether the resource was refused, how long ago, and the reason and limit for a request whose
        // deadline has passed.
        let rows = [
            (100.0, false, 0.0, HoldReason::Late, None),
            (100.0, true, 1.0, HoldReason::ResourcePaused, None),
            // The pause is over, but its probe is in flight.
            (100.0, true, 11.0, HoldReason::ResourcePaused, None),
            (1.0, false, 0.0, HoldReason::Rate, Some(0)),
        ];
        for (burst, is_refused, after, reason, limit) in rows {
            let mut world = World::full(&[(burst, 0.1)]);
            let taken = world.goes(&[0], 7);
            if is_refused {
                world.answer(&taken, &refused(10));
            }
            world.pass(seconds(after));
            if after > 10.0 {
                world.goes(&[0], 7);
            }
            let soft = world.now;
            world.now += seconds(0.001);
            let request =
                TokenRequest { urgency: Urgency::User, limits: &[(0, "")], resource: 7, bytes: 100, soft };
            let admission = world.state.acquire(world.now, request);
            let Admission::Hold(hold) = admission else { panic!("{admission:?}") };
            assert_eq!((hold.reason, hold.limit), (reason, limit), "{burst} {is_refused} {after}");
        }
    }

    #[test]
    fn a_waiting_request_that_can_no_longer_be_sent_in_time_is_held_back_when_the_limit_pauses() {
        let mut world = World::full(&[(2.0, 1.0)]);
        let (one, other) = (world.goes(&[0], 1), world.goes(&[0], 2));
        let Admission::Wait(short) = world.ask_until(Urgency::User, &[0], 3, seconds(5.0)) else { panic!() };
        let Admission::Wait(long) = world.ask_until(Urgency::User, &[0], 4, seconds(60.0)) else { panic!() };
        world.answer(&one, &refused(30));
        world.answer(&other, &refused(30));
        let [(ticket, hold)] = world.turned_away[..] else { panic!("{:?}", world.turned_away) };
        assert_eq!((ticket, hold.limit, hold.reason), (short, Some(0), HoldReason::LimitPaused));
        assert!((30.0..30.1).contains(&hold.after.as_secs_f64()), "{hold:?}");
        world.pass(seconds(31.0));
        assert_eq!(world.order(), [long]);
    }

    #[test]
    fn a_full_queue_holds_back_the_least_urgent_request_that_came_last() {
        let mut world = World::new(&[(1.0, 0.001)]);
        let tickets: Vec<_> = (0..MOST_WAITING).map(|_| world.waits(Urgency::Background, &[0])).collect();
        let refused = world.ask(Urgency::Background, &[0], 0);
        assert!(
            matches!(refused, Admission::Hold(Hold { reason: HoldReason::QueueFull, .. })),
            "{refused:?}"
        );
        world.waits(Urgency::User, &[0]);
        let [(ticket, hold)] = world.turned_away[..] else { panic!("{:?}", world.turned_away) };
        assert_eq!((Some(&ticket), hold.reason), (tickets.last(), HoldReason::QueueFull));
        assert_eq!(world.state.queue.count(Urgency::Background), MOST_WAITING - 1);
    }

    #[test]
    fn the_queue_is_bounded_in_bytes_too() {
        let mut world = World::new(&[(1.0, 0.001)]);
        let soft = world.now + FOREVER;
        let large = |urgency| TokenRequest { urgency, limits: &[(0, "")], resource: 0, bytes: 8 << 20, soft };
        for _ in 0..2 {
            assert!(matches!(world.state.acquire(world.now, large(Urgency::Background)), Admission::Wait(_)));
        }
        assert!(matches!(world.state.acquire(world.now, large(Urgency::Background)), Admission::Hold(_)));
        assert!(matches!(world.state.acquire(world.now, large(Urgency::User)), Admission::Wait(_)));
        assert_eq!((world.state.take_served().len(), world.state.queue.bytes()), (1, 16 << 20));
    }

    #[test]
    fn a_paused_resource_holds_up_no_other_and_one_probe_ends_the_pause() {
        let mut world = World::full(&[(100.0, 100.0)]);
        let locked = world.goes(&[0], 7);
        assert!(world.answer(&locked, &refused(10)).is_empty());
        world.goes(&[0], 8);
        let admission = world.ask_until(Urgency::User, &[0], 7, seconds(5.0));
        let Admission::Hold(Hold { limit: None, reason: HoldReason::ResourcePaused, after }) = admission
        else {
            panic!("{admission:?}");
        };
        assert_eq!(after, seconds(10.0));
        for _ in 0..3 {
            world.ask(Urgency::User, &[0], 7);
        }
        world.goes(&[0], 8);
        world.pass(seconds(10.1));
        assert_eq!(world.gone.len(), 1, "one tries");
        let probe = world.gone[0].1.clone();
        world.answer(&probe, &ACCEPTED);
        assert_eq!(world.gone.len(), 3);
    }

    #[test]
    fn requests_of_one_group_are_split_when_a_resource_pauses() {
        let mut world = World::full(&[(1.0, 1.0)]);
        let locked = world.goes(&[0], 7);
        for resource in [7, 7, 8] {
            world.ask(Urgency::User, &[0], resource);
        }
        world.answer(&locked, &refused(60));
        world.pass(seconds(1.5));
        assert_eq!(world.gone.len(), 1, "the third");
        world.pass(seconds(60.0));
        assert_eq!(world.gone.len(), 2, "and the first, as a probe");
    }

    #[test]
    fn one_probe_ends_the_pause_of_a_limit() {
        let mut world = World::full(&[(10.0, 10.0)]);
        let taken = [world.goes(&[0], 1), world.goes(&[0], 2)];
        for taken in &taken {
            world.answer(taken, &refused(10));
        }
        for resource in 3..8 {
            world.ask(Urgency::User, &[0], resource);
        }
        world.pass(seconds(9.9));
        assert_eq!(world.gone.len(), 0);
        world.pass(seconds(0.2));
        assert_eq!(world.gone.len(), 1);
        let probe = world.gone[0].1.clone();
        world.answer(&probe, &refused(10));
        world.pass(seconds(9.9));
        assert_eq!(world.gone.len(), 1, "it was refused");
        world.pass(seconds(0.2));
        assert_eq!(world.gone.len(), 2);
        world.pass(seconds(5.0));
        assert_eq!(world.gone.len(), 3, "it wasn't answered in time, so another tries");
        let probe = world.gone[2].1.clone();
        world.answer(&probe, &ACCEPTED);
        world.pass(seconds(5.0));
        assert_eq!(world.gone.len(), 5, "it went through");
    }

    #[test]
    fn a_cancelled_request_leaves_nothing_behind() {
        let mut world = World::full(&[(2.0, 1.0), (2.0, 1.0)]);
        let taken = [world.goes(&[0, 1], 0), world.goes(&[0, 1], 0)];
        let tickets: Vec<_> = (0..5).map(|_| world.waits(Urgency::User, &[0, 1])).collect();
        for ticket in tickets {
            world.state.cancel(world.now, ticket);
        }
        for taken in &taken {
            world.state.put_back(world.now, taken);
        }
        assert_eq!((world.state.queue.count(Urgency::User), world.state.queue.bytes()), (0, 0));
        for _ in 0..2 {
            world.goes(&[0, 1], 0);
        }
        world.waits(Urgency::User, &[0, 1]);
    }

    /// The next step of a run.
    #[derive(Debug, Clone)]
    enum Step {
        Ask(Urgency, Vec<LimitId>, Resource),
        Pass(u64),
        /// The oldest request in flight is answered with this, or put back.
        Feedback(Option<Feedback>),
        Cancel(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let urgency = prop::sample::select(Urgency::ALL.to_vec());
        let limits = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
        let quota = prop::option::of(0_u32..5);
        let hold = (0_u64..3).prop_map(refused);
        let answer = prop_oneof![
            4 => Just(Some(ACCEPTED)),
            1 => hold.prop_map(Some),
            1 => quota.prop_map(|remaining| Some(Feedback { remaining, ..ACCEPTED })),
            1 => Just(None),
        ];
        prop_oneof![
            8 => (urgency, limits, 0..4_u64).prop_map(|(urgency, limits, resource)| Step::Ask(urgency, limits, resource)),
            4 => (0_u64..1500).prop_map(Step::Pass),
            4 => answer.prop_map(Step::Feedback),
            1 => (0_usize..20).prop_map(Step::Cancel),
        ]
    }

    /// A request that was sent: when, and what it needed.
    #[derive(Debug, Clone)]
    struct Sent {
        at: Instant,
        taken: TokenSet,
        limits: Vec<LimitId>,
    }

    /// Runs steps. Returns the requests that were sent.
    fn run(world: &mut World, steps: Vec<Step>) -> Vec<Sent> {
        let (mut sent, mut answered) = (Vec::<Sent>::new(), 0);
        let mut asked: Vec<(Ticket, Vec<LimitId>)> = Vec::new();
        for step in steps {
            match step {
                Step::Ask(urgency, limits, resource) => match world.ask(urgency, &limits, resource) {
                    Admission::Send(taken) => sent.push(Sent { at: world.now, taken, limits }),
                    Admission::Wait(ticket) => asked.push((ticket, limits)),
                    Admission::Hold(_) => {}
                },
                Step::Pass(time) => world.pass(Duration::from_millis(time)),
                Step::Feedback(answer) => {
                    let Some(one) = sent.get(answered).cloned() else { continue };
                    if let Some(answer) = answer {
                        world.answer(&one.taken, &answer);
                        answered += 1;
                    } else {
                        world.state.put_back(world.now, &one.taken);
                        world.note();
                        sent.remove(answered);
                    }
                }
                Step::Cancel(index) => {
                    if let Some((ticket, _)) = asked.get(index) {
                        world.state.cancel(world.now, *ticket);
                        world.note();
                    }
                }
            }
            for (ticket, taken, at) in world.gone.drain(..) {
                let (_, limits) = asked.iter().find(|(known, _)| *known == ticket).unwrap();
                sent.push(Sent { at, taken, limits: limits.clone() });
            }
        }
        sent
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn over_any_time_no_more_is_sent_than_every_limit_allows(
            steps in prop::collection::vec(step(), 1..200),
            limits in prop::collection::vec((1_u32..6, 0.2..20.0), 3),
        ) {
            let limits: Vec<_> = limits.iter().map(|(burst, rate)| (f64::from(*burst), *rate)).collect();
            let mut world = World::new(&limits);
            let start = world.now;
            let sent = run(&mut world, steps);
            for (limit, (burst, rate)) in limits.iter().enumerate() {
                let mut times: Vec<_> =
                    sent.iter().filter(|sent| sent.limits.contains(&limit)).map(|sent| sent.at).collect();
                times.sort();
                for (first, from) in times.iter().enumerate() {
                    for (last, to) in times.iter().enumerate().skip(first) {
                        let count = f64::from(u32::try_from(last - first + 1).unwrap());
                        let allowed = burst + rate * to.duration_since(*from).as_secs_f64();
                        prop_assert!(count <= allowed + 0.01, "{count} where {allowed} are allowed");
                    }
                }
                if let Some(last) = times.last() {
                    let count = f64::from(u32::try_from(times.len()).unwrap());
                    prop_assert!(count <= rate * last.duration_since(start).as_secs_f64() + 0.01, "from empty");
                }
            }
        }

        #[test]
        fn every_request_that_stays_is_sent_and_nothing_is_lost(steps in prop::collection::vec(step(), 1..200)) {
            let mut world = World::new(&[(2.0, 5.0), (3.0, 1.0), (1.0, 10.0)]);
            run(&mut world, steps);
            // No request is answered from here on, so pauses end by probes that are given up.
            world.pass(Duration::from_hours(10));
            prop_assert_eq!(world.state.queue.len(), 0);
            prop_assert_eq!(world.state.queue.bytes(), 0);
            prop_assert!(world.state.due.is_empty() && world.state.queue.head_after(None).is_none());
        }

        #[test]
        fn nobody_of_the_same_needs_passes_somebody_more_urgent_or_earlier_except_by_his_share(
            urgencies in prop::collection::vec((prop::sample::select(Urgency::ALL.to_vec()), 0_u64..300), 1..300),
        ) {
            let mut world = World::new(&[(2.0, 10.0)]);
            let mut waiting: BTreeSet<Ticket> = BTreeSet::new();
            let mut passed: HashMap<Urgency, u32> = HashMap::new();
            for (urgency, time) in urgencies {
                match world.ask(urgency, &[0], 0) {
                    Admission::Send(_) => prop_assert!(waiting.is_empty()),
                    Admission::Wait(ticket) => { waiting.insert(ticket); }
                    Admission::Hold(hold) => panic!("{hold:?}"),
                }
                world.pass(Duration::from_millis(time));
                for (ticket, ..) in world.gone.drain(..) {
                    let first = *waiting.first().unwrap();
                    let own = waiting.iter().find(|other| other.urgency == ticket.urgency).unwrap();
                    prop_assert_eq!(*own, ticket, "first come, first served");
                    let by_share = passed.get(&ticket.urgency).is_some_and(|passed| *passed >= FAIR_SHARE);
                    prop_assert!(first == ticket || by_share, "{:?} passed {:?}", ticket, first);
                    waiting.remove(&ticket);
                    passed.insert(ticket.urgency, 0);
                    for urgency in Urgency::ALL.into_iter().filter(|urgency| *urgency > ticket.urgency) {
                        let waits = waiting.iter().any(|other| other.urgency == urgency);
                        let passed = passed.entry(urgency).or_default();
                        *passed = if waits { *passed + 1 } else { 0 };
                        prop_assert!(*passed <= FAIR_SHARE + 1, "{:?} starves", urgency);
                    }
                }
            }
        }
    }
}
