//! All metric families, registered together.

use prometheus_client::registry::Registry;

use crate::swap_metrics::SwapMetrics;

/// All metric families, apart from those of the election.
pub(crate) struct Metrics {
    pub(crate) controllers: pileus_controllers::Metrics,
    pub(crate) gate: pileus_gate::Metrics,
    pub(crate) host: pileus_host::Metrics,
    pub(crate) swaps: SwapMetrics,
}

impl Metrics {
    /// Registers all families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            controllers: pileus_controllers::Metrics::register(registry),
            gate: pileus_gate::Metrics::register(registry),
            host: pileus_host::Metrics::register(registry),
            swaps: SwapMetrics::register(registry),
        }
    }
}
