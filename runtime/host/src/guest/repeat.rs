//! Repeats a failed batch in parts, until the item that the provider fails at stands alone with an error of its own and all
//! other items have outcomes.

use std::time::Duration;

use futures::future::BoxFuture;
use pileus_cloud::{Error, ErrorKind};
use tokio::time::Instant;

use super::Guest;
use crate::bisect::Bisection;
use crate::fault::Fault;

/// Parts of a failed call are started within this many times its hard deadline: 60 s for lookups by default. A provider
/// that hangs at one Node among 5,000 takes 10 s, 5 s, and 11 times 2.5 s of that at worst, which leaves a quarter for the
/// answers about other Nodes. It must not be longer, because the next call waits until this one has ended.
const MAX_REPEAT_TIME: u32 = 3;

/// How many hard deadlines a call may take at most: the wait for its turn and the call itself, the time in which parts are
/// started, and the wait and the call of the last part; one more is slack.
pub(super) const LONGEST_CALL: u32 = 2 + MAX_REPEAT_TIME + 2 + 1;

/// One outcome for each item, or an error because none could be considered.
pub(super) type Outcomes<T> = Result<Vec<Result<T, Error>>, Error>;

/// A batch whose call failed.
pub(super) struct FailedBatch<'a, I> {
    /// The function that was called.
    pub(super) function: &'static str,
    /// Its items.
    pub(super) items: &'a [I],
    /// Names an item in messages.
    pub(super) name: fn(&I) -> String,
    /// The hard deadline of a call.
    pub(super) hard: Duration,
}

impl Guest {
    /// Repeats a batch that failed with this fault in parts. Returns one outcome for each item. `call` makes a call about
    /// some of the items, with the deadlines of a call divided by its second argument.
    pub(super) async fn repeat_in_parts<'a, I: Sync, T: Send>(
        &'a self,
        batch: FailedBatch<'a, I>,
        fault: Fault,
        call: impl Fn(&'a [I], u32) -> BoxFuture<'a, Result<Outcomes<T>, Fault>> + Send + Sync,
    ) -> Vec<Result<T, Error>> {
        let FailedBatch { function, items, name, hard } = batch;
        let until = Instant::now() + hard * MAX_REPEAT_TIME;
        let mut bisection = Bisection::new(items.len(), fault);
        let mut finished = Vec::new();
        let mut throttled = None;
        while Instant::now() < until
            && throttled.is_none()
            && let Some(part) = bisection.next_part()
        {
            self.metrics.count_repeat(&self.name, function);
            let (start, part_items) = (part.items.start, items.get(part.items.clone()).unwrap_or_default());
            let outcomes = match call(part_items, part.deadline_divisor).await {
                Ok(Ok(outcomes)) => {
                    bisection.on_success(&part);
                    outcomes
                }
                // The call succeeded, but doesn't tell whether the failing item is in the part.
                Ok(Err(error)) => same_for_each(part_items, &error),
                Err(fault) if !fault.is_caused_by_provider() => {
                    same_for_each(part_items, &self.error(function, &fault))
                }
                Err(fault) => {
                    let outcomes = if let [item] = part_items {
                        vec![Err(self.failing_item(function, &name(item), &fault))]
                    } else {
                        Vec::new()
                    };
                    bisection.on_fault(part, fault);
                    outcomes
                }
            };
            throttled = outcomes.iter().find_map(throttling_error);
            finished.push((start, outcomes));
        }
        for part in bisection.into_pending() {
            let count = part.items.len();
            let error = throttled
                .clone()
                .unwrap_or_else(|| self.error(&format!("{function} of {count} items"), &part.cause));
            tracing::warn!(function, count, %error, "items of a failed batch not repeated now");
            let outcomes = std::iter::repeat_with(|| Err(error.clone())).take(count).collect();
            finished.push((part.items.start, outcomes));
        }
        finished.sort_by_key(|(start, _)| *start);
        finished.into_iter().flat_map(|(_, outcomes)| outcomes).collect()
    }

    /// The error of an item that the provider fails at alone.
    fn failing_item(&self, function: &'static str, name: &str, fault: &Fault) -> Error {
        self.metrics.count_culprit(&self.name, function);
        let error = self.error(&format!("{function} of {name}"), fault);
        tracing::warn!(function, item = name, %error, "provider fails at one item; the others of its batch are served");
        error
    }

    /// The error that a fault is for the caller. `what` was called.
    pub(super) fn error(&self, what: &str, fault: &Fault) -> Error {
        let kind =
            if fault.is_caused_by_provider() { ErrorKind::Broken } else { ErrorKind::Unavailable(None) };
        Error::new(kind, format!("provider {}: {what} {fault}", self.name))
    }
}

/// The same error for each item.
fn same_for_each<I, T>(items: &[I], error: &Error) -> Vec<Result<T, Error>> {
    items.iter().map(|_| Err(error.clone())).collect()
}

/// The error of an outcome that is throttled. It ends the search, because more repeats would only add to the load that the
/// cloud refuses.
fn throttling_error<T>(outcome: &Result<T, Error>) -> Option<Error> {
    outcome.as_ref().err().filter(|error| matches!(error.kind, ErrorKind::Throttled(_))).cloned()
}
