//! The kinds and outcomes of calls. Faults are limited to kinds, and counters are kept by kind and outcome.

use serde::{Deserialize, Serialize};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One page of a list.
    List,
    /// One object, read by its ID.
    Get,
    /// A new object, or a batch of them.
    Create,
    /// A change to an object that exists.
    Change,
    /// The deletion of an object.
    Delete,
    /// A token for other calls.
    Token,
    /// What a machine's metadata service says about it.
    Metadata,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::List, Self::Get, Self::Create, Self::Change, Self::Delete, Self::Token, Self::Metadata];
    /// The kinds that change something.
    pub const WRITES: [Self; 3] = [Self::Create, Self::Change, Self::Delete];

    /// Whether it needs a token. What issues tokens can't ask for one, and a metadata service answers every process of its machine.
    pub fn needs_token(self) -> bool {
        !matches!(self, Self::Token | Self::Metadata)
    }

    /// Whether it changes something.
    pub fn is_write(self) -> bool {
        Self::WRITES.contains(&self)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It succeeded.
    Ok,
    /// The object doesn't exist.
    NotFound,
    /// Refused without a valid token, or without valid credentials for one.
    Unauthorized,
    /// Refused because of too many requests.
    Throttled,
    /// Refused for any other reason, or failed.
    Error,
    /// No response: the connection was closed.
    Lost,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::NotFound, Self::Unauthorized, Self::Throttled, Self::Error, Self::Lost];

    /// The outcome of a call with this HTTP status.
    pub fn of_status(status: u16) -> Self {
        match status {
            ..=399 => Self::Ok,
            401 => Self::Unauthorized,
            404 => Self::NotFound,
            429 => Self::Throttled,
            _ => Self::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_follows_from_the_status() {
        let table = [
            (200, Outcome::Ok),
            (204, Outcome::Ok),
            (400, Outcome::Error),
            (401, Outcome::Unauthorized),
            (404, Outcome::NotFound),
            (409, Outcome::Error),
            (429, Outcome::Throttled),
            (503, Outcome::Error),
        ];
        for (status, outcome) in table {
            assert_eq!(Outcome::of_status(status), outcome, "{status}");
        }
    }
}
