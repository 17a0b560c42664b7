//! Errors of providers and clouds, classified by what the controller should do next.
//!
//! Controllers branch on [`ErrorKind`] only. The message is for people.

use std::time::Duration;

/// What to do about an error. The contract defines this closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The cloud throttles requests. Retry after this time, if the cloud gave one.
    Throttled(Option<Duration>),
    /// Another client changed or locked the same object. Retry after this time, or soon if the cloud gave none.
    Conflict(Option<Duration>),
    /// The cloud rejects the request until the user's object or the configuration changes.
    Invalid,
    /// The credentials or the grants don't allow the request.
    Denied,
    /// The cloud doesn't answer at present. Retry after this time, if the cloud gave one.
    Unavailable(Option<Duration>),
    /// The provider failed, or doesn't understand the cloud's answer.
    Broken,
}

impl ErrorKind {
    /// The kind as a metric label or a log field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled(_) => "throttled",
            Self::Conflict(_) => "conflict",
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::Unavailable(_) => "unavailable",
            Self::Broken => "broken",
        }
    }

    /// When to retry.
    pub const fn retry(self) -> Retry {
        match self {
            Self::Throttled(Some(after)) | Self::Conflict(Some(after)) | Self::Unavailable(Some(after)) => {
                Retry::After(after)
            }
            Self::Conflict(None) => Retry::Soon,
            Self::Throttled(None) | Self::Unavailable(None) => Retry::WithBackoff,
            Self::Invalid | Self::Denied | Self::Broken => Retry::Slowly,
        }
    }
}

/// When to retry work that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// After this time, unless something changes sooner.
    After(Duration),
    /// Almost at once: a fresh read is likely to help.
    Soon,
    /// With a delay that grows with each failure.
    WithBackoff,
    /// With a growing delay too. The cause may pass within seconds, or an operator may have to act.
    Uncertain,
    /// Rarely: a user or an operator has to act first. Still retried, because nothing reports that they have acted.
    Slowly,
}

/// An error that a provider reports to a controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about the error.
    pub kind: ErrorKind,
    /// One sentence for people that names the object and the cause. It never holds a secret.
    pub message: String,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
