//! The jobs of a provider's releases: what they leave behind when they end, and the time at which the next one is due.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_host::swap::{Event, Release};
use pileus_host::{Component, Guest};
use pileus_loader::Verified;

use super::prepare::Ready;
use crate::error::Error;
use crate::recorded::Recorded;

/// What the stages of a release have made so far.
#[derive(Default)]
pub(super) struct Prepared {
    pub(super) verified: Option<Verified>,
    /// Why it isn't trusted, until that is reported.
    pub(super) distrust: Option<Error>,
    pub(super) component: Option<Arc<Component>>,
    pub(super) ready: Option<Ready>,
}

/// A job has ended.
pub(super) struct Done {
    pub(super) event: Event,
    pub(super) made: Option<(Release, Made)>,
    /// What came of writing the status, if that was the job.
    pub(super) write: Option<Write>,
    /// Why it failed, if it can't succeed.
    pub(super) refusal: Option<Error>,
}

/// What came of a write of the status.
pub(super) enum Write {
    /// The record is so now.
    Written(Recorded),
    /// The record was another one already. This is what was read then.
    Conflict(Recorded),
    /// The record may be as it was.
    Failed,
}

/// What a job has made.
pub(super) enum Made {
    Verified(Verified),
    Component(Arc<Component>),
    Ready(Box<(Ready, Guest)>),
    /// It was fetched and isn't trusted.
    Distrust(Error),
}

impl Done {
    pub(super) fn of(event: Event) -> Self {
        Self { event, made: None, write: None, refusal: None }
    }

    pub(super) fn written(recorded: Recorded) -> Self {
        let Recorded { revision, status, .. } = recorded.clone();
        let event = Event::Status { revision, status };
        Self { write: Some(Write::Written(recorded)), ..Self::of(event) }
    }
}

/// Sleeps until a time of the wall clock, which may be set meanwhile: at most a minute at once.
pub(super) async fn sleep_until(wake: Option<Timestamp>) {
    let Some(wake) = wake else { return std::future::pending().await };
    let left = wake.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or_default().min(Duration::from_mins(1));
    tokio::time::sleep(left).await;
}
