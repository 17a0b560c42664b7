//! A fetch: an exchange with the cloud whose answer several requests may share. It continues while any of them waits. If none
//! has the time to wait, it goes on for the next call: at a slow cloud, a call that began anew each time would never end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::body::{BodyLimits, CloudBody, StreamedBody};
use crate::cache::buffered::{BufferedBody, MOST};
use crate::cache::history::FetchId;
use crate::cache::shared::CacheShared;
use crate::cache::slot::Fetched;
use crate::cache::stored::{Stored, WholeResponse};
use crate::cache::waiter::{FetchOutcome, Progress, Waiter};
use crate::deadlines::Deadlines;
use crate::error::Error;
use crate::recent::Source;
use crate::record::Record;
use crate::response::{Response, ResponseBody};
use crate::shutdown::Shutdown;

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

impl Fetch {
    pub(super) fn new(
        shared: Arc<CacheShared>,
        (id, is_page): (FetchId, bool),
        former: Option<Arc<Stored>>,
        deadlines: Deadlines,
    ) -> (Self, Waiter) {
        let (sender, progress) = watch::channel(Progress::Waits);
        let waiter = Waiter::new(progress, deadlines, Arc::clone(&shared.lingering));
        let fetch = Self { shared, id, is_page, former, may_store: false, is_over: false, progress: sender };
        (fetch, waiter)
    }

    /// The header that asks whether the earlier answer is still right.
    pub(crate) fn validator(&self) -> Option<(HeaderName, HeaderValue)> {
        self.former.as_ref()?.validator().cloned()
    }

    /// Notes that it is sent now.
    pub(crate) fn on_sent(&mut self) {
        self.may_store = self.shared.change(|state, now| state.on_sent(now, self.id));
        self.progress.send_replace(Progress::Left(self.may_store));
    }

    /// Reads the response and passes it to all waiters.
    pub(crate) async fn on_response(mut self, response: Response, mut record: Record, shutdown: &Shutdown) {
        record.respond(response.from, response.status(), response.meaning);
        self.progress.send_replace(Progress::Answering(self.may_store));
        let Response { from, head, body, meaning } = response;
        let (incoming, limits) = match body {
            ResponseBody::Stream(incoming, limits) => (incoming, limits),
            // A limit held it back.
            ResponseBody::Whole(body) => {
                let reply = WholeResponse { status: head.status, headers: head.headers, body, meaning };
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
                None => {
                    self.taken(WholeResponse { status: head.status, headers: head.headers, body, meaning })
                }
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
        incoming: CloudBody,
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
