//! A Node as the facts that a provider needs to find the machine behind it.

use std::time::SystemTime;

use serde::Deserialize;

use crate::Extra;

/// What an address of a machine is for, in Kubernetes' words (`NodeAddressType`). In JSON it is written as in the contract,
/// `internal-ip` for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// A host name as the machine itself reports it.
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

/// One address of a machine. A cloud that has the contract's words for it can be read as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Address {
    /// What it is for.
    pub kind: AddressKind,
    /// The address or name itself. IP addresses in their canonical text form, without a prefix length.
    pub value: String,
}

impl Address {
    /// An address of a kind.
    pub fn new(kind: AddressKind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

/// A Node of Kubernetes, as facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReference {
    /// `metadata.name`, most often the machine's host name.
    pub name: String,
    /// `metadata.uid`: another Node may come to bear the same name, never the same UID.
    pub uid: String,
    /// `spec.providerID`, as soon as the Node has one. It beats the name.
    pub provider_id: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created_at: SystemTime,
    /// `status.addresses`, in their order: at first what the kubelet itself could tell.
    pub addresses: Vec<Address>,
    /// The addresses that the kubelet's `--node-ip` asks for: none, one, or one of each family. A provider that must
    /// choose among a machine's addresses lists the ones that match.
    pub node_ips: Vec<String>,
    /// The Node's labels, but only those whose keys the provider named in its description.
    pub labels: Vec<(String, String)>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl NodeReference {
    /// A Node that has registered and is not known to be any machine yet; for tests.
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
