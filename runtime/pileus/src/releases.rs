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

mod access;
mod actions;
mod candidate;
mod compare;
mod inputs;
mod job;
mod leadership;
mod prepare;
mod record;
mod revisions;
mod shown;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_gate::GateFamily;
use pileus_host::Serving;
use pileus_host::swap::{Event, Release, Roles, State, step};
use pileus_loader::Digest;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::document::{CloudProvider, DocumentOrigin, Settings};
use crate::error::Error;
use crate::recorded::Recorded;
use crate::working::{DRAIN, Working};
pub(crate) use compare::Comparison;
pub(crate) use inputs::Input;
use job::{Done, Made, Prepared, sleep_until};
pub(crate) use prepare::ReleaseDeps;
pub(crate) use record::{Record, of_resource, revision};
pub(crate) use revisions::Revisions;
pub(crate) use shown::Shown;

/// How often the leader looks how releases do.
const MEASURE_PERIOD: Duration = Duration::from_secs(1);

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
    /// How many writes of the status are under way, and what was read meanwhile.
    writes: usize,
    unread: Option<Recorded>,
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
            writes: 0,
            unread: None,
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
        // What follows under this name, here or on another replica, must find no write in flight.
        let (gate, end) = (self.shown.borrow().gate.clone(), tokio::time::Instant::now() + DRAIN);
        if let Some(gate) = &gate {
            gate.close();
        }
        Box::pin(self.working.finish()).await;
        if let Some(gate) = gate
            && tokio::time::timeout_at(end, gate.wait_for_writes()).await.is_err()
        {
            let unfinished = gate.writes_in_flight();
            tracing::warn!(provider = %self.name, unfinished, "ended before the cloud answered all writes");
        }
        self.serving.assign(Roles::default());
        Ok(())
    }

    async fn on_done(&mut self, Done { event, made, write, refusal }: Done) -> Result<(), Error> {
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
                let Settings { digest, spec } = ready.document.settings.clone();
                self.settings.insert(digest, spec);
                self.versions.insert(release.component, ready.description.version.clone());
                let prepared = self.prepared.entry(release).or_default();
                // Later settings of this component find it here. Its bytes are not needed any more.
                prepared.component = Some(Arc::clone(&ready.component));
                prepared.verified = None;
                prepared.ready = Some(ready);
                self.narrow();
                self.serving.add(release, guest);
            }
            Some((release, Made::Distrust(error))) => {
                self.prepared.entry(release).or_default().distrust = Some(error);
            }
            None => {}
        }
        if let Some(result) = write {
            self.on_write_result(result);
        }
        if let Some(refusal) = refusal
            && self.record.is_own()
            && self.recorded.status.active.is_none()
        {
            return Err(refusal);
        }
        self.on_event(event).await?;
        Box::pin(self.read_on()).await?;
        Box::pin(self.decide()).await
    }

    async fn on_event(&mut self, event: Event) -> Result<(), Error> {
        let (state, actions) = step(std::mem::take(&mut self.state), event, Timestamp::now());
        self.state = state;
        for action in actions {
            self.perform(action).await?;
        }
        self.serving.assign(self.state.roles());
        self.show().await;
        Ok(())
    }
}
