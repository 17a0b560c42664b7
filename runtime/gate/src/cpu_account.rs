//! The CPU time that is used for one call of a provider: by its guest, and by the gate and the host for it. Work for a call
//! is done in several tasks and threads; each measures itself here, so that no provider gets more than its limit by having
//! the host work.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

/// The CPU time that is used for one call. Clones are the same account.
#[derive(Debug, Clone)]
pub struct CpuAccount(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: Duration,
    /// In nanoseconds.
    used: AtomicU64,
    is_over: Notify,
}

impl CpuAccount {
    /// An account with this limit.
    pub fn new(limit: Duration) -> Self {
        Self(Arc::new(Account { limit, used: AtomicU64::new(0), is_over: Notify::new() }))
    }

    /// The time that has been charged.
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.0.used.load(Ordering::Relaxed))
    }

    /// Charges time that a thread used.
    pub fn charge(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.used.fetch_add(time, Ordering::Relaxed);
        if self.used() > self.0.limit {
            self.0.is_over.notify_waiters();
        }
    }

    /// Waits until more than the limit has been charged.
    pub async fn exceeded(&self) {
        let mut over = pin!(self.0.is_over.notified());
        loop {
            // Before the check, or a charge between the two would be missed.
            over.as_mut().enable();
            if self.used() > self.0.limit {
                return;
            }
            over.as_mut().await;
            over.set(self.0.is_over.notified());
        }
    }

    /// Does some work and charges it.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = thread_clock();
        let result = work();
        self.charge(thread_clock().saturating_sub(started));
        result
    }

    /// Runs a future and charges each of its polls. What it waits for isn't charged.
    pub async fn measure<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| self.run(|| future.as_mut().poll(context))).await
    }
}

/// The CPU time that this thread has used.
pub fn thread_clock() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn spin(time: Duration) {
        let until = thread_clock() + time;
        while thread_clock() < until {
            std::hint::spin_loop();
        }
    }

    #[tokio::test]
    async fn work_is_charged_wherever_it_is_done_and_waiting_is_not() {
        let account = CpuAccount::new(Duration::from_millis(30));
        let mut exceeded = Box::pin(account.exceeded());
        assert!(exceeded.as_mut().now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(50)).await;
        account.clone().measure(tokio::time::sleep(Duration::from_millis(50))).await;
        assert!(account.used() < Duration::from_millis(10), "{:?}", account.used());
        account.clone().measure(async { spin(Duration::from_millis(20)) }).await;
        assert!(exceeded.as_mut().now_or_never().is_none());
        let of_thread = account.clone();
        tokio::task::spawn_blocking(move || of_thread.run(|| spin(Duration::from_millis(20)))).await.unwrap();
        assert!(account.used() >= Duration::from_millis(40), "{:?}", account.used());
        exceeded.await;
        account.exceeded().await;
    }
}
