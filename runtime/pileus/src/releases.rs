//! The releases of one provider on this replica: does what the state machine in `pileus_host::swap` decides, and tells it what
//! happened. Nothing is decided here.
//!
//! ```text
//!   document, order, status, lease ──▶ Input ─▶ step(state, event) ─▶ actions
//!                                                   ▲                   │ prepare.rs  fetch, verify, compile, check
//!                                                   │                   │ compare.rs  dry run
//!                                                   └──── Event ◀── job ┤ record.rs   the shared status
//!                                                                       └ Serving, Working: what serves calls
//! ```

mod compare;
mod prepare;
mod record;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pileus_gate::{Fence, Gate};
use pileus_host::swap::{
    Action, Ended, Event, Failure, Follow, Order, Release, Roles, Stage, State, Status, step,
};
use pileus_host::{Component, Engine, Guest, Serving};
use pileus_loader::{Digest, Store, Verified};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::document::{CloudProvider, DocumentOrigin};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::providers::Leading;
use crate::working::{Conditions, Working};
pub(crate) use compare::Comparison;
use prepare::{Ready, failure};
pub(crate) use record::{Record, Recorded, revision};

/// How often the leader looks how releases do.
const MEASURE_PERIOD: Duration = Duration::from_secs(1);

/// What the releases of all providers of a process share.
pub(crate) struct ReleaseDeps {
    pub(crate) engine: Engine,
    /// `None` where no folder can be used: then only files serve as components.
    pub(crate) store: Option<Store>,
    pub(crate) metrics: Metrics,
    /// Addresses that no provider may reach: those of the API server.
    pub(crate) denied_addresses: Vec<IpAddr>,
    pub(crate) fence: Fence,
}

/// What happens outside.
pub(crate) enum Input {
    /// The document is so.
    /// Without a generation, it counts as changed where it differs from the one before.
    Document { generation: Option<u64>, document: Arc<CloudProvider> },
    /// The shared record was read.
    Recorded(Recorded),
    /// The operator's order was read.
    Ordered(Order),
    /// This replica leads from now on.
    Leads(Leading),
}

/// What others see of the releases.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) status: Status,
    /// Of the release that serves calls.
    pub(crate) gate: Option<Gate>,
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

/// What the stages of a release have made so far.
#[derive(Default)]
struct Prepared {
    verified: Option<Verified>,
    /// Why it isn't trusted, until that is reported.
    distrust: Option<Error>,
    component: Option<Arc<Component>>,
    ready: Option<Ready>,
}

/// A job has ended.
struct Done {
    event: Event,
    made: Option<(Release, Made)>,
    recorded: Option<Recorded>,
    /// Why it failed, if it can't succeed.
    refusal: Option<Error>,
}

/// What a job has made.
enum Made {
    Verified(Verified),
    Component(Arc<Component>),
    Ready(Box<(Ready, Guest)>),
    /// It was fetched and isn't trusted.
    Distrust(Error),
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
                Ok(recorded) => self.on_recorded(recorded).await?,
                Err(error) => return Err(Error::Settings { problem: error.to_string() }),
            }
        }
        loop {
            let wake = self.state.wake_at(Timestamp::now());
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.on_input(input).await?,
                    None => break,
                },
                Some(done) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    match done {
                        Ok(done) => self.on_done(done).await?,
                        // A job that panics would leave the state machine waiting.
                        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                    }
                }
                () = sleep_until(wake), if wake.is_some() => self.on_event(Event::Woke).await?,
                _ = measure.tick(), if self.decides => {
                    for (release, rates) in self.serving.rates() {
                        self.on_event(Event::Measured { release, rates }).await?;
                    }
                }
            }
        }
        self.working.stop().await;
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
            Input::Recorded(recorded) => self.on_recorded(recorded).await,
            Input::Ordered(order) => self.on_event(Event::Ordered(order)).await,
            Input::Leads(Leading { predecessor_idle }) => {
                self.leads = true;
                self.working.lead(predecessor_idle);
                self.decide().await
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
        self.decide().await
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
        // The process has nothing to run, and its user waits for an answer.
        if let Some(refusal) = refusal
            && self.record.is_own()
            && self.recorded.status.active.is_none()
        {
            return Err(refusal);
        }
        self.on_event(event).await?;
        self.decide().await
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

    /// Shows what is new, and keeps what it names in the store.
    fn show(&self) {
        let serving = self.state.roles().serving.and_then(|release| self.ready(release));
        let shown = Shown {
            status: self.state.status().cloned().unwrap_or_default(),
            gate: serving.map(|ready| ready.gate.clone()),
        };
        let is_new = self.shown.send_if_modified(|before| {
            let is_same_gate = match (&before.gate, &shown.gate) {
                (Some(before), Some(shown)) => before.is(shown),
                (None, None) => true,
                _ => false,
            };
            let is_new = before.status != shown.status || !is_same_gate;
            *before = shown.clone();
            is_new
        });
        if let (true, Some(store)) = (is_new, &self.deps.store) {
            let digests: Vec<_> = shown.status.releases().map(|release| release.component).collect();
            if let Err(error) = store.pin(&self.name, &digests) {
                tracing::warn!(provider = %self.name, %error, "the store can't note which components are in use");
            }
        }
    }

    fn ready(&self, release: Release) -> Option<&Ready> {
        self.prepared.get(&release)?.ready.as_ref()
    }

    async fn perform(&mut self, action: Action) -> Result<(), Error> {
        match action {
            Action::Resolve(follow) => self.resolve(follow),
            Action::Prepare { stage, release } => self.prepare(stage, release),
            Action::Compare { candidate, active } => self.compare(candidate, active),
            Action::WriteStatus { replaces, status } => self.write(replaces, *status),
            Action::Switch(release) => self.switch(release).await?,
            Action::Canary(canary) => {
                let share = canary.map(|canary| canary.share);
                tracing::info!(provider = %self.name, share, "share of the lookups that the candidate answers");
            }
            Action::Drain { release, .. } => {
                let serving = self.serving.clone();
                self.spawn(async move {
                    serving.drained(release).await;
                    Done::of(Event::Drained(release))
                });
            }
            Action::Abort(release) => self.serving.abort(release),
            Action::Unload(release) => {
                self.serving.remove(release);
                self.prepared.remove(&release);
            }
        }
        Ok(())
    }

    fn spawn(&mut self, job: impl Future<Output = Done> + Send + 'static) {
        self.jobs.spawn(job);
    }

    fn resolve(&mut self, follow: Follow) {
        let (deps, document) = (Arc::clone(&self.deps), self.document.clone());
        self.spawn(async move {
            let result = match document {
                Some(document) => prepare::resolve(&deps, &document.source).await,
                None => Err(Error::Settings { problem: "the document isn't read yet".to_owned() }),
            };
            Done::of(Event::Resolved { follow, result: result.map_err(|error| failure(&error)) })
        });
    }

    fn prepare(&mut self, stage: Stage, release: Release) {
        let document = self.document_of(release);
        let (deps, name) = (Arc::clone(&self.deps), self.name.clone());
        let prepared = self.prepared.entry(release).or_default();
        let (verified, component) = (prepared.verified.clone(), prepared.component.clone());
        let distrust = prepared.distrust.take();
        let compiled = component.or_else(|| {
            let same = self.prepared.iter().filter(|(other, _)| other.component == release.component);
            same.filter_map(|(_, prepared)| prepared.component.clone()).next()
        });
        let active = self.state.roles().serving.filter(|active| *active != release);
        let active = active.and_then(|active| self.ready(active)).cloned();
        self.spawn(async move {
            let made = async {
                let document = document?;
                match stage {
                    Stage::Fetch => fetched(prepare::fetch(&deps, release, &document).await),
                    Stage::Verify => match (distrust, verified) {
                        (Some(distrust), _) => Err(distrust),
                        (None, Some(_)) => Ok(None),
                        (None, None) => {
                            prepare::fetch(&deps, release, &document).await.map(|it| Some(Made::Verified(it)))
                        }
                    },
                    Stage::Compile => {
                        let failed = |source| Error::Provider { provider: name.clone(), source };
                        let component = match (compiled, verified) {
                            (Some(component), _) => component,
                            (None, Some(verified)) => {
                                Arc::new(Component::load(&deps.engine, verified).await.map_err(failed)?)
                            }
                            (None, None) => {
                                let verified = prepare::fetch(&deps, release, &document).await?;
                                Arc::new(Component::load(&deps.engine, verified).await.map_err(failed)?)
                            }
                        };
                        Ok(Some(Made::Component(component)))
                    }
                    Stage::Check => {
                        let missing =
                            || Error::Settings { problem: "its component isn't compiled".to_owned() };
                        let component = compiled.ok_or_else(missing)?;
                        let ready = prepare::check(&deps, component, document, active.as_ref()).await?;
                        Ok(Some(Made::Ready(Box::new(ready))))
                    }
                }
            };
            let ended = |result| Event::Prepared(Ended { release, stage, result });
            match made.await {
                Ok(made) => Done { made: made.map(|made| (release, made)), ..Done::of(ended(Ok(()))) },
                Err(error) => {
                    let failure = failure(&error);
                    let refusal = failure.is_permanent.then_some(error);
                    Done { refusal, ..Done::of(ended(Err(failure))) }
                }
            }
        });
    }

    /// The document that a release runs under.
    fn document_of(&self, release: Release) -> Result<Arc<CloudProvider>, Error> {
        let present = self.document.as_ref().filter(|document| document.settings.digest == release.settings);
        if let Some(document) = present {
            return Ok(Arc::clone(document));
        }
        let missing = || Error::Settings {
            problem: format!("the settings {} of a former release are not known any more", release.settings),
        };
        let spec = self.settings.get(&release.settings).ok_or_else(missing)?;
        let document = CloudProvider::of_settings(&self.name, spec, release.component, &self.origin)?;
        // What the status says may have been written by another hand.
        if document.settings.digest == release.settings { Ok(Arc::new(document)) } else { Err(missing()) }
    }

    fn compare(&mut self, candidate: Release, active: Release) {
        let releases = (self.ready(candidate).cloned(), self.ready(active).cloned());
        let (comparison, deps, leads) = (self.comparison.clone(), Arc::clone(&self.deps), self.leads);
        // On a thread of its own, because calls of a dry run can't move between threads.
        let handle = tokio::runtime::Handle::current();
        let run = tokio::task::spawn_blocking(move || match releases {
            // A replica that doesn't lead sends nothing to the cloud that might change it.
            (Some(candidate), Some(active)) if leads => {
                handle.block_on(comparison.run(&candidate, &active, &deps.metrics))
            }
            _ => Err(Failure {
                message: "the releases aren't ready on this replica".to_owned(),
                is_permanent: false,
            }),
        });
        self.spawn(async move {
            let failed = |panic: tokio::task::JoinError| Failure {
                message: format!("the dry run ended unexpectedly: {panic}"),
                is_permanent: false,
            };
            let result = run.await.map_err(failed).and_then(|result| result);
            Done::of(Event::Compared { candidate, active, result })
        });
    }

    fn write(&mut self, replaces: u64, status: Status) {
        let document = self.document.as_ref().map(|document| document.identity());
        let (settings, versions) = (self.settings.clone(), self.versions.clone());
        let recorded = Recorded { revision: replaces, status, document, versions, settings };
        let (record, known, name) = (self.record.clone(), self.recorded.clone(), self.name.clone());
        self.spawn(async move {
            let error = match record.write(recorded).await {
                Ok(recorded) => return Done::recorded(recorded),
                Err(error) => error,
            };
            // Another write may have come first.
            match record.read(&known).await {
                Ok(recorded) if recorded.revision > replaces => Done::recorded(recorded),
                _ => {
                    tracing::warn!(provider = %name, %error, "the status of the provider can't be written; trying again");
                    Done::of(Event::WriteFailed { replaces })
                }
            }
        });
    }

    /// Lets a release serve calls. Controllers that were made for another declaration end first, so that none of them calls it.
    async fn switch(&mut self, release: Release) -> Result<(), Error> {
        let (Some(ready), Some(declaration)) =
            (self.ready(release).cloned(), self.serving.declaration(release))
        else {
            return Ok(());
        };
        let conditions = Conditions::new(declaration, &ready.document);
        let continues = self.working.conditions() == Some(&conditions);
        if !continues {
            self.working.stop().await;
        }
        let before = self.shown.borrow().gate.clone();
        if let Some(before) = before.filter(|before| !before.is(&ready.gate)) {
            ready.gate.take_over(&before);
        }
        self.serving.assign(Roles { ..self.state.roles() });
        tracing::info!(
            provider = %self.name, version = %ready.description.version, digest = %release.component,
            controllers = if continues { "go on" } else { "begin" }, "release serves calls"
        );
        if continues {
            self.working.renew(ready.gate);
            return Ok(());
        }
        let provider = self.serving.provider(&conditions.declaration);
        self.working.start(conditions, provider, ready.gate)
    }
}

/// A component that isn't trusted is fetched, as far as the status is concerned.
fn fetched(result: Result<Verified, Error>) -> Result<Option<Made>, Error> {
    match result {
        Ok(verified) => Ok(Some(Made::Verified(verified))),
        Err(error @ Error::Source(pileus_loader::Error::Untrusted { .. })) => Ok(Some(Made::Distrust(error))),
        Err(error) => Err(error),
    }
}

impl Done {
    fn of(event: Event) -> Self {
        Self { event, made: None, recorded: None, refusal: None }
    }

    fn recorded(recorded: Recorded) -> Self {
        let Recorded { revision, status, .. } = recorded.clone();
        let event = Event::Status { revision, status };
        Self { event, made: None, refusal: None, recorded: Some(recorded) }
    }
}

/// Sleeps until a time of the wall clock, which may be set meanwhile: at most a minute at once.
async fn sleep_until(wake: Option<Timestamp>) {
    let Some(wake) = wake else { return std::future::pending().await };
    let left = wake.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or_default().min(Duration::from_secs(60));
    tokio::time::sleep(left).await;
}
