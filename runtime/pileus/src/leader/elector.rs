//! The loop of the election: carries out the actions of `decide`, and publishes the status of this process.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use pileus_controllers::describe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::api::{LeaseApi, LeaseChange, LeaseError};
use super::decide::{ElectionAction, Loss, decide, release};
use super::metrics::Metrics;
use super::observation::{Candidate, LeaseRecord, Observation};
use super::term::{BootTime, LeaseTerm};
use super::{EVENT_TIMEOUT, LeaderStatus, LeaseEnd, PredecessorIdle};

/// The source of the events, as upstream names it.
const COMPONENT: &str = "cloud-controller-manager";

/// How many events of the watch are buffered.
const CHANGES: usize = 16;

/// Takes part in the election for one candidate.
pub(super) struct Elector {
    candidate: Candidate,
    observation: Observation,
    leases: LeaseApi,
    changes: mpsc::Receiver<LeaseChange>,
    term: LeaseTerm,
    predecessor_idle: PredecessorIdle,
    metrics: Metrics,
    /// Why the last request failed, until a request succeeds or an event arrives.
    last_error: Option<String>,
    recorder: Recorder,
    /// Events that are being sent.
    events: JoinSet<()>,
    /// Returns a random number from 0 to 1.
    jitter: fn() -> f64,
}

impl Elector {
    /// Also spawns the watch, so it must be called within a runtime.
    pub(super) fn new(
        client: Client,
        leases: LeaseApi,
        candidate: Candidate,
        (term, predecessor_idle): (LeaseTerm, PredecessorIdle),
        metrics: Metrics,
        jitter: fn() -> f64,
    ) -> Self {
        let (sender, changes) = mpsc::channel(CHANGES);
        // A holder renews several times within a lease duration, so a longer silence means that the watch is broken.
        tokio::spawn(leases.clone().watch(sender, candidate.lease_duration, candidate.retry_period));
        let reporter =
            Reporter { controller: COMPONENT.to_owned(), instance: Some(candidate.identity.clone()) };
        let recorder = Recorder::new(client, reporter);
        let observation = Observation::none(BootTime::now());
        let events = JoinSet::new();
        let last_error = None;
        Self {
            candidate,
            observation,
            leases,
            changes,
            term,
            predecessor_idle,
            metrics,
            last_error,
            recorder,
            events,
            jitter,
        }
    }

    /// Competes for the Lease and renews it, until it is lost or the process leaves the election.
    pub(super) async fn run(
        mut self,
        status: &watch::Sender<LeaderStatus>,
        mut end: oneshot::Receiver<LeaseEnd>,
    ) {
        loop {
            self.publish_status(status);
            match decide(&self.observation, &self.candidate, BootTime::now(), Timestamp::now()) {
                ElectionAction::Wait(until) => {
                    let wait = tokio::time::sleep(until.since(BootTime::now()));
                    tokio::select! {
                        biased;
                        // A sender that is dropped means that the process ends unexpectedly.
                        how = &mut end => return self.leave(how.unwrap_or(LeaseEnd::LeftToExpire), status).await,
                        Some(change) = self.changes.recv() => self.on_watch_event(change),
                        () = wait => {}
                    }
                }
                ElectionAction::StepDown(loss) => return self.stop_leading(&loss, status),
                action => self.carry_out(action).await,
            }
        }
    }

    async fn carry_out(&mut self, action: ElectionAction) {
        let sent = BootTime::now();
        let led = self.observation.led_since;
        // Without an answer, a leader must still step down in time.
        let left = led.map_or(Duration::MAX, |led| (led + self.candidate.renew_deadline).since(sent));
        let timeout = self.candidate.timeout().min(left);
        let outcome = match &action {
            ElectionAction::Read => {
                if led.is_some() {
                    self.metrics.slow_path.inc();
                }
                self.leases.read(timeout).await.map(|found| {
                    self.observation.on_read(found, &self.candidate, BootTime::now(), (self.jitter)());
                })
            }
            ElectionAction::Create(record) => {
                let created = self.leases.create(record, timeout).await;
                created.map(|found| self.on_write(sent, found))
            }
            ElectionAction::Update { version, record } => {
                let updated = self.leases.update(version, record, timeout).await;
                updated.map(|found| self.on_write(sent, found))
            }
            ElectionAction::Wait(_) | ElectionAction::StepDown(_) => Ok(()),
        };
        self.last_error = None;
        match outcome {
            Ok(()) => {}
            Err(LeaseError::Conflict) => self.observation.on_conflict(),
            Err(LeaseError::Missing(error) | LeaseError::Failed(error)) => {
                tracing::warn!(%error, leads = led.is_some(), "can't read or write the lease; retrying");
                self.observation.on_failure(&self.candidate, BootTime::now(), (self.jitter)());
                self.last_error = Some(error);
            }
        }
    }

    /// The API server has accepted a write of this process.
    fn on_write(&mut self, sent: BootTime, (version, record): (String, LeaseRecord)) {
        let is_new = self.observation.led_since.is_none();
        if is_new {
            let idle = self.observation.predecessor_idle(&self.candidate, sent, Timestamp::now());
            self.predecessor_idle.get_or_init(|| idle);
        }
        self.observation.on_write(sent, version, record, &self.candidate);
        self.term.extend_until(sent + self.candidate.renew_deadline);
        if is_new {
            self.metrics.master_status.set(1);
            tracing::info!(identity = %self.candidate.identity, "became leader");
            self.send_event("Acquire", "became leader");
        }
    }

    fn on_watch_event(&mut self, change: LeaseChange) {
        let (candidate, record) = (&self.candidate, change.record.clone());
        if self.observation.on_watch_event(
            &change.version,
            record,
            candidate,
            BootTime::now(),
            (self.jitter)(),
        ) {
            self.leases.set_last(change);
            self.last_error = None;
        }
    }

    /// Publishes the status of this process, if it has changed.
    fn publish_status(&self, status: &watch::Sender<LeaderStatus>) {
        let now = match (self.observation.led_since, &self.last_error) {
            (Some(_), _) => LeaderStatus::Leading,
            (None, Some(why)) => LeaderStatus::CutOff(why.clone()),
            (None, None) => LeaderStatus::Standby(self.observation.holder().map(str::to_owned)),
        };
        status.send_if_modified(|status| {
            let has_changed = *status != now;
            if has_changed && let LeaderStatus::Standby(Some(leader)) = &now {
                tracing::info!(%leader, "standing by");
            }
            *status = now;
            has_changed
        });
    }

    fn stop_leading(self, loss: &Loss, status: &watch::Sender<LeaderStatus>) {
        self.term.end();
        self.metrics.master_status.set(0);
        let why = match loss {
            Loss::Expired => format!("not renewed within {} s", self.candidate.renew_deadline.as_secs_f64()),
            Loss::Taken(holder) if holder.is_empty() => "its holder was removed by another client".to_owned(),
            Loss::Taken(holder) => format!("{holder} holds it now"),
        };
        tracing::error!(identity = %self.candidate.identity, %why, "lease lost; exiting");
        // The process exits after this. It could probably not send an event any more, so none is worth a delay.
        status.send_replace(LeaderStatus::Lost(why));
    }

    async fn leave(mut self, how: LeaseEnd, status: &watch::Sender<LeaderStatus>) {
        self.term.end();
        let leads = self.observation.led_since.is_some();
        self.metrics.master_status.set(0);
        if leads && how == LeaseEnd::Released {
            self.release().await;
        } else if leads {
            tracing::warn!("lease not released because some work is unfinished; it will expire");
        }
        if leads {
            self.send_event("Release", "stopped leading");
            while self.events.join_next().await.is_some() {}
        }
        status.send_replace(LeaderStatus::Ended);
    }

    /// Releases the Lease, so that another replica can lead at once.
    async fn release(&mut self) {
        let Some(ElectionAction::Update { version, record }) =
            release(&self.observation, &self.candidate, Timestamp::now())
        else {
            return tracing::warn!("lease not released: another client has changed it");
        };
        match self.leases.update(&version, &record, self.candidate.timeout()).await {
            Ok(_) => tracing::info!("lease released"),
            Err(LeaseError::Conflict) => {
                tracing::warn!("lease not released: another client has changed it");
            }
            Err(LeaseError::Missing(error) | LeaseError::Failed(error)) => {
                tracing::warn!(%error, "lease not released; it will expire");
            }
        }
    }

    fn send_event(&mut self, action: &str, what: &str) {
        let event = Event {
            type_: EventType::Normal,
            reason: "LeaderElection".to_owned(),
            note: Some(format!("{} {what}", self.candidate.identity)),
            // Events with the same action are aggregated.
            action: action.to_owned(),
            secondary: None,
        };
        let (recorder, lease) = (self.recorder.clone(), self.leases.reference());
        self.events.spawn(async move {
            match tokio::time::timeout(EVENT_TIMEOUT, recorder.publish(&event, &lease)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => {
                    tracing::debug!(error = %describe(&error), "event about the lease not sent");
                }
            }
        });
    }
}
