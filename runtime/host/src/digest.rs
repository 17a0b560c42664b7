//! The SHA-256 of a component's bytes, which identifies exactly that component.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as in OCI: `sha256:…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }

    /// The first 12 digits: enough for a reader and for a metric label.
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
