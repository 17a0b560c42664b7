//! The metric families of the other crates, registered together.

use prometheus_client::registry::Registry;

/// All metric families of the crates that controllers, gate and host are in.
pub(crate) struct Metrics {
    pub(crate) controllers: pileus_controllers::Metrics,
    pub(crate) gate: pileus_gate::Metrics,
    pub(crate) host: pileus_host::Metrics,
}

impl Metrics {
    /// Registers all families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            controllers: pileus_controllers::Metrics::register(registry),
            gate: pileus_gate::Metrics::register(registry),
            host: pileus_host::Metrics::register(registry),
        }
    }
}
