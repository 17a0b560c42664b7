//! The processor time of one call, apart from the time that it waits.
//!
//! A call is a future that some thread polls now and then. Between two polls it waits; within one it computes, on a
//! thread whose processor time the kernel counts. So the time is exact: a guest that waits in a thousand short turns has
//! computed next to nothing, and one that loops beside others is charged for its own turns alone.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::turns::Turn;

/// Clones count for the same call.
#[derive(Clone)]
pub(crate) struct Cpu {
    used: Arc<Used>,
    turn: Turn,
}

#[derive(Default)]
struct Used {
    /// In the polls that are over, in nanoseconds.
    before: AtomicU64,
    /// What the thread's clock said when the present poll began, in nanoseconds.
    began: AtomicU64,
}

impl Cpu {
    /// Of a call that may compute for long only in its turns.
    pub(crate) fn new(turn: Turn) -> Self {
        Self { used: Arc::default(), turn }
    }

    pub(crate) fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// Counts the time in which a future is polled. Between polls it has no turn.
    pub(crate) async fn count<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            self.used.began.store(thread_clock(), Ordering::Relaxed);
            let polled = future.as_mut().poll(context);
            let took = thread_clock().saturating_sub(self.used.began.load(Ordering::Relaxed));
            self.used.before.fetch_add(took, Ordering::Relaxed);
            self.turn.end();
            polled
        })
        .await
    }

    /// What has been used so far. Only to be asked from within a poll of the counted future.
    pub(crate) fn used(&self) -> Duration {
        let present = thread_clock().saturating_sub(self.used.began.load(Ordering::Relaxed));
        Duration::from_nanos(self.used.before.load(Ordering::Relaxed).saturating_add(present))
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
    use crate::turns::Turns;

    #[tokio::test(start_paused = true)]
    async fn waiting_costs_nothing_and_computing_does() {
        let cpu = Cpu::new(Turns::new(1).of_a_call());
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
        let waited = cpu.clone().count(work).await;
        assert!(waited < Duration::from_millis(100), "3.6 s of waiting cost {waited:?}");
    }
}
