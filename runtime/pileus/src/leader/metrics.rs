//! Metrics of leader election, with upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics for one Lease.
#[derive(Clone)]
pub(super) struct Metrics {
    pub(super) master_status: Gauge,
    pub(super) slow_path: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry, lease: &str) -> Self {
        let (status, slow) = (Family::<Labels, Gauge>::default(), Family::<Labels, Counter>::default());
        registry.register(
            "leader_election_master_status",
            "1 if this process is the leader, else 0",
            status.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Lease renewals that had to read the lease before writing it",
            slow.clone(),
        );
        let labels = Labels { name: lease.to_owned() };
        Self {
            master_status: status.get_or_create(&labels).clone(),
            slow_path: slow.get_or_create(&labels).clone(),
        }
    }
}
