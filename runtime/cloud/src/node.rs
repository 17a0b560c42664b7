//! A Node as a provider may see it.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::{Address, ProviderId};

/// What a provider gets to know of a Node so that it can find its machine. Facts only: the Node itself, its other
/// labels and its annotations stay with the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReference {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.providerID`, where the Node has one.
    pub provider_id: Option<ProviderId>,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `status.addresses`, in their order.
    pub addresses: Vec<Address>,
    /// What the kubelet's `--node-ip` asks for: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// The Node's labels whose keys the provider named in its description.
    pub labels: Vec<(String, String)>,
}
