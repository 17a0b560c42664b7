//! Which failed requests the log hears of. A provider can make thousands a second, each with a line of its own, and a log
//! that is full of them tells nothing and costs a disk. The first ones are what an operator needs; metrics count them
//! all.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Lines at once: as many as a call has requests under way when its cloud goes away.
const BURST: u32 = 64;

/// One more line each so often.
const PAUSE: Duration = Duration::from_secs(1);

/// The failures of one gate.
#[derive(Debug)]
pub(crate) struct Failures(Mutex<State>);

#[derive(Debug)]
struct State {
    /// When the last of a full burst is free again.
    full_at: Instant,
    untold: u64,
}

impl Failures {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(State { full_at: now, untold: 0 }))
    }

    /// Notes one. Where the log should hear of it: how many it has not heard of since the last one that it has.
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.full_at.max(now) + PAUSE;
        if next > now + BURST * PAUSE {
            state.untold = state.untold.saturating_add(1);
            return None;
        }
        state.full_at = next;
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_failures_is_a_burst_and_then_a_line_a_second_that_says_how_many_it_stands_for() {
        let begin = Instant::now();
        let failures = Failures::new(begin);
        let told = |after: u64, times: usize| -> Vec<u64> {
            let now = begin + Duration::from_secs(after);
            (0..times).filter_map(|_| failures.note(now)).collect()
        };
        assert_eq!(told(0, 1_000), [0; 64]);
        assert_eq!(told(0, 10_000), [0_u64; 0]);
        assert_eq!(told(1, 5), [10_936]);
        assert_eq!(told(3, 5), [4, 0]);
        assert_eq!(told(1_000, 100).len(), 64, "a quiet time earns a burst and no more");
    }
}
