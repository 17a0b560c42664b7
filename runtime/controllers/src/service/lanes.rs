//! What waits for a call, by how urgent it is, and what goes together.

/// What a call is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lane {
    /// What a user waits for.
    User,
    /// What the cloud is at, asked after again.
    Again,
    /// New targets, and what nobody waits for.
    Targets,
    /// Whether all is still as it was.
    Audit,
}

impl Lane {
    /// The lane as a metric label.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Again => "again",
            Self::Targets => "targets",
            Self::Audit => "audit",
        }
    }
}
