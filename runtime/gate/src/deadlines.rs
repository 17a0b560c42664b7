//! How long a request may take, and its stages.

use std::time::Duration;

use tokio::time::Instant;

/// Until when a request may take, and how long its stages may, where the sender has a wish.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Past it no new request is sent.
    pub soft: Instant,
    /// Past it nothing is waited for, the answer's body included.
    pub hard: Instant,
    /// Name, address and TLS, which never get more than 10 s. Like the other wishes it is clamped to at least 1 ms and
    /// at most what is left until `hard`, which also holds where there is no wish.
    pub connect: Option<Duration>,
    /// From the connection to the head of the answer.
    pub first_byte: Option<Duration>,
    /// Between two parts of the answer's body, while it is being read.
    pub between_bytes: Option<Duration>,
}

impl Deadlines {
    /// The same for a write, which isn't given up once it was begun: it has so long from then on, whoever waits for it.
    pub(crate) fn of_write(self, longest: Duration, now: Instant) -> Self {
        let connect = self.clamp(self.connect, now);
        Self { hard: now + connect + longest, connect: Some(connect), first_byte: Some(longest), ..self }
    }

    /// How long a stage may take that has this wish.
    pub(crate) fn clamp(&self, wish: Option<Duration>, now: Instant) -> Duration {
        let left = self.hard.saturating_duration_since(now);
        wish.unwrap_or(left).min(left).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wish_is_clamped_between_a_millisecond_and_what_is_left() {
        let now = Instant::now();
        let left = Duration::from_secs(20);
        let deadlines =
            Deadlines { soft: now, hard: now + left, connect: None, first_byte: None, between_bytes: None };
        let rows = [
            (None, left),
            (Some(Duration::ZERO), Duration::from_millis(1)),
            (Some(Duration::from_nanos(1)), Duration::from_millis(1)),
            (Some(Duration::from_secs(3)), Duration::from_secs(3)),
            (Some(Duration::MAX), left),
        ];
        for (wish, expected) in rows {
            assert_eq!(deadlines.clamp(wish, now), expected, "{wish:?}");
        }
        let late = now + Duration::from_mins(1);
        assert_eq!(deadlines.clamp(Some(Duration::MAX), late), Duration::from_millis(1));
    }
}
