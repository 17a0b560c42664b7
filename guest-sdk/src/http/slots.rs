//! Limits the number of requests in flight. Further requests wait for a slot in the order in which they came. If a waiting
//! request is dropped, its slot goes to the next one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

use super::MAX_IN_FLIGHT;

thread_local! {
    static SLOTS: Slots = Slots::new(MAX_IN_FLIGHT);
}

/// Waits for a free slot among all requests of the call.
pub(super) async fn acquire() -> Slot {
    SLOTS.with(Slots::clone).acquire().await
}

#[derive(Clone)]
struct Slots(Rc<RefCell<Queue>>);

struct Queue {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// The right to have one request in flight. Dropping it frees the slot.
pub(super) struct Slot(Slots);

impl Slots {
    fn new(free: usize) -> Self {
        Self(Rc::new(RefCell::new(Queue { free, waiting: VecDeque::new() })))
    }

    async fn acquire(&self) -> Slot {
        let slot = {
            let mut queue = self.0.borrow_mut();
            if queue.free > 0 {
                queue.free -= 1;
                return Slot(self.clone());
            }
            let (sender, slot) = oneshot::channel();
            queue.waiting.push_back(sender);
            slot
        };
        slot.await.expect("a waiting request stays in the queue until it gets a slot")
    }

    fn next_waiting(&self) -> Option<oneshot::Sender<Slot>> {
        let mut queue = self.0.borrow_mut();
        loop {
            match queue.waiting.pop_front() {
                Some(gone) if gone.is_canceled() => {}
                Some(next) => return Some(next),
                None => {
                    queue.free += 1;
                    return None;
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(next) = self.0.next_waiting() {
            // If the receiver is gone, the slot is dropped here, and so passed on.
            drop(next.send(Slot(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_slot_goes_to_the_request_that_waits_longest() {
        let slots = Slots::new(1);
        let first = slots.acquire().now_or_never().unwrap();
        let (mut second, mut third) = (Box::pin(slots.acquire()), Box::pin(slots.acquire()));
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
            let first = slots.acquire().now_or_never().unwrap();
            let (mut second, mut third) = (Box::pin(slots.acquire()), Box::pin(slots.acquire()));
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
}
