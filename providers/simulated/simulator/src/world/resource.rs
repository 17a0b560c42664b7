//! Resources with long operations: an operation begins, and ends later with success or failure. Meanwhile other writes are
//! refused as busy, and a deletion keeps the name until it has ended. Each change of a resource gives it a new etag, so that
//! a write can name the state that it is based on.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::history::History;
use super::listing::Listable;
use super::write::{Precondition, Write, WriteFaults, WriteResult};
use crate::refusal::Refusal;

/// The error of a resource whose operation has failed at its end.
const LATE_FAILURE: &str = "the operation failed after it had begun; write or delete it again";

/// A kind of resources.
pub trait ResourceKind {
    /// The name of one in messages.
    const NOUN: &'static str;
    /// The field of a list in a response.
    const PLURAL: &'static str;

    /// The approximate length of a long resource in the response, in bytes; 0 for kinds that are always short.
    fn length(&self) -> usize {
        0
    }
}

/// The state of a resource's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It is being created.
    Creating,
    /// It is being changed, and already shows the written fields.
    Updating,
    /// It is being deleted. Its name stays in use.
    Deleting,
    /// It is as shown.
    Active,
    /// Its last operation has failed. A write or a deletion begins a new one.
    Failed,
}

impl Phase {
    /// Whether an operation is in progress.
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Creating | Self::Updating | Self::Deleting)
    }

    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Updating => "updating",
            Self::Deleting => "deleting",
            Self::Active => "active",
            Self::Failed => "failed",
        }
    }
}

/// Identifies one state of a resource. Each change makes a new one, including the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag(u64);

impl fmt::Display for Etag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "e{}", self.0)
    }
}

impl Serialize for Etag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A resource, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource<T> {
    /// Its name. No two of a kind have the same at the same time.
    pub name: String,
    /// The state of its operation.
    pub state: Phase,
    /// The error, where its operation has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its etag.
    pub etag: Etag,
    /// Its fields as they were written.
    #[serde(flatten)]
    pub spec: Arc<T>,
    /// The operation in progress.
    #[serde(skip)]
    operation: Option<Operation>,
}

impl<T> Resource<T> {
    /// A copy with another spec, which is only shown.
    pub(super) fn with_spec(&self, spec: T) -> Self {
        let Self { name, state, error, etag, spec: _, operation } = self;
        let (name, error, spec) = (name.clone(), error.clone(), Arc::new(spec));
        Self { name, state: *state, error, etag: *etag, spec, operation: *operation }
    }
}

impl<T: ResourceKind> Listable for Resource<T> {
    const PLURAL: &'static str = T::PLURAL;

    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> usize {
        self.spec.length()
    }
}

/// When an operation ends, and whether it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    due: Duration,
    fails: bool,
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<T> {
    /// The resource afterwards, or its last state.
    pub(super) resource: Arc<Resource<T>>,
    /// Whether it is deleted.
    pub(super) is_deleted: bool,
}

/// All resources of one kind, with their past.
#[derive(Clone, Debug)]
pub struct Resources<T> {
    history: History<Resource<T>>,
    names: HashMap<String, u64>,
    /// The number of the last resource that was created.
    last: u64,
    /// The number of the last etag.
    etags: u64,
    /// When operations end, with the number of their resource. Replaced operations stay here and are ignored.
    due: BTreeSet<(Duration, u64)>,
}

impl<T> Default for Resources<T> {
    fn default() -> Self {
        let history = History::default();
        Self { history, names: HashMap::new(), last: 0, etags: 0, due: BTreeSet::new() }
    }
}

impl<T: ResourceKind + Clone + PartialEq> Resources<T> {
    /// The resources with their past.
    pub(super) fn history(&self) -> &History<Resource<T>> {
        &self.history
    }

    /// The resource of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Resource<T>>> {
        self.history.current(*self.names.get(name)?)
    }

    /// The resource of this name.
    pub(super) fn present(&self, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        self.find(name).cloned().ok_or_else(|| Refusal::NotFound(format!("{} {name}", T::NOUN)))
    }

    /// Checks whether a write or a deletion is possible now.
    ///
    /// # Errors
    /// [`Refusal::Stale`] where the precondition doesn't hold, [`Refusal::Preempted`] where it held until just before,
    /// [`Refusal::Busy`] where an operation is in progress.
    pub(super) fn admit(&mut self, now: Duration, name: &str, write: &Write) -> Result<(), Refusal> {
        let Write { precondition, write_faults } = write;
        let noun = T::NOUN;
        let current = self.find(name).cloned();
        precondition.check(noun, name, current.as_ref().map(|it| it.etag))?;
        if write_faults.is_preempted && *precondition != Precondition::None {
            if let Some(it) = &current {
                self.keep(now, Resource::clone(it));
            }
            return Err(Refusal::Preempted(format!(
                "another client has just written {noun} {name}; read it again"
            )));
        }
        match current.filter(|it| it.state.is_busy()) {
            Some(it) if it.state == Phase::Deleting || !write_faults.overtakes => {
                let state = it.state.as_str();
                Err(Refusal::Busy(format!("{noun} {name} is {state}; retry when that has ended")))
            }
            _ => Ok(()),
        }
    }

    /// Makes a write that [`Resources::admit`] has checked. An operation that takes no time ends with the next
    /// [`Resources::finish_due`].
    pub(super) fn write(
        &mut self,
        now: Duration,
        name: &str,
        spec: T,
        write_faults: WriteFaults,
    ) -> WriteResult<T> {
        let operation =
            Some(Operation { due: now.saturating_add(write_faults.takes), fails: write_faults.fails });
        let spec = Arc::new(spec);
        match self.find(name).cloned() {
            // A failed resource with the same fields is written again.
            Some(it) if it.spec == spec && it.state == Phase::Active => WriteResult::Unchanged(it),
            Some(it) => {
                let next =
                    Resource { state: Phase::Updating, error: None, spec, operation, ..Resource::clone(&it) };
                WriteResult::Updated(self.keep(now, next))
            }
            None => {
                self.last += 1;
                self.names.insert(name.to_owned(), self.last);
                let (name, state, etag) = (name.to_owned(), Phase::Creating, Etag(0));
                WriteResult::Created(
                    self.keep(now, Resource { name, state, error: None, etag, spec, operation }),
                )
            }
        }
    }

    /// Begins a deletion that [`Resources::admit`] has checked.
    pub(super) fn delete(
        &mut self,
        now: Duration,
        name: &str,
        write_faults: WriteFaults,
    ) -> Result<(), Refusal> {
        let it = self.present(name)?;
        let operation =
            Some(Operation { due: now.saturating_add(write_faults.takes), fails: write_faults.fails });
        let state = Phase::Deleting;
        self.keep(now, Resource { state, error: None, operation, ..Resource::clone(&it) });
        Ok(())
    }

    /// Ends the operations that are due.
    pub(super) fn finish_due(&mut self, now: Duration) -> Vec<Ended<T>> {
        let mut ended = Vec::new();
        while let Some(&(due, number)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, number));
            let Some(it) = self.history.current(number).cloned() else { continue };
            let Some(operation) = it.operation.filter(|operation| operation.due == due) else { continue };
            let is_deleted = it.state == Phase::Deleting && !operation.fails;
            let resource = if is_deleted {
                self.names.remove(&it.name);
                self.history.change(due, number, None);
                it
            } else {
                let (state, error) = if operation.fails {
                    (Phase::Failed, Some(LATE_FAILURE.to_owned()))
                } else {
                    (Phase::Active, None)
                };
                self.keep(due, Resource { state, error, operation: None, ..Resource::clone(&it) })
            };
            ended.push(Ended { resource, is_deleted });
        }
        ended
    }

    /// Forgets states before this time.
    pub(super) fn forget(&mut self, at: Duration) {
        self.history.forget(at);
    }

    /// Replaces the resource of this name, with a new etag.
    fn keep(&mut self, now: Duration, next: Resource<T>) -> Arc<Resource<T>> {
        self.etags += 1;
        let next = Arc::new(Resource { etag: Etag(self.etags), ..next });
        if let Some(number) = self.names.get(&next.name) {
            self.history.change(now, *number, Some(Arc::clone(&next)));
            self.due.extend(next.operation.map(|operation| (operation.due, *number)));
        }
        next
    }
}
