//! Repeats changes in the real cloud until they have ended, and lists until they succeed, as the host's controllers do. Some
//! clouds take minutes, and a busy cloud or machine makes a call fail that succeeds a moment later.

use std::time::Duration;

use pileus_cloud::{Error, Retry, RouteChange, Service, ServiceAction, ServiceChange};
use pileus_host::Fault;
use tokio::time::{Instant, sleep};

use super::super::changes::{CallFailure, CallRecord, ChangeOutcome, Listing, ServiceReport};
use super::super::cloud::{Cloud, CloudMode};
use super::super::facts::SeenRequest;

/// How long a change may take. Clouds that build load balancers from virtual machines need some minutes.
const TIMEOUT: Duration = Duration::from_mins(10);

/// The longest wait before the next call, regardless of what the provider asks for.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The shortest wait before the next call.
pub(super) const MIN_WAIT: Duration = Duration::from_secs(1);

/// How often a failed call or change that may be retried is sent.
const MAX_TRIES: usize = 5;

/// A change that is sent again while it is in progress.
pub(super) trait Resume: Clone {
    /// Sets the provider's note, and what the host would have written to the object since.
    fn resume(&mut self, note: Option<String>, report: &ServiceReport);
}

impl Resume for ServiceChange {
    fn resume(&mut self, note: Option<String>, report: &ServiceReport) {
        self.resume = note;
        if let ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) = &mut self.action {
            write_report(service, report);
        }
    }
}

impl Resume for RouteChange {
    fn resume(&mut self, note: Option<String>, _: &ServiceReport) {
        self.resume = note;
    }
}

/// Writes what a provider reports to its Service, as the host does. A provider may find what it made by an annotation.
pub(super) fn write_report(service: &mut Service, report: &ServiceReport) {
    let ServiceReport { status, notices: _, annotations } = report;
    if let Some(status) = status {
        service.status.clone_from(status);
    }
    for (key, value) in annotations {
        service.annotations.retain(|(other, _)| other != key);
        service.annotations.extend(value.iter().map(|value| (key.clone(), value.clone())));
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
    let history = outcomes.iter().flatten().map(|outcome: &ChangeOutcome| vec![outcome.clone()]).collect();
    CallRecord { sent, outcomes, history, requests: cloud.seen() }
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
    let (mut requests, mut failures) = (Vec::new(), 0);
    loop {
        let due: Vec<C> = items.iter().filter(|item| item.is_due()).map(|item| item.change.clone()).collect();
        let CallRecord { outcomes, requests: more, .. } =
            once(cloud, CloudMode::Changing, String::new(), call(&due)).await;
        requests.extend(more);
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(failure) => {
                failures += 1;
                let Some(wait) = repeat_after(&failure).filter(|_| failures < MAX_TRIES) else {
                    let history = items.into_iter().map(|item| item.history).collect();
                    return CallRecord { sent, outcomes: Err(failure), history, requests };
                };
                sleep(wait).await;
                continue;
            }
        };
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
    let outcomes = items.iter().filter_map(|item| item.history.last().cloned()).collect();
    let history = items.into_iter().map(|item| item.history).collect();
    CallRecord { sent, outcomes: Ok(outcomes), history, requests }
}

/// Lists in this mode, and in the real cloud again after a failure that may pass.
pub(super) async fn list<T>(
    cloud: &Cloud,
    mode: CloudMode,
    call: impl AsyncFn() -> Result<Result<Vec<T>, Error>, Fault>,
) -> Listing<T> {
    let read = async || {
        cloud.begin(mode, &[]);
        let items = match call().await {
            Ok(listed) => listed.map_err(CallFailure::Error),
            Err(fault) => Err(CallFailure::Fault(fault)),
        };
        (items, cloud.seen())
    };
    let wait = |items: &Result<_, _>| {
        items.as_ref().err().filter(|_| mode == CloudMode::Real).and_then(repeat_after)
    };
    let (items, requests) = read_until_final(read, wait).await;
    Listing { items, requests }
}

/// Repeats a read until its outcome is final or it was sent [`MAX_TRIES`] times. Returns the last outcome, and the requests of
/// all calls.
pub(super) async fn read_until_final<T>(
    read: impl AsyncFn() -> (T, Vec<SeenRequest>),
    repeat_after: impl Fn(&T) -> Option<Duration>,
) -> (T, Vec<SeenRequest>) {
    let (mut outcome, mut requests) = read().await;
    for _ in 1..MAX_TRIES {
        let Some(wait) = repeat_after(&outcome) else { break };
        sleep(wait.clamp(MIN_WAIT, MAX_WAIT)).await;
        let (again, more) = read().await;
        requests.extend(more);
        outcome = again;
    }
    (outcome, requests)
}

/// When to repeat a call; none if that would not help.
fn repeat_after(failure: &CallFailure) -> Option<Duration> {
    let wait = match failure {
        CallFailure::Error(error) => retry_after(error)?,
        CallFailure::Fault(Fault::Deadline { .. }) => MIN_WAIT,
        CallFailure::Fault(_) => return None,
    };
    Some(wait.clamp(MIN_WAIT, MAX_WAIT))
}

/// When to retry after an error; none if that would not help.
pub(super) const fn retry_after(error: &Error) -> Option<Duration> {
    match error.kind.retry() {
        Retry::After(after) => Some(after),
        Retry::Soon | Retry::WithBackoff | Retry::Uncertain => Some(MIN_WAIT),
        Retry::Slowly => None,
    }
}

/// A change that is being repeated.
struct Item<C> {
    change: C,
    history: Vec<ChangeOutcome>,
    failures: usize,
}

impl<C: Resume> Item<C> {
    const fn new(change: C) -> Self {
        Self { change, history: Vec::new(), failures: 0 }
    }

    fn record(&mut self, outcome: ChangeOutcome, forgets: bool) {
        match &outcome {
            ChangeOutcome::InProgress { resume, report, .. } => {
                self.change.resume(resume.clone().filter(|_| !forgets), report);
            }
            ChangeOutcome::Failed(_) => self.failures += 1,
            ChangeOutcome::Done(_) | ChangeOutcome::Elsewhere => {}
        }
        self.history.push(outcome);
    }

    fn is_due(&self) -> bool {
        match self.history.last() {
            None | Some(ChangeOutcome::InProgress { .. }) => true,
            Some(ChangeOutcome::Failed(error)) => self.failures < MAX_TRIES && retry_after(error).is_some(),
            Some(ChangeOutcome::Done(_) | ChangeOutcome::Elsewhere) => false,
        }
    }

    fn wait(&self) -> Duration {
        match self.history.last() {
            Some(ChangeOutcome::InProgress { after, .. }) => *after,
            Some(ChangeOutcome::Failed(error)) => retry_after(error).unwrap_or(MIN_WAIT),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use pileus_cloud::{ErrorKind, Ingress, IngressPoint, RouteProgress, ServiceProgress};

    use super::*;

    fn failing(kind: ErrorKind) -> Error {
        Error::new(kind, "why")
    }

    fn deadline() -> Fault {
        Fault::Deadline { limit: MIN_WAIT, unanswered: None }
    }

    /// The call fails so often, and then succeeds.
    #[tokio::test(start_paused = true)]
    async fn a_list_of_the_real_cloud_is_repeated_while_that_may_help() {
        type Fails = fn() -> Result<Result<Vec<u8>, Error>, Fault>;
        let rows: [(CloudMode, Fails, usize, bool); 7] = [
            (CloudMode::Real, || Ok(Err(failing(ErrorKind::Unavailable(None)))), 1, true),
            (CloudMode::Real, || Ok(Err(failing(ErrorKind::Throttled(Some(MAX_WAIT))))), 1, true),
            (CloudMode::Real, || Err(deadline()), MAX_TRIES - 1, true),
            (CloudMode::Real, || Err(deadline()), MAX_TRIES, false),
            (CloudMode::Real, || Ok(Err(failing(ErrorKind::Broken))), 1, false),
            (CloudMode::Real, || Err(Fault::StackOverflow), 1, false),
            (CloudMode::Down, || Ok(Err(failing(ErrorKind::Unavailable(None)))), 1, false),
        ];
        for (mode, fails, times, succeeds) in rows {
            let (cloud, calls) = (Cloud::new(), Cell::new(0));
            let listing = list(&cloud, mode, async || {
                calls.set(calls.get() + 1);
                if calls.get() > times { Ok(Ok(vec![7])) } else { fails() }
            });
            let items = listing.await.items;
            let row = format!("{mode:?} {:?} {times}", fails());
            assert_eq!((items.is_ok(), calls.get()), (succeeds, times + usize::from(succeeds)), "{row}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_sent_again_after_a_call_without_outcomes_that_may_pass() {
        let rows = [(deadline(), 2, true), (deadline(), MAX_TRIES, false), (Fault::StackOverflow, 1, false)];
        for (fault, times, succeeds) in rows {
            let (cloud, calls) = (Cloud::new(), Cell::new(0));
            let record = settle(&cloud, String::new(), Vec::<RouteChange>::new(), async |_| {
                calls.set(calls.get() + 1);
                let done: Vec<Result<RouteProgress, Error>> = Vec::new();
                if calls.get() > times { Ok(Ok(done)) } else { Err(fault.clone()) }
            });
            let is_settled = record.await.outcomes.is_ok();
            assert_eq!((is_settled, calls.get()), (succeeds, times + usize::from(succeeds)), "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_is_sent_again_with_what_the_provider_reported() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let ingress = || {
            vec![Ingress { point: IngressPoint::Ip("192.0.2.1".to_owned()), ip_mode: None, ports: vec![] }]
        };
        let service = Service {
            annotations: vec![pair("a", "1"), pair("b", "2"), pair("c", "3")],
            ..Service::named("default", "web", "u")
        };
        let (cloud, sent) = (Cloud::new(), RefCell::new(Vec::new()));
        let change = ServiceChange { action: ServiceAction::Ensure(service.clone()), resume: None };
        let record = settle(&cloud, String::new(), vec![change], async |due: &[ServiceChange]| {
            sent.borrow_mut().extend(due.to_vec());
            let progress = ServiceProgress::InProgress {
                after: MIN_WAIT,
                resume: Some("note".to_owned()),
                status: Some(ingress()),
                notices: Vec::new(),
                annotations: vec![("a".to_owned(), None), ("b".to_owned(), Some("7".to_owned()))],
            };
            let is_first = sent.borrow().len() == 1;
            Ok(Ok(vec![Ok(if is_first { progress } else { ServiceProgress::done(ingress()) })]))
        });
        assert_eq!(record.await.history[0].len(), 2);
        let written = Service {
            status: ingress(),
            annotations: vec![pair("c", "3"), pair("b", "7")],
            ..service.clone()
        };
        let expected = [(service, None), (written, Some("note".to_owned()))]
            .map(|(service, resume)| ServiceChange { action: ServiceAction::Ensure(service), resume });
        assert_eq!(sent.into_inner(), expected);
    }
}
