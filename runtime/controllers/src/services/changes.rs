//! What changes of Services, and around them what the provider reads, as one stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::endpoints::Slice;
use super::namespaces::Labelled;
use super::{Change, Shared};
use crate::facts::service::ServiceFacts;
use crate::objects::{self, Watched};

/// What changes, one after the other. What is told is always how things stand at the moment, and so never older than what
/// was told before, or than the answer to a write.
pub(crate) struct ChangeStream {
    shared: Arc<Shared>,
    services: Changes<ServiceFacts>,
    namespaces: Option<Changes<Labelled>>,
    slices: Option<Changes<Slice>>,
    /// Whether all Services have been told.
    has_begun: bool,
    /// The Services of slices, by the slices' names: of one that is gone nothing else is told.
    belongs: HashMap<String, String>,
}

type Changes<F> = mpsc::UnboundedReceiver<Vec<objects::Change<F>>>;

impl ChangeStream {
    /// All that is known, and then what changes from now on.
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self {
            services: shared.services.follow(),
            namespaces: shared.namespaces.as_ref().map(Watched::follow),
            slices: shared.slices.as_ref().map(Watched::follow),
            has_begun: false,
            belongs: HashMap::new(),
            shared,
        }
    }

    /// What comes next; none at the end. Nothing is lost where this is given up before it returns.
    pub(crate) async fn next(&mut self) -> Option<Vec<Change>> {
        let names = tokio::select! {
            changes = self.services.recv() => {
                self.has_begun = true;
                changes?.into_iter().map(named).collect()
            }
            changes = maybe(self.namespaces.as_mut()), if self.has_begun => {
                let names: BTreeSet<_> = changes?.into_iter().map(named).collect();
                self.shared.services.look(|store| store.within(&names))
            }
            changes = maybe(self.slices.as_mut()), if self.has_begun => self.behind(changes?),
        };
        Some(self.shared.changes(names))
    }

    /// The Services that are kept to which slices belong or belonged.
    fn behind(&mut self, changes: Vec<objects::Change<Slice>>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for change in changes {
            match change {
                objects::Change::Present(slice) => {
                    names.insert(slice.service.clone());
                    names.extend(self.belongs.insert(slice.name.clone(), slice.service.clone()));
                }
                objects::Change::Gone(name) => names.extend(self.belongs.remove(&name)),
            }
        }
        self.shared.services.look(|store| names.retain(|name| store.kept.get(name).is_some()));
        names
    }
}

fn named<F: objects::Facts>(change: objects::Change<F>) -> String {
    match change {
        objects::Change::Present(facts) => facts.key(),
        objects::Change::Gone(name) => name,
    }
}

/// What there is to receive; nothing ever where nothing is followed.
async fn maybe<F>(changes: Option<&mut Changes<F>>) -> Option<Vec<objects::Change<F>>> {
    match changes {
        Some(changes) => changes.recv().await,
        None => std::future::pending().await,
    }
}
