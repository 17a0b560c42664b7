//! Writes of resources with long operations: the precondition, the faults and the result of a write.

use std::sync::Arc;
use std::time::Duration;

use super::resource::{Etag, Resource};
use crate::refusal::Refusal;

/// What a write requires of the current state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// The resource exists (`If-Match: *`).
    Present,
    /// The resource has this etag (`If-Match`).
    Match(String),
    /// The resource doesn't exist (`If-None-Match: *`).
    Absent,
}

impl Precondition {
    /// Checks it against the current state.
    ///
    /// # Errors
    /// [`Refusal::Stale`] where it doesn't hold.
    pub(super) fn check(&self, noun: &str, name: &str, current: Option<Etag>) -> Result<(), Refusal> {
        Err(Refusal::Stale(match (self, current) {
            (Self::None, _) | (Self::Present, Some(_)) | (Self::Absent, None) => return Ok(()),
            (Self::Match(etag), Some(current)) if *etag == current.to_string() => return Ok(()),
            (Self::Match(etag), Some(current)) => {
                format!("{noun} {name} has the etag {current}, not {etag}; read it again")
            }
            (Self::Present | Self::Match(_), None) => format!("{noun} {name} doesn't exist"),
            (Self::Absent, Some(_)) => format!("{noun} {name} exists already"),
        }))
    }
}

/// The faults of one write, which are decided beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFaults {
    /// How long the operation takes.
    pub takes: Duration,
    /// Whether the operation fails at its end.
    pub fails: bool,
    /// Whether another client writes just before, where the write has a precondition that holds.
    pub is_preempted: bool,
    /// Whether it replaces an operation in progress, instead of being refused.
    pub overtakes: bool,
}

/// How a write is made: its precondition and its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Its precondition.
    pub precondition: Precondition,
    /// Its faults.
    pub write_faults: WriteFaults,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteResult<T> {
    /// A new resource was created.
    Created(Arc<Resource<T>>),
    /// The resource was changed, or its change has begun.
    Updated(Arc<Resource<T>>),
    /// Nothing: the resource was already as written.
    Unchanged(Arc<Resource<T>>),
}

impl<T> WriteResult<T> {
    /// The resource.
    pub fn resource(&self) -> &Arc<Resource<T>> {
        match self {
            Self::Created(it) | Self::Updated(it) | Self::Unchanged(it) => it,
        }
    }

    /// The same result with the current resource.
    pub(super) fn now(self, resource: Arc<Resource<T>>) -> Self {
        match self {
            Self::Created(_) => Self::Created(resource),
            Self::Updated(_) => Self::Updated(resource),
            Self::Unchanged(_) => Self::Unchanged(resource),
        }
    }
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteResult<T> {
    /// The resource is deleted.
    Deleted,
    /// The deletion has begun, or has failed.
    Started(Arc<Resource<T>>),
}
