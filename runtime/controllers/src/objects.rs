//! Objects of the API server of one kind: watched, kept as facts, told to those who follow them, and the terms on which
//! they are written.
//!
//! What is kept of a kind, and how its objects become facts, is said by its [`Keep`].

mod kept;

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
use crate::health::{Condition, Health};
pub(crate) use kept::{Change, Facts, Kept, key};

/// Who writes, as `metadata.managedFields` shows it.
const FIELD_MANAGER: &str = "pileus";

/// How long an answer of the API server is waited for. Its own limit for such requests is a minute; a request that a
/// broken network has swallowed must not keep its object, nor a writer, for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many objects a page of a list has. Each page is held as text and as objects before it becomes facts: of Nodes with
/// their images, 12 kB each, that is 1.2 MB of text. The 500 that Kubernetes' own clients ask for would be 6 MB.
const PAGE: u32 = 100;

/// How the objects of one kind are kept.
pub(crate) trait Keep: Send {
    /// An object, as the API server sends it.
    type Object: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static;
    /// What is kept of it.
    type Facts: Facts + Clone;

    /// Takes in what the watch says. What has changed by it.
    fn take_in(&mut self, event: watcher::Event<Self::Object>) -> Vec<Change<Self::Facts>>;

    /// The objects.
    fn kept(&self) -> &Kept<Self::Facts>;
}

/// The objects of one kind, as far as they are kept.
pub(crate) struct Watched<K: Keep> {
    /// What they are called, in the plural.
    kind: &'static str,
    condition: Condition,
    state: Mutex<State<K>>,
}

struct State<K: Keep> {
    keep: K,
    followers: Vec<mpsc::UnboundedSender<Vec<Change<K::Facts>>>>,
}

impl<K: Keep> Watched<K> {
    /// None yet. `/readyz` shows by `condition` whether the watch is well.
    pub(crate) fn new(kind: &'static str, keep: K, health: &Health, condition: &str) -> Self {
        let reason = format!("the API server has not sent the list of {kind} yet");
        let state = Mutex::new(State { keep, followers: Vec::new() });
        Self { kind, condition: health.condition(condition, reason), state }
    }

    /// Keeps up with the API server until it is told to stop.
    pub(crate) async fn watch(&self, api: Api<K::Object>, stop: &CancellationToken) {
        // Some kilobytes, which whoever holds this future, or several, need not hold.
        let mut watch = Box::pin(watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = watch.next() => self.observe(event),
            }
        }
    }

    /// Takes in what the watch says.
    fn observe(&self, event: Option<Result<watcher::Event<K::Object>, watcher::Error>>) {
        let Self { kind, condition, .. } = self;
        match event {
            Some(Ok(event)) => {
                if matches!(event, watcher::Event::InitDone | watcher::Event::Apply(_)) {
                    condition.holds();
                }
                self.update(|keep| keep.take_in(event));
            }
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(%error, "watch of {kind} interrupted; trying again");
                let reason = format!("the watch of {kind} is interrupted: {error}");
                if self.look(|keep| keep.kept().is_synced()) {
                    condition.is_troubled(reason, Instant::now());
                } else {
                    condition.fails(reason);
                }
            }
            None => condition.fails(format!("the watch of {kind} has ended")),
        }
    }

    /// What is kept at this moment.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&K) -> T) -> T {
        look(&self.state().keep)
    }

    /// Changes what is kept, and tells followers what has changed, together what came together.
    pub(crate) fn update(&self, update: impl FnOnce(&mut K) -> Vec<Change<K::Facts>>) {
        let mut state = self.state();
        let was_synced = state.keep.kept().is_synced();
        let changes = update(&mut state.keep);
        if !changes.is_empty() || was_synced != state.keep.kept().is_synced() {
            state.followers.retain(|follower| follower.send(changes.clone()).is_ok());
        }
    }

    /// What changes from now on, after all that is known. Nothing comes before the first list is complete, and then all
    /// of it at once, also where it is empty, so that nobody starts on a part of it.
    pub(crate) fn follow(&self) -> mpsc::UnboundedReceiver<Vec<Change<K::Facts>>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        if let Some(all) = state.keep.kept().all() {
            let present = all.into_iter().map(Change::Present).collect();
            drop(sender.send(present)); // the receiver is at hand
        }
        state.followers.push(sender);
        receiver
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How patches are sent.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// What the API server answers, unless it takes too long. A write that was given up may have been done all the same; the
/// next one then meets a conflict, and the object is read again.
pub(crate) async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(Error::from),
        Err(_elapsed) => Err(Error::Unavailable(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// What became of a write, as a metric label.
pub(crate) fn label<T>(written: &Result<T, Error>) -> &'static str {
    written.as_ref().map_or_else(Error::as_str, |_| "ok")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_given_up() {
        let started = Instant::now();
        let error = answered::<()>(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert_eq!(started.elapsed(), PATIENCE);
    }
}
