//! Informers keep what matters of the objects of one kind, and notify subscribers of changes. The controllers share them, and the
//! informers of several providers share one [`Watch`], so that each kind is watched once.
//!
//! What is kept of a kind, and how its objects become facts, is up to its [`InformerStore`].

mod history;
mod requests;
mod store;
mod version;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::error::Error;
use crate::health::{Health, HealthCheck};
pub use history::StoreHistory;
pub(crate) use requests::{patch_params, result_label, with_timeout};
pub(crate) use store::{Change, Facts, ObjectStore, key};
pub(crate) use watch::Watch;

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

/// The informer of one kind.
pub(crate) struct Informer<S: InformerStore> {
    watch: Arc<Watch<S>>,
    check: HealthCheck,
    state: Mutex<State<S>>,
}

struct State<S: InformerStore> {
    store: S,
    subscribers: Vec<mpsc::UnboundedSender<Vec<Change<S::Facts>>>>,
}

impl<S: InformerStore> Informer<S> {
    /// An informer that knows no object before [`Watch::join`] and [`Watch::run`]. The health check `check` shows the watch's
    /// state in `/readyz`.
    pub(crate) fn new(watch: &Arc<Watch<S>>, store: S, health: &Health, check: &str) -> Arc<Self> {
        let reason = format!("the API server has not sent the list of {} yet", watch.kind);
        let state = State { store, subscribers: Vec::new() };
        Arc::new(Self {
            watch: Arc::clone(watch),
            check: health.check(check, reason),
            state: Mutex::new(state),
        })
    }

    /// Has the watch bring the objects. It ends when this informer is dropped.
    pub(crate) fn join_watch(self: &Arc<Self>) {
        self.watch.join(self);
    }

    /// Confirms that the API server's store is not older than what this process has seen of it. Where it is, because it was
    /// restored from a backup, everything is listed again, and this fails from then on: objects that the backup lacks are
    /// no evidence that anything was deleted.
    ///
    /// # Errors
    /// [`Error::Refused`] where the store went back since the start; other errors where the API server doesn't say.
    pub(crate) async fn confirm_history(&self) -> Result<(), Error> {
        self.watch.confirm_history().await
    }

    fn is_synced(&self) -> bool {
        self.read(|store| store.objects().is_synced())
    }

    /// The watch works, or it works again.
    fn pass(&self) {
        match self.watch.remark() {
            Some(remark) => self.check.pass_with_remark(remark),
            None => self.check.pass(),
        }
    }

    /// The watch doesn't work.
    fn fail(&self, reason: String) {
        self.check.fail(reason);
    }

    /// The versions of all known objects mean nothing any more: the API server's store went back.
    fn forget_versions(&self) {
        self.state().store.forget_versions();
        let kind = self.watch.kind;
        self.fail(format!("the API server's store went back, and the new list of {kind} is not complete"));
    }

    /// Applies an event of the watch.
    fn on_event(&self, event: watcher::Event<S::Object>) {
        if matches!(event, watcher::Event::InitDone | watcher::Event::Apply(_)) {
            self.pass();
        }
        self.update(|store| store.on_event(event));
    }

    /// The watch was interrupted, and is tried again.
    fn on_interruption(&self, reason: String) {
        if self.is_synced() {
            self.check.fail_for_now(reason, Instant::now());
        } else {
            self.fail(reason);
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
                self.watch.observe_version(facts.resource_version());
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
