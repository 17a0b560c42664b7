//! Why something could not be done, in the contract's words: the kind is for the host, which branches on nothing else,
//! the message for people.

use std::fmt;
use std::time::Duration;

/// Pairs of a name and a value beyond the fields of a record. A name of the provider's own starts with the provider's
/// name and a dot; names without a dot are the contract's.
pub type Extra = Vec<(String, String)>;

/// When a call that its soft deadline cut short is worth another try: at once, but after the urgent work that the
/// deadline exists for.
pub(crate) const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// What the host should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The cloud has had enough. Asked again after this time, or after the host's own delay where it didn't say.
    Throttled(Option<Duration>),
    /// Somebody else changed the same thing, or holds it: asked again soon, with a fresh read.
    Conflict,
    /// The cloud won't take it as it stands: the user's object or the configuration must change first.
    Invalid,
    /// The credentials or the grants don't allow it. Asked again slowly, as somebody has to act.
    Denied,
    /// The cloud doesn't answer, or says that it can't at the moment. Asked again with growing delay.
    Unavailable,
    /// The provider is wrong about the cloud: an answer that it doesn't understand, a state that can't be.
    Broken,
}

/// What became of one change: how far it has come, or why it hasn't.
pub type Outcome<P> = Result<P, Error>;

/// What became of each change of a call, in their order.
pub type Outcomes<P> = Vec<Outcome<P>>;

/// An error as a provider reports it.
///
/// The message is one sentence for people: lower case, no full stop, naming the object and the cause. It appears in
/// events and logs, so it holds no secret. The host keeps 1 KiB of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What happened, for people.
    pub message: String,
    /// More facts. `request-id` is the cloud's id of the failed request, for a ticket with its support.
    pub extra: Extra,
    deadline: bool,
    late: bool,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), extra: Extra::new(), deadline: false, late: false }
    }

    /// See [`ErrorKind::Throttled`].
    pub fn throttled(after: Option<Duration>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Throttled(after), message)
    }

    /// See [`ErrorKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// See [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// `invalid`, for a provider ID that isn't of the form that the cloud's have, of which one is the example.
    pub fn provider_id(provider_id: &str, example: &str) -> Self {
        Self::invalid(format!("provider ID `{provider_id}` is not of the form `{example}`"))
    }

    /// See [`ErrorKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// See [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// See [`ErrorKind::Broken`].
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Broken, message)
    }

    /// What is said of a request, or of a Node, that the soft deadline of the call came before.
    pub(crate) fn deadline(subject: &str) -> Self {
        let message = format!("{subject} has no answer yet: the deadline of the call came first");
        Self { deadline: true, ..Self::throttled(Some(AFTER_DEADLINE), message) }
    }

    /// Whether nothing failed but the soft deadline of the call came first. Such an error need not be dealt with: the
    /// SDK answers for the item that it is not known yet.
    pub fn is_deadline(&self) -> bool {
        self.deadline
    }

    /// The same error, of a request that the gate didn't let through, as its turn comes after the soft deadline.
    pub(crate) fn comes_late(self) -> Self {
        Self { late: true, ..self }
    }

    /// Whether a change could not begin before the soft deadline.
    pub(crate) fn has_not_begun(&self) -> bool {
        self.deadline || self.late
    }

    /// The same error, its message led by what it is about, as in `node a: …`.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// The same error with one more fact.
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
