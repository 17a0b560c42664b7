//! A call about many things that failed for the provider's fault, made again in parts, until the one that it fails at
//! stands alone with an error of its own and its neighbours have their outcomes.

use std::time::Duration;

use futures::future::BoxFuture;
use pileus_cloud::{Error, ErrorKind};
use tokio::time::Instant;

use super::Guest;
use crate::fault::Fault;
use crate::halves::Halves;

/// Parts of a failed call are begun within so many times what a call may take: 60 s for lookups by default. A provider that
/// hangs at one Node among 5,000 takes 10 s, 5 s, and 11 times 2.5 s of that at worst, which leaves a quarter for the
/// neighbours' answers. Longer should nobody wait who isn't the culprit: the next call goes out when this one has ended.
const REPEATING: u32 = 3;

/// One outcome for each thing, or an error because none could be considered.
pub(super) type Outcomes<T> = Result<Vec<Result<T, Error>>, Error>;

/// The things of a failed call.
pub(super) struct Whole<'a, I> {
    /// The function that was called.
    pub(super) function: &'static str,
    /// What it was about.
    pub(super) items: &'a [I],
    /// How one of them is called in messages.
    pub(super) name: fn(&I) -> String,
    /// How long a call may take.
    pub(super) hard: Duration,
}

impl Guest {
    /// Finds the things that the provider fails at, and brings the outcomes of all others. `ask` makes a call about some
    /// of them, in so many times less time than a call has.
    pub(super) async fn in_parts<'a, I: Sync, T: Send>(
        &'a self,
        whole: Whole<'a, I>,
        fault: Fault,
        ask: impl Fn(&'a [I], u32) -> BoxFuture<'a, Result<Outcomes<T>, Fault>> + Send + Sync,
    ) -> Vec<Result<T, Error>> {
        let Whole { function, items, name, hard } = whole;
        let until = Instant::now() + hard * REPEATING;
        let mut halves = Halves::of(items.len(), fault);
        let mut settled = Vec::new();
        let mut throttled = None;
        while Instant::now() < until
            && throttled.is_none()
            && let Some(part) = halves.next()
        {
            self.metrics.repeated(&self.name, function);
            let (start, asked) = (part.items.start, items.get(part.items.clone()).unwrap_or_default());
            let outcomes = match ask(asked, part.haste).await {
                Ok(Ok(outcomes)) => {
                    halves.answered(&part);
                    outcomes
                }
                // It got through, but without an outcome that tells where the culprit is not.
                Ok(Err(error)) => failures(asked, &error),
                Err(fault) if !fault.is_providers() => failures(asked, &self.failed(function, &fault)),
                Err(fault) => {
                    let culprit = if let [item] = asked {
                        vec![Err(self.culprit(function, &name(item), &fault))]
                    } else {
                        Vec::new()
                    };
                    halves.failed(part, fault);
                    culprit
                }
            };
            throttled = outcomes.iter().find_map(throttling);
            settled.push((start, outcomes));
        }
        for part in halves.rest() {
            let count = part.items.len();
            let error = throttled
                .clone()
                .unwrap_or_else(|| self.failed(&format!("{function} of {count} things"), &part.because));
            tracing::warn!(function, count, %error, "the rest is not tried in smaller parts now");
            settled.push((
                part.items.start,
                std::iter::repeat_with(|| Err(error.clone())).take(count).collect(),
            ));
        }
        settled.sort_by_key(|(start, _)| *start);
        settled.into_iter().flat_map(|(_, outcomes)| outcomes).collect()
    }

    fn culprit(&self, function: &'static str, name: &str, fault: &Fault) -> Error {
        self.metrics.found_culprit(&self.name, function);
        let error = self.failed(&format!("{function} of {name}"), fault);
        tracing::warn!(function, culprit = name, %error, "the provider fails at this one; its neighbours were served without it");
        error
    }

    /// What a fault means to whoever wanted an outcome.
    pub(super) fn failed(&self, what: &str, fault: &Fault) -> Error {
        let kind = if fault.is_providers() { ErrorKind::Broken } else { ErrorKind::Unavailable };
        Error::new(kind, format!("provider {}: {what} {fault}", self.name))
    }
}

/// The same error for each.
fn failures<I, T>(items: &[I], error: &Error) -> Vec<Result<T, Error>> {
    items.iter().map(|_| Err(error.clone())).collect()
}

/// What says that the cloud has had enough: more repeats would be more of what it had enough of.
fn throttling<T>(outcome: &Result<T, Error>) -> Option<Error> {
    outcome.as_ref().err().filter(|error| matches!(error.kind, ErrorKind::Throttled(_))).cloned()
}
