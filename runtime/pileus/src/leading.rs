//! What the providers learn when this replica is elected.

use std::time::Duration;

use pileus_gate::Gate;

/// That this replica leads, and how long the leader before had done nothing then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leading {
    /// `None` where no replica has led before.
    pub(crate) predecessor_idle: Option<Duration>,
}

impl Leading {
    /// Lets the limits of a gate start with what has flowed in since the former leader can have sent anything.
    pub(crate) fn refill_limits(self, gate: &Gate) {
        gate.refill_limits(self.predecessor_idle.unwrap_or(Duration::MAX));
        match self.predecessor_idle {
            None => tracing::info!("limits start full, because no replica has led before"),
            Some(idle) => tracing::info!(
                predecessor_idle_s = idle.as_secs(),
                "limits start with what has flowed in since the former leader stopped"
            ),
        }
    }
}
