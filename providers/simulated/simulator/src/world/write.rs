//! The words of a write on something that takes its time: what it says of the state before, how it fares, and what it has
//! done.

use std::sync::Arc;
use std::time::Duration;

use super::resource::{Etag, Resource};
use crate::refusal::Refusal;

/// What a write says of the state that it was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    #[default]
    None,
    /// That the thing is there (`If-Match: *`).
    Present,
    /// That it is in the state of this etag (`If-Match`).
    Match(String),
    /// That it isn't there (`If-None-Match: *`).
    Absent,
}

impl Guard {
    /// Whether it holds for what is there.
    ///
    /// # Errors
    /// [`Refusal::Stale`] where it doesn't.
    pub(super) fn check(&self, noun: &str, name: &str, current: Option<Etag>) -> Result<(), Refusal> {
        Err(Refusal::Stale(match (self, current) {
            (Self::None, _) | (Self::Present, Some(_)) | (Self::Absent, None) => return Ok(()),
            (Self::Match(etag), Some(current)) if *etag == current.to_string() => return Ok(()),
            (Self::Match(etag), Some(current)) => {
                format!("{noun} {name} has the etag {current} and not {etag}, read it again")
            }
            (Self::Present | Self::Match(_), None) => format!("{noun} {name} isn't there"),
            (Self::Absent, Some(_)) => format!("{noun} {name} is there already"),
        }))
    }
}

/// How a write fares, decided beforehand by the dice of the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Luck {
    /// How long the operation takes.
    pub takes: Duration,
    /// Whether it then fails.
    pub fails: bool,
    /// Whether somebody else writes just before, where the write has a guard that holds.
    pub is_disturbed: bool,
    /// Whether it takes the place of an operation that is under way, instead of being refused.
    pub overtakes: bool,
}

/// A write: what it says of the state before, and how it fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// What it says.
    pub guard: Guard,
    /// How it fares.
    pub luck: Luck,
}

/// What a write has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// There was none of that name.
    Made(Arc<Resource<T>>),
    /// It is different now, or on its way to be.
    Changed(Arc<Resource<T>>),
    /// Nothing: it was so already.
    Same(Arc<Resource<T>>),
}

impl<T> Written<T> {
    /// The thing.
    pub fn resource(&self) -> &Arc<Resource<T>> {
        match self {
            Self::Made(it) | Self::Changed(it) | Self::Same(it) => it,
        }
    }

    /// The same, with the thing as it is now.
    pub(super) fn now(self, resource: Arc<Resource<T>>) -> Self {
        match self {
            Self::Made(_) => Self::Made(resource),
            Self::Changed(_) => Self::Changed(resource),
            Self::Same(_) => Self::Same(resource),
        }
    }
}

/// What a deletion has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted<T> {
    /// The thing is gone.
    Gone,
    /// The thing is on its way out, or has failed on it.
    Begun(Arc<Resource<T>>),
}
