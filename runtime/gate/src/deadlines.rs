//! How long a request and its stages may take.

use std::time::Duration;

use tokio::time::Instant;

/// How long a read that has been sent for the cache goes on after the deadline of its caller, for the next call. Clouds that are
/// slow answer within a minute; after two minutes most servers and proxies give up.
pub(crate) const LINGER: Duration = Duration::from_mins(2);

/// The deadlines of a request, and the timeouts of its stages where the sender sets them.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// After it no new request is sent.
    pub soft: Instant,
    /// After it the gate waits for nothing, the response's body included.
    pub hard: Instant,
    /// For name, address and TLS, which never get more than 10 s. Like the other timeouts it is clamped to at least 1 ms and
    /// at most the time until `hard`, which is also the default.
    pub connect: Option<Duration>,
    /// From the connection to the head of the response.
    pub first_byte: Option<Duration>,
    /// Between two parts of the response's body, while it is being read.
    pub between_bytes: Option<Duration>,
}

impl Deadlines {
    /// The same for a write. Once begun it isn't given up: it has this long from then on, even if its caller goes.
    pub(crate) fn of_write(self, longest: Duration, now: Instant) -> Self {
        let connect = self.clamp(self.connect, now);
        Self { hard: now + connect + longest, connect: Some(connect), first_byte: Some(longest), ..self }
    }

    /// The same for a read for the cache, whose answer may serve others than its caller.
    pub(crate) fn of_shared_read(self) -> Self {
        Self { hard: self.hard + LINGER, first_byte: None, ..self }
    }

    /// How long a stage with this timeout may take.
    pub(crate) fn clamp(&self, timeout: Option<Duration>, now: Instant) -> Duration {
        let left = self.hard.saturating_duration_since(now);
        timeout.unwrap_or(left).min(left).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_clamped_between_a_millisecond_and_the_time_left() {
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
        for (timeout, expected) in rows {
            assert_eq!(deadlines.clamp(timeout, now), expected, "{timeout:?}");
        }
        let late = now + Duration::from_mins(1);
        assert_eq!(deadlines.clamp(Some(Duration::MAX), late), Duration::from_millis(1));
    }
}
