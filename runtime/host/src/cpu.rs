//! Measures the CPU time of one call, without the time that it waits.
//!
//! A call is a future that some thread polls from time to time. Between two polls it waits; during a poll it computes, on a
//! thread whose CPU time the kernel counts. So the measure is exact: a guest that waits in a thousand short polls has used
//! next to nothing, and a guest that loops beside others is charged only for its own polls.

pub(crate) mod permit;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use permit::CpuPermit;

/// The CPU time that one call has used. Clones measure the same call.
#[derive(Clone)]
pub(crate) struct CpuMeter {
    used: Arc<UsedTime>,
    permit: CpuPermit,
}

#[derive(Default)]
struct UsedTime {
    /// In finished polls, in nanoseconds.
    finished_polls: AtomicU64,
    /// The thread's CPU clock at the beginning of the current poll, in nanoseconds.
    poll_started: AtomicU64,
}

impl CpuMeter {
    /// Measures a call that needs this permit to compute for longer than an epoch tick.
    pub(crate) fn new(permit: CpuPermit) -> Self {
        Self { used: Arc::default(), permit }
    }

    pub(crate) fn permit(&self) -> CpuPermit {
        self.permit.clone()
    }

    /// Runs a future and measures its polls. Releases the permit after each poll.
    pub(crate) async fn measure<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            self.used.poll_started.store(thread_clock(), Ordering::Relaxed);
            let polled = future.as_mut().poll(context);
            let took = thread_clock().saturating_sub(self.used.poll_started.load(Ordering::Relaxed));
            self.used.finished_polls.fetch_add(took, Ordering::Relaxed);
            self.permit.release();
            polled
        })
        .await
    }

    /// The CPU time used so far. Correct only within a poll of the measured future.
    pub(crate) fn used(&self) -> Duration {
        let current_poll = thread_clock().saturating_sub(self.used.poll_started.load(Ordering::Relaxed));
        Duration::from_nanos(self.used.finished_polls.load(Ordering::Relaxed).saturating_add(current_poll))
    }
}

fn thread_clock() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use permit::CpuPermits;

    #[tokio::test(start_paused = true)]
    async fn waiting_uses_no_cpu_time_and_computing_does() {
        let cpu = CpuMeter::new(CpuPermits::new(1).for_call());
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
