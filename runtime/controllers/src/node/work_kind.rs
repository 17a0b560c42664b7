//! The two kinds of work of the node controller.

use pileus_cloud::Purpose;

use crate::facts::node::NodeFacts;

/// What a Node is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// The Node waits to be initialized, or has no provider ID (U-26).
    Initialize,
    /// The Node is initialized and follows its instance.
    Refresh,
}

impl WorkKind {
    /// Both kinds, the urgent one first.
    pub(super) const ALL: [Self; 2] = [Self::Initialize, Self::Refresh];

    /// The kind of work that a Node needs.
    pub(super) fn of(node: &NodeFacts) -> Self {
        if node.is_uninitialized() || node.provider_id.is_none() { Self::Initialize } else { Self::Refresh }
    }

    /// The purpose that the provider is given.
    pub(super) const fn purpose(self) -> Purpose {
        match self {
            Self::Initialize => Purpose::Initialise,
            Self::Refresh => Purpose::Refresh,
        }
    }
}
