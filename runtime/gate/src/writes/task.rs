//! The task of one write, and what holds between it and its caller: whoever is there when the write ends gets the answer
//! and the record, and if nobody is, the task ends the record itself.

use std::{sync::Arc, time::Duration};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    error::Error,
    recent::Source,
    record::Record,
    under_way::UnderWay,
    writes::{
        Outcome, Shared,
        order::{Id, Write},
    },
};

/// The rest of an answer that nobody reads is read where that is cheaper than another connection...
const MOST_DRAINED: u64 = 64 * 1024;
/// ...and where it comes at once.
const DRAINED: Duration = Duration::from_secs(1);

/// The task of a write: waits for its end, and for its caller's.
pub(super) async fn finish(
    started: Started,
    under_way: UnderWay,
    exchange: impl Future<Output = Outcome>,
    record: Record,
    mut caller: oneshot::Sender<(Record, Outcome)>,
) {
    // On the heap already, as the future of the task.
    let mut exchange = std::pin::pin!(exchange);
    let outcome = tokio::select! {
        biased;
        outcome = &mut exchange => outcome,
        () = caller.closed() => {
            if !started.is_begun() {
                return;
            }
            exchange.await
        }
        () = under_way.closed() => {
            if started.is_begun() { exchange.await } else { Err(Error::Closed) }
        }
    };
    // Every write that may have left comes by here once, whoever still waits for it. What has to know that it is over
    // before the next request is told at this place.
    drop(started);
    if let Err((record, outcome)) = caller.send((record, outcome))
        && let Some((record, body)) = end_alone(record, outcome)
    {
        drain(record, body).await;
    }
}

/// Ends the record of a write that nobody waits for.
fn end_alone(mut record: Record, outcome: Outcome) -> Option<(Record, Incoming)> {
    record.outlived();
    match outcome {
        Ok(answer) => {
            record.answered(answer.status(), Source::Cloud);
            Some((record, answer.into_body()))
        }
        Err(error) => {
            record.failed(&error);
            None
        }
    }
}

/// Reads what is left of an answer, so that its connection can be used again.
async fn drain(mut record: Record, mut body: Incoming) {
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, bytes::Bytes::len);
            record.received = record.received.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
            if record.received > MOST_DRAINED {
                break;
            }
        }
    };
    let _late = timeout(DRAINED, rest).await;
}

/// A write that has a task.
pub(super) struct Started {
    shared: Arc<Shared>,
    pub(super) id: Id,
}

impl Started {
    pub(super) fn new(shared: Arc<Shared>, write: Write) -> Self {
        shared.tasks.send_modify(|tasks| *tasks += 1);
        let id = shared.lock().order.start(write);
        Self { shared, id }
    }

    /// Whether it was begun. If not, it never is.
    fn is_begun(&self) -> bool {
        self.shared.lock().order.give_up(self.id)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let Self { shared, id } = self;
        {
            let mut inner = shared.lock();
            for freed in inner.order.end(*id) {
                if let Some(waiting) = inner.waiting.remove(&freed) {
                    // Whoever gave up has taken his place out of the line.
                    let _heard = waiting.send(());
                }
            }
        }
        shared.tasks.send_modify(|tasks| *tasks -= 1);
    }
}

/// A write that somebody waits for.
pub(super) struct Attended {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    pub(super) told: oneshot::Receiver<(Record, Outcome)>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        let Self { shared, id, told } = self;
        shared.lock().order.leave(*id);
        told.close();
        // It ended in the instant before nobody waited any more. Its answer isn't worth a task to read the rest.
        if let Ok((record, outcome)) = told.try_recv() {
            let _ended = end_alone(record, outcome);
        }
    }
}
