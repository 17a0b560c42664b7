//! What can go wrong at a cloud, by what to do about it.
//!
//! Controllers branch on [`ErrorKind`] and on nothing else; the text is for people.

use std::time::Duration;

/// What to do about an error. The set is closed: it is the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The cloud has had enough: ask again after this time, where it said one.
    Throttled(Option<Duration>),
    /// Somebody else changed or holds the same thing: ask again soon.
    Conflict,
    /// The cloud won't take it until the user's object or the configuration changes.
    Invalid,
    /// Credentials or grants don't allow it.
    Denied,
    /// The cloud doesn't answer at the moment.
    Unavailable,
    /// The provider failed, or is wrong about the cloud.
    Broken,
}

impl ErrorKind {
    /// The kind as a metric label or a log field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled(_) => "throttled",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Broken => "broken",
        }
    }

    /// When it is worth trying again.
    pub const fn retry(self) -> Retry {
        match self {
            Self::Throttled(Some(after)) => Retry::After(after),
            Self::Conflict => Retry::Soon,
            Self::Throttled(None) | Self::Unavailable => Retry::Growing,
            Self::Invalid | Self::Denied | Self::Broken => Retry::Slowly,
        }
    }
}

/// When a failed piece of work is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After this time, unless something changes before.
    After(Duration),
    /// At once or nearly so: a fresh read is likely to help.
    Soon,
    /// With a delay that grows with each failure.
    Growing,
    /// With a delay that grows as well: somebody has to act first, or it passes by itself within seconds.
    Uncertain,
    /// Somebody has to act first: seldom, but not never, as nobody tells us when they have.
    Slowly,
}

/// An error at the seam between controllers and a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// One sentence for people that names the object and the cause; never holds a secret.
    pub message: String,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
