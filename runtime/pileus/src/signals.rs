//! SIGTERM and SIGINT.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// A token that the first SIGTERM or SIGINT cancels.
///
/// # Errors
/// [`Error::Machine`] if the signal handlers can't be installed.
pub(crate) fn stop_on_signal() -> Result<CancellationToken, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Machine)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Machine)?;
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        let signal = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal, "stopping once the writes in flight have been answered");
        cancelled.cancel();
    });
    Ok(stop)
}
