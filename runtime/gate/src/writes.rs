//! Writes that are on their way. A write that was begun is never given up halfway, whoever stops waiting for it: nobody
//! would know whether it was done. It has a task of its own, which waits for its answer for up to a minute, teaches the
//! limits what it says, and ends its record, exactly once (`task`). What waits for what meanwhile is decided in `order`;
//! here are the caller, and those who wait.

mod order;
mod task;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{Method, Response};
use hyper::body::Incoming;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::Instrument;

use crate::{
    deadlines::Deadlines,
    error::{Error, Phase},
    fence::Fence,
    record::Record,
    request::Request,
    rules::Meaning,
    under_way::UnderWay,
};
use order::{Id, Order, Resource, Verdict};
pub(crate) use order::{LONGEST, Write};
use task::{Attended, Started, finish};

/// The writes of a gate. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Writes {
    fence: Fence,
    under_way: UnderWay,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Makes the names of resources, which a cloud or a provider can't foresee.
    names: RandomState,
    inner: Mutex<Inner>,
    /// How many writes have a task.
    tasks: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    order: Order,
    waiting: HashMap<Id, oneshot::Sender<()>>,
}

type Outcome = Result<Response<Incoming>, Error>;

impl Writes {
    pub(crate) fn new(fence: Fence, under_way: UnderWay) -> Self {
        let (names, inner) = (RandomState::new(), Mutex::default());
        let shared = Shared { names, inner, tasks: watch::Sender::new(0) };
        Self { fence, under_way, shared: Arc::new(shared) }
    }

    /// How many writes may have begun and are unanswered.
    pub(crate) fn count(&self) -> usize {
        *self.shared.tasks.borrow()
    }

    /// Waits until there is none.
    pub(crate) async fn ended(&self) {
        let mut tasks = self.shared.tasks.subscribe();
        let _ended = tasks.wait_for(|tasks| *tasks == 0).await;
    }

    /// What a request is to other writes, while it holds so many bytes.
    pub(crate) fn write(&self, request: &Request, meaning: &Meaning, body: &[u8], bytes: usize) -> Write {
        Write { resource: resource(&self.shared.names, request, meaning, body), bytes }
    }

    /// Waits until nothing that was left stands in the way of this write. The failure is the time after which nothing
    /// will for sure.
    pub(crate) async fn turn(&self, write: Write, soft: Instant) -> Result<(), Duration> {
        match self.ask(write) {
            Asked::Goes => Ok(()),
            Asked::Refused(after) => Err(after),
            // Boxed, since hardly any request waits here, and each would hold a place for it while it waits elsewhere.
            Asked::Waits(place) => Box::pin(place.wait(write, soft)).await,
        }
    }

    fn ask(&self, write: Write) -> Asked {
        let mut inner = self.shared.lock();
        match inner.order.ask(Instant::now().into_std(), write) {
            Verdict::Go => Asked::Goes,
            Verdict::Refuse(after) => Asked::Refused(after),
            Verdict::Wait(id) => {
                let (sender, told) = oneshot::channel();
                inner.waiting.insert(id, sender);
                Asked::Waits(Place { shared: self.shared.clone(), id, told })
            }
        }
    }

    /// Whether a write that had its turn still has it.
    pub(crate) fn is_free(&self, write: Write) -> bool {
        self.shared.lock().order.is_free(write.resource)
    }

    /// Carries an exchange that changes something. It sends its body only if the fence that it is given lets it. Dropping
    /// the future gives it up as long as it hasn't begun, and so does closing the gate; once it has begun it is finished,
    /// and its record with it.
    pub(crate) async fn carry<F>(
        &self,
        write: Write,
        record: &mut Record,
        deadlines: Deadlines,
        exchange: impl FnOnce(Fence) -> F,
    ) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        if !self.fence.is_open() {
            return Err(Error::Fenced);
        }
        let started = Started::new(self.shared.clone(), write);
        let begun = Arc::new(Notify::new());
        let exchange = exchange(self.fence_of(started.id, begun.clone()));
        let (sender, told) = oneshot::channel();
        let mut attended = Attended { shared: self.shared.clone(), id: started.id, told };
        let handed = record.hand_over();
        let host = handed.host();
        let task = finish(started, self.under_way.clone(), exchange, handed, sender);
        tokio::spawn(task.in_current_span());
        let told = tokio::select! {
            biased;
            told = &mut attended.told => told,
            late = late(&begun, deadlines, host) => return Err(late),
        };
        // Only the end of the runtime ends a task that is waited for.
        let (handed, outcome) = told.map_err(|_| Error::Closed)?;
        *record = handed;
        outcome
    }

    /// Open while a write may begin, which it thereby has.
    fn fence_of(&self, id: Id, begun: Arc<Notify>) -> Fence {
        let Self { fence, under_way, shared } = self.clone();
        Fence::new(move || {
            let may_begin = fence.is_open() && shared.begin(id, under_way.check().is_err());
            if may_begin {
                begun.notify_one();
            }
            may_begin
        })
    }
}

/// Scheme, host, port and path. Interfaces that POST everything have one path for all, so there the whole request says
/// what it changes: an equal one is the same once more, any other is about something else as far as can be told.
fn resource(names: &RandomState, request: &Request, meaning: &Meaning, body: &[u8]) -> Resource {
    let Request { method, tls, host, port, path, query } = request;
    let folded = meaning.fold_case.then(|| path.to_ascii_lowercase());
    let path = folded.as_ref().unwrap_or(path);
    let whole = (*method == Method::POST).then_some((query, body));
    names.hash_one((tls, host, port, path, whole))
}

/// Waits until the caller's time is up: his wish for the first byte, counted from the sending, or all of it.
async fn late(begun: &Notify, deadlines: Deadlines, host: String) -> Error {
    let now = Instant::now();
    let over = sleep_until(deadlines.hard);
    let first_byte = async {
        begun.notified().await;
        let after = deadlines.clamp(deadlines.first_byte, Instant::now());
        sleep(after).await;
        after
    };
    let (phase, after) = tokio::select! {
        biased;
        () = over => (Phase::Call, deadlines.hard.saturating_duration_since(now)),
        after = first_byte => (Phase::FirstByte, after),
    };
    Error::Timeout { phase, host, after }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that holds it can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether a write may be sent; one that was begun goes on whatever is closed since.
    fn begin(&self, id: Id, is_closed: bool) -> bool {
        let mut inner = self.lock();
        (!is_closed || inner.order.is_begun(id)) && inner.order.begin(Instant::now().into_std(), id)
    }
}

enum Asked {
    Goes,
    Waits(Place),
    Refused(Duration),
}

/// A place in the line.
struct Place {
    shared: Arc<Shared>,
    id: Id,
    told: oneshot::Receiver<()>,
}

impl Place {
    async fn wait(mut self, write: Write, soft: Instant) -> Result<(), Duration> {
        let told = timeout_at(soft, &mut self.told).await;
        let after = |_| self.shared.lock().order.free_after(Instant::now().into_std(), write.resource);
        told.map(|_| ()).map_err(after)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.order.cancel(self.id);
        inner.waiting.remove(&self.id);
    }
}
