//! A snapshot of a gate's state.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pileus_gate::{CacheState, CredentialState, Gate, LimitsState, RecentRequest};
use tokio::time::Instant;

/// The state of a gate at one time.
pub(super) struct View {
    pub(super) provider: String,
    /// The time of the snapshot, by both clocks.
    pub(super) at: Timestamp,
    pub(super) now: Instant,
    pub(super) writes_in_flight: usize,
    pub(super) limits: LimitsState,
    pub(super) cache: CacheState,
    pub(super) credentials: Vec<CredentialState>,
    pub(super) requests: Vec<RecentRequest>,
}

impl View {
    /// Takes a snapshot.
    pub(super) fn of(gate: &Gate) -> Self {
        Self {
            provider: gate.provider().to_owned(),
            writes_in_flight: gate.writes_in_flight(),
            limits: gate.limits(),
            cache: gate.cache(),
            credentials: gate.credentials(),
            requests: gate.recent(),
            at: Timestamp::now(),
            now: Instant::now(),
        }
    }

    /// The wall-clock time at which a request began.
    pub(super) fn began_at(&self, request: &RecentRequest) -> Timestamp {
        let ago = self.now.saturating_duration_since(request.begun);
        self.at.checked_sub(ago).unwrap_or(self.at)
    }
}

/// Converts a time of the system clock; none if it is out of range.
pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}

/// A duration in seconds, rounded to milliseconds.
pub(super) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
