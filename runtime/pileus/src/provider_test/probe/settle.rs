//! Repeats changes in the real cloud until they have ended, as the host's controllers do. Some clouds take minutes.

use std::time::Duration;

use pileus_cloud::{Error, Retry, RouteChange, ServiceChange};
use pileus_host::Fault;
use tokio::time::{Instant, sleep};

use super::super::changes::{CallFailure, CallRecord, ChangeOutcome};
use super::super::cloud::{Cloud, CloudMode};

/// How long a change may take. Clouds that build load balancers from virtual machines need some minutes.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The longest wait before the next call, regardless of what the provider asks for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The shortest wait before the next call.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// How often a failed change that may be retried is sent.
const MAX_TRIES: usize = 5;

/// A change with the provider's resume note.
pub(super) trait Resume: Clone {
    /// Sets the note.
    fn set_resume(&mut self, note: Option<String>);
}

impl Resume for ServiceChange {
    fn set_resume(&mut self, note: Option<String>) {
        self.resume = note;
    }
}

impl Resume for RouteChange {
    fn set_resume(&mut self, note: Option<String>) {
        self.resume = note;
    }
}

/// The result of a call of the guest.
pub(super) type Outcomes<P> = Result<Result<Vec<Result<P, Error>>, Error>, Fault>;

/// Makes one call in this mode, and records the result.
pub(super) async fn once<P>(
    cloud: &Cloud,
    mode: CloudMode,
    sent: String,
    call: impl Future<Output = Outcomes<P>>,
) -> CallRecord
where
    ChangeOutcome: From<Result<P, Error>>,
{
    cloud.begin(mode, &[]);
    let outcomes = match call.await {
        Ok(Ok(outcomes)) => Ok(outcomes.into_iter().map(ChangeOutcome::from).collect::<Vec<_>>()),
        Ok(Err(error)) => Err(CallFailure::Error(error)),
        Err(fault) => Err(CallFailure::Fault(fault)),
    };
    CallRecord { sent, first: outcomes.clone().unwrap_or_default(), outcomes, requests: cloud.seen() }
}

/// Repeats changes until each has ended. Every second change loses its note on the way, which may cost reads but
/// nothing else.
pub(super) async fn settle<C: Resume, P>(
    cloud: &Cloud,
    sent: String,
    changes: Vec<C>,
    call: impl AsyncFn(&[C]) -> Outcomes<P>,
) -> CallRecord
where
    ChangeOutcome: From<Result<P, Error>>,
{
    let until = Instant::now() + TIMEOUT;
    let mut items: Vec<Item<C>> = changes.into_iter().map(Item::new).collect();
    let (mut requests, mut first) = (Vec::new(), None);
    loop {
        let due: Vec<C> = items.iter().filter(|item| item.is_due()).map(|item| item.change.clone()).collect();
        let CallRecord { outcomes, requests: more, .. } =
            once(cloud, CloudMode::Changing, String::new(), call(&due)).await;
        requests.extend(more);
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(failure) => {
                return CallRecord {
                    sent,
                    outcomes: Err(failure),
                    first: first.unwrap_or_default(),
                    requests,
                };
            }
        };
        first.get_or_insert_with(|| outcomes.clone());
        for (place, (item, outcome)) in
            items.iter_mut().filter(|item| item.is_due()).zip(outcomes).enumerate()
        {
            item.record(outcome, place % 2 == 1);
        }
        let wait = items.iter().filter(|item| item.is_due()).map(Item::wait).max();
        match wait.map(|wait| wait.clamp(MIN_WAIT, MAX_WAIT)) {
            Some(wait) if Instant::now() + wait < until => sleep(wait).await,
            _ => break,
        }
    }
    let outcomes = items.into_iter().filter_map(|item| item.outcome).collect();
    CallRecord { sent, outcomes: Ok(outcomes), first: first.unwrap_or_default(), requests }
}

/// A change that is being repeated.
struct Item<C> {
    change: C,
    outcome: Option<ChangeOutcome>,
    failures: usize,
}

impl<C: Resume> Item<C> {
    const fn new(change: C) -> Self {
        Self { change, outcome: None, failures: 0 }
    }

    fn record(&mut self, outcome: ChangeOutcome, forgets: bool) {
        match &outcome {
            ChangeOutcome::InProgress { resume, .. } => {
                self.change.set_resume(resume.clone().filter(|_| !forgets));
            }
            ChangeOutcome::Failed(_) => self.failures += 1,
            ChangeOutcome::Done(_) | ChangeOutcome::Elsewhere => {}
        }
        self.outcome = Some(outcome);
    }

    fn is_due(&self) -> bool {
        match &self.outcome {
            None | Some(ChangeOutcome::InProgress { .. }) => true,
            Some(ChangeOutcome::Failed(error)) => {
                self.failures < MAX_TRIES && error.kind.retry() != Retry::Slowly
            }
            Some(ChangeOutcome::Done(_) | ChangeOutcome::Elsewhere) => false,
        }
    }

    fn wait(&self) -> Duration {
        match &self.outcome {
            Some(ChangeOutcome::InProgress { after, .. }) => *after,
            Some(ChangeOutcome::Failed(error)) => match error.kind.retry() {
                Retry::After(after) => after,
                Retry::Soon | Retry::WithBackoff | Retry::Uncertain | Retry::Slowly => MIN_WAIT,
            },
            _ => Duration::ZERO,
        }
    }
}
