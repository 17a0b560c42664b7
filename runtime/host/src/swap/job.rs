//! One piece of work that the shell does for the state machine, and its retries. Pure.

use jiff::{SignedDuration, Timestamp};

use super::spec::after;
use super::step::Failure;

const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(5);

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// It starts at this time.
    Waiting { failures: u32, at: Timestamp, error: Option<String> },
    /// The shell works on it.
    Running { failures: u32, error: Option<String> },
    /// It can't succeed.
    Refused(String),
    /// It succeeded.
    Done,
}

impl Job {
    /// Starts at this time.
    pub(super) fn at(at: Timestamp) -> Self {
        Self::Waiting { failures: 0, at, error: None }
    }

    /// Starts the job if it is due. Returns whether the shell has to work on it now.
    pub(super) fn start(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Waiting { failures, at, error } if *at <= now => {
                *self = Self::Running { failures: *failures, error: error.take() };
                true
            }
            _ => false,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// Records a failure of a running job. The next attempt follows after a growing delay, unless the failure is permanent.
    pub(super) fn fail(&mut self, failure: Failure, now: Timestamp) {
        let failures = match *self {
            Self::Running { failures, .. } => failures,
            _ => 0,
        };
        *self = if failure.is_permanent {
            Self::Refused(failure.message)
        } else {
            let at = after(now, delay(failures));
            Self::Waiting { failures: failures.saturating_add(1), at, error: Some(failure.message) }
        };
    }

    pub(super) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Why it can't succeed.
    pub(super) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// When it has to start.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        match *self {
            Self::Waiting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Why the last attempt that ended failed. The next attempt doesn't hide it before it succeeds.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Waiting { error, .. } | Self::Running { error, .. } => error.as_deref(),
            Self::Refused(error) => Some(error),
            Self::Done => None,
        }
    }
}

/// The delay after this many failures before.
pub(super) fn delay(failures: u32) -> SignedDuration {
    FIRST_RETRY.saturating_mul(1 << failures.min(10)).min(LAST_RETRY)
}
