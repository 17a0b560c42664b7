//! The cache of one provider: what the cloud answered before, and what it is being asked now, so that it is not asked
//! twice. `decide` decides how a read is answered; this module has the clock, the waiting, and the cleanup after a
//! caller that gives up.
//!
//! Only reads under a [`View`] use the cache. What an answer says about caching plays no part: see `directives`.

mod buffered;
mod decide;
mod directives;
mod fetch;
mod history;
mod key;
mod metrics;
#[cfg(test)]
mod model;
mod query;
mod read;
mod reply;
mod scopes;
mod shared;
mod slot;
mod slots;
mod stored;
mod update;
mod view;
mod waiter;

use std::pin::pin;
use std::sync::Arc;

use serde::Serialize;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::deadlines::Deadlines;
use crate::effect::Effect;
use crate::error::Error;
use crate::request::Host;
use crate::response::Response;
use crate::rules::Classification;
use crate::shutdown::Shutdown;
use decide::{CacheCore, CacheCounts};
pub(crate) use directives::is_for_it_alone;
pub(crate) use fetch::Fetch;
#[cfg(any(test, fuzzing))]
pub(crate) use key::{DESCRIBING, Keys};
pub(crate) use metrics::CacheMetrics;
use read::scope;
pub(crate) use read::{Read, may_read};
pub(crate) use reply::not_cached;
use scopes::Scope;
use shared::{CacheShared, Lookup};
use slots::CacheTotals;
use update::FetchResult;
pub use view::{Evidence, View};
use waiter::{FetchOutcome, Waiter};

/// The state of a gate's cache at some time, and its counts since the gate was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheState {
    /// The number of answers in it.
    pub entries: usize,
    /// The memory of these, in bytes, keys and heads included.
    pub bytes: usize,
    /// The number of fetches in flight whose answers may be shared.
    #[serde(rename = "flights")]
    pub fetches: usize,
    /// The requests answered from the cache.
    pub cached: u64,
    /// The requests that shared the fetch of another.
    pub shared: u64,
    /// The fetches that confirmed an answer in the cache.
    pub revalidated: u64,
    /// The requests that the cache could have answered but that went to the cloud.
    pub missed: u64,
}

/// The cache of one provider. Clones are the same cache.
#[derive(Debug, Clone)]
pub(crate) struct Cache(Arc<CacheShared>);

impl Cache {
    pub(crate) fn new(provider: Arc<str>, metrics: CacheMetrics) -> Self {
        Self(Arc::new(CacheShared::new(provider, metrics)))
    }

    pub(crate) fn state(&self) -> CacheState {
        let inner = self.0.lock();
        let CacheTotals { entries, bytes, dropped: _ } = inner.state.slots.held;
        let CacheCounts { cached, shared, revalidated, missed } = inner.state.counts;
        CacheState { entries, bytes, fetches: inner.state.fetches(), cached, shared, revalidated, missed }
    }

    /// Drops everything, since later requests may be under another identity. Answers to requests in flight are not
    /// stored.
    pub(crate) fn forget(&self) {
        self.0.change(|state, _| state.slots.drop_scope(&None));
        self.0.changed.notify_waiters();
    }

    /// Notes that something is being changed, or that the cloud is asked for the state of a change, until the result is
    /// dropped. None for a read.
    pub(crate) fn change(&self, classification: &Classification) -> Option<PendingChange> {
        if classification.effect == Effect::Read {
            return None;
        }
        let scope = scope(classification);
        self.0.change(|state, _| state.change_began(&scope));
        self.0.changed.notify_waiters();
        Some(PendingChange { shared: Arc::clone(&self.0), scope })
    }

    /// Answers a read from the cache, by a fetch in flight, or by a fetch of its own, for which `carry` starts a task.
    /// Dropping the future gives up its part in the fetch, and the fetch itself if no other request waits for it, unless it
    /// has been waited for until its caller's time was up: then it goes on for the next call.
    ///
    /// # Errors
    /// Those of the fetch, and [`Error::DeadlinePassed`].
    pub(crate) async fn read(
        &self,
        read: &Read,
        view: &View,
        deadlines: &Deadlines,
        shutdown: &Shutdown,
        carry: impl FnOnce(Fetch) -> AbortHandle,
    ) -> Result<Response, Error> {
        let arrived = Instant::now();
        let mut avoided = None;
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (query, asked) = self.0.lookup(read, view, (arrived, avoided), deadlines);
            let (end, is_own) = match asked {
                Lookup::Stored(page) => {
                    let age = Instant::now().saturating_duration_since(Instant::from_std(page.sent));
                    return Ok(reply::cached(&page, age));
                }
                Lookup::Nothing => return Ok(not_cached()),
                Lookup::Wait(until) => {
                    let look = async { Ok(timeout_at(until, changed).await) };
                    Box::pin(shutdown.abort_on_close(look)).await.map(drop)?;
                    continue;
                }
                Lookup::Lead(fetch, waiter) => {
                    waiter.task.by(carry(fetch));
                    let end = waiter.end(deadlines, &read.host).await?;
                    (end.ok_or(Error::DeadlinePassed)?, true)
                }
                // A further page belongs to the paged read of the fetch.
                Lookup::Join(id, waiter) => {
                    let is_first = query.list.is_none_or(|list| list.is_first);
                    let until = waiter.waits_until(arrived, deadlines).filter(|_| is_first);
                    // Boxed: otherwise every future would reserve room for it.
                    match Box::pin(join(waiter, until, deadlines, &read.host)).await? {
                        Joined::End(end) => (end, false),
                        Joined::Early => continue,
                        Joined::LeftBehind => {
                            avoided = Some(id);
                            continue;
                        }
                    }
                }
            };
            let (outcome, result) = end;
            CacheCore::record(&query, result, &mut view.history(), is_own);
            return match outcome {
                FetchOutcome::Response(from, reply) => Ok(reply::from_reply(from, &reply)),
                FetchOutcome::Failed(error) => Err(error),
            };
        }
    }
}

/// How the wait for the fetch of another request ended.
enum Joined {
    /// With the end of the fetch.
    End((FetchOutcome, FetchResult)),
    /// The fetch ended at the deadlines of the request that began it. The next one is its own, or that of another request with
    /// more time.
    Early,
    /// The fetch has been waited for long enough.
    LeftBehind,
}

/// Waits for the fetch of another request, and for one that was left behind only until `until`.
async fn join(
    waiter: Waiter,
    until: Option<Instant>,
    deadlines: &Deadlines,
    host: &Host,
) -> Result<Joined, Error> {
    let end = waiter.end(deadlines, host);
    let end = match until {
        Some(until) => match timeout_at(until, end).await {
            Ok(end) => end?,
            Err(_) => return Ok(Joined::LeftBehind),
        },
        None => end.await?,
    };
    match end {
        Some(end) => Ok(Joined::End(end)),
        None if Instant::now() < deadlines.soft => Ok(Joined::Early),
        None => Err(Error::DeadlinePassed),
    }
}

/// A change in progress.
#[derive(Debug)]
pub(crate) struct PendingChange {
    shared: Arc<CacheShared>,
    scope: Scope,
}

impl Drop for PendingChange {
    fn drop(&mut self) {
        self.shared.change(|state, now| state.change_ended(now, &self.scope));
        self.shared.changed.notify_waiters();
    }
}
