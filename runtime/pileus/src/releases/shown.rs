//! What others see of the releases of a provider: its status, and the gate of the release that serves calls.

use pileus_gate::Gate;
use pileus_host::swap::{Release, Status};

use super::Releases;
use super::prepare::Ready;

/// What others see of the releases.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) status: Status,
    /// Of the release that serves calls.
    pub(crate) gate: Option<Gate>,
    /// Why the controllers of the provider don't run.
    pub(crate) refusal: Option<String>,
}

impl Releases {
    pub(super) fn ready(&self, release: Release) -> Option<&Ready> {
        self.prepared.get(&release)?.ready.as_ref()
    }

    /// Shows what is new, and keeps what it names in the store.
    pub(super) async fn show(&self) {
        let serving = self.state.roles().serving.and_then(|release| self.ready(release));
        let (gate, refusal) = (serving.map(|ready| &ready.gate), self.state.refusal());
        let status = self.state.status();
        let is_new = self.shown.send_if_modified(|shown| {
            let is_same_gate = match (&shown.gate, gate) {
                (Some(before), Some(now)) => before.is(now),
                (None, None) => true,
                _ => false,
            };
            let is_same_status = status.is_none_or(|status| *status == shown.status);
            let is_same_refusal = shown.refusal.as_deref() == refusal;
            if let (false, Some(status)) = (is_same_status, status) {
                shown.status.clone_from(status);
            }
            if !is_same_gate {
                shown.gate = gate.cloned();
            }
            if !is_same_refusal {
                shown.refusal = refusal.map(str::to_owned);
            }
            !(is_same_status && is_same_gate && is_same_refusal)
        });
        if let (true, Some(status), Some(store)) = (is_new, status, self.deps.store.clone()) {
            let digests: Vec<_> = status.releases().map(|release| release.component).collect();
            let owner = self.name.clone();
            // To bring it to the disk may take long, and calls of controllers share this thread.
            let pinned = tokio::task::spawn_blocking(move || store.pin(&owner, &digests)).await;
            if let Ok(Err(error)) = pinned {
                tracing::warn!(provider = %self.name, %error, "the store can't note which components are in use");
            }
        }
    }
}
