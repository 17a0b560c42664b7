//! Why the cloud refuses a request: a code for clients, a message for people, and an HTTP status.

use thiserror::Error;

/// A request that was not carried out, for a reason other than a configured fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The object doesn't exist.
    #[error("no {0}")]
    NotFound(String),
    /// The request has no valid token. The caller must get a new one.
    #[error("{0}")]
    Unauthorized(String),
    /// It conflicts with the current state. The caller must read again.
    #[error("{0}")]
    Conflict(String),
    /// An operation on the same resource is in progress. The caller can retry when it has ended.
    #[error("{0}")]
    Busy(String),
    /// The precondition doesn't hold. The caller must read again.
    #[error("{0}")]
    Stale(String),
    /// As [`Refusal::Stale`], but only because a fault changed the resource just before.
    #[error("{0}")]
    Preempted(String),
    /// A write of such a resource needs a precondition, and this one has none.
    #[error("a write of a {0} needs a precondition: If-Match with its etag, or If-None-Match: *")]
    PreconditionRequired(&'static str),
    /// Another resource uses it. The caller must free it first.
    #[error("{0}")]
    InUse(String),
    /// The request is invalid, regardless of the state of the cloud. The caller must correct it.
    #[error("{0}")]
    Invalid(String),
    /// The listing that the cursor continues is forgotten. The caller must start it again.
    #[error("the listing of cursor {0} has expired; start it again without a cursor")]
    CursorExpired(String),
    /// The path exists, but doesn't have this method.
    #[error("{0}")]
    WrongMethod(String),
    /// The body is too large.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The largest size that is accepted, in bytes.
        limit: usize,
    },
}

impl Refusal {
    /// The code in the response, on which clients branch.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::Unauthorized(_) => "unauthorized",
            Self::Conflict(_) => "conflict",
            Self::Busy(_) => "busy",
            Self::PreconditionRequired(_) => "precondition-required",
            Self::InUse(_) => "in-use",
            Self::Stale(_) | Self::Preempted(_) => "precondition-failed",
            Self::Invalid(_) => "invalid",
            Self::CursorExpired(_) => "cursor-expired",
            Self::WrongMethod(_) => "wrong-method",
            Self::TooLarge { .. } => "too-large",
        }
    }

    /// The HTTP status of the response.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) | Self::CursorExpired(_) => 400,
            Self::Unauthorized(_) => 401,
            Self::NotFound(_) => 404,
            Self::WrongMethod(_) => 405,
            Self::Conflict(_) | Self::Busy(_) | Self::InUse(_) => 409,
            Self::Stale(_) | Self::Preempted(_) => 412,
            Self::PreconditionRequired(_) => 428,
            Self::TooLarge { .. } => 413,
        }
    }
}
