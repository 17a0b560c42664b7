//! Bounds the requests of one bucket that are in flight, as TCP's congestion window does. A cloud that takes less than
//! was declared shows it only by refusals, and then refuses all requests in flight. So these are few until the cloud
//! has accepted more. Pure.

/// The first size. At the round trip of a nearby cloud it lets through 100 requests a second.
const FIRST: f64 = 4.0;
/// What an accepted request adds if the window was full: over eight round trips it grows by a factor e.
const GROWTH: f64 = 0.125;

/// A bound on the requests in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct InFlightWindow {
    size: f64,
    in_flight: u32,
    /// How many of these were in flight when the window was last full.
    full: u32,
}

impl Default for InFlightWindow {
    fn default() -> Self {
        Self { size: FIRST, in_flight: 0, full: 0 }
    }
}

impl InFlightWindow {
    /// Takes over the size of another window. The requests in flight are answered to that one.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.size = other.size;
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many more requests may be sent before the next answer.
    pub(crate) fn free(&self) -> f64 {
        self.size - f64::from(self.in_flight)
    }

    pub(crate) fn on_sent(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
        if self.free() < 1.0 {
            self.full = self.in_flight;
        }
    }

    /// Notes that a request is answered, or never will be.
    pub(crate) fn on_finished(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Notes that the cloud accepted a request. One that was sent while there was room shows nothing: it does not say
    /// whether the cloud would accept more.
    pub(crate) fn on_accepted(&mut self) {
        if self.full > 0 {
            self.size += GROWTH;
            self.full -= 1;
        }
    }

    /// Halves the window after a refusal.
    pub(crate) fn on_refused(&mut self) {
        self.size = (self.size / 2.0).max(FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the window and has all of it accepted, this many times. Returns how much fits then.
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
    fn few_are_in_flight_at_first_and_more_with_each_accepted_round() {
        let mut window = InFlightWindow::default();
        assert_eq!(rounds(&mut window, 1), 4);
        assert!((9..14).contains(&rounds(&mut window, 8)), "{window:?}");
        window.on_refused();
        assert!((4..8).contains(&rounds(&mut window, 1)), "{window:?}");
    }

    #[test]
    fn a_window_that_is_never_full_does_not_grow() {
        let mut window = InFlightWindow::default();
        for _ in 0..1000 {
            window.on_sent();
            window.on_finished();
            window.on_accepted();
        }
        assert_eq!(rounds(&mut window, 1), 4);
    }
}
