//! A request that waits in the queue for its permit.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::limits::queue::Ticket;
use crate::limits::shared::{LimiterShared, QueueOutcome};

/// A place in the queue. Dropping it leaves the queue, and puts back tokens that were not received.
#[derive(Debug)]
pub(super) struct PendingPermit {
    shared: Arc<LimiterShared>,
    ticket: Ticket,
    outcome: oneshot::Receiver<QueueOutcome>,
    is_over: bool,
}

impl PendingPermit {
    pub(super) fn new(
        shared: Arc<LimiterShared>,
        ticket: Ticket,
        outcome: oneshot::Receiver<QueueOutcome>,
    ) -> Self {
        Self { shared, ticket, outcome, is_over: false }
    }

    /// Waits for the tokens, at most until the soft deadline.
    pub(super) async fn wait(&mut self, soft: Instant) -> QueueOutcome {
        let received = timeout_at(soft, &mut self.outcome).await;
        let outcome = if let Ok(outcome) = received {
            outcome.expect("a sender is kept until it has sent")
        } else {
            let ticket = self.ticket;
            match self.shared.change(|state, now| state.expire(now, ticket)) {
                Some(hold) => Err(hold),
                None => self.outcome.try_recv().expect("a request that left the queue has its outcome"),
            }
        };
        self.is_over = true;
        outcome
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        let Self { shared, ticket, outcome, is_over } = self;
        shared.metrics.waiting(&shared.provider, ticket.urgency, -1);
        let mut inner = shared.lock();
        inner.waiting.remove(ticket);
        if *is_over {
            return;
        }
        let now = Instant::now().into_std();
        match outcome.try_recv() {
            Ok(Ok(tokens)) => inner.state.put_back(now, &tokens),
            Ok(Err(_)) => {}
            Err(_) => inner.state.cancel(now, *ticket),
        }
        shared.deliver(&mut inner);
    }
}
