//! The leave to send one request: what becomes of its tokens when it is sent, answered, fails or is given up.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode};

use crate::{
    error::Error,
    limits::{Shared, answer::Answer, known::Rate, supply::Taken},
};

/// The tokens of one request. They are put back when it is dropped, unless the request may have been sent.
#[derive(Debug)]
pub(crate) struct Permit {
    shared: Arc<Shared>,
    taken: Option<Taken>,
    is_sent: bool,
}

impl Permit {
    pub(super) fn new(shared: Arc<Shared>, taken: Taken) -> Self {
        Self { shared, taken: Some(taken), is_sent: false }
    }

    /// The request may be on its way from now on.
    pub(crate) fn sending(&mut self) {
        self.is_sent = true;
    }

    /// What a second permit for the same request is made from.
    pub(crate) fn again(&self) -> Option<Again> {
        let taken = self.taken.clone()?;
        Some(Again { shared: self.shared.clone(), taken })
    }

    /// The cloud answered. What its answer says about limits is learned.
    pub(crate) fn answered(mut self, status: StatusCode, headers: &HeaderMap) {
        let Some(taken) = self.taken.take() else { return };
        let answer = Answer::read(status, headers, SystemTime::now());
        let Shared { provider, known, metrics, .. } = &*self.shared;
        for closed in self.shared.change(|state, now| state.answered(now, &taken, answer)) {
            let limit = known.label(Some(closed.limit));
            let Rate { burst, per_second } = closed.learned;
            tracing::info!(
                %provider, %limit, closed_for = ?rounded(closed.lasts), burst, per_second,
                "the cloud refuses; the limit is closed and learned"
            );
            metrics.closed(provider, limit);
        }
    }

    /// The request failed. It counts unless it never left.
    pub(crate) fn failed(mut self, error: &Error) {
        self.is_sent = !error.is_before_sending();
    }
}

/// The leave to send a request a second time.
///
/// It doesn't wait: the request has had its turn, and whoever sent it waits for the answer by now. Its tokens are taken
/// even where there are none, so that whoever comes next waits for those as well, and no more is sent over time than a
/// limit lets through.
#[derive(Debug)]
pub(crate) struct Again {
    shared: Arc<Shared>,
    taken: Taken,
}

impl Again {
    /// None where a limit or the resource is closed by now.
    pub(crate) fn permit(self) -> Option<Permit> {
        let Self { shared, taken } = self;
        let taken = shared.change(|state, now| state.supply.take_again(now, &taken))?;
        Some(Permit::new(shared, taken))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        let is_sent = self.is_sent;
        self.shared.change(
            |state, now| {
                if is_sent { state.lost(now, &taken) } else { state.put_back(now, &taken) }
            },
        );
    }
}

/// Whole milliseconds are enough for people.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
