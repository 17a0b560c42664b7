//! What events are about: one reason each, with the kind and the action that belong to it.

use kube::runtime::events::EventType;

/// The reason of an event. It is upstream's reason where upstream has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A Node was initialized (upstream's).
    Synced,
    /// A Node can't be initialized. Upstream only logs this.
    CloudInitializationFailed,
    /// Some of what the cloud says about a Node can't be taken. Upstream only logs this, or doesn't initialize the Node.
    CloudFactsLeftOut,
    /// Two Nodes have one provider ID. Upstream doesn't notice.
    DuplicateProviderID,
    /// Two Nodes have one internal address. Upstream doesn't notice.
    DuplicateAddress,
    /// A Node has no instance, although it works or waits to be initialized. Upstream says nothing.
    InstanceNotFound,
    /// A Node is being deleted because its instance is gone (upstream's).
    DeletingNode,
    /// A Node whose instance is gone can't be deleted (upstream's).
    DeletingNodeFailed,
    /// A Node's instance is gone, but so many are that the deletion is on hold.
    DeletionHeld,
    /// An initialized Node can't be updated from its instance before an operator acts. Upstream only logs this.
    CloudRefreshFailed,
    /// A Node lacks a route for its Pods (upstream's).
    FailedToCreateRoute,
    /// Another client keeps replacing the condition `NetworkUnavailable` of a Node.
    NetworkConditionContested,
    /// A Service's load balancer is being created or changed (upstream's).
    EnsuringLoadBalancer,
    /// A Service's load balancer is as desired (upstream's).
    EnsuredLoadBalancer,
    /// A Service's load balancer can't be created or changed (upstream's).
    SyncLoadBalancerFailed,
    /// A change of a load balancer is in progress in the cloud. Upstream reports this as a failure.
    LoadBalancerPending,
    /// The provider warns about a Service whose load balancer is as desired.
    LoadBalancerWarning,
    /// A Node is left out of a Service's load balancer, because the cloud refuses it.
    LoadBalancerTargetRefused,
    /// A Service's load balancer is being deleted (upstream's).
    DeletingLoadBalancer,
    /// A Service's load balancer is gone (upstream's).
    DeletedLoadBalancer,
    /// A Service's load balancer can't be deleted (upstream's).
    DeleteLoadBalancerFailed,
    /// The backends of a load balancer are up to date again (upstream's).
    UpdatedLoadBalancer,
    /// The backends of a load balancer can't be updated (upstream's).
    UpdateLoadBalancerFailed,
    /// No Node can take a Service's traffic (upstream's).
    UnAvailableLoadBalancer,
    /// A credential for the cloud can't be acquired or renewed.
    CredentialFailed,
    /// A credential for the cloud can be acquired again.
    CredentialRestored,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::CloudInitializationFailed => "CloudInitializationFailed",
            Self::CloudFactsLeftOut => "CloudFactsLeftOut",
            Self::DuplicateProviderID => "DuplicateProviderID",
            Self::DuplicateAddress => "DuplicateAddress",
            Self::InstanceNotFound => "InstanceNotFound",
            Self::DeletingNode => "DeletingNode",
            Self::DeletingNodeFailed => "DeletingNodeFailed",
            Self::DeletionHeld => "DeletionHeld",
            Self::CloudRefreshFailed => "CloudRefreshFailed",
            Self::FailedToCreateRoute => "FailedToCreateRoute",
            Self::NetworkConditionContested => "NetworkConditionContested",
            Self::EnsuringLoadBalancer => "EnsuringLoadBalancer",
            Self::EnsuredLoadBalancer => "EnsuredLoadBalancer",
            Self::SyncLoadBalancerFailed => "SyncLoadBalancerFailed",
            Self::LoadBalancerPending => "LoadBalancerPending",
            Self::LoadBalancerWarning => "LoadBalancerWarning",
            Self::LoadBalancerTargetRefused => "LoadBalancerTargetRefused",
            Self::DeletingLoadBalancer => "DeletingLoadBalancer",
            Self::DeletedLoadBalancer => "DeletedLoadBalancer",
            Self::DeleteLoadBalancerFailed => "DeleteLoadBalancerFailed",
            Self::UpdatedLoadBalancer => "UpdatedLoadBalancer",
            Self::UpdateLoadBalancerFailed => "UpdateLoadBalancerFailed",
            Self::UnAvailableLoadBalancer => "UnAvailableLoadBalancer",
            Self::CredentialFailed => "CredentialFailed",
            Self::CredentialRestored => "CredentialRestored",
        }
    }

    /// Whether the event says that a load balancer isn't as desired.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::SyncLoadBalancerFailed | Self::UpdateLoadBalancerFailed | Self::DeleteLoadBalancerFailed
        )
    }

    pub(super) const fn kind(self) -> EventType {
        match self {
            Self::Synced
            | Self::DeletingNode
            | Self::EnsuringLoadBalancer
            | Self::EnsuredLoadBalancer
            | Self::LoadBalancerPending
            | Self::DeletingLoadBalancer
            | Self::DeletedLoadBalancer
            | Self::UpdatedLoadBalancer
            | Self::CredentialRestored => EventType::Normal,
            Self::CloudInitializationFailed
            | Self::InstanceNotFound
            | Self::CloudRefreshFailed
            | Self::CloudFactsLeftOut
            | Self::DuplicateProviderID
            | Self::DuplicateAddress
            | Self::DeletingNodeFailed
            | Self::DeletionHeld
            | Self::FailedToCreateRoute
            | Self::NetworkConditionContested
            | Self::SyncLoadBalancerFailed
            | Self::LoadBalancerWarning
            | Self::LoadBalancerTargetRefused
            | Self::DeleteLoadBalancerFailed
            | Self::UpdateLoadBalancerFailed
            | Self::UnAvailableLoadBalancer
            | Self::CredentialFailed => EventType::Warning,
        }
    }

    /// The event's `action`, which `events.k8s.io` requires.
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Synced | Self::CloudInitializationFailed => "Initialize",
            Self::DeletingNode | Self::DeletingNodeFailed | Self::DeletionHeld => "Delete",
            Self::CloudRefreshFailed
            | Self::InstanceNotFound
            | Self::CloudFactsLeftOut
            | Self::DuplicateProviderID
            | Self::DuplicateAddress => "Refresh",
            Self::FailedToCreateRoute => "CreateRoute",
            Self::NetworkConditionContested => "SetCondition",
            Self::EnsuringLoadBalancer
            | Self::EnsuredLoadBalancer
            | Self::SyncLoadBalancerFailed
            | Self::LoadBalancerPending
            | Self::LoadBalancerWarning
            | Self::LoadBalancerTargetRefused
            | Self::UnAvailableLoadBalancer => "EnsureLoadBalancer",
            Self::DeletingLoadBalancer | Self::DeletedLoadBalancer | Self::DeleteLoadBalancerFailed => {
                "DeleteLoadBalancer"
            }
            Self::UpdatedLoadBalancer | Self::UpdateLoadBalancerFailed => "UpdateLoadBalancer",
            Self::CredentialFailed | Self::CredentialRestored => "Authenticate",
        }
    }
}
