//! What the cloud says instead of doing what it was asked: a code to branch on, a sentence for people, a status.

use thiserror::Error;

/// A request that was not carried out, for a reason that is no fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no such object: not, or not any more.
    #[error("no {0}")]
    NotFound(String),
    /// It came without a token that is good. The caller gets one, or a new one.
    #[error("{0}")]
    Unauthorized(String),
    /// It contradicts what is there. The caller reads again and decides anew.
    #[error("{0}")]
    Conflict(String),
    /// An operation on the same thing is under way. The caller asks again when that has ended.
    #[error("{0}")]
    Busy(String),
    /// The caller said which state of the thing it writes to, and that isn't the one that is there. It reads again.
    #[error("{0}")]
    Stale(String),
    /// As [`Refusal::Stale`], but only because a fault changed the thing just before.
    #[error("{0}")]
    Disturbed(String),
    /// The caller must say which state of such a thing it writes to, and doesn't. It adds that.
    #[error(
        "a {0} is written whole, so the write must say for which state: If-Match with its etag, or If-None-Match: *"
    )]
    Unguarded(&'static str),
    /// Something else needs the thing. The caller frees it first.
    #[error("{0}")]
    InUse(String),
    /// It can't be carried out whatever the state of the cloud. The caller corrects it.
    #[error("{0}")]
    Invalid(String),
    /// The listing that the cursor continues is too old to be remembered. The caller starts it again.
    #[error("the listing of cursor {0} is no longer remembered, start it again without a cursor")]
    CursorExpired(String),
    /// The path exists, but not with this method.
    #[error("{0}")]
    WrongMethod(String),
    /// The body is larger than any request of this API has reason to be.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The largest size that is accepted, in bytes.
        limit: usize,
    },
}

impl Refusal {
    /// The code in the answer: what a client branches on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not-found",
            Self::Unauthorized(_) => "unauthorized",
            Self::Conflict(_) => "conflict",
            Self::Busy(_) => "busy",
            Self::Unguarded(_) => "precondition-required",
            Self::InUse(_) => "in-use",
            Self::Stale(_) | Self::Disturbed(_) => "precondition-failed",
            Self::Invalid(_) => "invalid",
            Self::CursorExpired(_) => "cursor-expired",
            Self::WrongMethod(_) => "wrong-method",
            Self::TooLarge { .. } => "too-large",
        }
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) | Self::CursorExpired(_) => 400,
            Self::Unauthorized(_) => 401,
            Self::NotFound(_) => 404,
            Self::WrongMethod(_) => 405,
            Self::Conflict(_) | Self::Busy(_) | Self::InUse(_) => 409,
            Self::Stale(_) | Self::Disturbed(_) => 412,
            Self::Unguarded(_) => 428,
            Self::TooLarge { .. } => 413,
        }
    }
}
