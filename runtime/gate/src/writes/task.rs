//! The task of one write. It outlives its caller: a caller that still waits when the write ends gets the response and the
//! record, otherwise the task ends the record itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::body::CloudBody;
use crate::error::Error;
use crate::recent::Source;
use crate::record::Record;
use crate::shutdown::Shutdown;
use crate::writes::order::{Write, WriteId};
use crate::writes::{ExchangeResult, Shared};

/// The rest of a response without a reader is read where that is cheaper than another connection...
const MAX_DRAINED: u64 = 64 * 1024;
/// ...and where it comes at once.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a write until it ends, or until its caller goes or the gate is closed before it is in flight.
pub(super) async fn run(
    active: ActiveWrite,
    shutdown: Shutdown,
    exchange: impl Future<Output = ExchangeResult>,
    record: Record,
    mut caller: oneshot::Sender<(Record, ExchangeResult)>,
) {
    // On the heap already, as the future of the task.
    let mut exchange = pin!(exchange);
    let result = tokio::select! {
        biased;
        result = &mut exchange => result,
        () = caller.closed() => {
            if !active.is_in_flight() {
                return;
            }
            exchange.await
        }
        () = shutdown.closed() => {
            if active.is_in_flight() { exchange.await } else { Err(Error::Closed) }
        }
    };
    // Every write that may have left passes here once, whether its caller waits or not. What has to know that the write is
    // over before the next request is told here.
    drop(active);
    if let Err((record, result)) = caller.send((record, result))
        && let Some((record, body)) = end_detached(record, result)
    {
        drain(record, body).await;
    }
}

/// Ends the record of a write whose caller has gone.
fn end_detached(mut record: Record, result: ExchangeResult) -> Option<(Record, CloudBody)> {
    record.outlive_caller();
    match result {
        Ok(response) => {
            record.respond(Source::Cloud, response.head.status, response.meaning);
            Some((record, response.body))
        }
        Err(error) => {
            record.fail(&error);
            None
        }
    }
}

/// Reads what is left of a response, so that its connection can be used again.
async fn drain(mut record: Record, mut body: CloudBody) {
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, bytes::Bytes::len);
            record.received = record.received.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
            if record.received > MAX_DRAINED {
                break;
            }
        }
    };
    let _late = timeout(DRAIN_TIMEOUT, rest).await;
}

/// A write that has a task. Frees its resource when dropped.
pub(super) struct ActiveWrite {
    shared: Arc<Shared>,
    pub(super) id: WriteId,
}

impl ActiveWrite {
    pub(super) fn new(shared: Arc<Shared>, write: Write) -> Self {
        shared.tasks.send_modify(|tasks| *tasks += 1);
        let id = shared.lock().order.start(write);
        Self { shared, id }
    }

    /// Whether the write is in flight. If not, it never is.
    fn is_in_flight(&self) -> bool {
        self.shared.lock().order.give_up(self.id)
    }
}

impl Drop for ActiveWrite {
    fn drop(&mut self) {
        let Self { shared, id } = self;
        {
            let mut inner = shared.lock();
            for freed in inner.order.end(*id) {
                if let Some(waiting) = inner.waiting.remove(&freed) {
                    // A caller that gives up takes its place out of the queue first.
                    let _received = waiting.send(());
                }
            }
        }
        shared.tasks.send_modify(|tasks| *tasks -= 1);
    }
}

/// The caller of a write. Detaches the write when dropped.
pub(super) struct Caller {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WriteId,
    pub(super) result: oneshot::Receiver<(Record, ExchangeResult)>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Self { shared, id, result } = self;
        shared.lock().order.detach(*id);
        result.close();
        // The write ended in the instant before its caller went. Its response isn't worth a task to read the rest.
        if let Ok((record, result)) = result.try_recv() {
            let _ended = end_detached(record, result);
        }
    }
}
