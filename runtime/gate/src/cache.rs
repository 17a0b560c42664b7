//! What the cloud answered before, and what it is being asked right now, so that it isn't asked twice. Who is answered
//! with what is decided in `decide`; here are the clock, the waiting, and what is given back when a caller goes away.
//!
//! Only reads under a [`View`] have to do with it, and what an answer says itself about caching plays no part: see `wish`.

mod ask;
mod decide;
mod flight;
mod gathered;
mod key;
mod metrics;
#[cfg(test)]
mod model;
mod read;
mod reply;
mod scopes;
mod seen;
mod slot;
mod slots;
mod stored;
mod view;
mod wish;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::deadlines::Deadlines;
use crate::error::Error;
use crate::response::Response;
use crate::rules::{Classification, Effect};
use crate::shutdown::Shutdown;
use ask::{Ask, Verdict};
use decide::{Counts, Landing, State};
pub(crate) use flight::Flight;
use flight::{FreeSeat, Outcome, Seat};
#[cfg(any(test, fuzzing))]
pub(crate) use key::DESCRIBING;
pub(crate) use key::Keys;
pub(crate) use metrics::CacheMetrics;
pub(crate) use read::Read;
use read::scope;
pub(crate) use reply::not_cached;
use scopes::Scope;
use seen::FlightId;
use slot::{Landed, Page};
use slots::Held;
pub use view::{Evidence, View};
pub(crate) use wish::is_for_it_alone;

/// What a gate's cache holds at most, in bytes: some thousand pages of a hundred machines each, compressed.
const MOST: usize = 32 << 20;

/// What a gate's cache holds at some time, and what it did since the gate was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheState {
    /// How many answers it holds.
    pub entries: usize,
    /// What they take in memory, in bytes, keys and heads included.
    pub bytes: usize,
    /// How many exchanges with the cloud are on their way whose answers others may share.
    pub flights: usize,
    /// How many requests were answered from it.
    pub cached: u64,
    /// How many requests waited for the exchange of another.
    pub shared: u64,
    /// How many exchanges told that what it held was still right.
    pub revalidated: u64,
    /// How many requests it might have answered but had to go to the cloud.
    pub missed: u64,
}

/// The cache of one provider. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Cache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    provider: Arc<str>,
    metrics: CacheMetrics,
    inner: Mutex<Inner>,
    /// Tells those who wait for a sweep to end that they should look again.
    changed: Arc<Notify>,
    /// What the answers on their way take together, in bytes.
    gathered: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    seats: HashMap<FlightId, FreeSeat>,
    /// What the metrics were told last.
    told: Held,
}

impl Cache {
    pub(crate) fn new(provider: Arc<str>, metrics: CacheMetrics) -> Self {
        let inner = Inner { state: State::new(MOST), seats: HashMap::new(), told: Held::default() };
        let (inner, changed, gathered) = (Mutex::new(inner), Arc::default(), Arc::default());
        Self(Arc::new(Shared { provider, metrics, inner, changed, gathered }))
    }

    pub(crate) fn state(&self) -> CacheState {
        let inner = self.0.lock();
        let Held { entries, bytes, dropped: _ } = inner.state.slots.held;
        let Counts { cached, shared, revalidated, missed } = inner.state.counts;
        CacheState { entries, bytes, flights: inner.state.flights(), cached, shared, revalidated, missed }
    }

    /// Drops everything, since from now on somebody else may be asking. What is on its way isn't kept.
    pub(crate) fn forget(&self) {
        self.0.change(|state, _| state.slots.drop_scope(&None));
        self.0.changed.notify_waiters();
    }

    /// Notes that something is being changed, or that the cloud is asked how a change gets on, until what it returns is
    /// dropped; `None` where neither is so.
    pub(crate) fn change(&self, classification: &Classification) -> Option<Change> {
        if classification.effect == Effect::Read {
            return None;
        }
        let scope = scope(classification);
        self.0.change(|state, _| state.change_began(&scope));
        self.0.changed.notify_waiters();
        Some(Change { shared: self.0.clone(), scope })
    }

    /// Answers a read: from what is kept, by an exchange that is on its way, or by one of its own, for which `carry` starts
    /// a task. Dropping the future gives up its part in that, and the exchange with it if it was the last that waited.
    pub(crate) async fn read(
        &self,
        read: &Read,
        view: &View,
        deadlines: &Deadlines,
        shutdown: &Shutdown,
        carry: impl FnOnce(Flight) -> AbortHandle,
    ) -> Result<Response, Error> {
        let arrived = Instant::now();
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (ask, asked) = self.0.ask(read, view, arrived, deadlines);
            let (end, is_own) = match asked {
                Asked::Stored(page) => {
                    let age = Instant::now().saturating_duration_since(Instant::from_std(page.sent));
                    return Ok(reply::cached(&page, age));
                }
                Asked::Nothing => return Ok(not_cached()),
                Asked::Waits(until) => {
                    let look = async { Ok(timeout_at(until, changed).await) };
                    Box::pin(shutdown.abort_on_close(look)).await.map(drop)?;
                    continue;
                }
                Asked::Leads(flight, seat) => {
                    seat.carried.by(carry(flight));
                    (seat.own_end().await?, true)
                }
                // Boxed, or whoever carries an exchange himself would hold a place for it.
                Asked::Joins(seat) => match Box::pin(seat.end(deadlines, &read.host)).await? {
                    Some(end) => (end, false),
                    // The next exchange is its own, or that of another who has more time.
                    None if Instant::now() < deadlines.soft => continue,
                    None => return Err(Error::DeadlinePassed),
                },
            };
            let (outcome, landing) = end;
            State::given(&ask, landing, &mut view.seen(), is_own);
            return match outcome {
                Outcome::Response(from, reply) => Ok(reply::from_reply(from, &reply)),
                Outcome::Failed(error) => Err(error),
            };
        }
    }
}

enum Asked {
    Stored(Page),
    Joins(Seat),
    Leads(Flight, Seat),
    Waits(Instant),
    Nothing,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that holds it can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the cache something, and the metrics what follows from it.
    fn change<T>(&self, change: impl FnOnce(&mut State, std::time::Instant) -> T) -> T {
        let mut inner = self.lock();
        let result = change(&mut inner.state, Instant::now().into_std());
        self.tell(&mut inner);
        result
    }

    fn tell(&self, inner: &mut Inner) {
        let now = inner.state.slots.held;
        let before = std::mem::replace(&mut inner.told, now);
        self.metrics.update(&self.provider, before, now);
    }

    fn ask(
        self: &Arc<Self>,
        read: &Read,
        view: &View,
        arrived: Instant,
        deadlines: &Deadlines,
    ) -> (Ask, Asked) {
        let now = Instant::now();
        let Read { keys: Keys { answer, list }, scope, wish, urgency, host: _ } = read;
        let ask = Ask {
            key: *answer,
            list: *list,
            scope: scope.clone(),
            floor: view.floor(arrived, now).max(wish.floor(arrived.into_std(), now.into_std())),
            urgency: *urgency,
            only_stored: wish.only_if_cached,
            // The other half is for its own sweep.
            patience: (arrived + deadlines.soft.saturating_duration_since(arrived) / 2).into_std(),
            led: view.leading(&self.changed),
        };
        let mut seen = view.seen();
        let mut inner = self.lock();
        let asked = loop {
            break match inner.state.read(now.into_std(), &ask, &mut seen) {
                Verdict::Stored(page) => Asked::Stored(page),
                Verdict::Nothing => Asked::Nothing,
                Verdict::Wait(until) => Asked::Waits(Instant::from_std(until)),
                Verdict::Lead(id, former) => {
                    let (flight, seat) = Flight::new(self.clone(), (id, list.is_some()), former, *deadlines);
                    inner.seats.insert(id, seat.free());
                    Asked::Leads(flight, seat)
                }
                Verdict::Join(id) => {
                    if let Some(seat) = inner.seats.get(&id).and_then(FreeSeat::take) {
                        Asked::Joins(seat)
                    } else {
                        // Everybody who waited for it has just gone.
                        inner.seats.remove(&id);
                        inner.state.landed(now.into_std(), id, Landed::Failure);
                        continue;
                    }
                }
            };
        };
        (ask, asked)
    }

    /// An exchange has ended, or nobody carries it any more.
    fn ended(&self, id: FlightId, landed: Landed, is_page: bool) -> Landing {
        let landing = {
            let mut inner = self.lock();
            inner.seats.remove(&id);
            let landing = inner.state.landed(Instant::now().into_std(), id, landed);
            self.tell(&mut inner);
            landing
        };
        if is_page {
            self.changed.notify_waiters();
        }
        landing
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let empty = Held { entries: 0, bytes: 0, ..inner.told };
        self.metrics.update(&self.provider, inner.told, empty);
    }
}

/// A change that is under way.
#[derive(Debug)]
pub(crate) struct Change {
    shared: Arc<Shared>,
    scope: Scope,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.shared.change(|state, now| state.change_ended(now, &self.scope));
        self.shared.changed.notify_waiters();
    }
}
