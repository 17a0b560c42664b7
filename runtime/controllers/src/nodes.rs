//! The Nodes of the cluster: watched once for all controllers, kept as facts, and written through one door.
//!
//! What the API server answers to our own writes is news like what the watch tells, only sooner: whoever plans after a
//! write plans with what it left behind, however late the watch is.

mod store;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use ipnet::IpNet;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client};
use pileus_cloud::ProviderId;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster;
use crate::error::Error;
use crate::facts::node::{Node, NodeFacts};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::objects::{self, Watched, answered, label, patch_params};
use store::Store;

/// Something that followers are told.
pub(crate) type Change = objects::Change<NodeFacts>;

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
    watched: Watched<Store>,
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
        let watched = Watched::new("nodes", Store::default(), health, "node-watch");
        Self { shared: Arc::new(Shared { api: Api::all(client), metrics, watched }) }
    }

    /// Keeps up with the API server until it is told to stop.
    pub async fn watch(&self, stop: CancellationToken) {
        self.shared.watched.watch(self.shared.api.clone(), &stop).await;
    }

    /// All Nodes as they are known now; none before the first list is complete, which is not the same as no Node.
    pub(crate) fn all(&self) -> Option<Vec<Arc<NodeFacts>>> {
        self.shared.watched.look(|store| store.kept.all())
    }

    /// The ranges of Pod addresses of Nodes that nobody can work on, which are in no list of all.
    pub(crate) fn unreadable_ranges(&self) -> HashSet<IpNet> {
        self.shared.watched.look(|store| store.unreadable_ranges().collect())
    }

    /// The machine of the last Node that bore this name and is gone, as far as is remembered.
    pub(crate) fn former_machine(&self, name: &str) -> Option<ProviderId> {
        self.shared.watched.look(|store| store.former_machine(name).cloned())
    }

    /// What changes from now on, after all Nodes that are known.
    pub(crate) fn follow(&self) -> mpsc::UnboundedReceiver<Vec<Change>> {
        self.shared.watched.follow()
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
        let (api, params) = (&self.shared.api, patch_params());
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

    /// Whether the API server is still that of the cluster with this UID, see [`cluster::confirm`].
    pub(crate) async fn confirm_cluster(&self, uid: Option<&str>) -> Result<(), Error> {
        cluster::confirm(&self.shared.api.clone().into_client(), uid).await
    }

    /// Keeps what the API server answered.
    fn learn(&self, node: Node) -> Result<Arc<NodeFacts>, Error> {
        let facts = NodeFacts::read(node).map_err(|unreadable| Error::Refused(unreadable.to_string()))?;
        let facts = Arc::new(facts);
        self.shared.watched.update(|store| store.kept.learn(&facts).into_iter().collect());
        Ok(facts)
    }
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
