//! What events are about: one reason each, with the kind and the action that belong to it.

use pileus_cloud::Notice;

/// Defines the reasons of our own, so that each is also among the words that no provider may use.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The reason of an event. It is upstream's reason where upstream has one.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            /// What a provider tells about a Service, with a reason that the alerts and runbooks of its cloud know.
            OfProvider {
                /// In CamelCase, at most 64 letters and digits.
                reason: String,
                /// Whether it is a Warning event.
                is_warning: bool,
            },
        }

        const OWN: &[&str] = &[$(stringify!($name),)*];

        impl Reason {
            pub(crate) fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::OfProvider { reason, .. } => reason,
                }
            }
        }
    };
}

reasons! {
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
    /// The node selectors of several providers match a Node, so none of them serves it.
    ProviderConflict,
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
    /// The provider, or this process, warns about a Service whose load balancer is as desired.
    LoadBalancerWarning,
    /// The provider tells something about a Service, without a valid reason of its own.
    LoadBalancerNotice,
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
    /// A release of a provider is active.
    ProviderSwapped,
    /// The active release of a provider did worse than the one before, which is active again.
    ProviderRolledBack,
    /// A release of a provider can't become active.
    ProviderRejected,
    /// A release of a provider waits for the operator, because its dry run showed differences.
    ProviderHeld,
    /// An older provider claims the same Nodes or Services.
    ProviderRefused,
}

/// The longest reason of a provider, in bytes.
const MAX_LENGTH: usize = 64;

impl Reason {
    /// That of a provider's notice. A word of our own would make the notice look like a decision of this process, so it becomes a
    /// warning or a notice like any other, as an invalid word does.
    pub(crate) fn of_notice(notice: &Notice) -> Self {
        let Notice { reason, message: _, is_warning } = notice;
        let is_camel_case = reason.starts_with(|letter: char| letter.is_ascii_uppercase())
            && reason.len() <= MAX_LENGTH
            && reason.chars().all(|letter| letter.is_ascii_alphanumeric());
        if is_camel_case && !OWN.contains(&&**reason) {
            Self::OfProvider { reason: reason.clone(), is_warning: *is_warning }
        } else if *is_warning {
            Self::LoadBalancerWarning
        } else {
            Self::LoadBalancerNotice
        }
    }

    /// Which events of an object share one limit. All reasons of providers share one or the other, however many they invent.
    pub(super) fn limit(&self) -> &str {
        match self {
            Self::OfProvider { is_warning: true, .. } => "LoadBalancerWarning",
            Self::OfProvider { is_warning: false, .. } => "LoadBalancerNotice",
            own => own.as_str(),
        }
    }

    /// Whether the event says that a load balancer isn't as desired.
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::SyncLoadBalancerFailed | Self::UpdateLoadBalancerFailed | Self::DeleteLoadBalancerFailed
        )
    }

    /// Whether it is a Warning event: one that reports a problem.
    pub(super) const fn is_warning(&self) -> bool {
        match self {
            Self::OfProvider { is_warning, .. } => *is_warning,
            Self::Synced
            | Self::DeletingNode
            | Self::EnsuringLoadBalancer
            | Self::EnsuredLoadBalancer
            | Self::LoadBalancerPending
            | Self::DeletingLoadBalancer
            | Self::DeletedLoadBalancer
            | Self::UpdatedLoadBalancer
            | Self::LoadBalancerNotice
            | Self::CredentialRestored
            | Self::ProviderSwapped => false,
            Self::CloudInitializationFailed
            | Self::InstanceNotFound
            | Self::ProviderConflict
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
            | Self::CredentialFailed
            | Self::ProviderRolledBack
            | Self::ProviderRejected
            | Self::ProviderHeld
            | Self::ProviderRefused => true,
        }
    }

    /// The event's `action`, which `events.k8s.io` requires.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Synced | Self::CloudInitializationFailed | Self::ProviderConflict => "Initialize",
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
            | Self::LoadBalancerNotice
            | Self::OfProvider { .. }
            | Self::LoadBalancerTargetRefused
            | Self::UnAvailableLoadBalancer => "EnsureLoadBalancer",
            Self::DeletingLoadBalancer | Self::DeletedLoadBalancer | Self::DeleteLoadBalancerFailed => {
                "DeleteLoadBalancer"
            }
            Self::UpdatedLoadBalancer | Self::UpdateLoadBalancerFailed => "UpdateLoadBalancer",
            Self::CredentialFailed | Self::CredentialRestored => "Authenticate",
            Self::ProviderSwapped
            | Self::ProviderRolledBack
            | Self::ProviderRejected
            | Self::ProviderHeld => "Swap",
            Self::ProviderRefused => "Claim",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_keeps_its_reason_unless_that_is_invalid_or_one_of_our_own() {
        let long = "A".repeat(MAX_LENGTH);
        let too_long = "A".repeat(MAX_LENGTH + 1);
        for (reason, is_kept) in [
            ("PoolUpdated", true),
            ("X", true),
            (&long, true),
            (&too_long, false),
            ("", false),
            ("poolUpdated", false),
            ("Pool Updated", false),
            ("Pool\u{202e}Updated", false),
            ("SyncLoadBalancerFailed", false),
            ("InstanceNotFound", false),
            ("CredentialRestored", false),
            ("LoadBalancerWarning", false),
            ("LoadBalancerNotice", false),
        ] {
            for (is_warning, other) in
                [(true, Reason::LoadBalancerWarning), (false, Reason::LoadBalancerNotice)]
            {
                let notice = Notice { reason: reason.to_owned(), message: "x".to_owned(), is_warning };
                let kept = Reason::OfProvider { reason: reason.to_owned(), is_warning };
                let expected = if is_kept { kept } else { other.clone() };
                let found = Reason::of_notice(&notice);
                assert_eq!(found, expected, "{reason:?} {is_warning}");
                assert_eq!(found.limit(), other.as_str(), "{reason:?} {is_warning}");
                assert_eq!(found.is_warning(), is_warning, "{reason:?}");
                assert!(!found.is_failure(), "{reason:?}");
            }
        }
    }
}
