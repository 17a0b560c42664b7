//! Which write waits for which. Pure: an [`Order`] is told what happens and when, and says what follows.
//!
//! A write that was begun and whose caller has gone goes on alone, and nobody knows yet what it has done. What is sent to
//! the same resource meanwhile could be overtaken by it, so it waits, in the order in which it came. Writes whose callers
//! still wait are not ordered: who sends two at once hears of both, and what comes of that is the provider's business.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// How long a write that was begun is waited for, counted from its sending. The slowest clouds give up at this as well.
pub(crate) const LONGEST: Duration = Duration::from_mins(1);
/// As many writes may go on alone as four calls have under way at most. While there are so many, none is begun.
const MOST_LEFT: usize = 256;
/// What these may hold in memory; two of the largest bodies.
const MOST_LEFT_BYTES: usize = 16 << 20;
/// So many more may wait for them, and hold as much; the limits' own queue comes after this one.
const MOST_WAITING: usize = 1_000;
const MOST_WAITING_BYTES: usize = 16 << 20;

/// What a write changes: a hash of its place.
pub(crate) type Resource = u64;

/// One write, from when it is asked for. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u64);

/// What a write is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) resource: Resource,
    /// What it holds in memory.
    pub(crate) bytes: usize,
}

/// What becomes of a write that wants to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    /// Until it is among what [`Order::end`] says.
    Wait(Id),
    /// Too many wait already. It could go after this time for sure.
    Refuse(Duration),
}

#[derive(Debug, Clone, Copy)]
struct Left {
    write: Write,
    /// When it is over for sure.
    until: Instant,
}

/// The writes of a gate.
#[derive(Debug, Default)]
pub(crate) struct Order {
    next: u64,
    /// Those whose callers wait, and when they were begun.
    attended: HashMap<Id, (Write, Option<Instant>)>,
    /// Those whose callers have gone.
    left: BTreeMap<Id, Left>,
    waiting: BTreeMap<Id, Write>,
}

impl Order {
    /// A write wants to be sent.
    pub(crate) fn ask(&mut self, now: Instant, write: Write) -> Verdict {
        if self.is_free(write.resource) {
            return Verdict::Go;
        }
        let held: usize = self.waiting.values().map(|waiting| waiting.bytes).sum();
        if self.waiting.len() >= MOST_WAITING || held.saturating_add(write.bytes) > MOST_WAITING_BYTES {
            return Verdict::Refuse(self.free_after(now, write.resource));
        }
        let id = self.id();
        self.waiting.insert(id, write);
        Verdict::Wait(id)
    }

    /// Whether nothing stands in the way of a write to this resource.
    pub(crate) fn is_free(&self, resource: Resource) -> bool {
        !self.is_full() && self.of(resource).next().is_none()
    }

    /// When nothing will stand in its way any more for sure.
    pub(crate) fn free_after(&self, now: Instant, resource: Resource) -> Duration {
        let room = self.left.values().map(|left| left.until).min().filter(|_| self.is_full());
        let until = self.of(resource).map(|left| left.until).max().max(room);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Somebody who waited has gone, or his time is up.
    pub(crate) fn cancel(&mut self, id: Id) {
        self.waiting.remove(&id);
    }

    /// A write is on its way to a connection.
    pub(crate) fn start(&mut self, write: Write) -> Id {
        let id = self.id();
        self.attended.insert(id, (write, None));
        id
    }

    /// The first byte of a write is about to be sent. Says whether it may be.
    pub(crate) fn begin(&mut self, now: Instant, id: Id) -> bool {
        match self.attended.get_mut(&id) {
            Some((_, begun)) => {
                begun.get_or_insert(now);
                true
            }
            None => self.left.contains_key(&id),
        }
    }

    /// Whether a write was begun and isn't over.
    pub(crate) fn is_begun(&self, id: Id) -> bool {
        matches!(self.attended.get(&id), Some((_, Some(_)))) || self.left.contains_key(&id)
    }

    /// A write isn't to be sent any more. Says whether it is too late for that.
    pub(crate) fn give_up(&mut self, id: Id) -> bool {
        let is_begun = self.is_begun(id);
        if !is_begun {
            self.attended.remove(&id);
        }
        is_begun
    }

    /// Nobody waits for a write any more. It goes on alone if it was begun.
    pub(crate) fn leave(&mut self, id: Id) {
        if let Some((write, Some(begun))) = self.attended.remove(&id) {
            self.left.insert(id, Left { write, until: begun + LONGEST });
        }
    }

    /// A write is over. Says who may go for that, in the order in which they came.
    pub(crate) fn end(&mut self, id: Id) -> Vec<Id> {
        self.attended.remove(&id);
        if self.left.remove(&id).is_none() {
            return Vec::new();
        }
        let freed: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, write)| self.is_free(write.resource))
            .map(|(id, _)| *id)
            .collect();
        for id in &freed {
            self.waiting.remove(id);
        }
        freed
    }

    fn of(&self, resource: Resource) -> impl Iterator<Item = &Left> {
        self.left.values().filter(move |left| left.write.resource == resource)
    }

    fn is_full(&self) -> bool {
        let held: usize = self.left.values().map(|left| left.write.bytes).sum();
        self.left.len() >= MOST_LEFT || held > MOST_LEFT_BYTES
    }

    fn id(&mut self) -> Id {
        self.next += 1;
        Id(self.next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn to(resource: Resource) -> Write {
        Write { resource, bytes: 10 }
    }

    /// A write that was begun then.
    fn begun(order: &mut Order, resource: Resource, now: Instant) -> Id {
        let id = order.start(to(resource));
        assert!(order.begin(now, id));
        id
    }

    fn waits(order: &mut Order, resource: Resource, now: Instant) -> Id {
        let Verdict::Wait(id) = order.ask(now, to(resource)) else { panic!("it doesn't wait") };
        id
    }

    #[test]
    fn only_what_was_begun_and_left_stands_in_the_way_of_its_own_resource() {
        type Events = fn(&mut Order, Instant);
        let rows: [(&str, Events, bool); 6] = [
            ("nothing", |_, _| {}, true),
            ("one that isn't begun", |order, _| _ = order.start(to(1)), true),
            ("one that is attended", |order, now| _ = begun(order, 1, now), true),
            (
                "one that was given up before it was begun",
                |order, _| {
                    let id = order.start(to(1));
                    order.leave(id);
                },
                true,
            ),
            (
                "one that was left",
                |order, now| {
                    let id = begun(order, 1, now);
                    order.leave(id);
                },
                false,
            ),
            (
                "one that was left and ended",
                |order, now| {
                    let id = begun(order, 1, now);
                    order.leave(id);
                    order.end(id);
                },
                true,
            ),
        ];
        for (name, events, is_free) in rows {
            let (mut order, now) = (Order::default(), Instant::now());
            events(&mut order, now);
            assert_eq!(order.ask(now, to(1)) == Verdict::Go, is_free, "{name}");
            assert_eq!(order.ask(now, to(2)), Verdict::Go, "{name}: another resource");
        }
    }

    #[test]
    fn those_who_wait_go_in_the_order_in_which_they_came_once_all_that_was_left_is_over() {
        let (mut order, now) = (Order::default(), Instant::now());
        let (one, other) = (begun(&mut order, 1, now), begun(&mut order, 1, now));
        order.leave(one);
        order.leave(other);
        let waiting: Vec<_> = (0..5).map(|_| waits(&mut order, 1, now)).collect();
        order.cancel(waiting[2]);
        assert_eq!(order.end(one), []);
        assert_eq!(order.end(other), [waiting[0], waiting[1], waiting[3], waiting[4]]);
        assert_eq!(order.ask(now, to(1)), Verdict::Go);
    }

    #[test]
    fn a_write_is_begun_once_or_given_up_but_never_both() {
        let (mut order, now) = (Order::default(), Instant::now());
        let id = order.start(to(1));
        assert!(!order.give_up(id) && !order.begin(now, id), "it is given up");
        let id = begun(&mut order, 1, now);
        assert!(order.give_up(id), "too late");
        order.leave(id);
        assert!(order.give_up(id) && order.begin(now, id), "it goes on alone");
        order.end(id);
        assert!(!order.give_up(id) && !order.begin(now, id), "it is over");
    }

    #[test]
    fn who_waits_is_told_when_it_is_over_for_sure() {
        let (mut order, now) = (Order::default(), Instant::now());
        assert_eq!(order.free_after(now, 1), Duration::ZERO);
        for begins in [now, now + SECOND] {
            let id = begun(&mut order, 1, begins);
            order.leave(id);
        }
        assert_eq!(order.free_after(now + 10 * SECOND, 1), 51 * SECOND, "the later of two");
        assert_eq!(order.free_after(now + 100 * SECOND, 1), Duration::ZERO);
        assert_eq!(order.free_after(now, 2), Duration::ZERO);
    }

    #[test]
    fn so_many_go_on_alone_and_then_no_other_is_begun_until_one_is_over() {
        for (bytes, most) in [(10, MOST_LEFT), (8 << 20, 3)] {
            let (mut order, now) = (Order::default(), Instant::now());
            let mut first = None;
            for resource in 0..u64::try_from(most).unwrap() {
                assert_eq!(order.ask(now, to(1_000)), Verdict::Go, "{resource} of {bytes} bytes");
                let id = order.start(Write { resource, bytes });
                assert!(order.begin(now + SECOND, id));
                order.leave(id);
                first = first.or(Some(id));
            }
            let waiting = waits(&mut order, 1_000, now);
            assert_eq!(order.free_after(now, 1_000), 61 * SECOND);
            assert_eq!(order.end(first.unwrap()), [waiting], "{bytes} bytes");
        }
    }

    #[test]
    fn those_who_wait_are_bounded_in_number_and_in_bytes() {
        for (bytes, most) in [(10, MOST_WAITING), (8 << 20, 2)] {
            let (mut order, now) = (Order::default(), Instant::now());
            let id = begun(&mut order, 1, now);
            order.leave(id);
            for _ in 0..most {
                assert!(matches!(order.ask(now, Write { resource: 1, bytes }), Verdict::Wait(_)));
            }
            assert_eq!(order.ask(now, Write { resource: 1, bytes }), Verdict::Refuse(LONGEST));
        }
    }

    proptest! {
        /// Whatever happens in whatever order: when all that was started has ended, nobody waits and nothing is kept.
        #[test]
        fn nobody_waits_for_ever(events in proptest::collection::vec((0_u8..5, 0_usize..8, 0_u64..3), 0..60)) {
            let (mut order, now) = (Order::default(), Instant::now());
            let (mut started, mut waiting) = (Vec::new(), std::collections::BTreeSet::new());
            for (event, which, resource) in events {
                let one = started.get(which).copied();
                match (event, one) {
                    (0, _) => started.push(order.start(to(resource))),
                    (1, _) => if let Verdict::Wait(id) = order.ask(now, to(resource)) {
                        waiting.insert(id);
                    },
                    (2, Some(id)) => _ = order.begin(now, id),
                    (3, Some(id)) => order.leave(id),
                    (4, Some(id)) => for freed in order.end(id) {
                        prop_assert!(waiting.remove(&freed));
                    },
                    _ => {}
                }
            }
            for id in started {
                for freed in order.end(id) {
                    prop_assert!(waiting.remove(&freed));
                }
            }
            prop_assert!(waiting.is_empty() && order.waiting.is_empty());
            prop_assert!(order.attended.is_empty() && order.left.is_empty());
        }
    }
}
