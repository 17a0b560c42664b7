//! Things whose writes take their time: an operation begins, and ends later, well or not. Whoever writes meanwhile is
//! told that it is busy; whoever deletes keeps the name taken until the operation has ended. Each change of such a thing
//! gives it a new etag, so that a write can say which state of it was looked at before.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::history::History;
use super::listing::Listed;
use super::write::{Guard, Luck, Write, Written};
use crate::refusal::Refusal;

/// What a thing says when its operation has failed late.
const LATE_FAILURE: &str = "the operation failed after it had begun, write or delete it again";

/// A kind of thing.
pub trait Kind {
    /// What one is called in a sentence.
    const NOUN: &'static str;
    /// What many are called in a list.
    const PLURAL: &'static str;

    /// About how long what it shows may become, in bytes; 0 for what is always short.
    fn length(&self) -> usize {
        0
    }
}

/// How far a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is being made.
    Creating,
    /// It is being changed, and shows already what was asked for.
    Updating,
    /// It is being removed. Its name stays taken.
    Deleting,
    /// It is as it shows.
    Active,
    /// Its last operation has failed. A write or a deletion begins a new one.
    Failed,
}

impl Stage {
    /// Whether an operation is under way.
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Creating | Self::Updating | Self::Deleting)
    }

    /// The word for it in the API.
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

/// A name for one state of a thing. Each change of it makes a new one, also the end of an operation.
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

/// A thing, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource<T> {
    /// Its name. No two of a kind have the same at the same time.
    pub name: String,
    /// How far it is.
    pub state: Stage,
    /// What went wrong, where it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The name of this state.
    pub etag: Etag,
    /// What it is, or is on its way to.
    #[serde(flatten)]
    pub goal: Arc<T>,
    /// The operation that is under way.
    #[serde(skip)]
    operation: Option<Operation>,
}

impl<T> Resource<T> {
    /// The same with another goal, as nothing that is kept.
    pub(super) fn with_goal(&self, goal: T) -> Self {
        let Self { name, state, error, etag, goal: _, operation } = self;
        let (name, error, goal) = (name.clone(), error.clone(), Arc::new(goal));
        Self { name, state: *state, error, etag: *etag, goal, operation: *operation }
    }
}

impl<T: Kind> Listed for Resource<T> {
    const PLURAL: &'static str = T::PLURAL;

    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> usize {
        self.goal.length()
    }
}

/// When an operation ends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    due: Duration,
    fails: bool,
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended<T> {
    /// The thing afterwards, or the last of it.
    pub(super) resource: Arc<Resource<T>>,
    /// Whether it is gone.
    pub(super) is_gone: bool,
}

/// All things of one kind, with their past.
#[derive(Clone, Debug)]
pub struct Resources<T> {
    history: History<Resource<T>>,
    names: HashMap<String, u64>,
    /// The number of the thing that was made last.
    last: u64,
    /// The number of the last etag.
    etags: u64,
    /// When which thing's operation ends. One that was overtaken is still here and means nothing any more.
    due: BTreeSet<(Duration, u64)>,
}

impl<T> Default for Resources<T> {
    fn default() -> Self {
        let history = History::default();
        Self { history, names: HashMap::new(), last: 0, etags: 0, due: BTreeSet::new() }
    }
}

impl<T: Kind + Clone + PartialEq> Resources<T> {
    /// They and their past.
    pub(super) fn history(&self) -> &History<Resource<T>> {
        &self.history
    }

    /// The one of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Resource<T>>> {
        self.history.current(*self.names.get(name)?)
    }

    /// The one of this name.
    pub(super) fn present(&self, name: &str) -> Result<Arc<Resource<T>>, Refusal> {
        self.find(name).cloned().ok_or_else(|| Refusal::NotFound(format!("{} {name}", T::NOUN)))
    }

    /// Lets a write or a deletion in, or says why not.
    ///
    /// # Errors
    /// [`Refusal::Stale`] where the guard doesn't hold, [`Refusal::Disturbed`] where it held until just before,
    /// [`Refusal::Busy`] where an operation is under way.
    pub(super) fn admit(&mut self, now: Duration, name: &str, write: &Write) -> Result<(), Refusal> {
        let Write { guard, luck } = write;
        let noun = T::NOUN;
        let current = self.find(name).cloned();
        guard.check(noun, name, current.as_ref().map(|it| it.etag))?;
        if luck.is_disturbed && *guard != Guard::None {
            if let Some(it) = &current {
                self.keep(now, Resource::clone(it));
            }
            return Err(Refusal::Disturbed(format!(
                "somebody else has just written {noun} {name}, read it again"
            )));
        }
        match current.filter(|it| it.state.is_busy()) {
            Some(it) if it.state == Stage::Deleting || !luck.overtakes => {
                let state = it.state.as_str();
                Err(Refusal::Busy(format!("{noun} {name} is {state}, ask again when that has ended")))
            }
            _ => Ok(()),
        }
    }

    /// Writes a thing that [`Resources::admit`] let in. The operation of a write that takes no time ends with the next
    /// [`Resources::settle`].
    pub(super) fn write(&mut self, now: Duration, name: &str, goal: T, luck: Luck) -> Written<T> {
        let operation = Some(Operation { due: now.saturating_add(luck.takes), fails: luck.fails });
        let goal = Arc::new(goal);
        match self.find(name).cloned() {
            // One that fails can't have ended well with what it shows.
            Some(it) if it.goal == goal && it.state == Stage::Active => Written::Same(it),
            Some(it) => {
                let next =
                    Resource { state: Stage::Updating, error: None, goal, operation, ..Resource::clone(&it) };
                Written::Changed(self.keep(now, next))
            }
            None => {
                self.last += 1;
                self.names.insert(name.to_owned(), self.last);
                let (name, state, etag) = (name.to_owned(), Stage::Creating, Etag(0));
                Written::Made(self.keep(now, Resource { name, state, error: None, etag, goal, operation }))
            }
        }
    }

    /// Begins to remove a thing that [`Resources::admit`] let in, if there is one.
    pub(super) fn delete(&mut self, now: Duration, name: &str, luck: Luck) -> Result<(), Refusal> {
        let it = self.present(name)?;
        let operation = Some(Operation { due: now.saturating_add(luck.takes), fails: luck.fails });
        let state = Stage::Deleting;
        self.keep(now, Resource { state, error: None, operation, ..Resource::clone(&it) });
        Ok(())
    }

    /// Ends the operations that are due.
    pub(super) fn settle(&mut self, now: Duration) -> Vec<Ended<T>> {
        let mut ended = Vec::new();
        while let Some(&(due, number)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, number));
            let Some(it) = self.history.current(number).cloned() else { continue };
            let Some(operation) = it.operation.filter(|operation| operation.due == due) else { continue };
            let is_gone = it.state == Stage::Deleting && !operation.fails;
            let resource = if is_gone {
                self.names.remove(&it.name);
                self.history.change(due, number, None);
                it
            } else {
                let (state, error) = if operation.fails {
                    (Stage::Failed, Some(LATE_FAILURE.to_owned()))
                } else {
                    (Stage::Active, None)
                };
                self.keep(due, Resource { state, error, operation: None, ..Resource::clone(&it) })
            };
            ended.push(Ended { resource, is_gone });
        }
        ended
    }

    /// Forgets what was before this time.
    pub(super) fn forget(&mut self, at: Duration) {
        self.history.forget(at);
    }

    /// Makes this the state of the thing of its name, with a new etag.
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
