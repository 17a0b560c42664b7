//! What all reads of one gate share: the cache behind a lock, and the requests that wait for fetches.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::cache::decide::CacheCore;
use crate::cache::fetch::Fetch;
use crate::cache::history::FetchId;
use crate::cache::key::Keys;
use crate::cache::metrics::CacheMetrics;
use crate::cache::query::{CacheDecision, CacheQuery};
use crate::cache::read::Read;
use crate::cache::slot::{Fetched, Page};
use crate::cache::slots::CacheTotals;
use crate::cache::update::FetchResult;
use crate::cache::view::View;
use crate::cache::waiter::{MOST_LINGERING, Waiter, WeakWaiter};
use crate::deadlines::Deadlines;

/// The most memory of a gate's cache, in bytes: some thousand pages of a hundred instances each, compressed.
const MOST: usize = 32 << 20;

#[derive(Debug)]
pub(super) struct CacheShared {
    provider: Arc<str>,
    metrics: CacheMetrics,
    inner: Mutex<CacheInner>,
    /// Wakes the requests that wait for a paged read to end.
    pub(super) changed: Arc<Notify>,
    /// The memory of all answers that are being read, in bytes.
    pub(super) buffered: Arc<AtomicUsize>,
    /// The room for fetches that go on without a caller.
    pub(super) lingering: Arc<Semaphore>,
}

#[derive(Debug)]
pub(super) struct CacheInner {
    pub(super) state: CacheCore,
    waiters: HashMap<FetchId, WeakWaiter>,
    /// The totals that the metrics have.
    reported: CacheTotals,
}

/// How a read is answered.
pub(super) enum Lookup {
    Stored(Page),
    Join(FetchId, Waiter),
    Lead(Fetch, Waiter),
    Wait(Instant),
    Nothing,
}

impl CacheShared {
    pub(super) fn new(provider: Arc<str>, metrics: CacheMetrics) -> Self {
        let (waiters, reported) = (HashMap::new(), CacheTotals::default());
        let inner = CacheInner { state: CacheCore::new(MOST), waiters, reported };
        let (inner, changed, buffered) = (Mutex::new(inner), Arc::default(), Arc::default());
        let lingering = Arc::new(Semaphore::new(MOST_LINGERING));
        Self { provider, metrics, inner, changed, buffered, lingering }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, CacheInner> {
        // No code that holds it can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the cache, and reports the change to the metrics.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut CacheCore, std::time::Instant) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner.state, Instant::now().into_std());
        self.report(&mut inner);
        result
    }

    fn report(&self, inner: &mut CacheInner) {
        let now = inner.state.slots.held;
        let before = std::mem::replace(&mut inner.reported, now);
        self.metrics.update(&self.provider, before, now);
    }

    pub(super) fn lookup(
        self: &Arc<Self>,
        read: &Read,
        view: &View,
        (arrived, avoided): (Instant, Option<FetchId>),
        deadlines: &Deadlines,
    ) -> (CacheQuery, Lookup) {
        let now = Instant::now();
        let Read { keys: Keys { answer, list }, scope, directives, urgency, host: _ } = read;
        let query = CacheQuery {
            key: *answer,
            list: *list,
            scope: scope.clone(),
            floor: view.floor(arrived, now).max(directives.floor(arrived.into_std(), now.into_std())),
            accepts_slow: view.accepts_slow() && directives.max_age.is_none(),
            avoided,
            urgency: *urgency,
            only_stored: directives.only_if_cached,
            // The other half is for its own paged read.
            wait_until: (arrived + deadlines.soft.saturating_duration_since(arrived) / 2).into_std(),
            owner_alive: view.leading(&self.changed),
        };
        let mut history = view.history();
        let mut inner = self.lock();
        let asked = loop {
            break match inner.state.read(now.into_std(), &query, &mut history) {
                CacheDecision::Stored(page) => Lookup::Stored(page),
                CacheDecision::Nothing => Lookup::Nothing,
                CacheDecision::Wait(until) => Lookup::Wait(Instant::from_std(until)),
                CacheDecision::Lead(id, former) => {
                    let (fetch, waiter) = {
                        let deadlines = deadlines.of_shared_read();
                        Fetch::new(self.clone(), (id, list.is_some()), former, deadlines)
                    };
                    inner.waiters.insert(id, waiter.free());
                    Lookup::Lead(fetch, waiter)
                }
                CacheDecision::Join(id) => {
                    if let Some(waiter) = inner.waiters.get(&id).and_then(WeakWaiter::take) {
                        Lookup::Join(id, waiter)
                    } else {
                        // All requests that waited for it have just gone.
                        inner.waiters.remove(&id);
                        inner.state.on_fetched(now.into_std(), id, Fetched::Failed);
                        continue;
                    }
                }
            };
        };
        (query, asked)
    }

    /// Notes that a fetch has ended, or that its task is gone.
    pub(super) fn ended(&self, id: FetchId, fetched: Fetched, is_page: bool) -> FetchResult {
        let result = {
            let mut inner = self.lock();
            inner.waiters.remove(&id);
            let result = inner.state.on_fetched(Instant::now().into_std(), id, fetched);
            self.report(&mut inner);
            result
        };
        if is_page {
            self.changed.notify_waiters();
        }
        result
    }
}

impl Drop for CacheShared {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let empty = CacheTotals { entries: 0, bytes: 0, ..inner.reported };
        self.metrics.update(&self.provider, inner.reported, empty);
    }
}
