//! An informer watches all objects of one kind, keeps what matters of each, and notifies subscribers of changes. The
//! controllers share the informers, so that each kind is watched once.
//!
//! What is kept of a kind, and how its objects become facts, is up to its [`InformerStore`].

mod requests;
mod store;
mod version;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, describe};
use crate::health::{Health, HealthCheck};
use crate::metrics::Metrics;
pub(crate) use requests::{patch_params, result_label, with_timeout};
pub(crate) use store::{Change, Facts, ObjectStore, key};
use version::NewestVersion;

/// The number of objects in a page of a list. Each page is held as text and as objects before it becomes facts. Nodes have
/// 12 kB each with their images, so a page is 1.2 MB of text; the 500 of Kubernetes' own clients would be 6 MB.
const PAGE_SIZE: u32 = 100;

/// How often the API server is asked for its present version. A watch that began in the future of a restored store is silent,
/// and looks like one of a cluster in which nothing happens. The answer has one object's metadata at most.
pub const VERSION_PERIOD: Duration = Duration::from_secs(15);

/// The pause before the version is asked for after the watch was interrupted. A restored store interrupts all watches, and the
/// longer the question waits, the more the versions of the new history may exceed those of the old one.
const INTERRUPTION_PAUSE: Duration = Duration::from_secs(1);

/// How many questions for the version have to fail in a row before the health check fails. A single one may be bad luck.
const MAX_FAILURES: u32 = 2;

/// What an informer keeps of the objects of one kind.
pub(crate) trait InformerStore: Send {
    /// An object, as the API server sends it.
    type Object: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static;
    /// What is kept of it.
    type Facts: Facts + Clone;

    /// Applies an event of the watch, and returns the changes that follow from it.
    fn on_event(&mut self, event: watcher::Event<Self::Object>) -> Vec<Change<Self::Facts>>;

    /// The objects that are known.
    fn objects(&self) -> &ObjectStore<Self::Facts>;

    /// The versions of all known objects mean nothing any more: the next list is right, however old its objects are.
    fn forget_versions(&mut self);
}

/// Why nothing is deleted for missing objects after the store went back.
const WENT_BACK: &str = "the API server's store went back to an older state, so nothing is deleted from the cloud for objects that \
                         are missing: restart Pileus when the cluster is complete again";

/// The informer of one kind.
pub(crate) struct Informer<S: InformerStore> {
    /// The kind's name in the plural.
    kind: &'static str,
    check: HealthCheck,
    metrics: Metrics,
    /// How often the API server is asked for its present version.
    version_period: Duration,
    /// The field selector of the objects; all without one.
    fields: Option<String>,
    state: Mutex<State<S>>,
    /// The watch was interrupted.
    interrupted: Notify,
    /// Everything has to be listed again.
    relist: Notify,
}

struct State<S: InformerStore> {
    store: S,
    newest: NewestVersion,
    subscribers: Vec<mpsc::UnboundedSender<Vec<Change<S::Facts>>>>,
}

impl<S: InformerStore> Informer<S> {
    /// An informer that knows no object before [`Informer::watch`] runs. The health check `check` shows the watch's state in
    /// `/readyz`. `version_period` is [`VERSION_PERIOD`], or longer in tests that play hours.
    pub(crate) fn new(
        (kind, check): (&'static str, &str),
        store: S,
        metrics: &Metrics,
        health: &Health,
        version_period: Duration,
    ) -> Self {
        let reason = format!("the API server has not sent the list of {kind} yet");
        let state = State { store, newest: NewestVersion::default(), subscribers: Vec::new() };
        Self {
            kind,
            check: health.check(check, reason),
            metrics: metrics.clone(),
            version_period,
            fields: None,
            state: Mutex::new(state),
            interrupted: Notify::new(),
            relist: Notify::new(),
        }
    }

    /// Watches only the objects that this field selector selects.
    pub(crate) fn selecting(self, fields: String) -> Self {
        Self { fields: Some(fields), ..self }
    }

    /// Lists and watches the objects until `stop`. Where the API server's store turns out to be older than what this process
    /// has seen, everything is listed again.
    pub(crate) async fn watch(&self, api: Api<S::Object>, stop: &CancellationToken) {
        let mut ask = Box::pin(self.ask_for_versions(&api));
        loop {
            let config =
                watcher::Config { field_selector: self.fields.clone(), ..watcher::Config::default() };
            let config = config.page_size(PAGE_SIZE);
            // The stream has some kilobytes, which would be a part of every future that holds this one.
            let mut watch = Box::pin(watcher(api.clone(), config).default_backoff());
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    event = watch.next() => self.on_event(event),
                    () = self.relist.notified() => break,
                    () = &mut ask => return,
                }
            }
        }
    }

    /// Asks for the API server's version again and again, and never returns. Where it doesn't answer, the silence of the watch
    /// means nothing either.
    async fn ask_for_versions(&self, api: &Api<S::Object>) {
        let mut failures = 0_u32;
        loop {
            tokio::select! {
                () = sleep(self.version_period) => {}
                () = self.interrupted.notified() => sleep(INTERRUPTION_PAUSE).await,
            }
            match self.ask_for_version(api).await {
                Ok(()) if failures >= MAX_FAILURES && self.read(|store| store.objects().is_synced()) => {
                    failures = 0;
                    self.pass();
                }
                Ok(()) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures >= MAX_FAILURES {
                        self.check.fail(format!("the version of {} can't be read: {error}", self.kind));
                    }
                    if failures >= MAX_FAILURES && failures.is_power_of_two() {
                        tracing::warn!(kind = self.kind, %error, failures, "can't ask the API server whether the watch is up to date");
                    }
                }
            }
        }
    }

    /// Confirms that the API server's store is not older than what this process has seen of it. Where it is, because it was
    /// restored from a backup, everything is listed again, and this fails from then on: objects that the backup lacks are
    /// no evidence that anything was deleted.
    ///
    /// # Errors
    /// [`Error::Refused`] where the store went back since the start; other errors where the API server doesn't say.
    pub(crate) async fn confirm_history(&self, api: &Api<S::Object>) -> Result<(), Error> {
        self.ask_for_version(api).await?;
        let went_back = self.state().newest.has_gone_back();
        if went_back { Err(Error::Refused(WENT_BACK.to_owned())) } else { Ok(()) }
    }

    async fn ask_for_version(&self, api: &Api<S::Object>) -> Result<(), Error> {
        // The answer is compared with what was known before it was asked for.
        let asked = self.state().newest;
        let params = ListParams { field_selector: self.fields.clone(), ..ListParams::default().limit(1) };
        let listed = with_timeout(api.list_metadata(&params)).await?;
        self.on_present_version(asked, &listed.metadata.resource_version.unwrap_or_default());
        Ok(())
    }

    fn on_present_version(&self, asked: NewestVersion, found: &str) {
        let Self { kind, check, metrics, .. } = self;
        let mut state = self.state();
        if !state.newest.on_present(asked, found) {
            return;
        }
        state.store.forget_versions();
        drop(state);
        metrics.count_rollback(kind);
        check.fail(format!("the API server's store went back, and the new list of {kind} is not complete"));
        let known = asked.number();
        tracing::warn!(
            kind,
            %known,
            found,
            "the API server's store went back to an older state, as a restored backup does: everything is listed again, and \
             nothing is deleted from the cloud for objects that are missing, until Pileus restarts"
        );
        self.relist.notify_one();
    }

    fn pass(&self) {
        if self.state().newest.has_gone_back() {
            self.check.pass_with_remark(WENT_BACK);
        } else {
            self.check.pass();
        }
    }

    fn on_event(&self, event: Option<Result<watcher::Event<S::Object>, watcher::Error>>) {
        let Self { kind, check, .. } = self;
        match event {
            Some(Ok(event)) => {
                if matches!(event, watcher::Event::InitDone | watcher::Event::Apply(_)) {
                    self.pass();
                }
                self.update(|store| store.on_event(event));
            }
            Some(Err(error)) => {
                let error = describe(&error);
                tracing::warn!(kind, %error, "watch interrupted; trying again");
                self.interrupted.notify_one();
                let reason = format!("the watch of {kind} is interrupted: {error}");
                if self.read(|store| store.objects().is_synced()) {
                    check.fail_for_now(reason, Instant::now());
                } else {
                    check.fail(reason);
                }
            }
            None => check.fail(format!("the watch of {kind} has ended")),
        }
    }

    /// Reads from the store.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&S) -> T) -> T {
        read(&self.state().store)
    }

    /// Updates the store, and sends the changes of this update to the subscribers in one message.
    pub(crate) fn update(&self, update: impl FnOnce(&mut S) -> Vec<Change<S::Facts>>) {
        let mut state = self.state();
        let was_synced = state.store.objects().is_synced();
        let changes = update(&mut state.store);
        for change in &changes {
            if let Change::Present(facts) = change {
                state.newest.observe(facts.resource_version());
            }
        }
        if !changes.is_empty() || was_synced != state.store.objects().is_synced() {
            state.subscribers.retain(|subscriber| subscriber.send(changes.clone()).is_ok());
        }
    }

    /// Subscribes to changes. The first message has all objects; it comes once the first list is complete, even where that
    /// is empty, so that no subscriber starts with a part of the list.
    pub(crate) fn subscribe(&self) -> mpsc::UnboundedReceiver<Vec<Change<S::Facts>>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        if let Some(all) = state.store.objects().all() {
            let present = all.into_iter().map(Change::Present).collect();
            drop(sender.send(present)); // can't fail: the receiver exists
        }
        state.subscribers.push(sender);
        receiver
    }

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
