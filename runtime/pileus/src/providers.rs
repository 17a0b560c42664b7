//! The providers of this process. Each has a document, which is the operator's file or a resource of the API server, and releases
//! of its own with their gate and controllers. Adding one, changing it and removing it disturbs no other.

mod announce;
mod ending;
mod file;
mod resources;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use pileus_controllers::{Health, HealthCheck};
use pileus_gate::Gate;
use pileus_host::swap::Order;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::document::{CloudProvider, DocumentOrigin};
use crate::error::Error;
use crate::leader::LeaseEnd;
use crate::leading::Leading;
use crate::recorded::Recorded;
use crate::releases::{Comparison, Input, Record, ReleaseDeps, Releases, Shown};
use crate::working::{WorkDeps, Working};
pub(crate) use announce::Announcer;
use ending::{drain, in_turn};
pub(crate) use file::FollowedFile;
pub(crate) use resources::{FollowedResources, api_resource};

/// What all providers of a process share.
pub(crate) struct ProviderDeps {
    pub(crate) releases: Arc<ReleaseDeps>,
    pub(crate) work: Arc<WorkDeps>,
    pub(crate) comparison: Comparison,
    pub(crate) health: Health,
    pub(crate) announcer: Announcer,
}

/// Where the documents come from.
pub(crate) enum Documents {
    /// The operator's file.
    File(Box<FollowedFile>),
    /// The resources of the API server.
    Resources(Box<FollowedResources>),
}

/// What is new about the documents.
pub(crate) enum DocumentChange {
    /// The document is so.
    Present(Box<PresentDocument>),
    /// The provider of this name has no document any more.
    Gone(String),
    /// All documents that exist have been reported. Comes once.
    Listed,
}

/// A document with what belongs to it.
pub(crate) struct PresentDocument {
    pub(crate) name: String,
    /// Of the resource.
    pub(crate) uid: Option<String>,
    /// When the document was made. Of two that claim the same, the older one stands.
    pub(crate) created_at: Timestamp,
    /// Why it can't be used; the former one stays.
    pub(crate) document: Result<CloudProvider, String>,
    /// Grows with each change, where the API server counts them.
    pub(crate) generation: Option<u64>,
    /// What its status says, where it has one.
    pub(crate) recorded: Option<Recorded>,
    pub(crate) order: Option<Order>,
}

/// The gates of the providers that serve calls, by name.
pub(crate) type Gates = BTreeMap<String, Gate>;

/// The providers of a process.
pub(crate) struct Providers {
    deps: Arc<ProviderDeps>,
    documents: Documents,
    units: BTreeMap<String, Unit>,
    /// The ends of providers without a document, whose controllers may still finish what they have begun.
    leaving: BTreeMap<String, CancellationToken>,
    tasks: JoinSet<Result<(), Error>>,
    gates: watch::Sender<Gates>,
    /// Fails until each provider that has a document has a check of its own.
    starting: Option<HealthCheck>,
}

/// One provider.
struct Unit {
    inputs: mpsc::UnboundedSender<Input>,
    /// Of the resource.
    uid: Option<String>,
    /// Cancelled when all its tasks have ended.
    ended: CancellationToken,
}

impl Providers {
    /// No provider yet.
    pub(crate) fn new(
        deps: ProviderDeps,
        documents: Documents,
        gates: watch::Sender<Gates>,
        starting: HealthCheck,
    ) -> Self {
        let (units, leaving, tasks) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        Self { deps: Arc::new(deps), documents, units, leaving, tasks, gates, starting: Some(starting) }
    }

    /// Whether the documents are known without the cluster.
    pub(crate) fn is_file(&self) -> bool {
        self.documents.is_file()
    }

    /// Follows the gates of the providers that serve calls.
    pub(crate) fn gates(&self) -> watch::Receiver<Gates> {
        self.gates.subscribe()
    }

    /// Runs the providers until the stop, and says how the lease may end then: whether everything that was begun has ended.
    ///
    /// # Errors
    /// Why the provider of the operator's file can't serve at all.
    pub(crate) async fn run(
        mut self,
        mut leading: watch::Receiver<Option<Leading>>,
        stop: &CancellationToken,
    ) -> Result<LeaseEnd, Error> {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => match ended {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
                Ok(()) = leading.changed() => {
                    let now = *leading.borrow_and_update();
                    for unit in self.units.values() {
                        unit.lead(now);
                    }
                }
                change = self.documents.next() => self.on_change(change, *leading.borrow()),
            }
        }
        Ok(self.stop().await)
    }

    fn on_change(&mut self, change: DocumentChange, leading: Option<Leading>) {
        let present = match change {
            DocumentChange::Present(present) => *present,
            DocumentChange::Gone(name) => {
                tracing::info!(provider = %name, "the provider has no document any more: its controllers stop");
                return self.end(&name);
            }
            DocumentChange::Listed => return self.starting = None,
        };
        let PresentDocument { name, uid, created_at, document, generation, recorded, order } = present;
        if self.units.get(&name).is_some_and(|unit| unit.uid != uid) {
            tracing::info!(provider = %name, "the CloudProvider was deleted and made anew");
            self.end(&name);
        }
        if !self.units.contains_key(&name) {
            let Some(record) = self.record(&name, document.as_ref().ok()) else { return };
            let unit = self.start(&name, (uid, created_at), record);
            unit.lead(leading);
            self.units.insert(name.clone(), unit);
        }
        let Some(unit) = self.units.get(&name) else { return };
        // The status first: what is active is never chosen again.
        let inputs = [
            recorded.map(|recorded| Input::Recorded(Box::new(recorded))),
            Some(match document {
                Ok(document) => Input::Document { generation, document: Arc::new(document) },
                Err(problems) => Input::InvalidDocument(problems),
            }),
            order.map(Input::Ordered),
        ];
        for input in inputs.into_iter().flatten() {
            // Its task has ended only where the process ends.
            let _received = unit.inputs.send(input);
        }
    }

    /// Lets a provider end. One of the same name begins only afterward: two must not write one load balancer.
    fn end(&mut self, name: &str) {
        let Some(unit) = self.units.remove(name) else { return };
        self.leaving.insert(name.to_owned(), unit.ended);
        if let Some(store) = &self.deps.releases.store
            && let Err(error) = store.pin(name, &[])
        {
            tracing::warn!(provider = %name, %error, "the store can't note that the components aren't in use any more");
        }
    }

    /// The place where the status of a provider's releases is kept. A file that serves as component is read at each start, so
    /// nothing about it needs to be kept.
    fn record(&self, name: &str, document: Option<&CloudProvider>) -> Option<Record> {
        if let Documents::Resources(resources) = &self.documents {
            return Some(resources.record(name));
        }
        let of_store =
            |store: &pileus_loader::Store| Record::Store { store: store.clone(), provider: name.to_owned() };
        let store =
            self.deps.releases.store.as_ref().filter(|_| document.is_some_and(CloudProvider::is_image));
        document.map(|_| store.map_or(Record::Memory, of_store))
    }

    fn start(&mut self, name: &str, (uid, created_at): (Option<String>, Timestamp), record: Record) -> Unit {
        let ProviderDeps { releases, work, comparison, health, announcer } = &*self.deps;
        let working = Working::new(Arc::clone(work), name, created_at, health);
        let origin = self.documents.origin();
        let releases = Releases::new(name, Arc::clone(releases), origin, record, working, comparison.clone());
        let (inputs, receiver) = mpsc::unbounded_channel();
        let shown = releases.shown();
        let check = health.part().check(format!("provider-{name}"), "it is being loaded");
        let unit = Unit { inputs, uid: uid.clone(), ended: CancellationToken::new() };
        let former = self.leaving.remove(name);
        let announcing = announcer.clone().follow((name.to_owned(), uid), shown.clone(), check);
        let showing = show_gate(name.to_owned(), shown, self.gates.clone());
        let tasks: [BoxFuture<'static, _>; 3] =
            [Box::pin(announcing), Box::pin(showing), Box::pin(releases.run(receiver))];
        for task in in_turn(tasks, former.as_ref(), unit.ended.clone()) {
            self.tasks.spawn(task);
        }
        unit
    }

    /// Stops all providers. Their gates take no more requests, and what has begun is awaited.
    async fn stop(&mut self) -> LeaseEnd {
        let gates: Vec<_> = self.gates.borrow().values().cloned().collect();
        let (units, mut tasks) = (std::mem::take(&mut self.units), std::mem::take(&mut self.tasks));
        let end_all = async move {
            drop(units);
            while let Some(ended) = tasks.join_next().await {
                if let Ok(Err(error)) = ended {
                    tracing::warn!(%error, "a provider did not stop as it should");
                }
            }
        };
        drain(&gates, end_all).await
    }
}

impl Unit {
    fn lead(&self, leading: Option<Leading>) {
        if let Some(leading) = leading {
            let _received = self.inputs.send(Input::Leads(leading));
        }
    }
}

/// Shows the gate of a provider among those of the process, as long as it has one.
async fn show_gate(
    name: String,
    mut shown: watch::Receiver<Shown>,
    gates: watch::Sender<Gates>,
) -> Result<(), Error> {
    loop {
        let gate = shown.borrow_and_update().gate.clone();
        gates.send_if_modified(|gates| match gate {
            Some(gate) => gates.insert(name.clone(), gate.clone()).is_none_or(|before| !before.is(&gate)),
            None => gates.remove(&name).is_some(),
        });
        if shown.changed().await.is_err() {
            break;
        }
    }
    gates.send_if_modified(|gates| gates.remove(&name).is_some());
    Ok(())
}

impl Documents {
    /// Whether they are known without the cluster.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Waits for a change.
    async fn next(&mut self) -> DocumentChange {
        match self {
            Self::File(file) => file.next().await,
            Self::Resources(resources) => resources.next().await,
        }
    }

    /// What references in the documents are resolved with.
    fn origin(&self) -> DocumentOrigin {
        match self {
            Self::File(file) => file.origin(),
            Self::Resources(resources) => resources.origin(),
        }
    }
}
