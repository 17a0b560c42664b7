//! The loop of the election: carries out what `decide` says, and tells the rest of the process how it stands.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::api::{Change, Failure, Leases};
use super::decide::{Action, Loss, decide, release};
use super::metrics::Metrics;
use super::observation::{Candidate, Observation, Record};
use super::tenure::{Tenure, Time};
use super::{End, FAREWELL, Standing};

/// Upstream's name for the source of the events.
const COMPONENT: &str = "cloud-controller-manager";

/// What the watch may tell before anybody listens.
const CHANGES: usize = 16;

/// Takes part in the election for one candidate.
pub(super) struct Elector {
    candidate: Candidate,
    observation: Observation,
    leases: Leases,
    changes: mpsc::Receiver<Change>,
    tenure: Tenure,
    metrics: Metrics,
    /// Why the last request failed, if it did and nothing was heard since.
    trouble: Option<String>,
    recorder: Recorder,
    /// Those that are being sent.
    events: JoinSet<()>,
    /// From 0 to 1, afresh at each call.
    jitter: fn() -> f64,
}

impl Elector {
    /// Starts the watch, too, and so needs the runtime that it will run in.
    pub(super) fn new(
        client: Client,
        leases: Leases,
        candidate: Candidate,
        tenure: Tenure,
        metrics: Metrics,
        jitter: fn() -> f64,
    ) -> Self {
        let (tell, changes) = mpsc::channel(CHANGES);
        // A holder that renews lets no lease duration pass without a word.
        tokio::spawn(leases.clone().watch(tell, candidate.lease_duration, candidate.retry_period));
        let reporter =
            Reporter { controller: COMPONENT.to_owned(), instance: Some(candidate.identity.clone()) };
        let recorder = Recorder::new(client, reporter);
        let observation = Observation::none(Time::now());
        let events = JoinSet::new();
        let trouble = None;
        Self { candidate, observation, leases, changes, tenure, metrics, trouble, recorder, events, jitter }
    }

    /// Competes for the Lease and keeps it, until it is lost or the process leaves.
    pub(super) async fn run(mut self, standing: &watch::Sender<Standing>, mut end: oneshot::Receiver<End>) {
        loop {
            self.tell(standing);
            match decide(&self.observation, &self.candidate, Time::now(), Timestamp::now()) {
                Action::Wait(until) => {
                    let wait = tokio::time::sleep(until.since(Time::now()));
                    tokio::select! {
                        biased;
                        // Without a word means that the process ends unexpectedly.
                        how = &mut end => return self.leave(how.unwrap_or(End::LeftToExpire), standing).await,
                        Some(change) = self.changes.recv() => self.watched(change),
                        () = wait => {}
                    }
                }
                Action::StepDown(loss) => return self.lose(&loss, standing),
                action => self.carry_out(action).await,
            }
        }
    }

    async fn carry_out(&mut self, action: Action) {
        let sent = Time::now();
        let led = self.observation.led_since;
        // A leader that gets no answer must know when its time is over.
        let left = led.map_or(Duration::MAX, |led| (led + self.candidate.renew_deadline).since(sent));
        let patience = self.candidate.patience().min(left);
        let outcome = match &action {
            Action::Read => {
                if led.is_some() {
                    self.metrics.slow_path.inc();
                }
                self.leases.read(patience).await.map(|found| {
                    self.observation.read(found, &self.candidate, Time::now(), (self.jitter)());
                })
            }
            Action::Create(record) => {
                let created = self.leases.create(record, patience).await;
                created.map(|found| self.wrote(sent, found))
            }
            Action::Update { version, record } => {
                let updated = self.leases.update(version, record, patience).await;
                updated.map(|found| self.wrote(sent, found))
            }
            Action::Wait(_) | Action::StepDown(_) => Ok(()),
        };
        self.trouble = None;
        match outcome {
            Ok(()) => {}
            Err(Failure::Conflict) => self.observation.conflicted(),
            Err(Failure::Missing(error) | Failure::Failed(error)) => {
                tracing::warn!(%error, leads = led.is_some(), "the lease is out of reach; trying again");
                self.observation.failed(&self.candidate, Time::now(), (self.jitter)());
                self.trouble = Some(error);
            }
        }
    }

    /// A write of this process stands in the Lease.
    fn wrote(&mut self, sent: Time, (version, record): (String, Record)) {
        let is_new = self.observation.led_since.is_none();
        self.observation.wrote(sent, version, record, &self.candidate);
        self.tenure.lasts_until(sent + self.candidate.renew_deadline);
        if is_new {
            self.metrics.master_status.set(1);
            tracing::info!(identity = %self.candidate.identity, "became leader");
            self.send_event("Acquire", "became leader");
        }
    }

    fn watched(&mut self, change: Change) {
        let (candidate, record) = (&self.candidate, change.record.clone());
        if self.observation.watched(&change.version, record, candidate, Time::now(), (self.jitter)()) {
            self.leases.heard(change);
            self.trouble = None;
        }
    }

    /// Says where this process stands, where that is news.
    fn tell(&self, standing: &watch::Sender<Standing>) {
        let now = match (self.observation.led_since, &self.trouble) {
            (Some(_), _) => Standing::Leading,
            (None, Some(why)) => Standing::CutOff(why.clone()),
            (None, None) => Standing::Standby(self.observation.holder().map(str::to_owned)),
        };
        standing.send_if_modified(|standing| {
            let is_news = *standing != now;
            if is_news && let Standing::Standby(Some(leader)) = &now {
                tracing::info!(%leader, "standing by");
            }
            *standing = now;
            is_news
        });
    }

    fn lose(self, loss: &Loss, standing: &watch::Sender<Standing>) {
        self.tenure.end();
        self.metrics.master_status.set(0);
        let why = match loss {
            Loss::Expired => format!("it could not be renewed within {:?}", self.candidate.renew_deadline),
            Loss::Taken(holder) if holder.is_empty() => "somebody has emptied it".to_owned(),
            Loss::Taken(holder) => format!("{holder} holds it"),
        };
        tracing::error!(identity = %self.candidate.identity, %why, "stopped leading: the lease is lost");
        // The process ends with this word. An event is most often beyond its reach by now, and not worth a wait.
        standing.send_replace(Standing::Lost(why));
    }

    async fn leave(mut self, how: End, standing: &watch::Sender<Standing>) {
        self.tenure.end();
        let leads = self.observation.led_since.is_some();
        self.metrics.master_status.set(0);
        if leads && how == End::Released {
            self.release().await;
        } else if leads {
            tracing::warn!("the lease is left to expire, as something that was begun is unfinished");
        }
        if leads {
            self.send_event("Release", "stopped leading");
            while self.events.join_next().await.is_some() {}
        }
        standing.send_replace(Standing::Ended);
    }

    /// Lets others take the Lease at once.
    async fn release(&mut self) {
        let Some(Action::Update { version, record }) =
            release(&self.observation, &self.candidate, Timestamp::now())
        else {
            return tracing::warn!("the lease is not released, as it is not as this process wrote it");
        };
        match self.leases.update(&version, &record, self.candidate.patience()).await {
            Ok(_) => tracing::info!("lease released"),
            Err(Failure::Conflict) => {
                tracing::warn!("the lease is not released, as somebody else has written it");
            }
            Err(Failure::Missing(error) | Failure::Failed(error)) => {
                tracing::warn!(%error, "the lease is not released; it is left to expire");
            }
        }
    }

    fn send_event(&mut self, action: &str, what: &str) {
        let event = Event {
            type_: EventType::Normal,
            reason: "LeaderElection".to_owned(),
            note: Some(format!("{} {what}", self.candidate.identity)),
            // Events of one action are counted as one.
            action: action.to_owned(),
            secondary: None,
        };
        let (recorder, lease) = (self.recorder.clone(), self.leases.reference());
        self.events.spawn(async move {
            match tokio::time::timeout(FAREWELL, recorder.publish(&event, &lease)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => tracing::debug!(%error, "event about the lease not sent"),
            }
        });
    }
}
