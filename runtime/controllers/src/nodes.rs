//! The Nodes of the cluster, watched once for all controllers of all providers and kept as facts. All writes to Nodes go
//! through here, too.
//!
//! The response to a write updates the known Node at once. So a controller that plans after a write plans with what the
//! write left behind, however late the watch is.

mod confirmations;
mod identities;
mod store;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use ipnet::IpNet;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client};
use pileus_cloud::ProviderId;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::claims::Claims;
use crate::cluster;
use crate::error::Error;
use crate::facts::node::{Node, NodeFacts};
use crate::health::Health;
use crate::informer::{
    self, Informer, InformerStore as _, StoreHistory, Watch, patch_params, result_label, with_timeout,
};
use crate::metrics::Metrics;
pub(crate) use confirmations::Confirmations;
pub(crate) use identities::{Conflict, ips, is_live};
use store::Store;

/// A change to a Node that subscribers receive.
pub(crate) type Change = informer::Change<NodeFacts>;

/// The number of objects that a controller writes at the same time. The API server takes about a thousand small writes a
/// second from this many writers; more writers only wait in its queue.
pub(crate) const CONCURRENT_WRITES: usize = 16;

/// How long a controller that stops waits for its writes in flight.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// The Nodes of the cluster. Clones share them.
#[derive(Clone)]
pub struct Nodes {
    inner: Arc<Inner>,
}

struct Inner {
    api: Api<Node>,
    metrics: Metrics,
    watch: Arc<Watch<Store>>,
    informer: Arc<Informer<Store>>,
    /// By the provider's name.
    confirmations: Mutex<BTreeMap<String, Arc<Confirmations>>>,
}

/// Where a patch of a Node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchTarget {
    /// The Node's main resource, which has metadata and spec.
    Object,
    /// The subresource `status`.
    Status,
}

impl Nodes {
    /// No Node is known before [`Nodes::watch`] runs. No Node belongs to a provider before [`Nodes::set_claims`].
    pub fn new(client: Client, metrics: Metrics, health: &Health, history: &StoreHistory) -> Self {
        let watch = Watch::new("nodes", Api::all(client.clone()), &metrics, history);
        Self::watched(client, metrics, watch, health)
    }

    /// As [`Nodes::new`], of which only the one with this name is ever known.
    pub fn of_one(
        client: Client,
        metrics: Metrics,
        health: &Health,
        history: &StoreHistory,
        name: &str,
    ) -> Self {
        let watch = Watch::new("nodes", Api::all(client.clone()), &metrics, history);
        Self::watched(client, metrics, watch.selecting(format!("metadata.name={name}")), health)
    }

    fn watched(client: Client, metrics: Metrics, watch: Watch<Store>, health: &Health) -> Self {
        let watch = Arc::new(watch);
        let informer = Informer::new(&watch, Store::default(), health, "node-watch");
        informer.join_watch();
        let confirmations = Mutex::default();
        Self { inner: Arc::new(Inner { api: Api::all(client), metrics, watch, informer, confirmations }) }
    }

    /// Sets the claims of the providers that run. Controllers that run see each Node whose owner changes as changed. The claim
    /// of a provider has to be there before its controllers start, and until they have ended.
    pub fn set_claims(&self, claims: Claims) {
        self.inner.informer.update(|store| store.set_claims(claims));
    }

    /// Lists and watches the Nodes until `stop`.
    pub async fn watch(&self, stop: CancellationToken) {
        self.inner.watch.run(&stop).await;
    }

    /// All Nodes as they are known now. `None` before the first list is complete, and while the provider of this name has no
    /// claim: to know no Node of the provider is not the same as that it has no Nodes.
    pub(crate) fn all(&self, provider: &str) -> Option<Vec<Arc<NodeFacts>>> {
        self.inner.informer.read(|store| store.objects().all().filter(|_| store.has_claim(provider)))
    }

    /// All Nodes as they are known now, with the owners that they would have under these claims. `None` before the first list
    /// is complete.
    pub fn all_under(&self, claims: &Claims) -> Option<Vec<Arc<NodeFacts>>> {
        self.inner.informer.read(|store| store.all_under(claims))
    }

    /// The Pod CIDRs of Nodes that can't be read, and so are missing in what this store returns.
    pub fn unreadable_ranges(&self) -> HashSet<IpNet> {
        self.inner.informer.read(|store| store.unreadable_ranges().collect())
    }

    /// The provider ID of the last Node with this name that is gone, if it is remembered.
    pub(crate) fn former_instance(&self, name: &str) -> Option<ProviderId> {
        self.inner.informer.read(|store| store.former_instance(name).cloned())
    }

    /// The Node with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<NodeFacts>> {
        self.inner.informer.read(|store| store.get(name).cloned())
    }

    /// What a Node can't have, because another Node has it: the provider ID of the instance that the cloud gives for it, or one of
    /// the internal addresses.
    pub(crate) fn conflict(
        &self,
        node: &NodeFacts,
        id: &ProviderId,
        internal: &[IpAddr],
    ) -> Option<Conflict> {
        self.inner.informer.read(|store| store.identities.conflict(node, id, internal))
    }

    /// The name of a Node with this internal or external address.
    pub(crate) fn with_address(&self, ip: IpAddr) -> Option<String> {
        self.inner.informer.read(|store| store.identities.node_with(ip).map(str::to_owned))
    }

    /// What the cloud of the provider of this name has said about the instances of the Nodes.
    pub(crate) fn confirmations(&self, provider: &str) -> Arc<Confirmations> {
        let mut all = self.inner.confirmations.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(provider.to_owned()).or_default())
    }

    /// Subscribes to changes, see [`Informer::subscribe`].
    pub(crate) fn subscribe(&self) -> mpsc::UnboundedReceiver<Vec<Change>> {
        self.inner.informer.subscribe()
    }

    /// Patches a Node and returns it as it is then. `action` is the write's name in the metric. The patch has the Node's UID, so
    /// that it can't change another Node that has taken the name meanwhile.
    pub(crate) async fn patch(
        &self,
        node: &NodeFacts,
        action: &'static str,
        target: PatchTarget,
        patch: &Patch<Value>,
    ) -> Result<Arc<NodeFacts>, Error> {
        let (api, params) = (&self.inner.api, patch_params());
        let written = match target {
            PatchTarget::Object => with_timeout(api.patch(&node.name, &params, patch)).await,
            PatchTarget::Status => with_timeout(api.patch_status(&node.name, &params, patch)).await,
        };
        self.inner.metrics.count_write(action, result_label(&written));
        self.on_response(written?)
    }

    /// Deletes a Node if it is unchanged: it still has the UID and resourceVersion of these facts.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the Node has changed, [`Error::Gone`] where it no longer exists.
    pub(crate) async fn delete(&self, node: &NodeFacts) -> Result<(), Error> {
        let preconditions = Preconditions {
            uid: Some(node.uid.clone()),
            resource_version: Some(node.resource_version.clone()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = self.inner.api.delete(&node.name, &params);
        let deleted = with_timeout(request).await.map(drop);
        self.inner.metrics.count_write("delete", result_label(&deleted));
        deleted
    }

    /// Reads a Node from the API server.
    pub(crate) async fn read(&self, node: &NodeFacts) -> Result<Arc<NodeFacts>, Error> {
        let found = self.on_response(with_timeout(self.inner.api.get(&node.name)).await?)?;
        if found.uid == node.uid { Ok(found) } else { Err(Error::Gone) }
    }

    /// Confirms that the API server still serves the cluster with this UID, see [`cluster::confirm`], and that its store is not
    /// older than what is known: a Node that a restored backup lacks may exist.
    pub(crate) async fn confirm_cluster(&self, uid: Option<&str>) -> Result<(), Error> {
        let Inner { api, informer, .. } = &*self.inner;
        let client = api.clone().into_client();
        tokio::try_join!(cluster::confirm(&client, uid), informer.confirm_history()).map(drop)
    }

    /// Updates what is known with a Node from a response.
    fn on_response(&self, node: Node) -> Result<Arc<NodeFacts>, Error> {
        let facts = self.inner.informer.read(|store| store.read(node));
        let facts = facts.map_err(|unreadable| Error::Refused(unreadable.to_string()))?;
        let mut kept = Arc::new(facts);
        self.inner.informer.update(|store| {
            let (now, changes) = store.on_write_response(Arc::clone(&kept));
            kept = now;
            changes
        });
        Ok(kept)
    }
}

/// Makes writes in this order, several at a time, and passes the result of each to `on_result`. After `stop` no write begins,
/// and the writes in flight are awaited for [`DRAIN_TIMEOUT`]. Returns whether all of them were answered.
pub(crate) async fn write_each<T, W: Future>(
    items: Vec<T>,
    stop: &CancellationToken,
    write: impl FnMut(T) -> W,
    mut on_result: impl FnMut(W::Output),
) -> bool {
    let writes = stream::iter(items).take_while(|_| std::future::ready(!stop.is_cancelled()));
    let mut writes = pin!(writes.map(write).buffer_unordered(CONCURRENT_WRITES));
    let mut drain_deadline = pin!(async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    });
    loop {
        tokio::select! {
            next = writes.next() => match next {
                Some(written) => on_result(written),
                None => return true,
            },
            () = &mut drain_deadline => return false,
        }
    }
}
