//! The records of the store, as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::manifest::{ComponentLayer, MAX_MANIFEST, Manifest, Selection};
use crate::trust::evidence::{Evidence, MAX_EVIDENCE, MAX_SIGNATURE};

/// The largest record: two manifests and all signatures, whose quotes and control characters JSON writes in up to six bytes.
pub(super) const MAX_RECORD: u64 = 6 * (2 * MAX_MANIFEST + 2 * MAX_EVIDENCE as u64 * MAX_SIGNATURE);

/// An artifact without its component: all that is needed to verify it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredArtifact {
    /// The repository in which it was found.
    pub(crate) repository: String,
    /// The manifest or the index, whose digest is the artifact's.
    pub(crate) manifest: String,
    /// The entry that the index led to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<String>,
    /// The signatures that counted when it was fetched.
    pub(crate) evidence: Vec<Evidence>,
}

impl StoredArtifact {
    /// Follows the digests from the artifact's to the component's. The error says what is wrong.
    pub(crate) fn layer(&self, digest: Digest) -> Result<ComponentLayer, String> {
        if Digest::of(self.manifest.as_bytes()) != digest {
            return Err("its manifest has another digest".to_owned());
        }
        match (Manifest::parse(self.manifest.as_bytes())?.select()?, &self.entry) {
            (Selection::Component(layer), None) => Ok(layer),
            (Selection::Manifest(chosen), Some(entry)) if Digest::of(entry.as_bytes()) == chosen => {
                match Manifest::parse(entry.as_bytes())?.select()? {
                    Selection::Component(layer) => Ok(layer),
                    Selection::Manifest(_) => Err("its index leads to another index".to_owned()),
                }
            }
            _ => Err("the entry of its index has another digest".to_owned()),
        }
    }
}

/// What a reference led to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Resolved {
    pub(super) reference: String,
    pub(super) digest: Digest,
}

/// What an owner needs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pins {
    pub(super) owner: String,
    pub(super) digests: Vec<Digest>,
    /// When the need ends by itself; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}
