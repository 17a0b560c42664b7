//! The access of releases to the cloud, where the present document gives less than that of a release.

use super::Releases;
use super::prepare::Ready;

impl Releases {
    /// Ends the access that the present document doesn't give, of all releases at once: also of an active one that stays, since
    /// swaps are paused, the next one is held, or the time window is closed.
    pub(super) fn narrow(&self) {
        let Some(document) = &self.document else { return };
        for ready in self.prepared.values().filter_map(|prepared| prepared.ready.as_ref()) {
            ready.gate.narrow(&document.grants, &document.credentials);
        }
    }
}

/// Whether the documents of two releases give other access. The gate ends what the newer one doesn't give at once, so the active
/// release may be unable to answer, and waiting wouldn't help. What it doesn't answer counts as unknown.
pub(super) fn has_other_access(candidate: &Ready, active: &Ready) -> bool {
    let access = |ready: &Ready| {
        let credentials = ready.document.credentials.iter();
        let names =
            credentials.map(|it| (it.name.clone(), it.hosts.clone(), it.paths.clone(), it.auxiliary.clone()));
        (ready.document.grants.clone(), names.collect::<Vec<_>>())
    };
    access(candidate) != access(active)
}
