//! Errors as the contract defines them. The host branches on the kind only; the message is for people.

use std::fmt;
use std::time::Duration;

/// Pairs of a name and a value beyond the fields of a record. A name of the provider's own starts with the provider's
/// name and a dot. Names without a dot belong to the contract.
pub type Extra = Vec<(String, String)>;

/// When to repeat a call that its soft deadline cut short: soon, but after the urgent calls that the deadline lets pass.
pub(crate) const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// What the host should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The cloud throttles requests. Retried after this time, or after the host's own delay if the cloud gave none.
    Throttled(Option<Duration>),
    /// Another client changed or locked the same object. Retried after this time, or soon if the cloud gave none, with a
    /// fresh read.
    Conflict(Option<Duration>),
    /// The cloud rejects the request. The user's object or the configuration must change first.
    Invalid,
    /// The credentials or the grants don't allow the request. Retried slowly, because an operator has to act.
    Denied,
    /// The cloud doesn't answer, or is temporarily unable to. Retried after this time, or with backoff if the cloud gave
    /// none.
    Unavailable(Option<Duration>),
    /// The provider doesn't understand the cloud: an unknown answer or an impossible state.
    Broken,
}

/// An error that a provider reports.
///
/// The message is one sentence for people: lower case, no full stop, naming the object and the cause. It appears in
/// events and logs, so it must not hold a secret. The host keeps the first 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What to do about the error.
    pub kind: ErrorKind,
    /// What happened, for people.
    pub message: String,
    /// More facts. `request-id` is the cloud's ID of the failed request, for a support ticket.
    pub extra: Extra,
    is_past_deadline: bool,
    is_held_back: bool,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            extra: Extra::new(),
            is_past_deadline: false,
            is_held_back: false,
        }
    }

    /// See [`ErrorKind::Throttled`].
    pub fn throttled(after: Option<Duration>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Throttled(after), message)
    }

    /// See [`ErrorKind::Conflict`]. The cloud gave no time.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict(None), message)
    }

    /// See [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// An `invalid` error about a provider ID that doesn't have the form of the example.
    pub fn invalid_provider_id(provider_id: &str, example: &str) -> Self {
        Self::invalid(format!("provider ID `{provider_id}` is not of the form `{example}`"))
    }

    /// See [`ErrorKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// See [`ErrorKind::Unavailable`]. The cloud gave no time.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable(None), message)
    }

    /// See [`ErrorKind::Broken`].
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Broken, message)
    }

    /// The error of a request, or of a Node, that the soft deadline of the call cut short.
    pub(crate) fn deadline(subject: &str) -> Self {
        let message = format!("{subject} has no answer yet: the deadline of the call came first");
        Self { is_past_deadline: true, ..Self::throttled(Some(AFTER_DEADLINE), message) }
    }

    /// Whether nothing failed except that the soft deadline of the call passed. Pass such an error on: the SDK answers
    /// that the item is not known yet.
    pub fn is_past_deadline(&self) -> bool {
        self.is_past_deadline
    }

    /// Marks the error of a request that the gate held back, because its turn would come after the soft deadline.
    pub(crate) fn held_back(self) -> Self {
        Self { is_held_back: true, ..self }
    }

    /// Whether a change could not begin before the soft deadline.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.is_past_deadline || self.is_held_back
    }

    /// Prefixes the message with what the error is about, as in `node a: …`.
    #[must_use]
    pub fn context(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.push((name.into(), value.into()));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
