//! The error of a request to the API server, by what the controller does about it.

use kube::core::Status;
use pileus_cloud::Retry;

/// A failed request to the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object has changed since it was read: read it again and plan again.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object is gone, or another object has its name now: there is nothing left to do.
    #[error("the object is gone")]
    Gone,
    /// The API server rejects the request, or an admission policy undoes it.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The API server denies the request. An API server that has just started does so until it has read the RBAC rules.
    #[error("the API server refuses: {0}")]
    Forbidden(String),
    /// The API server can't be reached, or can't answer now.
    #[error("the API server does not answer: {0}")]
    Unavailable(String),
}

impl Error {
    /// The result of the request, as a metric label.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Refused(_) | Self::Forbidden(_) => "refused",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// When to retry.
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
            // The text of this variant itself only says that it is one.
            kube::Error::Service(error) => Self::Unavailable(chain(&*error)),
            other => Self::Unavailable(chain(&other)),
        }
    }
}

fn of_status(status: &Status) -> Error {
    match status.code {
        404 => Error::Gone,
        // A write names the object's UID. Another UID means that another object has the name now.
        422 if has_cause(status, "metadata.uid") => Error::Gone,
        409 => Error::Conflict,
        401 | 403 => Error::Forbidden(status.message.clone()),
        429 | 500..=599 => Error::Unavailable(status.message.clone()),
        _ => Error::Refused(status.message.clone()),
    }
}

/// Whether the API server names this field as a cause.
fn has_cause(status: &Status, field: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == field)
}

/// The text of an error with its causes. The interesting part of kube's errors is the last cause.
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
