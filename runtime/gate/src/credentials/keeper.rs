//! Keeps one credential: a task acquires and renews it, requests take what there is or wait for the attempt that is under
//! way. However many wait or were refused together, there is one attempt. When, and whether at all, is decided in
//! `decide`; here are the clock, the task and what is told.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::credentials::acquire::{Acquired, Acquirer, Failure};
use crate::credentials::decide::{Condition, State, Verdict};
use crate::credentials::metrics::{CredentialLabels, CredentialMetrics};
use crate::credentials::value::Value;
use crate::credentials::{CredentialState, Failing, Replaced};
use crate::error::Error;

/// A credential that is kept as long as this lives.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    kind: &'static str,
    labels: CredentialLabels,
    acquirer: Acquirer,
    metrics: CredentialMetrics,
    replaced: Replaced,
    status: watch::Sender<Status>,
    /// Tells the task that there is something to do earlier than it knew.
    earlier: Notify,
}

struct Status {
    state: State,
    value: Option<Value>,
    /// Why the last attempt failed, if it did.
    cause: Option<String>,
}

/// A value and its number.
pub(crate) type Numbered = (u64, Value);

impl Keeper {
    /// Begins to acquire at once. Needs a tokio runtime.
    pub(crate) fn new(
        kind: &'static str,
        labels: CredentialLabels,
        acquirer: Acquirer,
        metrics: CredentialMetrics,
        replaced: Replaced,
    ) -> Self {
        let state = State::new(Instant::now().into_std());
        let status = watch::Sender::new(Status { state, value: None, cause: None });
        let shared = Shared { kind, labels, acquirer, metrics, replaced, status, earlier: Notify::new() };
        let shared = Arc::new(shared);
        let task = tokio::spawn(shared.clone().keep()).abort_handle();
        Self { shared, task }
    }

    /// What is valid now, or what is acquired until then.
    ///
    /// Errors: [`Error::Credential`] when it can't be had by then, as soon as that is known.
    pub(crate) async fn value(&self, soft: Instant) -> Result<Numbered, Error> {
        let mut status = self.shared.status.subscribe();
        loop {
            if let Some(found) = status.borrow_and_update().valid(Instant::now()) {
                return Ok(found);
            }
            let next = Instant::from_std(status.borrow().state.due());
            // A sender lives in `shared`.
            if next > soft || timeout_at(soft, status.changed()).await.is_err() {
                let cause = status.borrow().cause.clone();
                let cause = cause.unwrap_or_else(|| "it isn't acquired yet".to_owned());
                return Err(Error::Credential {
                    credential: self.shared.labels.credential.to_string(),
                    cause,
                });
            }
        }
    }

    /// A successor of the value with this number, which the cloud refused, if there is one until then.
    pub(crate) async fn newer(&self, number: u64, soft: Instant) -> Option<Numbered> {
        let mut verdict = Verdict::Keep;
        self.shared.status.send_if_modified(|status| {
            verdict = status.state.refused(Instant::now().into_std(), number);
            false
        });
        let attempts = match verdict {
            Verdict::Keep => return None,
            Verdict::Newer => 0,
            Verdict::Await(attempts) => attempts,
        };
        self.shared.earlier.notify_one();
        let mut status = self.shared.status.subscribe();
        let ended = status.wait_for(|status| status.state.attempts() >= attempts);
        let status = timeout_at(soft, ended).await.ok()?.ok()?;
        status.valid(Instant::now()).filter(|(found, _)| *found > number)
    }

    pub(crate) fn state(&self) -> CredentialState {
        let Shared { kind, labels, status, .. } = &*self.shared;
        let status = status.borrow();
        let (now, clock) = (Instant::now(), SystemTime::now());
        let failing = status.state.failing_since().zip(status.cause.clone());
        CredentialState {
            name: labels.credential.to_string(),
            kind,
            is_ready: status.state.valid(now.into_std()).is_some(),
            until: status.state.expires().map(|expires| on_the_clock(expires, now, clock)),
            failing: failing.map(|(since, cause)| Failing { since: on_the_clock(since, now, clock), cause }),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Status {
    fn valid(&self, now: Instant) -> Option<Numbered> {
        self.state.valid(now.into_std()).zip(self.value.clone())
    }
}

impl Shared {
    async fn keep(self: Arc<Self>) {
        let mut told = Condition::New;
        loop {
            let due = Instant::from_std(self.status.borrow().state.due());
            if Instant::now() < due {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.earlier.notified() => {}
                }
                continue;
            }
            let asked = Instant::now();
            let outcome = self.acquirer.acquire().await;
            self.note(asked, outcome);
            told = self.tell(told);
        }
    }

    fn note(&self, asked: Instant, outcome: Result<Acquired, Failure>) {
        let chance = chance();
        let result = match outcome {
            Ok(Acquired { value, lifetime }) => {
                let (mut is_new, mut is_first) = (false, false);
                self.status.send_modify(|status| {
                    is_first = status.value.is_none();
                    is_new = status.value.as_ref().is_none_or(|last| *last != value);
                    status.state.acquired(asked.into_std(), lifetime, is_new, chance);
                    (status.value, status.cause) = (Some(value), None);
                });
                if is_new && !is_first && lifetime.is_none() {
                    (self.replaced)();
                }
                if let Some(lifetime) = lifetime {
                    let age = asked.elapsed();
                    self.metrics.expires(&self.labels, SystemTime::now() + lifetime - age);
                }
                (is_new || lifetime.is_some()).then_some("ok")
            }
            Err(Failure { result, cause, retry_after }) => {
                self.status.send_modify(|status| {
                    status.state.failed(Instant::now().into_std(), retry_after, chance);
                    status.cause = Some(cause);
                });
                Some(result)
            }
        };
        if let Some(result) = result {
            self.metrics.attempted(&self.labels, result);
        }
    }

    /// Tells an operator what has changed since he was last told.
    fn tell(&self, told: Condition) -> Condition {
        let status = self.status.borrow();
        let condition = status.state.condition(Instant::now().into_std());
        let CredentialLabels { provider, credential } = &self.labels;
        let cause = status.cause.as_deref().unwrap_or_default();
        match condition {
            _ if condition == told => {}
            Condition::New => {}
            Condition::Ready => tracing::info!(%provider, %credential, "credential acquired"),
            Condition::Failing => tracing::warn!(
                %provider, %credential, cause, "credential not acquired anew; the last one goes on while it is valid"
            ),
            Condition::Missing => tracing::error!(
                %provider, %credential, cause, "credential not acquired; requests that need it fail"
            ),
        }
        condition
    }
}

fn on_the_clock(time: std::time::Instant, now: Instant, clock: SystemTime) -> SystemTime {
    let now = now.into_std();
    clock + time.saturating_duration_since(now) - now.saturating_duration_since(time)
}

/// A number in 0 to 1.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}
