//! A Node, as the facts by which a provider finds its instance.

use std::time::SystemTime;

use serde::Deserialize;

use crate::Extra;

/// What an address of an instance is for (Kubernetes' `NodeAddressType`). JSON uses the contract's names, such as
/// `internal-ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// A host name as the instance reports it.
    Hostname,
    /// An IP address that is reachable inside the cluster's network.
    InternalIp,
    /// An IP address that is reachable from outside.
    ExternalIp,
    /// A DNS name that resolves inside the cluster's network.
    InternalDns,
    /// A DNS name that resolves outside.
    ExternalDns,
}

/// One address of an instance. A cloud whose JSON uses the contract's names can be read directly into this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Address {
    /// What the address is for.
    pub kind: AddressKind,
    /// The address or name. IP addresses are in canonical text form, without a prefix length.
    pub value: String,
}

impl Address {
    /// An address of this kind.
    pub fn new(kind: AddressKind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

/// The facts about a Kubernetes Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReference {
    /// `metadata.name`, usually the host name of the instance.
    pub name: String,
    /// `metadata.uid`. Another Node may get the same name later, but never the same UID.
    pub uid: String,
    /// `spec.providerID`, once the Node has one. It takes precedence over the name.
    pub provider_id: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created_at: SystemTime,
    /// `status.addresses`, in the Node's order. At first they are what the kubelet reports.
    pub addresses: Vec<Address>,
    /// The addresses that the kubelet's `--node-ip` asks for: none, one, or one of each family. A provider that must
    /// choose among an instance's addresses lists the matching ones.
    pub node_ips: Vec<String>,
    /// The Node labels whose keys the provider named in its description or its settings.
    pub labels: Vec<(String, String)>,
    /// `status.nodeInfo.systemUUID`: the UUID that the firmware reports, as the kubelet wrote it. Some kubelets swap the
    /// bytes of its first three groups.
    pub system_uuid: Option<String>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl NodeReference {
    /// A Node that has registered and has no provider ID yet, for tests.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            uid: format!("uid-of-{name}"),
            name,
            provider_id: None,
            created_at: SystemTime::UNIX_EPOCH,
            addresses: Vec::new(),
            node_ips: Vec::new(),
            labels: Vec::new(),
            system_uuid: None,
            extra: Extra::new(),
        }
    }

    /// The same Node with a provider ID.
    #[must_use]
    pub fn with_provider_id(mut self, provider_id: impl Into<String>) -> Self {
        self.provider_id = Some(provider_id.into());
        self
    }

    /// The value of one of its labels.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}
