//! Writes in flight. A write that has begun is never given up halfway, even if its caller goes: it would be unknown
//! whether it was done. It has a task of its own (`task`), which waits for the response for up to a minute, teaches the
//! limits what the response says, and ends the record, exactly once. `order` decides which write waits for which; here are
//! the callers, and the writes that wait.
//!
//! At SIGTERM ([`Gate::close`](crate::Gate::close)) a write that has begun is finished, and one that hasn't never leaves:
//! both that and the fence are checked at the first byte, see `fence`.

mod order;
mod task;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::Instrument;

use crate::deadlines::Deadlines;
use crate::error::{Error, Phase};
use crate::fence::Fence;
use crate::record::{Duty, Record};
use crate::request::Request;
use crate::rules::Classification;
use crate::shutdown::Shutdown;
use crate::upstream::CloudResponse;
use order::{Admission, Resource, WriteId, WriteOrder};
pub(crate) use order::{MAX_WRITE_TIME, Write};
use task::{ActiveWrite, Caller};

/// The writes of a gate. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Writes {
    fence: Fence,
    shutdown: Shutdown,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Makes the hashes of resources, which neither a cloud nor a provider can foresee.
    names: RandomState,
    inner: Mutex<Inner>,
    /// How many writes have a task.
    tasks: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    order: WriteOrder,
    waiting: HashMap<WriteId, oneshot::Sender<()>>,
}

/// How many bytes of a body tell two resources apart.
const MAX_HASHED: usize = 64 << 10;

type ExchangeResult = Result<CloudResponse, Error>;

impl Writes {
    pub(crate) fn new(fence: Fence, shutdown: Shutdown) -> Self {
        let (names, inner) = (RandomState::new(), Mutex::default());
        let shared = Shared { names, inner, tasks: watch::Sender::new(0) };
        Self { fence, shutdown, shared: Arc::new(shared) }
    }

    /// How many writes may have begun and are unanswered.
    pub(crate) fn count(&self) -> usize {
        *self.shared.tasks.borrow()
    }

    /// Waits until all have ended.
    pub(crate) async fn wait_until_none(&self) {
        let mut tasks = self.shared.tasks.subscribe();
        let _ended = tasks.wait_for(|tasks| *tasks == 0).await;
    }

    /// The fence of a request that isn't a write. Only the provider says that its POST changes nothing, so a POST leaves no
    /// replica that doesn't lead.
    ///
    /// # Errors
    /// [`Error::Fenced`] while the fence is closed.
    pub(crate) fn fence_of_read(&self, request: &Request) -> Result<Fence, Error> {
        if request.is_safe() {
            Ok(Fence::default())
        } else if self.fence.is_open() {
            Ok(self.fence.clone())
        } else {
            Err(Error::Fenced)
        }
    }

    /// What other writes have to know of a request, which holds so many bytes.
    pub(crate) fn write(
        &self,
        request: &Request,
        classification: &Classification,
        body: &[u8],
        bytes: usize,
    ) -> Write {
        Write { resource: resource(&self.shared.names, request, classification, body), bytes }
    }

    /// Waits until no detached write is in the way of this one.
    ///
    /// # Errors
    /// The time after which none is in the way at the latest.
    pub(crate) async fn turn(&self, write: Write, soft: Instant) -> Result<(), Duration> {
        let place = {
            let mut inner = self.shared.lock();
            match inner.order.admit(Instant::now().into_std(), write) {
                Admission::Now => return Ok(()),
                Admission::Refused(after) => return Err(after),
                Admission::Later(id) => {
                    let (sender, freed) = oneshot::channel();
                    inner.waiting.insert(id, sender);
                    Place { shared: Arc::clone(&self.shared), id, freed }
                }
            }
        };
        // Boxed: hardly any request waits here, and each would hold room for it while it waits elsewhere.
        Box::pin(place.wait(write, soft)).await
    }

    /// Whether a write that had its turn still has it.
    pub(crate) fn is_free(&self, write: Write) -> bool {
        self.shared.lock().order.is_free(write.resource)
    }

    /// Carries an exchange that changes something, which sends its body only if the fence that it gets is open. Dropping
    /// the future or closing the gate gives up a write that hasn't begun. A write that has begun is finished, and its
    /// record with it.
    ///
    /// # Errors
    /// [`Error::Fenced`] while the fence is closed, [`Error::Closed`] if the gate is closed before the write has begun,
    /// [`Error::Timeout`] when the caller's time is up, and those of the exchange.
    pub(crate) async fn carry<F>(
        &self,
        write: Write,
        record: &mut Record,
        deadlines: Deadlines,
        exchange: impl FnOnce(Fence) -> F,
    ) -> ExchangeResult
    where
        F: Future<Output = ExchangeResult> + Send + 'static,
    {
        if !self.fence.is_open() {
            return Err(Error::Fenced);
        }
        let active = ActiveWrite::new(Arc::clone(&self.shared), write);
        let begun = Arc::new(Notify::new());
        let exchange = exchange(self.fence_of(active.id, Arc::clone(&begun)));
        let (sender, result) = oneshot::channel();
        let mut caller = Caller { shared: Arc::clone(&self.shared), id: active.id, result };
        let handed = record.hand_over(Duty::LogOnly);
        let host = handed.host();
        let task = task::run(active, self.shutdown.clone(), exchange, handed, sender);
        tokio::spawn(task.in_current_span());
        let received = tokio::select! {
            biased;
            received = &mut caller.result => received,
            late = late(&begun, deadlines, host) => return Err(late),
        };
        // Only the end of the runtime ends a task whose caller waits.
        let (handed, result) = received.map_err(|_| Error::Closed)?;
        *record = handed;
        result
    }

    /// The fence of one write: open while the write may begin. When it is asked and is open, the write has begun.
    fn fence_of(&self, id: WriteId, begun: Arc<Notify>) -> Fence {
        let Self { fence, shutdown, shared } = self.clone();
        Fence::new(move || {
            let may_begin = fence.is_open() && shared.begin(id, shutdown.check().is_err());
            if may_begin {
                begun.notify_one();
            }
            may_begin
        })
    }
}

/// Scheme, host, port and path. An API that POSTs everything has one path for all, so there the whole request says what it
/// changes: an equal request is the same change again, and any other is assumed to be about something else.
fn resource(
    names: &RandomState,
    request: &Request,
    classification: &Classification,
    body: &[u8],
) -> Resource {
    let Request { method, tls, host, port, path, query } = request;
    let folded = classification.fold_case.then(|| path.to_ascii_lowercase());
    let path = folded.as_ref().unwrap_or(path);
    // A request holds megabytes at most; two that begin alike may wait for each other.
    let begin = body.get(..MAX_HASHED).unwrap_or(body);
    let whole = (*method == Method::POST).then_some((query, begin, body.len()));
    names.hash_one((tls, host, port, path, whole))
}

/// Waits until the caller's time is up: its timeout for the first byte, counted from the sending, or all of it.
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

    /// Returns whether a write may be sent. One that has begun goes on even if the gate was closed since.
    fn begin(&self, id: WriteId, is_closed: bool) -> bool {
        let mut inner = self.lock();
        (!is_closed || inner.order.is_in_flight(id)) && inner.order.begin(Instant::now().into_std(), id)
    }
}

/// The place of a waiting write in the queue.
struct Place {
    shared: Arc<Shared>,
    id: WriteId,
    freed: oneshot::Receiver<()>,
}

impl Place {
    async fn wait(mut self, write: Write, soft: Instant) -> Result<(), Duration> {
        let freed = timeout_at(soft, &mut self.freed).await;
        let after = |_| self.shared.lock().order.free_after(Instant::now().into_std(), write.resource);
        freed.map(|_| ()).map_err(after)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.order.cancel(self.id);
        inner.waiting.remove(&self.id);
    }
}
