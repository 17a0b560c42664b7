//! One piece of work that the shell does for the state machine, and its retries. Pure.

use jiff::{SignedDuration, Timestamp};

use super::failure::Failure;
use super::spec::after;

const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
const LAST_RETRY: SignedDuration = SignedDuration::from_mins(5);

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// It starts when so much time has passed since then.
    Waiting { failures: u32, since: Timestamp, delay: SignedDuration, error: Option<String> },
    /// The shell works on it.
    Running { failures: u32, error: Option<String> },
    /// It can't succeed.
    Refused(String),
    /// It succeeded.
    Done,
}

impl Job {
    /// Starts now.
    pub(super) fn at(now: Timestamp) -> Self {
        Self::after(now, SignedDuration::ZERO)
    }

    /// Starts when so much time has passed.
    pub(super) fn after(now: Timestamp, delay: SignedDuration) -> Self {
        Self::Waiting { failures: 0, since: now, delay, error: None }
    }

    /// Starts the job if it is due. Returns whether the shell has to work on it now. A clock that was set back says nothing about
    /// the time that has passed, so it delays no job.
    pub(super) fn start(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Waiting { failures, since, delay, error }
                if after(*since, *delay) <= now || now < *since =>
            {
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
        let failure = failure.bounded();
        *self = if failure.is_permanent {
            Self::Refused(failure.message)
        } else {
            Self::Waiting {
                failures: failures.saturating_add(1),
                since: now,
                delay: delay(failures),
                error: Some(failure.message),
            }
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
            Self::Waiting { since, delay, .. } => Some(after(since, delay)),
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
