//! How long what was due had no answer.

use std::time::Duration;

use crate::report::Samples;

/// Something that was due and got an answer, at times since a common beginning.
#[derive(Clone, Copy)]
pub(super) struct Answered {
    pub(super) due: Duration,
    pub(super) at: Duration,
}

/// From the moment at which each was due to its answer.
pub(super) fn waits(answered: &[Answered]) -> Samples {
    let mut waits = Samples::default();
    waits.extend(answered.iter().map(|it| it.at.saturating_sub(it.due)));
    waits
}

/// The longest time without any answer in which something was due.
pub(super) fn longest_pause(answered: &[Answered]) -> Duration {
    let mut answered = answered.to_vec();
    answered.sort_unstable_by_key(|it| std::cmp::Reverse(it.at));
    let mut longest = Duration::ZERO;
    // The earliest of those that are unanswered before the answer at hand.
    let mut earliest = Duration::MAX;
    for (place, Answered { due, at }) in answered.iter().enumerate() {
        earliest = earliest.min(*due);
        let before = answered.get(place + 1).map_or(Duration::ZERO, |before| before.at);
        longest = longest.max(at.saturating_sub(earliest.max(before)));
    }
    longest
}
