//! What all replicas share about the releases of a provider, or one replica keeps: the status, and what belongs to the releases
//! that it names. Pure.

use std::collections::BTreeMap;

use pileus_host::swap::Status;
use pileus_loader::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is kept: the status, and the settings of the releases that it names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Recorded {
    /// Grows with each write.
    pub(crate) revision: u64,
    pub(crate) status: Status,
    /// The UID of the resource whose status it is.
    #[serde(skip)]
    pub(crate) owner: Option<String>,
    /// The identity of the document for which it was written.
    pub(crate) document: Option<Digest>,
    /// The versions that components name, by digest.
    pub(crate) versions: BTreeMap<Digest, String>,
    /// By digest, the specs of documents without what says which component. The status of a resource doesn't hold them.
    pub(crate) settings: BTreeMap<Digest, Value>,
}

impl Recorded {
    /// Without the settings and versions of releases that the status doesn't name.
    pub(crate) fn pruned(mut self) -> Self {
        let held: Vec<_> = self.status.releases().collect();
        self.settings.retain(|digest, _| held.iter().any(|release| release.settings == *digest));
        let rejected = self.status.rejected.iter().map(|version| version.release);
        let named: Vec<_> = held.into_iter().chain(rejected).collect();
        self.versions.retain(|digest, _| named.iter().any(|release| release.component == *digest));
        self
    }
}
