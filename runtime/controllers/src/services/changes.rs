//! The changes of Services, and of what the provider reads about them, as one stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::endpoints::Slice;
use super::namespaces::Labelled;
use super::{Change, SharedServices};
use crate::facts::service::ServiceFacts;
use crate::informer;

/// A stream of changes. Each shows the present state, and so is never older than the change before it, or than the answer
/// to a write.
pub(crate) struct ChangeStream {
    shared: Arc<SharedServices>,
    services: Changes<ServiceFacts>,
    namespaces: Option<Changes<Labelled>>,
    slices: Option<Changes<Slice>>,
    /// Whether the first changes, which are all Services, have come.
    has_begun: bool,
    /// The Services of slices, by the slices' names: a slice that is gone doesn't name its Service.
    owners: HashMap<String, String>,
}

type Changes<F> = mpsc::UnboundedReceiver<Vec<informer::Change<F>>>;

impl ChangeStream {
    /// All that is known, and then each change.
    pub(super) fn of(shared: Arc<SharedServices>) -> Self {
        Self {
            services: shared.services.subscribe(),
            namespaces: shared.namespaces.as_ref().map(|informer| informer.subscribe()),
            slices: shared.slices.as_ref().map(|informer| informer.subscribe()),
            has_begun: false,
            owners: HashMap::new(),
            shared,
        }
    }

    /// The next changes; none at the end. Cancel safe: a change isn't lost if this is dropped before it returns.
    pub(crate) async fn next(&mut self) -> Option<Vec<Change>> {
        let names = tokio::select! {
            changes = self.services.recv() => {
                self.has_begun = true;
                changes?.into_iter().map(named).collect()
            }
            changes = recv_if_watched(self.namespaces.as_mut()), if self.has_begun => {
                let names: BTreeSet<_> = changes?.into_iter().map(named).collect();
                self.shared.services.read(|store| store.within(&names))
            }
            changes = recv_if_watched(self.slices.as_mut()), if self.has_begun => self.owners_of(changes?),
        };
        Some(self.shared.changes(names))
    }

    /// The kept Services that slices belong to or belonged to.
    fn owners_of(&mut self, changes: Vec<informer::Change<Slice>>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for change in changes {
            match change {
                informer::Change::Present(slice) => {
                    names.insert(slice.service.clone());
                    names.extend(self.owners.insert(slice.name.clone(), slice.service.clone()));
                }
                informer::Change::Gone(name) => names.extend(self.owners.remove(&name)),
            }
        }
        self.shared.services.read(|store| names.retain(|name| store.objects.get(name).is_some()));
        names
    }
}

fn named<F: informer::Facts>(change: informer::Change<F>) -> String {
    match change {
        informer::Change::Present(facts) => facts.key(),
        informer::Change::Gone(name) => name,
    }
}

/// The next changes; never any where nothing is watched.
async fn recv_if_watched<F>(changes: Option<&mut Changes<F>>) -> Option<Vec<informer::Change<F>>> {
    match changes {
        Some(changes) => changes.recv().await,
        None => std::future::pending().await,
    }
}
