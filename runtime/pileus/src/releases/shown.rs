//! What others see of the releases of a provider: its status, and the gate of the release that serves calls.

use pileus_gate::Gate;
use pileus_host::swap::Status;

use super::Releases;

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
    /// Shows what is new, and keeps what it names in the store.
    pub(super) fn show(&self) {
        let serving = self.state.roles().serving.and_then(|release| self.ready(release));
        let shown = Shown {
            status: self.state.status().cloned().unwrap_or_default(),
            gate: serving.map(|ready| ready.gate.clone()),
            refusal: self.state.refusal().map(str::to_owned),
        };
        let is_new = self.shown.send_if_modified(|before| {
            let is_same_gate = match (&before.gate, &shown.gate) {
                (Some(before), Some(shown)) => before.is(shown),
                (None, None) => true,
                _ => false,
            };
            let is_new = before.status != shown.status || before.refusal != shown.refusal || !is_same_gate;
            *before = shown.clone();
            is_new
        });
        if let (true, Some(store)) = (is_new, &self.deps.store) {
            let digests: Vec<_> = shown.status.releases().map(|release| release.component).collect();
            if let Err(error) = store.pin(&self.name, &digests) {
                tracing::warn!(provider = %self.name, %error, "the store can't note which components are in use");
            }
        }
    }
}
