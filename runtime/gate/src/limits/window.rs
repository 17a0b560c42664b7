//! How many requests of one bucket may be unanswered at once. A cloud that has less than was declared says so only when
//! it is too late, and refuses all that are on their way by then; so these are few until the cloud has shown that it
//! takes more, and grow with what it took. Pure.

/// So many before anything is known. At the round trip of a near cloud that is 100 requests a second.
const FIRST: f64 = 4.0;
/// What one answer adds, when it was the window that held others back: over eight round trips it grows by a factor e.
const GROWTH: f64 = 0.125;

/// A bound on the requests that are under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InFlightWindow {
    size: f64,
    in_flight: u32,
    /// How many of those that are under way were when it was full last.
    full: u32,
}

impl Default for InFlightWindow {
    fn default() -> Self {
        Self { size: FIRST, in_flight: 0, full: 0 }
    }
}

impl InFlightWindow {
    /// Goes on with what another one has learned. What that has under way is answered to it.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.size = other.size;
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many more may be sent before the next answer.
    pub(crate) fn free(&self) -> f64 {
        self.size - f64::from(self.in_flight)
    }

    pub(crate) fn on_sent(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
        if self.free() < 1.0 {
            self.full = self.in_flight;
        }
    }

    /// LimitEntry is answered, or won't be.
    pub(crate) fn on_finished(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The cloud took one. LimitEntry that was sent while there was room shows nothing: it doesn't say what the cloud would
    /// have made of more.
    pub(crate) fn on_accepted(&mut self) {
        if self.full > 0 {
            self.size += GROWTH;
            self.full -= 1;
        }
    }

    /// The cloud refused.
    pub(crate) fn on_refused(&mut self) {
        self.size = (self.size / 2.0).max(FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as much as fits and has all of it taken, so many times. Says how much fits then.
    fn rounds(window: &mut InFlightWindow, rounds: usize) -> u32 {
        let mut most = 0;
        for _ in 0..rounds {
            while window.free() >= 1.0 {
                window.on_sent();
            }
            most = window.in_flight();
            for _ in 0..most {
                window.on_finished();
                window.on_accepted();
            }
        }
        most
    }

    #[test]
    fn few_are_under_way_at_first_and_more_with_each_round_that_went_well() {
        let mut window = InFlightWindow::default();
        assert_eq!(rounds(&mut window, 1), 4);
        assert!((9..14).contains(&rounds(&mut window, 8)), "{window:?}");
        window.on_refused();
        assert!((4..8).contains(&rounds(&mut window, 1)), "{window:?}");
    }

    #[test]
    fn what_was_never_full_does_not_grow() {
        let mut window = InFlightWindow::default();
        for _ in 0..1000 {
            window.on_sent();
            window.on_finished();
            window.on_accepted();
        }
        assert_eq!(rounds(&mut window, 1), 4);
    }
}
