//! The releases of one provider on this replica: does what the state machine in `pileus_host::swap` decides, and tells it what
//! happened. Nothing is decided here.
//!
//! ```text
//!   document, order, status, lease ──▶ Input ─▶ step(state, event) ─▶ actions
//!                                                   ▲        actions.rs │ prepare.rs  fetch, verify, compile, check
//!                                                   │                   │ compare.rs  dry run
//!                                                   └──── Event ◀── job ┤ record.rs   the shared status
//!                                                                       └ Serving, Working: what serves calls
//! ```

mod actions;
mod compare;
mod job;
mod prepare;
mod record;
mod shown;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_gate::GateFamily;
use pileus_host::Serving;
use pileus_host::swap::{Event, Order, Release, State, step};
use pileus_loader::Digest;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::document::{CloudProvider, DocumentOrigin};
use crate::error::Error;
use crate::leading::Leading;
use crate::recorded::Recorded;
use crate::working::Working;
pub(crate) use compare::Comparison;
use job::{Done, Made, Prepared, sleep_until};
use prepare::Ready;
pub(crate) use prepare::ReleaseDeps;
pub(crate) use record::{Record, of_resource};
pub(crate) use shown::Shown;

/// How often the leader looks how releases do.
const MEASURE_PERIOD: Duration = Duration::from_secs(1);

/// What happens outside.
pub(crate) enum Input {
    /// The document is so. Without a generation, it counts as changed where it differs from the one before.
    Document { generation: Option<u64>, document: Arc<CloudProvider> },
    /// The shared record was read.
    Recorded(Box<Recorded>),
    /// The operator's order was read.
    Ordered(Order),
    /// This replica leads from now on.
    Leads(Leading),
}

/// The releases of one provider.
pub(crate) struct Releases {
    name: String,
    deps: Arc<ReleaseDeps>,
    origin: DocumentOrigin,
    state: State,
    record: Record,
    recorded: Recorded,
    /// The document as it was read last.
    document: Option<Arc<CloudProvider>>,
    /// Settings by digest.
    settings: BTreeMap<Digest, Value>,
    /// The versions that components name, by digest.
    versions: BTreeMap<Digest, String>,
    prepared: BTreeMap<Release, Prepared>,
    serving: Serving,
    gates: GateFamily,
    working: Working,
    comparison: Comparison,
    jobs: JoinSet<Done>,
    shown: watch::Sender<Shown>,
    leads: bool,
    /// The generation of the last document.
    last_generation: u64,
    /// Whether the state machine was told that this replica decides.
    decides: bool,
}

impl Releases {
    /// No release yet. `record` is what is kept from earlier.
    pub(crate) fn new(
        name: &str,
        deps: Arc<ReleaseDeps>,
        origin: DocumentOrigin,
        record: Record,
        working: Working,
        comparison: Comparison,
    ) -> Self {
        Self {
            name: name.to_owned(),
            serving: Serving::new(name),
            gates: GateFamily::new(name, deps.fence.clone(), &deps.metrics.gate),
            deps,
            origin,
            state: State::default(),
            record,
            recorded: Recorded::default(),
            document: None,
            settings: BTreeMap::new(),
            versions: BTreeMap::new(),
            prepared: BTreeMap::new(),
            working,
            comparison,
            jobs: JoinSet::new(),
            shown: watch::Sender::default(),
            leads: false,
            last_generation: 0,
            decides: false,
        }
    }

    /// Follows what others see.
    pub(crate) fn shown(&self) -> watch::Receiver<Shown> {
        self.shown.subscribe()
    }

    /// Runs until the inputs end, or until a release that only this process knows can't serve at all.
    ///
    /// # Errors
    /// Why the first release of a document can't be used, where the document is the operator's file.
    pub(crate) async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) -> Result<(), Error> {
        let mut measure = tokio::time::interval(MEASURE_PERIOD);
        if self.record.is_own() {
            match self.record.read(&self.recorded).await {
                Ok(recorded) => Box::pin(self.on_recorded(recorded)).await?,
                Err(error) => return Err(Error::Settings { problem: error.to_string() }),
            }
        }
        loop {
            if self.state.refusal() != self.working.refusal() {
                let refusal = self.working.refusal().map(str::to_owned);
                self.on_event(Event::Refused(refusal)).await?;
            }
            let wake = self.state.wake_at(Timestamp::now());
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => Box::pin(self.on_input(input)).await?,
                    None => break,
                },
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    match done {
                        Ok(done) => Box::pin(self.on_done(done)).await?,
                        // A job that panics would leave the state machine waiting.
                        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                    }
                }
                () = self.working.claims_changed() => {
                    let reconsidered = self.working.reconsider().await;
                    self.own_error(reconsidered)?;
                }
                () = sleep_until(wake), if wake.is_some() => self.on_event(Event::Woke).await?,
                _ = measure.tick(), if self.decides => {
                    for (release, rates) in self.serving.rates() {
                        self.on_event(Event::Measured { release, rates }).await?;
                    }
                }
            }
        }
        Box::pin(self.working.finish()).await;
        Ok(())
    }

    async fn on_input(&mut self, input: Input) -> Result<(), Error> {
        match input {
            Input::Document { generation, document } => {
                self.settings.insert(document.settings.digest, document.settings.spec.clone());
                let generation = generation.unwrap_or_else(|| self.generation(&document));
                let event = Event::Spec(document.followed(generation));
                self.last_generation = generation;
                self.document = Some(document);
                self.on_event(event).await
            }
            Input::Recorded(recorded) => Box::pin(self.on_recorded(*recorded)).await,
            Input::Ordered(order) => self.on_event(Event::Ordered(order)).await,
            Input::Leads(leading) => {
                self.leads = true;
                self.working.lead(leading);
                Box::pin(self.decide()).await
            }
        }
    }

    /// The generation of a document that no API server counts.
    fn generation(&self, document: &CloudProvider) -> u64 {
        let known = self.document.as_ref().map(|known| known.identity()).or(self.recorded.document);
        let observed = self.state.status().map_or(0, |status| status.observed_generation);
        let last = self.last_generation.max(observed);
        if known == Some(document.identity()) { last } else { last + 1 }
    }

    async fn on_recorded(&mut self, recorded: Recorded) -> Result<(), Error> {
        self.learn(&recorded);
        if recorded.revision >= self.recorded.revision {
            self.recorded = recorded.clone();
        }
        let Recorded { revision, status, .. } = recorded;
        self.on_event(Event::Status { revision, status }).await?;
        Box::pin(self.decide()).await
    }

    /// Keeps what other replicas know about releases.
    fn learn(&mut self, recorded: &Recorded) {
        let Recorded { settings, versions, .. } = recorded.clone();
        self.settings.extend(settings);
        self.versions.extend(versions);
    }

    /// Tells the state machine whether this replica decides: the leader does, and for a record of its own each replica while
    /// nothing is active, since then there is nothing to swap from.
    async fn decide(&mut self) -> Result<(), Error> {
        let has_active = self.recorded.status.active.is_some();
        let decides = self.leads || (self.record.is_own() && !has_active);
        if decides == self.decides {
            return Ok(());
        }
        self.decides = decides;
        if !decides {
            return self.on_event(Event::Follows).await;
        }
        // A leader never works from an older status than the one that it finds.
        match self.record.read(&self.recorded).await {
            Ok(recorded) => {
                self.learn(&recorded);
                self.recorded = recorded.clone();
                let Recorded { revision, status, .. } = recorded;
                self.on_event(Event::Leads { revision, status }).await
            }
            Err(error) => {
                tracing::warn!(provider = %self.name, %error, "can't read the status of the provider; trying again");
                self.decides = false;
                self.jobs.spawn(async {
                    tokio::time::sleep(MEASURE_PERIOD).await;
                    Done::of(Event::Woke)
                });
                Ok(())
            }
        }
    }

    async fn on_done(&mut self, Done { event, made, recorded, refusal }: Done) -> Result<(), Error> {
        match made {
            Some((release, Made::Verified(verified))) => {
                self.prepared.entry(release).or_default().verified = Some(verified);
            }
            Some((release, Made::Component(component))) => {
                let prepared = self.prepared.entry(release).or_default();
                prepared.component = Some(component);
                prepared.verified = None;
            }
            Some((release, Made::Ready(ready))) => {
                let (ready, guest) = *ready;
                self.versions.insert(release.component, ready.description.version.clone());
                self.prepared.entry(release).or_default().ready = Some(ready);
                self.serving.add(release, guest);
            }
            Some((release, Made::Distrust(error))) => {
                self.prepared.entry(release).or_default().distrust = Some(error);
            }
            None => {}
        }
        if let Some(recorded) = recorded {
            self.recorded = recorded;
        }
        if let Some(refusal) = refusal
            && self.record.is_own()
            && self.recorded.status.active.is_none()
        {
            return Err(refusal);
        }
        self.on_event(event).await?;
        Box::pin(self.decide()).await
    }

    async fn on_event(&mut self, event: Event) -> Result<(), Error> {
        let (state, actions) = step(std::mem::take(&mut self.state), event, Timestamp::now());
        self.state = state;
        for action in actions {
            self.perform(action).await?;
        }
        self.serving.assign(self.state.roles());
        self.show();
        Ok(())
    }

    fn ready(&self, release: Release) -> Option<&Ready> {
        self.prepared.get(&release)?.ready.as_ref()
    }
}
