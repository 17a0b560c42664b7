//! Why a step of a controller failed, by what the controller does about it.

use kube::core::Status;
use pileus_cloud::Retry;

/// A failed call to the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read: read it again and plan anew.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object is gone, or another one has its name now: there is nothing left to do.
    #[error("the object is gone")]
    Gone,
    /// The API server refuses.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The API server refuses for want of a right. Or it has just started, and has yet to read who has which.
    #[error("the API server refuses: {0}")]
    Forbidden(String),
    /// The API server can't be reached or can't answer now.
    #[error("the API server does not answer: {0}")]
    Unavailable(String),
}

impl Error {
    /// What became of the call, as a metric label.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Refused(_) | Self::Forbidden(_) => "refused",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// When another try is worth it.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Conflict | Self::Gone => Retry::Soon,
            Self::Unavailable(_) => Retry::WithBackoff,
            Self::Forbidden(_) => Retry::Uncertain,
            Self::Refused(_) => Retry::Slowly,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => of_status(&status),
            // Its own text says no more than that it is one.
            kube::Error::Service(error) => Self::Unavailable(chain(&*error)),
            other => Self::Unavailable(chain(&other)),
        }
    }
}

fn of_status(status: &Status) -> Error {
    match status.code {
        404 => Error::Gone,
        // A write that names a UID and finds another one: the name is another object's by now.
        422 if names(status, "metadata.uid") => Error::Gone,
        409 => Error::Conflict,
        401 | 403 => Error::Forbidden(status.message.clone()),
        429 | 500..=599 => Error::Unavailable(status.message.clone()),
        _ => Error::Refused(status.message.clone()),
    }
}

/// Whether the API server says that this field is why it refuses.
fn names(status: &Status, field: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == field)
}

/// An error with its causes, as kube's errors keep the interesting part at the end.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
