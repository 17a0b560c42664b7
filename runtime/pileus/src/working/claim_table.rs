//! What the providers of this process claim for themselves, and which of them are refused because an older one claims the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pileus_controllers::claims::{Claim, Claims, Overlap, new_overlaps};
use pileus_controllers::nodes::Nodes;
use tokio::sync::watch;

/// Why providers are refused, by name.
pub(crate) type Refusals = BTreeMap<String, String>;

/// The claims of all providers. A provider that has none yet, or none any more, claims nothing.
pub(crate) struct ClaimTable {
    nodes: Nodes,
    claims: Mutex<BTreeMap<String, Claim>>,
    refusals: watch::Sender<Refusals>,
}

impl ClaimTable {
    /// No claims yet. Those that stand decide to which provider each of these Nodes belongs.
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self { nodes, claims: Mutex::default(), refusals: watch::Sender::default() }
    }

    /// Follows the refusals.
    pub(crate) fn refusals(&self) -> watch::Receiver<Refusals> {
        self.refusals.subscribe()
    }

    /// Sets the claim of a provider in place of its former one.
    pub(crate) fn set(&self, claim: Claim) {
        self.change(|claims| drop(claims.insert(claim.name.clone(), claim)));
    }

    /// Removes the claim of a provider that doesn't run any more.
    pub(crate) fn remove(&self, provider: &str) {
        self.change(|claims| drop(claims.remove(provider)));
    }

    /// What a claim would overlap, in place of the former claim of its provider, and that one doesn't.
    pub(crate) fn new_overlaps(&self, claim: &Claim) -> Vec<Overlap> {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        new_overlaps(&claims.values().cloned().collect::<Vec<_>>(), claim)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Claim>)) {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut claims);
        let (standing, overlaps) = Claims::new(claims.values().cloned().collect());
        self.nodes.set_claims(standing);
        let mut refusals = Refusals::new();
        for overlap in overlaps {
            refusals.entry(overlap.refused.clone()).or_insert_with(|| overlap.to_string());
        }
        self.refusals.send_if_modified(|before| {
            let is_new = *before != refusals;
            *before = refusals;
            is_new
        });
    }
}
