//! Which write waits for which. Pure: a [`WriteOrder`] is told what happens and when, and answers what follows.
//!
//! A write whose caller has gone is detached: it goes on alone, and it isn't known yet what it has done. It could overtake
//! a later write to the same resource, so the later one waits, first come, first served. Writes whose callers still wait
//! are not ordered: a caller that sends two at once gets both results, and their order is its own business.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How long the gate waits for a write in flight, counted from its sending. The slowest clouds give up at this as well.
pub(crate) const MAX_WRITE_TIME: Duration = Duration::from_mins(1);
/// As many writes may be detached as four calls have in flight at most. While there are so many, none is sent.
const MAX_DETACHED: usize = 256;
/// What detached writes may hold in memory: two of the largest bodies.
const MAX_DETACHED_BYTES: usize = 16 << 20;
/// So many writes may wait for detached ones, and hold as much; the queue of the limits comes after this one.
const MAX_WAITING: usize = 1_000;
const MAX_WAITING_BYTES: usize = 16 << 20;

/// What a write changes: a hash of its place.
pub(crate) type Resource = u64;

/// The id of a write, from when it is admitted. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// What other writes have to know of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) resource: Resource,
    /// What it holds in memory.
    pub(crate) bytes: usize,
}

/// Whether a write may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    /// When [`WriteOrder::end`] returns its id.
    Later(WriteId),
    /// Too many wait already. It could be sent after this time at the latest.
    Refused(Duration),
}

#[derive(Debug, Clone, Copy)]
struct Detached {
    write: Write,
    /// When it is over at the latest.
    until: Instant,
}

/// The writes of a gate.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    next: u64,
    /// Those whose callers wait, and when they began to be sent.
    attached: HashMap<WriteId, (Write, Option<Instant>)>,
    /// Those whose callers have gone.
    detached: BTreeMap<WriteId, Detached>,
    waiting: BTreeMap<WriteId, Write>,
}

impl WriteOrder {
    /// A write is to be sent.
    pub(crate) fn admit(&mut self, now: Instant, write: Write) -> Admission {
        if self.is_free(write.resource) {
            return Admission::Now;
        }
        let held: usize = self.waiting.values().map(|waiting| waiting.bytes).sum();
        if self.waiting.len() >= MAX_WAITING || held.saturating_add(write.bytes) > MAX_WAITING_BYTES {
            return Admission::Refused(self.free_after(now, write.resource));
        }
        let id = self.id();
        self.waiting.insert(id, write);
        Admission::Later(id)
    }

    /// Whether no write has to be waited for before another one to this resource.
    pub(crate) fn is_free(&self, resource: Resource) -> bool {
        !self.is_full() && self.detached_at(resource).next().is_none()
    }

    /// After what time a resource is free at the latest.
    pub(crate) fn free_after(&self, now: Instant, resource: Resource) -> Duration {
        let room = self.detached.values().map(|detached| detached.until).min().filter(|_| self.is_full());
        let until = self.detached_at(resource).map(|detached| detached.until).max().max(room);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// A waiting caller has gone, or its time is up.
    pub(crate) fn cancel(&mut self, id: WriteId) {
        self.waiting.remove(&id);
    }

    /// A write is on its way to a connection.
    pub(crate) fn start(&mut self, write: Write) -> WriteId {
        let id = self.id();
        self.attached.insert(id, (write, None));
        id
    }

    /// The first byte of a write is about to be sent. Returns whether it may be.
    pub(crate) fn begin(&mut self, now: Instant, id: WriteId) -> bool {
        match self.attached.get_mut(&id) {
            Some((_, begun)) => {
                begun.get_or_insert(now);
                true
            }
            None => self.detached.contains_key(&id),
        }
    }

    /// Whether a write is in flight: begun, and not over.
    pub(crate) fn is_in_flight(&self, id: WriteId) -> bool {
        matches!(self.attached.get(&id), Some((_, Some(_)))) || self.detached.contains_key(&id)
    }

    /// Gives up a write that hasn't begun. Returns whether it is in flight, so that it is too late.
    pub(crate) fn give_up(&mut self, id: WriteId) -> bool {
        let is_in_flight = self.is_in_flight(id);
        if !is_in_flight {
            self.attached.remove(&id);
        }
        is_in_flight
    }

    /// The caller of a write has gone. The write goes on alone if it is in flight.
    pub(crate) fn detach(&mut self, id: WriteId) {
        if let Some((write, Some(begun))) = self.attached.remove(&id) {
            self.detached.insert(id, Detached { write, until: begun + MAX_WRITE_TIME });
        }
    }

    /// A write is over. Returns the waiting writes that may be sent now, in the order in which they came.
    pub(crate) fn end(&mut self, id: WriteId) -> Vec<WriteId> {
        self.attached.remove(&id);
        if self.detached.remove(&id).is_none() {
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

    fn detached_at(&self, resource: Resource) -> impl Iterator<Item = &Detached> {
        self.detached.values().filter(move |detached| detached.write.resource == resource)
    }

    fn is_full(&self) -> bool {
        let held: usize = self.detached.values().map(|detached| detached.write.bytes).sum();
        self.detached.len() >= MAX_DETACHED || held > MAX_DETACHED_BYTES
    }

    fn id(&mut self) -> WriteId {
        self.next += 1;
        WriteId(self.next)
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

    /// A write that began at this time.
    fn begun(order: &mut WriteOrder, resource: Resource, now: Instant) -> WriteId {
        let id = order.start(to(resource));
        assert!(order.begin(now, id));
        id
    }

    fn waits(order: &mut WriteOrder, resource: Resource, now: Instant) -> WriteId {
        let Admission::Later(id) = order.admit(now, to(resource)) else { panic!("the write does not wait") };
        id
    }

    #[test]
    fn only_a_detached_write_blocks_its_own_resource() {
        type Events = fn(&mut WriteOrder, Instant);
        let rows: [(&str, Events, bool); 6] = [
            ("nothing", |_, _| {}, true),
            ("one that has not begun", |order, _| _ = order.start(to(1)), true),
            ("one whose caller waits", |order, now| _ = begun(order, 1, now), true),
            (
                "one whose caller left before it began",
                |order, _| {
                    let id = order.start(to(1));
                    order.detach(id);
                },
                true,
            ),
            (
                "one that is detached",
                |order, now| {
                    let id = begun(order, 1, now);
                    order.detach(id);
                },
                false,
            ),
            (
                "one that was detached and has ended",
                |order, now| {
                    let id = begun(order, 1, now);
                    order.detach(id);
                    order.end(id);
                },
                true,
            ),
        ];
        for (name, events, is_free) in rows {
            let (mut order, now) = (WriteOrder::default(), Instant::now());
            events(&mut order, now);
            assert_eq!(order.admit(now, to(1)) == Admission::Now, is_free, "{name}");
            assert_eq!(order.admit(now, to(2)), Admission::Now, "{name}: another resource");
        }
    }

    #[test]
    fn waiting_writes_are_sent_first_come_first_served_when_all_detached_ones_are_over() {
        let (mut order, now) = (WriteOrder::default(), Instant::now());
        let (one, other) = (begun(&mut order, 1, now), begun(&mut order, 1, now));
        order.detach(one);
        order.detach(other);
        let waiting: Vec<_> = (0..5).map(|_| waits(&mut order, 1, now)).collect();
        order.cancel(waiting[2]);
        assert_eq!(order.end(one), []);
        assert_eq!(order.end(other), [waiting[0], waiting[1], waiting[3], waiting[4]]);
        assert_eq!(order.admit(now, to(1)), Admission::Now);
    }

    #[test]
    fn a_write_is_begun_or_given_up_but_never_both() {
        let (mut order, now) = (WriteOrder::default(), Instant::now());
        let id = order.start(to(1));
        assert!(!order.give_up(id) && !order.begin(now, id), "the write was given up");
        let id = begun(&mut order, 1, now);
        assert!(order.give_up(id), "too late");
        order.detach(id);
        assert!(order.give_up(id) && order.begin(now, id), "it goes on detached");
        order.end(id);
        assert!(!order.give_up(id) && !order.begin(now, id), "it is over");
    }

    #[test]
    fn a_waiting_write_gets_the_time_after_which_it_can_be_sent() {
        let (mut order, now) = (WriteOrder::default(), Instant::now());
        assert_eq!(order.free_after(now, 1), Duration::ZERO);
        for begins in [now, now + SECOND] {
            let id = begun(&mut order, 1, begins);
            order.detach(id);
        }
        assert_eq!(order.free_after(now + 10 * SECOND, 1), 51 * SECOND, "the later of two");
        assert_eq!(order.free_after(now + 100 * SECOND, 1), Duration::ZERO);
        assert_eq!(order.free_after(now, 2), Duration::ZERO);
    }

    #[test]
    fn detached_writes_are_bounded_and_hold_up_all_others_at_the_bound() {
        for (bytes, most) in [(10, MAX_DETACHED), (8 << 20, 3)] {
            let (mut order, now) = (WriteOrder::default(), Instant::now());
            let mut first = None;
            for resource in 0..u64::try_from(most).unwrap() {
                assert_eq!(order.admit(now, to(1_000)), Admission::Now, "{resource} of {bytes} bytes");
                let id = order.start(Write { resource, bytes });
                assert!(order.begin(now + SECOND, id));
                order.detach(id);
                first = first.or(Some(id));
            }
            let waiting = waits(&mut order, 1_000, now);
            assert_eq!(order.free_after(now, 1_000), 61 * SECOND);
            assert_eq!(order.end(first.unwrap()), [waiting], "{bytes} bytes");
        }
    }

    #[test]
    fn waiting_writes_are_bounded_in_number_and_in_bytes() {
        for (bytes, most) in [(10, MAX_WAITING), (8 << 20, 2)] {
            let (mut order, now) = (WriteOrder::default(), Instant::now());
            let id = begun(&mut order, 1, now);
            order.detach(id);
            for _ in 0..most {
                assert!(matches!(order.admit(now, Write { resource: 1, bytes }), Admission::Later(_)));
            }
            assert_eq!(order.admit(now, Write { resource: 1, bytes }), Admission::Refused(MAX_WRITE_TIME));
        }
    }

    proptest! {
        /// After any sequence of events, when every started write has ended, none waits and nothing is kept.
        #[test]
        fn no_write_waits_forever(events in proptest::collection::vec((0_u8..5, 0_usize..8, 0_u64..3), 0..60)) {
            let (mut order, now) = (WriteOrder::default(), Instant::now());
            let (mut started, mut waiting) = (Vec::new(), std::collections::BTreeSet::new());
            for (event, which, resource) in events {
                let one = started.get(which).copied();
                match (event, one) {
                    (0, _) => started.push(order.start(to(resource))),
                    (1, _) => if let Admission::Later(id) = order.admit(now, to(resource)) {
                        waiting.insert(id);
                    },
                    (2, Some(id)) => _ = order.begin(now, id),
                    (3, Some(id)) => order.detach(id),
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
            prop_assert!(order.attached.is_empty() && order.detached.is_empty());
        }
    }
}
