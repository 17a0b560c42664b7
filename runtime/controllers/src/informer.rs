//! An informer watches all objects of one kind, keeps what matters of each, and notifies subscribers of changes. The
//! controllers share the informers, so that each kind is watched once.
//!
//! What is kept of a kind, and how its objects become facts, is up to its [`InformerStore`]. This module also has what all
//! requests to the API server share: the timeout and the parameters of patches.

mod store;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::Api;
use kube::api::PatchParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, chain};
use crate::health::{Health, HealthCheck};
pub(crate) use store::{Change, Facts, ObjectStore, key};

/// The name of the writer in `metadata.managedFields`.
const FIELD_MANAGER: &str = "pileus";

/// How long a request to the API server may take. The server's own limit for such requests is a minute. A request that a
/// broken network has swallowed must not block its object or a writer forever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of objects in a page of a list. Each page is held as text and as objects before it becomes facts. Nodes have
/// 12 kB each with their images, so a page is 1.2 MB of text; the 500 of Kubernetes' own clients would be 6 MB.
const PAGE_SIZE: u32 = 100;

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
}

/// The informer of one kind.
pub(crate) struct Informer<S: InformerStore> {
    /// The kind's name in the plural.
    kind: &'static str,
    check: HealthCheck,
    state: Mutex<State<S>>,
}

struct State<S: InformerStore> {
    store: S,
    subscribers: Vec<mpsc::UnboundedSender<Vec<Change<S::Facts>>>>,
}

impl<S: InformerStore> Informer<S> {
    /// An informer that knows no object before [`Informer::watch`] runs. The health check `check` shows the watch's state in
    /// `/readyz`.
    pub(crate) fn new(kind: &'static str, store: S, health: &Health, check: &str) -> Self {
        let reason = format!("the API server has not sent the list of {kind} yet");
        let state = Mutex::new(State { store, subscribers: Vec::new() });
        Self { kind, check: health.check(check, reason), state }
    }

    /// Lists and watches the objects until `stop`.
    pub(crate) async fn watch(&self, api: Api<S::Object>, stop: &CancellationToken) {
        // The stream has some kilobytes, which would be a part of every future that holds this one.
        let mut watch =
            Box::pin(watcher(api, watcher::Config::default().page_size(PAGE_SIZE)).default_backoff());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = watch.next() => self.on_event(event),
            }
        }
    }

    fn on_event(&self, event: Option<Result<watcher::Event<S::Object>, watcher::Error>>) {
        let Self { kind, check, .. } = self;
        match event {
            Some(Ok(event)) => {
                if matches!(event, watcher::Event::InitDone | watcher::Event::Apply(_)) {
                    check.pass();
                }
                self.update(|store| store.on_event(event));
            }
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(kind, %error, "watch interrupted; trying again");
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

/// The parameters of all patches.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// Sends a request to the API server, within [`REQUEST_TIMEOUT`]. A write that timed out may have been done all the same. The
/// next write then ends in a conflict, and the object is read again.
///
/// # Errors
/// [`Error::Unavailable`] after the timeout, else what the API server answers.
pub(crate) async fn with_timeout<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(Error::from),
        Err(_elapsed) => Err(Error::Unavailable(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

/// The result of a request, as a metric label.
pub(crate) fn result_label<T>(result: &Result<T, Error>) -> &'static str {
    result.as_ref().map_or_else(Error::as_str, |_| "ok")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_times_out() {
        let started = Instant::now();
        let error = with_timeout::<()>(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert_eq!(started.elapsed(), REQUEST_TIMEOUT);
    }
}
