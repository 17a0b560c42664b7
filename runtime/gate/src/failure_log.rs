//! Which failed requests are logged. A provider can cause thousands of failures a second, each with a line of its own; a log
//! full of them is useless and fills a disk. An operator needs the first ones, and metrics count all of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines at once: as many as a call has requests in flight when its cloud goes away.
const BURST: u32 = 64;

/// One more line each so often.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits the log lines about failures of one gate.
#[derive(Debug)]
pub(crate) struct FailureLog(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When the last of a full burst is free again.
    full_at: Instant,
    suppressed: u64,
}

impl FailureLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(State { full_at: now, suppressed: 0 }))
    }

    /// Counts a failure. If it is to be logged: how many were suppressed since the last one that was.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.full_at.max(now) + PAUSE;
        if next > now + BURST * PAUSE {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.full_at = next;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_failures_logs_a_burst_and_then_a_line_a_second_with_the_suppressed_count() {
        let begin = Instant::now();
        let failures = FailureLog::new(begin);
        let logged = |after: u64, times: usize| -> Vec<u64> {
            let now = begin + Duration::from_secs(after);
            (0..times).filter_map(|_| failures.admit(now)).collect()
        };
        assert_eq!(logged(0, 1_000), [0; 64]);
        assert_eq!(logged(0, 10_000), [0_u64; 0]);
        assert_eq!(logged(1, 5), [10_936]);
        assert_eq!(logged(3, 5), [4, 0]);
        assert_eq!(logged(1_000, 100).len(), 64, "a quiet time earns a burst and no more");
    }
}
