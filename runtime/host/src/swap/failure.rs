//! What goes wrong with a release, in words that fit into a status. Pure.

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the operator: the object, the cause, the next step.
    pub message: String,
    /// Whether another attempt would fail in the same way.
    pub is_permanent: bool,
}

/// The longest message in a status, in bytes. Providers and registries have a say in messages, and a status that is too large
/// can't be written at all.
const LONGEST: usize = 1024;

impl Failure {
    /// With a message that fits into a status.
    pub(super) fn bounded(self) -> Self {
        Self { message: bounded(self.message), ..self }
    }
}

/// A text that fits into a status.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

/// What a dry run found, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A lookup that the candidate answers differently.
    Lookup(String),
    /// A write that the candidate wanted for what is settled.
    Write(String),
}
