//! Limits how many guests compute for long at the same time, so that there is always a thread for short calls.
//!
//! A guest that computes for a whole epoch tick needs a permit for each further tick, and there is one permit fewer than
//! threads. A call that only sends requests and reads answers ends within its first tick, so it never needs a permit.
//! However many other guests loop, at least one thread stays free for it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The CPU permits of all calls.
pub(crate) struct CpuPermits(Arc<Semaphore>);

impl CpuPermits {
    /// For a runtime with this number of threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads.saturating_sub(1).max(1))))
    }

    /// For one call, which doesn't hold a permit yet.
    pub(crate) fn for_call(&self) -> CpuPermit {
        CpuPermit { available: Arc::clone(&self.0), held: Arc::default() }
    }
}

/// The permit of one call, which holds it or not. Clones belong to the same call.
#[derive(Clone)]
pub(crate) struct CpuPermit {
    available: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl CpuPermit {
    /// Releases the permit and waits for one again, behind all other calls that wait.
    pub(crate) async fn renew(self) {
        self.release();
        // Tokio's own yield lets timers and sockets run before this guest goes on. With wasmtime's yield, two guests that
        // loop would keep two threads from their timers for seconds.
        tokio::task::yield_now().await;
        if let Ok(permit) = Arc::clone(&self.available).acquire_owned().await {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
        }
    }

    /// Releases the permit, because the guest waits or has ended.
    pub(crate) fn release(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_thread_stays_free_and_calls_get_permits_in_order() {
        let permits = CpuPermits::new(3);
        let calls = [(); 3].map(|()| permits.for_call());
        let [first, second, third] = &calls;
        first.clone().renew().await;
        second.clone().renew().await;
        let mut waiting = Box::pin(third.clone().renew());
        for _ in 0..3 {
            assert!(waiting.as_mut().now_or_never().is_none(), "two of three threads are taken");
            tokio::task::yield_now().await;
        }
        let mut again = Box::pin(first.clone().renew());
        assert!(again.as_mut().now_or_never().is_none(), "it releases its permit");
        waiting.await;
        assert!(again.as_mut().now_or_never().is_none(), "and waits behind the others");
        second.release();
        again.await;
    }

    #[tokio::test]
    async fn a_single_thread_is_shared() {
        let permits = CpuPermits::new(1);
        permits.for_call().renew().await;
        permits.for_call().renew().await;
    }
}
