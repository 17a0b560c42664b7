//! Turns for requests: so many are in flight, the others wait in the order in which they came. A turn that nobody waits
//! for any more, because its request was dropped, goes on to the next.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use futures::channel::oneshot;

use super::IN_FLIGHT;

thread_local! {
    static SLOTS: Slots = Slots::new(IN_FLIGHT);
}

/// Waits for a turn among all requests of the call.
pub(super) async fn take() -> Slot {
    SLOTS.with(Slots::clone).take().await
}

#[derive(Clone)]
struct Slots(Rc<RefCell<Queue>>);

struct Queue {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// A turn, for as long as it lives.
pub(super) struct Slot(Slots);

impl Slots {
    fn new(free: usize) -> Self {
        Self(Rc::new(RefCell::new(Queue { free, waiting: VecDeque::new() })))
    }

    async fn take(&self) -> Slot {
        let turn = {
            let mut queue = self.0.borrow_mut();
            if queue.free > 0 {
                queue.free -= 1;
                return Slot(self.clone());
            }
            let (sender, turn) = oneshot::channel();
            queue.waiting.push_back(sender);
            turn
        };
        turn.await.expect("whoever waits is in the queue until a turn comes")
    }

    fn next(&self) -> Option<oneshot::Sender<Slot>> {
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
        if let Some(next) = self.0.next() {
            // A turn that can't be handed over is dropped here, and goes on by that.
            drop(next.send(Slot(self.0.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_turn_goes_to_whoever_waits_longest() {
        let slots = Slots::new(1);
        let first = slots.take().now_or_never().unwrap();
        let (mut second, mut third) = (Box::pin(slots.take()), Box::pin(slots.take()));
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
    fn a_turn_is_never_lost_with_a_request_that_was_dropped() {
        for dropped_before_its_turn in [true, false] {
            let slots = Slots::new(1);
            let first = slots.take().now_or_never().unwrap();
            let (mut second, mut third) = (Box::pin(slots.take()), Box::pin(slots.take()));
            assert!(second.as_mut().now_or_never().is_none());
            assert!(third.as_mut().now_or_never().is_none());
            if dropped_before_its_turn {
                drop(second);
                drop(first);
            } else {
                drop(first);
                drop(second);
            }
            assert!(third.now_or_never().is_some(), "dropped before its turn: {dropped_before_its_turn}");
            assert_eq!(slots.0.borrow().free, 1);
        }
    }
}
