//! The rate of one bucket: what operator and provider allow at most, and below that what the cloud has shown to take. A
//! refusal lowers it, time raises it. Pure.

use crate::limits::limit::Rate;
use crate::limits::throughput::Throughput;

/// However often a cloud refuses, the rate falls no further than to a hundredth, nor below one request a second if it
/// was higher. Pauses enforce what is slower, and the recovery is short.
const LOWEST: f64 = 0.01;
/// One refusal takes at most four fifths: one that another client caused costs a few minutes.
const DEEPEST_CUT: f64 = 0.2;
/// One refusal takes at least a tenth, or it would soon repeat.
const LEAST_CUT: f64 = 0.9;
/// Where nothing was measured the rate is halved, and recovers soon unless the cloud refuses again.
const BLIND_CUT: f64 = 0.5;
/// The part of a known limit that is used: the pause after one request too many costs more.
const MARGIN: f64 = 0.97;
/// The lowest first rate of a limit without declared numbers. The tightest limits that clouds publish for a whole
/// account are about that (Azure takes 10 writes a second).
const FIRST_GUESS: f64 = 10.0;
/// The time in which the rate recovers by a factor e while it is below nine tenths of the rate that was refused last,
/// unless that is known to be the limit...
const REGAIN: f64 = 60.0;
/// ...and the time beyond, where a refusal must be expected. From a tenth of the declared rate to all of it takes 23
/// minutes.
const EXPLORE: f64 = 600.0;

/// The rate that a bucket lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LearnedRate {
    ceiling: Rate,
    rate: Rate,
    /// Up to this rate no refusal is expected.
    safe: f64,
}

impl LearnedRate {
    /// Starts with all that is allowed.
    pub(crate) fn new(ceiling: Rate) -> Self {
        Self { ceiling, rate: ceiling, safe: ceiling.per_second * LEAST_CUT }
    }

    /// Takes over what another one has learned, where that is below what is allowed here.
    pub(crate) fn take_over(&mut self, other: Self) {
        if !other.is_as_new() {
            self.rate = other.rate.least(self.ceiling);
            self.safe = other.safe.min(self.ceiling.per_second);
        }
    }

    /// All that is allowed, of which only this rate is let through.
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

    /// Whether nothing is learned, or all of it has recovered.
    pub(crate) fn is_as_new(&self) -> bool {
        self.rate == self.ceiling
    }

    /// Lets the rate recover during this many seconds.
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

    /// Lowers the rate after a refusal. The refused request left this many whole tokens, if any.
    ///
    /// If too little was measured because there was no more to send, the rate is back in a minute or two. A refused
    /// request that left tokens shows that the cloud's own bucket is smaller.
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
    fn a_refusal_lowers_the_rate_to_what_was_measured_within_bounds() {
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
