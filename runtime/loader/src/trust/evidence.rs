//! Signatures as they are found beside an artifact, before it is known what they are worth. They are stored with the
//! artifact, so that it is verified again at each load. Pure.

use serde::{Deserialize, Serialize};

use crate::trust::policy::Layout;

/// The most signatures that are looked at. The owner of a repository can attach any number.
pub(crate) const MAX_EVIDENCE: usize = 64;
/// The largest bundle or payload; real ones have 1 to 10 KiB.
pub(crate) const MAX_SIGNATURE: u64 = 256 << 10;

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Evidence {
    /// A Sigstore bundle, JSON text.
    Bundle {
        /// The text.
        text: String,
    },
    /// A signature under a tag.
    #[serde(rename_all = "camelCase")]
    Tag {
        /// What is signed, JSON text.
        payload: String,
        /// The signature in base64.
        signature: String,
    },
    /// Something in a signature's place that can't be read.
    Unreadable {
        /// What it is.
        cause: String,
    },
}

impl Evidence {
    /// How it is stored; none if it can't be read.
    pub(crate) fn layout(&self) -> Option<Layout> {
        match self {
            Self::Bundle { .. } => Some(Layout::Bundle),
            Self::Tag { .. } => Some(Layout::Tag),
            Self::Unreadable { .. } => None,
        }
    }
}
