//! What the metric families of several stages have in common. Each stage owns its families; `metrics` registers them.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

/// The label of a family that has one series for each provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProviderLabels {
    pub(crate) provider: Arc<str>,
}

/// From a round trip within a data center to the longest time that a call may take, in seconds.
pub(crate) fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0])
}
