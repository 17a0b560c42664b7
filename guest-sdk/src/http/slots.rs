//! Limits what is in flight: the number of requests, and the bytes of pages. What doesn't fit waits, in the order in which it
//! came. If something that waits is dropped, its turn goes to the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

use super::MAX_IN_FLIGHT;

/// The bytes of pages in flight: a third of the memory that a call has by default. The rest is for what is made of them, and
/// for bodies that grow while they are read.
pub(super) const MAX_PAGE_BYTES: usize = (64 << 20) / 3;

thread_local! {
    static REQUESTS: Slots = Slots::new(MAX_IN_FLIGHT);
    static PAGES: Slots = Slots::new(MAX_PAGE_BYTES);
}

/// Waits for a free slot among all requests of the call.
pub(super) async fn acquire() -> Slot {
    REQUESTS.with(Slots::clone).acquire(1).await
}

/// Waits until a page of this size fits beside those in flight. A page of unknown size counts as much as the last one.
pub(super) async fn acquire_page(size: Option<usize>) -> Slot {
    PAGES.with(Slots::clone).acquire_like_last(size).await
}

#[derive(Clone)]
struct Slots(Rc<RefCell<Queue>>);

struct Queue {
    total: usize,
    free: usize,
    /// The last amount that was needed. All of it at first, so that pages of unknown size begin one by one.
    last: usize,
    waiting: VecDeque<(usize, oneshot::Sender<Slot>)>,
}

/// The right to have one thing in flight. Dropping it makes room for others.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    amount: usize,
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("free", &self.0.borrow().free).finish()
    }
}

impl Slots {
    fn new(total: usize) -> Self {
        Self(Rc::new(RefCell::new(Queue { total, free: total, last: total, waiting: VecDeque::new() })))
    }

    async fn acquire_like_last(&self, amount: Option<usize>) -> Slot {
        let last = self.0.borrow().last;
        self.acquire(amount.unwrap_or(last)).await
    }

    /// Waits for room. More than there is altogether gets all of it.
    async fn acquire(&self, amount: usize) -> Slot {
        let slot = {
            let mut queue = self.0.borrow_mut();
            let amount = amount.min(queue.total);
            if queue.waiting.is_empty() && queue.free >= amount {
                queue.free -= amount;
                return Slot { slots: self.clone(), amount };
            }
            let (sender, slot) = oneshot::channel();
            queue.waiting.push_back((amount, sender));
            slot
        };
        slot.await.expect("what waits stays in the queue until it gets a slot")
    }

    /// Takes the first of the queue, if there is room for it now.
    fn next(&self) -> Option<(oneshot::Sender<Slot>, Slot)> {
        let mut queue = self.0.borrow_mut();
        while queue.waiting.front().is_some_and(|(_, sender)| sender.is_canceled()) {
            queue.waiting.pop_front();
        }
        let free = queue.free;
        let (amount, sender) = queue.waiting.pop_front_if(|(amount, _)| *amount <= free)?;
        queue.free -= amount;
        Some((sender, Slot { slots: self.clone(), amount }))
    }

    fn release(&self, amount: usize) {
        self.0.borrow_mut().free += amount;
        while let Some((sender, slot)) = self.next() {
            // If the receiver is gone, the slot is dropped here, and so passed on.
            drop(sender.send(slot));
        }
    }
}

impl Slot {
    /// Sets the amount that was needed in the end.
    pub(super) fn set_amount(&mut self, amount: usize) {
        self.slots.0.borrow_mut().last = amount;
        if let Some(less) = self.amount.checked_sub(amount) {
            self.amount = amount;
            self.slots.release(less);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.release(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_slot_goes_to_the_request_that_waits_longest() {
        let slots = Slots::new(1);
        let first = slots.acquire(1).now_or_never().unwrap();
        let (mut second, mut third) = (Box::pin(slots.acquire(1)), Box::pin(slots.acquire(1)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(third.as_mut().now_or_never().is_none());
        let second = second.now_or_never().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        assert!(third.now_or_never().is_some());
    }

    #[test]
    fn a_slot_is_not_lost_with_a_dropped_request() {
        for is_dropped_while_waiting in [true, false] {
            let slots = Slots::new(1);
            let first = slots.acquire(1).now_or_never().unwrap();
            let (mut second, mut third) = (Box::pin(slots.acquire(1)), Box::pin(slots.acquire(1)));
            assert!(second.as_mut().now_or_never().is_none());
            assert!(third.as_mut().now_or_never().is_none());
            if is_dropped_while_waiting {
                drop(second);
                drop(first);
            } else {
                drop(first);
                drop(second);
            }
            assert!(third.now_or_never().is_some(), "dropped while waiting: {is_dropped_while_waiting}");
            assert_eq!(slots.0.borrow().free, 1);
        }
    }

    #[test]
    fn pages_take_turns_by_their_size() {
        let slots = Slots::new(10);
        let mut unknown = slots.acquire_like_last(None).now_or_never().unwrap();
        let mut waits = Box::pin(slots.acquire_like_last(Some(7)));
        assert!(waits.as_mut().now_or_never().is_none(), "the first of unknown size is alone");
        unknown.set_amount(3);
        let seven = waits.now_or_never().unwrap();
        let mut three = Box::pin(slots.acquire_like_last(None));
        assert!(three.as_mut().now_or_never().is_none(), "3 and 7 are in flight");
        drop(unknown);
        let three = three.now_or_never().unwrap();
        let mut large = Box::pin(slots.acquire_like_last(Some(99)));
        let mut small = Box::pin(slots.acquire_like_last(Some(1)));
        assert!(large.as_mut().now_or_never().is_none() && small.as_mut().now_or_never().is_none());
        drop((seven, three));
        assert!(small.as_mut().now_or_never().is_none(), "a large one isn't overtaken");
        drop(large.now_or_never().unwrap());
        assert!(small.now_or_never().is_some());
        assert_eq!(slots.0.borrow().free, 10);
    }
}
