//! What the gate waits for.

use std::fmt;

/// What the gate was waiting for when the time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A connection: name, address and TLS. The request hasn't left.
    Connect,
    /// The head of the response.
    FirstByte,
    /// The next part of the response's body.
    BetweenBytes,
    /// Anything, when the call's hard deadline came.
    Call,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "to connect",
            Self::FirstByte => "to start its response",
            Self::BetweenBytes => "to continue its response",
            Self::Call => "for the rest of the call",
        })
    }
}
