//! What a provider requires of calls about Services: their size, and the data that they carry.

use std::time::Duration;

/// The type of an annotation's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationType {
    /// Any text.
    Text,
    /// `true` or `false`. [`Service::annotations`](crate::Service::annotations) holds no other spelling.
    Boolean,
    /// A whole number.
    Integer,
    /// Texts, separated by commas.
    TextList,
    /// CIDRs, separated by commas.
    RangeList,
    /// A label selector, which the controller applies to the Service's targets.
    NodeSelector,
}

impl AnnotationType {
    /// The type as the contract writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::TextList => "text-list",
            Self::RangeList => "range-list",
            Self::NodeSelector => "node-selector",
        }
    }
}

/// How large a call about Services may be, and which data of Services the provider reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag is independent, and all combinations are allowed"
)]
pub struct ServiceRequirements {
    /// The largest number of changes in one call; at least 1.
    pub largest_batch: usize,
    /// Whether two calls may run at the same time.
    pub allows_concurrent_calls: bool,
    /// The annotations that the provider reads, with the types of their values. Each is a key, or a pattern with one `*`
    /// that stands for at least one character. Other annotations never reach the provider.
    pub annotations: Vec<(String, AnnotationType)>,
    /// The keys of the annotations that the provider sets.
    pub written_annotations: Vec<String>,
    /// Whether the provider reads [`Service::namespace_labels`](crate::Service::namespace_labels).
    pub wants_namespace_labels: bool,
    /// Whether the provider reads [`Service::endpoints`](crate::Service::endpoints).
    pub wants_endpoints: bool,
    /// Whether the provider reads [`ServiceCall::known`](crate::ServiceCall::known).
    pub wants_known: bool,
    /// Whether the provider serves ports without a node port. Others are refused before they reach it.
    pub takes_missing_node_ports: bool,
    /// How long a call takes at most, with the repetitions of a call that failed. After that it is lost.
    pub longest_call: Duration,
}

impl Default for ServiceRequirements {
    /// The requirements of a provider that declares none: one change a call, one call at a time, no optional data.
    fn default() -> Self {
        Self {
            largest_batch: 1,
            allows_concurrent_calls: false,
            annotations: Vec::new(),
            written_annotations: Vec::new(),
            wants_namespace_labels: false,
            wants_endpoints: false,
            wants_known: false,
            takes_missing_node_ports: false,
            longest_call: Duration::from_mins(8),
        }
    }
}
