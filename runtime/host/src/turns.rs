//! Whose turn it is among guests that compute for long, so that there is always a thread for those that don't.
//!
//! A guest that computes for a whole tick waits for a turn before each further one, and there is a turn less than threads.
//! A call that only asks and answers is over within its first tick: it never needs a turn, and however many others loop,
//! they take no more than their threads from it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all calls.
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    /// For a runtime that has so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads.saturating_sub(1).max(1))))
    }

    /// For one call, which has no turn yet.
    pub(crate) fn of_a_call(&self) -> Turn {
        Turn { turns: Arc::clone(&self.0), held: Arc::default() }
    }
}

/// The turn of one call, while it has one. Clones are of the same call.
#[derive(Clone)]
pub(crate) struct Turn {
    turns: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Turn {
    /// Waits for the next turn, behind all others that wait for one.
    pub(crate) async fn next(self) {
        self.end();
        // Tokio's own yield, as it lets timers and sockets have their turn before this guest goes on. With wasmtime's, two
        // guests that loop would keep two threads from their timers for seconds.
        tokio::task::yield_now().await;
        if let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
        }
    }

    /// The guest waits, or has ended: others may compute.
    pub(crate) fn end(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_thread_is_left_and_turns_go_round() {
        let turns = Turns::new(3);
        let calls = [(); 3].map(|()| turns.of_a_call());
        let [first, second, third] = &calls;
        first.clone().next().await;
        second.clone().next().await;
        let mut waiting = Box::pin(third.clone().next());
        for _ in 0..3 {
            assert!(waiting.as_mut().now_or_never().is_none(), "two of three threads are taken");
            tokio::task::yield_now().await;
        }
        let mut again = Box::pin(first.clone().next());
        assert!(again.as_mut().now_or_never().is_none(), "it gives up its turn");
        waiting.await;
        assert!(again.as_mut().now_or_never().is_none(), "and is behind the others");
        second.end();
        again.await;
    }

    #[tokio::test]
    async fn a_single_thread_is_shared() {
        let turns = Turns::new(1);
        turns.of_a_call().next().await;
        turns.of_a_call().next().await;
    }
}
