//! Measures the CPU time of one call, without the time that it waits.
//!
//! A call is a future that some thread polls from time to time. Between two polls it waits; during a poll it computes, on a
//! thread whose CPU time the kernel counts. So the measure is exact: a guest that waits in a thousand short polls has used
//! next to nothing, and a guest that loops beside others is charged only for its own polls. The tasks and threads in which
//! the gate works for the call charge the same account.

pub(crate) mod permit;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pileus_gate::{CpuAccount, thread_clock};

use permit::CpuPermit;

/// The CPU time that one call has used. Clones measure the same call.
#[derive(Clone)]
pub(crate) struct CpuMeter {
    account: CpuAccount,
    /// The thread's CPU clock at the beginning of the current poll, in nanoseconds.
    poll_started: Arc<AtomicU64>,
    permit: CpuPermit,
}

impl CpuMeter {
    /// Measures a call that needs this permit to compute for longer than an epoch tick.
    pub(crate) fn new(account: CpuAccount, permit: CpuPermit) -> Self {
        Self { account, poll_started: Arc::default(), permit }
    }

    pub(crate) fn permit(&self) -> CpuPermit {
        self.permit.clone()
    }

    /// Runs a future and measures its polls. Releases the permit after each poll.
    pub(crate) async fn measure<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            let started = nanoseconds();
            self.poll_started.store(started, Ordering::Relaxed);
            let polled = future.as_mut().poll(context);
            self.account.charge(Duration::from_nanos(nanoseconds().saturating_sub(started)));
            self.permit.release();
            polled
        })
        .await
    }

    /// The CPU time used so far. Correct only within a poll of the measured future.
    pub(crate) fn used(&self) -> Duration {
        let current_poll = nanoseconds().saturating_sub(self.poll_started.load(Ordering::Relaxed));
        self.account.used() + Duration::from_nanos(current_poll)
    }
}

fn nanoseconds() -> u64 {
    u64::try_from(thread_clock().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use permit::CpuPermits;

    #[tokio::test(start_paused = true)]
    async fn waiting_uses_no_cpu_time_and_computing_does() {
        let cpu = CpuMeter::new(CpuAccount::new(Duration::MAX), CpuPermits::new(1).for_call());
        let work = async {
            for _ in 0..300 {
                tokio::time::sleep(Duration::from_millis(12)).await;
            }
            let waited = cpu.used();
            while cpu.used() < waited + Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            waited
        };
        let waited = cpu.clone().measure(work).await;
        assert!(waited < Duration::from_millis(100), "3.6 s of waiting used {waited:?}");
    }
}
