//! The words for one request: which kind of call it is, and how it ended. Faults are limited to kinds, counters are
//! kept by kind and outcome, and both need the same words.

use serde::{Deserialize, Serialize};

/// What a call is about, as far as faults and counters tell calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One page of a list.
    List,
    /// One object, read by its id.
    Get,
    /// A new object, or a batch of them.
    Create,
    /// A change to an object that exists.
    Change,
    /// An object's removal.
    Delete,
    /// A token, for all the others.
    Token,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] = [Self::List, Self::Get, Self::Create, Self::Change, Self::Delete, Self::Token];
    /// The kinds that change something.
    pub const WRITES: [Self; 3] = [Self::Create, Self::Change, Self::Delete];

    /// Whether it changes something.
    pub fn is_write(self) -> bool {
        Self::WRITES.contains(&self)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As asked.
    Ok,
    /// There is no such object.
    NotFound,
    /// Refused for want of a token, or of a right to one.
    Unauthorized,
    /// Refused as one too many.
    Throttled,
    /// Refused for any other reason, or failed.
    Error,
    /// Without an answer: the connection was closed.
    Lost,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::NotFound, Self::Unauthorized, Self::Throttled, Self::Error, Self::Lost];

    /// The outcome of a call that was answered with this HTTP status.
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
    fn the_status_tells_the_outcome() {
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
