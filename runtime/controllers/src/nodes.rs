//! The Nodes of the cluster: watched once for all controllers, kept as facts, and written through one door.
//!
//! What the API server answers to our own writes is news like what the watch tells, only sooner: whoever plans after a
//! write plans with what it left behind, however late the watch is.

mod store;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use ipnet::IpNet;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use pileus_cloud::ProviderId;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, chain};
use crate::facts::node::{Node, NodeFacts, Unreadable};
use crate::health::{Condition, Health};
use crate::metrics::Metrics;
pub(crate) use store::Change;
use store::Store;

/// Who writes, as `metadata.managedFields` shows it.
const FIELD_MANAGER: &str = "pileus";

/// How long an answer of the API server is waited for. Its own limit for such requests is a minute; a request that a
/// broken network has swallowed must not keep its Node, nor a writer, for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes that a controller writes at the same time. The API server takes about a thousand small writes a second from as many
/// writers; more only wait in its queue.
pub(crate) const WRITERS: usize = 16;

/// How long writes that are under way at the end are waited for.
pub(crate) const DRAIN: Duration = Duration::from_secs(25);

/// The Nodes. Clones share them.
#[derive(Clone)]
pub struct Nodes {
    shared: Arc<Shared>,
}

struct Shared {
    api: Api<Node>,
    metrics: Metrics,
    condition: Condition,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    store: Store,
    followers: Vec<mpsc::UnboundedSender<Vec<Change>>>,
}

impl State {
    /// Tells what has changed, together what came together.
    fn tell(&mut self, changes: &[Change]) {
        if !changes.is_empty() {
            self.followers.retain(|follower| follower.send(changes.to_vec()).is_ok());
        }
    }
}

/// The part of a Node that a write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Metadata and spec.
    Whole,
    /// The status, which is a resource of its own.
    Status,
}

impl Nodes {
    /// None yet: [`Nodes::watch`] brings them.
    pub fn new(client: Client, metrics: Metrics, health: &Health) -> Self {
        let condition = health.condition("node-watch", "the API server has not sent the list of nodes yet");
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { api: Api::all(client), metrics, condition, state }) }
    }

    /// Keeps up with the API server until it is told to stop.
    pub async fn watch(&self, stop: CancellationToken) {
        let config = watcher::Config::default();
        let mut watch = pin!(watcher(self.shared.api.clone(), config).default_backoff());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = watch.next() => self.observe(event),
            }
        }
    }

    /// Takes in what the watch says.
    fn observe(&self, event: Option<Result<watcher::Event<Node>, watcher::Error>>) {
        let condition = &self.shared.condition;
        let mut state = self.state();
        let changes = match event {
            Some(Ok(event)) => {
                if matches!(event, watcher::Event::InitDone | watcher::Event::Apply(_)) {
                    condition.holds();
                }
                take_in(&mut state.store, event)
            }
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(%error, "watch of nodes interrupted; trying again");
                let reason = format!("the watch of nodes is interrupted: {error}");
                if state.store.all().is_some() {
                    condition.is_troubled(reason, Instant::now());
                } else {
                    condition.fails(reason);
                }
                Vec::new()
            }
            None => {
                condition.fails("the watch of nodes has ended");
                Vec::new()
            }
        };
        state.tell(&changes);
    }

    /// All Nodes as they are known now; none before the first list is complete, which is not the same as no Node.
    pub(crate) fn all(&self) -> Option<Vec<Arc<NodeFacts>>> {
        self.state().store.all()
    }

    /// The ranges of Pod addresses of Nodes that nobody can work on, which are in no list of all.
    pub(crate) fn unreadable_ranges(&self) -> HashSet<IpNet> {
        self.state().store.unreadable_ranges().collect()
    }

    /// The machine of the last Node that bore this name and is gone, as far as is remembered.
    pub(crate) fn former_machine(&self, name: &str) -> Option<ProviderId> {
        self.state().store.former_machine(name).cloned()
    }

    /// What changes from now on, after all Nodes that are known. Nothing comes before the first list is complete, and
    /// then all of it at once, so that nobody starts on a part of it.
    pub(crate) fn follow(&self) -> mpsc::UnboundedReceiver<Vec<Change>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        if let Some(all) = state.store.all() {
            let present = all.into_iter().map(Change::Present).collect();
            drop(sender.send(present)); // the receiver is at hand
        }
        state.followers.push(sender);
        receiver
    }

    /// Writes to a Node, and returns it as it is then. `action` is what the metric calls it. The patch names the Node's
    /// UID, so that it can't hit another one that has taken the name meanwhile.
    pub(crate) async fn patch(
        &self,
        node: &NodeFacts,
        action: &'static str,
        part: Part,
        patch: &Patch<Value>,
    ) -> Result<Arc<NodeFacts>, Error> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = &self.shared.api;
        let written = match part {
            Part::Whole => answered(api.patch(&node.name, &params, patch)).await,
            Part::Status => answered(api.patch_status(&node.name, &params, patch)).await,
        };
        self.shared.metrics.wrote(action, label(&written));
        self.learn(written?)
    }

    /// Deletes a Node, if it is still exactly as these facts say: the same UID and resourceVersion.
    ///
    /// # Errors
    /// [`Error::Conflict`] where it has changed since, [`Error::Gone`] where nothing is left to delete.
    pub(crate) async fn delete(&self, node: &NodeFacts) -> Result<(), Error> {
        let preconditions = Preconditions {
            uid: Some(node.uid.clone()),
            resource_version: Some(node.resource_version.clone()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = self.shared.api.delete(&node.name, &params);
        let deleted = answered(request).await.map(drop);
        self.shared.metrics.wrote("delete", label(&deleted));
        deleted
    }

    /// Reads a Node anew, past any cache.
    pub(crate) async fn read(&self, node: &NodeFacts) -> Result<Arc<NodeFacts>, Error> {
        let found = self.learn(answered(self.shared.api.get(&node.name)).await?)?;
        if found.uid == node.uid { Ok(found) } else { Err(Error::Gone) }
    }

    /// Keeps what the API server answered.
    fn learn(&self, node: Node) -> Result<Arc<NodeFacts>, Error> {
        let facts = NodeFacts::read(node).map_err(|unreadable| Error::Refused(unreadable.to_string()))?;
        let facts = Arc::new(facts);
        let mut state = self.state();
        let change = state.store.learn(&facts);
        state.tell(change.as_slice());
        Ok(facts)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_in(store: &mut Store, event: watcher::Event<Node>) -> Vec<Change> {
    match event {
        watcher::Event::Init => {
            store.list_begins();
            Vec::new()
        }
        watcher::Event::InitApply(node) => {
            match readable(node) {
                Ok(facts) => store.listed(facts),
                Err(unreadable) => store.listed_unreadable(unreadable),
            }
            Vec::new()
        }
        watcher::Event::InitDone => store.list_ends(),
        watcher::Event::Apply(node) => match readable(node) {
            Ok(facts) => store.changed(facts).into_iter().collect(),
            Err(unreadable) => store.unreadable(unreadable).into_iter().collect(),
        },
        watcher::Event::Delete(node) => store.gone(&node.name_any()).into_iter().collect(),
    }
}

/// The facts of a Node, unless nobody can work on it.
fn readable(node: Node) -> Result<NodeFacts, Unreadable> {
    NodeFacts::read(node).inspect_err(|unreadable| tracing::warn!("{unreadable}; it is left alone"))
}

/// Makes writes, several at a time and in this order, and tells of each when it has been answered. Once it is told to stop
/// no write begins, and those that have begun are awaited. Whether all of them were answered.
pub(crate) async fn write_each<T, W: Future>(
    items: Vec<T>,
    stop: &CancellationToken,
    write: impl FnMut(T) -> W,
    mut answered: impl FnMut(W::Output),
) -> bool {
    let writes = stream::iter(items).take_while(|_| std::future::ready(!stop.is_cancelled()));
    let mut writes = pin!(writes.map(write).buffer_unordered(WRITERS));
    let mut last_moment = pin!(async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    });
    loop {
        tokio::select! {
            next = writes.next() => match next {
                Some(written) => answered(written),
                None => return true,
            },
            () = &mut last_moment => return false,
        }
    }
}

/// What the API server answers, unless it takes too long. A write that was given up may have been done all the same; the
/// next one then meets a conflict, and the Node is read again.
async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(Error::from),
        Err(_elapsed) => Err(Error::Unavailable(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn label<T>(written: &Result<T, Error>) -> &'static str {
    written.as_ref().map_or_else(Error::as_str, |_| "ok")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_given_up() {
        let started = Instant::now();
        let error = answered::<Node>(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert_eq!(started.elapsed(), PATIENCE);
    }
}
