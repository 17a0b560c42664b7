//! A component that may run. Only this crate makes one, after all checks, so that a function that takes it can't get
//! anything else.

use std::fmt;

use crate::digest::Digest;
use crate::trust::verify::Trust;

/// The bytes of a trusted component, and what the trust rests on.
#[derive(Clone)]
pub struct Verified {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: String,
    pub(crate) digest: Digest,
    pub(crate) trust: Trust,
}

impl Verified {
    /// Bytes that the operator handed over, as those of a file. What they come from is for messages.
    pub fn from_operator(bytes: Vec<u8>, source: &str) -> Self {
        let digest = Digest::of(&bytes);
        Self { bytes, source: source.to_owned(), digest, trust: Trust::File }
    }

    /// The component.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The component, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Where it comes from, as the operator named it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The digest by which it is pinned: of its manifest, or of a file's bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What the trust rests on.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, source, digest, trust } = self;
        write!(f, "{source} {digest}, {} bytes, trusted by {trust:?}", bytes.len())
    }
}
