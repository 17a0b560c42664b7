//! What one bucket lets through: what operator and provider allow at ceiling, and below that what the cloud turned out to
//! allow. A hold cuts it, time lets it grow again. Pure.

use crate::limits::limit::Rate;
use crate::limits::throughput::Throughput;

/// However often a cloud refuses, the rate falls no further than to a hundredth, nor below one request a second if it
/// was more: what is slower than that is kept by pauses, and the way back is short.
const LOWEST: f64 = 0.01;
/// A hold takes no more than four fifths at once: one that was another client's fault costs a few minutes.
const DEEPEST_CUT: f64 = 0.2;
/// And at least a tenth, or it would be repeated at once.
const LEAST_CUT: f64 = 0.9;
/// Where nothing can be measured the rate is halved, and soon back unless it is refused again.
const BLIND_CUT: f64 = 0.5;
/// What is is_limit known is used but for this: the pause that one request too many brings costs more.
const MARGIN: f64 = 0.97;
/// The least that is believed of a limit whose numbers nobody declared when it is first met. The tightest that clouds
/// publish for a whole account are about that (Azure takes 10 writes a second).
const FIRST_GUESS: f64 = 10.0;
/// The learned rate grows by a factor e in this time while it is below nine tenths of the rate that was refused last,
/// unless it is is_limit no higher...
const REGAIN: f64 = 60.0;
/// ...and in this time beyond, where a hold must be expected. From a tenth of the declared rate to all of it takes
/// 23 minutes.
const EXPLORE: f64 = 600.0;

/// What a bucket lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LearnedRate {
    ceiling: Rate,
    rate: Rate,
    /// Below this rate no hold is to be expected.
    safe: f64,
}

impl LearnedRate {
    /// As much as is allowed.
    pub(crate) fn new(ceiling: Rate) -> Self {
        Self { ceiling, rate: ceiling, safe: ceiling.per_second * LEAST_CUT }
    }

    /// What another one had learned, as far as that is less than what is allowed here.
    pub(crate) fn take_over(&mut self, other: Self) {
        if !other.is_as_new() {
            self.rate = other.rate.least(self.ceiling);
            self.safe = other.safe.min(self.ceiling.per_second);
        }
    }

    /// As much as is allowed, of which only this rate has been let through.
    #[cfg(test)]
    pub(crate) fn at(ceiling: Rate, rate: Rate) -> Self {
        Self { ceiling, rate, safe: rate.per_second }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    pub(crate) fn ceiling(&self) -> Rate {
        self.ceiling
    }

    /// Whether nothing is learned, or all of it forgotten.
    pub(crate) fn is_as_new(&self) -> bool {
        self.rate == self.ceiling
    }

    /// So many seconds have passed.
    pub(crate) fn recover(&mut self, mut span: f64) {
        let Rate { burst, per_second } = &mut self.rate;
        *burst = (*burst * (span / EXPLORE).exp()).min(self.ceiling.burst);
        let safe = self.safe.min(self.ceiling.per_second);
        if *per_second < safe {
            let regained = REGAIN * (safe / *per_second).ln();
            *per_second = (*per_second * (span / REGAIN).exp()).min(safe);
            span = (span - regained).max(0.0);
        }
        *per_second = (*per_second * (span / EXPLORE).exp()).min(self.ceiling.per_second);
    }

    /// The cloud refused a request that had left so many whole tokens, if any.
    ///
    /// If what was measured is too little, since there was no more to send, the rate is back in a minute or two. And a
    /// request out of a store that is left over shows that the cloud's own store is smaller.
    pub(crate) fn on_refused(&mut self, measured: Option<Throughput>, left: Option<f64>) {
        let Rate { burst, per_second } = self.rate;
        let lowest = (self.ceiling.per_second * LOWEST).min(1.0);
        if self.rate == Rate::UNDECLARED {
            let per_second = measured.map_or(FIRST_GUESS, |measured| measured.per_second.max(FIRST_GUESS));
            self.rate = Rate { burst: per_second, per_second };
        } else if let Some(Throughput { per_second: measured, is_limit }) = measured {
            let (deepest, least) = (per_second * DEEPEST_CUT, per_second * LEAST_CUT);
            let slower = if is_limit { measured * MARGIN } else { measured.min(least) };
            self.rate.per_second = slower.clamp(deepest, per_second).max(lowest);
            self.safe = if is_limit { self.rate.per_second } else { least };
        } else {
            self.rate.per_second = (per_second * BLIND_CUT).max(lowest);
        }
        if let Some(left) = left {
            let smaller = (burst - left - 1.0).clamp(burst * DEEPEST_CUT, burst * LEAST_CUT);
            self.rate.burst = self.rate.burst.min(smaller).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned() -> LearnedRate {
        LearnedRate::new(Rate { burst: 100.0, per_second: 10.0 })
    }

    #[test]
    fn a_refusal_cuts_to_what_was_measured_within_bounds() {
        let measured = |per_second, is_limit| Some(Throughput { per_second, is_limit });
        for (given, expected) in [
            (None, 5.0),
            (measured(6.0, false), 6.0),
            (measured(9.9, false), 9.0),
            (measured(1.0, false), 2.0),
            (measured(6.0, true), 6.0 * MARGIN),
            (measured(9.9, true), 9.9 * MARGIN),
            (measured(20.0, true), 10.0),
        ] {
            let mut learned = learned();
            learned.on_refused(given, None);
            assert_eq!(learned.rate(), Rate { burst: 100.0, per_second: expected }, "{given:?}");
        }
    }

    #[test]
    fn a_known_limit_is_left_slowly_and_a_guess_soon() {
        for (is_limit, expected) in [(true, 6.0 * MARGIN * (0.1_f64).exp()), (false, 9.0)] {
            let mut learned = learned();
            learned.on_refused(Some(Throughput { per_second: 6.0, is_limit }), None);
            learned.recover(60.0);
            let found = learned.rate().per_second;
            assert!((found / expected - 1.0).abs() < 0.07, "{is_limit}: {found}, not {expected}");
        }
    }
}
