//! Keeps one credential valid: a task acquires and renews it, requests use the present value or wait for the attempt in
//! progress. However many wait or were refused together, there is one attempt. `decide` decides when there is one, and
//! whether; this module has the clock, the task and the log.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::credentials::acquire::{AcquireError, Acquired, Acquirer};
use crate::credentials::decide::{Condition, RenewalDecision, RenewalState};
use crate::credentials::metrics::{CredentialLabels, CredentialMetrics};
use crate::credentials::value::CredentialValue;
use crate::credentials::{CredentialState, Failing, OnReplaced};
use crate::echo::Needles;
use crate::error::Error;

/// Renews a credential until it is dropped.
pub(crate) struct Renewer {
    shared: Arc<RenewerShared>,
    task: AbortHandle,
}

struct RenewerShared {
    kind: &'static str,
    labels: CredentialLabels,
    acquirer: Acquirer,
    metrics: CredentialMetrics,
    replaced: OnReplaced,
    status: watch::Sender<RenewalStatus>,
    /// Wakes the task before the time until which it sleeps.
    wake: Notify,
}

struct RenewalStatus {
    state: RenewalState,
    value: Option<AttachedValue>,
    /// The cause, if the last attempt failed.
    cause: Option<String>,
}

/// A value that is attached to requests, and the search for it in their responses.
#[derive(Clone)]
pub(crate) struct AttachedValue {
    pub(crate) value: CredentialValue,
    pub(crate) needles: Needles,
}

/// A value and its number.
pub(crate) type NumberedValue = (u64, AttachedValue);

/// The secrets of how many values a response is searched for: the present one and those before it, which a cloud may accept
/// for some time and show.
const SEARCHED_VALUES: usize = 3;

impl Renewer {
    /// Starts to acquire at once. Needs a tokio runtime.
    pub(crate) fn new(
        kind: &'static str,
        labels: CredentialLabels,
        acquirer: Acquirer,
        metrics: CredentialMetrics,
        replaced: OnReplaced,
    ) -> Self {
        let state = RenewalState::new(Instant::now().into_std());
        let status = watch::Sender::new(RenewalStatus { state, value: None, cause: None });
        let shared = RenewerShared { kind, labels, acquirer, metrics, replaced, status, wake: Notify::new() };
        let shared = Arc::new(shared);
        let task = tokio::spawn(Arc::clone(&shared).run()).abort_handle();
        Self { shared, task }
    }

    /// The value that is valid now, or one that is acquired before the soft deadline.
    ///
    /// # Errors
    /// [`Error::Credential`] as soon as it is known that none will be available by then.
    pub(crate) async fn value(&self, soft: Instant) -> Result<NumberedValue, Error> {
        let mut status = self.shared.status.subscribe();
        loop {
            if let Some(found) = status.borrow_and_update().valid(Instant::now()) {
                return Ok(found);
            }
            let next = Instant::from_std(status.borrow().state.due());
            // The sender lives in `shared`.
            if next > soft || timeout_at(soft, status.changed()).await.is_err() {
                let cause = status.borrow().cause.clone();
                let cause = cause.unwrap_or_else(|| "it has not been acquired yet".to_owned());
                return Err(Error::Credential {
                    credential: self.shared.labels.credential.to_string(),
                    cause,
                });
            }
        }
    }

    /// A newer value than the one with this number, which the cloud refused, if one is available before the soft
    /// deadline.
    pub(crate) async fn newer(&self, number: u64, soft: Instant) -> Option<NumberedValue> {
        let mut decision = RenewalDecision::Keep;
        self.shared.status.send_if_modified(|status| {
            decision = status.state.on_refused(Instant::now().into_std(), number);
            false
        });
        let attempts = match decision {
            RenewalDecision::Keep => return None,
            RenewalDecision::UseNewer => 0,
            RenewalDecision::Await(attempts) => attempts,
        };
        self.shared.wake.notify_one();
        let mut status = self.shared.status.subscribe();
        let ended = status.wait_for(|status| status.state.attempts() >= attempts);
        let status = timeout_at(soft, ended).await.ok()?.ok()?;
        status.valid(Instant::now()).filter(|(found, _)| *found > number)
    }

    /// The credential's name in the document.
    pub(crate) fn name(&self) -> String {
        self.shared.labels.credential.to_string()
    }

    pub(crate) fn state(&self) -> CredentialState {
        let RenewerShared { kind, labels, status, .. } = &*self.shared;
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

impl Drop for Renewer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RenewalStatus {
    fn valid(&self, now: Instant) -> Option<NumberedValue> {
        self.state.valid(now.into_std()).zip(self.value.clone())
    }
}

impl RenewerShared {
    async fn run(self: Arc<Self>) {
        let mut logged = Condition::New;
        let mut searched = VecDeque::new();
        loop {
            let due = Instant::from_std(self.status.borrow().state.due());
            if Instant::now() < due {
                tokio::select! {
                    () = sleep_until(due) => {}
                    () = self.wake.notified() => {}
                }
                continue;
            }
            let asked = Instant::now();
            let outcome = self.acquirer.acquire().await;
            self.record(asked, outcome, &mut searched);
            logged = self.log_change(logged);
        }
    }

    /// Records the outcome of an attempt. `searched` has the secrets of the last values, the newest first.
    fn record(
        &self,
        asked: Instant,
        outcome: Result<Acquired, AcquireError>,
        searched: &mut VecDeque<Vec<SecretString>>,
    ) {
        let chance = chance();
        let result = match outcome {
            Ok(Acquired { value, secrets, lifetime }) => {
                let last = self.status.borrow().value.clone();
                let is_first = last.is_none();
                let same = last.filter(|last| last.value == value);
                let is_new = same.is_none();
                let attached = same.unwrap_or_else(|| {
                    searched.push_front(secrets);
                    searched.truncate(SEARCHED_VALUES);
                    let secrets = searched.iter().flatten().map(ExposeSecret::expose_secret);
                    AttachedValue { value, needles: Needles::new(secrets) }
                });
                self.status.send_modify(|status| {
                    status.state.on_acquired(asked.into_std(), lifetime, is_new, chance);
                    (status.value, status.cause) = (Some(attached), None);
                });
                if is_new && !is_first && lifetime.is_none() {
                    (self.replaced)();
                }
                if let Some(lifetime) = lifetime {
                    let age = asked.elapsed();
                    self.metrics.set_expiry(&self.labels, SystemTime::now() + lifetime - age);
                }
                (is_new || lifetime.is_some()).then_some("ok")
            }
            Err(AcquireError { result, cause, retry_after }) => {
                self.status.send_modify(|status| {
                    status.state.on_failure(Instant::now().into_std(), retry_after, chance);
                    status.cause = Some(cause);
                });
                Some(result)
            }
        };
        if let Some(result) = result {
            self.metrics.count_attempt(&self.labels, result);
        }
    }

    /// Logs a change of the condition. Returns the condition.
    fn log_change(&self, logged: Condition) -> Condition {
        let status = self.status.borrow();
        let condition = status.state.condition(Instant::now().into_std());
        let CredentialLabels { provider, credential } = &self.labels;
        let cause = status.cause.as_deref().unwrap_or_default();
        match condition {
            _ if condition == logged => {}
            Condition::New => {}
            Condition::Ready => tracing::info!(%provider, %credential, "credential acquired"),
            Condition::Failing => tracing::warn!(
                %provider, %credential, cause, "credential not renewed; the last value is used while it is valid"
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

/// A random number between 0 and 1.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}
