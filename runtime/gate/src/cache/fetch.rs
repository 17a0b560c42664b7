//! A fetch: an exchange with the cloud whose answer several requests may share. It continues while any of them waits,
//! and ends at the deadlines of the request that began it.

use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::body::{BodyLimits, StreamedBody};
use crate::cache::buffered::{BufferedBody, MOST};
use crate::cache::history::FetchId;
use crate::cache::shared::CacheShared;
use crate::cache::slot::Fetched;
use crate::cache::stored::{Stored, WholeResponse};
use crate::cache::update::FetchResult;
use crate::deadlines::Deadlines;
use crate::error::{Error, Phase};
use crate::recent::Source;
use crate::record::Record;
use crate::request::Host;
use crate::response::{Response, ResponseBody};
use crate::shutdown::Shutdown;

/// The outcome of a fetch, for the requests that waited for it.
#[derive(Debug, Clone)]
pub(crate) enum FetchOutcome {
    /// A response, and where it came from.
    Response(Source, Arc<WholeResponse>),
    /// It failed.
    Failed(Error),
}

#[derive(Debug, Clone)]
enum Progress {
    Waits,
    Left,
    Ended(FetchOutcome, FetchResult),
}

/// A fetch, for the task that carries it out.
#[derive(Debug)]
pub(crate) struct Fetch {
    shared: Arc<CacheShared>,
    id: FetchId,
    /// Whether requests may wait for the end of its paged read.
    is_page: bool,
    /// The earlier answer that the cloud may confirm.
    former: Option<Arc<Stored>>,
    may_store: bool,
    is_over: bool,
    progress: watch::Sender<Progress>,
}

/// A request that waits for a fetch. The fetch is given up when the last waiter is gone.
#[derive(Debug)]
pub(crate) struct Waiter {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    pub(crate) task: Arc<FetchTask>,
}

/// A waiter that does not keep the fetch alive.
#[derive(Debug)]
pub(crate) struct WeakWaiter {
    progress: watch::Receiver<Progress>,
    deadlines: Deadlines,
    task: Weak<FetchTask>,
}

impl WeakWaiter {
    /// A waiter, unless all waiters have gone.
    pub(crate) fn take(&self) -> Option<Waiter> {
        let Self { progress, deadlines, task } = self;
        let (progress, deadlines) = (progress.clone(), *deadlines);
        Some(Waiter { progress, deadlines, task: task.upgrade()? })
    }
}

/// The task that carries out a fetch; aborted when dropped.
#[derive(Debug, Default)]
pub(crate) struct FetchTask(OnceLock<AbortHandle>);

impl FetchTask {
    pub(crate) fn by(&self, task: AbortHandle) {
        self.0.get_or_init(|| task);
    }
}

impl Drop for FetchTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }
}

impl Fetch {
    pub(super) fn new(
        shared: Arc<CacheShared>,
        (id, is_page): (FetchId, bool),
        former: Option<Arc<Stored>>,
        deadlines: Deadlines,
    ) -> (Self, Waiter) {
        let (sender, progress) = watch::channel(Progress::Waits);
        let fetch = Self { shared, id, is_page, former, may_store: false, is_over: false, progress: sender };
        (fetch, Waiter { progress, deadlines, task: Arc::default() })
    }

    /// The header that asks whether the earlier answer is still right.
    pub(crate) fn validator(&self) -> Option<(HeaderName, HeaderValue)> {
        self.former.as_ref()?.validator().cloned()
    }

    /// Notes that it is sent now.
    pub(crate) fn on_sent(&mut self) {
        self.may_store = self.shared.change(|state, now| state.on_sent(now, self.id));
        self.progress.send_replace(Progress::Left);
    }

    /// Reads the response and passes it to all waiters.
    pub(crate) async fn on_response(mut self, response: Response, mut record: Record, shutdown: &Shutdown) {
        record.respond(response.from, response.status());
        let Response { from, head, body } = response;
        let (incoming, limits) = match body {
            ResponseBody::Stream(incoming, limits) => (incoming, limits),
            // A limit held it back.
            ResponseBody::Whole(body) => {
                let reply = WholeResponse { status: head.status, headers: head.headers, body };
                return self.ends(FetchOutcome::Response(from, Arc::new(reply)), Fetched::Failed);
            }
        };
        let confirmed = self.former.clone().filter(|_| head.status == StatusCode::NOT_MODIFIED);
        if confirmed.is_some() {
            record.revalidate();
        }
        let (outcome, fetched) = match self.gather(incoming, limits, record, shutdown).await {
            Err(error) => (FetchOutcome::Failed(error), Fetched::Failed),
            Ok(body) => match confirmed {
                Some(former) => {
                    self.shared.lock().state.counts.revalidated += 1;
                    let reply = former.unpack().aged(Duration::ZERO);
                    (FetchOutcome::Response(Source::Shared, Arc::new(reply)), Fetched::Storable(former))
                }
                None => self.taken(WholeResponse { status: head.status, headers: head.headers, body }),
            },
        };
        self.ends(outcome, fetched);
    }

    fn taken(&self, reply: WholeResponse) -> (FetchOutcome, Fetched) {
        let kept = if self.may_store { Stored::pack(&reply) } else { None };
        let fetched = match kept {
            Some(stored) => Fetched::Storable(Arc::new(stored)),
            None if reply.status.as_u16() < 400 => Fetched::NotStorable,
            None => Fetched::Failed,
        };
        (FetchOutcome::Response(Source::Shared, Arc::new(reply)), fetched)
    }

    /// Ends it with an error.
    pub(crate) fn on_failure(mut self, error: Error) {
        self.ends(FetchOutcome::Failed(error), Fetched::Failed);
    }

    fn ends(&mut self, outcome: FetchOutcome, fetched: Fetched) {
        self.is_over = true;
        let result = self.shared.ended(self.id, fetched, self.is_page);
        self.progress.send_replace(Progress::Ended(outcome, result));
    }

    /// Reads the whole body, which counts against the bound of all fetches until its last reader drops it. Requests
    /// that wait for it have no answer yet, so it is given up when the gate closes.
    async fn gather(
        &self,
        incoming: Incoming,
        limits: BodyLimits,
        record: Record,
        shutdown: &Shutdown,
    ) -> Result<Bytes, Error> {
        let host = limits.host.clone();
        let mut body = StreamedBody::new(incoming, limits, record);
        let mut held = BufferedBody::new(self.shared.buffered.clone());
        let mut closed = pin!(shutdown.closed());
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut closed => {
                    body.fail(&Error::Closed);
                    return Err(Error::Closed);
                }
                frame = body.frame() => frame,
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame?.into_data() else { continue };
            if !held.take(&data) {
                let limit = format!("{} MiB", MOST >> 20);
                let part = "body, with all others that are being read,";
                let error = Error::ResponseTooLarge { host, part, limit };
                body.fail(&error);
                return Err(error);
            }
        }
        Ok(held.into_bytes())
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.ended(self.id, Fetched::Failed, self.is_page);
        }
    }
}

impl Waiter {
    /// The same waiter for a later request.
    pub(crate) fn free(&self) -> WeakWaiter {
        let Self { progress, deadlines, task } = self;
        WeakWaiter { progress: progress.clone(), deadlines: *deadlines, task: Arc::downgrade(task) }
    }

    /// Waits for the end of its own fetch.
    pub(crate) async fn own_end(mut self) -> Result<(FetchOutcome, FetchResult), Error> {
        ended(&mut self.progress).await
    }

    /// Waits for the end of another's fetch, at most until these deadlines. None if the fetch ended only because of the
    /// deadlines of the request that began it, and this one has more time.
    pub(crate) async fn end(
        mut self,
        own: &Deadlines,
        host: &Host,
    ) -> Result<Option<(FetchOutcome, FetchResult)>, Error> {
        // At its own deadlines the fetch ends by itself.
        if own.soft < self.deadlines.soft {
            let left = self.progress.wait_for(|progress| !matches!(progress, Progress::Waits));
            timeout_at(own.soft, left)
                .await
                .map_err(|_| Error::DeadlinePassed)?
                .map_err(|_| Error::Closed)?;
        }
        let end = ended(&mut self.progress);
        let (outcome, result) = if own.hard < self.deadlines.hard {
            let begun = Instant::now();
            timeout_at(own.hard, end).await.map_err(|_| Error::Timeout {
                phase: Phase::Call,
                host: host.to_string(),
                after: begun.elapsed(),
            })??
        } else {
            end.await?
        };
        Ok((!self.is_early(&outcome, own)).then_some((outcome, result)))
    }

    fn is_early(&self, outcome: &FetchOutcome, own: &Deadlines) -> bool {
        let longer =
            |own: Option<_>, other: Option<_>| other.is_some_and(|other| own.is_none_or(|own| own > other));
        let Deadlines { soft, hard, connect, first_byte, between_bytes } = self.deadlines;
        match outcome {
            FetchOutcome::Response(Source::Limit, _) | FetchOutcome::Failed(Error::DeadlinePassed) => {
                own.soft > soft
            }
            FetchOutcome::Failed(Error::Timeout { phase, .. }) => {
                let has_wish = match phase {
                    Phase::Connect => longer(own.connect, connect),
                    Phase::FirstByte => longer(own.first_byte, first_byte),
                    Phase::BetweenBytes => longer(own.between_bytes, between_bytes),
                    Phase::Call => false,
                };
                has_wish || own.hard > hard
            }
            _ => false,
        }
    }
}

async fn ended(progress: &mut watch::Receiver<Progress>) -> Result<(FetchOutcome, FetchResult), Error> {
    // Only the end of the runtime ends the task of a fetch that is waited for.
    let ended = progress.wait_for(|progress| matches!(progress, Progress::Ended(..))).await;
    match &*ended.map_err(|_| Error::Closed)? {
        Progress::Ended(outcome, result) => Ok((outcome.clone(), *result)),
        Progress::Waits | Progress::Left => Err(Error::Closed),
    }
}
