//! What all requests of one provider share: the state of its limits, the queue, and the task that serves the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::limits::capacity::TokenSet;
use crate::limits::decide::{Admission, LimiterState, TokenRequest};
use crate::limits::hold::Hold;
use crate::limits::limit::LimitsState;
use crate::limits::metrics::LimitMetrics;
use crate::limits::pending::PendingPermit;
use crate::limits::permit::Permit;
use crate::limits::queue::Ticket;
use crate::limits::table::LimitTable;

/// The tokens of a request that waited, or why it is held back.
pub(super) type QueueOutcome = Result<TokenSet, Hold>;

/// How a request for a permit is answered at once.
pub(super) enum Acquisition {
    Permit(Permit),
    HeldBack(Hold),
    Queued(PendingPermit),
}

/// The limits of one provider, behind a lock.
#[derive(Debug)]
pub(super) struct LimiterShared {
    pub(super) provider: Arc<str>,
    pub(super) table: LimitTable,
    pub(super) metrics: LimitMetrics,
    inner: Mutex<LimiterInner>,
    /// Wakes the queue worker before the time until which it sleeps.
    wake: Notify,
}

#[derive(Debug)]
pub(super) struct LimiterInner {
    pub(super) state: LimiterState,
    pub(super) waiting: HashMap<Ticket, oneshot::Sender<QueueOutcome>>,
    /// Until when the queue worker sleeps. None while there is no worker.
    pub(super) worker_sleeps_until: Option<Instant>,
}

impl LimiterShared {
    pub(super) fn new(provider: Arc<str>, table: LimitTable, metrics: LimitMetrics) -> Arc<Self> {
        let state = LimiterState::new(table.ceilings(), Instant::now().into_std());
        let inner = LimiterInner { state, waiting: HashMap::new(), worker_sleeps_until: None };
        Arc::new(Self { provider, table, metrics, inner: Mutex::new(inner), wake: Notify::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LimiterInner> {
        // No code that holds the lock can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> LimitsState {
        let now = Instant::now().into_std();
        self.table.describe(now, &mut self.lock().state)
    }

    /// Takes the tokens of a request, puts it into the queue, or holds it back.
    pub(super) fn acquire(self: &Arc<Self>, request: TokenRequest<'_>) -> Acquisition {
        let mut inner = self.lock();
        let acquisition = match inner.state.acquire(Instant::now().into_std(), request) {
            Admission::Send(tokens) => Acquisition::Permit(Permit::new(Arc::clone(self), tokens)),
            Admission::Hold(hold) => Acquisition::HeldBack(hold),
            Admission::Wait(ticket) => {
                let (sender, outcome) = oneshot::channel();
                inner.waiting.insert(ticket, sender);
                self.metrics.waiting(&self.provider, request.urgency, 1);
                Acquisition::Queued(PendingPermit::new(Arc::clone(self), ticket, outcome))
            }
        };
        self.deliver(&mut inner);
        if inner.worker_sleeps_until.is_none() && !inner.waiting.is_empty() {
            inner.worker_sleeps_until = Some(Instant::now());
            // Without a runtime `spawn` panics, and dropping the acquisition then needs the lock.
            drop(inner);
            tokio::spawn(QueueWorker { shared: Arc::clone(self), is_over: false }.run());
        }
        acquisition
    }

    /// Changes the state and delivers what follows from the change to the requests that wait.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut LimiterState, std::time::Instant) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner.state, Instant::now().into_std());
        self.deliver(&mut inner);
        result
    }

    /// Delivers outcomes to the requests that wait, and wakes the queue worker where it sleeps for too long.
    pub(super) fn deliver(&self, inner: &mut LimiterInner) {
        for (ticket, outcome) in inner.state.take_served() {
            if let Some(waiting) = inner.waiting.remove(&ticket) {
                // A request that is given up leaves the queue first, so there is a receiver.
                let _received = waiting.send(outcome);
            }
        }
        if inner.waiting.is_empty() {
            // The worker ends once the queue is empty. Asleep, it would keep the limits alive.
            self.wake.notify_waiters();
        }
        let next = inner.state.next().map(Instant::from_std);
        if inner.worker_sleeps_until.zip(next).is_some_and(|(sleeps, next)| next < sleeps) {
            self.wake.notify_one();
        }
    }
}

/// Serves the queue while requests wait.
struct QueueWorker {
    shared: Arc<LimiterShared>,
    is_over: bool,
}

impl QueueWorker {
    async fn run(mut self) {
        loop {
            let next = {
                let mut inner = self.shared.lock();
                inner.state.serve(Instant::now().into_std());
                self.shared.deliver(&mut inner);
                if inner.waiting.is_empty() {
                    // Under the same lock: the next request that waits must start another worker.
                    inner.worker_sleeps_until = None;
                    self.is_over = true;
                    return;
                }
                // Every request that waits has a time at which it can be sent, if nothing changes.
                let next = inner.state.next().map_or_else(Instant::now, Instant::from_std);
                inner.worker_sleeps_until = Some(next);
                next
            };
            let _woken_or_elapsed = timeout_at(next, self.shared.wake.notified()).await;
        }
    }
}

impl Drop for QueueWorker {
    fn drop(&mut self) {
        // Where its runtime ends: the next request that waits starts another worker.
        if !self.is_over {
            self.shared.lock().worker_sleeps_until = None;
        }
    }
}
